package notify

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/notify/wire"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
)

// claim takes a name as the pull front end does.
func (w *world) claim(name string) error {
	_, err := w.st.ClaimGroup(name, 100)
	return err
}

// mayNotClaim checks that a push group has a name.
func (w *world) mayNotClaim(when, name, group string) {
	w.t.Helper()
	var taken *store.GroupTaken
	if err := w.claim(name); !errors.As(err, &taken) || taken.Group != group {
		w.t.Errorf("%s: %v, want that group %s has the name %s", when, err, group, name)
	}
}

// forgotten lets the time pass after which groups without members are forgotten.
func (w *world) forgotten() {
	w.t.Helper()
	w.quiet()
	w.advance(keepGroup + time.Second)
	w.until("the groups to be forgotten", func() bool {
		w.advance(time.Millisecond)
		return len(w.svc.everyGroup()) == 1 // the publisher's
	})
}

func TestSubscriptionOfAPullGroupsNameIsRefused(t *testing.T) {
	w := newWorld(t, 40, nil)
	if err := w.claim("LIVE"); err != nil { // a consumer's heartbeat, whose group could not be written down
		t.Fatal(err)
	}
	g := meta.DefaultGroup("Y%2Ea") // out of a file
	if err := w.st.Groups().Put(g); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ group, says string }{{"LIVE", `RocketMQ consumers have the group "LIVE"`}, {"Y.a", `RocketMQ consumers have the group "Y%2Ea"`}} {
		m := w.join(tc.group)
		b := fanoutOn("T")
		b.Group = tc.group
		err := m.se.Subscribe(&b)
		var r *Refusal
		if !errors.As(err, &r) || r.Status != wire.StatusError || !strings.Contains(r.Text, tc.says) || !strings.Contains(r.Text, "another name") {
			t.Errorf("%s: %v, want ERROR with %s", tc.group, err, tc.says)
		}
		w.quiet() // a group is not let go while its retry line is read
		m.leave()
	}
	if w.st.Topics().Get("T") != nil || len(w.st.Bindings()) != 0 {
		t.Error("a refused subscription has left a topic or a binding")
	}
	if len(w.svc.everyGroup()) != 1 {
		t.Error("a refused subscription has left a group")
	}
	w.join("X.a", fanoutOn("T"))
	w.mayNotClaim("bound", "X%2Ea", "X.a")
	m := w.join("X%2Ea")
	b := fanoutOn("T")
	b.Group = "X%2Ea"
	if err := m.se.Subscribe(&b); err == nil || !strings.Contains(err.Error(), `already names the group "X.a"`) {
		t.Errorf("%v, want that X.a has the name", err)
	}
}

func TestSubscriptionThatFailsTakesNoName(t *testing.T) {
	w := newWorld(t, 41, func(o *Options) { o.NoAutoCreate = true })
	m := w.join("S-a")
	b := fanoutOn("T")
	b.Group = "S-a"
	if err := m.se.Subscribe(&b); err == nil {
		t.Fatal("subscribed to a topic that is not there")
	}
	if err := w.claim("S-a"); err != nil {
		t.Error(err)
	}
}

// A group without a binding is a push group for as long as it is owed messages, and while its members may still have some.
func TestNameIsKeptWhileMessagesAreOwed(t *testing.T) {
	w := newWorld(t, 42, nil)
	b := fanoutOn("T")
	a := w.join("S-a", b)
	w.until("attach", func() bool { return w.mode("S-a", "T") == "attached" })
	w.send("T", "x", "y")
	w.until("deliveries", func() bool { return w.waiting(a) == 2 })
	b.Group = "S-a"
	if err := a.se.Unsubscribe(&b); err != nil {
		t.Fatal(err)
	}
	listed := func(want bool) {
		t.Helper()
		gs := w.st.PushGroups()
		if got := len(gs) == 1 && gs[0].Name == "S-a" && slices.Equal(gs[0].Topics, []string{"T"}); got != want {
			t.Errorf("push groups %+v, S-a wanted: %v", gs, want)
		}
	}
	listed(true)
	w.mayNotClaim("unacknowledged", "S-a", "S-a")
	a.leave()
	w.forgotten()
	listed(true)
	w.mayNotClaim("offline", "S-a", "S-a")
	w.restart()
	w.mayNotClaim("offline, after a start", "S-a", "S-a")

	a = w.join("S-a")
	w.until("redeliveries", func() bool { return w.waiting(a) == 2 })
	w.ackAll()
	w.settle()
	w.until("nothing owed", func() bool { return w.st.RetryCount("S-a") == 0 })
	a.leave()
	w.forgotten()
	listed(false)
	if err := w.claim("S-a"); err != nil {
		t.Errorf("a group that has nothing any more: %v", err)
	}
	w.check()
}

