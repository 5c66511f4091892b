package filter

// fold replaces what does not depend on the message by its value, without changing what the whole gives for any message.
func fold(rules Rules, n node) node {
	switch n := n.(type) {
	case *and:
		return foldChain(rules, n.list, true)
	case *or:
		return foldChain(rules, n.list, false)
	case *not:
		x := fold(rules, n.x)
		if l, ok := x.(*literal); ok {
			return constant(asConstant(l.v).not())
		}
		return &not{x}
	case *compare:
		l, r := fold(rules, n.l), fold(rules, n.r)
		return foldLeaf(rules, &compare{n.op, l, r}, l, r)
	case *between:
		x, low, high := fold(rules, n.x), fold(rules, n.low), fold(rules, n.high)
		return foldLeaf(rules, &between{x, low, high, n.not}, x, low, high)
	case *in:
		return foldLeaf(rules, n, n.x)
	case *part:
		x := fold(rules, n.x)
		if rules == SQL92 && n.text == "" && !mayFail(rules, x) {
			return constant(False)
		}
		return foldLeaf(rules, &part{n.where, x, n.text, n.not}, x)
	case *like:
		return foldLeaf(rules, n, n.x)
	case *search:
		return foldLeaf(rules, n, n.x)
	case *isNull:
		x := fold(rules, n.x)
		return foldLeaf(rules, &isNull{x, n.not}, x)
	}
	return n
}

// foldLeaf evaluates n when all of its operands, which are folded, are literals.
func foldLeaf(rules Rules, n node, operands ...node) node {
	for _, o := range operands {
		if !isLiteral(o) {
			return n
		}
	}
	w := walker{rules: rules}
	return constant(w.truth(n))
}

// foldChain drops members that change nothing and what stands behind one that decides. A member that may fail keeps its
// place, since it ends the evaluation before what follows it is asked.
func foldChain(rules Rules, list []node, isAnd bool) node {
	neutral, decisive := True, False
	if !isAnd {
		neutral, decisive = False, True
	}
	var kept []node
	failing := false
members:
	for _, m := range list {
		m = fold(rules, m)
		if l, ok := m.(*literal); ok {
			switch t := asConstant(l.v); {
			case t == neutral:
				continue
			case t == decisive && !failing:
				return constant(decisive)
			case t == decisive, t == Failed:
				kept = append(kept, m)
				break members
			}
		}
		failing = failing || mayFail(rules, m)
		kept = append(kept, m)
	}
	switch {
	case len(kept) == 0:
		return constant(neutral)
	case len(kept) == 1 && !isField(kept[0]):
		return kept[0]
	case isAnd:
		return &and{kept} // of one field, too: the field alone would be a value where this is compared
	}
	return &or{kept}
}

func constant(t Truth) node {
	switch t {
	case True:
		return &literal{Bool(true)}
	case False:
		return &literal{Bool(false)}
	case Failed:
		return &literal{Value{kind: kindFailed}}
	}
	return &literal{}
}

// asConstant is the truth of a literal that is a condition.
func asConstant(v Value) Truth {
	switch v.kind {
	case KindBool:
		return truth(v.bool())
	case kindFailed:
		return Failed
	}
	return Unknown
}

// mayFail tells whether the evaluation of a node can fail for some message.
func mayFail(rules Rules, n node) bool {
	if rules != SQL92 {
		return false
	}
	any := func(list ...node) bool {
		for _, m := range list {
			if mayFail(rules, m) {
				return true
			}
		}
		return false
	}
	switch n := n.(type) {
	case *and:
		return any(n.list...)
	case *or:
		return any(n.list...)
	case *not:
		return any(n.x)
	case *compare:
		return n.op != eq && n.op != ne || numericLiteral(n.l) || numericLiteral(n.r) || any(n.l, n.r)
	case *between:
		return true
	case *in:
		return any(n.x)
	case *part:
		return any(n.x)
	case *isNull:
		return any(n.x)
	case *literal:
		return n.v.kind == kindFailed
	}
	return false
}

func numericLiteral(n node) bool {
	l, ok := n.(*literal)
	return ok && l.v.numeric()
}
