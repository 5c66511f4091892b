package filter

import (
	"regexp"
	"sync"
	"sync/atomic"
)

// Program is a compiled expression. It does not change and may be used by any goroutine.
type Program struct {
	expr   *Expr
	root   node // folded
	schema Schema
	layout *Layout
	code   code
	spare  atomic.Pointer[Frame] // for one caller at a time; the others go to frames
}

// Compile makes the program of an expression whose names are found by a schema. A nil schema is Plain.
func (e *Expr) Compile(s Schema) *Program {
	if s == nil {
		s = Plain
	}
	p := &Program{expr: e, root: fold(e.rules, e.root), schema: s}
	c := compiler{rules: e.rules, schema: s, numbers: map[Source]int32{}}
	c.code.rules = e.rules
	c.code.root = c.condition(p.root)
	p.layout, _ = new(Layout).with(c.sources) // they are distinct, so they get the numbers that they have here
	p.code = c.code
	return p
}

// Expr is the expression that the program was made of.
func (p *Program) Expr() *Expr { return p.expr }

// Sources is the number of places that the program reads.
func (p *Program) Sources() int { return p.layout.places }

// Match tells whether the program selects a message. It does not allocate.
func (p *Program) Match(m *Message) bool { return p.Eval(m) == True }

// stackNames is up to how many names fit the stack.
const stackNames = 8

// Eval is the truth of the expression for a message. It does not allocate.
func (p *Program) Eval(m *Message) Truth {
	n := p.layout.names
	if n > stackNames {
		return p.evalMany(m)
	}
	f := Frame{layout: p.layout, props: m.Properties, fields: m.Fields}
	if n <= few {
		p.layout.search(m.Properties, f.few[:])
	} else {
		var seen [stackNames]*named
		p.layout.scan(m.Properties, f.few[:], seen[:0])
	}
	return p.code.truth(p.code.root, &f)
}

var frames = sync.Pool{New: func() any { return new(Frame) }}

func (p *Program) evalMany(m *Message) Truth {
	f := p.spare.Swap(nil)
	if f == nil {
		f = frames.Get().(*Frame)
	}
	f.Load(p.layout, m)
	t := p.code.truth(p.code.root, f)
	f.Unload()
	if !p.spare.CompareAndSwap(nil, f) {
		frames.Put(f)
	}
	return t
}

// Bound is a program over a layout that it shares with others.
type Bound struct{ code code }

// Bind makes the program read a message through a layout that others read, too. The layout it returns has all places of l
// under their numbers and those that the program needs.
func (p *Program) Bind(l *Layout) (*Bound, *Layout) {
	sources := make([]Source, p.layout.places)
	for i := range sources {
		sources[i] = p.layout.source(int32(i)).Source
	}
	ext, numbers := l.with(sources)
	b := &Bound{p.code}
	b.code.ins = append([]instruction(nil), p.code.ins...)
	for i := range b.code.ins {
		in := &b.code.ins[i]
		if in.reads > 0 {
			in.src = numbers[in.src]
		}
		if in.reads > 1 {
			in.src2 = numbers[in.src2]
		}
	}
	return b, ext
}

// Eval is the truth of the expression for the message in a frame, which was loaded with a layout that has the program's
// places. It does not allocate.
func (b *Bound) Eval(f *Frame) Truth { return b.code.truth(b.code.root, f) }

type opcode uint8

const (
	opConstant opcode = iota // truth
	opAnd                    // kids
	opOr                     // kids
	opNot                    // kid
	opField                  // src as a condition, or as a value
	opText                   // src cmp text
	opInt                    // src cmp bits, SQL92
	opNumber                 // src cmp value, a number
	opBool                   // src cmp value, true or false
	opTwo                    // src cmp src2
	opNull                   // src is null, xor not
	opSetOne                 // src in a few texts
	opSet                    // src in set
	opPart                   // a piece of src
	opLike
	opSearch
	// The rest take kids as operands: rare forms.
	opValue // a literal
	opCompare
	opKidNull
	opKidPart
	opKidIn
	opKidLike
	opKidSearch
)

// instruction fills one line of the processor's caches.
type instruction struct {
	op        opcode
	cmp       comparison
	reads     uint8 // how many sources
	not       bool
	truth     Truth
	kind      Kind   // with bits: a value that is no text
	src, src2 int32  // sources
	from, to  int32  // kids
	bits      uint64 //
	text      string
	rare      *rare
}

// rare is what few instructions have.
type rare struct {
	v     Value
	texts bool
	where place
	set   *literalSet
	like  likePattern
	re    *regexp.Regexp
}

// value is the number or truth value that the instruction compares with.
func (in *instruction) value() Value { return Value{kind: in.kind, bits: in.bits} }

// code is a tree in a slice.
type code struct {
	rules Rules
	ins   []instruction
	kids  []int32
	root  int32
}

type compiler struct {
	rules   Rules
	schema  Schema
	sources []Source
	numbers map[Source]int32
	code    code
}

