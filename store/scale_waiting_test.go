package store_test

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/store"
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
