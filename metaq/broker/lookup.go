package broker

// QUERY_MESSAGE (12): messages of a topic by key or by unique id, newest first. Unlike RocketMQ's the broker compares the keys themselves,
// so no other message with the same hash is among them, and one that was just sent is found.

import (
	"context"
	"errors"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store"
)

const (
	mostByUniq   = 32       // matches for a unique id, whatever maxNum says
	mostByKey    = 64       // matches for a key
	queryBytes   = 12 << 20 // of matches, so that they fit a frame; there is always one
	queryWait    = time.Second
	uniqKeyQuery = "_UNIQUE_KEY_QUERY"
)

func queryMessage(c *call) error {
	q := store.KeyQuery{Max: mostByUniq, Unique: c.req.Bool(uniqKeyQuery, false)}
	var err error
	if q.Topic, err = c.req.Require("topic"); err != nil {
		return err
	}
	if q.Key, err = c.req.Require("key"); err != nil {
		return err
	}
	most, err := c.req.Int32("maxNum")
	if err != nil {
		return err
	}
	if !q.Unique {
		q.Max = min(int(most), mostByKey)
	}
	if q.Begin, err = c.req.Int64("beginTimestamp"); err != nil {
		return err
	}
	if q.End, err = c.req.Int64("endTimestamp"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), queryWait)
	defer cancel()
	a, err := c.b.store.ByKey(ctx, q)
	if errors.Is(err, store.ErrClosed) {
		return refuse(remoting.RespServiceNotAvailable, "%s", err)
	}
	if err != nil {
		return err
	}
	if len(a.Matches) == 0 {
		if !a.Complete {
			return refuse(remoting.RespQueryNotFound, "can not find message, and the key index is only at %d of the log: try again later", a.Indexed)
		}
		return refuse(remoting.RespQueryNotFound, "can not find message, maybe time range not correct")
	}
	parts := make([][]byte, 0, len(a.Matches))
	size := 0
	for _, m := range a.Matches {
		if size += len(m.Record); size > queryBytes && len(parts) > 0 {
			break
		}
		parts = append(parts, m.Record)
	}
	e := c.burst.Reply(c.req, remoting.RespSuccess, "")
	e.Int("indexLastUpdateTimestamp", a.Time)
	e.Int("indexLastUpdatePhyoffset", a.Indexed)
	c.burst.EndParts(parts, a.Release)
	return nil
}
