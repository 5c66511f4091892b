package filter

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Spelling is a way to write an expression.
type Spelling uint8

// The spellings. ParseNotify reads both; ParseSQL92 reads SQL.
const (
	SQL  Spelling = iota + 1 // a >= 5 AND b = 'x'
	Java                     // property.a >= 5 && property.b == 'x'
)

func spellingOf(r Rules) Spelling {
	if r == SQL92 {
		return SQL
	}
	return Java
}

// Print writes the expression in a spelling. Reading the text by the expression's own language gives an equal expression;
// SQL92 has no Java spelling of its own, so what Print(Java) makes of one is for people.
func (e *Expr) Print(s Spelling) string {
	p := printer{spelling: s, rules: e.rules}
	p.node(e.root, levelOr)
	return p.b.String()
}

type printer struct {
	b        strings.Builder
	spelling Spelling
	rules    Rules
}

// Levels of binding, weakest first.
const (
	levelOr = iota
	levelAnd
	levelCondition
	levelOperand
)

func levelOfNode(n node) int {
	switch n.(type) {
	case *or:
		return levelOr
	case *and:
		return levelAnd
	case *property, *system, *literal:
		return levelOperand
	}
	return levelCondition
}

func (p *printer) word(sql, java string) {
	if p.spelling == SQL {
		java = sql
	}
	p.b.WriteString(java)
}

// node prints n in a place that wants at least the given level.
func (p *printer) node(n node, level int) {
	if levelOfNode(n) < level {
		p.b.WriteByte('(')
		defer p.b.WriteByte(')')
	}
	switch n := n.(type) {
	case *and:
		p.list(n.list, " AND ", " && ", levelCondition)
	case *or:
		p.list(n.list, " OR ", " || ", levelAnd)
	case *not:
		p.word("NOT ", "!")
		p.notOperand(n.x)
	case *compare:
		p.node(n.l, levelOperand)
		p.b.WriteByte(' ')
		p.operator(n.op)
		p.b.WriteByte(' ')
		p.node(n.r, levelOperand)
	case *between:
		p.node(n.x, levelOperand)
		p.negated(n.not, "BETWEEN ")
		p.node(n.low, levelOperand)
		p.word(" AND ", " and ")
		p.node(n.high, levelOperand)
	case *in:
		p.node(n.x, levelOperand)
		p.negated(n.not, "IN (")
		for i := range n.list {
			if i > 0 {
				p.b.WriteString(", ")
			}
			p.value(n.list[i])
		}
		p.b.WriteByte(')')
	case *part:
		p.node(n.x, levelOperand)
		p.negated(n.not, [...]string{contains: "CONTAINS ", starts: "STARTSWITH ", ends: "ENDSWITH "}[n.where])
		p.text(n.text)
	case *like:
		p.node(n.x, levelOperand)
		p.negated(n.not, "LIKE ")
		p.text(n.pattern)
		if n.escape != 0 {
			p.word(" ESCAPE ", " escape ")
			p.text(string(n.escape))
		}
	case *search:
		p.node(n.x, levelOperand)
		p.b.WriteString(" =~ /")
		p.pattern(n.pattern)
		p.b.WriteByte('/')
	case *isNull:
		p.node(n.x, levelOperand)
		switch {
		case p.spelling == Java && n.not:
			p.b.WriteString(" != null")
		case p.spelling == Java:
			p.b.WriteString(" == null")
		case n.not:
			p.b.WriteString(" IS NOT NULL")
		default:
			p.b.WriteString(" IS NULL")
		}
	case *property:
		p.property(n.name)
	case *system:
		p.b.WriteString(n.field.String())
	case *literal:
		p.value(n.v)
	}
}

// notOperand prints what a not negates: a comparison in brackets, so that nobody has to know how tight a not binds.
func (p *printer) notOperand(n node) {
	if _, again := n.(*not); again {
		p.node(n, levelCondition)
		return
	}
	p.node(n, levelOperand)
}

func (p *printer) list(list []node, sql, java string, level int) {
	for i, n := range list {
		if i > 0 {
			p.word(sql, java)
		}
		p.node(n, level)
	}
}

func (p *printer) negated(not bool, word string) {
	p.b.WriteByte(' ')
	if not {
		word = "NOT " + word
	}
	p.word(word, strings.ToLower(word))
}

func (p *printer) operator(c comparison) {
	switch c {
	case eq:
		p.word("=", "==")
	case ne:
		p.word("<>", "!=")
	case lt:
		p.b.WriteByte('<')
	case le:
		p.b.WriteString("<=")
	case gt:
		p.b.WriteByte('>')
	case ge:
		p.b.WriteString(">=")
	}
}

func (p *printer) property(name string) {
	plain := p.plainName(name)
	if p.spelling == Java {
		p.b.WriteString(propertyPrefix)
	}
	if plain {
		p.b.WriteString(name)
		return
	}
	p.b.WriteByte('`')
	p.b.WriteString(name)
	p.b.WriteByte('`')
}

// plainName tells whether a name needs no backquotes. Behind "property." a word of the language is a name.
func (p *printer) plainName(name string) bool {
	l := lexer{text: name, rules: p.rules}
	if l.nameLength() != len(name) {
		return p.spelling == Java && p.rules == Notify && tailOfName(name)
	}
	if p.spelling == Java {
		return true
	}
	if _, ok := keyword(p.rules, name); ok {
		return false
	}
	return p.rules == SQL92 || fieldOf[lower(name)] == FieldNone && !strings.HasPrefix(name, propertyPrefix)
}

// tailOfName tells whether name can stand behind "property." as it is: there it need not begin with a letter.
func tailOfName(name string) bool {
	l := lexer{text: "a" + name, rules: Notify}
	return l.nameLength() == len(l.text)
}

func (p *printer) value(v Value) {
	switch v.kind {
	case KindNull:
		p.word("NULL", "null")
	case KindBool:
		s := strconv.FormatBool(v.bool())
		p.word(strings.ToUpper(s), s)
	case KindInt:
		p.b.WriteString(strconv.FormatInt(v.int(), 10))
	case KindFloat:
		p.b.Write(appendFloat(nil, v.float()))
	case KindText:
		p.text(string(v.text))
	}
}

func (p *printer) text(s string) {
	p.b.WriteByte('\'')
	p.b.WriteString(strings.ReplaceAll(s, "'", "''"))
	p.b.WriteByte('\'')
}

// pattern prints a regular expression with its slashes escaped.
func (p *printer) pattern(s string) {
	for len(s) > 0 {
		n := 1
		switch {
		case s[0] == '\\' && len(s) > 1:
			_, k := utf8.DecodeRuneInString(s[1:])
			n = 1 + k
		case s[0] == '/':
			p.b.WriteByte('\\')
		}
		p.b.WriteString(s[:n])
		s = s[n:]
	}
}
