package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// Law 1, after retention has deleted segments: whichever views and snapshots are deleted, a start gives the same answers, all of them: queues
// and the bytes of every message, halves and outcomes, delays, what was sent back, retries, windows, cursors, committed offsets, expiry
// records, keys, and the ids of what was stored once.
func TestLaw1EveryAnswerIsTheSameWithoutViewsAfterRetention(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &allOps{t: t, rng: rand.New(rand.NewPCG(seed, 12)), mem: vfs.NewMem(), left: -1, window: []time.Duration{0, 10 * time.Second}[seed%2]}
				c.run(false)
				s, err := store.Open(c.options(c.mem))
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := s.Close(); err != nil {
						t.Errorf("close: %v", err)
					}
					found(t, c.options(c.mem))
				}()
				time.Sleep(5 * time.Second) // nothing falls due any more
				rng := rand.New(rand.NewPCG(seed, 13))
				begin := s.Bounds().Max
				var halves []int64
				for range 3 {
					halves = append(halves, half(t, s, "Sync", 0, "half").Address)
					sendWaiting(t, s, store.Message{Topic: "Pushed", Body: []byte("delay"), DelayLevel: 4})
					r := send(t, s, "Sync", 1, "sent back")
					if _, err := s.SendBack(context.Background(), store.SendBack{Group: "pg", Address: r.Address, Level: 4, Most: 5}); err != nil {
						t.Fatal(err)
					}
					r = send(t, s, "Pushed", 0, "retry")
					operate(t, s, state.Op{Kind: state.OpUpdate, Topic: "Pushed", First: r.Address, Failed: []state.Failed{{Group: "g", Attempt: 2, Due: 1 << 50}}})
					send(t, s, "Pushed", 1, "window")
				}
				if err := s.SetHalvesAside(halves[:1]); err != nil {
					t.Fatal(err)
				}
				if err := endHalf(s, halves[1], false); err != nil {
					t.Fatal(err)
				}
				for range 12 {
					send(t, s, "Async", 0, strings.Repeat("f", 12_000))
				}
				s.Offsets().Commit("pg", "Async", 0, 1)
				c.put(s, rng, "plain", "Sync")
				send(t, s, "Async", 0, "last")
				settle(t, s)
				time.Sleep(12 * time.Second)
				for range 3 {
					if _, err := s.Clean(); err != nil {
						t.Fatal(err)
					}
				}
				if s.Bounds().Min <= begin {
					t.Fatalf("the log begins at %d, what waits was stored behind %d", s.Bounds().Min, begin)
				}
				settle(t, s)
				q := c.questions()
				q.halves = append(q.halves, halves...)
				for i := range 4 { // ids of the newest
					q.keys = append(q.keys, fmt.Sprintf("%032x", len(c.items)-i))
				}
				want := everyAnswer(t, s, q)
				for _, kind := range []string{"Async/0 ", "half ", "outcome ", "delay ", "sent back ", "retry ", "pending ", "cursor ", "offset ", "key ", "expiries", "bindings"} {
					n := 0
					for name := range want {
						if strings.HasPrefix(name, kind) {
							n++
						}
					}
					if n == 0 {
						t.Errorf("nothing to compare of %q", kind)
					}
				}
				all := func() bool { return true }
				for _, v := range []struct {
					name string
					dirs []string
				}{
					{"nothing", nil},
					{"the queue index", []string{"/index"}},
					{"the key index", []string{"/keys"}},
					{"the checkpoint", []string{""}},
					{"what waits", []string{"/state", ""}},
					{"everything", []string{"/index", "/keys", "/state", "/bits", ""}},
				} {
					stop(t, s)
					for _, dir := range v.dirs {
						c.drop("/store/fusionmq"+dir, all)
					}
					if s, err = store.Open(c.options(c.mem)); err != nil {
						t.Fatalf("without %s: %v", v.name, err)
					}
					if d := cmp.Diff(want, everyAnswer(t, s, q)); d != "" {
						t.Errorf("without %s (-want +got):\n%.2000s", v.name, d)
					}
				}
				for _, w := range c.items {
					if w.once > 0 && w.r.Address >= s.Bounds().Min {
						if r := sendOnce(s, w.topic, w.queue, w.once, w.body); !r.Repeated || r.Address != w.r.Address {
							t.Errorf("message of id %d is stored twice, at %d and at %d", w.once, w.r.Address, r.Address)
						}
					}
				}
			})
		})
	}
}

