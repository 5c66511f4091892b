package filter

import "regexp"

// Eval says what the expression is for a message, by walking the tree: the plain meaning, slowly. A nil schema is Plain.
func (e *Expr) Eval(s Schema, m *Message) Truth {
	if s == nil {
		s = Plain
	}
	w := walker{e.rules, s, m}
	return w.truth(e.root)
}

// walker evaluates a tree for one message. Without a message nothing but literals has a value.
type walker struct {
	rules  Rules
	schema Schema
	m      *Message
}

// truth evaluates a node as a condition.
func (w *walker) truth(n node) Truth {
	switch n := n.(type) {
	case *and:
		all := True
		for _, x := range n.list {
			switch w.truth(x) {
			case False:
				return False
			case Failed:
				return Failed
			case Unknown:
				all = Unknown
			}
		}
		return all
	case *or:
		any := False
		for _, x := range n.list {
			switch w.truth(x) {
			case True:
				return True
			case Failed:
				return Failed
			case Unknown:
				any = Unknown
			}
		}
		return any
	case *not:
		return w.truth(n.x).not()
	case *compare:
		return w.compare(n.op, n.l, n.r)
	case *between:
		if n.not {
			return w.truth(&or{[]node{&compare{lt, n.x, n.low}, &compare{gt, n.x, n.high}}})
		}
		return w.truth(&and{[]node{&compare{ge, n.x, n.low}, &compare{le, n.x, n.high}}})
	case *in:
		return w.in(n)
	case *part:
		b, t := w.text(n.x)
		if t != True {
			return t
		}
		if n.text == "" {
			return False
		}
		return truth(matchPart(n.where, b, n.text) != n.not)
	case *like:
		b, t := w.text(n.x)
		if t != True {
			return t
		}
		return truth(compileLike(n.pattern, n.escape).match(b) != n.not)
	case *search:
		b, t := w.text(n.x)
		if t != True {
			return t
		}
		return truth(regexp.MustCompile(n.pattern).Match(b))
	case *isNull:
		v := w.value(n.x)
		if v.kind == kindFailed {
			return Failed
		}
		return truth((v.kind == KindNull) != n.not)
	}
	return asCondition(w.rules, w.value(n))
}

// asCondition is what a field or literal is as a condition.
func asCondition(rules Rules, v Value) Truth {
	switch v.kind {
	case KindBool:
		return truth(v.bool())
	case KindNull:
		return Unknown
	case kindFailed:
		return Failed
	}
	if rules == SQL92 {
		return False
	}
	if b, ok := boolean(v.text); ok && v.kind == KindText {
		return truth(b)
	}
	return Unknown
}

// value evaluates a node as an operand.
func (w *walker) value(n node) Value {
	switch n := n.(type) {
	case *literal:
		return n.v
	case *property:
		return w.source(w.schema.Property(n.name))
	case *system:
		return w.source(w.schema.System(n.field))
	}
	switch w.truth(n) {
	case True:
		return Bool(true)
	case False:
		return Bool(false)
	case Failed:
		return Value{kind: kindFailed}
	}
	return Null()
}

func (w *walker) source(s Source) Value { return s.value(w.m) }

// text evaluates the operand of a search in a text. What is not True is the result: without a text RocketMQ's searches are
// false, Notify's unknown.
func (w *walker) text(n node) ([]byte, Truth) {
	return textOf(w.rules, w.value(n))
}

func textOf(rules Rules, v Value) ([]byte, Truth) {
	switch {
	case v.kind == kindFailed:
		return nil, Failed
	case v.kind == KindText:
		return v.text, True
	case rules == SQL92:
		return nil, False
	case v.kind == KindNull:
		return nil, Unknown
	}
	return v.appendText(nil), True
}

func (w *walker) compare(op comparison, l, r node) Truth {
	if w.rules == SQL92 {
		return compareSQL92(op, w.value(l), w.value(r))
	}
	a, b := w.value(l), w.value(r)
	return compareNotify(op, a, b, isLiteral(l) && a.kind == KindText || isLiteral(r) && b.kind == KindText)
}

func (w *walker) in(n *in) Truth {
	v := w.value(n.x)
	if v.kind == KindNull || w.rules == SQL92 && v.kind != KindText {
		return Unknown // RocketMQ's lists hold texts only
	}
	any := inList(w.rules, v, n.list)
	if n.not {
		return any.not()
	}
	return any
}

// inList tells whether one of the members equals v: unknown if none does and the comparison with one is.
func inList(rules Rules, v Value, list []Value) Truth {
	any := False
	for _, member := range list {
		switch inMember(rules, v, member) {
		case True:
			return True
		case Unknown:
			any = Unknown
		}
	}
	return any
}

// inMember compares with a member of a list.
func inMember(rules Rules, v, member Value) Truth {
	if rules == SQL92 {
		return compareSQL92(eq, v, member)
	}
	return compareNotify(eq, v, member, member.kind == KindText)
}
