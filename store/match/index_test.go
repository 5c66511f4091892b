package match

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fusionmq/fusionmq/store/filter"
	"pgregory.net/rapid"
)

func properties(pairs ...string) []byte {
	var b []byte
	for i := 0; i+1 < len(pairs); i += 2 {
		b = append(b, pairs[i]...)
		b = append(b, 1)
		b = append(b, pairs[i+1]...)
		b = append(b, 2)
	}
	return b
}

func parse(t interface{ Fatal(...any) }, rules filter.Rules, text string) *filter.Expr {
	e, err := filter.Parse(rules, text, filter.Limits{})
	if err != nil {
		t.Fatal(text, err)
	}
	return e
}

type fields struct{}

func (fields) Field(f filter.Field) filter.Value {
	switch f {
	case filter.FieldType:
		return filter.Text([]byte("x"))
	case filter.FieldPriority:
		return filter.Int(5)
	}
	return filter.Null()
}

// mapped is a schema with values that stand in for missing properties.
type mapped struct{}

func (mapped) Property(name string) filter.Source {
	return filter.Source{Name: name, Empty: "__e." + name}
}

func (mapped) System(f filter.Field) filter.Source {
	if f == filter.FieldTTL {
		return filter.Source{Name: "ttl", Default: "-1", HasDefault: true}
	}
	return filter.Source{Field: f}
}

func drawExpr(t *rapid.T, rules filter.Rules, depth int) string {
	pick := func(of ...string) string { return rapid.SampledFrom(of).Draw(t, "pick") }
	if depth < 3 {
		switch rapid.IntRange(0, 7).Draw(t, "form") {
		case 0, 1:
			return "(" + drawExpr(t, rules, depth+1) + " AND " + drawExpr(t, rules, depth+1) + ")"
		case 2, 3:
			return "(" + drawExpr(t, rules, depth+1) + " OR " + drawExpr(t, rules, depth+1) + ")"
		case 4:
			return "NOT (" + drawExpr(t, rules, depth+1) + ")"
		}
	}
	name := pick("a", "b", "c", "d")
	if rules == filter.Notify {
		name = pick("a", "b", "c", "messageType", "priority", "timeToLive")
	}
	switch rapid.IntRange(0, 8).Draw(t, "atom") {
	case 0, 1:
		return name + " = " + pick("'x'", "'5'", "5", "5.5", "TRUE")
	case 2:
		return name + " <> " + pick("'x'", "5")
	case 3:
		return name + pick(" < ", " <= ", " > ", " >= ") + pick("5", "-1", "5.5", "100")
	case 4:
		return name + pick(" ", " NOT ") + "BETWEEN " + pick("-1", "5") + " AND " + pick("5", "7.5", "100")
	case 5:
		if rules == filter.Notify {
			return name + pick(" ", " NOT ") + "IN (" + pick("'x'", "5", "null", "true") + ", 'y', 7)"
		}
		return name + pick(" ", " NOT ") + "IN ('x', " + pick("'5'", "'y'") + ")"
	case 6:
		return name + pick(" IS NULL", " IS NOT NULL")
	case 7:
		return name + pick(" ", " NOT ") + pick("CONTAINS", "STARTSWITH") + " 'x'"
	}
	return name + pick(" = ", " > ", " <> ") + pick("a", "b", "c")
}

func drawMessage(t *rapid.T) *filter.Message {
	var pairs []string
	for range rapid.IntRange(0, 6).Draw(t, "properties") {
		name := rapid.SampledFrom([]string{"a", "b", "c", "d", "other", "ttl", "__e.a"}).Draw(t, "name")
		pairs = append(pairs, name, rapid.SampledFrom([]string{"x", "y", "5", "5.5", "7", "100", "-1", "true", "NaN", "xx", "05", "1e2"}).Draw(t, "value"))
	}
	return &filter.Message{Properties: properties(pairs...), Fields: fields{}}
}

