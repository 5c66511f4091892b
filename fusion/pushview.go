package fusion

import (
	"context"

	"github.com/fusionmq/fusionmq/fusion/httpapi"
	"github.com/fusionmq/fusionmq/store"
)

func (a *App) wirePush(*store.Options)           {}
func (a *App) startPush(context.Context) error   { return nil }
func (a *App) stopPush(context.Context) error    { return nil }
func (a *App) startNotify(context.Context) error { return nil }
func (a *App) stopNotify(context.Context) error  { return nil }
func (a *App) pushGroups() []string              { return nil }
func (a *App) pushed(string) bool                { return false }
func (a *App) pushGroup(string) httpapi.Group    { return httpapi.Group{} }
