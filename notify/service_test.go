package notify

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/notify/exchange"
	"github.com/fusionmq/fusionmq/notify/wire"
	"github.com/fusionmq/fusionmq/store/meta"
)

func TestLiveMessagesReachEveryBoundGroupOnce(t *testing.T) {
	w := newWorld(t, 1, nil)
	a := w.join("S-a", fanoutOn("T"), directOn("T", "x"))
	b := w.join("S-b", directOn("T", "x"))
	w.until("attach", func() bool { return w.mode("S-a", "T") == "attached" && w.mode("S-b", "T") == "attached" })
	ids := w.send("T", "x", "y", "x")
	w.until("deliveries", func() bool { return w.waiting(a) == 3 && w.waiting(b) == 2 })
	got := w.ids(a)
	slices.Sort(got) // two bindings, two lanes: no order between them
	if !slices.Equal(got, ids) {
		t.Errorf("S-a got %v, want %v", got, ids)
	}
	if got, want := w.ids(b), []uint64{ids[0], ids[2]}; !slices.Equal(got, want) {
		t.Errorf("S-b got %v, want %v", got, want)
	}
	w.ackAll()
	w.settle()
	if n := w.st.StateStats(); n.Window != 0 || n.Retries != 0 {
		t.Errorf("after all acknowledgements the state holds %+v", n)
	}
	w.check()
}

func TestOfflineGroupCatchesUpOldestFirst(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.join("S-a", fanoutOn("T")).leave()
	var ids []uint64
	for range 40 {
		ids = append(ids, w.send("T", "x", "y", "z", "x", "y")...)
	}
	a := w.join("S-a")
	w.until("catch-up", func() bool { return w.waiting(a) == len(ids) })
	if got := w.ids(a); !slices.Equal(got, ids) {
		t.Errorf("not oldest first: %v", got)
	}
	w.ackAll()
	w.until("attach", func() bool { return w.mode("S-a", "T") == "attached" })
	more := w.send("T", "x")
	w.until("live delivery", func() bool { return w.waiting(a) == 1 })
	if got := w.ids(a); !slices.Equal(got, more) {
		t.Errorf("live: got %v, want %v", got, more)
	}
	w.ackAll()
	w.check()
}

