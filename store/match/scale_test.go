package match

import (
	"fmt"
	"testing"

	"github.com/fusionmq/fusionmq/store/filter"
)

// BenchmarkAdd is what one more filter costs an index that has many.
func BenchmarkAdd(b *testing.B) {
	kinds := map[string]func(i int) string{
		"text":    func(i int) string { return fmt.Sprintf("region = 'r%d'", i) },
		"range":   func(i int) string { return fmt.Sprintf("n BETWEEN %d AND %d", 10*i, 10*i+9) },
		"name":    func(i int) string { return fmt.Sprintf("name%d = 'v'", i) },
		"present": func(i int) string { return fmt.Sprintf("a <> 'v%d'", i) },
	}
	for _, kind := range []string{"text", "range", "name", "present"} {
		for _, n := range []int{100, 10_000} {
			b.Run(fmt.Sprintf("%s/filters=%d", kind, n), func(b *testing.B) {
				es := make([]*filter.Expr, n)
				for i := range es {
					es[i] = parse(b, filter.SQL92, kinds[kind](i))
				}
				b.ReportAllocs()
				stop := cpuPerOp(b)
				for b.Loop() {
					x := New[int](nil)
					for i, e := range es {
						x.Add(e, i)
					}
				}
				stop()
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/filter")
			})
		}
	}
}
