package store_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// The budgets of the store, each with its baseline beside it in one run:
//
//	go test -run '^$' -bench 'Budget|Append|Read' -benchtime 300000x ./store
//
// One operation is one record with a body of 1 KiB. The work is cut into rounds; ns/op is that of the fastest round, for
// both sides, since other programs only ever make a round slower, and mean-ns/op that of all. cpu-ns/op is processor time
// of the process, background work and all, in the round where it was least.

const (
	benchBody   = 1 << 10
	benchRounds = 8
)

var benchProperties = []byte("UNIQ_KEY\x010A00000100002A9F00000000000004D2\x02TAGS\x01TagA\x02")

// inRounds calls round with the operations of each round.
func inRounds(b *testing.B, round func(n int)) {
	b.SetBytes(benchBody)
	b.ReportAllocs()
	rounds := benchRounds
	if b.N < benchRounds*1000 {
		rounds = 1
	}
	n := (b.N + rounds - 1) / rounds
	least, leastCPU, total := time.Duration(1<<62), int64(1<<62), time.Duration(0)
	b.ResetTimer()
	for range rounds {
		cpu, began := cpuTime(b), time.Now()
		round(n)
		took := time.Since(began)
		least, leastCPU, total = min(least, took), min(leastCPU, cpuTime(b)-cpu), total+took
	}
	b.StopTimer()
	b.ReportMetric(float64(least.Nanoseconds())/float64(n), "ns/op")
	b.ReportMetric(float64(total.Nanoseconds())/float64(n*rounds), "mean-ns/op")
	b.ReportMetric(float64(leastCPU)/float64(n), "cpu-ns/op")
}

func cpuTime(b testing.TB) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// bareFile is what the baselines write to: fallocated files, one after the other.
type bareFile struct {
	b   *testing.B
	dir string
	n   int
	f   vfs.File
	off int64
}

func (w *bareFile) write(p []byte) {
	const size = 1 << 30
	if w.f == nil || w.off+int64(len(p)) > size {
		f, err := vfs.OS.Create(filepath.Join(w.dir, fmt.Sprint(w.n)))
		if err == nil {
			err = f.Allocate(size)
		}
		if err != nil {
			w.b.Fatal(err)
		}
		w.b.Cleanup(func() { f.Close() })
		w.f, w.off = f, 0
		w.n++
	}
	if _, err := w.f.WriteAt(p, w.off); err != nil {
		w.b.Fatal(err)
	}
	w.off += int64(len(p))
}

// bareAsync is the baseline of the async budgets: one goroutine doing body CRC, copy, and pwrite of 64 KiB on fallocated
// files, for the same bodies and as many bytes as the store's records have.
func bareAsync(b *testing.B) {
	w := &bareFile{b: b, dir: b.TempDir()}
	ms := benchMessages(64)
	head := make([]byte, record.MinSize+len("Bench")+len(benchProperties))
	buf := make([]byte, 0, 128<<10)
	var sum uint32
	inRounds(b, func(n int) {
		for i := range n {
			body := ms[i%len(ms)].Body
			sum ^= record.CRC(body)
			buf = append(append(buf, head...), body...)
			if len(buf) >= 64<<10 {
				w.write(buf[:64<<10])
				buf = buf[:copy(buf, buf[64<<10:])]
			}
		}
	})
	if sum == 1 {
		b.Fatal("impossible, but the sum must be used")
	}
}

// bareSync is the baseline of the sync budgets, bare group commit: writers add to a buffer; one of them writes and syncs
// it for all, as soon as the sync before it ends.
func bareSync(b *testing.B, writers int) {
	w := &bareFile{b: b, dir: b.TempDir()}
	var mu sync.Mutex
	round := sync.NewCond(&mu)
	var active, spare []byte
	var gathering, done int
	var busy bool
	rec := make([]byte, record.MinSize+len("Bench")+len(benchProperties)+benchBody)
	append1 := func() {
		mu.Lock()
		defer mu.Unlock()
		active = append(active, rec...)
		for mine := gathering; done <= mine; {
			if busy {
				round.Wait()
				continue
			}
			busy = true
			out := active
			active, spare = spare[:0], nil
			gathering++
			mu.Unlock()
			w.write(out)
			if err := w.f.Sync(); err != nil {
				b.Error(err)
			}
			mu.Lock()
			spare, busy = out, false
			done++
			round.Broadcast()
		}
	}
	inRounds(b, func(n int) {
		together(writers, func() {
			for range (n + writers - 1) / writers {
				append1()
			}
		})
	})
	b.ReportMetric(float64(b.N)/float64(done), "records/sync")
}

func together(n int, do func()) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(do)
	}
	wg.Wait()
}

