package wire

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field is the number of a MessageHeader field.
type Field = protowire.Number

// The fields of MessageHeader (spec/notify.md 1.2). 1 to 8 are required, FieldProperties repeats, the rest is optional.
const (
	FieldID                Field = 1
	FieldFlag              Field = 2
	FieldTopic             Field = 3
	FieldType              Field = 4
	FieldGroup             Field = 5
	FieldCommitted         Field = 6
	FieldBornTime          Field = 7
	FieldPriority          Field = 8
	FieldDeliveryCount     Field = 9
	FieldVersion           Field = 10
	FieldTTL               Field = 11
	FieldDLQTime           Field = 12
	FieldPostTimeout       Field = 13
	FieldPostDelay         Field = 14
	FieldCreated           Field = 15
	FieldLastDelivery      Field = 16
	FieldPublisherHost     Field = 17
	FieldTargetGroup       Field = 18
	FieldProperties        Field = 19
	FieldReplyToTopic      Field = 20
	FieldReplyToType       Field = 21
	FieldReplyID           Field = 22
	FieldReplyWhenDelivery Field = 23
)

// FieldSet is a set of field numbers below 32.
type FieldSet uint32

// Has tells whether f is in the set.
func (s FieldSet) Has(f Field) bool { return s&(1<<f) != 0 }

// With is the set and f.
func (s FieldSet) With(f Field) FieldSet { return s | 1<<f }

// Without is the set less f.
func (s FieldSet) Without(f Field) FieldSet { return s &^ (1 << f) }

const requiredFields FieldSet = 1<<FieldID | 1<<FieldFlag | 1<<FieldTopic | 1<<FieldType | 1<<FieldGroup | 1<<FieldCommitted | 1<<FieldBornTime | 1<<FieldPriority

// Bits of MessageHeader.Flag. Others are passed through.
const (
	FlagKindMask   int32 = 7      // the Kind of the body
	FlagCompressed int32 = 1 << 3 // the body is compressed: zlib, or what the property KeyCompression says
	FlagSendOnce   int32 = 1 << 4 // at most one delivery attempt
)

// Kind says what the body is; the broker never looks.
type Kind uint8

// The kinds of bodies. 5 to 7 are passed through.
const (
	KindBytes Kind = iota
	KindString
	KindObject
	KindStream
	KindPackaged
)

// Property is one user-defined property. Keys and values are UTF-8; HasValue is false for an entry without a value,
// which means "not set".
type Property struct {
	Key, Value []byte
	HasValue   bool
}

// MessageHeader is all of a message but its body. The zero value is an empty header that can be decoded into; Set says
// which of the optional fields are there. Required fields are always encoded. Times are milliseconds since 1970.
type MessageHeader struct {
	ID        []byte // 16 bytes (MessageIDLen); other lengths decode and are refused by Validate
	Flag      int32  // FlagKindMask, FlagCompressed, FlagSendOnce
	Topic     []byte
	Type      []byte // messageType
	Group     []byte // groupId: the sender's group
	Committed bool   // false: a half message
	BornTime  uint64 // on the sender's clock
	Priority  int32  // 0..9, 4 is ordinary; other numbers are passed through

	Set FieldSet // optional fields that are there

	DeliveryCount int32  // attempt of this target, 1 at first; set by the server
	Version       int32  // message format version
	TTL           int32  // timeToLive, seconds; <= 0 is none
	DLQTime       int32  // dlqTime, seconds until dead letter; <= 0 is the server's default
	PostTimeout   int32  // milliseconds the server waits for an acknowledgement; <= 0 is the server's default
	PostDelay     uint64 // postDelayTime, milliseconds before the first delivery
	Created       uint64 // GMTCreated: on the server's clock; set by the server
	LastDelivery  uint64 // GMTLastDelivery; set by the server
	PublisherHost []byte // publisherHostName
	TargetGroup   []byte // in a delivery: the group it is for

	Properties []Property // userDefinedProperties, in the order of the wire

	ReplyToTopic       []byte
	ReplyToType        []byte
	ReplyID            uint64
	ReplyWhenDelivered []byte
}

var messageSchema = schema{
	name: "MessageHeader",
	fields: []fieldSpec{
		FieldID: {"id", protowire.BytesType}, FieldFlag: {"flag", protowire.VarintType}, FieldTopic: {"topic", protowire.BytesType},
		FieldType: {"messageType", protowire.BytesType}, FieldGroup: {"groupId", protowire.BytesType}, FieldCommitted: {"committed", protowire.VarintType},
		FieldBornTime: {"bornTime", protowire.VarintType}, FieldPriority: {"priority", protowire.VarintType},
		FieldDeliveryCount: {"deliveryCount", protowire.VarintType}, FieldVersion: {"version", protowire.VarintType},
		FieldTTL: {"timeToLive", protowire.VarintType}, FieldDLQTime: {"dlqTime", protowire.VarintType},
		FieldPostTimeout: {"postTimeout", protowire.VarintType}, FieldPostDelay: {"postDelayTime", protowire.VarintType},
		FieldCreated: {"GMTCreated", protowire.VarintType}, FieldLastDelivery: {"GMTLastDelivery", protowire.VarintType},
		FieldPublisherHost: {"publisherHostName", protowire.BytesType}, FieldTargetGroup: {"targetGroup", protowire.BytesType},
		FieldProperties: {"userDefinedProperties", protowire.BytesType}, FieldReplyToTopic: {"replyToTopic", protowire.BytesType},
		FieldReplyToType: {"replyToMessageType", protowire.BytesType}, FieldReplyID: {"replyId", protowire.VarintType},
		FieldReplyWhenDelivery: {"replyWhenDelivered", protowire.BytesType},
	},
	required: uint32(requiredFields),
}

