package queue

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"weak"

	"go.uber.org/goleak"

	"github.com/fusionmq/fusionmq/store/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openMem(t testing.TB, c Config) *Index {
	t.Helper()
	c.FS, c.Dir, c.LogEnd = vfs.NewMem(), "/index", 1<<40
	c.Failed = func(err error) { t.Errorf("failed: %v", err) }
	x, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

func mustPut(t testing.TB, q *Queue, offset, address int64, visible bool) {
	t.Helper()
	if err := q.Put(offset, Entry{Address: address, Position: address, Size: 1, Time: address}, visible); err != nil {
		t.Fatal(err)
	}
}

func TestWatchCallsOnceAtWakeWhenItsOffsetIsVisible(t *testing.T) {
	x := openMem(t, Config{})
	q := x.Queue("T", 0, true)
	calls := 0
	q.Watch(1, func() { calls++ })
	mustPut(t, q, 0, 10, true)
	x.Wake()
	if calls != 0 {
		t.Fatalf("called %d times for the offset before it", calls)
	}
	mustPut(t, q, 1, 20, true)
	if calls != 0 {
		t.Fatal("called by Put, want by Wake")
	}
	x.Wake()
	mustPut(t, q, 2, 30, true)
	x.Wake()
	if calls != 1 {
		t.Fatalf("called %d times, want once", calls)
	}
}

func TestWatchOfWhatIsVisibleCallsAtOnce(t *testing.T) {
	x := openMem(t, Config{})
	q := x.Queue("T", 0, true)
	mustPut(t, q, 0, 10, true)
	calls := 0
	if stop := q.Watch(0, func() { calls++ }); stop() || calls != 1 {
		t.Fatalf("called %d times, want once and no stop", calls)
	}
	if stop := q.Topic().Watch(10, func() { calls++ }); stop() || calls != 2 {
		t.Fatalf("topic: called %d times, want once and no stop", calls-1)
	}
	q.Topic().Watch(11, func() { t.Error("called for an address that no entry has reached") })
}

func TestStoppedWatchIsNotCalled(t *testing.T) {
	x := openMem(t, Config{})
	q := x.Queue("T", 0, true)
	stop := q.Watch(0, func() { t.Error("called after stop") })
	stopTopic := q.Topic().Watch(0, func() { t.Error("called after stop") })
	late := q.Watch(0, func() { t.Error("called after stop between Put and Wake") })
	if !stop() || !stopTopic() {
		t.Fatal("stop says that fn will be called")
	}
	if stop() {
		t.Fatal("the second stop says that it cancelled")
	}
	mustPut(t, q, 0, 10, true)
	if !late() {
		t.Fatal("stop says that fn will be called")
	}
	x.Wake()
}

// A waiter that its owner keeps works like a watch, can be used again after it was called, and costs no allocation.
func TestWaiterIsUsedAgain(t *testing.T) {
	x := openMem(t, Config{})
	q := x.Queue("T", 0, true)
	var w Waiter
	calls := 0
	fn := func() { calls++ }
	for i := range int64(3) {
		q.Wait(&w, i, fn)
		x.Wake()
		if calls != int(i) {
			t.Fatalf("called %d times before offset %d is there", calls, i)
		}
		mustPut(t, q, i, 10+i, true)
		x.Wake()
		if calls != int(i)+1 || w.Stop() {
			t.Fatalf("called %d times for %d offsets", calls, i+1)
		}
	}
	if n := testing.AllocsPerRun(100, func() { q.Wait(&w, 2, fn) }); n != 0 || calls != 104 {
		t.Fatalf("%v allocations and %d calls for what is visible, want none and 104", n, calls)
	}
	q.Wait(&w, 3, fn)
	if !w.Stop() || w.Stop() {
		t.Fatal("the first Stop cancels, the second does not")
	}
	mustPut(t, q, 3, 20, true)
	x.Wake()
	if calls != 104 {
		t.Fatal("called after Stop")
	}
	var unused Waiter
	if !unused.Stop() {
		t.Fatal("a waiter that never waited will not be called")
	}
}

