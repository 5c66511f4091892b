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
	Exact     bool    // the program selects every message that the key holds for
}

// Keys returns conditions of which at least one holds for every message that the program selects: an index has to look
// only at the programs whose keys hold for a message. Numbers are compared as float64, so a range can hold for a little
// more than it should. nil says that no message is selected.
func (p *Program) Keys() []Key {
	k := keyMaker{rules: p.expr.rules, schema: p.schema}
	keys := k.true(p.root)
	if len(keys) > maxKeys {
		return []Key{{Kind: KeyAlways}}
	}
	return keys
}

// maxKeys is up to how many keys of one program are worth it.
const maxKeys = 4096

// Number reads a text as keys of KeyRange compare it: every text that any rule takes for a number in a range is one.
func Number(b []byte) (float64, bool) {
	if len(b) == 0 || b[0] > '9' && b[0] != 'N' && b[0] != 'I' {
		return 0, false
	}
	if v, ok := javaLong(b); ok {
		return float64(v), true
	}
	return javaDouble(b)
}

// Number is the value as a number; texts are read as keys of KeyRange compare them.
func (v Value) Number() (float64, bool) {
	if v.kind == KindText {
		return Number(v.text)
	}
	return v.number(), v.numeric()
}

// AppendText appends the value as keys of KeyText compare it.
func (v Value) AppendText(dst []byte) []byte { return v.appendText(dst) }

// Bytes is the text of a text; it aliases the message.
func (v Value) Bytes() []byte { return v.text }

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

// best takes the keys of the member that seems to hold for the fewest messages. Ranges of one source are cut first.
func (k *keyMaker) best(list []node, of func(node) []Key) []Key {
	var best, cut []Key
	for i, n := range list {
		keys := of(n) // once: trees are deep
		if i == 0 || cost(keys) < cost(best) {
			best = keys
		}
		if len(keys) != 1 || keys[0].Kind != KeyRange {
			continue
		}
		at := slices.IndexFunc(cut, func(c Key) bool { return c.Source == keys[0].Source })
		if at < 0 {
			cut = append(cut, keys[0])
			continue
		}
		c := &cut[at]
		c.Low, c.High, c.Exact = max(c.Low, keys[0].Low), min(c.High, keys[0].High), false
	}
	for _, c := range cut {
		if one := []Key{c}; cost(one) < cost(best) {
			best = one
		}
	}
	return inexact(best, len(list) > 1)
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
			sum += 200
		case KeyAlways:
			sum += 1000
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
		low, high := math.Inf(-1), math.Inf(1)
		f := lit.v.number()
		switch op {
		case eq:
			low, high = f, f
		case lt, le:
			high = f
		default:
			low = f
		}
		return []Key{{Kind: KeyRange, Source: src, Low: low, High: high}}
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
			keys = append(keys, Key{Kind: KeyRange, Source: src, Low: v.number(), High: v.number()})
		case v.kind == KindBool:
			keys = append(keys, Key{Kind: KeyPresent, Source: src})
		}
	}
	return keys
}