// Law 1, rules of views: the bodies of a queue are not in the order of the log, so a replay, an expiry and a reader who lags behind go by
// addresses. Here one queue has views, whose records are the oldest of the log, and another one messages.
func TestLaw1OrderIsThatOfAddressesAndNotOfBodies(t *testing.T) {
	for _, in := range []string{"memory", "index files"} {
		t.Run(in, func(t *testing.T) {
			c, fsys := newClock(), vfs.NewMem()
			o := retentionOn(c, fsys)
			o.Retention.MostAtOnce = 1
			if in == "memory" {
				o.CheckpointBytes = 64 << 20
			}
			o.Events = func(e store.Event) {
				if e.Level > 4 {
					t.Errorf("event: %s %v", e.Name, e.Attrs)
				}
			}
			s := open(t, o)
			for _, topic := range []string{"A", "T", "Other"} {
				addTopic(t, s, topic, meta.Async)
			}
			var old []store.Result
			for i := range 60 {
				old = append(old, send(t, s, "A", 0, fmt.Sprint("old ", i)))
			}
			fillTopic(t, s, c, "Other", 1, 70)
			operate(t, s, bindOps("T", "g")...)
			for i := range old {
				r := old[len(old)-1-i]
				operate(t, s, state.Op{Kind: state.OpPublish, Topic: "A", First: r.Address, View: &state.View{
					Kind: state.ViewCommit, Topic: "T", Position: r.Address, Size: r.Size, TagsCode: 2598919,
				}})
				send(t, s, "T", 1, fmt.Sprint("plain ", i))
				fillTopic(t, s, c, "Other", 1, 4)
			}
			fillTopic(t, s, c, "Other", 1, 70)
			settle(t, s)
			read := func(from int64) []store.TopicEntry {
				es := make([]store.TopicEntry, 200)
				return es[:s.ReadTopic("T", from, es)]
			}
			want := read(0)
			if len(want) != 2*len(old) {
				t.Fatalf("%d entries: %+v", len(want), want)
			}
			for i, e := range want {
				if i > 0 && e.Address <= want[i-1].Address {
					t.Errorf("entry %d is at %d, the one before at %d", i, e.Address, want[i-1].Address)
				}
				if got := read(e.Address); !slices.Equal(got, want[i:]) {
					t.Fatalf("a reader who has come to %d has %d messages before him, want %d", e.Address, len(got), len(want)-i)
				}
			}
			if owed := s.Pending("T", 0, 1000); len(owed) != len(want) {
				t.Errorf("%d of %d messages are owed", len(owed), len(want))
			}
			operate(t, s, state.Op{Kind: state.OpDelete, Topic: "T", First: 0, Last: 1 << 60})

			// The records that the views show go with the first segment; the entries go with theirs.
			c.pass(24 * time.Hour)
			first := want[0].Address
			for range 4 {
				clean(t, s)
				low := s.Bounds().Min
				want = slices.DeleteFunc(want, func(e store.TopicEntry) bool { return e.Address < low })
				if got := read(0); !slices.Equal(got, want) {
					t.Fatalf("the log begins at %d, %d entries, want %d", low, len(got), len(want))
				}
			}
			if low := s.Bounds().Min; low <= first || len(want) == 0 || len(want) == 2*len(old) {
				t.Fatalf("the log begins at %d, %d of %d entries are left: nothing tested", low, len(want), 2*len(old))
			}

			// And from the log alone.
			s = fromLog(t, s, o)
			if got := read(0); !slices.Equal(got, want) {
				t.Errorf("%d entries from the log alone, want %d", len(got), len(want))
			}
		})
	}
}

// Law 1: what a start does not have to ask the log for, it must not take for new.
func TestLaw1AnIDFromBeforeAStartIsKnown(t *testing.T) {
	for _, killed := range []bool{false, true} {
		m := vfs.NewMem()
		o := store.Options{FS: m, Dir: "/s", SegmentBytes: 64 << 10}
		s := open(t, o)
		addTopic(t, s, "A", meta.Async)
		want := sendOnce(s, "A", 0, 1, "first")
		if killed {
			unclean(t, s, o)
		} else {
			stop(t, s)
		}
		s = open(t, o)
		if got := sendOnce(s, "A", 1, 1, "again"); got.Err != nil || !got.Repeated || otherResult(want, got) != "" {
			t.Errorf("killed %v: %+v, first %+v", killed, got, want)
		}
		same(t, bodies(t, s, "A", 0), []string{"first"})
	}
}

