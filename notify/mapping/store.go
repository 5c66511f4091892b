package mapping

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"

	"github.com/fusionmq/fusionmq/notify/wire"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/record"
)

// MaxProperties is the most bytes of property text in a record.
const MaxProperties = 32767

// Stored is what of a Notify message goes into a record beside topic and body.
type Stored struct {
	SysFlag    int32
	BornTime   int64  // milliseconds since 1970, on the sender's clock
	Properties []byte // dst and the text
}

// Store appends the property text of h to dst, which must be empty or end with a whole entry. It validates h first
// ([wire.MessageHeader.Validate]); an error is fit to be sent to the client, and then nothing is to be stored.
func Store(dst []byte, h *wire.MessageHeader) (Stored, error) {
	if err := h.Validate(); err != nil {
		return Stored{}, err
	}
	s := Stored{BornTime: int64(h.BornTime)}
	start := len(dst)

	var digits [2 * wire.MessageIDLen]byte
	hex.Encode(digits[:], h.ID)
	dst = appendEntry(dst, "", propUniq, digits[:])
	dst = appendEntry(dst, "", propKeys, digits[:])
	dst = appendEntry(dst, "", propTags, h.Type)
	dst = appendGroup(dst, h.Group)
	for i := range scalars {
		dst = appendScalar(dst, &scalars[i], h)
	}
	compressed := h.Flag&wire.FlagCompressed != 0
	if compressed {
		s.SysFlag = record.FlagCompressed
	}
	keep := effective(h.Properties)
	for i := range h.Properties {
		p := &h.Properties[i]
		if !p.HasValue || !keep(i) {
			continue
		}
		if compressed && string(p.Key) == wire.KeyCompression {
			switch string(p.Value) {
			case wire.CompressionLZ4:
				s.SysFlag |= record.FlagCompressorLZ4
			case wire.CompressionZstd:
				s.SysFlag |= record.FlagCompressorZSTD
			}
			continue
		}
		dst = appendHeader(dst, p)
	}
	if n := len(dst) - start; n > MaxProperties {
		return Stored{}, &wire.InputError{Field: "properties", Rule: fmt.Sprintf("take %d bytes with the system's; at most %d are allowed", n, MaxProperties)}
	}
	s.Properties = dst
	return s, nil
}

// appendEntry appends one property whose name is prefix and name. Empty values make no entry.
func appendEntry[N ~string | ~[]byte](dst []byte, prefix string, name N, value []byte) []byte {
	if len(value) == 0 {
		return dst
	}
	dst = append(dst, prefix...)
	dst = append(dst, name...)
	dst = append(dst, 1)
	dst = append(dst, value...)
	return append(dst, 2)
}

func appendNumber(dst []byte, name string, v int64) []byte {
	dst = append(dst, name...)
	dst = append(dst, 1)
	dst = strconv.AppendInt(dst, v, 10)
	return append(dst, 2)
}

func appendUnsigned(dst []byte, name string, v uint64) []byte {
	dst = append(dst, name...)
	dst = append(dst, 1)
	dst = strconv.AppendUint(dst, v, 10)
	return append(dst, 2)
}

func appendGroup(dst, group []byte) []byte {
	dst = append(dst, propPGroup...)
	dst = append(dst, 1)
	dst = AppendGroup(dst, group)
	return append(dst, 2)
}

func appendScalar(dst []byte, s *scalar, h *wire.MessageHeader) []byte {
	switch s.field {
	case wire.FieldFlag:
		if f := h.Flag &^ wire.FlagCompressed; f != 0 {
			dst = appendNumber(dst, s.name, int64(f))
		}
		return dst
	case wire.FieldGroup:
		if !meta.PlainGroup(h.Group) {
			dst = appendEntry(dst, "", s.name, h.Group)
		}
		return dst
	case wire.FieldPriority:
		if h.Priority != DefaultPriority {
			dst = appendNumber(dst, s.name, int64(h.Priority))
		}
		return dst
	}
	if !h.Set.Has(s.field) {
		return dst
	}
	switch s.field {
	case wire.FieldVersion:
		return appendNumber(dst, s.name, int64(h.Version))
	case wire.FieldTTL:
		return appendNumber(dst, s.name, int64(h.TTL))
	case wire.FieldDLQTime:
		return appendNumber(dst, s.name, int64(h.DLQTime))
	case wire.FieldPostTimeout:
		return appendNumber(dst, s.name, int64(h.PostTimeout))
	case wire.FieldPostDelay:
		return appendUnsigned(dst, s.name, h.PostDelay)
	case wire.FieldReplyID:
		return appendUnsigned(dst, s.name, h.ReplyID)
	case wire.FieldPublisherHost:
		return appendEntry(dst, "", s.name, h.PublisherHost)
	case wire.FieldTargetGroup:
		return appendEntry(dst, "", s.name, h.TargetGroup)
	case wire.FieldReplyToTopic:
		return appendEntry(dst, "", s.name, h.ReplyToTopic)
	case wire.FieldReplyToType:
		return appendEntry(dst, "", s.name, h.ReplyToType)
	default: // FieldReplyWhenDelivery
		return appendEntry(dst, "", s.name, h.ReplyWhenDelivered)
	}
}

// appendHeader appends a user's property under a name that means nothing to RocketMQ.
func appendHeader(dst []byte, p *wire.Property) []byte {
	value := p.Value
	if len(value) == 0 {
		dst = append(dst, PrefixEmpty...)
		value = emptyMark
	}
	if Reserved(p.Key) {
		dst = append(dst, PrefixHeader...)
	}
	return appendEntry(dst, "", p.Key, value)
}

// emptyMark is the value of a PrefixEmpty property.
var emptyMark = []byte("1")

// effective tells which of ps count: of equal keys the last. Few properties are compared with each other, many through
// a table, so that no sender can make this quadratic.
func effective(ps []wire.Property) func(i int) bool {
	if len(ps) <= 32 {
		return func(i int) bool {
			return !slices.ContainsFunc(ps[i+1:], func(q wire.Property) bool { return string(q.Key) == string(ps[i].Key) })
		}
	}
	last := make(map[string]int, len(ps))
	for i := range ps {
		last[string(ps[i].Key)] = i
	}
	return func(i int) bool { return last[string(ps[i].Key)] == i }
}
