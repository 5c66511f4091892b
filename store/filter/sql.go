package filter

// The grammar of RocketMQ's filters, weakest first: OR; AND; = <> IS NULL; the other comparisons; signs and NOT; literals,
// names and brackets. NOT binds tighter than a comparison: NOT a = 1 is (NOT a) = 1. Comparisons can be chained, from the
// left: a > 1 = TRUE.

func (p *parser) sqlOr() (node, *SyntaxError)  { return p.sqlChain("OR", p.sqlAnd) }
func (p *parser) sqlAnd() (node, *SyntaxError) { return p.sqlChain("AND", p.sqlEquality) }

func (p *parser) sqlChain(word string, member func() (node, *SyntaxError)) (node, *SyntaxError) {
	at := p.tok.at
	n, err := member()
	if err != nil || !p.tok.is(tokKeyword, word) {
		return n, err
	}
	if err := p.term(p.tok.at); err != nil {
		return nil, err
	}
	list := []node{}
	for {
		if n, err = p.condition(n, at); err != nil {
			return nil, err
		}
		list = append(list, n)
		more, err := p.accept(tokKeyword, word)
		if err != nil {
			return nil, err
		}
		if !more {
			return chain(word == "AND", list), nil
		}
		at = p.tok.at
		if n, err = member(); err != nil {
			return nil, err
		}
	}
}

// sqlChained parses operators that chain from the left; each makes the tree one deeper.
func (p *parser) sqlChained(operand func() (node, *SyntaxError), operator func(l node, at int) (node, *SyntaxError)) (node, *SyntaxError) {
	at, depth := p.tok.at, p.depth
	defer func() { p.depth = depth }()
	n, err := operand()
	for err == nil {
		op := p.tok.at
		next, e := operator(n, at)
		if err = e; err != nil || next == nil {
			break
		}
		n = next
		if err = p.term(op); err == nil {
			err = p.enterChain(op)
		}
	}
	return n, err
}

// enterChain counts the second and later operators of a chain.
func (p *parser) enterChain(at int) *SyntaxError {
	if p.depth > p.limits.Depth {
		return p.fail(at, "nested deeper than %d", p.limits.Depth)
	}
	p.depth++
	return nil
}

func (p *parser) sqlEquality() (node, *SyntaxError) {
	return p.sqlChained(p.sqlComparison, func(l node, at int) (node, *SyntaxError) {
		if is, err := p.accept(tokKeyword, "IS"); err != nil {
			return nil, err
		} else if is {
			negated, err := p.accept(tokKeyword, "NOT")
			if err != nil {
				return nil, err
			}
			return &isNull{x: l, not: negated}, p.expect(tokKeyword, "NULL")
		}
		op := eq
		switch {
		case p.tok.is(tokSign, "="):
		case p.tok.is(tokSign, "<>"):
			op = ne
		default:
			return nil, nil
		}
		sign := p.tok.at
		if err := p.advance(); err != nil {
			return nil, err
		}
		r, err := p.sqlComparison()
		if err != nil {
			return nil, err
		}
		a, isA := l.(*literal)
		b, isB := r.(*literal)
		if isA && a.v.kind == KindNull || isB && b.v.kind == KindNull {
			return nil, p.fail(sign, "NULL cannot be compared, use IS NULL")
		}
		if isA && isB && a.v.kind == KindBool && b.v.kind != KindBool {
			return nil, p.fail(sign, "TRUE and FALSE cannot be compared with this value")
		}
		return &compare{op, l, r}, nil
	})
}

