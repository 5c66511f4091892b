package notify

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusionmq/fusionmq/notify/wire"
)

// inBubble runs a test against the clock of a bubble instead of the world's own, so that it can say when something happened.
func inBubble(t *testing.T, seed uint64, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		test(newWorld(t, seed, func(o *Options) { o.Now = nil }))
	})
}

// took is how long it took, to the millisecond, until a condition held.
func (w *world) took(what string, ok func() bool) time.Duration {
	start := time.Now()
	w.until(what, ok)
	return time.Since(start)
}

func TestAcknowledgementAboveAGapIsWrittenWithinTheLingerTime(t *testing.T) {
	inBubble(t, 20, func(w *world) {
		w.join("S-a", fanoutOn("T")).leave()
		w.quiet() // detached, so that the cursor finds them
		ids := w.send("T", "x", "y", "z")
		a := w.join("S-a")
		w.until("the messages through the cursor", func() bool { return w.waiting(a) == 3 })
		time.Sleep(time.Second) // the tick knows of no earlier time than that of the answers
		w.answer(a, 1, wire.NoError)
		d := w.took("the acknowledgement in the log", func() bool {
			pos, _ := w.st.Cursor("T", "S-a")
			return pos.Cursor > w.addr[ids[1]]
		})
		if d < 250*time.Millisecond || d > 260*time.Millisecond {
			t.Errorf("it took %v, want the linger time, 250ms, a tick and a flush", d)
		}
	})
}

func TestATimeoutOfAMessageItselfIsKeptWhateverTheTickSleepsFor(t *testing.T) {
	inBubble(t, 21, func(w *world) {
		a := w.join("S-a", fanoutOn("T"))
		w.send("T", "x")
		w.until("the delivery", func() bool { return w.waiting(a) == 1 })
		time.Sleep(500 * time.Millisecond) // until the transport writes it
		w.mu.Lock()
		handle := a.inbox[0].d.Handle
		w.mu.Unlock()
		a.se.SetTimeout(handle, time.Second)
		d := w.took("the timeout", func() bool { return w.st.RetryCount("S-a") == 1 })
		if d < 500*time.Millisecond || d > 510*time.Millisecond {
			t.Errorf("it took %v more, want 500ms, a tick and a flush", d)
		}
	})
}

// Pokes that do not end must not put the tick off.
func TestTickGoesOnWhileItIsPoked(t *testing.T) {
	inBubble(t, 22, func(w *world) {
		a := w.join("S-a", fanoutOn("T"))
		w.send("T", "x")
		w.until("the delivery", func() bool { return w.waiting(a) == 1 })
		stop, stopped := make(chan struct{}), make(chan struct{})
		defer func() { close(stop); <-stopped }()
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				case <-time.After(w.svc.tickEvery / 2):
					poke(w.svc.tickNow)
				}
			}
		}()
		d := w.took("the timeout", func() bool { return w.st.RetryCount("S-a") == 1 })
		if d > 5010*time.Millisecond {
			t.Errorf("it took %v, want 5s, a tick and a flush", d)
		}
	})
}
