package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
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
				defer func() { _ = s.Close() }()
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
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
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
