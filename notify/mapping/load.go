package mapping

import (
	"crypto/md5" //nolint:gosec // the id of a foreign key by rule, no secret
	"encoding/hex"
	"math"
	"strconv"

	"github.com/fusionmq/fusionmq/notify/wire"
	"github.com/fusionmq/fusionmq/store/record"
)

// Loader reads headers out of records. One Loader holds the scratch of one header; it is not for concurrent use.
//
// Neighbours in the log often have the same properties but for their id. A Loader that is given such a record right after
// the other changes only what differs in the header that it made before.
type Loader struct {
	id     [wire.MessageIDLen]byte
	key    []byte // scratch of an offset id
	target []byte

	// The record that was read last, as far as it is in h.
	h      *wire.MessageHeader
	topic  []byte
	props  []byte
	sys    int32
	uniq   int  // where in props the 32 hex digits of the id begin; -1: there are none
	keys   int  // and where KEYS repeats them in lower case; -1: it does not
	repeat bool // the last record was like the one before
}

// Repeats tells whether the header that was loaded last differs from the one before in ID, BornTime and Created only.
func (l *Loader) Repeats() bool { return l.repeat }

const hexID = 2 * wire.MessageIDLen

// like tells whether a record with these properties makes the header of the last record but for its id and times, and
// takes over its id.
func (l *Loader) like(props []byte) bool {
	if l.uniq < 0 || len(props) != len(l.props) {
		return false
	}
	at := 0
	for _, hole := range [2]int{min(l.uniq, l.keys), max(l.uniq, l.keys)} {
		if hole < 0 {
			continue
		}
		if string(props[at:hole]) != string(l.props[at:hole]) {
			return false
		}
		at = hole + hexID
	}
	if string(props[at:]) != string(l.props[at:]) {
		return false
	}
	var id [wire.MessageIDLen]byte
	if _, err := hex.Decode(id[:], props[l.uniq:l.uniq+hexID]); err != nil {
		return false
	}
	if l.keys >= 0 && !sameHex(props[l.keys:l.keys+hexID], &id) {
		return false
	}
	l.id = id
	return true
}

// place is where a part of l.props begins, -1 when it is not 32 bytes of it.
func (l *Loader) place(part []byte) int {
	if at := cap(l.props) - cap(part); len(part) == hexID && at >= 0 && at+hexID <= len(l.props) && &l.props[at] == &part[0] {
		return at
	}
	return -1
}

// Target is what the function [Target] says of the record that was loaded last: nil when its sender did not restrict
// delivery. It is valid until the next Load.
func (l *Loader) Target() []byte { return l.target }

var (
	keyKeys        = []byte(wire.KeyKeys)
	keyCompression = []byte(wire.KeyCompression)
	valueLZ4       = []byte(wire.CompressionLZ4)
	valueZstd      = []byte(wire.CompressionZstd)
)

// Load replaces h with the Notify header of the record. h aliases the Loader and is valid until the next Load; until then
// the caller changes only what is his to set: delivery attempt, last delivery and target group. A stored restriction to
// one group is what [Target] returns, and is not in h. Nothing in a record makes Load fail: what cannot be read as a field
// is left as a property.
func (l *Loader) Load(h *wire.MessageHeader, v record.View) {
	sys, props, topic := v.SysFlag(), v.Properties(), v.Topic()
	l.repeat = l.h == h && l.sys == sys && string(topic) == string(l.topic) && l.like(props)
	if l.repeat {
		h.BornTime, h.Created = uint64(v.BornTime()), uint64(v.StoreTime())
		return
	}
	l.h, l.sys = h, sys
	l.topic = append(l.topic[:0], topic...)
	l.props = append(l.props[:0], props...)
	h.Reset()
	l.target = nil
	h.Topic = l.topic
	h.BornTime = uint64(v.BornTime())
	h.Created = uint64(v.StoreTime())
	h.Set = h.Set.With(wire.FieldCreated)
	h.Priority = DefaultPriority
	tx := sys & record.FlagTxMask
	h.Committed = tx != record.FlagTxPrepared && tx != record.FlagTxRollback
	compressed := sys&record.FlagCompressed != 0

	var uniq, keys, group []byte
	for name, value := range record.Properties(l.props) {
		switch string(name) { // the four that most records have come first
		case propTags:
			h.Type = value
		case propUniq:
			uniq = value
		case propKeys:
			keys = value
		case propPGroup:
			group = value
		default:
			if len(name) > 1 && name[0] == '_' && name[1] == '_' {
				l.system(h, name, value, compressed)
			} else if !Reserved(name) {
				h.Properties = append(h.Properties, wire.Property{Key: name, Value: value, HasValue: true})
			}
		}
	}
	if h.Group == nil {
		h.Group = group
	}
	if compressed {
		h.Flag |= wire.FlagCompressed
		switch sys & record.FlagCompressorMask {
		case record.FlagCompressorLZ4:
			h.Properties = append(h.Properties, wire.Property{Key: keyCompression, Value: valueLZ4, HasValue: true})
		case record.FlagCompressorZSTD:
			h.Properties = append(h.Properties, wire.Property{Key: keyCompression, Value: valueZstd, HasValue: true})
		}
	}
	l.uniq, l.keys = l.place(uniq), -1
	if len(uniq) == 0 {
		l.key = record.AppendOffsetID(l.key[:0], v.StoreHost(), v.PhysicalOffset())
		uniq = l.key
	}
	l.id = MessageID(uniq)
	h.ID = l.id[:]
	if sameHex(keys, &l.id) {
		l.keys = l.place(keys)
	} else if len(keys) > 0 {
		if len(keys) == hexID {
			l.uniq = -1 // another record's id may be just this text
		}
		h.Properties = append(h.Properties, wire.Property{Key: keyKeys, Value: keys, HasValue: true})
	}
}