func benchStore(b *testing.B, d meta.Durability) *store.Store {
	s, err := store.Open(store.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	addTopic(b, s, "Bench", d)
	return s
}

func benchMessages(n int) []store.Message {
	ms := make([]store.Message, n)
	for i := range ms {
		ms[i] = store.Message{Topic: "Bench", Queue: int32(i % 4), Body: make([]byte, benchBody), Properties: benchProperties}
	}
	return ms
}

func appendRecords(b *testing.B, d meta.Durability, goroutines, batch int) {
	s := benchStore(b, d)
	inRounds(b, func(n int) {
		together(goroutines, func() {
			ms, rs := benchMessages(batch), make([]store.Result, batch)
			for range (n + batch*goroutines - 1) / (batch * goroutines) {
				s.Append(ms, rs)
				if rs[0].Err != nil {
					b.Error(rs[0].Err)
					return
				}
			}
		})
	})
	if d == meta.Sync {
		b.ReportMetric(float64(b.N)/float64(s.Stats().Log.Syncs), "records/sync")
	}
}

func sides(b *testing.B, ours, bare func(b *testing.B)) {
	b.Run("side=bare", bare)
	b.Run("side=ours", ours)
}

// In batches: at least 60% of the baseline.
func BenchmarkBudgetAppendAsyncBatch(b *testing.B) {
	sides(b, func(b *testing.B) { appendRecords(b, meta.Async, 1, 128) }, bareAsync)
}

// 64 goroutines with one record a call: at least 25% of the same baseline.
func BenchmarkBudgetAppendAsync64(b *testing.B) {
	sides(b, func(b *testing.B) { appendRecords(b, meta.Async, 64, 1) }, bareAsync)
}

// 64 and 256 writers that wait for the sync: at least 70% and 50% of bare group commit with as many.
func BenchmarkBudgetAppendSync64(b *testing.B) {
	sides(b, func(b *testing.B) { appendRecords(b, meta.Sync, 64, 1) }, func(b *testing.B) { bareSync(b, 64) })
}

func BenchmarkBudgetAppendSync256(b *testing.B) {
	sides(b, func(b *testing.B) { appendRecords(b, meta.Sync, 256, 1) }, func(b *testing.B) { bareSync(b, 256) })
}

func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct{ goroutines, batch int }{{1, 1}, {1, 16}, {4, 64}, {16, 1}} {
		b.Run(fmt.Sprintf("size=1KiB/batch=%d/goroutines=%d/flush=async", c.batch, c.goroutines), func(b *testing.B) {
			appendRecords(b, meta.Async, c.goroutines, c.batch)
		})
	}
}

// Reading a queue through its handle, 32 entries at a time, records parsed.
func BenchmarkRead(b *testing.B) {
	s := benchStore(b, meta.Async)
	ms, rs := benchMessages(32), make([]store.Result, 32)
	for range 2000 {
		s.Append(ms, rs)
	}
	q := s.Queue("Bench", 1, false)
	_, high := q.Range()
	es := make([]queue.Entry, 32)
	var o, sum int64
	inRounds(b, func(n int) {
		for n > 0 {
			if o >= high {
				o = 0
			}
			k, err := q.Read(o, es)
			if err != nil || k == 0 {
				b.Fatal(k, err)
			}
			o += int64(k)
			n -= k
			for _, e := range es[:k] {
				rec, release, err := s.Record(e)
				if err != nil {
					b.Fatal(err)
				}
				v, err := record.Parse(rec)
				if err != nil {
					b.Fatal(err)
				}
				sum += int64(len(v.Body()))
				release()
			}
		}
	})
	if sum == 0 {
		b.Fatal("nothing was read")
	}
}

// cpuPerOp reports the processor time of the whole process from the call until stop.
func cpuPerOp(b *testing.B) (stop func()) {
	began := cpuTime(b)
	return func() { b.ReportMetric(float64(cpuTime(b)-began)/float64(b.N), "cpu-ns/op") }
}

// acker is an observer that marks what it is told as done, in ranges, as the push front end does.
type acker struct {
	told chan [2]int64
}

func (a *acker) Owed(os []state.Owed)      { a.told <- [2]int64{os[0].Address, os[len(os)-1].Address} }
func (a *acker) Applied(int64, []state.Op) {}

// A message of a topic that a push group is attached to: append, targets, window, told, deleted in batches.
func BenchmarkPushState(b *testing.B) {
	a := &acker{told: make(chan [2]int64, 1<<16)}
	s, err := store.Open(store.Options{Dir: b.TempDir(), Exchange: newFanout(), Observer: a})
	if err != nil {
		b.Fatal(err)
	}
	addTopic(b, s, "Bench", meta.Async)
	if _, err := s.Operate(bindOps("Bench", "g")); err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for r := range a.told {
			if _, err := s.Operate([]state.Op{{Kind: state.OpDelete, Topic: "Bench", First: r[0], Last: r[1]}}); err != nil {
				b.Error(err)
			}
		}
	})
	ms, rs := benchMessages(32), make([]store.Result, 32)
	inRounds(b, func(n int) {
		for range (n + 31) / 32 {
			s.Append(ms, rs)
		}
		if err := s.WaitApplied(b.Context(), rs[31].Address); err != nil {
			b.Error(err)
		}
	})
	close(a.told)
	wg.Wait()
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}
