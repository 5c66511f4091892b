package store_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

var allSeeds = flag.Int("crash.all", 2000/slower, "how many seeds the crash test over all operations runs")

// Messages go after allAge and a quarter of it, and a history takes a few times that.
const allAge = 500 * time.Millisecond

// item is a message as who made it knows it. Times are in milliseconds since 1970.
type item struct {
	kind    string // plain, pushed, half, delay or back
	topic   string
	queue   int32
	body    string
	once    int          // 0, or the number of its id
	again   bool         // sent a second time, which stores it when the first has gone
	r       store.Result // of a half, delay: where it waits
	acked   bool         // before the power went, by a sync topic
	due     int64        // not published before
	end     string       // of a half: commit, later or rollback; of a delay: cancel
	ended   bool         // and that was acknowledged
	touched bool         // of pushed: something that ends what it owes was handed over
}

// allOps is one short history of all operations with one power cut.
type allOps struct {
	t   *testing.T
	rng *rand.Rand
	mem *vfs.Mem

	mu     sync.Mutex
	window time.Duration // above 0: views keep bodies for long, and segments go by force

	left   int // file operations until the power goes; below 0: nobody counts
	keep   float64
	clone  *vfs.Mem // what is left then
	items  []*item
	cleans []int64 // when segments were deleted by age
	forced bool    // or above the forced level
}

