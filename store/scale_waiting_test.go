package store_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/export"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// waitForLong appends n messages that wait for days: a third each of halves, delays, and retries of a push group, which are made by
// operations of 1,000. It returns the last address.
func waitForLong(t testing.TB, s *store.Store, n int) int64 {
	t.Helper()
	ms, rs := make([]store.Message, 500), make([]store.Result, 500)
	due := time.Now().Add(24 * time.Hour).UnixMilli()
	last := send(t, s, "T", 0, "first").Address
	for done := 0; done < n; done += len(ms) {
		for i := range ms {
			ms[i] = store.Message{Topic: "T", Body: []byte("body")}
			switch (done / len(ms)) % 3 {
			case 0:
				ms[i].Half = true
			case 1:
				ms[i].DeliverAt = due + int64(i*7919%1000_000)
			}
		}
		s.Append(ms, rs)
		for i := range rs {
			if rs[i].Err != nil {
				t.Fatal(rs[i].Err)
			}
			last = rs[i].Address
		}
		if (done/len(ms))%3 == 2 {
			ops := make([]state.Op, len(rs))
			for i := range rs {
				ops[i] = state.Op{Kind: state.OpUpdate, Topic: "T", First: rs[i].Address, Failed: []state.Failed{{Group: "g", Attempt: 3, Due: due + int64(i)}}}
			}
			at, err := s.Operate(ops)
			if err != nil {
				t.Fatal(err)
			}
			last = at
		}
	}
	return last
}

