package filter

import (
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// Expr is an expression. It is immutable.
type Expr struct {
	rules Rules
	root  node
	text  string // canonical
}

// ParseSQL92 reads an expression as RocketMQ's SQL92 filters are written, within SQL92Limits. The error is a *SyntaxError.
func ParseSQL92(text string) (*Expr, error) { return Parse(SQL92, text, Limits{}) }

// ParseNotify reads an expression as Notify's header bindings are written, within NotifyLimits. The error is a *SyntaxError.
func ParseNotify(text string) (*Expr, error) { return Parse(Notify, text, Limits{}) }

// Parse reads an expression in the given language.
func Parse(rules Rules, text string, l Limits) (*Expr, error) {
	if rules == SQL92 {
		l = l.withDefaults(SQL92Limits)
	} else {
		l = l.withDefaults(NotifyLimits)
	}
	if len(text) > l.Bytes {
		return nil, errorAt(text, 0, "the expression has %d bytes, at most %d are allowed,", len(text), l.Bytes)
	}
	p := &parser{lex: lexer{text: text, rules: rules}, limits: l}
	root, err := p.all()
	if err != nil {
		return nil, err
	}
	e := &Expr{rules: rules, root: root}
	e.text = e.Print(spellingOf(rules))
	return e, nil
}

// Rules is the language of the expression.
func (e *Expr) Rules() Rules { return e.rules }

// String is the canonical text: two expressions of a language with equal texts select the same messages.
func (e *Expr) String() string { return e.text }

// Equal tells whether two expressions are the same.
func (e *Expr) Equal(f *Expr) bool { return e.rules == f.rules && equalNodes(e.root, f.root) }

// parser holds what both grammars need: the token in hand and the limits.
type parser struct {
	lex    lexer
	tok    token
	limits Limits
	terms  int
	depth  int
}

func (p *parser) all() (node, error) {
	if i := invalidUTF8(p.lex.text); i >= 0 {
		return nil, p.fail(i, "text is not UTF-8")
	}
	root, err := p.start()
	if err != nil {
		return nil, err // not a typed nil
	}
	return root, nil
}

func (p *parser) start() (node, *SyntaxError) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	var n node
	var err *SyntaxError
	if p.lex.rules == SQL92 {
		n, err = p.sqlOr()
	} else {
		n, err = p.notifyOr()
	}
	if err == nil {
		n, err = p.condition(n, 0)
	}
	if err == nil && p.tok.kind != tokEnd {
		err = p.unexpected("the end of the expression")
	}
	return n, err
}

func (p *parser) advance() (err *SyntaxError) {
	p.tok, err = p.lex.next()
	return err
}

// peek is the token behind the one in hand; one that cannot be read is none.
func (p *parser) peek() token {
	ahead := p.lex
	t, _ := ahead.next()
	return t
}

func (p *parser) fail(at int, format string, args ...any) *SyntaxError {
	return errorAt(p.lex.text, at, format, args...)
}

func (p *parser) unexpected(want string) *SyntaxError { return p.fail(p.tok.at, "expected %s", want) }

// accept takes the token in hand when it is this one.
func (p *parser) accept(kind tokenKind, text string) (bool, *SyntaxError) {
	if !p.tok.is(kind, text) {
		return false, nil
	}
	return true, p.advance()
}

func (p *parser) expect(kind tokenKind, text string) *SyntaxError {
	ok, err := p.accept(kind, text)
	if err == nil && !ok {
		err = p.unexpected(text)
	}
	return err
}

// acceptNot takes NOT when one of the words stands behind it, and then the word, too.
func (p *parser) acceptNot(words ...string) (word string, negated bool, err *SyntaxError) {
	t := p.tok
	if t.is(tokKeyword, "NOT") {
		t, negated = p.peek(), true
	}
	if t.kind != tokKeyword {
		return "", false, nil
	}
	for _, w := range words {
		if t.text != w {
			continue
		}
		if negated {
			if err := p.advance(); err != nil {
				return "", false, err
			}
		}
		return w, negated, p.advance()
	}
	return "", false, nil
}

// term counts a condition, an and, an or or a not.
func (p *parser) term(at int) *SyntaxError {
	if p.terms++; p.terms > p.limits.Terms {
		return p.fail(at, "more than %d terms", p.limits.Terms)
	}
	return nil
}

func (p *parser) enter(at int) *SyntaxError {
	if p.depth++; p.depth > p.limits.Depth {
		return p.fail(at, "nested deeper than %d", p.limits.Depth)
	}
	return nil
}

func (p *parser) leave() { p.depth-- }

// bracketed reads an opening bracket, which is at at and the present token, what inner takes, and the closing one.
func (p *parser) bracketed(at int, inner func() (node, *SyntaxError)) (node, *SyntaxError) {
	if err := p.enter(at); err != nil {
		return nil, err
	}
	defer p.leave()
	if err := p.advance(); err != nil {
		return nil, err
	}
	n, err := inner()
	if err != nil {
		return nil, err
	}
	return n, p.expect(tokSign, ")")
}

