package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

// Restated state: before a segment goes, what its records have made and no later one says again is appended in records of StateTopic.
// The push state is written whole, as of a position that the records carry: a start that has no checkpoint loads it and lets the
// operations from that position on act on it, so no target is computed from half of what held. Queues without entries are written one by
// one, since each is known again where the record lies.
//
// A record's body: version, kind, then for a piece of the state varints of the position, the number of the piece and how many there are,
// and bytes; for queues a varint with their number, and of each length and bytes of the topic, queue, next offset.
const (
	restateVersion = 1
	restateState   = 1
	restateQueues  = 2

	restatePiece = 1 << 20 // most bytes of state in one record
)

var errRestated = errors.New("restated state cannot be read")

// statePiece is one piece of a push state.
type statePiece struct {
	from        int64 // operations below this log position are in it
	part, parts uint64
	bytes       []byte
}

func (p *statePiece) append(b []byte) []byte {
	b = append(b, restateVersion, restateState)
	b = binary.AppendUvarint(b, uint64(p.from))
	b = binary.AppendUvarint(b, p.part)
	b = binary.AppendUvarint(b, p.parts)
	return append(b, p.bytes...)
}

func appendBounds(b []byte, bs []queue.Bound) []byte {
	b = append(b, restateVersion, restateQueues)
	b = binary.AppendUvarint(b, uint64(len(bs)))
	for _, q := range bs {
		b = binary.AppendUvarint(b, uint64(len(q.Topic)))
		b = append(b, q.Topic...)
		b = binary.AppendUvarint(b, uint64(q.Queue))
		b = binary.AppendUvarint(b, uint64(q.Next))
	}
	return b
}

// decodeRestated reads the body of a record of StateTopic: a piece of the state, whose bytes are those of b, or queues.
func decodeRestated(b []byte) (p *statePiece, bs []queue.Bound, err error) {
	if len(b) < 2 || b[0] != restateVersion {
		return nil, nil, fmt.Errorf("%w: no version that is known", errRestated)
	}
	kind, b := b[1], b[2:]
	number := func(limit uint64) uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > limit {
			err = fmt.Errorf("%w: a number is cut off or too large", errRestated)
			b = nil
			return 0
		}
		b = b[n:]
		return v
	}
	switch kind {
	case restateState:
		p = &statePiece{from: int64(number(math.MaxInt64)), part: number(math.MaxUint32), parts: number(math.MaxUint32)}
		if p.bytes = b; err == nil && p.part >= p.parts {
			err = fmt.Errorf("%w: piece %d of %d", errRestated, p.part, p.parts)
		}
	case restateQueues:
		n := number(uint64(len(b)) / 3)
		for ; n > 0 && err == nil; n-- {
			k := number(record.MaxTopicBytes)
			if uint64(len(b)) < k {
				return nil, nil, fmt.Errorf("%w: a name is cut off", errRestated)
			}
			name := string(b[:k])
			b = b[k:]
			bs = append(bs, queue.Bound{Topic: name, Queue: int32(number(queue.MaxQueueID)), Next: int64(number(math.MaxInt64))})
		}
	default:
		err = fmt.Errorf("%w: kind %d is not known", errRestated, kind)
	}
	if err != nil {
		return nil, nil, err
	}
	return p, bs, nil
}

// restated collects the newest whole push state while a log is read.
type restated struct {
	from    int64
	state   []byte // nil: none so far
	next    *statePiece
	pending []byte
}

// see looks at a record of the log.
func (r *restated) see(v record.View) {
	if string(v.Topic()) != StateTopic {
		return
	}
	p, _, err := decodeRestated(v.Body())
	if err != nil || p == nil {
		return // told when its queues are read
	}
	switch {
	case p.part == 0:
		r.pending = r.pending[:0]
	case r.next == nil || r.next.from != p.from || r.next.parts != p.parts || r.next.part != p.part:
		r.next = nil
		return
	}
	r.pending = append(r.pending, p.bytes...)
	r.next = &statePiece{from: p.from, part: p.part + 1, parts: p.parts}
	if p.part+1 == p.parts {
		r.from, r.state = p.from, append(r.state[:0], r.pending...)
		r.next = nil
	}
}

// loadRestated makes the machine of what was restated, if anything was, and returns from where operations act on it.
func (s *Store) loadRestated(r *restated, from int64) (int64, error) {
	if r.state == nil {
		return from, nil
	}
	m, err := state.LoadOn(r.state, s.o.Exchange, s.rows.Table)
	if err != nil {
		// Its checksum was right, so a later version wrote it. To go on without would change what groups are owed.
		return 0, fmt.Errorf("push state of before %d: %w", r.from, err)
	}
	s.machine.Machine = m
	return max(from, r.from), nil
}

// restoreQueues takes from a record in replay where queues without entries go on.
func (s *Store) restoreQueues(v record.View) {
	if string(v.Topic()) != StateTopic {
		return
	}
	_, bs, err := decodeRestated(v.Body())
	if err != nil {
		s.event(levelError, "record with restated state cannot be read", "position", v.PhysicalOffset(), "err", err)
	}
	for _, b := range bs {
		s.index.Restore(b, v.PhysicalOffset())
	}
}

// errStillOwed: something became owed below the position meanwhile.
var errStillOwed = errors.New("store: messages became owed while their segment was about to go")

// restate appends the push state as of now, and where the queues go on that have nothing from position on. It fails with errStillOwed
// when the state names a record below position that can be read, but for those in lost.
func (s *Store) restate(position int64, lost map[int64]bool) error {
	s.machine.RLock()
	for o := range s.machine.OwedBelow(position) {
		if !lost[o.Address] {
			s.machine.RUnlock()
			return errStillOwed
		}
	}
	from := s.machine.At() + 1
	b := s.machine.Save(nil)
	s.machine.RUnlock()

	piece := int(min(restatePiece, s.o.SegmentBytes/4))
	parts := (len(b) + piece - 1) / piece
	for i := range parts {
		p := statePiece{from: from, part: uint64(i), parts: uint64(parts), bytes: b[i*piece : min((i+1)*piece, len(b))]}
		if _, err := s.appendOwn(s.own.state, p.append(nil), true); err != nil {
			return err
		}
	}
	bs := s.index.BoundsBelow(position)
	for len(bs) > 0 {
		n := min(len(bs), piece/(record.MaxTopicBytes+16))
		if _, err := s.appendOwn(s.own.state, appendBounds(nil, bs[:n]), true); err != nil {
			return err
		}
		bs = bs[n:]
	}
	return nil
}

// appendOwn appends a record of a topic of ours, with reserved set from the space that is kept back if need be, and returns it.
func (s *Store) appendOwn(t *topic, body []byte, reserved bool) (log.Item, error) {
	b := s.log.NewBatch()
	defer s.log.Free(b)
	b.Reserved = reserved
	s.add(b, t, &Message{Topic: t.name, BornTime: s.o.Now().UnixMilli(), BornHost: s.o.StoreHost, Body: body})
	s.log.Append(b)
	return b.Items[0], b.Items[0].Err
}

// operateReserved is Operate with the space that is kept back.
func (s *Store) operateReserved(ops []state.Op) (at int64, err error) {
	body, err := state.AppendOps(nil, ops)
	if err != nil {
		return 0, err
	}
	it, err := s.appendOwn(s.oq, body, true)
	return it.Position, err
}