func TestNewGroupStartsNow(t *testing.T) { // rulings A42
	w := newWorld(t, 3, nil)
	w.join("S-other", fanoutOn("T"))
	w.send("T", "x", "x")
	a := w.join("S-a", fanoutOn("T"))
	want := w.send("T", "x")
	w.until("delivery", func() bool { return w.waiting(a) == 1 })
	if got := w.ids(a); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestLaw5OnlyTheFailedGroupIsTriedAgain(t *testing.T) {
	w := newWorld(t, 4, nil)
	a, b := w.join("S-a", fanoutOn("T")), w.join("S-b", fanoutOn("T"))
	w.send("T", "x")
	w.until("deliveries", func() bool { return w.waiting(a) == 1 && w.waiting(b) == 1 })
	w.answer(a, 0, wire.NoError)
	w.answer(b, 0, wire.StatusError)
	w.until("retry line", func() bool { return w.st.RetryCount("S-b") == 1 })
	w.advance(9 * time.Second)
	w.quiet()
	if n := w.waiting(b); n != 0 {
		t.Fatalf("%d deliveries before the retry is due", n)
	}
	w.advance(1100 * time.Millisecond)
	w.until("retry", func() bool { return w.waiting(b) == 1 })
	w.look(b)
	if got := w.got[key{"S-b", 1}].attempts; !slices.Equal(got, []int32{1, 2}) {
		t.Errorf("attempts %v, want 1, 2", got)
	}
	if n := w.waiting(a); n != 0 {
		t.Errorf("the group that had acknowledged got %d messages", n)
	}
	w.answer(b, 0, wire.NoError)
	w.until("retry line to empty", func() bool { return w.st.RetryCount("S-b") == 0 })
	w.check()
}

func TestARetrySaysWhenTheAttemptBeforeFailed(t *testing.T) {
	w := newWorld(t, 17, nil)
	a := w.join("S-a", fanoutOn("T"))
	w.send("T", "x", "y")
	w.until("deliveries", func() bool { return w.waiting(a) == 2 })
	failedAt := w.svc.now()
	w.answer(a, 0, wire.StatusError)
	w.until("retry line", func() bool { return w.st.RetryCount("S-a") == 1 })
	w.answer(a, 0, wire.NoError)
	w.advance(11 * time.Second)
	w.until("retry", func() bool { return w.waiting(a) == 1 })
	w.send("T", "z")
	w.until("a first delivery behind it", func() bool { return w.waiting(a) == 2 })
	w.mu.Lock()
	inbox := slices.Clone(a.inbox)
	w.mu.Unlock()
	var l Loaded
	for i, want := range []struct {
		attempt int32
		last    int64
	}{{2, failedAt}, {1, 0}} {
		if err := a.se.Load(&inbox[i].d, &l); err != nil {
			t.Fatal(err)
		}
		var h wire.MessageHeader
		if err := h.Decode(l.AppendHeader(nil)); err != nil {
			t.Fatal(err)
		}
		if h.DeliveryCount != want.attempt || int64(h.LastDelivery) != want.last || h.Set.Has(wire.FieldLastDelivery) != (want.last != 0) {
			t.Errorf("delivery %d is attempt %d and says %d (%v), want %d and %d", i, h.DeliveryCount, h.LastDelivery, h.Set.Has(wire.FieldLastDelivery), want.attempt, want.last)
		}
		l.Release()
	}
}

func TestAckTimeoutFailsAndALateAckIsHonoured(t *testing.T) {
	w := newWorld(t, 5, nil)
	a := w.join("S-a", fanoutOn("T"))
	w.send("T", "x")
	w.until("delivery", func() bool { return w.waiting(a) == 1 })
	w.advance(4900 * time.Millisecond)
	w.quiet()
	if n := w.st.RetryCount("S-a"); n != 0 {
		t.Fatal("failed before 5 s")
	}
	w.advance(200 * time.Millisecond)
	w.until("timeout", func() bool { return w.st.RetryCount("S-a") == 1 })
	w.answer(a, 0, wire.NoError) // late
	w.until("late acknowledgement", func() bool { return w.st.RetryCount("S-a") == 0 })
	w.advance(time.Hour)
	w.quiet()
	if n := w.waiting(a); n != 0 {
		t.Errorf("delivered again after a late acknowledgement")
	}
	if s := w.svc.Stats(); s.TimedOut != 1 || s.LateAcked != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestBusyMachineIsReplacedAtOnceWithTheSameAttempt(t *testing.T) { // rulings A12
	w := newWorld(t, 6, nil)
	ms := []*member{w.join("S-a", fanoutOn("T")), w.join("S-a")}
	w.send("T", "x")
	w.until("delivery", func() bool { return w.waiting(ms[0])+w.waiting(ms[1]) == 1 })
	first := 0
	if w.waiting(ms[1]) == 1 {
		first = 1
	}
	w.answer(ms[first], 0, wire.StatusBusy)
	w.until("second machine", func() bool { return w.waiting(ms[1-first]) == 1 })
	w.look(ms[1-first])
	if got := w.got[key{"S-a", 1}].attempts; !slices.Equal(got, []int32{1, 1}) {
		t.Errorf("attempts %v, want 1, 1", got)
	}
	w.answer(ms[1-first], 0, wire.StatusBusy)
	w.until("failure", func() bool { return w.st.RetryCount("S-a") == 1 })
}

func TestBrokenChannelCountsNoAttempt(t *testing.T) {
	w := newWorld(t, 7, nil)
	a := w.join("S-a", fanoutOn("T"))
	w.send("T", "x", "y", "z")
	w.until("deliveries", func() bool { return w.waiting(a) == 3 })
	w.look(a)
	w.answer(a, 1, wire.NoError)
	a.leave()
	w.until("detach", func() bool { return w.mode("S-a", "T") == "detached" })
	b := w.join("S-a")
	w.until("deliveries at once", func() bool { return w.waiting(b) == 2 })
	w.look(b)
	for _, id := range []uint64{1, 3} {
		if got := w.got[key{"S-a", id}].attempts; !slices.Equal(got, []int32{1, 1}) {
			t.Errorf("message %d: attempts %v, want 1, 1", id, got)
		}
	}
	w.ackAll()
	w.check()
}

func TestLaw6SlowGroupBecomesACursorAndCostsTheOthersNothing(t *testing.T) {
	w := newWorld(t, 8, func(o *Options) { o.Delivery.DetachBacklog = 50 })
	slow := w.join("S-slow", fanoutOn("T"))
	slow.takes(5)
	fast := w.join("S-fast", fanoutOn("T"))
	w.until("attach", func() bool { return w.mode("S-slow", "T") == "attached" && w.mode("S-fast", "T") == "attached" })
	for range 20 {
		w.send("T", strings.Fields(strings.Repeat("x ", 20))...)
		w.until("the fast group's deliveries", func() bool { return w.waiting(fast) == 20 })
		for w.waiting(fast) > 0 {
			w.answer(fast, 0, wire.NoError)
		}
	}
	w.until("detach", func() bool { return w.svc.Stats().Overflows >= 1 && w.mode("S-slow", "T") == "detached" })
	if n := w.waiting(slow); n > 5 {
		t.Errorf("%d messages at a machine that takes 5", n)
	}
	// It takes up reading, and gets each of the 400 once.
	slow.takes(0)
	slow.se.Drained()
	w.until("catch-up", func() bool { w.ackAll(); w.advance(100 * time.Millisecond); return len(w.acked("S-slow")) == 400 })
	w.check()
	for id := range uint64(400) {
		if h := w.got[key{"S-slow", id + 1}]; h.pushes != 1 {
			t.Errorf("message %d came %d times", id+1, h.pushes)
		}
	}
}

func TestWatermarkHoldsBackAndLosesNothing(t *testing.T) { // rulings A39
	w := newWorld(t, 9, nil)
	b := fanoutOn("T")
	b.WaterMark = 3
	a := w.join("S-a", b)
	w.until("attach", func() bool { return w.mode("S-a", "T") == "attached" })
	ids := w.send("T", strings.Fields(strings.Repeat("x ", 10))...)
	w.until("deliveries", func() bool { return w.waiting(a) == 3 })
	var order []uint64
	for len(order) < len(ids) {
		w.until("the next", func() bool { return w.waiting(a) > 0 })
		if n := w.waiting(a); n > 3 {
			t.Fatalf("%d unanswered, the watermark is 3", n)
		}
		order = append(order, w.ids(a)[0])
		w.answer(a, 0, wire.NoError)
	}
	if !slices.Equal(order, ids) {
		t.Errorf("order %v, want %v", order, ids)
	}
	w.check()
}

func TestVolatileBindingIsSkippedWhileNobodyIsThere(t *testing.T) { // rulings A40
	w := newWorld(t, 10, nil)
	b := fanoutOn("T")
	b.Persistent = false
	a := w.join("S-a", b)
	w.send("T", "x", "y")
	w.until("deliveries", func() bool { return w.waiting(a) == 2 })
	w.answer(a, 0, wire.NoError)
	a.leave()
	w.until("detach", func() bool { return w.mode("S-a", "T") == "detached" && len(w.st.Bindings()) == 0 })
	w.send("T", "skipped")
	a = w.join("S-a")
	w.until("binding restored", func() bool { return len(w.st.Bindings()) == 1 })
	want := w.send("T", "z")
	w.until("delivery", func() bool { return w.waiting(a) > 0 })
	if got := w.ids(a); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v only", got, want)
	}
	w.until("drop counted", func() bool { return w.svc.Stats().VolatileDrops == 1 })
}

func TestLaw5KilledProcessDeliversWhatWasOpenWithItsAttempts(t *testing.T) { // faults PSH-06
	w := newWorld(t, 11, nil)
	a := w.join("S-a", fanoutOn("T"))
	w.until("attach", func() bool { return w.mode("S-a", "T") == "attached" })
	w.send("T", strings.Fields(strings.Repeat("x ", 100))...)
	w.until("deliveries", func() bool { return w.waiting(a) == 100 })
	for range 50 {
		w.answer(a, 0, wire.StatusFailed)
	}
	for range 20 {
		w.answer(a, 0, wire.NoError)
	}
	w.kill(true)
	a = w.join("S-a")
	w.until("the unanswered at once", func() bool { return w.waiting(a) == 30 })
	w.look(a)
	for id := uint64(71); id <= 100; id++ {
		if got := w.got[key{"S-a", id}].attempts; !slices.Equal(got, []int32{1, 1}) {
			t.Errorf("unanswered message %d: attempts %v, want 1, 1", id, got)
		}
	}
	w.ackAll()
	w.advance(11 * time.Second)
	w.until("the failed when due", func() bool { return w.waiting(a) == 50 })
	w.look(a)
	for id := uint64(1); id <= 50; id++ {
		if got := w.got[key{"S-a", id}].attempts; !slices.Equal(got, []int32{1, 2}) {
			t.Errorf("failed message %d: attempts %v, want 1, 2", id, got)
		}
	}
	w.ackAll()
	w.check()
}

func TestCleanStopRepeatsNothingThatWasAnswered(t *testing.T) {
	w := newWorld(t, 12, nil)
	a, b := w.join("S-a", fanoutOn("T")), w.join("S-b", fanoutOn("T"))
	w.send("T", "x", "y", "z")
	w.until("deliveries", func() bool { return w.waiting(a) == 3 && w.waiting(b) == 3 })
	w.look(b)
	for range 3 { // only one of the two groups answers
		w.answer(a, 0, wire.NoError)
	}
	w.restart()
	a, b = w.join("S-a"), w.join("S-b")
	w.until("deliveries", func() bool { return w.waiting(b) == 3 })
	if n := w.waiting(a); n != 0 {
		t.Errorf("%d messages again for the group that had answered", n)
	}
	w.ackAll()
	w.check()
}

func TestSendRefusesWithAReason(t *testing.T) {
	w := newWorld(t, 13, func(o *Options) { o.NoAutoCreate, o.SystemTopics = true, []string{"broker-a", "Other"} })
	if err := w.st.Topics().Put(meta.DefaultTopic("broker-a")); err != nil { // as the broker does at its start
		t.Fatal(err)
	}
	base := func() Incoming {
		return Incoming{Header: &wire.MessageHeader{ID: make([]byte, 16), Topic: []byte("T"), Type: []byte("x"), Group: []byte("g"), Committed: true}, Body: []byte("b")}
	}
	for _, tc := range []struct {
		name string
		edit func(*Incoming)
		want string
	}{
		{"unknown topic", func(*Incoming) {}, "topic \"T\" does not exist"},
		{"system topic", func(m *Incoming) { m.Header.Topic = []byte("rmq_sys_x") }, "topic"},
		{"topic of the broker", func(m *Incoming) { m.Header.Topic = []byte("broker-a") }, "topic \"broker-a\" belongs to the system"},
		{"one that is not there", func(m *Incoming) { m.Header.Topic = []byte("Other") }, "topic \"Other\" belongs to the system"},
		{"half message", func(m *Incoming) { m.Header.Committed = false }, "committed is false"},
		{"delay", func(m *Incoming) { m.Header.PostDelay = 5; m.Header.Set = m.Header.Set.With(wire.FieldPostDelay) }, "postDelayTime is 5"},
		{"send once", func(m *Incoming) { m.Header.Flag = int32(wire.KindString) | wire.FlagSendOnce }, "flag is 17: bit 4 (send once)"},
		{"time to live", func(m *Incoming) { m.Header.TTL = 604800; m.Header.Set = m.Header.Set.With(wire.FieldTTL) }, "timeToLive is 604800"},
		{"no time to live", func(m *Incoming) { m.Header.TTL = -1; m.Header.Set = m.Header.Set.With(wire.FieldTTL) }, "does not exist"},
		{"a flag that is not known", func(m *Incoming) { m.Header.Flag = 32 }, "does not exist"},
		{"empty body", func(m *Incoming) { m.Body = nil }, "body"},
		{"short id", func(m *Incoming) { m.Header.ID = []byte("x") }, "id"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, r := base(), make([]Sent, 1)
			tc.edit(&m)
			before := w.st.Stats().Appends
			w.pub.Send([]Incoming{m}, r)
			if r[0].Err == nil || r[0].Err.Status != wire.StatusError || !strings.Contains(r[0].Err.Text, tc.want) {
				t.Errorf("got %+v, want ERROR with %q", r[0].Err, tc.want)
			}
			if w.st.Stats().Appends != before {
				t.Error("something was stored")
			}
		})
	}
	t.Run("body above the limit of the server", func(t *testing.T) {
		m, r := base(), make([]Sent, 1)
		w.svc.LimitBody(1000)
		m.Body = make([]byte, 1001)
		if w.pub.Send([]Incoming{m}, r); r[0].Err == nil || !strings.Contains(r[0].Err.Text, "body has 1001 bytes; this server takes 1 to 1000") {
			t.Errorf("got %+v", r[0].Err)
		}
	})
	b := fanoutOn("T")
	b.Group = "P-test"
	if err := w.pub.Subscribe(&b); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("subscription to an unknown topic: %v", err)
	}
	b = fanoutOn("broker-a")
	b.Group = "P-test"
	if err := w.pub.Subscribe(&b); err == nil || !strings.Contains(err.Error(), "belongs to the system") {
		t.Errorf("subscription to the broker's topic: %v", err)
	}
	for _, kind := range []wire.BindingKind{wire.Pattern, wire.Header} {
		b := wire.Binding{Kind: kind, Topic: "T", Expr: "a", Group: "P-test", WaterMark: -1, Persistent: true}
		if err := w.pub.Subscribe(&b); err == nil || !strings.Contains(err.Error(), "kind "+kind.String()) {
			t.Errorf("subscription of kind %s: %v", kind, err)
		}
	}
}

