package filter

import (
	"bytes"
	"cmp"
)

// truth evaluates an instruction as a condition.
func (c *code) truth(i int32, f *Frame) Truth {
	in := &c.ins[i]
	switch in.op {
	case opConstant:
		return in.truth
	case opAnd:
		all := True
		for _, k := range c.kids[in.from:in.to] {
			switch c.truth(k, f) {
			case False:
				return False
			case Failed:
				return Failed
			case Unknown:
				all = Unknown
			}
		}
		return all
	case opOr:
		any := False
		for _, k := range c.kids[in.from:in.to] {
			switch c.truth(k, f) {
			case True:
				return True
			case Failed:
				return Failed
			case Unknown:
				any = Unknown
			}
		}
		return any
	case opNot:
		return c.truth(c.kids[in.from], f).not()
	case opField:
		return asCondition(c.rules, f.value(in.src))
	case opText:
		return in.compareText(f.value(in.src))
	case opInt:
		v := f.value(in.src)
		if v.kind == KindText {
			n, ok := javaLong(v.text)
			if !ok {
				return Failed
			}
			return truth(in.cmp.holds(cmp.Compare(n, int64(in.bits))))
		}
		return compareSQL92(in.cmp, v, in.value())
	case opNumber, opBool:
		return c.compare(in.cmp, f.value(in.src), in.value(), false)
	case opTwo:
		return c.compare(in.cmp, f.value(in.src), f.value(in.src2), false)
	case opNull:
		return truth((f.value(in.src).kind == KindNull) != in.not)
	case opSetOne:
		v := f.value(in.src)
		if v.kind != KindText {
			return c.inSet(in, v)
		}
		for _, t := range in.rare.set.few {
			if string(v.text) == t {
				return truth(!in.not)
			}
		}
		return truth(in.not)
	case opSet:
		return c.inSet(in, f.value(in.src))
	case opPart, opLike, opSearch:
		return c.onText(in, f.value(in.src))
	}
	return c.rare(in, f)
}

func (in *instruction) compareText(v Value) Truth {
	if v.kind != KindText {
		if v.kind == KindNull {
			return Unknown
		}
		var buf [32]byte
		return truth(in.cmp.holds(bytes.Compare(v.appendText(buf[:0]), bytesOf(in.text))))
	}
	switch in.cmp {
	case eq:
		return truth(string(v.text) == in.text)
	case ne:
		return truth(string(v.text) != in.text)
	}
	return truth(in.cmp.holds(bytes.Compare(v.text, bytesOf(in.text))))
}

func (c *code) compare(op comparison, l, r Value, texts bool) Truth {
	if c.rules == SQL92 {
		return compareSQL92(op, l, r)
	}
	return compareNotify(op, l, r, texts)
}

func (c *code) inSet(in *instruction, v Value) Truth {
	t := False
	switch {
	case v.kind == kindFailed:
		return Failed
	case v.kind == KindNull, c.rules == SQL92 && v.kind != KindText:
		return Unknown
	case v.kind == KindText:
		t = in.rare.set.has(v.text)
	default:
		t = inList(c.rules, v, in.rare.set.list)
	}
	if in.not {
		return t.not()
	}
	return t
}

// onText evaluates a search in a text.
func (c *code) onText(in *instruction, v Value) Truth {
	if v.kind == KindText {
		if in.rare.re != nil {
			return truth(in.rare.re.Match(v.text))
		}
		return in.find(v.text)
	}
	if c.rules == SQL92 || v.kind == KindNull || v.kind == kindFailed {
		_, t := textOf(c.rules, v)
		return t
	}
	if in.rare.re != nil {
		return truth(in.rare.re.Match(v.appendText(nil))) // a pattern over a number: nobody writes that
	}
	var buf [32]byte
	return in.find(v.appendText(buf[:0]))
}

// find is a search for a piece or by LIKE.
func (in *instruction) find(b []byte) Truth {
	if in.op == opPart || in.op == opKidPart {
		return truth(in.text != "" && matchPart(in.rare.where, b, in.text) != in.not)
	}
	return truth(in.rare.like.match(b) != in.not)
}

// rare evaluates the forms whose operands are conditions or literals.
func (c *code) rare(in *instruction, f *Frame) Truth {
	v := c.value(c.kids[in.from], f)
	switch in.op {
	case opCompare:
		if v.kind == kindFailed {
			return Failed
		}
		return c.compare(in.cmp, v, c.value(c.kids[in.from+1], f), in.rare.texts)
	case opKidNull:
		if v.kind == kindFailed {
			return Failed
		}
		return truth((v.kind == KindNull) != in.not)
	case opKidIn:
		return c.inSet(in, v)
	}
	return c.onText(in, v)
}

// value evaluates an instruction as an operand.
func (c *code) value(i int32, f *Frame) Value {
	in := &c.ins[i]
	switch in.op {
	case opValue:
		return in.rare.v
	case opField:
		return f.value(in.src)
	}
	switch c.truth(i, f) {
	case True:
		return Bool(true)
	case False:
		return Bool(false)
	case Failed:
		return Value{kind: kindFailed}
	}
	return Null()
}