// A group that has ended its bindings and is killed while it is attached is owed by the window, and nobody but the start looks there.
func TestLaw5GroupWithoutBindingsIsDetachedAtTheStart(t *testing.T) {
	w := newWorld(t, 43, nil)
	b := fanoutOn("T")
	a := w.join("S-a", b)
	w.until("attach", func() bool { return w.mode("S-a", "T") == "attached" })
	ids := w.send("T", "x", "y")
	w.until("deliveries", func() bool { return w.waiting(a) == 2 })
	b.Group = "S-a"
	if err := a.se.Unsubscribe(&b); err != nil {
		t.Fatal(err)
	}
	w.kill(false)
	w.mayNotClaim("after the kill", "S-a", "S-a")
	a = w.join("S-a")
	w.until("redeliveries", func() bool { return w.waiting(a) == 2 })
	if got := w.ids(a); !slices.Equal(got, ids) {
		t.Errorf("got %v, want %v", got, ids)
	}
	w.ackAll()
	w.settle()
	if n := w.st.StateStats(); n.Window != 0 || n.Retries != 0 {
		t.Errorf("after all acknowledgements the state holds %+v", n)
	}
	w.check()
}

func TestBindingsThatWaitForAMemberKeepTheName(t *testing.T) {
	w := newWorld(t, 44, nil)
	b := fanoutOn("T")
	b.Persistent = false
	w.join("S-a", b).leave()
	w.until("the binding to end", func() bool { return len(w.st.Bindings()) == 0 })
	w.quiet()
	w.settle()
	if gs := w.st.PushGroups(); len(gs) != 0 {
		t.Errorf("the store has %+v", gs)
	}
	w.mayNotClaim("no member", "S-a", "S-a")
	if gs := w.svc.Groups(); len(gs) != 2 || gs[1].Name != "S-a" || gs[1].Parked != 1 {
		t.Errorf("groups %+v, want a binding that waits", gs)
	}
	a := w.join("S-a")
	w.until("the binding", func() bool { return len(w.st.Bindings()) == 1 })
	w.send("T", "x")
	w.until("delivery", func() bool { return w.waiting(a) == 1 })
	w.kill(false)
	w.until("nothing owed", func() bool { w.settle(); return len(w.st.PushGroups()) == 0 })
	w.mayNotClaim("no member, after a start", "S-a", "S-a")
}

// What clients make by using a name is bounded, and what is there goes on. EXCEPTION lets a publisher try another server.
func TestLaw7TopicsAndGroupsAreBounded(t *testing.T) {
	w := newWorld(t, 45, func(o *Options) { o.MaxTopics, o.MaxGroups = 3, 3 })
	if err := w.claim("pulls"); err != nil {
		t.Fatal(err)
	}
	full := func(err error, says string) {
		t.Helper()
		var r *Refusal
		if !errors.As(err, &r) || r.Status != wire.StatusFailed || !strings.Contains(r.Text, says) {
			t.Errorf("%v, want EXCEPTION with %q", err, says)
		}
	}
	a, b := w.join("S-a", fanoutOn("T1"), fanoutOn("T2")), w.join("S-b", fanoutOn("T1"))
	w.send("T3", "x")
	send := func(topic string) *Refusal {
		m := Incoming{Header: &wire.MessageHeader{ID: make([]byte, 16), Topic: []byte(topic), Type: []byte("x"), Group: []byte("g"), Committed: true}, Body: []byte("b")}
		out := make([]Sent, 1)
		w.pub.Send([]Incoming{m}, out)
		return out[0].Err
	}
	full(send("T4"), `topic "T4" is not made: this server has its limit of 3 topics`)
	sub := func(m *member, topic string) error {
		b := fanoutOn(topic)
		b.Group = m.group
		return m.se.Subscribe(&b)
	}
	full(sub(a, "T4"), "limit of 3 topics")
	c := w.join("S-c")
	full(sub(c, "T1"), `group "S-c" is not made: there are 3 groups`)
	if w.st.Topics().Len() != 3 || w.st.Topics().Get("T4") != nil {
		t.Errorf("%d topics", w.st.Topics().Len())
	}
	if err := sub(b, "T3"); err != nil {
		t.Errorf("a group and a topic that are there: %v", err)
	}
	w.send("T1", "x")
	w.until("delivery", func() bool { return w.waiting(a) == 1 && w.waiting(b) >= 1 })
	w.ackAll()
}

func TestTopicsThatAreMadeAtTheSameMomentAreBounded(t *testing.T) {
	w := newWorld(t, 46, func(o *Options) { o.MaxTopics = 5 })
	var wg sync.WaitGroup
	var made atomic.Int32
	for i := range 40 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if w.svc.topicFor(fmt.Sprint("T", i)) == nil {
				made.Add(1)
			}
		}()
	}
	wg.Wait()
	if n := w.st.Topics().Len(); n > 5 || int(made.Load()) != n {
		t.Errorf("%d topics, %d made, at most 5 wanted", n, made.Load())
	}
}
