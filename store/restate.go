package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

// Restated state: before a segment goes, what its records have made and no later one says again is appended in records of StateTopic.
// The push state is written whole, as of a position that the records carry: a start that has no checkpoint loads it and lets the
// operations from that position on act on it, so no target is computed from half of what held. Queues without entries are written one by
// one, since each is known again where the record lies. The state goes in pieces, written and read one at a time; other records may
// come between them, and nothing is made of them before the last one is there.
//
// A record's body: version, kind, then for a piece of the state varints of the position and the number of the piece, 1 in the last one
// and 0 in others, and bytes; for queues a varint with their number, and of each length and bytes of the topic, queue, next offset.
const (
	restateVersion = 2
	countedVersion = 1 // is read, too: a piece has the number of pieces where others say whether it is the last
	restateState   = 1
	restateQueues  = 2

	restatePiece = 1 << 20 // most bytes of state in one record
)

var errRestated = errors.New("restated state cannot be read")

// statePiece is one piece of a push state.
type statePiece struct {
	from  int64 // operations below this log position are in it
	part  uint64
	last  bool
	bytes []byte
}

func (p *statePiece) append(b []byte) []byte {
	b = append(b, restateVersion, restateState)
	b = binary.AppendUvarint(b, uint64(p.from))
	b = binary.AppendUvarint(b, p.part)
	last := byte(0)
	if p.last {
		last = 1
	}
	return append(append(b, last), p.bytes...)
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
	if len(b) < 2 || b[0] != restateVersion && b[0] != countedVersion {
		return nil, nil, fmt.Errorf("%w: no version that is known", errRestated)
	}
	version, kind, b := b[0], b[1], b[2:]
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
		p = &statePiece{from: int64(number(math.MaxInt64)), part: number(math.MaxUint32)}
		if version == countedVersion {
			p.last = number(math.MaxUint32) == p.part+1
		} else {
			p.last = number(1) == 1
		}
		p.bytes = b
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

// restated finds the newest whole push state while a log is read.
type restated struct {
	whole restatedPlace // end is 0 while there is none
	next  restatedPlace // of one that is not complete; parts is 0 without one
	err   error         // of a record that a later version wrote
}

// restatedPlace is where a state lies.
type restatedPlace struct {
	from       int64  // that its pieces carry
	parts      uint64 // pieces so far
	begin, end int64  // log positions of the first piece and behind the last
}

// see looks at a record of the log.
func (r *restated) see(v record.View) {
	if string(v.Topic()) != StateTopic {
		return
	}
	p, _, err := decodeRestated(v.Body())
	if err != nil {
		r.err = fmt.Errorf("record at %d: %w", v.PhysicalOffset(), err) // its checksum is right
	}
	if p == nil {
		return
	}
	if p.part == 0 {
		r.next = restatedPlace{from: p.from, begin: v.PhysicalOffset()}
	} else if r.next.parts != p.part || r.next.from != p.from {
		r.next.parts = 0
		return
	}
	r.next.parts++
	r.next.end = v.PhysicalOffset() + int64(v.Size())
	if p.last {
		r.whole, r.next.parts = r.next, 0
	}
}

// restatedReader reads the bytes of a state from its pieces, of which it holds one.
type restatedReader struct {
	log   *log.Log
	place restatedPlace
	part  uint64
	piece []byte
	buf   []byte
}

var errPiece = errors.New("a piece")

func (r *restatedReader) Read(b []byte) (int, error) {
	for len(r.piece) == 0 {
		if r.part == r.place.parts {
			return 0, io.EOF
		}
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, r.piece)
	r.piece = r.piece[n:]
	return n, nil
}

// next finds the next piece.
func (r *restatedReader) next() error {
	err := r.log.Scan(r.place.begin, r.place.end, func(v record.View) error {
		if string(v.Topic()) != StateTopic {
			return nil
		}
		p, _, err := decodeRestated(v.Body())
		if err != nil || p == nil || p.part != r.part || p.from != r.place.from {
			return err
		}
		r.buf = append(r.buf[:0], p.bytes...)
		r.piece, r.part = r.buf, r.part+1
		r.place.begin = v.PhysicalOffset() + int64(v.Size())
		return errPiece
	})
	switch {
	case errors.Is(err, errPiece):
		return nil
	case err == nil:
		return fmt.Errorf("%w: piece %d of %d is gone", errRestated, r.part, r.place.parts)
	}
	return err
}

// loadRestated makes the machine of what was restated, if anything was, and returns from where operations act on it.
func (s *Store) loadRestated(r *restated, from int64) (int64, error) {
	if r.err != nil { // to go on without would change what groups are owed
		return 0, r.err
	}
	if r.whole.end == 0 {
		return from, nil
	}
	m, err := state.LoadFrom(&restatedReader{log: s.log, place: r.whole}, s.o.Exchange, stateTable{s.rows.Table}, nil)
	if err != nil {
		// Its checksum was right, so a later version wrote it. As above.
		return 0, fmt.Errorf("push state of before %d: %w", r.whole.from, err)
	}
	s.machine.Machine = m
	return max(from, r.whole.from), nil
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

// stateWriter appends what is written to it as pieces of a state.
type stateWriter struct {
	s     *Store
	p     statePiece
	piece int   // bytes of one
	n     int64 // bytes so far
}

func (w *stateWriter) Write(b []byte) (int, error) {
	for done := 0; ; {
		n := min(w.piece-len(w.p.bytes), len(b)-done)
		w.p.bytes = append(w.p.bytes, b[done:done+n]...)
		if done += n; done == len(b) {
			return done, nil
		}
		if err := w.flush(); err != nil { // there is more, so it is not the last
			return done, err
		}
	}
}

func (w *stateWriter) flush() error {
	if w.s.closed.Load() {
		return ErrClosed
	}
	w.n += int64(len(w.p.bytes))
	_, err := w.s.appendOwn(w.s.own.state, w.p.append(nil), true)
	if fn := w.s.clean.said; fn != nil {
		fn(int(w.p.part), w.p.last)
	}
	w.p.part, w.p.bytes = w.p.part+1, w.p.bytes[:0]
	return err
}

// restate appends the push state as of now, and where the queues go on that have nothing from position on. Others write, and the state goes
// on, meanwhile.
func (s *Store) restate(position int64) error {
	s.machine.RLock()
	f := s.machine.Freeze()
	s.machine.RUnlock()
	defer f.Release()
	piece := int(min(restatePiece, s.o.SegmentBytes/4))
	w := stateWriter{s: s, p: statePiece{from: f.At() + 1}, piece: piece}
	if err := f.Save(&w); err != nil {
		return err
	}
	w.p.last = true
	if err := w.flush(); err != nil {
		return err
	}
	s.clean.restated.Store(w.n)
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
