// Package bits keeps, for messages of topics that pull groups read through filters, what the filters said when the message
// came: a few bits of a bloom filter each, so that a pull can pass over a message without reading the log.
//
// An answer belongs to a filter by its content, never to a group or a version of a subscription: what the bits of a message
// can answer is written beside them, filter by filter, from which address on and up to which. A filter that came later, or
// changed, finds no answer for older messages and is evaluated; two groups with one filter share the bits.
//
// A [Table] is a view: without it every answer is Unknown, and the caller evaluates.
package bits

import (
	"crypto/md5" //nolint:gosec // names filters; who can choose them can only spoil answers about his own
	"encoding/binary"

	"github.com/bits-and-blooms/bloom/v3"
	"github.com/fusionmq/fusionmq/store/filter"
)

// The bloom filter: 32 filters that select a message are told apart with at most 20% of false answers (spec/store.md 6.5).
const (
	size   = 112
	hashes = 3
)

// Mask is the bits of a message, or those that a filter sets.
type Mask struct{ low, high uint64 }

const maskBytes = size / 8

// Or is the bits of both.
func (m Mask) Or(n Mask) Mask { return Mask{m.low | n.low, m.high | n.high} }

// has tells whether all bits of n are set.
func (m Mask) has(n Mask) bool { return m.low&n.low == n.low && m.high&n.high == n.high }

func (m Mask) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, m.low)
	return binary.LittleEndian.AppendUint64(dst, m.high)[:len(dst)+maskBytes-8]
}

func decodeMask(b []byte) Mask {
	var all [16]byte
	copy(all[:], b[:maskBytes])
	return Mask{binary.LittleEndian.Uint64(all[:]), binary.LittleEndian.Uint64(all[8:])}
}

// ID names a filter by its content.
type ID [md5.Size]byte

// IDOf is the name of a filter.
func IDOf(e *filter.Expr) ID {
	return md5.Sum(append([]byte{byte(e.Rules())}, e.String()...)) //nolint:gosec // see the import
}

// Mask is the bits that a filter sets on a message that it selects.
func (id ID) Mask() (m Mask) {
	for _, h := range bloom.Locations(id[:], hashes) {
		if at := h % size; at < 64 {
			m.low |= 1 << at
		} else {
			m.high |= 1 << (at - 64)
		}
	}
	return m
}

// Answer is what is known about a message and a filter.
type Answer uint8

// The answers.
const (
	Unknown Answer = iota // nothing: evaluate
	No                    // the filter does not select the message
	Maybe                 // it selects it, or its bits were set by others: evaluate
)
