package record

import (
	"encoding/binary"
	"slices"
)

// Patch is what a view changes in the record that it shows. Properties nil leaves the text as it is.
type Patch struct {
	Topic          string
	QueueID        int32
	QueueOffset    int64
	PhysicalOffset int64
	SysFlag        int32 // host bits are kept
	StoreTime      int64
	ReconsumeTimes int32
	PreparedOffset int64
	Properties     []byte
}

// PatchedSize is the length of what AppendPatched makes.
func (v View) PatchedSize(p *Patch) int {
	n := int(v.topic) - 1 + 1 + len(p.Topic) + 2 + len(p.Properties)
	if v.Magic() == MagicV2 {
		n--
	}
	if len(p.Topic) > MaxTopicV1 {
		n++
	}
	if p.Properties == nil {
		n += int(v.propsLen)
	}
	return n
}

// AppendPatched appends the record with the fields of p in their places; everything else is copied. The topic and the
// properties must be inside the limits of Check.
func (v View) AppendPatched(dst []byte, p *Patch) []byte {
	size, at := v.PatchedSize(p), len(dst)
	dst = slices.Grow(dst, size)
	dst = append(dst, v.b[:v.body+v.i32(v.body-4)]...)
	magic := MagicV1
	if len(p.Topic) > MaxTopicV1 {
		magic = MagicV2
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(p.Topic)))
	} else {
		dst = append(dst, byte(len(p.Topic)))
	}
	dst = append(dst, p.Topic...)
	props := p.Properties
	if props == nil {
		props = v.Properties()
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(props)))
	dst = append(dst, props...)
	b := dst[at:]
	binary.BigEndian.PutUint32(b, uint32(size))
	binary.BigEndian.PutUint32(b[offMagic:], magic)
	SetQueueID(b, p.QueueID)
	SetPlace(b, p.QueueOffset, p.PhysicalOffset, p.StoreTime)
	SetSysFlag(b, p.SysFlag)
	SetReconsumeTimes(b, p.ReconsumeTimes)
	SetPreparedOffset(b, p.PreparedOffset)
	return dst
}

// BodyOffset is where the body begins, in bytes from the record's start.
func (v View) BodyOffset() int { return int(v.body) }

// UpdateBodyCRC sets the checksum of the valid record that b starts with to that of its body, which was changed.
func UpdateBodyCRC(b []byte) {
	at := tail(b) + 12
	n := int(binary.BigEndian.Uint32(b[at:]))
	binary.BigEndian.PutUint32(b[offCRC:], CRC(b[at+4:at+4+n]))
}
