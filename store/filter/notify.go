package filter

import (
	"strings"
	"unicode/utf8"
)

// The grammar of Notify's filters (spec/notify.md 4.2 with rulings A31 and A34 to A38): OR; AND; NOT; comparisons, which do
// not chain. Every operator may be written as in Java or as in SQL.

func (p *parser) notifyOr() (node, *SyntaxError)  { return p.notifyChain("||", "OR", p.notifyAnd) }
func (p *parser) notifyAnd() (node, *SyntaxError) { return p.notifyChain("&&", "AND", p.notifyNot) }

func (p *parser) notifyChain(sign, word string, member func() (node, *SyntaxError)) (node, *SyntaxError) {
	here := func() bool { return p.tok.is(tokSign, sign) || p.tok.is(tokKeyword, word) }
	at := p.tok.at
	n, err := member()
	if err != nil || !here() {
		return n, err
	}
	if err := p.term(p.tok.at); err != nil {
		return nil, err
	}
	var list []node
	for {
		if n, err = p.condition(n, at); err != nil {
			return nil, err
		}
		list = append(list, n)
		if !here() {
			return chain(word == "AND", list), nil
		}
		if err := p.advance(); err != nil {
			return nil, err
		}
		at = p.tok.at
		if n, err = member(); err != nil {
			return nil, err
		}
	}
}

func (p *parser) notifyNot() (node, *SyntaxError) {
	at := p.tok.at
	if !p.tok.is(tokSign, "!") && !p.tok.is(tokKeyword, "NOT") {
		return p.notifyPredicate()
	}
	return p.negation(at, p.notifyNot)
}

// notifyPredicate parses a comparison. It may also be a field or a literal alone: whoever needs a condition checks that it
// is one, since in brackets it can still be compared.
func (p *parser) notifyPredicate() (node, *SyntaxError) {
	at := p.tok.at
	n, err := p.notifyOperand()
	if err != nil {
		return nil, err
	}
	made, op, err := p.notifyOperator(n, at)
	if err != nil {
		return nil, err
	}
	if made == nil {
		return n, nil
	}
	return made, p.term(op)
}

func isLiteral(n node) bool {
	_, ok := n.(*literal)
	return ok
}

// value checks that a node can be compared: it is a field or a literal.
func (p *parser) value(n node, at int) *SyntaxError {
	if !isField(n) && !isLiteral(n) {
		return p.fail(at, "a condition cannot be compared")
	}
	return nil
}

// notifyOperator parses what may follow an operand; nil when nothing does.
func (p *parser) notifyOperator(l node, at int) (made node, op int, err *SyntaxError) {
	op = p.tok.at
	if c, ok := notifyComparison(p.tok); ok {
		if err := p.value(l, at); err != nil {
			return nil, op, err
		}
		if err := p.advance(); err != nil {
			return nil, op, err
		}
		right := p.tok.at
		r, err := p.notifyOperand()
		if err != nil {
			return nil, op, err
		}
		if err := p.value(r, right); err != nil {
			return nil, op, err
		}
		made, err := p.notifyCompare(c, l, r, op)
		return made, op, err
	}
	if p.tok.is(tokSign, "=~") {
		if err := p.value(l, at); err != nil {
			return nil, op, err
		}
		t, err := p.lex.pattern()
		if err == nil {
			err = p.checkPattern(t.text, t.at)
		}
		if err != nil {
			return nil, op, err
		}
		return &search{l, t.text}, op, p.advance()
	}
	if is, err := p.accept(tokKeyword, "IS"); err != nil || is {
		if err == nil {
			err = p.value(l, at)
		}
		if err != nil {
			return nil, op, err
		}
		negated, err := p.accept(tokKeyword, "NOT")
		if err != nil {
			return nil, op, err
		}
		if !p.tok.is(tokKeyword, "NULL") && !p.tok.is(tokKeyword, "NIL") {
			return nil, op, p.unexpected("NULL")
		}
		return &isNull{l, negated}, op, p.advance()
	}
	word, negated, err := p.acceptNot("BETWEEN", "IN", "LIKE", "CONTAINS", "STARTSWITH", "ENDSWITH")
	if err != nil || word == "" {
		return nil, op, err
	}
	if err := p.value(l, at); err != nil {
		return nil, op, err
	}
	made, err = p.notifyWord(word, negated, l)
	return made, op, err
}

