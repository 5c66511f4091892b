package filter

// Rules say which language an expression is in: what its values mean.
type Rules uint8

// The languages.
const (
	SQL92 Rules = iota + 1
	Notify
)

func (r Rules) String() string { return [...]string{"?", "SQL92", "Notify"}[r] }

// node is a part of the tree. Trees are never changed once their Expr exists.
type node interface{ node() }

type (
	// and and or have at least two members, none of which is of the same type: chains are one node. Members are evaluated
	// in order.
	and struct{ list []node }
	or  struct{ list []node }
	not struct{ x node }

	compare struct {
		op   comparison
		l, r node
	}
	between struct {
		x, low, high node
		not          bool
	}
	in struct {
		x    node
		list []Value
		not  bool
	}
	// part asks for a piece of a text.
	part struct {
		where place
		x     node
		text  string
		not   bool
	}
	like struct {
		x       node
		pattern string
		escape  rune // 0: none
		not     bool
	}
	search struct {
		x       node
		pattern string // RE2
	}
	isNull struct {
		x   node
		not bool
	}

	property struct{ name string }
	system   struct{ field Field }
	literal  struct{ v Value }
)

func (*and) node()      {}
func (*or) node()       {}
func (*not) node()      {}
func (*compare) node()  {}
func (*between) node()  {}
func (*in) node()       {}
func (*part) node()     {}
func (*like) node()     {}
func (*search) node()   {}
func (*isNull) node()   {}
func (*property) node() {}
func (*system) node()   {}
func (*literal) node()  {}

type comparison uint8

const (
	eq comparison = iota
	ne
	lt
	le
	gt
	ge
)

// flip is the operator for exchanged operands.
func (c comparison) flip() comparison { return [...]comparison{eq, ne, gt, ge, lt, le}[c] }

// negate is the operator that is true where c is false.
func (c comparison) negate() comparison { return [...]comparison{ne, eq, ge, gt, le, lt}[c] }

// holds applies the operator to the sign of a comparison.
func (c comparison) holds(sign int) bool {
	switch c {
	case eq:
		return sign == 0
	case ne:
		return sign != 0
	case lt:
		return sign < 0
	case le:
		return sign <= 0
	case gt:
		return sign > 0
	}
	return sign >= 0
}

type place uint8

const (
	contains place = iota
	starts
	ends
)

// Field is a system field of a message, which Notify's language knows by a bare name.
type Field uint8

// The fields.
const (
	FieldNone Field = iota
	FieldTopic
	FieldType
	FieldGroup
	FieldFlag
	FieldCommitted
	FieldBornTime
	FieldPriority
	FieldDeliverCount
	FieldVersion
	FieldTTL
	FieldDLQTime
	FieldPostTimeout
	FieldCreated
	FieldLastDelivery
	FieldPublisherHost
	FieldSendOnce
	fieldCount
)

// fieldNames are the canonical names; case does not matter when they are read.
var fieldNames = [fieldCount]string{
	"", "topic", "messageType", "groupId", "flag", "Committed", "bornTime", "priority", "deliverCount", "version", "timeToLive", "dlqTime",
	"postTimeout", "GMTCreate", "GMTLastDelivery", "publisherHostName", "sendOnceMessage",
}

func (f Field) String() string { return fieldNames[f] }

// fieldOf finds fields by lower-case name, the wire's other spellings included.
var fieldOf = func() map[string]Field {
	m := map[string]Field{"deliverycount": FieldDeliverCount, "gmtcreated": FieldCreated}
	for f := FieldNone + 1; f < fieldCount; f++ {
		m[lower(fieldNames[f])] = f
	}
	return m
}()

// lower is the text with ASCII capitals made small.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// isCondition says that a node gives a truth value by itself. A field can stand for one, too.
func isCondition(n node) bool {
	switch n := n.(type) {
	case *and, *or, *not, *compare, *between, *in, *part, *like, *search, *isNull:
		return true
	case *literal:
		return n.v.kind == KindBool || n.v.kind == KindNull
	}
	return false
}

func isField(n node) bool {
	switch n.(type) {
	case *property, *system:
		return true
	}
	return false
}

// chain makes one node of the members of a conjunction or disjunction; members of the same type are taken in.
func chain(isAnd bool, members []node) node {
	if len(members) == 1 {
		return members[0]
	}
	var all []node
	for _, m := range members {
		switch n := m.(type) {
		case *and:
			if isAnd {
				all = append(all, n.list...)
				continue
			}
		case *or:
			if !isAnd {
				all = append(all, n.list...)
				continue
			}
		}
		all = append(all, m)
	}
	if isAnd {
		return &and{all}
	}
	return &or{all}
}

func equalNodes(a, b node) bool {
	switch a := a.(type) {
	case *and:
		b, ok := b.(*and)
		return ok && equalLists(a.list, b.list)
	case *or:
		b, ok := b.(*or)
		return ok && equalLists(a.list, b.list)
	case *not:
		b, ok := b.(*not)
		return ok && equalNodes(a.x, b.x)
	case *compare:
		b, ok := b.(*compare)
		return ok && a.op == b.op && equalNodes(a.l, b.l) && equalNodes(a.r, b.r)
	case *between:
		b, ok := b.(*between)
		return ok && a.not == b.not && equalNodes(a.x, b.x) && equalNodes(a.low, b.low) && equalNodes(a.high, b.high)
	case *in:
		b, ok := b.(*in)
		if !ok || a.not != b.not || len(a.list) != len(b.list) || !equalNodes(a.x, b.x) {
			return false
		}
		for i := range a.list {
			if !a.list[i].equal(b.list[i]) {
				return false
			}
		}
		return true
	case *part:
		b, ok := b.(*part)
		return ok && a.where == b.where && a.text == b.text && a.not == b.not && equalNodes(a.x, b.x)
	case *like:
		b, ok := b.(*like)
		return ok && a.pattern == b.pattern && a.escape == b.escape && a.not == b.not && equalNodes(a.x, b.x)
	case *search:
		b, ok := b.(*search)
		return ok && a.pattern == b.pattern && equalNodes(a.x, b.x)
	case *isNull:
		b, ok := b.(*isNull)
		return ok && a.not == b.not && equalNodes(a.x, b.x)
	case *property:
		b, ok := b.(*property)
		return ok && a.name == b.name
	case *system:
		b, ok := b.(*system)
		return ok && a.field == b.field
	case *literal:
		b, ok := b.(*literal)
		return ok && a.v.equal(b.v)
	}
	return false
}

func equalLists(a, b []node) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !equalNodes(a[i], b[i]) {
			return false
		}
	}
	return true
}