// Law 1 after retention, with a push state of many pieces: a start takes all of them, and an unfinished one is none.
func TestLaw1RestatedStateIsTakenWhole(t *testing.T) {
	c, fsys := newClock(), vfs.NewMem()
	o := retentionOn(c, fsys)
	s := open(t, o)
	addTopic(t, s, "P", meta.Async)
	var groups []string
	var ops []state.Op
	for i := range 600 {
		g := fmt.Sprintf("group-%03d-%s", i, strings.Repeat("n", 60))
		groups = append(groups, g)
		ops = append(ops, bindOps("P", g)...)
	}
	operate(t, s, ops...)
	r := send(t, s, "P", 0, "owed to all")
	fillTopic(t, s, c, "P", 1, 1)
	operate(t, s, state.Op{Kind: state.OpDelete, Topic: "P", First: r.Address + 1, Last: 1 << 60})
	addTopic(t, s, "Other", meta.Async)
	fillTopic(t, s, c, "Other", 1, 200)
	c.pass(24 * time.Hour)
	settle(t, s)
	if clean(t, s) == 0 || s.Bounds().Min <= r.Address {
		t.Fatal("the first segment is still there")
	}
	settle(t, s)
	if n, _ := pieces(t, s); n < 2 {
		t.Fatalf("%d pieces of state", n)
	}
	want := ask(t, s, []string{"P"}, groups, 1)
	if len(want.Bindings) != len(groups) || len(want.Pending["P"]) != 1 || len(want.Pending["P"][0].Targets) != len(groups) {
		t.Fatalf("%d bindings, %+v", len(want.Bindings), want.Pending["P"])
	}
	s = fromLog(t, s, o)
	if diff := cmp.Diff(want, ask(t, s, []string{"P"}, groups, 1)); diff != "" {
		t.Errorf("answers from the log alone (-want +got):\n%.2000s", diff)
	}
}

// Law 1: a checkpoint is believed as far as the log goes. One from before the log lost its end, or from a stop that was clean when the last one was not, says
// nothing about what is there.
func TestLaw1ACheckpointDoesNotOutliveItsLog(t *testing.T) {
	for _, tc := range []struct {
		name string
		harm func(t *testing.T, m *vfs.Mem, before, after map[string]string)
		want []string
	}{
		{"a clean stop's, and more was appended since", func(t *testing.T, m *vfs.Mem, before, after map[string]string) {
			put(t, m, "/s/fusionmq/checkpoint", []byte(before["/s/fusionmq/checkpoint"]))
			put(t, m, "/s/abort", nil)
		}, []string{"one", "two", "three"}},
		{"a clean stop's, and what came since is torn at its beginning", func(t *testing.T, m *vfs.Mem, before, after map[string]string) {
			const log, synced = "/s/commitlog/00000000000000000000", "/s/config/" + store.SyncedName
			for _, name := range []string{"/s/fusionmq/checkpoint", synced} {
				put(t, m, name, []byte(before[name]))
			}
			torn, end := []byte(after[log]), 0
			for torn[end] == before[log][end] {
				end++
			}
			clear(torn[end : end+8]) // size and magic number
			put(t, m, log, torn)
			put(t, m, "/s/abort", nil)
		}, []string{"one"}},
		{"of a log that is shorter now", func(t *testing.T, m *vfs.Mem, before, after map[string]string) {
			for name := range after {
				if strings.Contains(name, "/commitlog/0") || strings.Contains(name, ".idx") || strings.HasSuffix(name, ".synced") {
					if err := m.Remove(name); err != nil {
						t.Fatal(err)
					}
				}
			}
			put(t, m, "/s/commitlog/00000000000000000000", []byte(before["/s/commitlog/00000000000000000000"]))
		}, []string{"one"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := vfs.NewMem()
			o := store.Options{Dir: "/s", FS: m, SegmentBytes: 64 << 10, Exchange: newFanout(), Events: func(store.Event) {}}
			run := func(bodies ...string) map[string]string {
				s := open(t, o)
				addTopic(t, s, "T", meta.Async)
				for _, b := range bodies {
					send(t, s, "T", 0, b)
				}
				if len(bodies) > 1 {
					send(t, s, "T", 1, strings.Repeat("x", 40<<10))
					send(t, s, "T", 1, strings.Repeat("x", 40<<10))
				}
				stop(t, s)
				return contents(t, m, "/s")
			}
			before := run("one")
			after := run("two", "three")
			tc.harm(t, m, before, after)
			o.Exchange = newFanout()
			s := open(t, o)
			same(t, bodies(t, s, "T", 0), tc.want)
			end, base := s.Bounds().Max, s.Bounds().Max&^(64<<10-1)
			if left := contents(t, m, "/s/commitlog")[fmt.Sprintf("/s/commitlog/%020d", base)][end-base:]; strings.Trim(left, "\x00") != "" {
				t.Errorf("behind the end at %d are bytes that a later start may read", end)
			}
			if r := send(t, s, "T", 0, "next"); r.QueueOffset != int64(len(tc.want)) {
				t.Errorf("the next message has offset %d, want %d", r.QueueOffset, len(tc.want))
			}
			same(t, bodies(t, s, "T", 0), append(tc.want, "next"))
		})
	}
}
