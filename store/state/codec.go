package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
)

const opsVersion = 1

// Limits of one operate-queue record. A message body holds at most 4 MiB; a record that is larger than these is written
// as several.
const (
	MaxOps        = 1 << 18 // operations
	MaxNameBytes  = 1 << 10 // of a topic or group
	MaxExprBytes  = 1 << 16 // of a binding's expression
	maxWaterMark  = math.MaxInt32 - 1
	flagVolatile  = 1
	maxKnownFlags = flagVolatile
)

// ErrTooLarge is returned by AppendOps for more than MaxOps operations.
var ErrTooLarge = errors.New("state: too many operations for one record")

// OpError says what is wrong with one operation that was to be encoded.
type OpError struct {
	Index int // in the list
	Field string
	Value string
	Want  string
}

func (e *OpError) Error() string {
	return fmt.Sprintf("state: operation %d: %s is %q, want %s", e.Index, e.Field, e.Value, e.Want)
}

// FormatError says why a body is not a list of operations. Version is set when a newer program wrote it.
type FormatError struct {
	Offset  int // in the body
	Version int
	What    string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("state: operate-queue record, byte %d: %s", e.Offset, e.What)
}

// AppendOps appends the body of an operate-queue record to dst. Operations with fields out of range give an *OpError.
func AppendOps(dst []byte, ops []Op) ([]byte, error) {
	b, _, err := AppendViews(dst, ops, nil)
	return b, err
}

// AppendViews is AppendOps that also appends to places where each OpPublish begins, in bytes from the start of dst.
func AppendViews(dst []byte, ops []Op, places []int) ([]byte, []int, error) {
	if len(ops) > MaxOps {
		return dst, places, ErrTooLarge
	}
	for i := range ops {
		if err := ops[i].check(i); err != nil {
			return dst, places, err
		}
	}
	if len(ops) == 1 && ops[0].lone() {
		return appendLone(dst, &ops[0]), append(places, len(dst)), nil
	}
	var e opEncoder
	e.collect(ops)
	dst = append(dst, opsVersion)
	dst = binary.AppendUvarint(dst, uint64(len(e.list)))
	for _, s := range e.list {
		dst = binary.AppendUvarint(dst, uint64(len(s)))
		dst = append(dst, s...)
	}
	dst = binary.AppendUvarint(dst, uint64(len(ops)))
	for i := range ops {
		if ops[i].Kind == OpPublish {
			places = append(places, len(dst))
		}
		dst = e.append(dst, &ops[i])
	}
	return dst, places, nil
}

func (op *Op) check(i int) error {
	bad := func(field, value, want string) error { return &OpError{i, field, value, want} }
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	name := func(field, s string) error {
		if s == "" || len(s) > MaxNameBytes {
			return bad(field, s[:min(len(s), 64)], "1 to 1024 bytes")
		}
		return nil
	}
	if !op.Kind.known() {
		return bad("kind", number(int64(op.Kind)), "1 to 16 or 32")
	}
	if op.Kind == OpAdopt {
		return nil
	}
	if err := name("topic", op.Topic); err != nil {
		return err
	}
	if op.Kind.ofGroup() || op.grouped() {
		if err := name("group", op.Group); err != nil {
			return err
		}
	}
	if op.First < 0 {
		return bad("first", number(op.First), "0 or more")
	}
	if op.Kind.waits() {
		return op.checkWaiting(bad, name)
	}
	switch op.Kind {
	case OpDelete:
		if op.Last < op.First {
			return bad("last", number(op.Last), "at least first")
		}
	case OpRelocate:
		if op.Last < op.First {
			return bad("last", number(op.Last), "at least first")
		}
		if op.Size < 1 {
			return bad("size", number(int64(op.Size)), "1 or more")
		}
	case OpRetire:
		if op.Last != 0 && op.Last < op.First {
			return bad("last", number(op.Last), "0 or at least first")
		}
	case OpUpdate:
		if len(op.Failed) == 0 {
			return bad("failed", "", "one target or more")
		}
		for _, f := range op.Failed {
			if err := name("failed group", f.Group); err != nil {
				return err
			}
			if f.Attempt < 0 || f.Due < 0 {
				return bad("attempt or due of group "+f.Group, number(min(int64(f.Attempt), f.Due)), "0 or more")
			}
		}
	case OpBind, OpUnbind:
		b := &op.Binding
		if b.Kind < BindDirect || b.Kind > BindFanout {
			return bad("binding kind", number(int64(b.Kind)), "1 to 4")
		}
		if len(b.Expr) > MaxExprBytes {
			return bad("binding expression", number(int64(len(b.Expr)))+" bytes", "at most 65536 bytes")
		}
		if b.WaterMark < -1 || b.WaterMark > maxWaterMark {
			return bad("water mark", number(int64(b.WaterMark)), "-1 or more")
		}
	}
	return nil
}

