package fusion

import (
	"context"

	"github.com/fusionmq/fusionmq/fusion/telemetry"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
)

// startStore opens the data directory, which recovers it.
func (a *App) startStore(context.Context) error {
	c := &a.cfg.Config
	durability, err := meta.ParseDurability(c.Store.Flush)
	if err != nil {
		return err
	}
	event := telemetry.Events(a.log, "store")
	o := store.Options{
		Dir:             a.data,
		SegmentBytes:    c.Store.SegmentSize,
		StoreHost:       a.adv.storeHost,
		Durability:      durability,
		Events:          func(e store.Event) { event(e.Level, e.Name, e.Attrs) },
		FlushInterval:   c.Store.FlushInterval,
		PersistInterval: c.Store.PersistInterval,
		CheckpointBytes: c.Store.CheckpointSize,
	}
	a.makePush(&o)
	a.store, err = store.Open(o)
	return err
}

func (a *App) stopStore(context.Context) error { return a.store.Close() }
