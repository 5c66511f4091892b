package broker

// END_TRANSACTION (37), and what a send has to have to be a half message. The producers of a half that stays undecided are asked in checkback.go.
//
// A half is stored in RocketMQ's half topic, an end is one operation, and what is committed is a view of the half: see store.EndHalves. All ends of one
// burst are one call. An outcome is final: RocketMQ delivers a half again that is committed twice, here the second commit is answered as the first, and
// another outcome with 604. commitOrRollback 0, not known yet, gets no answer, as there. The topic is not looked at: Java clients answer a check with that of
// the half. Delays of a half count from its commit.

import (
	"context"
	"errors"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/metaq/server"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

const (
	propGroup = "PGROUP" // of a half: the group whose members are asked about it

	endUnknown, endCommit, endRollback = 0, 0x8, 0xC // commitOrRollback

	endWait = 5 * time.Second
)

// checkHalf refuses a half message that nobody could ever end.
func (w *work) checkHalf() error {
	switch {
	case w.b.cfg.RejectTransactions:
		return refuse(remoting.RespNoPermission, "the broker[%s] sending transaction message is forbidden", w.b.cfg.AdvertiseAddr)
	case w.asked.group == "":
		return refuse(remoting.RespMessageIllegal, "property TRAN_MSG is true, and PGROUP, the producer group that is asked about the transaction, is missing")
	case len(w.asked.group) > meta.MaxGroupBytes:
		return refuse(remoting.RespMessageIllegal, "property PGROUP has %d bytes, the limit is %d", len(w.asked.group), meta.MaxGroupBytes)
	}
	return nil
}

// end puts the end of a transaction in line.
func (w *work) end(r *server.Request) {
	e, err := w.readEnd(r)
	switch {
	case err != nil:
		code, remark := codeOf(err)
		w.burst.Fail(r, code, remark)
		w.b.stats.endsRefused.Add(1)
	case e == nil:
		w.burst.Hold(r) // and nobody will answer
	default:
		w.ends, w.endings = append(w.ends, *e), append(w.endings, r)
	}
}

// readEnd checks a request; nil is one that leaves the transaction undecided.
func (w *work) readEnd(r *server.Request) (*store.HalfEnd, error) {
	group, err := r.Require("producerGroup")
	if err != nil {
		return nil, err
	}
	address, err := r.Int64("commitLogOffset")
	if err != nil {
		return nil, err
	}
	offset, err := r.Int64("tranStateTableOffset")
	if err != nil {
		return nil, err
	}
	kind, err := r.Int32("commitOrRollback")
	if err != nil {
		return nil, err
	}
	switch kind {
	case endUnknown:
		return nil, nil
	case endCommit, endRollback:
	default:
		return nil, refuse(remoting.RespInvalidParameter, "commitOrRollback is %d, want 0, 8 or 12", kind)
	}
	e := &store.HalfEnd{Address: address, Commit: kind == endCommit}
	notFound := refuse(remoting.RespSystemError, "Find prepared transaction message failed")
	if address < 0 || address >= w.b.store.Bounds().Max {
		return nil, notFound
	}
	ctx, cancel := context.WithTimeout(context.Background(), endWait)
	defer cancel()
	if err := w.b.store.WaitApplied(ctx, address); err != nil {
		return nil, refuse(remoting.RespServiceNotAvailable, "%s", err)
	}
	err = w.b.store.ReadHalf(address, func(_ *state.HalfState, v record.View) error {
		if g, _ := v.Property(propGroup); string(g) != group {
			return refuse(remoting.RespSystemError, "The producer group wrong")
		}
		if v.QueueOffset() != offset {
			return refuse(remoting.RespSystemError, "The transaction state table offset wrong")
		}
		if e.Commit {
			e.Due = w.b.halfDue(v)
		}
		return nil
	})
	if errors.Is(err, store.ErrNoHalf) {
		if o := w.b.store.Half(address).Outcome; o != state.Committed && o != state.RolledBack {
			return nil, notFound
		}
		err = nil // EndHalves says whether it is this outcome
	}
	return e, err
}

// halfDue is when a half is to be delivered that is committed now, 0 at once.
func (b *Broker) halfDue(v record.View) int64 {
	var a asked
	if err := a.read(bytesString(v.Properties())); err != nil || !a.waits {
		return 0
	}
	now := time.Now()
	if a.level > 0 {
		return now.Add(b.store.LevelDelay(a.level)).UnixMilli()
	}
	at, err := a.deliverAt(now.UnixMilli())
	if err != nil { // it was checked when it came: only from another broker's directory
		return 0
	}
	return at
}

// endAll ends the transactions in line and answers.
func (w *work) endAll() {
	if len(w.ends) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), endWait)
	w.b.store.EndHalves(ctx, w.ends)
	cancel()
	for i := range w.ends {
		e, r := &w.ends[i], w.endings[i]
		if err := e.Err; err != nil && !errors.Is(err, store.ErrFlushTimeout) {
			code, remark := codeOf(w.b.endError(err))
			w.burst.Fail(r, code, remark)
			w.b.stats.endsRefused.Add(1)
			continue
		}
		if e.Commit {
			w.b.stats.commits.Add(1)
		} else {
			w.b.stats.rollbacks.Add(1)
		}
		code := remoting.RespSuccess
		if e.Err != nil {
			code = remoting.RespFlushDiskTimeout
		}
		w.burst.Reply(r, code, "")
		w.burst.End(nil)
	}
	clear(w.endings)
	w.ends, w.endings = w.ends[:0], w.endings[:0]
}

// endError turns an error of EndHalves into an answer.
func (b *Broker) endError(err error) error {
	switch {
	case errors.Is(err, store.ErrNoHalf):
		return refuse(remoting.RespSystemError, "Find prepared transaction message failed")
	case errors.Is(err, store.ErrEnded):
		return refuse(remoting.RespIllegalOperation, "%s, and an outcome is final", err)
	case errors.Is(err, context.DeadlineExceeded):
		return refuse(remoting.RespServiceNotAvailable, "%s", err)
	}
	return b.storeError(err)
}