// condition checks that a node can be true or false. A field or literal that is used as one counts as a term.
func (p *parser) condition(n node, at int) (node, *SyntaxError) {
	switch {
	case isField(n), isLiteral(n) && isCondition(n):
		return n, p.term(at)
	case !isCondition(n):
		return nil, p.fail(at, "expected a condition, this is a value")
	}
	return n, nil
}

// negation parses what follows a NOT, which is the token at hand and at at; operand parses what it may stand before.
func (p *parser) negation(at int, operand func() (node, *SyntaxError)) (node, *SyntaxError) {
	if err := p.enter(at); err != nil {
		return nil, err
	}
	defer p.leave()
	if err := p.term(at); err != nil {
		return nil, err
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	at = p.tok.at
	x, err := operand()
	if err == nil {
		x, err = p.condition(x, at)
	}
	return &not{x}, err
}

// textLiteral takes a string.
func (p *parser) textLiteral(what string) (string, *SyntaxError) {
	if p.tok.kind != tokString {
		return "", p.unexpected(what)
	}
	s := p.tok.text
	return s, p.advance()
}

// signed takes a number with signs before it; the sign in hand is one of them. Signs nest, for the limit's sake.
func (p *parser) signed() (node, *SyntaxError) {
	at, minus := p.tok.at, false
	depth := p.depth
	defer func() { p.depth = depth }()
	for p.tok.is(tokSign, "-") || p.tok.is(tokSign, "+") {
		minus = minus != (p.tok.text == "-")
		if err := p.enter(p.tok.at); err != nil {
			return nil, err
		}
		if err := p.advance(); err != nil {
			return nil, err
		}
	}
	if p.tok.kind != tokNumber {
		return nil, p.unexpected("a number behind a sign")
	}
	v := p.tok.v
	switch {
	case v.kind == kindMinimum && minus:
		v = Int(-1 << 63)
	case v.kind == kindMinimum:
		return p.tooLarge(at)
	case minus && v.kind == KindInt:
		v = Int(-v.int())
	case minus:
		v = Float(0 - v.float()) // no negative zero
	}
	return &literal{v}, p.advance()
}

func (p *parser) tooLarge(at int) (node, *SyntaxError) {
	if p.lex.rules == Notify {
		return &literal{Float(1 << 63)}, p.advance()
	}
	return nil, p.fail(at, "whole number outside -9223372036854775808 to 9223372036854775807")
}

// plain takes a literal without a sign, nil when the token in hand is none.
func (p *parser) plain() (node, *SyntaxError) {
	t := p.tok
	switch {
	case t.kind == tokNumber && t.v.kind == kindMinimum:
		return p.tooLarge(t.at)
	case t.kind == tokNumber:
		return &literal{t.v}, p.advance()
	case t.kind == tokString:
		return &literal{Text([]byte(t.text))}, p.advance()
	case t.is(tokKeyword, "TRUE"):
		return &literal{Bool(true)}, p.advance()
	case t.is(tokKeyword, "FALSE"):
		return &literal{Bool(false)}, p.advance()
	case t.is(tokKeyword, "NULL"), t.is(tokKeyword, "NIL"):
		return &literal{}, p.advance()
	}
	return nil, nil
}

// literals takes a list in brackets; one takes a member.
func (p *parser) literals(one func() (Value, *SyntaxError)) ([]Value, *SyntaxError) {
	if err := p.expect(tokSign, "("); err != nil {
		return nil, err
	}
	var list []Value
	for {
		if len(list) == p.limits.Literals {
			return nil, p.fail(p.tok.at, "more than %d literals in a list", p.limits.Literals)
		}
		v, err := one()
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		if more, err := p.accept(tokSign, ","); err != nil {
			return nil, err
		} else if !more {
			return list, p.expect(tokSign, ")")
		}
	}
}

// checkName refuses names that no property can have.
func (p *parser) checkName(name string, at int) *SyntaxError {
	if strings.ContainsAny(name, "\x00\x01\x02") {
		return p.fail(at, "a name cannot have the characters 0, 1 and 2 in it")
	}
	return nil
}

// maxSteps bounds what a pattern costs for each character of a text.
const maxSteps = 1024

func (p *parser) checkPattern(pattern string, at int) *SyntaxError {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return p.fail(at, "pattern is no RE2 expression (%s)", err)
	}
	if steps(re) > maxSteps {
		return p.fail(at, "pattern with more than %d steps", maxSteps)
	}
	return nil
}

// steps is about how large a pattern is when its repetitions are written out.
func steps(re *syntax.Regexp) int {
	n := 1
	if re.Op == syntax.OpLiteral {
		n = len(re.Rune)
	}
	for _, sub := range re.Sub {
		n += steps(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return min(n, maxSteps+1) // no overflow
}

func invalidUTF8(s string) int {
	if utf8.ValidString(s) {
		return -1
	}
	for i, r := range s {
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(s[i:]); n == 1 {
				return i
			}
		}
	}
	return -1
}
