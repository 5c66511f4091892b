package notify

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusionmq/fusionmq/store/state"
)

// An attach that the store has not taken leaves the group with its cursor: nothing else owes it anything. It is tried again, less
// and less often.
func TestLaw5GroupWhoseAttachIsRefusedIsServedFromItsCursor(t *testing.T) {
	var on atomic.Bool
	var refused atomic.Int64
	on.Store(true)
	st := &hooked{operate: func(ops []state.Op) error {
		for i := range ops {
			if ops[i].Kind == state.OpAttach && on.Load() {
				ops[i].Group = "nobody" // whom the store does not know
				refused.Add(1)
			}
		}
		return nil
	}}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 23, func(o *Options) { o.Now = nil }, st.wrap)
		a := w.join("S-a", fanoutOn("T"))
		w.until("a refusal", func() bool { return w.svc.Stats().AttachesRefused == 1 })
		for range 5 {
			w.send("T", "x")
			if d := w.took("the message through the cursor", func() bool { return w.waiting(a) == 1 }); d > 1010*time.Millisecond {
				t.Errorf("it took %v, want a second and a tick", d)
			}
			w.ackAll()
		}
		time.Sleep(20 * time.Minute)
		if got := w.svc.Stats().AttachesRefused; got != uint64(refused.Load()) || got < 5 || got > 15 {
			t.Errorf("%d attaches were tried in 20 minutes and %d counted, want 1, 2, 4 s and so on up to 5 minutes apart", refused.Load(), got)
		}
		if mode, n := w.mode("S-a", "T"), w.svc.Stats().Attaches; mode != "detached" || n != 0 {
			t.Errorf("the group is %s, %d attaches", mode, n)
		}
		on.Store(false)
		time.Sleep(attachRetryMost)
		w.until("the attach", func() bool { return w.mode("S-a", "T") == "attached" })
		w.send("T", "x")
		if d := w.took("the message", func() bool { return w.waiting(a) == 1 }); d > 10*time.Millisecond {
			t.Errorf("it took %v to an attached group", d)
		}
		w.ackAll()
		w.check()
	})
}

// What comes while an attach is being written may be too much already. The group is detached as soon as it is attached, not with the
// next message.
func TestOverflowWhileAGroupIsBeingAttached(t *testing.T) {
	const backlog = 20
	var once sync.Once
	attached, hold := make(chan struct{}), make(chan struct{})
	st := &hooked{}
	st.cursor = func(topic, group string) {
		if pos, _ := st.Store.Cursor(topic, group); pos.Attached {
			once.Do(func() {
				close(attached)
				<-hold
			})
		}
	}
	w := newWorld(t, 30, func(o *Options) { o.Delivery.DetachBacklog = backlog }, st.wrap)
	a := w.join("S-a", fanoutOn("T"))
	a.takes(1)
	<-attached
	w.send("T", strings.Fields(strings.Repeat("x ", backlog+1))...)
	w.settle()
	close(hold)
	w.until("the overflow", func() bool { n := w.svc.Stats(); return n.Overflows == 1 && n.Detaches == 1 })
	a.takes(0)
	w.until("all of it", func() bool { w.ackAll(); return len(w.acked("S-a")) == backlog+1 })
	w.check()
}

// A group whose last member goes while its attach waits to be written stays with its cursor, which has everything in its order.
func TestGroupWithoutMembersIsNotAttached(t *testing.T) {
	hold := make(chan struct{})
	st := &hooked{cursor: func(string, string) { <-hold }} // the group's look at its new binding
	w := newWorld(t, 47, nil, st.wrap)
	a := w.join("S-a", fanoutOn("T"))
	w.svc.commit.Lock()
	close(hold)
	w.until("the attach to wait for the lock", func() bool { return w.mode("S-a", "T") == "attaching" })
	a.leave()
	w.svc.commit.Unlock()
	w.quiet()
	if n := w.svc.Stats(); n.Attaches != 0 || n.Detaches != 0 {
		t.Errorf("%d attaches and %d detaches of a group without members", n.Attaches, n.Detaches)
	}
	ids := w.send("T", "x", "y")
	a = w.join("S-a")
	w.until("catch-up", func() bool { return w.waiting(a) == 2 })
	if got := w.ids(a); !slices.Equal(got, ids) {
		t.Errorf("got %v, want %v", got, ids)
	}
	w.ackAll()
	w.check()
}
