package store_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

var waitSeeds = flag.Int("crash.waiting", 12, "how many seeds the crash test of what waits runs")

// waiter is one message that waits, as its producer knows it.
type waiter struct {
	kind      string // half, delay or back: sent back by a pull group
	topic     string
	body      string
	address   int64
	stored    bool   // acknowledged before the power went
	end       string // what was asked for: commit, rollback or cancel
	ended     bool   // and acknowledged before the power went
	contested bool   // the other outcome was asked for, too
}

// waitCrash is one history of messages that wait, with power cuts.
type waitCrash struct {
	t   *testing.T
	rng *rand.Rand
	mem *vfs.Mem

	mu   sync.Mutex
	cut  bool
	made int
	all  []*waiter
}

func (c *waitCrash) options() store.Options {
	o := store.Options{
		Dir: "/store", FS: c.mem, SegmentBytes: 64 << 10, CheckpointBytes: 64 << 10, FlushInterval: time.Second,
		DelayLevels: []time.Duration{time.Second, 2 * time.Second, 3 * time.Second},
		Events: func(e store.Event) {
			if strings.HasPrefix(e.Name, "push state of the checkpoint") || e.Level > 4 && !strings.HasPrefix(e.Name, "log ends at a damaged record") { // what was not synced may be there in part
				c.t.Errorf("event: %s %v", e.Name, e.Attrs)
			}
		},
	}
	o.TailRows(20)
	return o
}

// step does one random thing.
func (c *waitCrash) step(s *store.Store, rng *rand.Rand) {
	topic := []string{"Sync", "Sync", "Async"}[rng.IntN(3)]
	know := func(fn func()) {
		c.mu.Lock()
		defer c.mu.Unlock()
		fn()
	}
	pick := func(kind string) (w *waiter) {
		know(func() {
			if n := len(c.all); n > 0 {
				if w = c.all[n-1-rng.IntN(min(n, []int{4, n}[rng.IntN(2)]))]; w.kind != kind || w.address < 0 {
					w = nil
				}
			}
		})
		return w
	}
	switch n := rng.IntN(10); {
	case n < 6: // store one
		w := &waiter{kind: []string{"half", "delay", "back"}[n%3], topic: topic, address: -1}
		m := store.Message{Topic: topic, Queue: int32(rng.IntN(2))}
		know(func() {
			c.made++
			w.body = fmt.Sprintf("%s %d %s", w.kind, c.made, strings.Repeat("x", rng.IntN(2000)))
			c.all = append(c.all, w)
		})
		m.Body = []byte(w.body)
		switch {
		case w.kind == "half":
			m.Half = true
		case w.kind == "delay" && rng.IntN(2) == 0:
			m.DelayLevel = 1 + int32(rng.IntN(3))
		case w.kind == "delay":
			m.DeliverAt = time.Now().UnixMilli() + 1 + rng.Int64N(3000)
		}
		var rs [1]store.Result
		s.Append([]store.Message{m}, rs[:])
		if rs[0].Err != nil {
			c.t.Errorf("append: %v", rs[0].Err)
			return
		}
		if w.kind == "back" {
			if _, err := s.SendBack(context.Background(), store.SendBack{Group: "g" + topic, Address: rs[0].Address, Most: 5}); err != nil {
				c.t.Errorf("send back: %v", err)
			}
		}
		know(func() {
			if !c.cut {
				w.stored, w.address = true, rs[0].Address
			}
		})
	case n < 9:
		w := pick("half")
		if w == nil {
			return
		}
		e := store.HalfEnd{Address: w.address, Commit: rng.IntN(3) > 0}
		want := "rollback"
		if e.Commit {
			want = "commit"
		}
		know(func() {
			if w.end == "" {
				w.end = want
			} else if w.end != want {
				w.contested = true
			}
		})
		es := []store.HalfEnd{e}
		s.EndHalves(context.Background(), es)
		if err := es[0].Err; err != nil && !errors.Is(err, store.ErrEnded) && !errors.Is(err, store.ErrNoHalf) {
			c.t.Errorf("end: %v", err)
		} else if err == nil {
			know(func() {
				if !c.cut {
					w.end, w.ended = want, true
				}
			})
		}
	default:
		w := pick("delay")
		if w == nil {
			return
		}
		know(func() { w.end = "cancel" })
		err := s.CancelDelay(context.Background(), w.address)
		if err != nil && !errors.Is(err, store.ErrNoDelay) {
			c.t.Errorf("cancel: %v", err)
		}
		know(func() {
			if err == nil && !c.cut {
				w.ended = true
			}
		})
	}
}

