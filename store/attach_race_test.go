package store_test

import (
	"runtime"
	"testing"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/state"
)

// slowMark is an exchange that makes the dispatcher wait between applying an attach and marking its topic.
type slowMark struct {
	state.Exchange
	applied chan struct{} // closed when the attach is applied
	mark    chan struct{} // closed when the topic may be marked
}

func (x *slowMark) Interested(topic string) bool {
	select {
	case <-x.applied: // asked again
	default:
		close(x.applied)
		<-x.mark
	}
	return x.Exchange.Interested(topic)
}

// A writer may look at a topic's mark just before an attach sets it, and push nothing of its batch just after. The batch is
// behind the attach all the same.
func TestLaw5MessagesSentAsAGroupAttachesAreOwed(t *testing.T) {
	told, x := newLedger(), &slowMark{Exchange: newFanout(), applied: make(chan struct{}), mark: make(chan struct{})}
	s := open(t, store.Options{SegmentBytes: 1 << 20, Exchange: x, Observer: told})
	addTopic(t, s, "T", meta.Async)
	operate(t, s, bindOps("T", "g")[0]) // nobody is attached, so the exchange is not asked
	at, err := s.Operate([]state.Op{{Kind: state.OpAttach, Topic: "T", Group: "g"}})
	if err != nil {
		t.Fatal(err)
	}
	<-x.applied
	batches := 0
	s.HookPush(func() {
		if batches++; batches > 1 {
			return
		}
		close(x.mark)
		// The dispatcher marks the topic now and reads what is behind the attach, up to where the log is pushed. It has to wait
		// for this batch; a dispatcher that does not gets by without it.
		for !s.DispatcherWaits() && s.Dispatched() <= at {
			runtime.Gosched()
		}
	})
	ms, rs := make([]store.Message, 20), make([]store.Result, 20)
	for k := range ms {
		ms[k] = store.Message{Topic: "T", Body: []byte("x")}
	}
	s.Append(ms, rs)
	s.HookPush(nil)
	settle(t, s)
	if batches != 1 {
		t.Fatalf("the messages came in %d batches; the first was to meet the attach with all of them", batches)
	}
	if got := told.owedOf("T", 0); len(got) != len(ms) {
		t.Fatalf("%d of %d messages behind the attach at %d are owed", len(got), len(ms), at)
	}
}
