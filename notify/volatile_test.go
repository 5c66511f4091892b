package notify

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusionmq/fusionmq/store/state"
)

func TestVolatileBindingIsRestoredOnceTheStoreTakesItAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		st := &hooked{operate: func(ops []state.Op) error {
			if full.Load() && slices.ContainsFunc(ops, func(o state.Op) bool { return o.Kind == state.OpBind }) {
				return errors.New("full")
			}
			return nil
		}}
		w := newWorld(t, 28, func(o *Options) { o.Now = nil }, st.wrap)
		b := fanoutOn("T")
		b.Persistent = false
		w.join("S-a", b).leave()
		w.until("the binding to end", func() bool { return len(w.st.Bindings()) == 0 })
		w.quiet()
		full.Store(true)
		w.join("S-a").leave()
		a := w.join("S-a")
		time.Sleep(3 * time.Second)
		full.Store(false)
		w.until("the binding", func() bool { return len(w.st.Bindings()) == 1 })
		w.send("T", "x")
		w.until("delivery", func() bool { return w.waiting(a) == 1 })
		w.ackAll()
	})
}

// A connection may close when its binding holds and the group has not seen that yet. The binding must neither outlive it nor be
// taken from whoever comes next.
func TestVolatileBindingOfAConnectionThatClosesAtOnce(t *testing.T) {
	for _, next := range []bool{true, false} {
		var calls atomic.Int64
		hold := make(chan struct{})
		st := &hooked{cursor: func(string, string) {
			if calls.Add(1) == 1 {
				<-hold // the group's look at its new binding
			}
		}}
		w := newWorld(t, 29, nil, st.wrap)
		b := fanoutOn("T")
		b.Persistent = false
		a := w.join("S-a", b)
		w.until("the look", func() bool { return calls.Load() == 1 })
		a.leave()
		if next {
			a = w.join("S-a", b)
		}
		close(hold)
		if !next {
			w.until("the binding to end", func() bool { return len(w.st.Bindings()) == 0 })
			w.send("T", "skipped")
			w.quiet()
			a = w.join("S-a")
		}
		w.quiet()
		w.settle()
		if n := len(w.st.Bindings()); n != 1 {
			t.Fatalf("%d bindings with a member there, want 1 (another member before: %v)", n, next)
		}
		ids := w.send("T", "x")
		w.until("delivery", func() bool { return w.waiting(a) > 0 })
		if got := w.ids(a); !slices.Equal(got, ids) {
			t.Errorf("got %v, want %v", got, ids)
		}
		w.ackAll()
	}
}
