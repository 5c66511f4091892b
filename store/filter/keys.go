package filter

import (
	"math"
	"slices"
)

// KeyKind says what a Key asks of a message.
type KeyKind uint8

// The kinds, the most selective ones first.
const (
	KeyText    KeyKind = iota // the source is this text
	KeyRange                  // the source is a number between two bounds, both included
	KeyPresent                // the source has a value
	KeyAlways                 // nothing
)

// Key is a simple condition on one source. Keys are what an index of many programs is made of.
type Key struct {
	Kind      KeyKind
	Source    Source
	Text      string
	Low, High float64 // of KeyRange; infinite where it is open
	Exact     bool    // the program selects every message that the key holds for, if with KeyRange Number calls the value whole
}

// Keys returns conditions of which at least one holds for every message that the program selects, no two of them alike: an
// index has to look only at programs whose keys hold for a message. Numbers are compared as float64, so a range can hold for
// a little more than it should. No keys say that no message is selected.
//
// With more, at least one of those holds for every such message, too: they are given when the first ones alone would hold
// much too often.
func (p *Program) Keys() (keys, more []Key) {
	k := keyMaker{rules: p.expr.rules, schema: p.schema}
	keys = k.true(p.root)
	if all, ok := p.root.(*and); ok {
		more = k.second(all.list, keys)
	}
	if len(keys) > maxKeys {
		return always, nil
	}
	return distinct(keys), distinct(more)
}

// distinct drops keys that ask the same as one before.
func distinct(keys []Key) []Key {
	seen := make(map[Key]bool, len(keys))
	return slices.DeleteFunc(slices.Clone(keys), func(k Key) bool {
		k.Exact = false
		again := seen[k]
		seen[k] = true
		return again
	})
}

// selective is the cost of keys with which there is nothing to gain from more of them.
const selective = 3

// second returns the keys of a member of a conjunction beside the one that best chose, if they are about as good.
func (k *keyMaker) second(list []node, best []Key) []Key {
	if c := cost(best); c < selective || c >= costPresent {
		return nil
	}
	limit := 2 * cost(best)
	var more []Key
	for _, n := range list {
		keys := k.true(n)
		if c := cost(keys); c > limit || about(keys, best) || len(more) > 0 && c >= cost(more) {
			continue
		}
		more = keys
	}
	return inexact(more, true)
}

// about tells whether the keys have a source in common.
func about(a, b []Key) bool {
	return slices.ContainsFunc(a, func(k Key) bool {
		return slices.ContainsFunc(b, func(l Key) bool { return k.Source == l.Source })
	})
}

// maxKeys is up to how many keys of one program are worth it.
const maxKeys = 4096

// Number reads a text as keys of KeyRange compare it: every text that any rule takes for a number in a range is one. whole
// says that all rules read the same number, and this one exactly.
func Number(b []byte) (f float64, whole, ok bool) {
	if len(b) == 0 || b[0] > '9' && b[0] != 'N' && b[0] != 'I' {
		return 0, false, false
	}
	if v, ok := javaLong(b); ok {
		return float64(v), b[0] != '+' && -maxExact <= v && v <= maxExact, true
	}
	f, ok = javaDouble(b)
	return f, false, ok
}

// maxExact is up to which whole numbers are float64 exactly.
const maxExact = 1 << 53

type keyMaker struct {
	rules  Rules
	schema Schema
}

var always = []Key{{Kind: KeyAlways}}

// true makes keys for a node being true.
func (k *keyMaker) true(n node) []Key {
	switch n := n.(type) {
	case *and:
		return k.best(n.list, k.true)
	case *or:
		return k.union(n.list, k.true)
	case *not:
		return k.false(n.x)
	case *literal:
		if asConstant(n.v) == True {
			return []Key{{Kind: KeyAlways, Exact: true}}
		}
		return nil
	case *compare:
		return k.compare(n.op, n.l, n.r)
	case *between:
		return k.between(n, n.not)
	case *in:
		if n.not {
			return k.present(n.x)
		}
		return k.in(n)
	case *part:
		return k.present(n.x)
	case *like:
		return k.present(n.x)
	case *search:
		return k.present(n.x)
	case *isNull:
		if src, ok := sourceOf(k.schema, n.x); ok && n.not {
			return []Key{{Kind: KeyPresent, Source: src, Exact: true}}
		}
		return always
	}
	return k.present(n) // a field that is true
}

// false makes keys for a node being false.
func (k *keyMaker) false(n node) []Key {
	switch n := n.(type) {
	case *and:
		return k.union(n.list, k.false)
	case *or:
		return k.best(n.list, k.false)
	case *not:
		return k.true(n.x)
	case *literal:
		if asConstant(n.v) == False {
			return []Key{{Kind: KeyAlways, Exact: true}}
		}
		return nil
	case *compare:
		return k.compare(n.op.negate(), n.l, n.r)
	case *between:
		return k.between(n, !n.not)
	case *in:
		if n.not {
			return k.in(n)
		}
		return k.present(n.x)
	case *part:
		if k.rules == SQL92 {
			return always // false for a property that is missing
		}
		return k.present(n.x)
	case *like:
		return k.present(n.x)
	case *search:
		return k.present(n.x)
	case *isNull:
		if src, ok := sourceOf(k.schema, n.x); ok && !n.not {
			return []Key{{Kind: KeyPresent, Source: src, Exact: true}}
		}
		return always
	}
	return k.present(n)
}

