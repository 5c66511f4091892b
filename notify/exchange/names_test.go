package exchange

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// check looks at what makes a change cheap: no chunk is empty or has more than chunkNames, and there are few.
func (l names) check(t interface{ Fatalf(string, ...any) }, want []string) {
	if got := l.appendTo(nil); !slices.Equal(got, want) {
		t.Fatalf("the set has %q, want %q", got, want)
	}
	for i, c := range l {
		if len(c) == 0 || len(c) > chunkNames {
			t.Fatalf("chunk %d of %d has %d names", i, len(l), len(c))
		}
	}
	if most := 1 + 4*len(want)/chunkNames; len(l) > most {
		t.Fatalf("%d names in %d chunks, want at most %d", len(want), len(l), most)
	}
}

func TestNamesAreASortedSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l names
		var want []string
		for range rapid.IntRange(1, 8).Draw(t, "runs") {
			from, step := rapid.IntRange(0, 4000).Draw(t, "from"), rapid.SampledFrom([]int{1, -1, 7}).Draw(t, "step")
			in := rapid.Bool().Draw(t, "in")
			for i := range rapid.IntRange(1, 1500).Draw(t, "names") {
				name := fmt.Sprint("group-", from+step*i)
				at, found := slices.BinarySearch(want, name)
				switch {
				case in:
					if l = l.with(name); !found {
						want = slices.Insert(want, at, name)
					}
				default:
					if l = l.without(name); found {
						want = slices.Delete(want, at, at+1)
					}
				}
			}
			l.check(t, want)
		}
		for _, name := range slices.Clone(want) {
			l = l.without(name)
		}
		if l != nil {
			t.Fatalf("%d chunks are left of nothing", len(l))
		}
	})
}

// However many groups a topic has, and topics a group, one more or less moves a chunk of names.
func TestABindingCostsTheSameAmongManyGroups(t *testing.T) {
	const n = 20_000
	x := New()
	order := rand.New(rand.NewPCG(4, 2)).Perm(n) //nolint:gosec // the same order in every run
	name := func(i int) string { return fmt.Sprintf("group-%06d", i) }
	all := make([]string, n)
	for i := range all {
		all[i] = name(i)
	}
	for i, k := range order {
		x.Bind(int64(i), "fanout", name(k), fanout())
		x.Bind(int64(i), "direct", name(k), direct("paid"))
		x.Bind(int64(i), name(k), "one", fanout())
	}
	topic := func(name string) *topic { return x.mu.topics[name] }
	check := func(want []string) {
		t.Helper()
		topic("fanout").fanout.check(t, want)
		topic("direct").direct["paid"].check(t, want)
		x.mu.groups["one"].check(t, want)
		if got := x.Targets(nil, n, "fanout", props("")); !slices.Equal(got, want) {
			t.Fatalf("a message is owed to %d groups, want %d", len(got), len(want))
		}
	}
	check(all)
	for range 3 {
		x.Unbind(n, "fanout", name(n/2), fanout())
		x.Unbind(n, "direct", name(n/2), direct("paid"))
		if got := x.Targets(nil, n, "direct", props("paid")); len(got) != n-1 {
			t.Fatalf("without one of them a message is owed to %d groups", len(got))
		}
		x.Bind(n, "fanout", name(n/2), fanout())
		x.Bind(n, "direct", name(n/2), direct("paid"))
	}
	check(all)
	for _, k := range order[10:] {
		x.Unbind(n, "fanout", name(k), fanout())
		x.Unbind(n, "direct", name(k), direct("paid"))
		x.Unbind(n, name(k), "one", fanout())
		x.Forget(name(k), "one", n)
	}
	var few []string
	for _, k := range order[:10] {
		few = append(few, name(k))
	}
	slices.Sort(few)
	check(few)
}

// Whoever holds a history sees what it was, although the next one shares its memory.
func TestAHistoryStaysAsItWas(t *testing.T) {
	x := New()
	var want []int
	var held []*History
	for i := range 200 {
		b := direct(fmt.Sprint("type-", i%50))
		switch i % 5 {
		case 3:
			x.Unbind(int64(i), "T", "g", b)
		case 4:
			b.WaterMark = int32(i)
			fallthrough
		default:
			x.Bind(int64(i), "T", "g", b)
		}
		h := x.History("T", "g")
		held, want = append(held, h), append(want, h.Len())
	}
	for i, h := range held {
		if h.Len() != want[i] {
			t.Errorf("history %d has %d bindings now, had %d", i, h.Len(), want[i])
		}
		for _, s := range h.spans {
			if s.Since > int64(i) || s.Until != Forever && s.Until > int64(i) {
				t.Errorf("history %d knows of %+v, which came later", i, s)
			}
		}
	}
	before := x.History("T", "g")
	x.Bind(1000, "T", "g", before.Live(nil)[0])
	if x.History("T", "g") != before {
		t.Error("a registration that was there already changed something")
	}
}

func BenchmarkBind(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		for kind, binding := range map[string]func(int) (topic, group string){
			"groups": func(i int) (string, string) { return "T", fmt.Sprintf("group-%06d", (i*7919)%n) },
			"topics": func(i int) (string, string) { return fmt.Sprintf("topic-%06d", (i*7919)%n), "g" },
		} {
			b.Run(fmt.Sprintf("%s=%d", kind, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					x := New()
					for i := range n {
						topic, group := binding(i)
						x.Bind(int64(i), topic, group, fanout())
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/binding")
			})
		}
	}
}

func BenchmarkRebindOneAmong100000(b *testing.B) {
	x := New()
	for i := range 100_000 {
		x.Bind(int64(i), "T", fmt.Sprintf("group-%06d", i), fanout())
	}
	v := fanout()
	v.Volatile = true
	x.Bind(0, "T", "group-000100x", v)
	b.ReportAllocs()
	for b.Loop() {
		x.Unbind(200_000, "T", "group-000100x", v)
		x.Bind(200_000, "T", "group-000100x", v)
	}
}

func BenchmarkTargetsOfFanout(b *testing.B) {
	for _, n := range []int{1, 600, 100_000} {
		b.Run(fmt.Sprintf("groups=%d", n), func(b *testing.B) {
			x := New()
			for i := range n {
				x.Bind(int64(i), "T", fmt.Sprintf("group-%06d", i), fanout())
			}
			p, dst := props("type-0"), make([]string, 0, n)
			b.ReportAllocs()
			for b.Loop() {
				dst = x.Targets(dst[:0], 1000, "T", p)
			}
			if len(dst) != n {
				b.Fatalf("%d targets", len(dst))
			}
		})
	}
}
