package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// Law 4, memory: the answer comes before the write. Here the write stands still, and the answer does not.
func TestLaw4MemoryIsAnsweredBeforeTheWrite(t *testing.T) {
	var mu sync.Mutex
	var hold chan struct{}
	fsys := vfs.Intercept(vfs.NewMem(), func(o vfs.Op) error {
		mu.Lock()
		h := hold
		mu.Unlock()
		if h != nil && o.Kind == "write" && strings.Contains(o.Name, "commitlog/0") {
			<-h
		}
		return nil
	})
	s := open(t, store.Options{Dir: "/s", FS: fsys, SegmentBytes: 64 << 10})
	addTopic(t, s, "M", meta.Memory)
	addTopic(t, s, "A", meta.Async)
	h := make(chan struct{})
	mu.Lock()
	hold = h
	mu.Unlock()
	var want []string
	last := int64(-1)
	for i := range 20 {
		want = append(want, fmt.Sprint("message ", i))
		r := send(t, s, "M", 0, want[i])
		if r.Durability != meta.Memory || r.QueueOffset != int64(i) || r.Address <= last {
			t.Fatalf("message %d: %+v", i, r)
		}
		last = r.Address
	}
	if _, high := s.Queue("M", 0, true).Range(); high != 0 {
		t.Errorf("%d messages can be read, none is written", high)
	}
	async := make(chan store.Result, 1)
	go func() { async <- try(s, "A", "after") }()
	select {
	case r := <-async:
		t.Errorf("an async message was answered before the write: %+v", r)
	default:
	}
	mu.Lock()
	hold = nil
	mu.Unlock()
	close(h)
	if r := <-async; r.Err != nil || r.Durability != meta.Async {
		t.Errorf("async message: %+v", r)
	}
	if err := s.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	same(t, bodies(t, s, "M", 0), want)
}

// A memory message that cannot be written is counted, its place goes to another one, and closing writes what was answered.
func TestMemoryMessagesThatCannotBeWrittenAreCounted(t *testing.T) {
	var f faulty
	mem := vfs.NewMem()
	o := store.Options{Dir: "/s", FS: f.wrap(mem), SegmentBytes: 64 << 10}
	s, err := tryOpen(t, o)
	if err != nil {
		t.Fatal(err)
	}
	addTopic(t, s, "M", meta.Memory)
	addTopic(t, s, "A", meta.Async)
	f.set(func(o vfs.Op) error {
		if o.Kind == "write" && strings.Contains(o.Name, "commitlog/0") {
			return errors.New("broken")
		}
		return nil
	})
	send(t, s, "M", 0, "lost")
	for try(s, "A", "x").Err == nil { // refused by the failed write, whoever made it
	}
	f.set(nil)
	for try(s, "A", "x").Err != nil { // until it is repaired
	}
	if n := s.Stats().Log.Unwritten; n != 1 {
		t.Errorf("%d memory messages counted as not written", n)
	}
	if r := send(t, s, "M", 0, "kept"); r.QueueOffset != 0 {
		t.Errorf("queue offset %d, want that of the lost one", r.QueueOffset)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	same(t, bodies(t, open(t, o), "M", 0), []string{"kept"})
}

// A topic's durability can change at any time; each message has what its own answer says, through a power cut, with other topics of
// other durabilities in the same log.
func TestLaw4DurabilityChangesAtRunTime(t *testing.T) {
	for seed := uint64(1); seed <= 8; seed++ {
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 1))
		mem := vfs.NewMem()
		o := store.Options{Dir: "/s", FS: mem, SegmentBytes: 64 << 10}
		s, err := tryOpen(t, o)
		if err != nil {
			t.Fatal(err)
		}
		addTopic(t, s, "A", meta.Async)
		synced, all := map[int64]string{}, map[int64]string{}
		for i := range 300 {
			d := meta.Durability(1 + rng.IntN(3))
			if rng.IntN(5) == 0 {
				addTopic(t, s, "A", d)
				if got := s.DurabilityOf("A"); got != d {
					t.Fatalf("durability is %v, set to %v", got, d)
				}
			}
			body := fmt.Sprint(i, strings.Repeat("x", rng.IntN(2000)))
			r := send(t, s, "A", 0, body)
			all[r.QueueOffset] = body
			if r.Durability == meta.Sync {
				synced[r.QueueOffset] = body
			}
		}
		o.FS = mem.CrashClone(rng, 0)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, o)
		got := bodies(t, s, "A", 0)
		for i, body := range got {
			if body != all[int64(i)] {
				t.Errorf("offset %d has %.20q, want %.20q", i, body, all[int64(i)])
			}
		}
		for i := range synced {
			if i >= int64(len(got)) {
				t.Errorf("synced message %d is lost, %d are left", i, len(got))
			}
		}
	}
}
