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
	movedItems = 1 << 14 // records looked up at a time

	// movedFrame is what a record of MovedTopic has beside its body. A record of a message must leave room for it in a segment.
	movedFrame = record.MinSize + len(MovedTopic) + 24
)

// relocateBelow moves every record below position that is owed by name, until there is none. Addresses whose record cannot be read any
// more are added to lost, counted and told.
func (s *Store) relocateBelow(position int64, lost map[int64]bool) error {
	for {
		owed := s.owedBelow(position, lost)
		if len(owed) == 0 {
			return nil
		}
		for len(owed) > 0 {
			n, err := s.moveSome(owed, lost)
			if err != nil {
				return err
			}
			owed = owed[n:]
		}
	}
}

// owedBelow lists some of what is owed below position, each address once.
func (s *Store) owedBelow(position int64, lost map[int64]bool) []state.OwedBody {
	s.machine.RLock()
	defer s.machine.RUnlock()
	var owed []state.OwedBody
	seen := map[int64]bool{}
	for o := range s.machine.OwedBelow(position) {
		if lost[o.Address] || seen[o.Address] {
			continue
		}
		seen[o.Address] = true
		if owed = append(owed, o); len(owed) == movedItems {
			break
		}
	}
	return owed
}

// moveSome moves the first records of owed, as many as go into one record, and waits until that has taken effect. It says how many
// of owed are done.
func (s *Store) moveSome(owed []state.OwedBody, lost map[int64]bool) (done int, err error) {
	room := s.movedRoom()
	var body []byte
	var ops []state.Op
	for _, o := range owed {
		b, release, err := s.readOwed(o)
		if err != nil {
			lost[o.Address] = true
			s.clean.lost.Add(1)
			s.event(levelError, "message that is owed cannot be read and is not kept", "topic", o.Topic, "address", o.Address, "position", o.Position, "err", err)
			done++
			continue
		}
		if len(body) > 0 && len(body)+len(b) > room {
			release()
			break
		}
		ops = append(ops, state.Op{Kind: state.OpRelocate, Topic: o.Topic, First: o.Address, Last: int64(len(body)), Size: int32(len(b))})
		body = append(body, b...)
		release()
		done++
	}
	if len(ops) == 0 {
		return done, nil
	}
	start, err := s.appendMoved(body, true)
	if err != nil {
		return 0, err
	}
	for i := range ops {
		ops[i].Last += start
	}
	at, err := s.operateReserved(ops)
	if err != nil {
		return 0, err
	}
	s.clean.moved.Add(int64(len(ops)))
	return done, s.waitApplied(at)
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
	if op, time, err := s.viewAt(o.Address); err == nil {
		b, err := s.shown(o.Address, &op, time, o.Position, o.Size) // moved as it is read: the view may go with its own segment
		return b, noRelease, err
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

// moved returns the record of an address that the log has lost, when it is still owed by name.
func (s *Store) movedRecord(address int64) (o state.OwedBody, b []byte, release func(), err error) {
	if address < 0 || address >= s.log.Min() {
		return o, nil, nil, log.ErrRange
	}
	s.machine.RLock()
	o, ok := s.machine.Place(address)
	s.machine.RUnlock()
	if !ok || o.Position == address {
		return o, nil, nil, log.ErrRange
	}
	b, release, err = s.readOwed(o)
	return o, b, release, err
}
