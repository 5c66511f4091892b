package fusion

import "context"

func (a *App) startNotify(context.Context) error { return nil }
func (a *App) stopNotify(context.Context) error  { return nil }