func (k OpKind) known() bool { return k >= OpDelete && k <= lastOp || k == OpRelocate }

// ofGroup says whether the operation names one group.
func (k OpKind) ofGroup() bool {
	return k != OpDelete && k != OpUpdate && k != OpRelocate && !k.waits()
}

// waits is whether it is about what waits; these operations have a form of their own.
func (k OpKind) waits() bool { return k >= OpPublish && k <= lastOp }

type opEncoder struct {
	list  []string
	index map[string]uint64 // of list; nil while it is short
	first int64
}

const shortTable = 8 // up to here a scan beats a map

func (e *opEncoder) collect(ops []Op) {
	for i := range ops {
		op := &ops[i]
		if op.Kind == OpAdopt {
			continue
		}
		e.intern(op.Topic)
		if op.Group != "" {
			e.intern(op.Group)
		}
		if op.View != nil {
			e.intern(op.View.Topic)
		}
		for j := range op.Failed {
			e.intern(op.Failed[j].Group)
		}
		if op.Kind == OpBind || op.Kind == OpUnbind {
			e.intern(op.Binding.Expr)
		}
	}
}

func (e *opEncoder) intern(s string) uint64 {
	if e.index == nil {
		for i, t := range e.list {
			if s == t {
				return uint64(i)
			}
		}
		if e.list = append(e.list, s); len(e.list) > shortTable {
			e.index = make(map[string]uint64, 4*shortTable)
			for i, t := range e.list {
				e.index[t] = uint64(i)
			}
		}
		return uint64(len(e.list) - 1)
	}
	i, ok := e.index[s]
	if !ok {
		i = uint64(len(e.list))
		e.list = append(e.list, s)
		e.index[s] = i
	}
	return i
}

func (e *opEncoder) append(b []byte, op *Op) []byte {
	b = append(b, byte(op.Kind))
	if op.Kind.waits() {
		return e.appendWaiting(b, op)
	}
	b = binary.AppendUvarint(b, e.intern(op.Topic))
	if op.Kind.ofGroup() {
		b = binary.AppendUvarint(b, e.intern(op.Group))
	}
	switch op.Kind {
	case OpDelete, OpUpdate, OpRetire, OpCursor, OpRelocate:
		b = binary.AppendVarint(b, op.First-e.first)
		e.first = op.First
	}
	switch op.Kind {
	case OpDelete:
		b = binary.AppendUvarint(b, uint64(op.Last-op.First))
	case OpRelocate:
		b = binary.AppendUvarint(b, uint64(op.Last-op.First))
		b = binary.AppendUvarint(b, uint64(op.Size))
	case OpRetire:
		if op.Last == 0 {
			b = append(b, 0)
		} else {
			b = binary.AppendUvarint(b, uint64(op.Last-op.First)+1)
		}
	case OpUpdate:
		b = binary.AppendUvarint(b, uint64(len(op.Failed)))
		for _, f := range op.Failed {
			b = binary.AppendUvarint(b, e.intern(f.Group))
			b = binary.AppendUvarint(b, uint64(f.Attempt))
			b = binary.AppendUvarint(b, uint64(f.Due))
		}
	case OpBind, OpUnbind:
		b = append(b, byte(op.Binding.Kind))
		b = binary.AppendUvarint(b, e.intern(op.Binding.Expr))
		b = binary.AppendUvarint(b, uint64(op.Binding.WaterMark+1))
		flags := byte(0)
		if op.Binding.Volatile {
			flags |= flagVolatile
		}
		b = append(b, flags)
	}
	return b
}

// DecodeOps reads the body of an operate-queue record. What it returns does not refer to b. Anything that AppendOps does
// not write gives a *FormatError.
func DecodeOps(b []byte) ([]Op, error) {
	if isLone(b) {
		op, err := decodeLone(b)
		if err != nil {
			return nil, err
		}
		return []Op{op}, nil
	}
	d := decoder{b: b, all: len(b)}
	if v := d.byte(); v != opsVersion && d.err == nil {
		return nil, &FormatError{0, int(v), fmt.Sprintf("version %d is not known", v)}
	}
	list := d.strings(MaxExprBytes)
	n := d.count(MaxOps, 3, "operations")
	if d.err != nil {
		return nil, d.err
	}
	ops := make([]Op, n)
	first, back := int64(0), int32(0)
	for i := range ops {
		if d.op(&ops[i], list, &first); d.err != nil {
			return nil, d.err
		}
		if v := ops[i].View; v != nil {
			if v.Back <= back && back > 0 {
				d.fail("addresses of views do not grow")
				return nil, d.err
			}
			back = v.Back
		}
		if err := ops[i].check(i); err != nil {
			return nil, &FormatError{Offset: d.offset(), What: err.Error()}
		}
	}
	if len(d.b) > 0 {
		return nil, &FormatError{Offset: d.offset(), What: fmt.Sprintf("%d bytes behind the last operation", len(d.b))}
	}
	return ops, nil
}

