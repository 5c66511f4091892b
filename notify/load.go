package notify

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/fusionmq/fusionmq/notify/delivery"
	"github.com/fusionmq/fusionmq/notify/exchange"
	"github.com/fusionmq/fusionmq/notify/mapping"
	"github.com/fusionmq/fusionmq/notify/wire"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
)

// Loaded is a delivery with its message, ready to be encoded. It is reused from one delivery to the next.
type Loaded struct {
	Header wire.MessageHeader // as DELIVER_MESSAGE carries it; not to be changed
	Body   []byte             // aliases the record

	// Timeout is how long to wait for the answer when the message asks for a time of its own; 0: the default.
	Timeout time.Duration

	loader  mapping.Loader
	row     wire.HeaderRow
	group   []byte
	release func()

	// The bindings that unchecked deliveries are matched with; see [Loaded.Fresh].
	history       *exchange.History
	topic, member string // whose they are
}

// Fresh is to be called when the deliveries that Load is called with next have been taken over from the session: a
// binding that is newer than they are is no business of theirs, and one that is older is known by now. In between Load
// asks for the bindings once.
func (l *Loaded) Fresh() { l.history, l.topic, l.member = nil, "", "" }

// historyOf returns what a group has been bound to on a topic.
func (l *Loaded) historyOf(x *exchange.Exchange, topic, group string) *exchange.History {
	if l.history == nil || l.topic != topic || l.member != group {
		l.history, l.topic, l.member = x.History(topic, group), topic, group
	}
	return l.history
}

// Bounds of a message's own acknowledgement timeout (rulings A14).
const (
	minPostTimeout = time.Second
	maxPostTimeout = time.Minute
)

// errNotOwed is returned by Load, and by retryHead, for a message that the group is not owed after all.
var errNotOwed = errors.New("notify: message is not for this group")

// Load reads the message of a delivery. Release or Keep must be called before the next Load. When it fails there is nothing to deliver, and the delivery has been ended: the message cannot be read any more,
// which was counted and logged, or not at the moment, which is a failure like a subscriber's, or it is not for this group, which a cursor
// finds out only here.
func (se *Session) Load(d *Delivery, into *Loaded) error {
	v, release, err := se.s.load(d.Message)
	if errors.Is(err, store.ErrUnavailable) {
		se.Fail(d.Handle)
		return err
	}
	if err != nil {
		se.s.lost("group "+d.Group, d.Message.Topic, d.Message.Address, err)
		se.Drop(d.Handle)
		return err
	}
	into.loader.Load(&into.Header, v)
	if !into.loader.Repeats() {
		into.row.Break()
	}
	if m := d.Message; m.Unchecked && !into.historyOf(se.s.exchange, m.Topic, d.Group).Owed(m.Address, into.Header.Type, into.loader.Target()) {
		release()
		se.Drop(d.Handle)
		return errNotOwed
	}
	into.fill(d, v)
	into.release = release
	return nil
}

func (l *Loaded) fill(d *Delivery, v record.View) {
	h := &l.Header
	l.Body = v.Body()
	if string(l.group) != d.Group || h.DeliveryCount != d.Attempt {
		l.group = append(l.group[:0], d.Group...)
		l.row.Break()
	}
	h.TargetGroup, h.DeliveryCount = l.group, d.Attempt
	h.Set = h.Set.With(wire.FieldTargetGroup).With(wire.FieldDeliveryCount)
	if failed := uint64(max(d.Message.Failed, 0)); h.LastDelivery != failed {
		h.LastDelivery = failed
		l.row.Break()
	}
	if h.LastDelivery != 0 {
		h.Set = h.Set.With(wire.FieldLastDelivery)
	} else {
		h.Set = h.Set.Without(wire.FieldLastDelivery)
	}
	l.Timeout = 0
	if h.Set.Has(wire.FieldPostTimeout) && h.PostTimeout > 0 {
		l.Timeout = min(max(time.Duration(h.PostTimeout)*time.Millisecond, minPostTimeout), maxPostTimeout)
	}
	if len(h.ID) >= 8 {
		d.Message.SetID(binary.BigEndian.Uint64(h.ID))
	}
}

// AppendHeader appends the encoded Header to dst.
func (l *Loaded) AppendHeader(dst []byte) []byte { return l.row.Append(dst, &l.Header) }

// Release gives the record back.
func (l *Loaded) Release() {
	if l.release != nil {
		l.release()
		l.release = nil
	}
}

// Keep gives the duty to release to the caller: the body stays valid until he calls what it returns.
func (l *Loaded) Keep() (release func()) {
	release, l.release = l.release, nil
	return release
}

// SetTimeout gives a delivery that was just written a timeout of its own.
func (se *Session) SetTimeout(handle uint32, d time.Duration) {
	if ms := se.byHandle(handle); ms != nil {
		ms.g.mu.Lock()
		ms.g.d.SetTimeout(ms.m, handle, d)
		ms.g.pumpLocked()
		ms.g.mu.Unlock()
	}
}

// Drop ends a delivery whose message cannot be read any more. Nobody gets it; it was counted and logged.
func (se *Session) Drop(handle uint32) {
	if ms := se.byHandle(handle); ms != nil {
		ms.g.mu.Lock()
		ms.g.d.Drop(ms.m, handle, se.s.now())
		ms.g.pumpLocked()
		ms.g.mu.Unlock()
	}
}

// Fail ends a delivery that this connection cannot carry, as a subscriber's failure would.
func (se *Session) Fail(handle uint32) {
	se.Answers([]Answer{{Handle: handle, Status: wire.StatusError}})
}

// load returns the record of a delivery.
func (s *Service) load(m *delivery.Message) (record.View, func(), error) {
	b, release, err := s.store.Record(queue.Entry{Address: m.Address, Position: m.Position, Size: m.Size, TagsCode: m.TagsCode, Time: m.Time})
	if err != nil {
		return record.View{}, nil, err
	}
	v, err := record.Parse(b)
	if err != nil {
		release()
		return record.View{}, nil, err
	}
	return v, release, nil
}

// lost counts and names a message that cannot be delivered because it is not there any more or cannot be read.
func (s *Service) lost(where, topic string, address int64, err error) {
	s.counters.lost.Add(1)
	s.log.warn("message cannot be read, it is not delivered", "by", where, "topic", topic, "address", address, "error", err)
}