// An index of random filters, some of which come and go, says what evaluating each of them says.
func TestIndexSaysWhatEachFilterSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		schema := rapid.SampledFrom([]filter.Schema{filter.Plain, mapped{}}).Draw(t, "schema")
		x := New[int](schema)
		type owned struct {
			e     *filter.Expr
			owner int
		}
		var have []owned
		var w Matcher
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1, 2:
				rules := rapid.SampledFrom([]filter.Rules{filter.SQL92, filter.Notify}).Draw(t, "rules")
				e, err := filter.Parse(rules, drawExpr(t, rules, 0), filter.Limits{})
				if err != nil {
					continue // SQL92 has BETWEEN in order only
				}
				o := owned{e, rapid.IntRange(0, 5).Draw(t, "owner")}
				x.Add(o.e, o.owner)
				if !slices.ContainsFunc(have, func(h owned) bool { return h.e.Equal(o.e) && h.owner == o.owner }) {
					have = append(have, o)
				}
			case 3:
				if len(have) > 0 {
					i := rapid.IntRange(0, len(have)-1).Draw(t, "victim")
					x.Remove(have[i].e, have[i].owner)
					have = slices.Delete(have, i, i+1)
				}
			default:
				m := drawMessage(t)
				var want []int
				for _, h := range have {
					if h.e.Eval(schema, m) == filter.True {
						want = append(want, h.owner)
					}
				}
				got := x.Match(nil, m, &w)
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Fatalf("%q: %v, want %v of %v", m.Properties, got, want, have)
				}
			}
		}
		for _, h := range have {
			x.Remove(h.e, h.owner)
		}
		if x.Len() != 0 || len(x.Match(nil, drawMessage(t), &w)) != 0 {
			t.Fatalf("%d filters are left", x.Len())
		}
	})
}

// While filters come and go around it, one that stays is found in every message that it selects, and one that was never added
// in none.
func TestReadersSeeWhatStaysWhileFiltersChange(t *testing.T) {
	x := New[string](nil)
	x.Add(parse(t, filter.SQL92, "a = 'x' OR b > 5"), "stays")
	var stop atomic.Bool
	var wg sync.WaitGroup
	var matched atomic.Int64
	for i := range 3 {
		wg.Go(func() {
			var w Matcher
			var dst []string
			messages := []*filter.Message{
				{Properties: properties("a", "x", "b", "7", "c", strconv.Itoa(i))},
				{Properties: properties("b", "6", "c", "1")},
				{Properties: properties("c", "2", "a", "y")},
			}
			for n := 0; !stop.Load(); n++ {
				m := messages[n%3]
				dst = x.Match(dst[:0], m, &w)
				count := 0
				for _, o := range dst {
					if o == "stays" {
						count++
					} else if o != "a" && o != "b" && o != "c" {
						t.Errorf("owner %q", o)
					}
				}
				if want := 1 - n%3/2; count != want {
					t.Errorf("%q: found %d times, want %d", m.Properties, count, want)
					return
				}
				matched.Add(1)
			}
		})
	}
	for n := 0; n < 300 || matched.Load() < 300; n++ {
		name := string(rune('a' + n%3))
		e := parse(t, filter.SQL92, fmt.Sprintf("%s = '%d' OR %s > %d AND d%d IS NULL", name, n%7, name, n%5, n))
		x.Add(e, name)
		x.Remove(e, name)
	}
	stop.Store(true)
	wg.Wait()
	if n := x.now.Load().layout.Sources(); n > 70 {
		t.Errorf("places of %d sources are kept for one filter", n)
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	x := New[int](nil)
	for i := range 100 {
		x.Add(parse(t, filter.SQL92, fmt.Sprintf("a = '%d' OR b BETWEEN %d AND %d OR c IS NULL", i, i, i+5)), i)
	}
	m := &filter.Message{Properties: properties("a", "7", "b", "50", "c", "1")}
	var w Matcher
	dst := x.Match(nil, m, &w)
	if len(dst) != 7 {
		t.Fatalf("%v", dst)
	}
	if n := testing.AllocsPerRun(100, func() { dst = x.Match(dst[:0], m, &w) }); n > 0 {
		t.Errorf("%v allocations a message", n)
	}
}