// acked are the messages that a group has acknowledged.
func (w *world) acked(group string) map[uint64]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := map[uint64]bool{}
	for k, h := range w.got {
		if k.group == group && h.acked {
			m[k.id] = true
		}
	}
	return m
}

func TestSendIsBusyWhenTheStageIsFull(t *testing.T) {
	w := newWorld(t, 14, func(o *Options) { o.MaxSending = 10 })
	w.send("T", "x")
	w.svc.sending.Add(10) // of other connections
	ms := []Incoming{{Header: &wire.MessageHeader{ID: make([]byte, 16), Topic: []byte("T"), Type: []byte("x"), Group: []byte("g"), Committed: true}, Body: []byte("b")}}
	rs := make([]Sent, 1)
	w.pub.Send(ms, rs)
	if rs[0].Err == nil || rs[0].Err.Status != wire.StatusBusy {
		t.Errorf("got %+v, want THREADPOOL_BUSY", rs[0].Err)
	}
	w.svc.sending.Add(-10)
	if w.pub.Send(ms, rs); rs[0].Err != nil {
		t.Errorf("afterwards: %v", rs[0].Err)
	}
}

func TestGroupWhoseNameForRocketMQIsTakenIsRefused(t *testing.T) {
	w := newWorld(t, 15, nil)
	if err := w.st.Groups().Put(meta.DefaultGroup("S%2Fa")); err != nil {
		t.Fatal(err)
	}
	se, err := w.svc.Open(&member{w: w}, netip.MustParseAddrPort("127.0.0.1:3"))
	if err != nil {
		t.Fatal(err)
	}
	if err := se.Metadata([]string{"S/a", "S/b"}, false); err != nil {
		t.Fatal(err)
	}
	b := fanoutOn("T")
	for group, ok := range map[string]bool{"S/a": false, "S/b": true} {
		b.Group = group
		if err := se.Subscribe(&b); (err == nil) != ok {
			t.Errorf("subscription of %s: %v, want success: %v", group, err, ok)
		}
	}
	// A group that has its name keeps it, whoever takes the encoded one on the other side later.
	if err := w.st.Groups().Put(meta.DefaultGroup("S%2Fb")); err != nil {
		t.Fatal(err)
	}
	b.Group = "S/b"
	if err := se.Subscribe(&b); err != nil {
		t.Errorf("a group that was there first is refused: %v", err)
	}
}

