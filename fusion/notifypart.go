package fusion

import (
	"context"

	"github.com/fusionmq/fusionmq/notify/server"
)

// startNotify opens the Notify wire on the push service.
func (a *App) startNotify(ctx context.Context) error {
	l, err := a.open(ctx, "notify")
	if l == nil {
		return err
	}
	a.notify, err = server.Serve(l, server.Options{
		Service:        a.push,
		MaxConnections: int(a.cfg.Notify.MaxConnections),
		Software:       "fusionmq " + Version,
		Log:            a.log,
	})
	return err
}

func (a *App) stopNotify(ctx context.Context) error {
	if a.notify == nil {
		return nil
	}
	return a.notify.Shutdown(ctx)
}
