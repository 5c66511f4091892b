package store_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// The budgets of the store and their baselines, measured in one run. Use a fixed count, the data stays on disk until the
// end: go test -run '^$' -bench 'Bare|Append' -benchtime 300000x ./store

const benchBody = 1 << 10

// cpuPerOp reports the processor time of the whole process beside the wall clock: it holds on a busy machine, too.
func cpuPerOp(b *testing.B) (stop func()) {
	used := func() int64 {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	began := used()
	return func() { b.ReportMetric(float64(used()-began)/float64(b.N), "cpu-ns/op") }
}

// bareFile is what the baselines write to: fallocated files, one after the other.
type bareFile struct {
	b    *testing.B
	dir  string
	size int64
	n    int
	f    vfs.File
	off  int64
}

func (w *bareFile) write(p []byte) {
	if w.f == nil || w.off+int64(len(p)) > w.size {
		f, err := vfs.OS.Create(filepath.Join(w.dir, fmt.Sprint(w.n)))
		if err == nil {
			err = f.Allocate(w.size)
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

// Baseline of the async budgets: one goroutine doing body CRC, copy, and pwrite of 64 KiB on fallocated files, for the same
// bodies and as many bytes as the store's records have.
func BenchmarkBareAppend(b *testing.B) {
	b.Run("size=1KiB/flush=async", func(b *testing.B) {
		w := &bareFile{b: b, dir: b.TempDir(), size: 1 << 30}
		ms := benchMessages(64)
		head := make([]byte, record.MinSize+len("Bench")+len(ms[0].Properties))
		buf := make([]byte, 0, 128<<10)
		b.SetBytes(benchBody)
		b.ReportAllocs()
		var sum uint32
		defer cpuPerOp(b)()
		for i := 0; b.Loop(); i++ {
			body := ms[i%len(ms)].Body
			sum ^= record.CRC(body)
			buf = append(append(buf, head...), body...)
			if len(buf) >= 64<<10 {
				w.write(buf[:64<<10])
				buf = buf[:copy(buf, buf[64<<10:])]
			}
		}
		w.write(buf)
		if sum == 1 {
			b.Fatal("impossible, but the sum must be used")
		}
	})
	// Baseline of the sync budgets: bare group commit. Writers add to a buffer; one of them writes and syncs it for all.
	for _, writers := range []int{64, 256} {
		b.Run(fmt.Sprintf("size=1KiB/flush=sync/writers=%d", writers), func(b *testing.B) {
			w := &bareFile{b: b, dir: b.TempDir(), size: 1 << 30}
			var mu sync.Mutex
			round := sync.NewCond(&mu)
			var active, spare []byte
			var gathering, done int
			var busy bool
			body := make([]byte, benchBody+record.MinSize+len("Bench")+len(benchMessages(1)[0].Properties))
			each := (b.N + writers - 1) / writers
			b.SetBytes(benchBody)
			b.ResetTimer()
			defer cpuPerOp(b)()
			var wg sync.WaitGroup
			for range writers {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for range each {
						mu.Lock()
						active = append(active, body...)
						mine := gathering
						for done <= mine {
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
						mu.Unlock()
					}
				}()
			}
			wg.Wait()
		})
	}
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
		ms[i] = store.Message{Topic: "Bench", Queue: int32(i % 4), Body: make([]byte, benchBody), Properties: []byte("UNIQ_KEY\x010A00000100002A9F00000000000004D2\x02TAGS\x01TagA\x02")}
	}
	return ms
}

func BenchmarkAppend(b *testing.B) {
	run := func(name string, d meta.Durability, goroutines, batch int) {
		b.Run(name, func(b *testing.B) {
			s := benchStore(b, d)
			calls := (b.N + batch*goroutines - 1) / (batch * goroutines)
			b.SetBytes(benchBody)
			b.ReportAllocs()
			b.ResetTimer()
			defer cpuPerOp(b)()
			var wg sync.WaitGroup
			for range goroutines {
				wg.Add(1)
				go func() {
					defer wg.Done()
					ms, rs := benchMessages(batch), make([]store.Result, batch)
					for range calls {
						s.Append(ms, rs)
						if rs[0].Err != nil {
							b.Error(rs[0].Err)
							return
						}
					}
				}()
			}
			wg.Wait()
			b.StopTimer()
		})
	}
	run("size=1KiB/batch=64/goroutines=1/flush=async", meta.Async, 1, 64)
	run("size=1KiB/batch=64/goroutines=4/flush=async", meta.Async, 4, 64)
	run("size=1KiB/batch=1/goroutines=1/flush=async", meta.Async, 1, 1)
	run("size=1KiB/batch=1/goroutines=64/flush=async", meta.Async, 64, 1)
	run("size=1KiB/batch=1/writers=64/flush=sync", meta.Sync, 64, 1)
	run("size=1KiB/batch=1/writers=256/flush=sync", meta.Sync, 256, 1)
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
	b.SetBytes(benchBody)
	b.ReportAllocs()
	defer cpuPerOp(b)()
	var o, sum int64
	k, n := 0, 0
	for b.Loop() {
		if k == n {
			if o >= high {
				o = 0
			}
			var err error
			if n, err = q.Read(o, es); err != nil || n == 0 {
				b.Fatal(n, err)
			}
			o += int64(n)
			k = 0
		}
		rec, release, err := s.Record(es[k])
		if err != nil {
			b.Fatal(err)
		}
		v, err := record.Parse(rec)
		if err != nil {
			b.Fatal(err)
		}
		sum += int64(len(v.Body()))
		release()
		k++
	}
	if sum == 0 {
		b.Fatal("nothing was read")
	}
}
