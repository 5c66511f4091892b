package filter

import (
	"strings"
	"testing"
)

// holds tells whether a key holds for the message in a frame, as an index finds out, and whether that is enough.
func holds(k Key, f *Frame, l *Layout) (yes, exact bool) {
	if k.Kind == KeyAlways {
		return true, k.Exact
	}
	b, ok := f.Text(int32(l.Number(k.Source)), make([]byte, 32))
	switch {
	case !ok:
		return false, false
	case k.Kind == KeyPresent:
		return true, k.Exact
	case k.Kind == KeyText:
		return string(b) == k.Text, k.Exact
	}
	n, whole, ok := Number(b)
	return ok && (k.Low <= n && n <= k.High || n != n), whole && k.Exact
}

// checkKeys: a program that selects has a key that holds, and one with an exact key that holds selects.
func checkKeys(t interface{ Fatalf(string, ...any) }, p *Program, f *Frame, l *Layout, want Truth) {
	keys, more := p.Keys()
	for _, group := range [][]Key{keys, more} {
		any := false
		for _, k := range group {
			yes, exact := holds(k, f, l)
			if !yes {
				continue
			}
			any = true
			if exact && want != True {
				t.Fatalf("%v: key %+v is exact and holds, but the program says %v", p.Expr(), k, want)
			}
		}
		if want == True && !any && (len(group) > 0 || len(keys) == 0) {
			t.Fatalf("%v is true, but none of its keys holds: %+v", p.Expr(), group)
		}
	}
}

func TestKeysAreTheMostSelectiveOnes(t *testing.T) {
	for _, tc := range []struct {
		text string
		want KeyKind
		n    int
	}{
		{"a = 'x' AND b > 5", KeyText, 1},
		{"b > 5 AND a IN ('x', 'y')", KeyText, 2},
		{"a = 'x' OR b = 'y'", KeyText, 2},
		{"NOT (a <> 'x')", KeyText, 1},
		{"NOT (a <> 'x' OR b <> 'y')", KeyText, 1},
		{"NOT (a < 5)", KeyRange, 1},
		{"a > 5 AND a < 10", KeyRange, 1},
		{"a NOT BETWEEN 1 AND 5", KeyRange, 2},
		{"a <> 'x' AND b <> 'y'", KeyPresent, 1},
		{"a IS NULL AND b = 'x'", KeyText, 1},
		{"a IS NULL", KeyAlways, 1},
		{"a = 'x' AND FALSE", KeyAlways, 0},
	} {
		keys, _ := must(ParseSQL92(tc.text)).Compile(nil).Keys()
		if len(keys) != tc.n || tc.n > 0 && keys[0].Kind != tc.want {
			t.Errorf("%s: %+v", tc.text, keys)
		}
	}
	keys, more := must(ParseSQL92("a > 5 AND a < 10 AND a >= 6")).Compile(nil).Keys()
	if k := keys[0]; k.Low != 6 || k.High != 10 || len(more) > 0 {
		t.Errorf("ranges are not cut: %+v %+v", keys, more)
	}
	for text, want := range map[string]int{
		"a IN ('1','2','3','4','5') AND b IN ('1','2','3')": 5,
		"a > 5 AND b < 7":            1,
		"a = 'x' AND b IN ('1','2')": 0, // one is good enough
		"a > 5 AND b <> 'x'":         0, // the other is not
		"a > 5 OR b > 5":             0,
	} {
		if _, more := must(ParseSQL92(text)).Compile(nil).Keys(); len(more) != want {
			t.Errorf("%s: second keys %+v, want %d", text, more, want)
		}
	}
}

// Deep trees take no more time than they have nodes.
func TestDeepExpressionsAreCompiledAtOnce(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("(a > 1 AND (b < 2 OR ", 30) + "c = 3" + strings.Repeat("))", 30),
		strings.Repeat("NOT (a = 1 AND ", 31) + "c = 3" + strings.Repeat(")", 31),
		strings.Repeat("(", 60) + "a = 'x'" + strings.Repeat(" = TRUE)", 60),
		"a" + strings.Repeat(" = TRUE", 63) + " IS NULL",
	} {
		e, err := ParseSQL92(text)
		if err != nil {
			t.Fatal(err)
		}
		p := e.Compile(nil)
		p.Keys()
		if got, want := p.Eval(&Message{}), e.Eval(nil, &Message{}); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