func TestHeldEntriesBecomeVisibleWithTheirSync(t *testing.T) {
	x := openMem(t, Config{})
	a, b := x.Queue("T", 0, true), x.Queue("T", 1, true)
	fired := ""
	a.Watch(0, func() { fired += "a" })
	b.Watch(1, func() { fired += "b" })
	a.Topic().Watch(0, func() { fired += "t" })
	mustPut(t, a, 0, 10, false)
	mustPut(t, b, 0, 20, true)
	mustPut(t, a, 1, 30, true) // behind a held one of its queue
	mustPut(t, b, 1, 40, false)
	x.Wake()
	check := func(want string, visibleA, visibleB int64, topic int) {
		t.Helper()
		_, va := a.Range()
		_, vb := b.Range()
		n, err := a.Topic().Read(0, make([]TopicEntry, 9))
		if err != nil {
			t.Fatal(err)
		}
		if fired != want || va != visibleA || vb != visibleB || n != topic {
			t.Fatalf("fired %q, queues end at %d and %d, topic has %d; want %q, %d, %d, %d", fired, va, vb, n, want, visibleA, visibleB, topic)
		}
	}
	// 20 is visible in its queue, but a reader of the topic must not pass 10.
	check("", 0, 1, 0)
	if a.Next() != 2 {
		t.Fatalf("next offset is %d, want 2", a.Next())
	}
	x.Synced(11)
	check("at", 1, 1, 1)
	x.Synced(35)
	check("at", 2, 1, 3)
	x.Synced(41)
	check("atb", 2, 2, 4)
}

func TestPutRefusesAGapAndIgnoresARepeat(t *testing.T) {
	x := openMem(t, Config{})
	q := x.Queue("T", 3, true)
	mustPut(t, q, 7, 100, true) // what came before was deleted with its part of the log
	if low, high := q.Range(); low != 7 || high != 8 {
		t.Fatalf("range %d..%d, want 7..8", low, high)
	}
	err := q.Put(9, Entry{Address: 110}, true)
	var gap *GapError
	if !errors.As(err, &gap) || *gap != (GapError{"T", 3, 9, 8}) {
		t.Fatalf("a gap gives %v", err)
	}
	mustPut(t, q, 7, 100, true)
	mustPut(t, q, 8, 120, true)
	if _, high := q.Range(); high != 9 {
		t.Fatalf("ends at %d, want 9", high)
	}
}

func TestQueueIDsAreBounded(t *testing.T) {
	x := openMem(t, Config{})
	for _, id := range []int32{-1, MaxQueueID + 1, 1<<31 - 1} {
		if q := x.Queue("T", id, true); q != nil {
			t.Errorf("there is a queue %d", id)
		}
	}
	if x.Topic("T", false) != nil {
		t.Error("asking for an impossible queue has made the topic")
	}
	if q := x.Queue("T", MaxQueueID, true); q == nil || q.ID() != MaxQueueID {
		t.Error("no queue 65535")
	}
	if x.Queue("T", 5, false) != nil || x.Queue("U", 0, false) != nil {
		t.Error("asking without create has made a queue")
	}
}