func TestBindingsOfAGroupAreBounded(t *testing.T) {
	w := newWorld(t, 16, nil)
	m := w.join("S-a")
	for i := range exchange.MaxBindings + 1 {
		b := directOn("T", fmt.Sprintf("type-%d", i))
		b.Group = "S-a"
		err := m.se.Subscribe(&b)
		if i < exchange.MaxBindings && err != nil {
			t.Fatalf("binding %d: %v", i, err)
		}
		if i == exchange.MaxBindings && (err == nil || !strings.Contains(err.Error(), "at most 1024")) {
			t.Errorf("binding %d: %v", i, err)
		}
	}
}

func TestTimeoutThatAMessageBrings(t *testing.T) { // rulings A14
	w := newWorld(t, 17, nil)
	a := w.join("S-a", fanoutOn("T"))
	var rs [4]Sent
	var ms []Incoming
	for i, ms1 := range []int32{0, -5, 10_000, 100_000} {
		h := &wire.MessageHeader{ID: make([]byte, 16), Topic: []byte("T"), Type: []byte("x"), Group: []byte("g"), Committed: true, PostTimeout: ms1}
		h.ID[7], h.Set = byte(i+1), h.Set.With(wire.FieldPostTimeout)
		ms = append(ms, Incoming{h, []byte("b")})
	}
	w.pub.Send(ms, rs[:])
	w.until("deliveries", func() bool { return w.waiting(a) == 4 })
	var l Loaded
	want := map[uint64]time.Duration{1: 0, 2: 0, 3: 10 * time.Second, 4: time.Minute}
	for i := range a.inbox {
		d := a.inbox[i].d
		if err := a.se.Load(&d, &l); err != nil {
			t.Fatal(err)
		}
		if id := uint64(l.Header.ID[7]); l.Timeout != want[id] {
			t.Errorf("message %d: timeout %v, want %v", id, l.Timeout, want[id])
		} else if l.Timeout > 0 {
			a.se.SetTimeout(d.Handle, l.Timeout)
		}
		l.Release()
	}
	for _, step := range []struct {
		after  time.Duration
		failed int
	}{{4900 * time.Millisecond, 0}, {200 * time.Millisecond, 2}, {4800 * time.Millisecond, 2}, {200 * time.Millisecond, 3}} {
		w.advance(step.after)
		w.quiet()
		w.settle()
		if n := w.svc.Stats().TimedOut; n != uint64(step.failed) {
			t.Errorf("%v later %d are out of time, want %d", step.after, n, step.failed)
		}
	}
}
