package exchange

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fusionmq/fusionmq/notify/mapping"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

func direct(expr string) state.Binding {
	return state.Binding{Kind: state.BindDirect, Expr: expr, WaterMark: -1}
}

func fanout() state.Binding { return state.Binding{Kind: state.BindFanout, WaterMark: -1} }

func props(tag string) []byte {
	if tag == "" {
		return []byte("UNIQ_KEY\x01A\x02")
	}
	return []byte("UNIQ_KEY\x01A\x02TAGS\x01" + tag + "\x02")
}

func TestTargetsListsEachGroupOnce(t *testing.T) {
	x := New()
	x.Bind(1, "T", "b", direct("paid"))
	x.Bind(2, "T", "a", fanout())
	x.Bind(3, "T", "a", direct("paid"))
	x.Bind(4, "T", "c", direct("sent"))
	for _, tc := range []struct {
		tag  string
		want []string
	}{
		{"paid", []string{"a", "b"}},
		{"sent", []string{"a", "c"}},
		{"", []string{"a"}},
		{"other", []string{"a"}},
	} {
		if got := x.Targets(nil, 10, "T", props(tc.tag)); !cmp.Equal(got, tc.want) {
			t.Errorf("Targets(tag %q) = %q, want %q", tc.tag, got, tc.want)
		}
	}
	x.Unbind(11, "T", "a", fanout())
	if got, want := x.Targets(nil, 12, "T", props("paid")), []string{"a", "b"}; !cmp.Equal(got, want) {
		t.Errorf("after the fanout binding went, Targets = %q, want %q", got, want)
	}
	if got := x.Targets(nil, 12, "T", props("")); len(got) != 0 {
		t.Errorf("after the fanout binding went, Targets without a tag = %q, want none", got)
	}
}

func TestCursorMatchesThroughTheBindingsOfTheMessagesPosition(t *testing.T) {
	x := New()
	x.Bind(100, "T", "g", direct("a"))
	x.Unbind(200, "T", "g", direct("a"))
	x.Bind(300, "T", "g", direct("b"))
	h := x.History("T", "g")
	for _, tc := range []struct {
		at   int64
		tag  string
		want bool
	}{
		{99, "a", false}, {100, "a", true}, {199, "a", true}, {200, "a", false}, {400, "a", false},
		{199, "b", false}, {300, "b", true}, {1 << 40, "b", true},
	} {
		if got := h.Match(tc.at, props(tc.tag)); got != tc.want {
			t.Errorf("Match(%d, %q) = %v, want %v", tc.at, tc.tag, got, tc.want)
		}
	}
	x.Forget("T", "g", 200)
	if got := x.History("T", "g").Len(); got != 1 {
		t.Errorf("after Forget(200) %d bindings are kept, want the one that holds", got)
	}
}

func TestVolatileBindingLeavesNothingForTheCursor(t *testing.T) {
	x := New()
	b := fanout()
	b.Volatile = true
	x.Bind(100, "T", "g", b)
	if !x.History("T", "g").Match(150, nil) || x.History("T", "g").Persistent(150, nil) {
		t.Error("a volatile binding that holds must match, but not as a persistent one")
	}
	x.Unbind(200, "T", "g", b)
	if x.History("T", "g").Match(150, nil) {
		t.Error("an ended volatile binding matched a cursor")
	}
}

func TestCheckNamesTheKind(t *testing.T) {
	err := Check(state.Binding{Kind: state.BindHeader})
	if !errors.Is(err, ErrKind) || err.Error() != "exchange: binding kind not served: kind header" {
		t.Errorf("Check(header) = %v", err)
	}
}

func TestSenderCanRestrictDeliveryToOneGroup(t *testing.T) {
	x := New()
	x.Bind(1, "T", "a", fanout())
	x.Bind(2, "T", "b", direct("paid"))
	for _, tc := range []struct {
		only string
		want []string
	}{
		{"a", []string{"a"}}, {"b", []string{"b"}}, {"c", nil},
	} {
		p := append(props("paid"), mapping.PrefixField+"target\x01"+tc.only+"\x02"...)
		if got := x.Targets(nil, 9, "T", p); !cmp.Equal(got, tc.want) {
			t.Errorf("Targets for %q only = %q, want %q", tc.only, got, tc.want)
		}
		if got := x.History("T", "a").Match(9, p); got != (tc.only == "a") {
			t.Errorf("group a matches a message for %q only: %v", tc.only, got)
		}
	}
}

// A naive exchange: the list of calls, looked at again for every question.
type call struct {
	at    int64
	bind  bool
	group string
	b     state.Binding
}

func naive(calls []call, at int64, group, tag string) bool {
	held := map[string]bool{}
	for _, c := range calls {
		if c.at > at || c.group != group {
			continue
		}
		held[fmt.Sprint(c.b.Kind, c.b.Expr)] = c.bind
	}
	return held[fmt.Sprint(state.BindFanout, "")] || held[fmt.Sprint(state.BindDirect, tag)]
}

// Law 1: targets are a function of the log up to the message; the index and the history must agree with a replay.
func TestLaw1TargetsAreAFunctionOfTheLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := New()
		var calls []call
		type message struct {
			at  int64
			tag string
		}
		var sent []message
		groups := []string{"a", "b", "c"}
		tags := []string{"x", "y", "z"}
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			at := int64(i+1) * 10
			g := rapid.SampledFrom(groups).Draw(t, "group")
			b := fanout()
			if rapid.Bool().Draw(t, "direct") {
				b = direct(rapid.SampledFrom(tags).Draw(t, "expr"))
			}
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				x.Bind(at, "T", g, b)
				calls = append(calls, call{at, true, g, b})
			case 1:
				x.Unbind(at, "T", g, b)
				calls = append(calls, call{at, false, g, b})
			case 2:
				tag := rapid.SampledFrom(tags).Draw(t, "tag")
				sent = append(sent, message{at, tag})
				got := x.Targets(nil, at, "T", props(tag))
				var want []string
				for _, g := range groups {
					if naive(calls, at, g, tag) {
						want = append(want, g)
					}
				}
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Fatalf("Targets(%d, %s) = %q, want %q", at, tag, got, want)
				}
			}
		}
		for _, m := range sent {
			for _, g := range groups {
				if got, want := x.History("T", g).Match(m.at, props(m.tag)), naive(calls, m.at, g, m.tag); got != want {
					t.Fatalf("History(%s).Match(%d, %s) = %v, want %v", g, m.at, m.tag, got, want)
				} else if may := x.History("T", g).MayMatch(m.at, record.TagsCode(props(m.tag))); may != want {
					t.Fatalf("History(%s).MayMatch(%d, %s) = %v, want %v", g, m.at, m.tag, may, want)
				}
			}
		}
	})
}

func BenchmarkTargets(b *testing.B) {
	for _, groups := range []int{1, 600} {
		b.Run(fmt.Sprintf("groups=%d/match=1%%", groups), func(b *testing.B) {
			x := New()
			for i := range groups {
				x.Bind(int64(i), "T", fmt.Sprintf("group-%d", i), direct(fmt.Sprintf("type-%d", i%100)))
			}
			p := props("type-0")
			var dst []string
			b.ReportAllocs()
			for b.Loop() {
				dst = x.Targets(dst[:0], 1000, "T", p)
			}
			if len(dst) != (groups+99)/100 {
				b.Fatalf("%d targets", len(dst))
			}
		})
	}
}
