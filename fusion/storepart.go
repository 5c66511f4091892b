package fusion

import (
	"context"
	"strconv"
	"time"

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
		OnceWindow:      c.Store.OnceWindow,
		OnceBytes:       int(c.Store.OnceMemory),
		Retention: store.Retention{
			Age: c.Store.Retention, ViewWindow: c.Store.ViewWindow, Interval: c.Store.CleanInterval, MostAtOnce: int(c.Store.DeleteBatch),
			MaxUsed: int(c.Store.DiskMaxUsed), ForcedAt: int(c.Store.DiskForced), RefuseAt: int(c.Store.DiskRefuse),
		},
	}
	for _, l := range c.Store.DelayLevels {
		d, err := time.ParseDuration(l)
		if err != nil {
			return err
		}
		o.DelayLevels = append(o.DelayLevels, d)
	}
	for _, h := range c.Store.DeleteHours {
		n, err := strconv.Atoi(h)
		if err != nil {
			return err
		}
		o.Retention.Hours = append(o.Retention.Hours, n)
	}
	a.makePush(&o)
	if a.store, err = store.Open(o); err != nil {
		return err
	}
	a.limitMessages(c.Broker.MaxMessageSize)
	return nil
}

// limitMessages settles the largest body of a message: what the configuration says, and no more than half a segment, so that the
// rest of a record has room as well. With store.segment-size unset only the open store knows how large a segment is.
func (a *App) limitMessages(configured int64) {
	a.maxMessage = min(configured, a.store.SegmentBytes()/2)
	if a.maxMessage < configured {
		a.log.Warn("the largest message is half of a segment of this directory, less than broker.max-message-size",
			"bytes", a.maxMessage, "segment_bytes", a.store.SegmentBytes(), "configured_bytes", configured)
	}
}

func (a *App) stopStore(context.Context) error { return a.store.Close() }
