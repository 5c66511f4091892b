package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// parseBenchmarks reads the output of go test -bench into name to unit to value.
func parseBenchmarks(out string) map[string]map[string]float64 {
	all := map[string]map[string]float64{}
	for l := range strings.Lines(out) {
		f := strings.Fields(l)
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		name := f[0]
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i]
		}
		m := map[string]float64{}
		for i := 2; i+1 < len(f); i += 2 {
			if v, err := strconv.ParseFloat(f[i], 64); err == nil {
				m[f[i+1]] = v
			}
		}
		all[name] = m
	}
	return all
}

// goBench runs benchmarks of a package of the repository.
func (b *bench) goBench(pkg, pattern, benchtime string, env ...string) (map[string]map[string]float64, error) {
	_, file, _, _ := runtime.Caller(0)
	cmd := exec.Command("go", "test", "./"+pkg, "-run", "^$", "-bench", pattern, "-benchtime", benchtime, "-benchmem", "-count", "1", "-timeout", "1h")
	cmd.Dir = filepath.Join(filepath.Dir(file), "../..")
	cmd.Env = append(append(os.Environ(), "TMPDIR="+b.dir), env...) // the disk of the other sides
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go test -bench %s %s: %w\n%s", pattern, pkg, err, out)
	}
	fmt.Print(string(out))
	return parseBenchmarks(string(out)), nil
}

// storeBudgets runs the store's own benchmarks, which measure a bare baseline as the other side of each.
func (b *bench) storeBudgets() error {
	got, err := b.goBench("store/...", "^BenchmarkBudget", b.store)
	if err != nil {
		return err
	}
	perSecond := func(name string) float64 {
		if ns := got[name]["ns/op"]; ns > 0 {
			return 1e9 / ns
		}
		return 0
	}
	for _, c := range []struct {
		budget, ours, bare string
		want               float64
	}{
		{"store append, 1 KiB, async, in batches, against one goroutine with CRC, copy and 64 KiB pwrite", "BenchmarkBudgetAppendAsyncBatch/side=ours", "BenchmarkBudgetAppendAsyncBatch/side=bare", 0.60},
		{"store append, 1 KiB, async, 64 goroutines with one record a call, against the same", "BenchmarkBudgetAppendAsync64/side=ours", "BenchmarkBudgetAppendAsync64/side=bare", 0.25},
		{"store append, 1 KiB, sync, 64 writers, against bare group commit", "BenchmarkBudgetAppendSync64/side=ours", "BenchmarkBudgetAppendSync64/side=bare", 0.70},
		{"store append, 1 KiB, sync, 256 writers, against bare group commit", "BenchmarkBudgetAppendSync256/side=ours", "BenchmarkBudgetAppendSync256/side=bare", 0.50},
		{"10,000 topics x 4 queues written in turn and read, against 1 topic", "BenchmarkBudgetTopics/topics=10000", "BenchmarkBudgetTopics/topics=1", 0.90},
	} {
		ours, bare := perSecond(c.ours), perSecond(c.bare)
		if ours == 0 || bare == 0 {
			b.table.unmeasured(c.budget, fmt.Sprintf("no result of %s and %s", c.ours, c.bare))
			continue
		}
		b.table.atLeast(c.budget, ours, bare, c.want, "/s")
		if allocs, ok := got[c.ours]["allocs/op"]; ok {
			b.table.below("allocations a record: "+c.budget, allocs, 1, "")
		}
	}
	b.publishBudgets(got)
	b.exchangeBudgets(got)
	b.lifeBudgets(perSecond("BenchmarkBudgetLife/ack=joined"), perSecond("BenchmarkBudgetLife/ack=awaited"))
	return nil
}

// publishBudgets compare what a message takes of the log when it is published later with what a plain one takes.
func (b *bench) publishBudgets(got map[string]map[string]float64) {
	size := func(kind string) float64 { return got["BenchmarkBudgetPublish/kind="+kind]["log-B/op"] }
	plain := size("plain")
	for _, kind := range []string{"transaction", "delayed"} {
		joined, alone := kind+" message, 1 KiB, 8 senders with 1,000/s: bytes of log, against a plain one", kind+" message, 1 KiB, that shares no record: bytes of log more than a plain one"
		some, one := size(kind+"/rate=1000"), size(kind+"/ends=alone")
		if some == 0 || one == 0 || plain == 0 {
			b.table.unmeasured(joined, "no result of BenchmarkBudgetPublish")
			b.table.unmeasured(alone, "no result of BenchmarkBudgetPublish")
			continue
		}
		b.table.atMost(joined, some, plain, 1.15, "B")
		b.table.below(alone, one-plain, 200, "B")
	}
}

// exchangeBudgets compare what one message costs the predicate index with 600 filters, in processor time, with one filter and with evaluating
// each of the 600.
func (b *bench) exchangeBudgets(got map[string]map[string]float64) {
	cpu := func(name string) float64 { return got["BenchmarkBudgetExchange600/"+name]["cpu-ns/op"] }
	ours, one, each := cpu("exchange/filters=600"), cpu("exchange/filters=1"), cpu("programs/filters=600")
	const most, least = "exchange, CPU a message with 600 filters of which 1% match, against 1 filter", "exchange, messages a CPU second with 600 filters, against evaluating each in its compiled form"
	if ours == 0 || one == 0 || each == 0 {
		for _, budget := range []string{most, least} {
			b.table.unmeasured(budget, "no result of BenchmarkBudgetExchange600")
		}
		return
	}
	b.table.atMost(most, ours, one, 5, "ns")
	b.table.atLeast(least, 1e9/ours, 1e9/each, 20, "/s")
}
