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
