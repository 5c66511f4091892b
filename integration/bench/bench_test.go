package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestHistogramBoundsEveryDuration(t *testing.T) {
	for d := time.Duration(1); d < time.Hour; d += d/7 + 1 {
		i := bucket(d)
		if hi := top(i); hi < d || float64(hi) > float64(d)*1.04+1 {
			t.Fatalf("%d is in bucket %d, which ends at %d", d, i, hi)
		}
		if i > 0 && top(i-1) >= d {
			t.Fatalf("%d is in bucket %d, but the one before ends at %d", d, i, top(i-1))
		}
	}
}

func TestQuantiles(t *testing.T) {
	var h histogram
	for i := 1; i <= 1000; i++ {
		h.add(time.Duration(i) * time.Microsecond)
	}
	if got := h.quantile(0.99); got < 990*time.Microsecond || got > 1030*time.Microsecond {
		t.Errorf("p99 = %s", got)
	}
	if got := h.count(); got != 1000 {
		t.Errorf("count = %d", got)
	}
}

func TestTableSaysWhatIsReached(t *testing.T) {
	var tb table
	tb.atLeast("fast", 70, 100, 0.6, "/s")
	tb.atLeast("slow", 50, 100, 0.6, "/s")
	tb.atMost("p99", 4, 1, 5, "ms")
	tb.below("memory", 33, 32, "MiB")
	tb.unmeasured("peer", "no Java")
	var out strings.Builder
	tb.print(&out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, want := range []string{"reached", "yes", "no", "yes", "no", "not measured"} {
		if !strings.HasSuffix(lines[i], want) {
			t.Errorf("line %q, want it to end with %q", lines[i], want)
		}
	}
}

func TestParseBenchmarks(t *testing.T) {
	got := parseBenchmarks("BenchmarkAppend/size=1KiB/batch=64-2   \t  100\t 123.5 ns/op\t8000.5 MB/s\t 0 allocs/op\nok x\n")
	r, ok := got["BenchmarkAppend/size=1KiB/batch=64"]
	if !ok || r["ns/op"] != 123.5 || r["MB/s"] != 8000.5 {
		t.Errorf("parsed %v", got)
	}
}

func TestExchangeBudgets(t *testing.T) {
	const lines = `BenchmarkBudgetExchange600/exchange/filters=600-2   100  2000 ns/op  1000 cpu-ns/op  6 selected/op
BenchmarkBudgetExchange600/exchange/filters=1-2     100  500 ns/op  250 cpu-ns/op  0.01 selected/op
BenchmarkBudgetExchange600/programs/filters=600-2   100  30000 ns/op  19000 cpu-ns/op  6 selected/op
`
	var b bench
	b.exchangeBudgets(parseBenchmarks(lines))
	b.exchangeBudgets(parseBenchmarks(strings.Replace(lines, "programs", "other", 1)))
	var got []string
	for _, r := range b.table.rows {
		got = append(got, r.ratio+" "+r.reached)
	}
	if s := strings.Join(got, ", "); s != "4.00 (<= 5.00) yes, 19.00 (>= 20.00) no,  not measured,  not measured" {
		t.Error(s)
	}
}

func TestPublishBudgets(t *testing.T) {
	var b bench
	const lines = `BenchmarkBudgetPublish/kind=plain-2                    10  10 ns/op  1000 log-B/op
BenchmarkBudgetPublish/kind=transaction/ends=alone-2   10  10 ns/op  1190 log-B/op
BenchmarkBudgetPublish/kind=transaction/rate=1000-2    10  10 ns/op  1160 log-B/op
BenchmarkBudgetPublish/kind=delayed/rate=1000-2        10  10 ns/op  1100 log-B/op
`
	b.publishBudgets(parseBenchmarks(lines))
	var got []string
	for _, r := range b.table.rows {
		got = append(got, r.ratio+" "+r.reached)
	}
	if s := strings.Join(got, ", "); s != "1.16 (<= 1.15) no, 0.95 (<= 1) yes,  not measured,  not measured" {
		t.Error(s)
	}
}

func TestLifeBudgets(t *testing.T) {
	var b bench
	b.addLife(0, 100, "", nil)
	b.addLife(4900, 100, "", nil)
	b.addLife(5100, 100, "", nil)
	b.addLife(5100, 0, "", errors.New("no\nserver"))
	var got []string
	for _, r := range b.table.rows {
		got = append(got, r.baseline+" "+r.reached)
	}
	if s := strings.Join(got, ", "); s != " not measured, 100 /s no, 100 /s yes, not measured: no server not measured" {
		t.Error(s)
	}
}