// system handles a property whose name starts with "__".
func (l *Loader) system(h *wire.MessageHeader, name, value []byte, compressed bool) {
	switch {
	case string(name) == propTarget:
		l.target = value
		return
	case hasPrefix(name, PrefixField) && setScalar(h, name, value):
		return
	case hasPrefix(name, PrefixEmpty) && string(value) == "1":
		name, value = unreserve(name[len(PrefixEmpty):]), value[:0]
	case hasPrefix(name, PrefixHeader):
		name = unreserve(name)
	case Reserved(name):
		return
	case compressed && string(name) == wire.KeyCompression:
		return // sysFlag says it
	}
	h.Properties = append(h.Properties, wire.Property{Key: name, Value: value, HasValue: true})
}

// unreserve takes PrefixHeader off a name that is reserved without it.
func unreserve(name []byte) []byte {
	if hasPrefix(name, PrefixHeader) && Reserved(name[len(PrefixHeader):]) {
		return name[len(PrefixHeader):]
	}
	return name
}

func hasPrefix(name []byte, prefix string) bool {
	return len(name) > len(prefix) && string(name[:len(prefix)]) == prefix
}

// setScalar reads a PrefixField property into its field. It refuses, and the property stays one, what Store would not
// have written.
func setScalar(h *wire.MessageHeader, name, value []byte) bool {
	var f wire.Field
	for i := range scalars {
		if string(name) == scalars[i].name {
			f = scalars[i].field
		}
	}
	switch f {
	case wire.FieldGroup:
		h.Group = value
		return true
	case wire.FieldPublisherHost:
		h.PublisherHost = value
	case wire.FieldReplyToTopic:
		h.ReplyToTopic = value
	case wire.FieldReplyToType:
		h.ReplyToType = value
	case wire.FieldReplyWhenDelivery:
		h.ReplyWhenDelivered = value
	case wire.FieldPostDelay, wire.FieldReplyID:
		n, ok := parseUnsigned(value)
		if !ok {
			return false
		}
		if f == wire.FieldPostDelay {
			h.PostDelay = n
		} else {
			h.ReplyID = n
		}
	case wire.FieldFlag, wire.FieldPriority, wire.FieldVersion, wire.FieldTTL, wire.FieldDLQTime, wire.FieldPostTimeout:
		n, ok := parseInt32(value)
		if !ok {
			return false
		}
		switch f {
		case wire.FieldFlag:
			h.Flag = n &^ wire.FlagCompressed
			return true
		case wire.FieldPriority:
			h.Priority = n
			return true
		case wire.FieldVersion:
			h.Version = n
		case wire.FieldTTL:
			h.TTL = n
		case wire.FieldDLQTime:
			h.DLQTime = n
		default:
			h.PostTimeout = n
		}
	default:
		return false
	}
	h.Set = h.Set.With(f)
	return true
}

// parseUnsigned reads canonical decimal text.
func parseUnsigned(b []byte) (uint64, bool) {
	if len(b) == 0 || len(b) > 20 || b[0] == '0' && len(b) > 1 {
		return 0, false
	}
	var n uint64
	for _, c := range b {
		d := uint64(c - '0')
		if c < '0' || c > '9' || n > (math.MaxUint64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// parseInt32 reads canonical decimal text.
func parseInt32(b []byte) (int32, bool) {
	neg := len(b) > 1 && b[0] == '-'
	if neg {
		b = b[1:]
	}
	n, ok := parseUnsigned(b)
	switch {
	case !ok || n > 1<<31 || !neg && n == 1<<31 || neg && n == 0:
		return 0, false
	case neg:
		return int32(-int64(n)), true
	}
	return int32(n), true
}

// MessageID is the Notify id of a RocketMQ unique key: its bytes when it is 32 hex digits of either case, else the MD5
// of its text.
func MessageID(uniqKey []byte) (id [wire.MessageIDLen]byte) {
	if len(uniqKey) == 2*wire.MessageIDLen {
		if _, err := hex.Decode(id[:], uniqKey); err == nil {
			return id
		}
	}
	return md5.Sum(uniqKey) //nolint:gosec // by rule, see above
}

// sameHex tells whether text is id in lower-case hex digits.
func sameHex(text []byte, id *[wire.MessageIDLen]byte) bool {
	if len(text) != 2*wire.MessageIDLen {
		return false
	}
	var digits [2 * wire.MessageIDLen]byte
	hex.Encode(digits[:], id[:])
	return string(text) == string(digits[:])
}

// Type is the message type in property text: the tag, empty without one. It aliases props.
func Type(props []byte) []byte {
	v, _ := record.Property(props, propTags)
	return v
}

// Target is the group that the sender restricted delivery to; ok is false when it did not. It aliases props.
func Target(props []byte) (group []byte, ok bool) {
	return record.Property(props, propTarget)
}

// Property finds the header of a Notify message that Load would give under name, without loading the rest. It aliases
// props. It does not know what lies outside the property text: topic, times and __ctype.
func Property(props []byte, name string) (value []byte, ok bool) {
	stored := name
	switch {
	case name == wire.KeyKeys:
		stored = propKeys
	case Reserved([]byte(name)):
		stored = PrefixHeader + name
	}
	if value, ok = record.Property(props, stored); ok {
		return value, true
	}
	if _, ok = record.Property(props, PrefixEmpty+stored); ok {
		return []byte{}, true
	}
	return nil, false
}

// Number reads a stored decimal field, such as a TTL, for those who do not need the whole header.
func Number(props []byte, f wire.Field) (n int64, ok bool) {
	text, ok := record.Property(props, scalarName(f))
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	return n, err == nil
}
