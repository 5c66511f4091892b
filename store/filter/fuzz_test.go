package filter

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// wide are limits for what a canonical text may have more of than the text that it was made from.
var wide = Limits{Bytes: 1 << 20, Terms: 1 << 14, Depth: 400, Literals: 1 << 14}

// check holds everything that is true of any text and any properties.
func check(t interface {
	Errorf(string, ...any)
	Fatalf(string, ...any)
}, rules Rules, text string, props []byte) *Expr {
	e, err := Parse(rules, text, Limits{})
	if err != nil {
		var s *SyntaxError
		if !errors.As(err, &s) || s.Position < 1 || s.Position > len(text)+1 || s.Reason == "" || len(err.Error()) > 8192 {
			t.Errorf("error of %q: %+v", text, s)
		}
		return nil
	}
	spellings := []Spelling{SQL}
	if rules == Notify {
		spellings = append(spellings, Java)
	}
	for _, s := range spellings {
		printed := e.Print(s)
		again, err := Parse(rules, printed, wide)
		if err != nil {
			t.Fatalf("%q prints as %q: %v", text, printed, err)
		}
		if !again.Equal(e) || again.String() != e.String() {
			t.Fatalf("%q prints as %q, which is %q", text, printed, again)
		}
	}
	m := &Message{Properties: props, Fields: someFields}
	for _, schema := range []Schema{Plain, mapped{}} {
		p := e.Compile(schema)
		want := e.Eval(schema, m)
		if got := p.Eval(m); got != want {
			t.Fatalf("%q with %q: tree %v, program %v", text, props, want, got)
		}
		var f Frame
		other, l := must(ParseNotify("property.zz == 1 && topic == 'x'")).Compile(schema).Bind(new(Layout))
		b, l := p.Bind(l)
		for range 2 {
			f.Load(l, m)
			if got := b.Eval(&f); got != want {
				t.Fatalf("%q with %q: tree %v, bound %v", text, props, want, got)
			}
			other.Eval(&f)
			f.Load(l, &Message{})
		}
		f.Load(l, m)
		checkKeys(t, p, &f, l, want)
	}
	return e
}

func must(e *Expr, err error) *Expr {
	if err != nil {
		panic(err)
	}
	return e
}

func FuzzSQL92(f *testing.F) {
	addSeeds(f, "a > 5 AND b IN ('x', 'y')", "NOT a = 1", "a = 5 = TRUE IS NULL", "a BETWEEN -1 AND 5.5 OR NOT (b CONTAINS 'x')", "`a b` = 'it''s' -- c", "a >", "((((")
	f.Fuzz(func(t *testing.T, text string, props []byte) { check(t, SQL92, text, props) })
}

func FuzzNotify(f *testing.F) {
	addSeeds(f, "property.a == 1 && !(b in (1, 'x', null, true))", "messageType =~ /^2\\/3/ || a like '_%!%' escape '!'", "priority between 1 and property.`a b`",
		`a == "\u00e9\n" and Committed`, "a == null", "!!!a", "property.")
	f.Fuzz(func(t *testing.T, text string, props []byte) { check(t, Notify, text, props) })
}

func addSeeds(f *testing.F, texts ...string) {
	for _, text := range texts {
		f.Add(text, []byte{})
		f.Add(text, properties("a", "5", "b", "x", "a b", "true"))
		f.Add(text, append(properties("a", "x"), "b\x01\x02\x02a\x017"...))
	}
}

