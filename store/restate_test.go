package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// everyWait lists all that waits, by address, each with what it needs to be taken up again, and reads its record.
func everyWait(t testing.TB, s *store.Store) []string {
	t.Helper()
	var all []string
	add := func(at int64, what string, args ...any) {
		body := "no body"
		if b, release, err := s.RecordAt(at); err == nil {
			if v, err := record.Parse(b); err == nil {
				body = string(v.Body())
			}
			release()
		}
		all = append(all, fmt.Sprintf("%12d %s %v: %s", at, what, args, body))
	}
	hs := make([]state.HalfState, 5000)
	for _, h := range hs[:s.Halves(false, state.HalfState{}, hs)] {
		add(h.Address, "half", h.Topic, h.Due, h.Checks)
	}
	ds := make([]state.Due, 5000)
	for _, d := range ds[:s.Delays(state.Due{}, ds)] {
		add(d.Address, "delay", d.Topic, d.Due)
	}
	for _, d := range ds[:s.Returns(state.Due{}, ds)] {
		add(d.Address, "return", d.Topic, d.Group, d.Due, d.Attempt)
	}
	for _, p := range s.Pending("T", 0, 5000) {
		for _, r := range p.Retries {
			add(p.Address, "retry", r.Group, r.Due, r.Attempt)
		}
	}
	slices.Sort(all)
	return all
}

// fillWaiting appends n of each that waits for days, and returns the addresses of some.
func fillWaiting(t testing.TB, s *store.Store, c *clock, n int) (halves, delays []int64) {
	t.Helper()
	due := c.now().Add(30 * 24 * time.Hour).UnixMilli()
	ms, rs := make([]store.Message, 3*n), make([]store.Result, 3*n)
	for i := range ms {
		ms[i] = store.Message{Topic: "T", Body: fmt.Appendf(nil, "body %d", i)}
		switch i % 3 {
		case 0:
			ms[i].Half = true
		case 1:
			ms[i].DeliverAt = due + int64(i*7919%100_000)
		}
	}
	s.Append(ms, rs)
	var ops []state.Op
	for i, r := range rs {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		switch i % 3 {
		case 0:
			halves = append(halves, r.Address)
		case 1:
			delays = append(delays, r.Address)
		case 2:
			ops = append(ops, state.Op{Kind: state.OpUpdate, Topic: "T", First: r.Address, Failed: []state.Failed{{Group: "g", Attempt: 3, Due: due + int64(i)}}})
		}
	}
	operate(t, s, ops...)
	return halves, delays
}

// pieces counts the pieces of restated states, and finds what else lies between the first and the last of the newest.
func pieces(t testing.TB, s *store.Store) (n, between int) {
	t.Helper()
	others := 0
	err := s.Records(0, func(v record.View) error {
		if string(v.Topic()) != store.StateTopic {
			others++
			return nil
		}
		if n++; others > 0 && n > 1 {
			between += others
		}
		others = 0
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n, between
}

// Law 1: a state that is restated in pieces is loaded when all of them are there, and else not at all: a power cut at any moment of a
// deletion leaves all that waits, and without views the log alone says so.
func TestLaw1StateInPiecesIsNeverHalfApplied(t *testing.T) {
	c, mem := newClock(), vfs.NewMem()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	var cuts []*vfs.Mem
	cutting := false
	o := retentionOn(c, vfs.Intercept(mem, func(op vfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if cutting && strings.Contains(op.String(), "write") && rng.IntN(8) == 0 {
			cuts = append(cuts, mem.CrashClone(rng, []float64{0, 0.5, 1}[len(cuts)%3]))
		}
		return nil
	}))
	o.Exchange, o.FlushInterval = nil, time.Hour
	o.TailRows(200)
	s := open(t, o)
	addTopic(t, s, "T", meta.Async)
	fillWaiting(t, s, c, 1500)
	send(t, s, "T", 0, "last")
	settle(t, s)
	c.pass(24 * time.Hour)
	want := everyWait(t, s)
	if len(want) != 4500 || strings.Contains(want[0], "no body") {
		t.Fatalf("%d wait, the first is %s", len(want), want[0])
	}
	mu.Lock()
	cutting = true
	mu.Unlock()
	n := clean(t, s)
	mu.Lock()
	cutting = false
	mu.Unlock()
	if ps, _ := pieces(t, s); n == 0 || ps < 3 {
		t.Fatalf("%d segments deleted, %d pieces of state", n, ps)
	}
	stop(t, s)
	gone := 0
	for i, mem := range append(cuts, mem) {
		dropViews(t, mem, "/s")
		o := retentionOn(c, mem)
		o.Exchange = nil
		s, err := tryOpen(t, o)
		if err != nil {
			t.Fatalf("cut %d of %d: %v", i, len(cuts), err)
		}
		if diff := cmp.Diff(want, everyWait(t, s)); diff != "" {
			t.Fatalf("cut %d of %d: what waits (-want +got):\n%s", i, len(cuts), diff)
		}
		if s.Bounds().Min > 0 {
			gone++
		}
		stop(t, s)
	}
	if gone == 0 || gone > len(cuts) {
		t.Errorf("after %d of %d cuts a segment was gone", gone, len(cuts))
	}
}

// Law 1: a state that is restated while it goes on speaks for the position it names: what is changed between its pieces is changed by the
// log behind that position, and without views the answers are the same. What becomes owed meanwhile in a segment that goes is moved too.
func TestLaw1StateIsRestatedWhileItGoesOn(t *testing.T) {
	c, mem := newClock(), vfs.NewMem()
	o := retentionOn(c, mem)
	o.Exchange = nil
	o.TailRows(200)
	s := open(t, o)
	addTopic(t, s, "T", meta.Async)
	old := send(t, s, "T", 0, "old")
	halves, delays := fillWaiting(t, s, c, 1500)
	settle(t, s)
	c.pass(24 * time.Hour)
	last := 0
	s.HookRestated(func(part int, end bool) {
		if err := s.CancelDelay(t.Context(), delays[part]); err != nil {
			t.Fatal(err)
		}
		due := c.now().Add(24 * time.Hour).UnixMilli()
		operate(t, s, state.Op{Kind: state.OpCheck, Topic: "T", First: halves[part], Attempt: 9, Due: due + int64(part)},
			state.Op{Kind: state.OpRollback, Topic: "T", First: halves[len(halves)-1-part], Last: halves[len(halves)-1-part]})
		fillWaiting(t, s, c, 1)
		if end {
			last = part
			operate(t, s, state.Op{Kind: state.OpUpdate, Topic: "T", First: old.Address, Failed: []state.Failed{{Group: "late", Attempt: 1, Due: due}}})
		}
	})
	if n := clean(t, s); n == 0 || last < 2 {
		t.Fatalf("%d segments deleted, %d pieces", n, last+1)
	}
	settle(t, s)
	if _, amid := pieces(t, s); amid == 0 {
		t.Fatal("nothing lies between the pieces")
	}
	want, sum := everyWait(t, s), stateSum(t, s)
	for _, w := range want {
		if strings.Contains(w, "no body") {
			t.Fatal(w)
		}
	}
	if !strings.HasSuffix(want[0], ": old") || !strings.Contains(want[0], "late") {
		t.Fatalf("the first that waits is %s", want[0])
	}
	s = fromLog(t, s, o)
	if diff := cmp.Diff(want, everyWait(t, s)); diff != "" {
		t.Fatalf("what waits (-want +got):\n%s", diff)
	}
	if stateSum(t, s) != sum {
		t.Fatal("the log alone leads to another state")
	}
}