func (p *parser) notifyWord(word string, negated bool, l node) (node, *SyntaxError) {
	at := p.tok.at
	switch word {
	case "BETWEEN":
		return p.notifyBetween(l, negated)
	case "IN":
		list, err := p.literals(p.member)
		return &in{x: l, list: list, not: negated}, err
	case "LIKE":
		n := &like{x: l, not: negated}
		var err *SyntaxError
		if n.pattern, err = p.textLiteral("a text"); err != nil {
			return nil, err
		}
		if with, err := p.accept(tokKeyword, "ESCAPE"); err != nil {
			return nil, err
		} else if with {
			at := p.tok.at
			s, err := p.textLiteral("a text")
			if err != nil {
				return nil, err
			}
			if utf8.RuneCountInString(s) != 1 {
				return nil, p.fail(at, "ESCAPE wants one character")
			}
			n.escape, _ = utf8.DecodeRuneInString(s)
			if !likeComplete(n.pattern, n.escape) {
				return nil, p.fail(at, "the pattern of LIKE ends with its escape character")
			}
		}
		for i, piece := range compileLike(n.pattern, n.escape) {
			if i > 0 && piece.text == nil && len(piece.runes) > maxWild {
				return nil, p.fail(at, "more than %d characters with a _ among them between two %% of LIKE", maxWild)
			}
		}
		return n, nil
	}
	s, err := p.textLiteral("a text")
	if err == nil && s == "" {
		err = p.fail(at, "%s wants a text that is not empty", word)
	}
	return &part{where: placeOf(word), x: l, text: s, not: negated}, err
}

func notifyComparison(t token) (comparison, bool) {
	if t.kind != tokSign {
		return 0, false
	}
	switch t.text {
	case "==", "=":
		return eq, true
	case "!=", "<>":
		return ne, true
	case "<":
		return lt, true
	case "<=":
		return le, true
	case ">":
		return gt, true
	case ">=":
		return ge, true
	}
	return 0, false
}

func (p *parser) notifyCompare(op comparison, l, r node, at int) (node, *SyntaxError) {
	if op == eq || op == ne {
		if isNullLiteral(r) {
			return &isNull{l, op == ne}, nil
		}
		if isNullLiteral(l) {
			return &isNull{r, op == ne}, nil
		}
	} else if isBoolLiteral(l) || isBoolLiteral(r) {
		return nil, p.fail(at, "true and false have no order")
	}
	return &compare{op, l, r}, nil
}

func isNullLiteral(n node) bool {
	l, ok := n.(*literal)
	return ok && l.v.kind == KindNull
}

func isBoolLiteral(n node) bool {
	l, ok := n.(*literal)
	return ok && l.v.kind == KindBool
}

func (p *parser) notifyBetween(x node, negated bool) (node, *SyntaxError) {
	b := &between{x: x, not: negated}
	at := p.tok.at
	bound := func(n *node) (err *SyntaxError) {
		at := p.tok.at
		if *n, err = p.notifyOperand(); err == nil {
			err = p.value(*n, at)
		}
		if err == nil && isBoolLiteral(*n) {
			err = p.fail(at, "true and false have no order")
		}
		return err
	}
	if err := bound(&b.low); err != nil {
		return nil, err
	}
	if err := p.expect(tokKeyword, "AND"); err != nil {
		return nil, err
	}
	if err := bound(&b.high); err != nil {
		return nil, err
	}
	if isBoolLiteral(x) {
		return nil, p.fail(at, "true and false have no order")
	}
	return b, nil
}

// member takes a literal of an IN list.
func (p *parser) member() (Value, *SyntaxError) {
	n, err := p.notifyLiteral()
	if err != nil {
		return Value{}, err
	}
	if n == nil {
		return Value{}, p.unexpected("a number, a text, true, false or null")
	}
	return n.(*literal).v, nil
}

func (p *parser) notifyLiteral() (node, *SyntaxError) {
	if p.tok.is(tokSign, "-") || p.tok.is(tokSign, "+") {
		return p.signed()
	}
	return p.plain()
}

const propertyPrefix = "property."

func (p *parser) notifyOperand() (node, *SyntaxError) {
	t := p.tok
	if n, err := p.notifyLiteral(); n != nil || err != nil {
		return n, err
	}
	switch {
	case t.kind == tokQuoted:
		if err := p.checkName(t.text, t.at); err != nil {
			return nil, err
		}
		return &property{t.text}, p.advance()
	case t.kind == tokName:
		return p.notifyField(t)
	case t.is(tokSign, "("):
		return p.bracketed(t.at, p.notifyOr)
	}
	return nil, p.unexpected("a field, a value or an opening bracket")
}

func (p *parser) notifyField(t token) (node, *SyntaxError) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	name, ok := strings.CutPrefix(t.text, propertyPrefix)
	switch {
	case ok && name != "":
		return &property{name}, nil
	case ok:
		q := p.tok
		if q.kind != tokQuoted || q.at != t.at+len(t.text) {
			return nil, p.fail(t.at, "a name is missing behind property.")
		}
		if err := p.checkName(q.text, q.at); err != nil {
			return nil, err
		}
		return &property{q.text}, p.advance()
	}
	if len(t.text) <= longestField {
		if f := fieldOf[lower(t.text)]; f != FieldNone {
			return &system{f}, nil
		}
	}
	return &property{t.text}, nil
}

const longestField = len("publisherHostName")