// expression draws a text of a language. Most of its atoms are about the same few properties.
func expression(t *rapid.T, rules Rules, depth int) string {
	pick := func(of ...string) string { return rapid.SampledFrom(of).Draw(t, "pick") }
	name := func() string {
		if rules == Notify {
			return pick("a", "property.b", "c", "property.`a b`", "messageType", "priority", "timeToLive", "Committed", "property.KEYS", "bornTime")
		}
		return pick("a", "b", "c", "`a b`", "TAGS")
	}
	number := func() string { return pick("5", "-3", "5.5", "1e2", "9223372036854775807", "7") }
	text := func() string { return pick("'x'", "'5'", "'true'", "'it''s'", "'axb'", "''") }
	value := func() string {
		return pick(number(), text(), pick("true", "FALSE"))
	}
	if depth < 3 {
		switch rapid.IntRange(0, 9).Draw(t, "form") {
		case 0, 1:
			return expression(t, rules, depth+1) + pick(" AND ", " and ") + expression(t, rules, depth+1)
		case 2, 3:
			return expression(t, rules, depth+1) + pick(" OR ", " or ") + expression(t, rules, depth+1)
		case 4:
			return pick("NOT ", "not ") + "(" + expression(t, rules, depth+1) + ")"
		case 5:
			return "(" + expression(t, rules, depth+1) + ")"
		case 6:
			if rules == Notify {
				return expression(t, rules, depth+1) + pick(" && ", "||") + "!" + expression(t, rules, depth+1)
			}
			return "(" + expression(t, rules, depth+1) + ")" + pick(" = ", " <> ") + value()
		}
	}
	negation := pick(" ", " ", " not ")
	switch rapid.IntRange(0, 9).Draw(t, "atom") {
	case 0, 1:
		return name() + pick(" = ", " <> ") + value()
	case 2, 3:
		return name() + pick(" < ", " <= ", " > ", " >= ") + number()
	case 4:
		return name() + negation + "between " + number() + " and " + pick(number(), name())
	case 5:
		if rules == Notify {
			return name() + negation + "in (" + value() + ", " + pick(value(), "null") + ", " + value() + ")"
		}
		return name() + negation + "in (" + text() + ", " + text() + ")"
	case 6:
		return name() + negation + pick("contains", "startswith", "endswith") + pick(" 'x'", " 'a'", " '5'")
	case 7:
		return name() + pick(" is null", " is not null")
	case 8:
		if rules == Notify {
			return pick(name()+" like 'a%b'", name()+" =~ /^a|5$/", name()+" < 'y'", value()+" == "+name(), name()+" != null", "true")
		}
		return pick(name(), "not "+name(), value()+" = "+name(), "TRUE")
	}
	return name() + pick(" = ", " < ", " <> ", " >= ") + name()
}

func drawProperties(t *rapid.T) []byte {
	var pairs []string
	for i := range rapid.IntRange(0, 6).Draw(t, "properties") {
		name := rapid.SampledFrom([]string{"a", "b", "c", "a b", "TAGS", "__n.timeToLive", "__e.a", "__h.KEYS", "other"}).Draw(t, fmt.Sprint("name", i))
		value := rapid.SampledFrom([]string{"5", "7", "-3", "5.5", "x", "axb", "true", "False", "100", "9223372036854775807", "1e2", "it's", "05", "NaN", "a\x01b", " "}).Draw(t, fmt.Sprint("value", i))
		pairs = append(pairs, name, value)
	}
	return properties(pairs...)
}

// Trees, programs, canonical texts and index keys of random expressions agree on random messages.
func TestRandomExpressions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SampledFrom([]Rules{SQL92, Notify}).Draw(t, "rules")
		check(t, rules, expression(t, rules, 0), drawProperties(t))
	})
}

// The generator of the random test has to make expressions, or the test says nothing.
func TestRandomExpressionsAreMostlyExpressions(t *testing.T) {
	good, all := 0, 0
	why := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SampledFrom([]Rules{SQL92, Notify}).Draw(t, "rules")
		all++
		_, err := Parse(rules, expression(t, rules, 0), Limits{})
		if err == nil {
			good++
		} else {
			why[strings.SplitN(err.Error(), " at ", 2)[0]]++
		}
	})
	if good*2 < all {
		t.Errorf("%d of %d: %v", good, all, why)
	}
}
