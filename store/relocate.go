package store

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

// Relocation: the records of messages that are owed by name in segments about to go are appended once more, whole and unchanged, back to
// back in the bodies of records of MovedTopic, and relocate operations say where each address finds its record now.

const (
	movedBatch = 1 << 20 // bytes of records in one record, but for a larger one alone
	movedItems = 1 << 14 // records in one record

	// movedFrame is what a record of MovedTopic has beside its body. A record of a message must leave room for it in a segment.
	movedFrame = record.MinSize + len(MovedTopic) + 24
)

// relocateBelow moves every record below position that is owed by name. What becomes owed meanwhile is for relocateLate.
func (s *Store) relocateBelow(position int64) error {
	mv := mover{s: s, room: s.movedRoom()}
	page := make([]state.OwedBody, 256)
	for place, end := (state.OwedPlace{}), false; !end; {
		if s.closed.Load() {
			return ErrClosed
		}
		n := 0
		s.machine.RLock()
		n, place, end = s.machine.OwedPage(position, place, page)
		s.machine.RUnlock()
		for _, o := range page[:n] {
			if err := mv.add(o); err != nil {
				return err
			}
		}
	}
	return mv.end()
}

// relocateLate moves what has become owed since the state watches for it.
func (s *Store) relocateLate(position int64) (any bool, err error) {
	s.machine.Lock()
	late, complete := s.machine.Late()
	s.machine.Unlock()
	if !complete {
		return true, s.relocateBelow(position)
	}
	mv := mover{s: s, room: s.movedRoom()}
	for _, o := range late {
		if err := mv.add(o); err != nil {
			return true, err
		}
	}
	return len(late) > 0, mv.end()
}

// watchOwed has what becomes owed below a position noted; 0 ends it.
func (s *Store) watchOwed(position int64) {
	s.machine.Lock()
	defer s.machine.Unlock()
	s.machine.Watch(position)
}

// mover moves records.
type mover struct {
	s    *Store
	room int // bytes of one record, but for a larger one alone
	body []byte
	ops  []state.Op
	seen map[int64]bool // addresses in ops, and some of those that cannot be read
	at   int64          // of the newest operations; 0 without any
}

// add moves a record now or with those that follow. One that cannot be read any more is counted and told.
func (m *mover) add(o state.OwedBody) error {
	if m.seen[o.Address] {
		return nil
	}
	if len(m.ops) >= movedItems {
		if err := m.write(); err != nil {
			return err
		}
	}
	if m.seen == nil || len(m.seen) >= 2*movedItems {
		if err := m.end(); err != nil { // from here on the state says what was moved
			return err
		}
		m.seen = map[int64]bool{}
	}
	m.seen[o.Address] = true
	s := m.s
	b, release, err := s.readOwed(o)
	if passing(err) != nil {
		return err
	}
	if err != nil {
		s.clean.lost.Add(1)
		s.event(levelError, "message that is owed cannot be read and is not kept", "topic", o.Topic, "address", o.Address, "position", o.Position, "err", err)
		return nil
	}
	defer release()
	if len(m.body) > 0 && len(m.body)+len(b) > m.room {
		if err := m.write(); err != nil {
			return err
		}
	}
	m.ops = append(m.ops, state.Op{Kind: state.OpRelocate, Topic: o.Topic, First: o.Address, Last: int64(len(m.body)), Size: int32(len(b))})
	m.body = append(m.body, b...)
	return nil
}

// write appends the records and what says where they are.
func (m *mover) write() error {
	if len(m.ops) == 0 {
		return nil
	}
	s := m.s
	start, err := s.appendMoved(m.body, true)
	if err != nil {
		return err
	}
	for i := range m.ops {
		m.ops[i].Last += start
	}
	if m.at, err = s.operateReserved(m.ops); err != nil {
		return err
	}
	s.clean.moved.Add(int64(len(m.ops)))
	m.body, m.ops = m.body[:0], m.ops[:0]
	return nil
}

// end writes what is left, and waits until all of it has taken effect.
func (m *mover) end() error {
	err := m.write()
	if err == nil && m.at > 0 {
		err = m.s.waitApplied(m.at)
	}
	return err
}

// movedRoom is how much goes into one record, but for a larger one alone.
func (s *Store) movedRoom() int { return int(min(movedBatch, s.o.SegmentBytes/4)) }

// appendMoved appends a record of MovedTopic and returns the position of its body.
func (s *Store) appendMoved(body []byte, reserved bool) (start int64, err error) {
	it, err := s.appendOwn(s.own.moved, body, reserved)
	// Behind the body come topic and properties.
	return it.Position + int64(it.Size) - 2 - int64(len(MovedTopic)) - 1 - int64(len(body)), err
}

// readOwed returns the record of what is owed.
func (s *Store) readOwed(o state.OwedBody) (b []byte, release func(), err error) {
	op, time, err := s.viewAt(o.Address)
	if err == nil {
		b, err = s.shown(o.Address, &op, time, o.Position, o.Size) // moved as it is read: the view may go with its own segment
		return b, noRelease, err
	}
	if passing(err) != nil {
		return nil, nil, err
	}
	size := int(o.Size)
	if size == 0 { // failed while it was read through a cursor
		head, release, err := s.log.Read(o.Position, 4)
		if err != nil {
			return nil, nil, err
		}
		size = int(binary.BigEndian.Uint32(head))
		release()
		if size < record.MinSize {
			return nil, nil, ErrNotAddress
		}
	}
	b, release, err = s.log.Read(o.Position, size)
	if err != nil {
		return nil, nil, err
	}
	v, err := record.Parse(b)
	if err == nil && v.PhysicalOffset() != o.Address {
		err = ErrNotAddress
	}
	if err == nil {
		err = v.CheckBody()
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return b, release, nil
}

// waitApplied waits for the dispatcher, as long as the store is open.
func (s *Store) waitApplied(at int64) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-s.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := s.WaitApplied(ctx, at)
	cancel()
	<-ended
	if errors.Is(err, context.Canceled) {
		return ErrClosed
	}
	return err
}

// movedRecord returns the record of an address whose body the log has lost, when it is still owed by name. The address itself is lost, too,
// but for a view that is in a later segment.
func (s *Store) movedRecord(address int64) (o state.OwedBody, b []byte, release func(), err error) {
	s.machine.RLock()
	o, ok := s.machine.Place(address)
	s.machine.RUnlock()
	if !ok || o.Position == address {
		return o, nil, nil, log.ErrRange
	}
	b, release, err = s.readOwed(o)
	return o, b, release, err
}