// present makes the key for a node whose truth is known only with a value for x.
func (k *keyMaker) present(x node) []Key {
	if src, ok := sourceOf(k.schema, x); ok {
		return []Key{{Kind: KeyPresent, Source: src}}
	}
	return always
}

// best takes the keys of the member that seems to hold for the fewest messages. Ranges of one source are cut first; nothing
// but exact ones of one source make an exact one.
func (k *keyMaker) best(list []node, of func(node) []Key) []Key {
	var best, cut []Key
	exact := true // as far as one key goes
	for i, n := range list {
		keys := of(n) // once: trees are deep
		if i == 0 || cost(keys) < cost(best) {
			best = keys
		}
		if len(keys) != 1 || keys[0].Kind != KeyRange {
			exact = false
			continue
		}
		exact = exact && keys[0].Exact
		at := slices.IndexFunc(cut, func(c Key) bool { return c.Source == keys[0].Source })
		if at < 0 {
			cut = append(cut, keys[0])
			continue
		}
		c := &cut[at]
		c.Low, c.High = max(c.Low, keys[0].Low), min(c.High, keys[0].High)
	}
	for _, c := range cut {
		if one := []Key{c}; cost(one) < cost(best) {
			best = one
		}
	}
	return inexact(best, len(list) > 1 && !(exact && len(cut) == 1))
}

func (k *keyMaker) union(list []node, of func(node) []Key) []Key {
	var all []Key
	for _, n := range list {
		all = append(all, of(n)...)
	}
	// A member that may fail can keep another one from being asked.
	return inexact(all, k.rules == SQL92)
}

func inexact(keys []Key, yes bool) []Key {
	if !yes {
		return keys
	}
	keys = slices.Clone(keys)
	for i := range keys {
		keys[i].Exact = false
	}
	return keys
}

const (
	costPresent = 200
	costAlways  = 1000
)

// cost guesses how often keys hold.
func cost(keys []Key) float64 {
	sum := 0.0
	for _, k := range keys {
		switch k.Kind {
		case KeyText:
			sum++
		case KeyRange:
			switch {
			case k.Low > k.High:
			case math.IsInf(k.Low, 0) || math.IsInf(k.High, 0):
				sum += 50
			case k.Low == k.High:
				sum++
			default:
				sum += 10
			}
		case KeyPresent:
			sum += costPresent
		case KeyAlways:
			sum += costAlways
		}
	}
	return sum
}

func (k *keyMaker) compare(op comparison, l, r node) []Key {
	if isLiteral(l) {
		op, l, r = op.flip(), r, l
	}
	src, ok := sourceOf(k.schema, l)
	if !ok {
		return always
	}
	lit, ok := r.(*literal)
	switch {
	case !ok:
		// Two fields, or a field and a condition: known only with a value on the left.
		return k.present(l)
	case lit.v.kind == KindText && op == eq:
		return []Key{{Kind: KeyText, Source: src, Text: string(lit.v.text), Exact: true}}
	case lit.v.numeric() && op != ne:
		key := Key{Kind: KeyRange, Source: src, Low: math.Inf(-1), High: math.Inf(1)}
		f := lit.v.number()
		if op == eq || op == lt || op == le {
			key.High = f
		}
		if op == eq || op == gt || op == ge {
			key.Low = f
		}
		key.Exact = lit.v.kind == KindInt && -maxExact <= f && f <= maxExact && op != lt && op != gt
		return []Key{key}
	}
	return k.present(l)
}

func (k *keyMaker) between(n *between, outside bool) []Key {
	if outside {
		return k.union([]node{&compare{lt, n.x, n.low}, &compare{gt, n.x, n.high}}, k.true)
	}
	return k.best([]node{&compare{ge, n.x, n.low}, &compare{le, n.x, n.high}}, k.true)
}

func (k *keyMaker) in(n *in) []Key {
	src, ok := sourceOf(k.schema, n.x)
	if !ok {
		return always
	}
	var keys []Key
	for _, v := range n.list {
		switch {
		case v.kind == KindText:
			keys = append(keys, Key{Kind: KeyText, Source: src, Text: string(v.text), Exact: true})
		case v.numeric():
			f := v.number()
			keys = append(keys, Key{Kind: KeyRange, Source: src, Low: f, High: f, Exact: v.kind == KindInt && -maxExact <= f && f <= maxExact})
		case v.kind == KindBool:
			keys = append(keys, Key{Kind: KeyPresent, Source: src})
		}
	}
	return keys
}