func (c *allOps) options(m *vfs.Mem) store.Options {
	o := store.Options{
		Dir: "/store", SegmentBytes: 64 << 10, CheckpointBytes: 64 << 10, FlushInterval: 300 * time.Millisecond, PersistInterval: time.Second, OnceBytes: 64 << 10,
		DelayLevels: []time.Duration{100 * time.Millisecond, 700 * time.Millisecond, 2 * time.Second, time.Hour}, Exchange: newFanout(),
		Retention: store.Retention{Age: allAge, ViewWindow: c.window, Interval: 1000 * time.Hour, MostAtOnce: 2},
		FS: vfs.Intercept(m, func(op vfs.Op) error {
			switch op.Kind {
			case "read", "stat", "list", "openread", "open", "close", "space":
				return nil
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.left > 0 {
				if c.left--; c.left == 0 {
					c.clone = m.CrashClone(c.rng, c.keep)
				}
			}
			return nil
		}),
		Events: func(e store.Event) {
			if e.Level > 4 && !strings.HasPrefix(e.Name, "log ends at a damaged record") && !strings.HasPrefix(e.Name, "published message cannot be read") {
				c.t.Errorf("event: %s %v", e.Name, e.Attrs)
			}
		},
	}
	o.TailRows(10)
	return o
}

// know runs fn with what is known, but for what comes after the power has gone.
func (c *allOps) know(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clone == nil {
		fn()
	}
}

// pick finds one of the newer items of a kind that was acknowledged.
func (c *allOps) pick(rng *rand.Rand, kind string) (w *item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range 8 {
		if n := len(c.items); n > 0 {
			if w = c.items[n-1-rng.IntN(min(n, []int{8, n}[rng.IntN(2)]))]; w.kind == kind && w.r.Size > 0 {
				return w
			}
		}
	}
	return nil
}

func (c *allOps) fail(what string, err error, but ...error) {
	for _, b := range but {
		if errors.Is(err, b) {
			return
		}
	}
	if err != nil {
		c.t.Errorf("%s: %v", what, err)
	}
}

// put appends a message and notes it.
func (c *allOps) put(s *store.Store, rng *rand.Rand, kind, topic string) {
	w := &item{kind: kind, topic: topic, queue: int32(rng.IntN(2))}
	m := store.Message{Topic: topic, Queue: w.queue}
	now := time.Now().UnixMilli()
	c.mu.Lock()
	n := len(c.items) + 1
	size := rng.IntN(300)
	if rng.IntN(2) == 0 {
		size = rng.IntN(12000)
	}
	w.body = fmt.Sprintf("%d %s %s", n, kind, strings.Repeat(string(rune('a'+n%26)), size))
	c.items = append(c.items, w)
	c.mu.Unlock()
	m.Body, m.Properties = []byte(w.body), onceProps(n)
	switch kind {
	case "half":
		m.Half = true
	case "delay":
		if rng.IntN(2) == 0 {
			m.DelayLevel = 1 + int32(rng.IntN(3))
			w.due = now + []int64{100, 700, 2000}[m.DelayLevel-1]
		} else {
			m.DeliverAt = now + 1 + rng.Int64N(3000)
			w.due = m.DeliverAt
		}
	case "plain":
		if m.Once = rng.IntN(3) == 0; m.Once {
			w.once = n
		}
	}
	var rs [1]store.Result
	s.Append([]store.Message{m}, rs[:])
	c.fail("append", rs[0].Err)
	if kind == "back" && rs[0].Err == nil {
		level := 1 + int32(rng.IntN(3))
		w.due = time.Now().UnixMilli() + []int64{100, 700, 2000}[level-1]
		_, err := s.SendBack(context.Background(), store.SendBack{Group: "pg", Address: rs[0].Address, Level: level, Most: 5})
		c.fail("send back", err)
	}
	c.know(func() {
		w.acked, w.r = topic != "Async" && rs[0].Err == nil, rs[0]
	})
}

// step does one random thing.
func (c *allOps) step(s *store.Store, rng *rand.Rand) {
	ctx := context.Background()
	topic := []string{"Sync", "Sync", "Async"}[rng.IntN(3)]
	operate := func(ops ...state.Op) {
		_, err := s.Operate(ops)
		c.fail("operate", err)
	}
	switch n := rng.IntN(42); {
	case n < 6:
		c.put(s, rng, "plain", topic)
	case n < 10:
		c.put(s, rng, "pushed", "Pushed")
	case n < 14:
		c.put(s, rng, "half", []string{topic, "Pushed"}[rng.IntN(2)])
	case n < 17:
		c.put(s, rng, "delay", []string{topic, "Pushed"}[rng.IntN(2)])
	case n < 20:
		c.put(s, rng, "back", topic)
	case n < 24: // the end of a transaction
		w := c.pick(rng, "half")
		if w == nil {
			return
		}
		es := []store.HalfEnd{{Address: w.r.Address, Commit: rng.IntN(3) > 0}}
		want := "rollback"
		if es[0].Commit {
			if want = "commit"; rng.IntN(3) == 0 {
				want, es[0].Due = "later", time.Now().UnixMilli()+1+rng.Int64N(1500)
			}
		}
		mine := false
		c.know(func() {
			if mine = w.end == ""; mine {
				w.end, w.due = want, max(es[0].Due, time.Now().UnixMilli())
			}
		})
		if s.EndHalves(ctx, es); !mine {
			return
		}
		c.fail("end", es[0].Err)
		c.know(func() { w.ended = true })
	case n < 26:
		w := c.pick(rng, "half")
		if w == nil {
			return
		}
		if rng.IntN(3) == 0 {
			c.fail("set aside", s.SetHalvesAside([]int64{w.r.Address}))
		} else {
			c.fail("check", s.CheckHalves([]store.HalfCheck{{Address: w.r.Address, Checks: 1, Due: time.Now().UnixMilli() + 60_000}}))
		}
	case n < 28:
		w := c.pick(rng, "delay")
		if w == nil {
			return
		}
		c.know(func() { w.end = "cancel" })
		err := s.CancelDelay(ctx, w.r.Address)
		c.fail("cancel", err, store.ErrNoDelay)
		c.know(func() { w.ended = w.ended || err == nil })
	case n < 31: // what push groups have answered
		w := c.pick(rng, "pushed")
		if w == nil {
			return
		}
		if at := w.r.Address; rng.IntN(2) == 0 {
			operate(state.Op{Kind: state.OpUpdate, Topic: "Pushed", First: at, Failed: []state.Failed{{Group: "g", Attempt: 1 + int32(rng.IntN(9)), Due: time.Now().UnixMilli() + 60_000}}})
		} else {
			c.mu.Lock()
			w.touched = true
			c.mu.Unlock()
			operate([]state.Op{
				{Kind: state.OpDelete, Topic: "Pushed", First: at, Last: at}, {Kind: state.OpRetire, Topic: "Pushed", Group: "g", First: at},
			}[rng.IntN(2)])
		}
	case n < 32:
		kind := []state.OpKind{state.OpAttach, state.OpDetach}[rng.IntN(2)]
		operate(state.Op{Kind: kind, Topic: "Pushed", Group: "h"})
	case n < 33:
		operate(opCursor("Pushed", "h", max(0, s.Bounds().Max-rng.Int64N(100_000))))
	case n < 34: // a dead letter
		if w := c.pick(rng, "plain"); w != nil {
			_, err := s.SendBack(ctx, store.SendBack{Group: "pg", Address: w.r.Address, Level: -1})
			c.fail("dead letter", err, store.ErrNotAddress)
		}
	case n < 35:
		if q := s.Queue("Sync", 0, false); q != nil {
			low, high := q.Range()
			s.Offsets().Commit("pg", "Sync", 0, low+rng.Int64N(high-low+1))
		}
	case n < 36: // the same again
		if w := c.pick(rng, "plain"); w != nil && w.once > 0 {
			c.mu.Lock()
			w.again = true
			c.mu.Unlock()
			r := sendOnce(s, w.topic, w.queue, w.once, w.body)
			c.fail("again", r.Err)
			if (!r.Repeated || r.Address != w.r.Address) && w.r.Address >= s.Bounds().Min {
				c.t.Errorf("message of id %d is stored twice, at %d and at %d (%v)", w.once, w.r.Address, r.Address, r.Repeated)
			}
		}
	case n < 41 && c.window == 0:
		settle(c.t, s)
		deleted, err := s.Clean()
		c.fail("clean", err)
		if deleted > 0 {
			c.mu.Lock()
			c.cleans = append(c.cleans, time.Now().UnixMilli())
			c.mu.Unlock()
		}
	default:
		settle(c.t, s)
		c.mu.Lock()
		c.forced = true
		c.mu.Unlock()
		c.mem.SetDisk(diskTotal*15/100-1, diskTotal)
		_, err := s.Clean()
		c.mem.SetDisk(diskTotal, diskTotal)
		c.fail("forced clean", err)
	}
}

// run is the history up to the power cut, if there is one.
func (c *allOps) run(cut bool) {
	s, err := store.Open(c.options(c.mem))
	if err != nil {
		c.t.Fatal(err)
	}
	for topic, d := range map[string]meta.Durability{"Sync": meta.Sync, "Async": meta.Async, "Pushed": meta.Sync, "%RETRY%pg": meta.Sync} {
		addTopic(c.t, s, topic, d)
	}
	operate(c.t, s, append(bindOps("Pushed", "g"), bindOps("Pushed", "h")...)...)
	send(c.t, s, "Async", 1, "0 "+strings.Repeat("x", 30_000+c.rng.IntN(30_000)))
	settle(c.t, s)
	steps := 20 + c.rng.IntN(25)
	at := steps/3 + c.rng.IntN(steps*2/3)
	workers := []int{1, 1, 1, 3}[c.rng.IntN(4)]
	c.keep = []float64{0, 0.3, 0.7, 1}[c.rng.IntN(4)]
	ops, done := 1+c.rng.IntN(40), 0
	var wg sync.WaitGroup
	for range workers {
		rng := rand.New(rand.NewPCG(c.rng.Uint64(), 1))
		wg.Go(func() {
			for range steps / workers {
				c.mu.Lock()
				if done++; done == at+1 && cut {
					c.left = ops
				}
				over := c.clone != nil
				c.mu.Unlock()
				if over {
					return
				}
				c.step(s, rng)
				time.Sleep(time.Duration(rng.IntN(250)) * time.Millisecond)
			}
		})
	}
	wg.Wait()
	c.mu.Lock()
	c.left = -1
	if c.clone == nil && cut {
		c.clone = c.mem.CrashClone(c.rng, c.keep)
	}
	c.mu.Unlock()
	if err := s.Close(); err != nil {
		c.t.Errorf("close: %v", err)
	}
	if !cut {
		c.clone = c.mem
	}
}

// questions are about all that the history has made.
func (c *allOps) questions() questions {
	q := questions{topics: []string{"Sync", "Async", "Pushed", "%RETRY%pg", "%DLQ%pg", store.AsideTopic}, groups: []string{"g", "h"}, queues: 2}
	for i, w := range c.items {
		if w.kind == "half" && w.r.Size > 0 {
			q.halves = append(q.halves, w.r.Address)
		}
		if i%5 == 0 {
			q.keys = append(q.keys, fmt.Sprintf("%032x", i+1))
		}
	}
	return q
}

// check opens what is left, lets everything fall due, and compares it with what is known.
func (c *allOps) check() {
	s, err := store.Open(c.options(c.clone))
	if err != nil {
		c.t.Fatalf("open after the power cut: %v", err)
	}
	defer func() {
		if s != nil {
			_ = s.Close()
		}
	}()
	end := time.Now().UnixMilli()
	time.Sleep(5 * time.Second)
	synctest.Wait()
	type found struct {
		n     int
		entry store.TopicEntry
	}
	there := map[string]found{} // by topic and body
	for _, topic := range []string{"Sync", "Async", "Pushed", "%RETRY%pg"} {
		var es [16]store.TopicEntry
		for from := int64(0); ; {
			n := s.ReadTopic(topic, from, es[:])
			if n == 0 {
				break
			}
			for _, e := range es[:n] {
				b, release, err := s.Record(e.Entry)
				if err != nil {
					if !c.forced || e.Address == e.Position {
						if e.Address == e.Position || end-e.Time < allAge.Milliseconds() {
							c.t.Errorf("%s/%d at %d, address %d, made %d ms before the power cut: %v", topic, e.Queue, e.QueueOffset, e.Address, end-e.Time, err)
						}
					}
					continue
				}
				body := bodyOf(c.t, b)
				f := there[topic+" "+body]
				there[topic+" "+body] = found{f.n + 1, e}
				release()
			}
			from = es[n-1].Address + 1
		}
	}
	begin := s.Bounds().Min
	owed := map[int64]bool{}
	for _, p := range s.Pending("Pushed", 0, 1<<20) {
		owed[p.Address] = true
		c.readable(s, p.Address)
	}
	for _, group := range []string{"g", "h"} {
		var rs [1 << 10]state.Retry
		for _, r := range rs[:s.Retries(group, state.Retry{}, rs[:])] {
			c.readable(s, r.Address)
		}
	}
	for i, w := range c.items {
		topic := w.topic
		if w.kind == "back" {
			topic = "%RETRY%pg"
		}
		f := there[topic+" "+w.body]
		bad := func(what string) {
			c.t.Errorf("%s: message %d, %s of %s at %d, acknowledged %v, due %d ms after the power cut, end %q, acknowledged %v: %d times in its queue (%+v); the log begins at %d", what, i+1, w.kind, w.topic, w.r.Address, w.acked, w.due-end, w.end, w.ended, f.n, f.entry, begin)
		}
		if f.n > 1 {
			bad("twice")
		}
		if !w.acked {
			continue
		}
		// What was published may have gone again: by force at any time, by age some time after.
		gone := c.forced || slices.ContainsFunc(c.cleans, func(at int64) bool { return at-w.due >= allAge.Milliseconds() })
		outcome := s.Half(w.r.Address).Outcome
		undecided := outcome == state.Undecided || outcome == state.Aside
		switch {
		case w.kind == "plain" || w.kind == "pushed":
			if f.n == 0 && w.r.Address >= begin || f.n == 1 && (w.r.Address >= begin || !w.again) && (f.entry.Address != w.r.Address || f.entry.QueueOffset != w.r.QueueOffset || f.entry.Queue != w.queue) {
				bad("lost, or elsewhere")
			}
			if w.kind == "pushed" && !w.touched {
				if b, release, err := s.RecordAt(w.r.Address); err != nil || !owed[w.r.Address] {
					bad(fmt.Sprintf("owed to nobody, or not there (%v)", err))
				} else {
					if bodyOf(c.t, b) != w.body {
						bad("owed with another body")
					}
					release()
				}
			}
		case w.kind == "half" && w.end == "":
			if b, err := s.HalfRecord(w.r.Address); err != nil || bodyOf(c.t, b) != w.body || f.n > 0 {
				bad(fmt.Sprintf("half is lost: %v", err))
			}
		case w.kind == "half":
			switch {
			case w.ended && (w.end == "rollback") != (outcome == state.RolledBack), w.ended && (w.end != "rollback") != (outcome == state.Committed):
				bad(fmt.Sprintf("has outcome %d", outcome))
			case outcome == state.Committed && f.n == 0 && !gone, outcome != state.Committed && f.n > 0:
				bad(fmt.Sprintf("outcome is %d", outcome))
			case outcome == state.Unknown, undecided && w.ended:
				bad("is forgotten")
			}
		case w.kind == "delay" && w.end == "cancel":
			if w.ended && f.n > 0 {
				bad("cancelled, and published")
			}
		default: // a delay, or what was sent back
			if f.n == 0 && !gone {
				bad("lost")
			}
		}
	}
	c.sameWithoutViews(&s)
}

// readable looks at what is owed by name.
func (c *allOps) readable(s *store.Store, at int64) {
	b, release, err := s.RecordAt(at)
	if err != nil {
		c.t.Errorf("owed by name, at %d: %v; the log begins at %d", at, err, s.Bounds().Min)
		return
	}
	defer release()
	if v, err := record.Parse(b); err != nil || v.CheckBody() != nil || v.PhysicalOffset() != at {
		c.t.Errorf("owed by name, at %d: no record, or another one (%v)", at, err)
	}
}

// sameWithoutViews removes what can be made again and asks everything a second time; law 1.
func (c *allOps) sameWithoutViews(s **store.Store) {
	settle(c.t, *s)
	before := everyAnswer(c.t, *s, c.questions())
	if err := (*s).Close(); err != nil {
		c.t.Fatalf("close: %v", err)
	}
	dropViews(c.t, c.clone, "/store")
	for _, dir := range []string{"keys", "state", "bits"} {
		c.drop("/store/fusionmq/"+dir, func() bool { return c.rng.IntN(2) == 0 })
	}
	var err error
	if *s, err = store.Open(c.options(c.clone)); err != nil {
		c.t.Fatalf("open without views: %v", err)
	}
	if d := cmp.Diff(before, everyAnswer(c.t, *s, c.questions())); d != "" {
		c.t.Errorf("answers of the log alone (-before +after):\n%.3000s", d)
	}
	for _, w := range c.items {
		if w.once == 0 || !w.acked || w.r.Address < (*s).Bounds().Min {
			continue
		}
		if r := sendOnce(*s, w.topic, w.queue, w.once, w.body); !r.Repeated || r.Address != w.r.Address {
			c.t.Errorf("message of id %d is stored twice, at %d and at %d (%v)", w.once, w.r.Address, r.Address, r.Err)
		}
	}
	if err := (*s).Close(); err != nil {
		c.t.Fatalf("close: %v", err)
	}
	*s = nil
	found(c.t, c.options(c.clone))
}

// drop removes files of a directory.
func (c *allOps) drop(dir string, which func() bool) {
	names, err := c.clone.List(dir)
	for _, name := range names {
		if err == nil && !strings.HasSuffix(name, "/") && which() {
			c.fail("remove", c.clone.Remove(dir+"/"+name))
		}
	}
}

// Law 4, and laws 1 and 5 with it, over all operations: messages, transactions, delays, cancels, what is sent back, retries, cursors,
// messages stored once, and segments that go by age and by force. Whenever the power goes, what was acknowledged is there, once, or went
// as an answer or an expiry record says, and the log alone gives the same answers.
func TestLaw4PowerCutsOverAllOperations(t *testing.T) {
	seeds := make([]uint64, *allSeeds)
	base := rand.Uint64()
	for i := range seeds {
		seeds[i] = base + uint64(i)
	}
	if *crashSeed != 0 {
		seeds = []uint64{*crashSeed}
	}
	t.Logf("seeds %d to %d", seeds[0], seeds[len(seeds)-1])
	made := map[string]int{}
	for _, seed := range seeds {
		c := &allOps{rng: rand.New(rand.NewPCG(seed, 11)), mem: vfs.NewMem(), left: -1}
		c.window = []time.Duration{0, 0, 10 * time.Second}[seed%3]
		synctest.Test(t, func(t *testing.T) {
			c.t = t
			defer func() {
				if t.Failed() {
					t.Logf("seed %d (run again with -run TestLaw4PowerCutsOverAllOperations -crash.seed=%d)", seed, seed)
				}
			}()
			if c.run(true); !t.Failed() {
				c.check()
			}
		})
		if t.Failed() {
			return
		}
		for _, w := range c.items {
			made[w.kind+" "+w.end]++
		}
		made["cleans"] += len(c.cleans)
	}
	if kinds := slices.Sorted(maps.Keys(made)); len(seeds) > 100 && (len(kinds) != 10 || made["cleans"] < len(seeds)/10) {
		t.Errorf("not everything was done: %v", made)
	}
}
