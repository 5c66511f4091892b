package match

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fusionmq/fusionmq/store/filter"
	"golang.org/x/sys/unix"
)

const attributes = 20

// budgetFilters are the filters of the budget, each of which selects 1% of budgetMessages: 60% equality on 20 attributes, 25%
// IN or range, 15% OR or NOT.
func budgetFilters(b *testing.B, n int) []*filter.Expr {
	var es []*filter.Expr
	seen := map[string]bool{}
	for i := 0; len(es) < n; i++ {
		a, v := i%attributes, i/attributes%100
		var text string
		switch k := i % 20; {
		case k < 12:
			text = fmt.Sprintf("attr%d = 'v%d'", a, v)
		case k < 14:
			// A tenth of one attribute and a tenth of another.
			text = fmt.Sprintf("attr%d IN (%s) AND attr%d IN (%s)", a, tenth(v), (a+7)%attributes, tenth(v+3))
		case k < 17:
			text = fmt.Sprintf("n%d BETWEEN %d AND %d", a%4, 10*v, 10*v+9)
		case k < 19:
			// Half of 1% each, but for those that are both.
			text = fmt.Sprintf("attr%d = 'v%d' AND n0 < 500 OR attr%d = 'v%d' AND n1 >= 500", a, v, (a+3)%attributes, (v+11)%100)
		default:
			text = fmt.Sprintf("NOT (attr%d <> 'v%d') AND NOT (attr%d = 'v%d')", a, v, (a+5)%attributes, v)
		}
		e := parse(b, filter.SQL92, text)
		if !seen[e.String()] {
			seen[e.String()] = true
			es = append(es, e)
		}
	}
	return es
}

func tenth(v int) string {
	s := ""
	for i := range 10 {
		s += fmt.Sprintf(", 'v%d'", (v+10*i)%100)
	}
	return s[2:]
}

// budgetMessages have all 20 attributes with one of 100 values each, four numbers below 1000, and what every message has.
func budgetMessages(n int) []*filter.Message {
	r := rand.New(rand.NewPCG(1, 2))
	var ms []*filter.Message
	for i := range n {
		pairs := []string{"UNIQ_KEY", fmt.Sprintf("%032x", i), "KEYS", fmt.Sprintf("order-%d", i), "TAGS", "TagA", "WAIT", "true"}
		for a := range attributes {
			pairs = append(pairs, fmt.Sprintf("attr%d", a), fmt.Sprintf("v%d", r.IntN(100)))
		}
		for k := range 4 {
			pairs = append(pairs, fmt.Sprintf("n%d", k), fmt.Sprint(r.IntN(1000)))
		}
		ms = append(ms, &filter.Message{Properties: properties(pairs...)})
	}
	return ms
}

// BenchmarkBudgetExchange600 is the budget of the exchange (design 7): 600 filters at most 5 times the cost of 1 and at least
// 20 times faster than evaluating 600 programs. selected/op must be about 6.
func BenchmarkBudgetExchange600(b *testing.B) {
	messages := budgetMessages(1024)
	for _, n := range []int{600, 1} {
		b.Run(fmt.Sprintf("exchange/filters=%d", n), func(b *testing.B) {
			x := New[int](nil)
			for i, e := range budgetFilters(b, n) {
				x.Add(e, i)
			}
			var w Matcher
			var dst []int
			selected := 0
			b.ReportAllocs()
			stop := cpuPerOp(b)
			for i := 0; b.Loop(); i++ {
				dst = x.Match(dst[:0], messages[i%len(messages)], &w)
				selected += len(dst)
			}
			stop()
			b.ReportMetric(float64(selected)/float64(b.N), "selected/op")
		})
	}
	for _, n := range []int{600, 1} {
		b.Run(fmt.Sprintf("programs/filters=%d", n), func(b *testing.B) {
			var programs []*filter.Program
			for _, e := range budgetFilters(b, n) {
				programs = append(programs, e.Compile(nil))
			}
			selected := 0
			b.ReportAllocs()
			stop := cpuPerOp(b)
			for i := 0; b.Loop(); i++ {
				m := messages[i%len(messages)]
				for _, p := range programs {
					if p.Match(m) {
						selected++
					}
				}
			}
			stop()
			b.ReportMetric(float64(selected)/float64(b.N), "selected/op")
		})
	}
}

// cpuPerOp measures the processor time of the process, which holds on a busy machine.
func cpuPerOp(b *testing.B) (stop func()) {
	began := cpuTime(b)
	return func() { b.ReportMetric(float64(cpuTime(b)-began)/float64(b.N), "cpu-ns/op") }
}

func cpuTime(b *testing.B) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkUpdate is what a change costs an index of 600 filters.
func BenchmarkUpdate(b *testing.B) {
	x := New[int](nil)
	es := budgetFilters(b, 600)
	for i, e := range es {
		x.Add(e, i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		k := i % len(es)
		x.Remove(es[k], k)
		x.Add(es[k], k)
	}
}
