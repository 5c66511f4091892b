package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// protoField is one field of an encoded message: its value is in n for varints and in b for length-delimited ones.
type protoField struct {
	num protowire.Number
	typ protowire.Type
	n   uint64
	b   []byte
}

// nextField takes the first field off b. Groups are refused; fixed32 and fixed64 are skipped over by callers as
// unknown or wrong types, since no message here has one. The reason is empty when all is well.
func nextField(b []byte) (f protoField, rest []byte, reason string) {
	tag, n := uvarint(b)
	if n < 0 {
		return f, nil, "broken tag: " + protowire.ParseError(n).Error()
	}
	f.num, f.typ = protowire.DecodeTag(tag)
	if f.num < protowire.MinValidNumber {
		return f, nil, fmt.Sprintf("broken tag: field number %d", f.num)
	}
	b = b[n:]
	switch f.typ {
	case protowire.VarintType:
		f.n, n = uvarint(b)
	case protowire.BytesType:
		var size uint64
		if size, n = uvarint(b); n >= 0 {
			if size > uint64(len(b)-n) {
				return f, nil, fmt.Sprintf("field %d: %d bytes are announced, %d are left", f.num, size, len(b)-n)
			}
			end := n + int(size)
			f.b = b[n:end:end]
			n = end
		}
	case protowire.Fixed32Type:
		_, n = protowire.ConsumeFixed32(b)
	case protowire.Fixed64Type:
		_, n = protowire.ConsumeFixed64(b)
	case protowire.StartGroupType, protowire.EndGroupType:
		return f, nil, fmt.Sprintf("field %d: groups are not supported", f.num)
	default:
		return f, nil, fmt.Sprintf("field %d: wire type %d does not exist", f.num, f.typ)
	}
	if n < 0 {
		return f, nil, fmt.Sprintf("field %d: %v", f.num, protowire.ParseError(n))
	}
	return f, b[n:], ""
}

// uvarint is protowire.ConsumeVarint with the common case of one byte inlined: most tags and lengths are that short.
func uvarint(b []byte) (uint64, int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return protowire.ConsumeVarint(b)
}

// schema describes a message: name is the protocol's, fields has an entry per field number, required is the bit set of
// field numbers that must be there.
type schema struct {
	name     string
	fields   []fieldSpec
	required uint32
}

type fieldSpec struct {
	name string
	typ  protowire.Type
}

// each calls set with every known field of b in order and checks types, then required fields against seen, which
// collects the bits of the fields met (several parts of one message can share it).
func (s *schema) each(b []byte, seen *uint32, set func(protoField) error) error {
	for len(b) > 0 {
		f, rest, reason := nextField(b)
		if reason != "" {
			return &HeaderError{Message: s.name, Reason: reason}
		}
		b = rest
		if int(f.num) >= len(s.fields) || s.fields[f.num].name == "" {
			continue
		}
		if want := s.fields[f.num].typ; f.typ != want {
			return &HeaderError{Message: s.name, Field: s.fields[f.num].name, Reason: fmt.Sprintf("wire type %d, want %d", f.typ, want)}
		}
		*seen |= 1 << f.num
		if err := set(f); err != nil {
			return err
		}
	}
	return nil
}

// missing returns an error that names the first required field not in seen.
func (s *schema) missing(seen uint32) error {
	lack := s.required &^ seen
	if lack == 0 {
		return nil
	}
	for i := range s.fields {
		if lack&(1<<i) != 0 {
			return &HeaderError{Message: s.name, Field: s.fields[i].name, Reason: "required field is missing"}
		}
	}
	return nil
}

func appendBytesField(dst []byte, num protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, num, protowire.BytesType), v)
}

func appendStringField(dst []byte, num protowire.Number, v string) []byte {
	return protowire.AppendString(protowire.AppendTag(dst, num, protowire.BytesType), v)
}

func appendVarintField(dst []byte, num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, num, protowire.VarintType), v)
}

// fieldWriter writes fields into b, which has room for them.
type fieldWriter struct {
	b []byte
	n int
}

func (w *fieldWriter) tag(num protowire.Number, typ protowire.Type) {
	if num < 16 {
		w.b[w.n] = byte(num)<<3 | byte(typ)
		w.n++
		return
	}
	w.uvarint(protowire.EncodeTag(num, typ))
}

func (w *fieldWriter) uvarint(v uint64) {
	b, n := w.b, w.n
	for v >= 0x80 {
		b[n] = byte(v) | 0x80
		v >>= 7
		n++
	}
	b[n] = byte(v)
	w.n = n + 1
}

func (w *fieldWriter) varint(num protowire.Number, v uint64) {
	w.tag(num, protowire.VarintType)
	w.uvarint(v)
}

func (w *fieldWriter) bytes(num protowire.Number, v []byte) {
	w.tag(num, protowire.BytesType)
	w.uvarint(uint64(len(v)))
	w.n += copy(w.b[w.n:], v)
}

func sizeBytesField(num protowire.Number, n int) int {
	return protowire.SizeTag(num) + protowire.SizeBytes(n)
}

func sizeVarintField(num protowire.Number, v uint64) int {
	return protowire.SizeTag(num) + protowire.SizeVarint(v)
}

func boolBit(v bool) uint64 {
	if v {
		return 1
	}
	return 0
}
