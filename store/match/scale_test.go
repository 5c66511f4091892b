package match

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
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

// BenchmarkChangeOneAmong is what it costs to take one filter out of an index that has many and to put it back.
func BenchmarkChangeOneAmong(b *testing.B) {
	kinds := map[string]func(i int) string{
		"text":    func(i int) string { return fmt.Sprintf("region = 'r%d'", i) },
		"range":   func(i int) string { return fmt.Sprintf("n BETWEEN %d AND %d", 10*i, 10*i+9) },
		"name":    func(i int) string { return fmt.Sprintf("name%d = 'v'", i) },
		"present": func(i int) string { return fmt.Sprintf("a <> 'v%d'", i) },
		"same":    func(i int) string { return fmt.Sprintf("region = 'r' AND a <> 'v%d'", i) },
		"owners":  func(int) string { return "region = 'r'" },
		"manyname": func(i int) string {
			return fmt.Sprintf("a%d = 'v' AND b%d = 'v' AND c%d = 'v' AND d%d = 'v' AND e%d = 'v'", i, i, i, i, i)
		},
	}
	for _, kind := range []string{"text", "range", "name", "present", "same", "owners", "manyname"} {
		for _, n := range []int{100, 10_000, 100_000} {
			b.Run(fmt.Sprintf("%s/filters=%d", kind, n), func(b *testing.B) {
				x := New[int](nil)
				es := make([]*filter.Expr, n)
				for i := range es {
					es[i] = parse(b, filter.SQL92, kinds[kind](i))
					x.Add(es[i], i)
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					k := (i * 7919) % n
					x.Remove(es[k], k)
					x.Add(es[k], k)
				}
			})
		}
	}
}

// What a filter more or less copies does not grow with the filters that are there, nor with the owners of one.
func TestChangesCopyLittleAmongMany(t *testing.T) {
	const most = 96 << 10 // bytes a change, on average
	for _, tc := range []struct {
		name string
		n    int
		text func(i int) string
	}{
		{"each its own name", 5000, func(i int) string { return fmt.Sprintf("name%d = 'v'", i) }},
		{"each several names", 2000, func(i int) string { return fmt.Sprintf("a%d = 'v' AND b%d > 1 AND c%d IS NULL", i, i, i) }},
		{"each its own text", 5000, func(i int) string { return fmt.Sprintf("a = 'v%d'", i) }},
		{"one text", 20_000, func(i int) string { return fmt.Sprintf("a = 'v' AND b <> 'v%d'", i) }},
		{"each its own range", 5000, func(i int) string { return fmt.Sprintf("n BETWEEN %d AND %d", 10*i, 10*i+15) }},
		{"one source", 20_000, func(i int) string { return fmt.Sprintf("a <> 'v%d'", i) }},
		{"one filter", 20_000, func(int) string { return "a = 'v'" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x := New[int](nil)
			es := make([]*filter.Expr, tc.n)
			for i := range es {
				es[i] = parse(t, filter.SQL92, tc.text(i))
			}
			if n := allocated(func() {
				for i, e := range es {
					x.Add(e, i)
				}
			}) / tc.n; n > most {
				t.Errorf("adding one of %d filters copies %d bytes, want at most %d", tc.n, n, most)
			}
			if n := allocated(func() {
				for i := range es {
					k := i * 7919 % tc.n
					x.Remove(es[k], k)
				}
			}) / tc.n; n > most {
				t.Errorf("removing one of %d filters copies %d bytes, want at most %d", tc.n, n, most)
			}
			s := x.now.Load()
			if x.Len() != 0 || s.numbers > 2*tc.n || len(x.Match(nil, &filter.Message{Properties: properties("a", "v", "n", "15", "b", "x")}, new(Matcher))) > 0 {
				t.Errorf("%d filters are left, of %d numbers", x.Len(), s.numbers)
			}
		})
	}
}

// allocated is the memory that f asks for, in bytes.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// Filters that have gone are in no answer, also while they are still in long lists, and those that stay are in all.
func TestManyFiltersUnderOneKeyComeAndGo(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 5)) //nolint:gosec // the same steps in every run
	kinds := []func(i int) string{
		func(i int) string { return fmt.Sprintf("a = 'v' AND b <> 'v%d'", i) },
		func(i int) string { return fmt.Sprintf("b <> 'v%d'", i) },
		func(i int) string { return fmt.Sprintf("n > %d", i) },
		func(i int) string {
			return fmt.Sprintf("n BETWEEN %d AND %d OR n BETWEEN %d AND %d", i, i+50, 2*i+100, 2*i+150)
		},
		func(i int) string { return fmt.Sprintf("c IS NULL OR d = '%d'", i) },
		func(int) string { return "a = 'v'" },
		func(i int) string { return fmt.Sprintf("x%d = 'v' OR a = 'w'", i) },
	}
	const each = 600
	type owned struct {
		e     *filter.Expr
		owner int
	}
	var all []owned
	for i := range each {
		for _, text := range kinds {
			all = append(all, owned{parse(t, filter.SQL92, text(i)), len(all)})
		}
	}
	messages := []*filter.Message{
		{Properties: properties("a", "v", "b", "v7", "c", "1", "n", "300")},
		{Properties: properties("a", "w", "b", "v599", "n", "-1", "d", "5")},
		{Properties: properties("c", "1", "d", "77", "n", "NaN", "x9", "v")},
	}
	x := New[int](nil)
	have := map[int]bool{}
	var w Matcher
	for round := range 24 {
		add := round%4 < 2 // up to nearly all and down to nearly none
		for range len(all) * 2 / 3 {
			k := r.IntN(len(all))
			if o := all[k]; add {
				x.Add(o.e, o.owner)
				have[k] = true
			} else {
				x.Remove(o.e, o.owner)
				delete(have, k)
			}
		}
		for _, m := range messages {
			var want []int
			for k := range have {
				if all[k].e.Eval(filter.Plain, m) == filter.True {
					want = append(want, all[k].owner)
				}
			}
			got := x.Match(nil, m, &w)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("round %d: %q selects %d of %d, want %d", round, m.Properties, len(got), len(have), len(want))
			}
		}
	}
}
