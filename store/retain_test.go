package store_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// clock is a time that the test moves.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.ms.Store(1_800_000_000_000)
	return c
}

func (c *clock) now() time.Time        { return time.UnixMilli(c.ms.Load()) }
func (c *clock) pass(d time.Duration)  { c.ms.Add(d.Milliseconds()) }
func retention(c *clock) store.Options { return retentionOn(c, vfs.NewMem()) }

// retentionOn are options of a store that keeps messages for an hour and a quarter and looks only when it is told to.
func retentionOn(c *clock, fsys vfs.FS) store.Options {
	return store.Options{
		Dir: "/s", FS: fsys, SegmentBytes: 64 << 10, CheckpointBytes: 64 << 10, Exchange: newFanout(), Now: c.now,
		Retention: store.Retention{Age: time.Hour, Interval: 1000 * time.Hour},
	}
}

// fill appends messages of 1 KiB to all queues of a topic in turn, a minute apart, and returns their results.
func fillTopic(t testing.TB, s *store.Store, c *clock, topic string, queues int32, n int) []store.Result {
	t.Helper()
	rs := make([]store.Result, n)
	for i := range rs {
		rs[i] = send(t, s, topic, int32(i)%queues, fmt.Sprint(topic, " ", i, strings.Repeat(".", 1000)))
		if i%10 == 0 {
			c.pass(time.Minute)
		}
	}
	return rs
}

func opCursor(topic, group string, to int64) state.Op {
	return state.Op{Kind: state.OpCursor, Topic: topic, Group: group, First: to}
}