func (p *parser) sqlComparison() (node, *SyntaxError) {
	return p.sqlChained(p.sqlUnary, func(l node, at int) (node, *SyntaxError) {
		if p.tok.kind == tokSign {
			var op comparison
			switch p.tok.text {
			case "<":
				op = lt
			case "<=":
				op = le
			case ">":
				op = gt
			case ">=":
				op = ge
			default:
				return nil, nil
			}
			if err := p.advance(); err != nil {
				return nil, err
			}
			right := p.tok.at
			r, err := p.sqlUnary()
			if err == nil {
				err = p.ordered(l, at)
			}
			if err == nil {
				err = p.ordered(r, right)
			}
			return &compare{op, l, r}, err
		}
		word, negated, err := p.acceptNot("BETWEEN", "IN", "CONTAINS", "STARTSWITH", "ENDSWITH")
		if err != nil || word == "" {
			return nil, err
		}
		switch word {
		case "BETWEEN":
			return p.sqlBetween(l, at, negated)
		case "IN":
			if !isField(l) {
				return nil, p.fail(at, "IN wants a property name before it")
			}
			list, err := p.literals(func() (Value, *SyntaxError) {
				s, err := p.textLiteral("a text in single quotes")
				return Text([]byte(s)), err
			})
			return &in{x: l, list: list, not: negated}, err
		}
		s, err := p.textLiteral("a text in single quotes")
		return &part{where: placeOf(word), x: l, text: s, not: negated}, err
	})
}

func placeOf(word string) place {
	return map[string]place{"CONTAINS": contains, "STARTSWITH": starts, "ENDSWITH": ends}[word]
}

func (p *parser) sqlBetween(x node, at int, negated bool) (node, *SyntaxError) {
	lowAt := p.tok.at
	low, err := p.sqlUnary()
	if err != nil {
		return nil, err
	}
	if err := p.expect(tokKeyword, "AND"); err != nil {
		return nil, err
	}
	highAt := p.tok.at
	high, err := p.sqlUnary()
	if err != nil {
		return nil, err
	}
	for _, o := range [...]struct {
		n  node
		at int
	}{{x, at}, {low, lowAt}, {high, highAt}} {
		if err := p.ordered(o.n, o.at); err != nil {
			return nil, err
		}
	}
	a, isA := low.(*literal)
	b, isB := high.(*literal)
	if !negated && isA && isB && compareNumbers(a.v, b.v) > 0 {
		return nil, p.fail(lowAt, "the lower bound of BETWEEN is above the upper one")
	}
	return &between{x: x, low: low, high: high, not: negated}, nil
}

// ordered refuses what < and > cannot compare: all but numbers and properties.
func (p *parser) ordered(n node, at int) *SyntaxError {
	if l, ok := n.(*literal); ok && !l.v.numeric() || !ok && isCondition(n) {
		return p.fail(at, "only numbers and properties can be compared by <, <=, >, >= and BETWEEN")
	}
	return nil
}

func (p *parser) sqlUnary() (node, *SyntaxError) {
	at := p.tok.at
	switch {
	case p.tok.is(tokSign, "+") && p.peek().kind != tokNumber && !p.peek().is(tokSign, "-") && !p.peek().is(tokSign, "+"):
		// It means nothing before a name.
		if err := p.enter(at); err != nil {
			return nil, err
		}
		defer p.leave()
		if err := p.advance(); err != nil {
			return nil, err
		}
		return p.sqlUnary()
	case p.tok.is(tokSign, "+"), p.tok.is(tokSign, "-"):
		return p.signed()
	case p.tok.is(tokKeyword, "NOT"):
		return p.negation(at, p.sqlUnary)
	}
	return p.sqlPrimary()
}

func (p *parser) sqlPrimary() (node, *SyntaxError) {
	t := p.tok
	if n, err := p.plain(); n != nil || err != nil {
		return n, err
	}
	switch {
	case t.kind == tokName, t.kind == tokQuoted:
		if err := p.checkName(t.text, t.at); err != nil {
			return nil, err
		}
		return &property{t.text}, p.advance()
	case t.is(tokSign, "("):
		return p.bracketed(t.at, p.sqlOr)
	}
	return nil, p.unexpected("a property name, a value or an opening bracket")
}
