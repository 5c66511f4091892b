package wire

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// HeaderRow encodes headers that differ from one to the next in ID, BornTime and Created only, as those of one producer
// do: it keeps the bytes of the one before and changes these fields in them. The zero value is ready.
type HeaderRow struct {
	b             []byte // empty: the next header begins a row
	id            int    // length of the id
	born, created int    // where the numbers begin; created is 0 when the field is not there
	sizes         int    // of both
}

// Break says that the next header is another one.
func (r *HeaderRow) Break() { r.b = r.b[:0] }

// Append appends h to dst as [MessageHeader.Append] does.
func (r *HeaderRow) Append(dst []byte, h *MessageHeader) []byte {
	at := len(dst)
	if len(r.b) == 0 || len(h.ID) != r.id || timeSizes(h) != r.sizes {
		dst = h.Append(dst)
		r.b = append(r.b[:0], dst[at:]...)
		r.find(h)
		return dst
	}
	dst = append(dst, r.b...)
	b := dst[at:]
	copy(b[1+protowire.SizeVarint(uint64(r.id)):], h.ID)
	w := fieldWriter{b: b, n: r.born}
	w.uvarint(h.BornTime)
	if r.created > 0 {
		w.n = r.created
		w.uvarint(h.Created)
	}
	return dst
}

// timeSizes tells two pairs of times apart that are not of the same length.
func timeSizes(h *MessageHeader) int {
	n := protowire.SizeVarint(h.BornTime) << 8
	if h.Set.Has(FieldCreated) {
		n += protowire.SizeVarint(h.Created)
	}
	return n
}

// find notes where the fields are that change.
func (r *HeaderRow) find(h *MessageHeader) {
	r.id, r.sizes = len(h.ID), timeSizes(h)
	r.born, r.created = 0, 0
	for rest := r.b; r.created == 0 && len(rest) > 0; {
		num, typ, n := protowire.ConsumeTag(rest)
		at := len(r.b) - len(rest) + n
		switch num {
		case FieldBornTime:
			r.born = at
		case FieldCreated:
			r.created = at
		}
		if num > FieldCreated {
			break
		}
		rest = rest[n+protowire.ConsumeFieldValue(num, typ, rest[n:]):]
	}
}