func (c *compiler) emit(in instruction, kids ...int32) int32 {
	in.from = int32(len(c.code.kids))
	c.code.kids = append(c.code.kids, kids...)
	in.to = int32(len(c.code.kids))
	c.code.ins = append(c.code.ins, in)
	return int32(len(c.code.ins) - 1)
}

// source numbers the source of a field, ok false when n is none.
func (c *compiler) source(n node) (int32, bool) {
	s, ok := sourceOf(c.schema, n)
	if !ok {
		return 0, false
	}
	i, known := c.numbers[s]
	if !known {
		i = int32(len(c.sources))
		c.sources = append(c.sources, s)
		c.numbers[s] = i
	}
	return i, true
}

func sourceOf(schema Schema, n node) (Source, bool) {
	switch n := n.(type) {
	case *property:
		return schema.Property(n.name), true
	case *system:
		return schema.System(n.field), true
	}
	return Source{}, false
}

func (c *compiler) conditions(list []node) []int32 {
	kids := make([]int32, len(list))
	for i, n := range list {
		kids[i] = c.condition(n)
	}
	return kids
}

// condition compiles a node whose truth is asked for.
func (c *compiler) condition(n node) int32 {
	if src, ok := c.source(n); ok {
		return c.emit(instruction{op: opField, src: src, reads: 1})
	}
	switch n := n.(type) {
	case *literal:
		return c.emit(instruction{op: opConstant, truth: asConstant(n.v)})
	case *and:
		return c.emit(instruction{op: opAnd}, c.conditions(n.list)...)
	case *or:
		return c.emit(instruction{op: opOr}, c.conditions(n.list)...)
	case *not:
		return c.emit(instruction{op: opNot}, c.condition(n.x))
	case *compare:
		return c.compare(n)
	case *between:
		if n.not {
			return c.emit(instruction{op: opOr}, c.compare(&compare{lt, n.x, n.low}), c.compare(&compare{gt, n.x, n.high}))
		}
		return c.emit(instruction{op: opAnd}, c.compare(&compare{ge, n.x, n.low}), c.compare(&compare{le, n.x, n.high}))
	case *isNull:
		return c.unary(n.x, instruction{op: opNull, not: n.not}, opKidNull)
	case *in:
		in := instruction{op: opSet, not: n.not, rare: &rare{set: newLiteralSet(n.list)}}
		if in.rare.set.few != nil {
			in.op = opSetOne
		}
		return c.unary(n.x, in, opKidIn)
	case *part:
		return c.unary(n.x, instruction{op: opPart, not: n.not, text: n.text, rare: &rare{where: n.where}}, opKidPart)
	case *like:
		return c.unary(n.x, instruction{op: opLike, not: n.not, rare: &rare{like: compileLike(n.pattern, n.escape)}}, opKidLike)
	}
	s := n.(*search)
	return c.unary(s.x, instruction{op: opSearch, rare: &rare{re: regexp.MustCompile(s.pattern)}}, opKidSearch)
}

// unary compiles an instruction over a field, or its rare form over an operand.
func (c *compiler) unary(x node, in instruction, rare opcode) int32 {
	if src, ok := c.source(x); ok {
		in.src, in.reads = src, 1
		return c.emit(in)
	}
	in.op = rare
	return c.emit(in, c.operand(x))
}

// operand compiles a node whose value is asked for.
func (c *compiler) operand(n node) int32 {
	if l, ok := n.(*literal); ok {
		return c.emit(instruction{op: opValue, rare: &rare{v: l.v}})
	}
	return c.condition(n)
}

func (c *compiler) compare(n *compare) int32 {
	op, l, r := n.op, n.l, n.r
	if isLiteral(l) {
		op, l, r = op.flip(), r, l
	}
	src, isSrc := c.source(l)
	if isSrc {
		if src2, ok := c.source(r); ok {
			return c.emit(instruction{op: opTwo, cmp: op, src: src, src2: src2, reads: 2})
		}
		if lit, ok := r.(*literal); ok {
			in := instruction{cmp: op, src: src, reads: 1, kind: lit.v.kind, bits: lit.v.bits}
			switch {
			case lit.v.kind == KindText && (c.rules == Notify || op == eq || op == ne):
				in.op, in.text = opText, string(lit.v.text)
				return c.emit(in)
			case lit.v.kind == KindInt && c.rules == SQL92:
				in.op = opInt
				return c.emit(in)
			case lit.v.numeric():
				in.op = opNumber
				return c.emit(in)
			case lit.v.kind == KindBool:
				in.op = opBool
				return c.emit(in)
			}
		}
	}
	texts := false
	for _, o := range [...]node{n.l, n.r} {
		lit, ok := o.(*literal)
		texts = texts || ok && lit.v.kind == KindText
	}
	return c.emit(instruction{op: opCompare, cmp: n.op, rare: &rare{texts: texts}}, c.operand(n.l), c.operand(n.r))
}