func clean(t testing.TB, s *store.Store) int {
	t.Helper()
	n, err := s.Clean()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// stateSum is what tells states apart.
func stateSum(t testing.TB, s *store.Store) [32]byte {
	t.Helper()
	sum, _, err := s.StateSum()
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// owedRecords reads what is owed at its address and in its place.
func owedRecords(t testing.TB, s *store.Store, topics []string) map[int64]string {
	t.Helper()
	got := map[int64]string{}
	for _, topic := range topics {
		for _, p := range s.Pending(topic, 0, 10000) {
			b, release, err := s.RecordAt(p.Address)
			if err != nil {
				t.Fatalf("owed message at %d: %v", p.Address, err)
			}
			v, err := record.Parse(b)
			if err != nil {
				t.Fatalf("owed message at %d: %v", p.Address, err)
			}
			if v.PhysicalOffset() != p.Address || string(v.Topic()) != topic || v.CheckBody() != nil {
				t.Fatalf("record of %d is of %s at %d", p.Address, v.Topic(), v.PhysicalOffset())
			}
			got[p.Address] = string(b)
			release()
		}
	}
	return got
}

// Law 1 after retention has deleted segments: what their records had made was written down again, so views and snapshots may be deleted
// and the answers are the same. Law 5: what is owed by name is still there, what is not is named in an expiry record.
func TestLaw1AnswersAreTheSameWithoutViewsAfterSegmentsWereDeleted(t *testing.T) {
	c, mem := newClock(), vfs.NewMem()
	o := retentionOn(c, mem)
	s, err := tryOpen(t, o)
	if err != nil {
		t.Fatal(err)
	}
	topics, groups := []string{"A", "B", "Pushed"}, []string{"now", "behind", "offline"}
	for _, topic := range topics {
		addTopic(t, s, topic, meta.Async)
	}
	fillTopic(t, s, c, "B", 4, 10) // never again: its queues go on where nothing tells
	operate(t, s, bindOps("Pushed", "now")...)
	operate(t, s, bindOps("Pushed", "behind")...)
	operate(t, s, bindOps("Pushed", "offline")...)
	operate(t, s, state.Op{Kind: state.OpDetach, Topic: "Pushed", Group: "offline"})
	operate(t, s, state.Op{Kind: state.OpUnbind, Topic: "Pushed", Group: "offline", Binding: state.Binding{Kind: state.BindFanout, WaterMark: -1}},
		state.Op{Kind: state.OpBind, Topic: "Pushed", Group: "offline", Binding: state.Binding{Kind: state.BindDirect, Expr: "TagA", WaterMark: 7}})
	pushed := fillTopic(t, s, c, "Pushed", 4, 200)
	operate(t, s, state.Op{Kind: state.OpDelete, Topic: "Pushed", First: pushed[10].Address, Last: pushed[199].Address},
		state.Op{Kind: state.OpUpdate, Topic: "Pushed", First: pushed[3].Address, Failed: []state.Failed{{Group: "now", Attempt: 3, Due: 99}, {Group: "behind", Attempt: 1, Due: 98}}},
		state.Op{Kind: state.OpUpdate, Topic: "Pushed", First: pushed[150].Address, Failed: []state.Failed{{Group: "offline", Attempt: 1, Due: 97}}},
		state.Op{Kind: state.OpRetire, Topic: "Pushed", Group: "now", First: pushed[4].Address})
	for id := range int32(4) {
		s.Offsets().Commit("puller", "A", id, 5)
	}
	fillTopic(t, s, c, "A", 4, 700)
	c.pass(time.Hour)
	settle(t, s)

	owed := owedRecords(t, s, topics)
	if len(owed) != 11 {
		t.Fatalf("%d messages are owed, want 10 in the window and one behind it", len(owed))
	}
	low := s.Bounds().Min
	if n := clean(t, s); n != 10 {
		t.Fatalf("%d segments deleted, want the 10 that one look may take", n)
	}
	for clean(t, s) > 0 {
	}
	if b := s.Bounds(); b.Min <= low+8*(64<<10) || b.Min < pushed[199].Address {
		t.Fatalf("log begins at %d, the last pushed message is at %d", b.Min, pushed[199].Address)
	}
	if diff := cmp.Diff(owed, owedRecords(t, s, topics)); diff != "" {
		t.Errorf("owed messages after their segments went (-before +after):\n%s", diff)
	}
	for id := range int32(4) {
		first, _ := s.Queue("A", id, false).Range()
		if got, _ := s.Offsets().Get("puller", "A", id); first <= 5 || got != first {
			t.Errorf("queue %d begins at %d, the committed offset is %d", id, first, got)
		}
		if low, high := s.Queue("B", id, false).Range(); low != high || high < 2 {
			t.Errorf("queue B/%d is [%d, %d), want it empty where it ended", id, low, high)
		}
	}
	if p, _ := s.Cursor("Pushed", "offline"); p.Cursor != s.Bounds().Min {
		t.Errorf("cursor at %d, the log begins at %d", p.Cursor, s.Bounds().Min)
	}
	checkExpiries(t, s, map[string]int64{"push offline Pushed": 200, "pull puller A": int64(expired(s, "A", 4, 5))})

	settle(t, s)
	want := ask(t, s, topics, groups, 4)
	if len(want.Bindings) != 3 || len(want.Retries["behind"]) != 1 || len(want.Pending["Pushed"]) != 11 {
		t.Fatalf("nothing to compare: %+v", want.Bindings)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		del  func(name string) bool
	}{
		{"nothing", func(string) bool { return false }},
		{"the index", func(name string) bool { return strings.HasSuffix(name, ".idx") }},
		{"the checkpoint", func(name string) bool { return strings.HasSuffix(name, "checkpoint") }},
		{"everything of ours", func(string) bool { return true }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, dir := range []string{"/s/fusionmq/index", "/s/fusionmq"} {
				names, err := mem.List(dir)
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range names {
					if path := dir + "/" + name; !strings.HasSuffix(name, "/") && tc.del(path) {
						if err := mem.Remove(path); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			o.Exchange = newFanout()
			s, err := tryOpen(t, o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, ask(t, s, topics, groups, 4)); diff != "" {
				t.Errorf("answers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(owed, owedRecords(t, s, topics)); diff != "" {
				t.Errorf("owed messages (-want +got):\n%s", diff)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
	s = open(t, o)
	for id := range int32(4) {
		_, high := s.Queue("B", id, false).Range()
		if r := send(t, s, "B", id, "again"); r.QueueOffset != high || high < 2 {
			t.Errorf("B/%d goes on at %d, want %d", id, r.QueueOffset, high)
		}
	}
}

func expired(s *store.Store, topic string, queues int32, committed int64) int {
	n := int64(0)
	for id := range queues {
		low, _ := s.Queue(topic, id, false).Range()
		n += low - committed
	}
	return int(n)
}

// checkExpiries compares the number of messages in all expiry records of each face, group and topic.
func checkExpiries(t testing.TB, s *store.Store, want map[string]int64) {
	t.Helper()
	all, err := s.Expiries(1000)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, e := range all {
		got[e.Face+" "+e.Group+" "+e.Topic] += e.Count
		if e.Count != e.Last-e.First+1 {
			t.Errorf("%+v does not add up", e)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("messages in expiry records (-want +got):\n%s", diff)
	}
}

// A power cut at any file operation of a deletion, whatever of what was not synced survives: what is owed is there, queues go on where
// they did, cursors stand where they did or at the new beginning.
func TestLaw1PowerCutsAtEveryOperationOfADeletion(t *testing.T) {
	for _, keep := range []float64{0, 0.5, 1} {
		t.Run(fmt.Sprint("keep ", keep), func(t *testing.T) {
			c, mem := newClock(), vfs.NewMem()
			var mu sync.Mutex
			var cuts []*vfs.Mem
			var ops []string
			cutting := false
			rng := rand.New(rand.NewPCG(7, uint64(keep*10)))
			o := retentionOn(c, vfs.Intercept(mem, func(op vfs.Op) error {
				mu.Lock()
				defer mu.Unlock()
				switch op.Kind {
				case "read", "stat", "list", "openread", "open", "close", "space":
					return nil
				}
				if cutting {
					cuts, ops = append(cuts, mem.CrashClone(rng, keep)), append(ops, op.String())
				}
				return nil
			}))
			o.FlushInterval = time.Hour
			s, err := tryOpen(t, o)
			if err != nil {
				t.Fatal(err)
			}
			addTopic(t, s, "P", meta.Async)
			addTopic(t, s, "B", meta.Async)
			fillTopic(t, s, c, "B", 2, 5)
			operate(t, s, bindOps("P", "g")...)
			operate(t, s, bindOps("P", "h")...)
			operate(t, s, state.Op{Kind: state.OpDetach, Topic: "P", Group: "h"})
			rs := fillTopic(t, s, c, "P", 2, 200)
			operate(t, s, state.Op{Kind: state.OpDelete, Topic: "P", First: rs[20].Address, Last: rs[199].Address},
				state.Op{Kind: state.OpUpdate, Topic: "P", First: rs[3].Address, Failed: []state.Failed{{Group: "g", Attempt: 3, Due: 99}}})
			settle(t, s)
			c.pass(24 * time.Hour)
			want := owedRecords(t, s, []string{"P"})
			before, _ := s.Cursor("P", "h")
			low := s.Bounds().Min
			mu.Lock()
			cutting = true
			mu.Unlock()
			if clean(t, s) == 0 {
				t.Fatal("nothing was deleted")
			}
			mu.Lock()
			cutting = false
			mu.Unlock()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			gone := 0
			for i, mem := range cuts {
				o := retentionOn(c, mem)
				s, err := tryOpen(t, o)
				if err != nil {
					t.Fatalf("power cut before %s: %v", ops[i], err)
				}
				if diff := cmp.Diff(want, owedRecords(t, s, []string{"P"})); diff != "" {
					t.Errorf("power cut before %s: owed messages (-want +got):\n%s", ops[i], diff)
				}
				if p, _ := s.Cursor("P", "h"); p.Cursor < s.Bounds().Min && (p.Cursor != before.Cursor || s.Bounds().Min > low) {
					t.Errorf("power cut before %s: cursor at %d", ops[i], p.Cursor)
				}
				for id, n := range []int64{3, 2} {
					if _, high := s.Queue("B", int32(id), false).Range(); high != n {
						t.Errorf("power cut before %s: B/%d ends at %d, want %d", ops[i], id, high, n)
					}
				}
				if s.Bounds().Min > low {
					gone++
				}
				if clean(t, s); s.Bounds().Min <= low {
					t.Errorf("power cut before %s: nothing is deleted behind it", ops[i])
				}
				if all, err := s.Expiries(1000); err != nil || len(namedTwice(all)) > 0 {
					t.Errorf("power cut before %s: %d messages are named twice, %v", ops[i], len(namedTwice(all)), err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if gone == 0 || gone == len(cuts) {
				t.Errorf("in %d of %d power cuts a segment was gone: nothing tested", gone, len(cuts))
			}
		})
	}
}
