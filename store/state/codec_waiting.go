package state

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
)

// What of an OpPublish has a fixed place, from its first byte, little-endian: the rest is varints. One that is alone in its record begins otherwise, see
// appendLone.
//
//	0 1 kind
//	1 1 view kind, and bit 7 for one in the topic of the message itself, without reconsume times and level
//	2 6 queue offset
//	8 3 back: bytes from the start of the record to here
//
// A single transaction or delay must not cost much, so there is no byte more than that takes.
const (
	viewOffsetAt = 2
	offsetBytes  = 6
	viewBackAt   = viewOffsetAt + offsetBytes
	viewFixed    = viewBackAt + 3
	viewShort    = 0x80
	maxBack      = 1<<24 - 1
	maxOffset    = 1<<48 - 1
	maxInt32     = math.MaxInt32
	maxInt64     = math.MaxInt64
)

// OffsetAt is where the log writes the queue offset of the OpPublish that b begins with: 6 bytes, little-endian.
func OffsetAt(b []byte) int {
	if isLone(b) {
		return 1
	}
	return viewOffsetAt
}

// SetBack writes how far the OpPublish that b begins with lies behind the start of its record; false when it cannot lie there.
func SetBack(b []byte, back int) bool {
	if isLone(b) {
		i := slices.Index(loneBacks[:], back)
		if i < 0 {
			return false
		}
		b[0] = b[0]&^loneBack | byte(i)<<5
		return true
	}
	b[viewBackAt], b[viewBackAt+1], b[viewBackAt+2] = byte(back), byte(back>>8), byte(back>>16)
	return back <= maxBack
}

func backOf(b []byte) int {
	return int(b[viewBackAt]) | int(b[viewBackAt+1])<<8 | int(b[viewBackAt+2])<<16
}

func appendOffset(b []byte, n int64) []byte {
	return binary.LittleEndian.AppendUint64(b, uint64(n))[:len(b)+offsetBytes]
}

func offsetAt(b []byte) int64 {
	return int64(binary.LittleEndian.Uint32(b)) | int64(binary.LittleEndian.Uint16(b[4:]))<<32
}

// short is whether what most views do not need can be left out.
func (op *Op) short() bool {
	v := op.View
	return v.Topic == op.Topic && v.Reconsume == 0 && v.Level == 0
}

// BeginsView is whether an OpPublish can begin with a byte. No record does: it would be larger than 100 MiB.
func BeginsView(first byte) bool { return first == byte(OpPublish) || first&loneMark != 0 }

// ViewBack reads it; ok is false where no OpPublish can be.
func ViewBack(b []byte) (back int, ok bool) {
	if isLone(b) {
		i := int(b[0]&loneBack) >> 5
		kind := ViewKind(b[0] & loneKind)
		if i == 0 || i == len(loneBacks) || kind < ViewCommit || kind > lastView {
			return 0, false
		}
		return loneBacks[i], true
	}
	if kind := ViewKind(0); len(b) >= viewFixed {
		kind = ViewKind(b[1] &^ viewShort)
		ok = OpKind(b[0]) == OpPublish && kind >= ViewCommit && kind <= lastView
	}
	if !ok {
		return 0, false
	}
	return backOf(b), true
}

// ViewBytes is how much of an OpPublish ViewBack needs.
const ViewBytes = viewFixed

// grouped is whether an operation of what waits names a group.
func (op *Op) grouped() bool {
	return op.Kind == OpReturn || op.Kind == OpPopped || op.Kind == OpPublish && op.View != nil && op.View.grouped()
}

func (v *View) grouped() bool {
	return v.Kind == ViewRetry || v.Kind == ViewDead || v.Kind == ViewRevive
}

func (op *Op) ranged() bool { return op.Kind == OpRollback || op.Kind == OpCancel }

func (op *Op) checkWaiting(bad func(field, value, want string) error, name func(field, s string) error) error {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	if op.ranged() && op.Last < op.First {
		return bad("last", number(op.Last), "at least first")
	}
	if op.Position < 0 || op.Due < 0 || op.Size < 0 || op.Attempt < 0 || op.Level < 0 {
		return bad("position, due time, size, attempts or level", number(min(op.Position, op.Due, int64(op.Size), int64(op.Attempt), int64(op.Level))), "0 or more")
	}
	if op.Kind == OpHold && (op.Level < int32(HoldHalf) || op.Level > int32(HoldTimer)) {
		return bad("what is held", number(int64(op.Level)), "1 to 3")
	}
	v := op.View
	if (op.Kind == OpPublish) != (v != nil) {
		return bad("view", "", "one, of a publish only")
	}
	if v == nil {
		return nil
	}
	if v.Kind < ViewCommit || v.Kind > lastView {
		return bad("view kind", number(int64(v.Kind)), "1 to "+number(int64(lastView)))
	}
	if err := name("view topic", v.Topic); err != nil {
		return err
	}
	if v.Offset > maxOffset || v.Back > maxBack {
		return bad("queue offset or back of the view", number(max(v.Offset, int64(v.Back))), "below 1<<48 and 1<<24")
	}
	if v.PopTime < 0 || v.PopTime > 0 && v.Kind != ViewRevive {
		return bad("pop time of the view", number(v.PopTime), "0 or more, of a revived message only")
	}
	if v.Queue < 0 || v.Offset < 0 || v.Back < 0 || v.Position < 0 || v.Size < 0 || v.Reconsume < 0 || v.Level < 0 {
		return bad("a number of the view", number(min(int64(v.Queue), v.Offset, int64(v.Back), v.Position, int64(v.Size), int64(v.Reconsume), int64(v.Level))), "0 or more")
	}
	return nil
}