var entrySchema = schema{
	name:     "MapEntry",
	fields:   []fieldSpec{1: {"key", protowire.BytesType}, 2: {"value", protowire.BytesType}},
	required: 1 << 1,
}

// Name is the field's name in the protocol.
func FieldName(f Field) string {
	if f > 0 && int(f) < len(messageSchema.fields) {
		return messageSchema.fields[f].name
	}
	return "unknown"
}

// Reset empties the header and keeps the room of Properties.
func (h *MessageHeader) Reset() {
	*h = MessageHeader{Properties: h.Properties[:0]}
}

// Decode replaces h with the message in b, which h aliases from then on.
func (h *MessageHeader) Decode(b []byte) error {
	h.Reset()
	var seen FieldSet
	if err := h.merge(b, &seen); err != nil {
		return err
	}
	return messageSchema.missing(uint32(seen))
}

// merge adds the fields of b; the caller checks that all required ones were seen at the end.
func (h *MessageHeader) merge(b []byte, seen *FieldSet) error {
	for len(b) > 0 {
		f, rest, reason := nextField(b)
		if reason != "" {
			return &HeaderError{Message: "MessageHeader", Reason: reason}
		}
		b = rest
		if int(f.num) >= len(messageSchema.fields) {
			continue
		}
		if f.typ != messageSchema.fields[f.num].typ {
			return wrongType(&messageSchema, &f)
		}
		*seen = seen.With(f.num)
		if err := h.put(f.num, f.n, f.b); err != nil {
			return err
		}
	}
	h.Set = *seen &^ (requiredFields | 1<<FieldProperties)
	return nil
}

func (h *MessageHeader) put(num Field, n uint64, b []byte) error {
	switch num {
	case FieldID:
		h.ID = b
	case FieldFlag:
		h.Flag = int32(n)
	case FieldTopic:
		h.Topic = b
	case FieldType:
		h.Type = b
	case FieldGroup:
		h.Group = b
	case FieldCommitted:
		h.Committed = n != 0
	case FieldBornTime:
		h.BornTime = n
	case FieldPriority:
		h.Priority = int32(n)
	case FieldDeliveryCount:
		h.DeliveryCount = int32(n)
	case FieldVersion:
		h.Version = int32(n)
	case FieldTTL:
		h.TTL = int32(n)
	case FieldDLQTime:
		h.DLQTime = int32(n)
	case FieldPostTimeout:
		h.PostTimeout = int32(n)
	case FieldPostDelay:
		h.PostDelay = n
	case FieldCreated:
		h.Created = n
	case FieldLastDelivery:
		h.LastDelivery = n
	case FieldPublisherHost:
		h.PublisherHost = b
	case FieldTargetGroup:
		h.TargetGroup = b
	case FieldProperties:
		p, err := decodeEntry(b)
		if err != nil {
			return err
		}
		h.Properties = append(h.Properties, p)
	case FieldReplyToTopic:
		h.ReplyToTopic = b
	case FieldReplyToType:
		h.ReplyToType = b
	case FieldReplyID:
		h.ReplyID = n
	case FieldReplyWhenDelivery:
		h.ReplyWhenDelivered = b
	}
	return nil
}

// Append appends the encoded message to dst, fields in number order.
func (h *MessageHeader) Append(dst []byte) []byte {
	at := len(dst)
	dst = slices.Grow(dst, h.bound())
	w := fieldWriter{b: dst[at:cap(dst)]}
	h.write(&w)
	return dst[:at+w.n]
}

func (h *MessageHeader) write(w *fieldWriter) {
	w.bytes(FieldID, h.ID)
	w.varint(FieldFlag, uint64(int64(h.Flag)))
	w.bytes(FieldTopic, h.Topic)
	w.bytes(FieldType, h.Type)
	w.bytes(FieldGroup, h.Group)
	w.varint(FieldCommitted, boolBit(h.Committed))
	w.varint(FieldBornTime, h.BornTime)
	w.varint(FieldPriority, uint64(int64(h.Priority)))
	h.writeOptional(w, h.Set&(1<<FieldProperties-1))
	for i := range h.Properties {
		p := &h.Properties[i]
		w.tag(FieldProperties, protowire.BytesType)
		w.uvarint(uint64(entrySize(p)))
		w.bytes(1, p.Key)
		if p.HasValue {
			w.bytes(2, p.Value)
		}
	}
	h.writeOptional(w, h.Set&^(1<<(FieldProperties+1)-1))
}

