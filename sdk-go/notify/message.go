package notify

import (
	"fmt"
	"math"
	"time"
	"unsafe"

	"github.com/fusionmq/fusionmq/notify/wire"
)

// Kind says what a body is, for the receiver; the broker never looks.
type Kind = wire.Kind

// The kinds of bodies.
const (
	KindBytes    = wire.KindBytes
	KindString   = wire.KindString
	KindObject   = wire.KindObject
	KindStream   = wire.KindStream
	KindPackaged = wire.KindPackaged
)

// Durability is what a send had reached when it was answered.
type Durability = wire.Durability

// The durabilities. A server that does not say leaves it unstated.
const (
	DurabilityUnstated   = wire.DurabilityUnstated
	DurabilityMemory     = wire.DurabilityMemory
	DurabilityAsync      = wire.DurabilityAsync
	DurabilitySync       = wire.DurabilitySync
	DurabilityReplicated = wire.DurabilityReplicated
)

// Message is what is sent and what arrives. Topic, Type and Body are required of one that is sent; zero values of the
// rest mean the server's defaults. A Message may be sent again after its send has ended; until then nobody may change
// it.
type Message struct {
	ID    MessageID // zero: Send sets a new one, and a repeated Send keeps it
	Topic string    // 1 to 64 of letters, digits, '_', '%' and '-'
	Type  string    // 1 to 64 visible ASCII characters without '|' and '*'. Empty on messages of a RocketMQ producer without a tag
	Group string    // of the sender. Empty: the Publisher's
	Kind  Kind
	Body  []byte // 1 byte to 4 MiB as it travels

	Header Header // 16 KiB of names and values at most

	AtMostOnce bool          // one delivery attempt, no retry. A FusionMQ server refuses it for now (CodeError)
	Priority   int32         // 1..9; 0 is 4, the ordinary priority, and -1 the lowest. Arrives as the number that was sent
	TTL        time.Duration // whole seconds, rounded up. A FusionMQ server refuses it for now (CodeError)
	RetryFor   time.Duration // how long the server tries before dead letter; whole seconds, rounded up. A FusionMQ server has no dead letter yet and tries on
	AckTimeout time.Duration // how long the server waits for a handler; whole milliseconds, rounded up
	Delay      time.Duration // before the first delivery; whole milliseconds, rounded up. A FusionMQ server refuses it for now (CodeError)
	Born       time.Time     // on the sender's clock. Zero: Send sets it

	PublisherHost string // set by Publishers that know their host name
	TargetGroup   string // restricts delivery to one group

	Delivery Delivery // of a message that arrived
}

// Delivery is what the broker says about one delivery of a message.
type Delivery struct {
	Attempt    int       // 1 at first
	Group      string    // that it is for
	Created    time.Time // when the broker stored it
	Last       time.Time // when the attempt before failed; zero at first
	Compressed bool      // it travelled compressed
	Server     string    // that pushed it
}

// encode fills h, whose slices are reused, with all of m that travels. Text fields of h alias m.
func (m *Message) encode(h *wire.MessageHeader, group, host string) error {
	h.Reset()
	h.ID = m.ID[:]
	h.Flag = int32(m.Kind) & wire.FlagKindMask
	if m.Kind > Kind(wire.FlagKindMask) {
		return fmt.Errorf("kind %d is outside 0..%d", m.Kind, wire.FlagKindMask)
	}
	if m.AtMostOnce {
		h.Flag |= wire.FlagSendOnce
	}
	h.Topic, h.Type, h.Group = bytesOf(m.Topic), bytesOf(m.Type), bytesOf(m.Group)
	if m.Group == "" {
		h.Group = bytesOf(group)
	}
	h.Committed = true
	h.BornTime = uint64(m.Born.UnixMilli())
	h.Priority = m.Priority
	if h.Priority == 0 {
		h.Priority = 4
	}
	for _, d := range [...]struct {
		field wire.Field
		name  string
		give  time.Duration
		unit  time.Duration
		to    *int32
	}{
		{wire.FieldTTL, "TTL", m.TTL, time.Second, &h.TTL},
		{wire.FieldDLQTime, "RetryFor", m.RetryFor, time.Second, &h.DLQTime},
		{wire.FieldPostTimeout, "AckTimeout", m.AckTimeout, time.Millisecond, &h.PostTimeout},
	} {
		if d.give == 0 {
			continue
		}
		n := units(d.give, d.unit)
		if d.give < 0 || n > math.MaxInt32 {
			return fmt.Errorf("%s %v is outside 0..%v", d.name, d.give, math.MaxInt32*d.unit)
		}
		*d.to = int32(n)
		h.Set = h.Set.With(d.field)
	}
	if m.Delay != 0 {
		if m.Delay < 0 {
			return fmt.Errorf("delay %v is negative", m.Delay)
		}
		h.PostDelay = uint64(units(m.Delay, time.Millisecond))
		h.Set = h.Set.With(wire.FieldPostDelay)
	}
	if m.PublisherHost != "" {
		host = m.PublisherHost
	}
	if host != "" {
		h.PublisherHost = bytesOf(host)
		h.Set = h.Set.With(wire.FieldPublisherHost)
	}
	if m.TargetGroup != "" {
		h.TargetGroup = bytesOf(m.TargetGroup)
		h.Set = h.Set.With(wire.FieldTargetGroup)
	}
	var err error
	h.Properties, err = m.Header.append(h.Properties)
	return err
}

// units rounds d up to whole units.
func units(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// decode makes the message of a delivery. m keeps header and body, which it must own alone: its strings are views of
// header.
func decodeMessage(m *Message, h *wire.MessageHeader, body []byte) {
	copy(m.ID[:], h.ID)
	m.Topic, m.Type, m.Group = stringOf(h.Topic), stringOf(h.Type), stringOf(h.Group)
	m.Kind = Kind(h.Flag & wire.FlagKindMask)
	m.Body = body
	m.AtMostOnce = h.Flag&wire.FlagSendOnce != 0
	m.Priority = h.Priority
	m.TTL = time.Duration(max(h.TTL, 0)) * time.Second
	m.RetryFor = time.Duration(max(h.DLQTime, 0)) * time.Second
	m.AckTimeout = time.Duration(max(h.PostTimeout, 0)) * time.Millisecond
	m.Delay = time.Duration(min(h.PostDelay, uint64(math.MaxInt64/time.Millisecond))) * time.Millisecond
	m.Born = milli(h.BornTime)
	m.PublisherHost = stringOf(h.PublisherHost)
	m.Delivery = Delivery{
		Attempt: int(h.DeliveryCount), Group: stringOf(h.TargetGroup), Created: milli(h.Created), Last: milli(h.LastDelivery),
		Compressed: h.Flag&wire.FlagCompressed != 0,
	}
	m.Header = headerOf(h.Properties)
}

// milli is a time of the wire; 0 and what no int64 holds are no time.
func milli(ms uint64) time.Time {
	if ms == 0 || ms > math.MaxInt64 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms))
}

// bytesOf is the bytes of s for a codec that only reads them.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// stringOf is b as a string. Nobody may write to b afterwards.
func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
