package state

import (
	"encoding/binary"
	"slices"
)

// A commit or a delay that shares its record with no other operation has a form of its own: the body of the record is that one OpPublish, short, of a
// record that was never moved. It begins with a byte that no version and no record begins with:
//
//	0 1 bit 7, 1; bits 5 and 6, back: 1 for 88 bytes, 2 for 112, 0 not set yet; bit 4, there is a tags code; bits 0 to 3, view kind
//	1 6 queue offset, little-endian
//	7   first, queue and size as varints, the tags code in 4 bytes, little-endian, and the topic up to the end
//
// 88 and 112 bytes are the head of a record with hosts of IPv4 and of IPv6, so no other distance is needed.
const (
	loneMark   = 0x80
	loneBack   = 0x60
	loneTagged = 0x10
	loneKind   = 0x0f
)

var loneBacks = [...]int{0, 88, 112} // by bits 5 and 6

func isLone(b []byte) bool { return len(b) > 0 && b[0]&loneMark != 0 }

// lone is whether op, the only one of its record, has the form.
func (op *Op) lone() bool {
	v := op.View
	return op.Kind == OpPublish && !v.grouped() && op.short() && v.Position == op.First && slices.Contains(loneBacks[:], int(v.Back))
}

func appendLone(b []byte, op *Op) []byte {
	v := op.View
	mark := loneMark | byte(v.Kind) | byte(slices.Index(loneBacks[:], int(v.Back)))<<5
	if v.TagsCode != 0 {
		mark |= loneTagged
	}
	b = appendOffset(append(b, mark), v.Offset)
	b = binary.AppendUvarint(b, uint64(op.First))
	b = binary.AppendUvarint(b, uint64(v.Queue))
	b = binary.AppendUvarint(b, uint64(v.Size))
	if v.TagsCode != 0 {
		b = binary.LittleEndian.AppendUint32(b, uint32(v.TagsCode))
	}
	return append(b, op.Topic...)
}

// lone reads the form.
func (d *decoder) lone(op *Op) {
	if len(d.b) < 1+offsetBytes {
		d.fail("view is cut off")
		return
	}
	mark := d.b[0]
	back := int(mark&loneBack) >> 5
	if back == len(loneBacks) {
		d.fail("view has no place")
		return
	}
	v := &View{Kind: ViewKind(mark & loneKind), Back: int32(loneBacks[back]), Offset: offsetAt(d.b[1:])}
	d.b = d.b[1+offsetBytes:]
	op.Kind, op.View, op.First = OpPublish, v, int64(d.uvarint(maxInt64))
	v.Position, v.Queue, v.Size = op.First, int32(d.uvarint(maxInt32)), int32(d.uvarint(maxInt32))
	if mark&loneTagged != 0 {
		if len(d.b) < 4 {
			d.fail("tags code is cut off")
			return
		}
		v.TagsCode, d.b = int32(binary.LittleEndian.Uint32(d.b)), d.b[4:]
		if v.TagsCode == 0 {
			d.fail("view is not in its shortest form")
		}
	}
	if v.grouped() {
		d.fail("view has no group")
	}
	op.Topic = string(d.b)
	v.Topic, d.b = op.Topic, nil
}

// decodeLone reads a body of this form.
func decodeLone(b []byte) (op Op, err error) {
	d := decoder{b: b, all: len(b)}
	if d.lone(&op); d.err != nil {
		return Op{}, d.err
	}
	if err := op.check(0); err != nil {
		return Op{}, &FormatError{Offset: d.offset(), What: err.Error()}
	}
	return op, nil
}
