package broker

// CHECK_TRANSACTION_STATE (39): members of a half's producer group are asked, one at a time and in turn, until one ends it.
//
// The state of the store has the halves in the order in which they are due; what was asked is written there before it goes out, so a check is counted
// once and a restart goes on where it was. A half is asked about MaxChecks times, CheckInterval apart, and then moved aside, where an operator sees it
// and can still end it. While no member is connected no check is counted: the half is looked at again after a time that grows with its age, so that
// producers that are away cost few writes, and is moved aside a day after it came.

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/fusionmq/fusionmq/metaq/membership"
	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/metaq/server"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

const (
	checkPage  = 512      // halves that one look takes
	checkBytes = 16 << 20 // of their records that it sends

	awayMost    = time.Hour      // a half without a member is looked at again no later than that
	awayAside   = 24 * time.Hour // and moved aside at that age
	foreignLook = time.Hour      // one without a producer group of this face is looked at again
)

// checkLoop asks about what is due.
func (b *Broker) checkLoop() {
	defer b.done.Done()
	tick := time.NewTicker(b.cfg.checkTick)
	defer tick.Stop()
	var failed limiter
	for {
		select {
		case <-b.quit:
			return
		case now := <-tick.C:
			if err := b.checkDue(now); err != nil && !errors.Is(err, store.ErrClosed) && failed.allow(now) {
				b.cfg.Log.Warn("undecided transactions cannot be checked, trying again", "error", err)
			}
		}
	}
}

// question is a check that is to be sent.
type question struct {
	to     membership.ConnID
	record []byte // with the topic and queue that it is for
	header [5]string
}

var questionFields = [5]string{"msgId", "transactionId", "offsetMsgId", "commitLogOffset", "tranStateTableOffset"}

// checkDue asks about a page of what is due at a time.
func (b *Broker) checkDue(now time.Time) error {
	hs := make([]state.HalfState, 1, checkPage)
	if n := b.store.Halves(false, state.HalfState{}, hs); n == 0 || hs[0].Due > now.UnixMilli() {
		return nil
	}
	// What the look before has written has to have taken effect, or it would all be asked again.
	ctx, cancel := context.WithTimeout(context.Background(), endWait)
	defer cancel()
	if err := b.store.WaitApplied(ctx, b.store.Bounds().Max-1); err != nil {
		return err
	}
	hs = hs[:b.store.Halves(false, state.HalfState{}, hs[:checkPage])]
	var (
		checks []store.HalfCheck
		aside  []int64
		ask    []question
		bytes  int
	)
	for i := range hs {
		h := &hs[i]
		if h.Due > now.UnixMilli() || bytes > checkBytes {
			break
		}
		if int(h.Checks) >= b.cfg.MaxChecks {
			aside = append(aside, h.Address)
			continue
		}
		err := b.store.ReadHalf(h.Address, func(h *state.HalfState, v record.View) error {
			c := store.HalfCheck{Address: h.Address, Checks: h.Checks}
			group, _ := v.Property(propGroup)
			members := b.members.Producers(string(group))
			age := now.Sub(time.UnixMilli(v.StoreTime()))
			switch {
			case len(group) == 0:
				c.Due = now.Add(foreignLook).UnixMilli()
			case len(members) > 0:
				q, err := b.question(h, v)
				if err != nil {
					return err
				}
				q.to = members[int(b.nextAsked.Add(1)%uint64(len(members)))].Conn
				ask, bytes = append(ask, q), bytes+len(q.record)
				c.Checks, c.Due = h.Checks+1, now.Add(b.cfg.CheckInterval).UnixMilli()
			case age > awayAside:
				aside = append(aside, h.Address)
				return nil
			default:
				c.Due = now.Add(min(max(age/4, b.cfg.CheckInterval), max(awayMost, b.cfg.CheckInterval))).UnixMilli()
			}
			checks = append(checks, c)
			return nil
		})
		switch {
		case errors.Is(err, store.ErrNoHalf): // ended since
		case err != nil:
			// It cannot be read, so nobody can be asked; an operator sees it.
			b.cfg.Log.Error("undecided transaction cannot be read, it is moved aside", "address", h.Address, "topic", h.Topic, "error", err)
			aside = append(aside, h.Address)
		}
	}
	if err := b.store.CheckHalves(checks); err != nil {
		return err
	}
	for i := range ask {
		b.ask(&ask[i])
	}
	if len(aside) == 0 {
		return nil
	}
	if err := b.store.SetHalvesAside(aside); err != nil {
		return err
	}
	b.stats.aside.Add(int64(len(aside)))
	b.cfg.Log.Warn("undecided transactions were moved aside, their producers did not say how they ended", "transactions", len(aside), "first_address", aside[0], "topic", store.AsideTopic)
	return nil
}

// question makes the next check of a half.
func (b *Broker) question(h *state.HalfState, v record.View) (q question, err error) {
	if q.record, err = store.AppendHalf(nil, h.Address, v, h.Checks+1); err != nil {
		return q, err
	}
	uniq, _ := v.Property(record.PropUniqKey)
	q.header = [5]string{string(uniq), string(uniq), record.OffsetID(b.cfg.StoreHost, h.Address), strconv.FormatInt(h.Address, 10), strconv.FormatInt(v.QueueOffset(), 10)}
	return q, nil
}

// ask sends a check. Who cannot be asked is gone, and the next check goes to another member.
func (b *Broker) ask(q *question) {
	conn, ok := b.peers.Load(q.to)
	if !ok {
		return
	}
	err := conn.(*server.Conn).Oneway(remoting.ReqCheckTransactionState, func(e *remoting.Encoder) {
		e.String("topic", store.HalfTopic)
		e.String("bname", b.cfg.Name)
		for i, name := range questionFields {
			e.String(name, q.header[i])
		}
	}, q.record)
	if err == nil {
		b.stats.checks.Add(1)
	}
}
