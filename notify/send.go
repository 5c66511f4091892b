package notify

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/fusionmq/fusionmq/notify/mapping"
	"github.com/fusionmq/fusionmq/notify/wire"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
)

// Incoming is a message that a client sends. Header and Body are read during Send only.
type Incoming struct {
	Header *wire.MessageHeader
	Body   []byte
}

// Sent is what became of an Incoming.
type Sent struct {
	Err        *Refusal // nil: stored
	Address    int64
	Durability meta.Durability
}

// ServerData is what names a stored message to this broker in answers to the sender.
func (r *Sent) ServerData(dst []byte) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(r.Address))
}

// sendScratch is what one Send needs; it goes back to the pool, so that an idle connection holds none.
type sendScratch struct {
	ms    []store.Message
	rs    []store.Result
	place []int // index in the call of each of ms
	props []byte
}

var sendPool = sync.Pool{New: func() any { return new(sendScratch) }}

// keepScratch is the most property bytes that a scratch in the pool may hold.
const keepScratch = 1 << 20

// Send stores messages in their order with one append, and fills rs with one result a message. A message that breaks a
// rule is refused on its own; the others are stored.
func (se *Session) Send(ms []Incoming, rs []Sent) {
	s := se.s
	if n := s.sending.Add(int64(len(ms))); n > int64(s.o.MaxSending) && n > int64(len(ms)) {
		s.sending.Add(-int64(len(ms)))
		s.counters.busy.Add(uint64(len(ms)))
		for i := range ms {
			rs[i] = Sent{Err: &Refusal{wire.StatusBusy, "too many messages are on their way into the store"}}
		}
		return
	}
	defer s.sending.Add(-int64(len(ms)))

	sc := sendPool.Get().(*sendScratch)
	defer func() {
		clear(sc.ms)
		clear(sc.rs)
		sc.ms, sc.rs, sc.place, sc.props = sc.ms[:0], sc.rs[:0], sc.place[:0], sc.props[:0]
		if cap(sc.props) <= keepScratch {
			sendPool.Put(sc)
		}
	}()
	for i := range ms {
		rs[i] = Sent{}
		if err := se.prepare(sc, &ms[i]); err != nil {
			rs[i].Err = refusal(err)
			continue
		}
		sc.place = append(sc.place, i)
		sc.rs = append(sc.rs, store.Result{})
	}
	if len(sc.ms) > 0 {
		s.store.Append(sc.ms, sc.rs)
	}
	for j, i := range sc.place {
		r := &sc.rs[j]
		if r.Err != nil {
			rs[i].Err = refusal(r.Err)
			continue
		}
		rs[i].Address, rs[i].Durability = r.Address, r.Durability
	}
	failed := 0
	for i := range ms {
		if rs[i].Err != nil {
			failed++
		}
	}
	s.counters.sends.Add(uint64(len(ms) - failed))
	s.counters.sendFailures.Add(uint64(failed))
}

// prepare appends the record of a message to the scratch.
func (se *Session) prepare(sc *sendScratch, m *Incoming) error {
	h := m.Header
	if err := wire.CheckBody(len(m.Body)); err != nil {
		return err
	}
	if n := len(m.Body); n > se.s.maxBody {
		return refuse("body has %d bytes; this server takes 1 to %d", n, se.s.maxBody)
	}
	start := len(sc.props)
	stored, err := mapping.Store(sc.props, h)
	if err != nil {
		return err
	}
	if err := checkServed(h); err != nil {
		return err
	}
	topic := se.s.store.Topics().GetBytes(h.Topic)
	if topic == nil {
		name := string(h.Topic)
		if err := se.s.topicFor(name); err != nil {
			return err
		}
		if topic = se.s.store.Topics().Get(name); topic == nil {
			return refuse("topic %s does not exist", wire.Quote(name))
		}
	} else if err := se.s.checkSystem(topic.Name); err != nil {
		return err
	}
	if topic.Perm&meta.PermWrite == 0 || topic.WriteQueues < 1 {
		return refuse("topic %s may not be written to (perm %d, %d write queues)", wire.Quote(topic.Name), topic.Perm, topic.WriteQueues)
	}
	se.queue++
	sc.props = stored.Properties
	sc.ms = append(sc.ms, store.Message{
		Topic: topic.Name, Queue: int32(se.queue % uint32(topic.WriteQueues)), Flag: 0, SysFlag: stored.SysFlag,
		BornTime: stored.BornTime, BornHost: se.peer, Body: m.Body, Once: true, Properties: sc.props[start:len(sc.props):len(sc.props)],
	})
	return nil
}

// checkServed refuses what a header asks for and nobody here would do. A message that a publisher wants delivered in its way only is
// not stored as an ordinary one.
func checkServed(h *wire.MessageHeader) error {
	switch {
	case !h.Committed:
		return refuse("committed is false: this server does not serve half messages yet")
	case h.Set.Has(wire.FieldPostDelay) && h.PostDelay != 0:
		return refuse("postDelayTime is %d: this server does not serve delayed messages yet", h.PostDelay)
	case h.Set.Has(wire.FieldTTL) && h.TTL > 0: // 0 and less is none (rulings A28)
		return refuse("timeToLive is %d: this server does not let messages expire yet; leave it out or send -1", h.TTL)
	case h.Flag&wire.FlagSendOnce != 0:
		return refuse("flag is %d: bit 4 (send once) asks for delivery at most once, which this server does not serve yet", h.Flag)
	}
	return nil
}

// checkSystem refuses the topics that this process keeps under names of its own (rulings A23).
func (s *Service) checkSystem(topic string) error {
	if slices.Contains(s.o.SystemTopics, topic) {
		return refuse("topic %s belongs to the system, as the cluster, the broker or their replies are called so; use another name", wire.Quote(topic))
	}
	return nil
}

// topicFor makes a topic that does not exist, when that is allowed.
func (s *Service) topicFor(name string) error {
	if err := wire.CheckTopic(name); err != nil {
		return err
	}
	if err := s.checkSystem(name); err != nil {
		return err
	}
	topics := s.store.Topics()
	if topics.Get(name) != nil {
		return nil
	}
	if s.o.NoAutoCreate {
		return refuse("topic %s does not exist, and this server makes none by itself", wire.Quote(name))
	}
	making := s.making.Add(1)
	defer s.making.Add(-1)
	if topics.Len()+int(making) > s.o.MaxTopics {
		return &Refusal{wire.StatusFailed, fmt.Sprintf("topic %s is not made: this server has its limit of %d topics", wire.Quote(name), s.o.MaxTopics)}
	}
	t := meta.DefaultTopic(name)
	t.ReadQueues, t.WriteQueues = s.o.TopicQueues, s.o.TopicQueues
	if err := topics.Put(t); err != nil {
		var bad *meta.Invalid
		if errors.As(err, &bad) {
			return refuse("topic %s: %v", wire.Quote(name), err)
		}
		return err
	}
	s.counters.topicsMade.Add(1)
	s.log.info("topic made", "topic", name, "queues", s.o.TopicQueues)
	return nil
}