// appendWaiting appends what follows the kind.
func (e *opEncoder) appendWaiting(b []byte, op *Op) []byte {
	uvarint := func(n int64) { b = binary.AppendUvarint(b, uint64(n)) }
	if op.Kind == OpAdopt {
		return append(b, 0, 0) // no operation takes less than three bytes
	}
	v := op.View
	if v != nil {
		kind := byte(v.Kind)
		if op.short() {
			kind |= viewShort
		}
		b = append(b, kind)
		b = appendOffset(b, v.Offset)
		b = append(b, byte(v.Back), byte(v.Back>>8), byte(v.Back>>16))
	}
	uvarint(int64(e.intern(op.Topic)))
	if op.grouped() {
		uvarint(int64(e.intern(op.Group)))
	}
	uvarint(op.First)
	switch op.Kind {
	case OpPublish:
		if !op.short() {
			uvarint(int64(e.intern(v.Topic)))
			uvarint(int64(v.Reconsume))
			uvarint(int64(v.Level))
		}
		uvarint(int64(v.Queue))
		b = binary.AppendVarint(b, v.Position-op.First)
		uvarint(int64(v.Size))
		b = binary.AppendVarint(b, int64(v.TagsCode))
		if v.Kind == ViewRevive {
			uvarint(v.PopTime)
		}
	case OpRollback, OpCancel:
		uvarint(op.Last - op.First)
	case OpCheck:
		uvarint(int64(op.Attempt))
		uvarint(op.Due)
	case OpReturn, OpHold, OpPopped:
		b = binary.AppendVarint(b, op.Position-op.First)
		uvarint(int64(op.Size))
		uvarint(int64(op.Attempt))
		uvarint(op.Due)
		uvarint(int64(op.Level))
	case OpDefer:
		uvarint(op.Due)
	}
	return b
}

func (d *decoder) waiting(op *Op, list []string) {
	if op.Kind == OpAdopt {
		if a, b := d.byte(), d.byte(); a != 0 || b != 0 {
			d.fail("adopt has fields")
		}
		return
	}
	number := func() int32 { return int32(d.uvarint(math.MaxInt32)) }
	var v *View
	short := false
	if op.Kind == OpPublish {
		if len(d.b) < viewFixed-1 {
			d.fail("view is cut off")
			return
		}
		var fixed [viewFixed]byte
		copy(fixed[1:], d.b)
		short = fixed[1]&viewShort != 0
		v = &View{Kind: ViewKind(fixed[1] &^ viewShort), Back: int32(backOf(fixed[:])), Offset: offsetAt(fixed[viewOffsetAt:])}
		d.b = d.b[viewFixed-1:]
		op.View = v
	}
	op.Topic = d.name(list)
	if op.grouped() {
		op.Group = d.name(list)
	}
	op.First = int64(d.uvarint(math.MaxInt64))
	switch op.Kind {
	case OpPublish:
		if v.Topic = op.Topic; !short {
			v.Topic = d.name(list)
			if v.Reconsume, v.Level = number(), number(); d.err == nil && op.short() {
				d.fail("view is not in its shortest form")
			}
		}
		v.Queue = number()
		v.Position = op.First + d.varint()
		v.Size = number()
		if tags := d.varint(); int64(int32(tags)) == tags {
			v.TagsCode = int32(tags)
		} else {
			d.fail("tags code has more than 32 bits")
		}
		if v.Kind == ViewRevive {
			v.PopTime = int64(d.uvarint(math.MaxInt64))
		}
	case OpRollback, OpCancel:
		op.Last = op.First + int64(d.uvarint(math.MaxInt64))
	case OpCheck:
		op.Attempt = number()
		op.Due = int64(d.uvarint(math.MaxInt64))
	case OpReturn, OpHold, OpPopped:
		op.Position = op.First + d.varint()
		op.Size, op.Attempt = number(), number()
		op.Due = int64(d.uvarint(math.MaxInt64))
		op.Level = number()
	case OpDefer:
		op.Due = int64(d.uvarint(math.MaxInt64))
	}
}

// DecodeView reads the one OpPublish that begins at byte at of an operate-queue record's body, without the operations around it.
func DecodeView(b []byte, at int) (op Op, err error) {
	if isLone(b) {
		if at != 0 {
			return op, &FormatError{Offset: at, What: "no view begins here"}
		}
		return decodeLone(b)
	}
	d := decoder{b: b, all: len(b)}
	if v := d.byte(); v != opsVersion && d.err == nil {
		return op, &FormatError{0, int(v), "version " + strconv.Itoa(int(v)) + " is not known"}
	}
	d.most = d.count(len(d.b), 1, "strings")
	names := d.b
	for range d.most {
		if n := d.uvarint(MaxExprBytes); n > uint64(len(d.b)) {
			d.fail("text is cut off")
		} else {
			d.b = d.b[n:]
		}
		if d.err != nil {
			return op, d.err
		}
	}
	if d.err != nil {
		return op, d.err
	}
	if at < d.offset() || at > len(b)-viewFixed || OpKind(b[at]) != OpPublish {
		return op, &FormatError{Offset: at, What: "no view begins here"}
	}
	d.names, d.b = names[:len(names):len(names)], b[at:]
	if d.names == nil {
		d.names = []byte{}
	}
	first := int64(0)
	if d.op(&op, nil, &first); d.err != nil {
		return Op{}, d.err
	}
	if err := op.check(0); err != nil {
		return Op{}, &FormatError{Offset: d.offset(), What: err.Error()}
	}
	return op, nil
}