// Law 7: what waits is on the disk. In memory are the tail of the table and the first keys of its pages, 24 bytes for 128 rows, of which
// each thing that waits has two; so ten million take 3.8 MB and the tail. A checkpoint carries the tail and no more.
func TestLaw7WhatWaitsIsOnTheDisk(t *testing.T) {
	const n, tail = 60_000, 1000
	o := store.Options{FS: vfs.NewMem(), Dir: "/s"}
	o.TailRows(tail)
	s := open(t, o)
	addTopic(t, s, "T", meta.Async)
	last := waitForLong(t, s, n)
	if err := s.WaitApplied(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	st, rows := s.StateStats(), s.Rows()
	if st.Halves != n/3 || st.Delays != n/3 || st.Retries != n/3 {
		t.Fatalf("state is %+v", st)
	}
	perRow := float64(rows.Indexed) / float64(rows.Rows)
	const ofTen = 10_000_000 * 2
	if bound := perRow*ofTen + (32<<10)*100; rows.Tail > tail || rows.Rows < 2*n-tail || bound > 64<<20 {
		t.Errorf("rows are %+v: %.3f bytes of memory a row on the disk, %.1f MiB for ten million things that wait", rows, perRow, bound/(1<<20))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := store.ReadCheckpoint(o.FS, o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if most := 100*tail + 10_000; len(c.State) > most {
		t.Errorf("state of the checkpoint has %d bytes with %d things that wait, most should be %d", len(c.State), n, most)
	}
	s, err = tryOpen(t, o)
	if err != nil {
		t.Fatal(err)
	}
	if again := s.StateStats(); again.Halves != st.Halves || again.Delays != st.Delays || again.Retries != st.Retries {
		t.Errorf("opened again the state is %+v", again)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Law 7: what was due and is over costs those who look for what is due next nothing, although it lies in the files for a while.
func TestLaw7WhatIsDueIsFoundAtOnce(t *testing.T) {
	const n, tail = 20_000, 500
	var reads atomic.Int64
	o := store.Options{Dir: "/s", FS: vfs.Intercept(vfs.NewMem(), func(op vfs.Op) error {
		if op.Kind == "read" {
			reads.Add(1)
		}
		return nil
	})}
	o.TailRows(tail)
	s := open(t, o)
	addTopic(t, s, "T", meta.Async)
	ms, rs := make([]store.Message, n), make([]store.Result, n)
	due := time.Now().Add(24 * time.Hour).UnixMilli()
	for i := range ms {
		ms[i] = store.Message{Topic: "T", Body: []byte("body"), DeliverAt: due + int64(i)}
	}
	s.Append(ms, rs)
	settle(t, s)
	const over = n - tail
	for i := 0; i < over; i += 100 { // as they become due
		operate(t, s, state.Op{Kind: state.OpCancel, Topic: "T", First: rs[i].Address, Last: rs[i+99].Address})
	}
	var ds [1]state.Due
	find := func() {
		t.Helper()
		if s.Delays(state.Due{}, ds[:]) != 1 || ds[0].Address != rs[over].Address {
			t.Fatalf("the first that is due is %+v", ds[0])
		}
	}
	find()
	before := reads.Load()
	find()
	if got := reads.Load() - before; got > 2*int64(s.Rows().Runs) {
		t.Errorf("%d reads of %d files to find what is due next", got, s.Rows().Runs)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

var waitingFlag = flag.Int("waiting", 200_000, "things of each kind that wait in TestLaw7MemoryDoesNotGrowWithWhatWaits")

// heapWatch measures what is alive on the heap at some of the writes of a store, so in the middle of what it does.
type heapWatch struct {
	mu    sync.Mutex
	every int // writes
	n     int
	most  uint64
}

func (h *heapWatch) see(op vfs.Op) error {
	if op.Kind != "write" {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n++; h.n%h.every == 0 {
		h.most = max(h.most, liveHeap())
	}
	return nil
}

// take ends a phase and returns its most.
func (h *heapWatch) take() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	most := max(h.most, liveHeap())
	h.most = 0
	return most
}

// liveHeap is what is left after a collection.
func liveHeap() uint64 {
	runtime.GC()
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// Law 7: with many halves, delays and retries waiting, memory is what it is with few, while they come, while their segments go and the state
// is restated, when the store is opened with its snapshot and with nothing but the log, while it is exported from either, and while what was exported is
// taken over. With -waiting=10000000 it
// takes ten million of each.
func TestLaw7MemoryDoesNotGrowWithWhatWaits(t *testing.T) {
	const batch = 500
	for _, kind := range []string{"half", "delay", "retry"} {
		t.Run(kind, func(t *testing.T) {
			n := *waitingFlag / batch * batch
			c := newClock()
			h := &heapWatch{every: 300 + n/1000}
			o := store.Options{
				Dir: filepath.Join(t.TempDir(), "s"), FS: vfs.Intercept(vfs.OS, h.see), Now: c.now,
				SegmentBytes: 256 << 20, CheckpointBytes: 64 << 20,
				Retention: store.Retention{Age: time.Hour, Interval: 1000 * time.Hour, MostAtOnce: 1000},
			}
			if n < 1_000_000 {
				o.SegmentBytes, o.CheckpointBytes = 16<<20, 16<<20
			}
			s := open(t, o)
			addTopic(t, s, "T", meta.Async)
			empty := liveHeap()
			report := func(phase string, began time.Time) {
				t.Helper()
				most := h.take()
				grown := float64(int64(most)-int64(empty)) / (1 << 20)
				t.Logf("%d of kind %s, %s: %.1f MiB of heap more than empty, %.1f s", n, kind, phase, grown, time.Since(began).Seconds())
				// The tails of two tables, buffers, and the first keys of the pages of files: less than half a byte for each thing. Rows in memory
				// would take 112 bytes a thing.
				if bound := 20 + 3*float64(n)/(1<<20); grown > bound {
					t.Errorf("%s: %.1f MiB of heap more than empty with %d of kind %s, want at most %.1f", phase, grown, n, kind, bound)
				}
			}
			counts := func() int {
				st := s.StateStats()
				return map[string]int{"half": st.Halves, "delay": st.Delays, "retry": st.Retries}[kind]
			}
			reopen := func() {
				t.Helper()
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = nil
				h.take()
			}
			opened := func() {
				t.Helper()
				var err error
				if s, err = tryOpen(t, o); err != nil {
					t.Fatal(err)
				}
				if got := counts(); got != n {
					t.Fatalf("%d wait, want %d", got, n)
				}
			}

			began := time.Now()
			waitOfKind(t, s, c, kind, n, batch)
			settle(t, s)
			if got := counts(); got != n {
				t.Fatalf("%d wait, want %d", got, n)
			}
			report("running", began)

			began = time.Now()
			send(t, s, "T", 0, "behind")
			settle(t, s)
			c.pass(48 * time.Hour)
			if gone := clean(t, s); gone == 0 || counts() != n {
				t.Fatalf("%d segments gone, %d wait", gone, counts())
			}
			report("segments go", began)

			began = time.Now()
			reopen()
			opened()
			report("opened with its snapshot", began)

			began = time.Now()
			reopen()
			dropViews(t, o.FS, o.Dir)
			opened()
			report("opened with nothing but the log", began)

			reopen()
			began = time.Now()
			dst := filepath.Join(t.TempDir(), "d")
			sum, err := export.Run(t.Context(), export.Options{Src: o.Dir, Dst: dst, FS: o.FS, Now: c.now})
			if err != nil {
				t.Fatal(err)
			}
			if kind == "half" && sum.Halves != n || kind == "delay" && sum.Delays != n {
				t.Errorf("exported %+v", sum)
			}
			report("exported", began)

			began = time.Now()
			dropViews(t, o.FS, o.Dir)
			again, err := export.Run(t.Context(), export.Options{Src: o.Dir, Dst: filepath.Join(t.TempDir(), "d"), FS: o.FS, Now: c.now})
			if err != nil || *again != *sum {
				t.Errorf("exported from nothing but the log: %+v, want %+v, %v", again, sum, err)
			}
			report("exported from nothing but the log", began)

			// The way back: the directory is a plain one of Apache's now.
			began = time.Now()
			o.Dir, o.SegmentBytes = dst, 0
			if kind == "retry" { // committed offsets of their group there
				n = 0
			}
			opened()
			report("taken over", began)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// waitOfKind appends n things that wait for months, batch at a time.
func waitOfKind(t testing.TB, s *store.Store, c *clock, kind string, n, batch int) {
	t.Helper()
	due := c.now().Add(30 * 24 * time.Hour).UnixMilli()
	ms, rs := make([]store.Message, batch), make([]store.Result, batch)
	ops := make([]state.Op, batch)
	for done := 0; done < n; done += batch {
		for i := range ms {
			ms[i] = store.Message{Topic: "T", Body: []byte("body")}
			switch kind {
			case "half":
				ms[i].Half = true
			case "delay":
				ms[i].DeliverAt = due + int64((done+i)*7919%100_000_000)
			}
		}
		s.Append(ms, rs)
		for i, r := range rs {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			ops[i] = state.Op{Kind: state.OpUpdate, Topic: "T", First: r.Address, Failed: []state.Failed{{Group: "g", Attempt: 3, Due: due + int64((done+i)*7919%100_000_000)}}}
		}
		if kind == "retry" {
			if _, err := s.Operate(ops); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// BenchmarkWaiting is a message that waits for days behind many others: appended, and dispatched into the table on the disk.
func BenchmarkWaiting(b *testing.B) {
	for _, before := range []int{0, 900_000} {
		b.Run(fmt.Sprintf("before=%d", before), func(b *testing.B) {
			s := open(b, store.Options{})
			addTopic(b, s, "T", meta.Async)
			if err := s.WaitApplied(b.Context(), waitForLong(b, s, before)); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			if err := s.WaitApplied(b.Context(), waitForLong(b, s, b.N)); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			r := s.Rows()
			b.ReportMetric(float64(r.Indexed)/float64(max(r.Rows, 1)), "mem-B/row")
			b.ReportMetric(float64(r.Bytes)/float64(max(r.Rows, 1)), "disk-B/row")
		})
	}
}

// BenchmarkWaitingMemory is what things that wait take of memory: a third each of halves, delays and retries, FUSIONMQ_BENCH_WAITING of them, 300,000 by
// default; the budget, 64 MiB, is for ten million:
//
//	FUSIONMQ_BENCH_WAITING=10000000 go test -run '^$' -bench WaitingMemory -benchtime 1x ./store
func BenchmarkWaitingMemory(b *testing.B) {
	n := 300_000
	if v := os.Getenv("FUSIONMQ_BENCH_WAITING"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			b.Fatal(err)
		}
	}
	for range b.N {
		s, err := store.Open(store.Options{Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		addTopic(b, s, "T", meta.Async)
		before := anonymous(b)
		if err := s.WaitApplied(b.Context(), waitForLong(b, s, n)); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(anonymous(b)-before), "anon-B")
		st := s.StateStats()
		b.ReportMetric(float64(st.Halves+st.Delays+st.Retries), "waiting")
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// anonymous is the resident memory of this process in bytes that no file backs, without what the collector can give back.
func anonymous(b *testing.B) int64 {
	b.Helper()
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for l := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(l, "RssAnon:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			return kib << 10
		}
	}
	b.Fatal("/proc/self/status says nothing of RssAnon")
	return 0
}