// round runs the store for a while, cuts the power in the middle of it and checks what is left.
func (c *waitCrash) round(n int) {
	s, err := store.Open(c.options())
	if err != nil {
		c.t.Fatalf("round %d: %v", n, err)
	}
	if n == 0 {
		addTopic(c.t, s, "Sync", meta.Sync)
		addTopic(c.t, s, "Async", meta.Async)
		addTopic(c.t, s, "%RETRY%gSync", meta.Sync)
		addTopic(c.t, s, "%RETRY%gAsync", meta.Async)
	}
	c.cut = false
	const workers, steps = 4, 25
	at, done := c.rng.IntN(workers*steps), 0
	keep := []float64{0, 0.3, 0.7, 1}[c.rng.IntN(4)]
	cutting := rand.New(rand.NewPCG(c.rng.Uint64(), workers)) // the first worker may cut while the others are being started
	var clone *vfs.Mem
	var wg sync.WaitGroup
	for w := range workers {
		rng := rand.New(rand.NewPCG(c.rng.Uint64(), uint64(w)))
		wg.Go(func() {
			for range steps {
				c.step(s, rng)
				c.mu.Lock()
				if done++; done == at+1 {
					clone, c.cut = c.mem.CrashClone(cutting, keep), true
				}
				c.mu.Unlock()
				time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
			}
		})
	}
	wg.Wait()
	if err := s.Close(); err != nil {
		c.t.Errorf("round %d: close: %v", n, err)
	}
	c.mem = clone
	c.check(n)
}

// check opens what a power cut has left, lets everything fall due, and compares it with what producers know.
func (c *waitCrash) check(n int) {
	s, err := store.Open(c.options())
	if err != nil {
		c.t.Fatalf("round %d: open after the power cut: %v", n, err)
	}
	outcomes := map[*waiter]state.Outcome{}
	for _, w := range c.all {
		if w.kind == "half" && w.address >= 0 {
			outcomes[w] = s.Half(w.address).Outcome
		}
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	count := map[string]int{}
	for _, topic := range []string{"Sync", "Async", "%RETRY%gSync", "%RETRY%gAsync"} {
		for q := range int32(2) {
			for _, b := range bodies(c.t, s, topic, q) {
				if topic[0] == '%' {
					b = "again " + b
				}
				count[b]++
			}
		}
	}
	left := c.all[:0:0]
	for _, w := range c.all {
		body := w.body
		if w.kind == "back" {
			body = "again " + body
		}
		got := count[body]
		fail := func(what string) {
			c.t.Errorf("round %d: %s: %s of %s at %d, stored %v, end %q, ended %v: in its queue %d times, outcome %d", n, what, strings.Fields(w.body)[:2], w.topic, w.address, w.stored, w.end, w.ended, got, outcomes[w])
		}
		if got > 1 {
			fail("twice")
		}
		if w.stored && w.topic == "Sync" {
			switch {
			case w.kind == "half" && !w.ended && outcomes[w] == state.Unknown,
				w.kind == "half" && w.end == "" && (outcomes[w] != state.Undecided || got != 0),
				w.kind == "half" && w.ended && (w.end == "commit") != (outcomes[w] == state.Committed),
				w.kind == "half" && (outcomes[w] == state.Committed) != (got == 1),
				w.kind == "delay" && w.end == "" && got != 1,
				w.kind == "delay" && w.end == "cancel" && w.ended && got != 0,
				w.kind == "back" && got != 1:
				fail("lost, or not ended")
			}
		}
		if w.kind == "half" && outcomes[w] == state.Undecided {
			w.end, w.ended, w.contested = "", false, false
			left = append(left, w)
		}
	}
	// What is not decided is still there, everything else has been counted and is over.
	c.all = left
	c.sameWithoutViews(s, n)
}

// sameWithoutViews closes the store, removes what can be made again, and compares.
func (c *waitCrash) sameWithoutViews(s *store.Store, n int) {
	before := stateSum(c.t, s)
	if err := s.Close(); err != nil {
		c.t.Fatalf("round %d: close: %v", n, err)
	}
	dropViews(c.t, c.mem, "/store")
	if names, err := c.mem.List("/store/fusionmq/state"); err == nil {
		for _, f := range names {
			if c.rng.IntN(2) == 0 {
				_ = c.mem.Remove("/store/fusionmq/state/" + f)
			}
		}
	}
	s, err := store.Open(c.options())
	if err != nil {
		c.t.Fatalf("round %d: open without views: %v", n, err)
	}
	if stateSum(c.t, s) != before {
		c.t.Errorf("round %d: the log alone leads to another state", n)
	}
	if err := s.Close(); err != nil {
		c.t.Fatalf("round %d: close: %v", n, err)
	}
	found(c.t, c.options())
}

// Laws 1, 4 and 5 for halves, delays and what is sent back: what was acknowledged survives power cuts, nothing is published twice, and
// the log alone says the same.
func TestLaw5WaitingMessagesSurvivePowerCutsOnceEach(t *testing.T) {
	for range *waitSeeds {
		seed := rand.Uint64()
		if *crashSeed != 0 {
			seed = *crashSeed
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &waitCrash{t: t, rng: rand.New(rand.NewPCG(seed, 7)), mem: vfs.NewMem()}
				for n := range 4 {
					if c.round(n); t.Failed() {
						return
					}
				}
			})
		})
	}
}
