package fusion

import (
	"context"

	"github.com/fusionmq/fusionmq/notify"
	"github.com/fusionmq/fusionmq/notify/delivery"
	"github.com/fusionmq/fusionmq/store"
)

// makePush makes the push service, which the store asks for targets from its first record on.
func (a *App) makePush(o *store.Options) {
	c := &a.cfg.Config
	a.push = notify.New(notify.Options{
		Delivery:     delivery.Config{AckTimeout: c.Notify.AckTimeout},
		NoAutoCreate: !c.Broker.AutoCreateTopics,
		SystemTopics: []string{c.Broker.Cluster, c.Broker.Name, c.Broker.Cluster + "_REPLY_TOPIC"},
		TopicQueues:  int32(c.Broker.DefaultQueues),
		Log:          a.log,
	})
	o.Exchange, o.Observer = a.push.Exchange(), a.push.Observer()
}

// startPush starts the push service on the open store.
func (a *App) startPush(context.Context) error {
	a.push.LimitBody(int(a.maxMessage))
	return a.push.Start(a.store)
}

// stopPush writes every outcome and cursor.
func (a *App) stopPush(ctx context.Context) error { return a.push.Stop(ctx) }
