package wire

import (
	"encoding/binary"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// A delivery tag numbers the deliveries of one connection: 1 for the first message in a DELIVER_BATCH after the
// connection was made, then one more for each, over all groups. A tag is never used twice on a connection.

// MaxBatchMessages is the most messages of one DELIVER_BATCH.
const MaxBatchMessages = 4096

// MaxBatchHeader is the most bytes of one header in a DELIVER_BATCH. It is more than MaxHeader, because the properties of
// a RocketMQ message can grow past that when they are written as a MessageHeader.
const MaxBatchHeader = 128 << 10

// entryFixed is the fixed part of a delivery in a batch: header length (4) and body length (4), big endian.
const entryFixed = 8

var deliverSchema = schema{
	name:     "DeliverBatchHeader",
	fields:   []fieldSpec{1: {"firstTag", protowire.VarintType}, 2: {"count", protowire.VarintType}},
	required: 1<<1 | 1<<2,
}

// BatchBuilder builds one DELIVER_BATCH frame in a buffer: BeginBatch, then for each message BeginEntry, append the
// header, EndEntry, append the body; End. Tags are first, first+1, and so on in the order of the entries.
type BatchBuilder struct {
	frame Builder
	count int // where the count stands in dst, in two bytes
	n     int
	entry int
}

// BeginBatch appends the start of a DELIVER_BATCH frame whose first message has tag first.
func BeginBatch(dst []byte, first uint64) ([]byte, BatchBuilder) {
	var b BatchBuilder
	dst, b.frame = Begin(dst, OpDeliverBatch, 0)
	dst = appendVarintField(dst, 1, first)
	dst = protowire.AppendTag(dst, 2, protowire.VarintType)
	b.count = len(dst)
	dst = append(dst, 0x80, 0) // a varint may be padded, so the count can be filled in at the end
	b.frame.EndHeader(dst)
	return dst, b
}

// BeginEntry appends the start of the next message. Its encoded MessageHeader comes next.
func (b *BatchBuilder) BeginEntry(dst []byte) []byte {
	b.entry = len(dst)
	return append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
}

// EndEntry ends the header of the message and says how long its body is; the body comes next. It returns ErrTooLong
// and dst without the entry when the header, the frame or the number of messages would pass its limit.
func (b *BatchBuilder) EndEntry(dst []byte, body int) ([]byte, error) {
	header := len(dst) - b.entry - entryFixed
	if header > MaxBatchHeader || b.n == MaxBatchMessages || b.frame.Len(dst)+body > MaxFrame {
		return dst[:b.entry], fmt.Errorf("%w: message %d of a batch: header %d bytes, body %d bytes", ErrTooLong, b.n, header, body)
	}
	binary.BigEndian.PutUint32(dst[b.entry:], uint32(header))
	binary.BigEndian.PutUint32(dst[b.entry+4:], uint32(body))
	b.n++
	return dst, nil
}

// Count is the number of messages so far, Len the bytes of the frame.
func (b *BatchBuilder) Count() int         { return b.n }
func (b *BatchBuilder) Len(dst []byte) int { return b.frame.Len(dst) }

// End completes the frame. extra is as in [Builder.End]. A batch without messages is taken off dst.
func (b *BatchBuilder) End(dst []byte, extra int) ([]byte, error) {
	if b.n == 0 {
		return dst[:b.frame.at], nil
	}
	dst[b.count] = 0x80 | byte(b.n&0x7f)
	dst[b.count+1] = byte(b.n >> 7)
	return b.frame.End(dst, extra)
}

// Deliveries reads a DELIVER_BATCH frame.
type Deliveries struct {
	tag  uint64
	left int
	b    []byte
}

// Batch starts reading a DELIVER_BATCH frame from its header and body.
func Batch(header, body []byte) (Deliveries, error) {
	var d Deliveries
	var seen uint32
	var count uint64
	err := deliverSchema.each(header, &seen, func(f protoField) error {
		if f.num == 1 {
			d.tag = f.n
		} else {
			count = f.n
		}
		return nil
	})
	if err == nil {
		err = deliverSchema.missing(seen)
	}
	if err != nil {
		return Deliveries{}, err
	}
	if d.tag == 0 || d.tag > math.MaxUint64-MaxBatchMessages {
		return Deliveries{}, &HeaderError{Message: deliverSchema.name, Field: "firstTag", Reason: fmt.Sprintf("%d is no tag; tags start at 1", d.tag)}
	}
	if count == 0 || count > MaxBatchMessages || count*entryFixed > uint64(len(body)) {
		return Deliveries{}, &HeaderError{Message: deliverSchema.name, Field: "count", Reason: fmt.Sprintf("%d messages in %d bytes; 1..%d are allowed", count, len(body), MaxBatchMessages)}
	}
	d.left, d.b = int(count), body
	return d, nil
}

// Len is how many messages are left to read.
func (d *Deliveries) Len() int { return d.left }

// Next returns the next message: its tag, its encoded MessageHeader and its body. ok is false at the end.
func (d *Deliveries) Next() (tag uint64, header, body []byte, ok bool, err error) {
	if d.left == 0 {
		if len(d.b) != 0 {
			return 0, nil, nil, false, &HeaderError{Message: "DeliverBatch", Reason: fmt.Sprintf("%d bytes behind the last message", len(d.b))}
		}
		return 0, nil, nil, false, nil
	}
	if len(d.b) < entryFixed {
		return 0, nil, nil, false, &HeaderError{Message: "DeliverBatch", Reason: "body ends inside a message"}
	}
	hl := int(int32(binary.BigEndian.Uint32(d.b)))
	bl := int(int32(binary.BigEndian.Uint32(d.b[4:])))
	rest := d.b[entryFixed:]
	if hl < 0 || hl > MaxBatchHeader || bl < 0 || hl > len(rest) || bl > len(rest)-hl {
		return 0, nil, nil, false, &HeaderError{Message: "DeliverBatch", Reason: fmt.Sprintf("message of %d + %d bytes in %d", hl, bl, len(rest))}
	}
	header, body, d.b = rest[:hl:hl], rest[hl:hl+bl:hl+bl], rest[hl+bl:]
	tag = d.tag
	d.tag++
	d.left--
	return tag, header, body, true, nil
}

// AckRun is the verdict on the deliveries with tags First to Last.
type AckRun struct {
	First, Last uint64 // First <= Last
	Status      Status // 0..255
	Text        []byte // why, with a status other than NoError; at most MaxAckText bytes, UTF-8
}

// MaxAckText is the most bytes of a text in an AckRun.
const MaxAckText = 256

// AckEncoder appends the body of an ACK_BATCH: runs in any order, each coded against the one before, so that ascending
// tags cost three bytes a run however long it is. The zero value starts a body.
type AckEncoder struct{ prev uint64 }

// Append appends a run. Text is cut to MaxAckText bytes and dropped with NoError.
func (e *AckEncoder) Append(dst []byte, r AckRun) []byte {
	dst = protowire.AppendVarint(dst, protowire.EncodeZigZag(int64(r.First-e.prev)))
	dst = protowire.AppendVarint(dst, r.Last-r.First)
	dst = append(dst, byte(r.Status))
	if r.Status != NoError {
		text := r.Text[:min(len(r.Text), MaxAckText)]
		dst = protowire.AppendVarint(dst, uint64(len(text)))
		dst = append(dst, text...)
	}
	e.prev = r.Last
	return dst
}

// Acks reads the body of an ACK_BATCH.
type Acks struct {
	prev uint64
	b    []byte
}

// ReadAcks starts reading the body of an ACK_BATCH.
func ReadAcks(body []byte) Acks { return Acks{b: body} }

// Next returns the next run. ok is false at the end. A run may name tags that were never given or are long answered;
// the reader must bound its work by what is outstanding, not by Last - First.
func (a *Acks) Next() (r AckRun, ok bool, err error) {
	if len(a.b) == 0 {
		return r, false, nil
	}
	delta, n := protowire.ConsumeVarint(a.b)
	if n < 0 {
		return r, false, ackError("tag")
	}
	a.b = a.b[n:]
	length, n := protowire.ConsumeVarint(a.b)
	if n < 0 || len(a.b) == n {
		return r, false, ackError("length or status")
	}
	r.First = a.prev + uint64(protowire.DecodeZigZag(delta))
	r.Last = r.First + length
	if r.First == 0 || r.Last < r.First {
		return r, false, ackError("range")
	}
	r.Status = Status(a.b[n])
	a.b = a.b[n+1:]
	if r.Status != NoError {
		text, n := protowire.ConsumeBytes(a.b)
		if n < 0 || len(text) > MaxAckText {
			return r, false, ackError("text")
		}
		r.Text, a.b = text, a.b[n:]
	}
	a.prev = r.Last
	return r, true, nil
}

func ackError(what string) error {
	return &HeaderError{Message: "AckBatch", Field: what, Reason: "broken run"}
}

// Credit is the room that a client has for unanswered deliveries of one group on this connection. It is a level, not an
// increment: the newest one holds, and an answered delivery frees its place. Zero pauses the group.
type Credit struct {
	Group    []byte
	Messages uint32 // most unanswered deliveries
	Bytes    uint64 // most body bytes of unanswered deliveries; 0 is no limit. One message is always allowed when none is out
}

var creditSchema = schema{
	name:     "Credit",
	fields:   []fieldSpec{1: {"group", protowire.BytesType}, 2: {"messages", protowire.VarintType}, 3: {"bytes", protowire.VarintType}},
	required: 1<<1 | 1<<2,
}

// Decode replaces m with the message in b.
func (m *Credit) Decode(b []byte) error {
	*m = Credit{}
	var seen uint32
	err := creditSchema.each(b, &seen, func(f protoField) error {
		switch f.num {
		case 1:
			m.Group = f.b
		case 2:
			if f.n > math.MaxUint32 {
				return &HeaderError{Message: creditSchema.name, Field: "messages", Reason: fmt.Sprintf("%d is more than %d", f.n, uint32(math.MaxUint32))}
			}
			m.Messages = uint32(f.n)
		case 3:
			m.Bytes = f.n
		}
		return nil
	})
	if err != nil {
		return err
	}
	return creditSchema.missing(seen)
}

// Append appends the encoded message.
func (m *Credit) Append(dst []byte) []byte {
	dst = appendBytesField(dst, 1, m.Group)
	dst = appendVarintField(dst, 2, uint64(m.Messages))
	if m.Bytes != 0 {
		dst = appendVarintField(dst, 3, m.Bytes)
	}
	return dst
}
