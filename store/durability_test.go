package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/state"
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
	s := open(t, o)
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
	stop(t, s)
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
		s := open(t, o)
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
		stop(t, s)
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

// Law 4: a message of a sync topic is on the disk when it is answered, the first of a new segment as well: whenever the power goes, it is there.
func TestLaw4WhatIsAnsweredIsOnTheDisk(t *testing.T) {
	mem := vfs.NewMem()
	o := store.Options{Dir: "/s", FS: mem, SegmentBytes: 64 << 10, FlushInterval: time.Hour}
	s := open(t, o)
	addTopic(t, s, "S", meta.Sync)
	var want []string
	for i := range 30 {
		want = append(want, fmt.Sprint(i, strings.Repeat(".", 7000)))
		send(t, s, "S", 0, want[i])
		cut := o
		cut.FS = mem.CrashClone(rand.New(rand.NewPCG(1, uint64(i))), 0)
		after, err := store.Open(cut)
		if err != nil {
			t.Fatal(err)
		}
		same(t, bodies(t, after, "S", 0), want)
		stop(t, after)
		found(t, cut)
	}
	if n := s.Bounds().Max; n < 3*64<<10 {
		t.Errorf("the log has %d bytes: too few segments", n)
	}
}

// Law 4: nobody sees a message of a sync topic before it is on the disk, in whatever way he looks: in its queue, in the topic, by key, by address, by
// the entries that groups are owed. That holds for messages and for views, and an async topic beside it waits for nothing.
func TestLaw4NothingIsVisibleBeforeItsDurability(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, told := new(faulty), newLedger()
		s := open(t, store.Options{Dir: "/s", FS: f.wrap(vfs.NewMem()), SegmentBytes: 64 << 10, Exchange: newFanout(), Observer: told, Events: func(store.Event) {}})
		addTopic(t, s, "A", meta.Async)
		addTopic(t, s, "S", meta.Sync)
		addTopic(t, s, meta.RetryPrefix+"g", meta.Sync)
		operate(t, s, append(bindOps("S", "h"), bindOps("A", "h")...)...)
		origin := send(t, s, "A", 0, "origin")
		settle(t, s)
		disk := make(chan struct{})
		f.set(func(o vfs.Op) error {
			if o.Kind == "sync" {
				f.mu.Unlock()
				<-disk
				f.mu.Lock()
			}
			return nil
		})
		end := s.Bounds().Max
		var wg sync.WaitGroup
		answered := 0
		wg.Go(func() {
			if r := sendKeyed(t, s, "S", "u1", "held"); r.Durability != meta.Sync {
				t.Errorf("a message of a sync topic is %v", r.Durability)
			}
			answered++
		})
		synctest.Wait()
		wg.Go(func() {
			if _, err := s.Operate([]state.Op{retryOf(origin, "A", "g", 1)}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		calls := 0
		for _, topic := range []string{"S", meta.RetryPrefix + "g"} {
			s.WatchTopic(topic, 0, func() { calls++ })
		}
		fast := sendKeyed(t, s, "A", "u2", "fast") // answered while the disk stands still
		synctest.Wait()
		look := func() map[string]int {
			got := map[string]int{"watchers": calls, "answered": answered}
			es := make([]store.TopicEntry, 9)
			for _, topic := range []string{"S", meta.RetryPrefix + "g"} {
				_, high := s.Queue(topic, 0, true).Range()
				got[topic+" in its queue"] = int(high)
				got[topic+" in the topic"] = s.ReadTopic(topic, 0, es)
			}
			told.mu.Lock()
			for _, o := range told.owed {
				got["owed of "+o.Topic]++
			}
			told.mu.Unlock()
			got["by key"] = len(byKey(t, s, store.KeyQuery{Topic: "S", Key: "held"}))
			got["by key in A"] = len(byKey(t, s, store.KeyQuery{Topic: "A", Key: "fast"}))
			for at := end; at < fast.Address; at++ {
				if _, release, err := s.RecordAt(at); err == nil {
					got["addresses"]++
					release()
				}
			}
			return got
		}
		retry := meta.RetryPrefix + "g"
		want := map[string]int{"answered": 0, "watchers": 0, "S in its queue": 0, "S in the topic": 0, retry + " in its queue": 0, retry + " in the topic": 0, "by key": 0, "by key in A": 1, "owed of A": 2}
		if diff := cmp.Diff(want, look()); diff != "" {
			t.Errorf("while the disk stands still (-want +got):\n%s", diff)
		}
		close(disk)
		wg.Wait()
		synctest.Wait()
		want = map[string]int{
			"answered": 1, "watchers": 2, "S in its queue": 1, "S in the topic": 1, retry + " in its queue": 1, retry + " in the topic": 1, "by key": 1, "by key in A": 1, "owed of A": 2, "owed of S": 1, "addresses": 3, // that of the operation as well
		}
		if diff := cmp.Diff(want, look()); diff != "" {
			t.Errorf("after the sync (-want +got):\n%s", diff)
		}
	})
}

// Law 4: a checkpoint says that the log below it is on the disk, so it comes after the sync. Here nobody else asks for one.
func TestLaw4ACheckpointComesAfterTheSyncOfItsLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		o := store.Options{Dir: "/s", FS: mem, SegmentBytes: 256 << 10, CheckpointBytes: 64 << 10, FlushInterval: time.Hour, Exchange: newFanout()}
		s := open(t, o)
		addTopic(t, s, "A", meta.Async)
		operate(t, s, bindOps("A", "g")...) // so that there is something to dispatch
		var want []string
		for i := range 100 {
			want = append(want, fmt.Sprint(i, strings.Repeat(".", 1000)))
			send(t, s, "A", 0, want[i])
		}
		synctest.Wait()
		o.FS = mem.CrashClone(rand.New(rand.NewPCG(1, 1)), 0)
		info, err := store.ReadCheckpoint(o.FS, "/s")
		if err != nil || info.Position < 32<<10 {
			t.Fatalf("no checkpoint was written: %+v, %v", info, err)
		}
		o.Exchange = newFanout()
		cut := open(t, o)
		got := bodies(t, cut, "A", 0)
		if b := cut.Bounds(); b.Max < info.Position || len(got) < 30 || len(got) > len(want) {
			t.Errorf("the checkpoint is of %d, the log goes to %d with %d messages", info.Position, b.Max, len(got))
		}
		same(t, got, want[:min(len(got), len(want))])
	})
}