func (d *decoder) op(op *Op, list []string, first *int64) {
	op.Kind = OpKind(d.byte())
	if d.err == nil && !op.Kind.known() {
		d.fail(fmt.Sprintf("operation kind %d is not known", op.Kind))
		return
	}
	if op.Kind.waits() {
		d.waiting(op, list)
		return
	}
	op.Topic = d.name(list)
	if op.Kind.ofGroup() {
		op.Group = d.name(list)
	}
	switch op.Kind {
	case OpDelete, OpUpdate, OpRetire, OpCursor, OpRelocate:
		*first += d.varint() // may wrap with nonsense; check finds the negative ones
		op.First = *first
	}
	switch op.Kind {
	case OpDelete:
		op.Last = op.First + int64(d.uvarint(math.MaxInt64))
	case OpRelocate:
		op.Last = op.First + int64(d.uvarint(math.MaxInt64))
		op.Size = int32(d.uvarint(math.MaxInt32))
	case OpRetire:
		if n := int64(d.uvarint(math.MaxInt64)); n > 0 {
			op.Last = op.First + n - 1
			if op.Last == 0 && d.err == nil {
				d.fail("a range that ends at 0")
			}
		}
	case OpUpdate:
		op.Failed = make([]Failed, d.count(len(d.b), 3, "targets"))
		for i := range op.Failed {
			f := &op.Failed[i]
			f.Group = d.name(list)
			f.Attempt = int32(d.uvarint(math.MaxInt32))
			f.Due = int64(d.uvarint(math.MaxInt64))
		}
	case OpBind, OpUnbind:
		op.Binding.Kind = BindingKind(d.byte())
		op.Binding.Expr = d.name(list)
		op.Binding.WaterMark = int32(d.uvarint(maxWaterMark+1)) - 1
		flags := d.byte()
		if flags > maxKnownFlags {
			d.fail(fmt.Sprintf("binding flags %#x are not known", flags))
		}
		op.Binding.Volatile = flags&flagVolatile != 0
	}
}

// decoder reads varints until the first error; after that every read gives zero.
type decoder struct {
	b   []byte // what is left
	all int
	err error

	names []byte // strings that are read one by one, instead of a list
	most  int    // how many there are
}

func (d *decoder) offset() int { return d.all - len(d.b) }

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = &FormatError{Offset: d.offset(), What: what}
		d.b = nil
	}
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail("ends too early")
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *decoder) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > limit {
		d.fail("number is cut off or too large")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail("number is cut off or too large")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count reads the number of things of which each takes at least size bytes, so that a lie cannot make us allocate.
func (d *decoder) count(limit, size int, what string) int {
	n := d.uvarint(uint64(limit))
	if d.err == nil && n > uint64(len(d.b)/size) {
		d.fail(fmt.Sprintf("%d %s in %d bytes", n, what, len(d.b)))
		return 0
	}
	return int(n)
}

func (d *decoder) text(limit int) string {
	n := d.uvarint(uint64(limit))
	if n > uint64(len(d.b)) {
		d.fail("text is cut off")
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func (d *decoder) strings(limit int) []string {
	list := make([]string, d.count(len(d.b), 1, "strings"))
	for i := range list {
		list[i] = d.text(limit)
	}
	return list
}

func (d *decoder) name(list []string) string {
	i := d.uvarint(math.MaxInt32)
	if d.names != nil && i < uint64(d.most) {
		return d.walk(int(i))
	}
	if d.err == nil && i >= uint64(len(list)) {
		d.fail(fmt.Sprintf("string %d of %d", i, len(list)))
	}
	if d.err != nil {
		return ""
	}
	return list[i]
}

// walk reads string i of names, which were checked.
func (d *decoder) walk(i int) string {
	b := d.names
	for {
		n, k := binary.Uvarint(b)
		if b = b[k:]; i == 0 {
			return string(b[:n])
		}
		b = b[n:]
		i--
	}
}