// TestLaw4SealedSpansSurviveAPowerCut: what Sealed says is what a start after a crash resumes from.
func TestLaw4SealedSpansSurviveAPowerCut(t *testing.T) {
	mem := vfs.NewMem()
	x, err := Open(Config{FS: mem, Dir: "/index", LogEnd: 0, SpanEntries: 10})
	if err != nil {
		t.Fatal(err)
	}
	q := x.Queue("T", 0, true)
	for i := range int64(35) {
		mustPut(t, q, i, i, true)
	}
	x.Synced(35)
	if err := x.Drain(); err != nil {
		t.Fatal(err)
	}
	if x.Sealed() != 30 {
		t.Fatalf("sealed up to %d, want 30", x.Sealed())
	}
	crashed := mem.CrashClone(rand.New(rand.NewPCG(1, 2)), 0)
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	y, err := Open(Config{FS: crashed, Dir: "/index", LogEnd: 35, SpanEntries: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer y.Close()
	if y.Resume() != 30 {
		t.Fatalf("resumes at %d, want 30", y.Resume())
	}
	if n, err := y.Queue("T", 0, false).Read(0, make([]Entry, 40)); n != 30 || err != nil {
		t.Fatalf("read %d entries, %v, want 30", n, err)
	}
}

// Memory must not wait for the disk: finished generations leave it whether the log is synced or not, but their files get
// their names only afterwards. Held entries stay in memory.
func TestLaw7FinishedGenerationsLeaveMemoryBeforeTheSync(t *testing.T) {
	x := openMem(t, Config{SpanEntries: 10})
	inMemory := func() int {
		x.mu.Lock()
		defer x.mu.Unlock()
		return len(x.mu.gens)
	}
	drain := func() {
		t.Helper()
		if err := x.Drain(); err != nil {
			t.Fatal(err)
		}
	}
	q := x.Queue("T", 0, true)
	for i := range int64(10) {
		mustPut(t, q, i, i, true)
	}
	block := weak.Make(&q.head.Load().block(1)[0]) // while the generation is not finished: after that, sealing may move head at any time
	for i := int64(10); i < 45; i++ {
		mustPut(t, q, i, i, true)
	}
	drain()
	runtime.GC()
	if block.Value() != nil {
		t.Error("something still points to the entries of the first generation")
	}
	if inMemory() != 1 || x.Sealed() != 0 {
		t.Fatalf("%d generations in memory, sealed up to %d, want 1 and 0", inMemory(), x.Sealed())
	}
	if n, err := q.Read(0, make([]Entry, 50)); n != 45 || err != nil {
		t.Fatalf("read %d entries, %v, want 45", n, err)
	}
	names, err := x.cfg.FS.List("/index")
	if err != nil || len(names) != 4 {
		t.Fatalf("files %v, %v, want 4", names, err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, tempSuffix) {
			t.Errorf("%s has its name before its log is synced", name)
		}
	}
	x.Synced(30)
	drain()
	if x.Sealed() != 30 {
		t.Fatalf("sealed up to %d, want 30", x.Sealed())
	}
	for i := int64(45); i < 65; i++ {
		mustPut(t, q, i, i, i != 47) // held before its generation is finished, so sealing cannot come first
	}
	drain()
	if inMemory() != 3 {
		t.Fatalf("%d generations in memory, want 3: the oldest has a held entry", inMemory())
	}
	x.Synced(65)
	drain()
	if inMemory() != 1 || x.Sealed() != 60 {
		t.Fatalf("%d generations in memory, sealed up to %d, want 1 and 60", inMemory(), x.Sealed())
	}
}

// TestReadersBesideWriterAndSealing runs one writer, the background sealing and several readers, which check that they
// see every entry once and in order, whether it is in memory, on its way to a file, or in one.
func TestReadersBesideWriterAndSealing(t *testing.T) {
	const entries, queues = 30000, 3
	x := openMem(t, Config{SpanEntries: 500})
	address := func(i int64) int64 { return i * 8 }
	var wg sync.WaitGroup
	read := func(id int32) error {
		q := x.Queue("T", id, true)
		var next int64
		buf := make([]Entry, 37)
		for next < entries/queues {
			n, err := q.Read(next, buf)
			if err != nil {
				return err
			}
			for i := range n {
				if want := address((next+int64(i))*queues + int64(id)); buf[i].Address != want {
					return fmt.Errorf("queue %d, offset %d: address %d, want %d", id, next+int64(i), buf[i].Address, want)
				}
			}
			if next += int64(n); n == 0 {
				visible := make(chan struct{})
				q.Watch(next, func() { close(visible) })
				<-visible
			}
		}
		return nil
	}
	readTopic := func() error {
		topic := x.Topic("T", true)
		var from int64
		buf := make([]TopicEntry, 29)
		for seen := int64(0); seen < entries; {
			n, err := topic.Read(from, buf)
			if err != nil {
				return err
			}
			for i := range n {
				if e := buf[i]; e.Address != address(seen) || e.QueueOffset != seen/queues || e.Queue != int32(seen%queues) {
					return fmt.Errorf("entry %d of the topic is %+v", seen, e)
				}
				seen++
				from = buf[i].Address + 1
			}
			if n == 0 {
				visible := make(chan struct{})
				topic.Watch(from, func() { close(visible) })
				<-visible
			}
		}
		return nil
	}
	start := func(fn func() error) {
		wg.Go(func() {
			if err := fn(); err != nil {
				t.Error(err)
			}
		})
	}
	for id := range int32(queues) {
		start(func() error { return read(id) })
	}
	start(readTopic)
	for i := range int64(entries) {
		mustPut(t, x.Queue("T", int32(i%queues), true), i/queues, address(i), i%7 != 0)
		if i%50 == 49 {
			x.Wake()
			x.Synced(address(i) + 1)
		}
	}
	x.Wake()
	x.Synced(address(entries))
	wg.Wait()
}
