package filter

import (
	"strings"
	"testing"
)

// holds tells whether a key holds for the message in a frame, as an index finds out.
func holds(k Key, f *Frame, l *Layout) bool {
	if k.Kind == KeyAlways {
		return true
	}
	v := Value{}
	for i := range l.Sources() {
		if l.Source(i) == k.Source {
			v = f.Value(i)
		}
	}
	switch k.Kind {
	case KeyPresent:
		return v.Kind() != KindNull
	case KeyText:
		return v.Kind() != KindNull && string(v.AppendText(nil)) == k.Text
	}
	n, ok := v.Number()
	return ok && (k.Low <= n && n <= k.High || n != n)
}

// checkKeys: a program that selects has a key that holds, and one with an exact key that holds selects.
func checkKeys(t interface{ Fatalf(string, ...any) }, p *Program, f *Frame, l *Layout, want Truth) {
	any := false
	for _, k := range p.Keys() {
		if !holds(k, f, l) {
			continue
		}
		any = true
		if k.Exact && want != True {
			t.Fatalf("%v: key %+v is exact and holds, but the program says %v", p.Expr(), k, want)
		}
	}
	if want == True && !any {
		t.Fatalf("%v is true, but none of its keys holds: %+v", p.Expr(), p.Keys())
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
		keys := must(ParseSQL92(tc.text)).Compile(nil).Keys()
		if len(keys) != tc.n || tc.n > 0 && keys[0].Kind != tc.want {
			t.Errorf("%s: %+v", tc.text, keys)
		}
	}
	k := must(ParseSQL92("a > 5 AND a < 10 AND a >= 6")).Compile(nil).Keys()[0]
	if k.Low != 6 || k.High != 10 {
		t.Errorf("ranges are not cut: %+v", k)
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
