package notify

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/notify/wire"
	"github.com/fusionmq/fusionmq/store/state"
)

// What an overflow has left to the retry line stands in front of it. Retries that become due take turns with it all the same.
func TestDueRetriesTakeTurnsWithWhatAnOverflowHasLeft(t *testing.T) {
	const backlog, failed = 2000, 10
	w := newWorld(t, 24, func(o *Options) { o.Delivery.DetachBacklog = backlog })
	a := w.join("S-a", fanoutOn("T"))
	a.takes(failed)
	w.until("attach", func() bool { return w.mode("S-a", "T") == "attached" })
	early := w.send("T", strings.Fields(strings.Repeat("x ", failed))...)
	w.until("deliveries", func() bool { return w.waiting(a) == failed })
	a.takes(1)
	for range failed {
		w.answer(a, 0, wire.StatusError)
	}
	w.until("the failed in the line", func() bool { return w.st.RetryCount("S-a") == failed })
	w.send("T", strings.Fields(strings.Repeat("x ", backlog+1))...)
	w.until("overflow", func() bool { return w.st.RetryCount("S-a") > backlog })
	w.quiet()
	w.advance(11 * time.Second)
	w.quiet()
	var order []uint64
	for range 3 * failed {
		w.until("the next", func() bool { return w.waiting(a) > 0 })
		order = append(order, w.ids(a)[0])
		w.answer(a, 0, wire.NoError)
	}
	retries, others := 0, 0
	for _, id := range order {
		if slices.Contains(early, id) {
			retries++
		} else {
			others++
		}
	}
	if retries != failed || others != 2*failed {
		t.Errorf("of the first %d deliveries %d are retries that were due and %d the rest, want %d and %d: %v", len(order), retries, others, failed, 2*failed, order)
	}
	w.check()
}

// reload has a group's retry line read from its start, as a member that comes back would.
func (w *world) reload(group string) {
	g := w.svc.group(group, false)
	g.mu.Lock()
	g.rewindLocked()
	g.pumpLocked()
	g.mu.Unlock()
	w.quiet()
}

// What the line shows of messages that wait or are posted is not read again, not even their heads: with thousands of them, read
// after every flush, that would be all that a process does.
func TestRetriesThatAreKnownAreNotLoadedAgain(t *testing.T) {
	const messages = 300
	var read atomic.Int64
	st := &hooked{recordAt: func(int64) error { read.Add(1); return nil }}
	w := newWorld(t, 25, nil, st.wrap)
	w.join("S-a", fanoutOn("T")).leave()
	w.quiet()
	w.send("T", strings.Fields(strings.Repeat("x ", messages))...)
	a := w.join("S-a")
	w.until("catch-up", func() bool { return w.waiting(a) == messages })
	w.answer(a, messages-1, wire.NoError)
	w.advance(300 * time.Millisecond)
	w.until("retries of what is below", func() bool { return w.st.RetryCount("S-a") == messages-1 })
	w.quiet()
	if n := read.Load(); n != 0 {
		t.Errorf("%d heads were read when the store had applied the retries", n)
	}
	w.reload("S-a")
	if n := read.Load(); n != 0 {
		t.Errorf("%d heads were read when the line was read again", n)
	}
	w.ackAll()
	w.until("the line to empty", func() bool { return w.st.RetryCount("S-a") == 0 })
	w.check()
}

func TestARetryThatCannotBeReadIsCountedOnce(t *testing.T) {
	var bad atomic.Int64
	var full atomic.Bool
	st := &hooked{
		recordAt: func(at int64) error {
			if at == bad.Load() {
				return errors.New("unreadable")
			}
			return nil
		},
		operate: func([]state.Op) error {
			if full.Load() {
				return errors.New("full")
			}
			return nil
		},
	}
	w := newWorld(t, 26, nil, st.wrap)
	a := w.join("S-a", fanoutOn("T"))
	ids := w.send("T", "x")
	w.until("delivery", func() bool { return w.waiting(a) == 1 })
	w.answer(a, 0, wire.StatusError)
	w.until("retry line", func() bool { return w.st.RetryCount("S-a") == 1 })
	w.quiet()
	bad.Store(w.addr[ids[0]])
	full.Store(true) // so that the line shows it for a while
	w.clock.Add(11_000)
	w.until("the loss", func() bool { w.quiet(); return w.svc.Stats().Lost > 0 })
	w.reload("S-a")
	w.reload("S-a")
	full.Store(false)
	w.until("the line to empty", func() bool { return w.st.RetryCount("S-a") == 0 })
	if n := w.svc.Stats().Lost; n != 1 {
		t.Errorf("counted %d times, want once", n)
	}
}

// A cursor takes messages by their queue entries. What it had found and nobody had loaded when the last member went is checked
// when it comes again.
func TestARetryOfAMessageForAnotherGroupIsNotDelivered(t *testing.T) {
	w := newWorld(t, 27, nil)
	w.join("S-a", fanoutOn("T")).leave()
	w.quiet()
	w.restrict = "S-b"
	w.send("T", "x")
	w.restrict = ""
	w.send("T", "x", "x")
	a := w.join("S-a")
	w.until("catch-up", func() bool { return w.waiting(a) == 3 })
	w.mu.Lock()
	handle := a.inbox[1].d.Handle
	w.mu.Unlock()
	a.se.Answers([]Answer{{Handle: handle, Status: wire.NoError}}) // the first is below and cannot be passed
	a.leave()
	w.settle()
	if n := w.st.RetryCount("S-a"); n != 1 {
		t.Fatalf("%d retries, want the first message", n)
	}
	a = w.join("S-a")
	w.until("the line to empty", func() bool { return w.st.RetryCount("S-a") == 0 || w.waiting(a) > 1 })
	w.until("the third", func() bool { return w.waiting(a) > 0 })
	if got := w.ids(a); !slices.Equal(got, []uint64{3}) {
		t.Errorf("got %v, want 3: the first is for another group", got)
	}
	if n := w.svc.Stats().Lost; n != 0 {
		t.Errorf("%d lost", n)
	}
	w.ackAll()
}