// writeOptional writes the optional fields of set.
func (h *MessageHeader) writeOptional(w *fieldWriter, set FieldSet) {
	for ; set != 0; set &= set - 1 {
		f := Field(bits.TrailingZeros32(uint32(set)))
		if f < FieldDeliveryCount || f > FieldReplyWhenDelivery {
			continue
		}
		if messageSchema.fields[f].typ == protowire.BytesType {
			w.bytes(f, h.optionalBytes(f))
		} else {
			w.varint(f, h.optionalNumber(f))
		}
	}
}

// bound is at least what Size is, and cheaper.
func (h *MessageHeader) bound() int {
	const most = 2 + binary.MaxVarintLen64 // tag and number, or tag and length
	n := (len(messageSchema.fields)-1)*most + len(h.ID) + len(h.Topic) + len(h.Type) + len(h.Group)
	if h.Set != 0 {
		n += len(h.PublisherHost) + len(h.TargetGroup) + len(h.ReplyToTopic) + len(h.ReplyToType) + len(h.ReplyWhenDelivered)
	}
	for i := range h.Properties {
		n += 3*most + len(h.Properties[i].Key) + len(h.Properties[i].Value)
	}
	return n
}

// Size is how many bytes Append adds.
func (h *MessageHeader) Size() int {
	n := sizeBytesField(FieldID, len(h.ID)) + sizeVarintField(FieldFlag, uint64(int64(h.Flag))) +
		sizeBytesField(FieldTopic, len(h.Topic)) + sizeBytesField(FieldType, len(h.Type)) + sizeBytesField(FieldGroup, len(h.Group)) +
		sizeVarintField(FieldCommitted, 1) + sizeVarintField(FieldBornTime, h.BornTime) + sizeVarintField(FieldPriority, uint64(int64(h.Priority)))
	for f := FieldDeliveryCount; h.Set != 0 && f <= FieldReplyWhenDelivery; f++ {
		switch {
		case !h.Set.Has(f) || f == FieldProperties:
		case messageSchema.fields[f].typ == protowire.BytesType:
			n += sizeBytesField(f, len(h.optionalBytes(f)))
		default:
			n += sizeVarintField(f, h.optionalNumber(f))
		}
	}
	for i := range h.Properties {
		n += sizeBytesField(FieldProperties, entrySize(&h.Properties[i]))
	}
	return n
}

func (h *MessageHeader) optionalBytes(f Field) []byte {
	switch f {
	case FieldPublisherHost:
		return h.PublisherHost
	case FieldTargetGroup:
		return h.TargetGroup
	case FieldReplyToTopic:
		return h.ReplyToTopic
	case FieldReplyToType:
		return h.ReplyToType
	default:
		return h.ReplyWhenDelivered
	}
}

func (h *MessageHeader) optionalNumber(f Field) uint64 {
	switch f {
	case FieldDeliveryCount:
		return uint64(int64(h.DeliveryCount))
	case FieldVersion:
		return uint64(int64(h.Version))
	case FieldTTL:
		return uint64(int64(h.TTL))
	case FieldDLQTime:
		return uint64(int64(h.DLQTime))
	case FieldPostTimeout:
		return uint64(int64(h.PostTimeout))
	case FieldPostDelay:
		return h.PostDelay
	case FieldCreated:
		return h.Created
	case FieldLastDelivery:
		return h.LastDelivery
	default:
		return h.ReplyID
	}
}

func wrongType(s *schema, f *protoField) error {
	return &HeaderError{Message: s.name, Field: s.fields[f.num].name, Reason: "wrong wire type"}
}

func decodeEntry(b []byte) (p Property, err error) {
	var seen FieldSet
	for len(b) > 0 {
		f, rest, reason := nextField(b)
		if reason != "" {
			return p, &HeaderError{Message: "MapEntry", Reason: reason}
		}
		b = rest
		if f.num > 2 {
			continue
		}
		if f.typ != protowire.BytesType {
			return p, wrongType(&entrySchema, &f)
		}
		seen = seen.With(f.num)
		if f.num == 1 {
			p.Key = f.b
		} else {
			p.Value, p.HasValue = f.b, true
		}
	}
	return p, entrySchema.missing(uint32(seen))
}

func entrySize(p *Property) int {
	n := sizeBytesField(1, len(p.Key))
	if p.HasValue {
		n += sizeBytesField(2, len(p.Value))
	}
	return n
}

func appendEntry(dst []byte, p *Property) []byte {
	dst = appendBytesField(dst, 1, p.Key)
	if p.HasValue {
		dst = appendBytesField(dst, 2, p.Value)
	}
	return dst
}
