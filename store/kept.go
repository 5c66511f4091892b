package store

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/store/dedup"
	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/lookup"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

// kept knows, with few mistakes and none that loses, the ids of messages that are owed to somebody by name: halves, delays, retries, and what
// is pushed and unanswered. An id of a message that is older than the window is a repeat while one of them has it (ruling A22), and the key
// index can say which; but asking it over all of its files for each send would cost several times the send.
//
// It is a filter that a goroutine fills from the push state in rounds, twice a window, each over what is new since the last, and now and then from
// the beginning, so that what is owed no more leaves it. What becomes owed at an old address is put in by the dispatcher. So the first
// round after a start reads a record for everything that is owed; until it has ended the key index is asked. Nothing happens before the
// first idempotent send.
type kept struct {
	used  atomic.Bool
	size  atomic.Int64
	shown atomic.Int64  // end of the newest write with messages that were published or moved, which the key index finds on its own
	wake  chan struct{} // capacity 1

	mu struct {
		sync.Mutex
		covers  int64         // everything owed that was stored before this time is in filter; 0: nothing is sure
		to      int64         // records below this log position were looked at, or are in the round under way
		filter  *dedup.Filter // nil: empty
		next    *dedup.Filter // will replace filter when the round under way has ended; nil: it adds to filter
		was     int           // ids in filter after it was made
		resets  int           // calls of forget
		waiters []chan struct{}
	}
}

const keptSmallest = 4 << 10 // bytes of a filter

// forget says that of some topic no ids are in the filter.
func (k *kept) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.resets++
	k.mu.covers, k.mu.to, k.mu.filter, k.mu.next = 0, 0, nil, nil
}

// add puts the id of a message at an address into the filter. Without round it comes from the dispatcher, which need not tell of what a later round
// will see.
func (k *kept) add(hash uint64, address int64, round bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.next != nil {
		k.mu.next.Add(hash)
	}
	if k.mu.filter != nil && (k.mu.next == nil || !round) && (round || address < k.mu.to) {
		k.mu.filter.Add(hash)
	}
}

// mayBeKept tells whether a message older than since may have the id and be owed to somebody by name.
func (s *Store) mayBeKept(hash uint64, since int64) bool {
	k := &s.once.kept
	if !k.used.Load() {
		k.used.Store(true)
	}
	k.mu.Lock()
	covers := k.mu.covers
	may := k.mu.filter != nil && k.mu.filter.May(hash)
	k.mu.Unlock()
	if covers < since+s.once.windowMS/2 {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
	return may || covers < since && s.owedCount() > 0
}

// keepIDs does the rounds.
func (s *Store) keepIDs() {
	defer s.done.Done()
	for {
		select {
		case <-s.stop:
			return
		case <-s.once.kept.wake:
			if s.keepRound() == nil {
				continue
			}
			select {
			case <-s.stop:
				return
			case <-time.After(unavailableWait):
			}
		}
	}
}

// keepRound brings the filter to now. What cannot be read at the moment ends it with an error, and the filter speaks for no more than before: the
// next send asks for another round.
func (s *Store) keepRound() error {
	k := &s.once.kept
	now := s.now()
	told := s.log.Told()
	if told > 0 && s.waitApplied(told-1) != nil {
		return nil // closing
	}
	owed := s.owedCount()
	k.mu.Lock()
	before, resets := k.mu.to, k.mu.resets
	from := before
	if f := k.mu.filter; f == nil || f.Len() > max(2*k.mu.was, f.Bytes()/2) {
		from = 0
		k.mu.next = dedup.NewFilter(min(s.o.OnceBytes/4, max(keptSmallest, 4*owed)))
	}
	k.mu.to = told
	k.mu.Unlock()

	// Windows come first, and once more in the end: what is in one may be in a retry line a moment later, but never the other way round.
	for _, place := range []state.OwedPlace{state.OwedWindows, {}} {
		for page := make([]state.OwedEntry, 256); !s.closed.Load(); {
			s.machine.RLock()
			n, next := s.machine.OwedFrom(from, math.MaxInt64, place, page)
			s.machine.RUnlock()
			for i := range page[:n] {
				if err := s.keepID(&page[i], true); err != nil {
					k.mu.Lock()
					defer k.mu.Unlock()
					if k.mu.next = nil; k.mu.resets == resets {
						k.mu.to = before
					}
					return err
				}
			}
			if n < len(page) {
				break
			}
			place = next
		}
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.resets != resets || s.closed.Load() {
		return nil // the next send asks for another one
	}
	if k.mu.next != nil {
		k.mu.filter, k.mu.next = k.mu.next, nil
		k.mu.was = k.mu.filter.Len()
	}
	k.size.Store(int64(k.mu.filter.Len()))
	// What was appended at now or before and was not in the log yet waits for a quarter of a window at most.
	k.mu.covers = now - s.once.windowMS/4
	return nil
}

// owedCount is how much is owed by name.
func (s *Store) owedCount() int {
	s.machine.RLock()
	defer s.machine.RUnlock()
	st := s.machine.Stats()
	return st.Window + st.Retries + st.Halves + st.Aside + st.Delays + st.Returns
}

// keepID puts the ids of something that is owed into the filter. It fails only when they cannot be read at the moment.
func (s *Store) keepID(e *state.OwedEntry, round bool) error {
	v, release, err := s.bodyOf(e)
	if err != nil {
		return passing(err) // else nobody can read it, or it is not owed any more
	}
	defer release()
	k := &s.once.kept
	if id, ok := lookup.Once(v.Properties()); ok {
		k.add(lookup.Anywhere.Hash(id), e.Address, round)
	}
	if t := s.topic(e.Topic); t != nil && t.once.Load() {
		if id := lookup.UniqueID(v.Properties()); len(id) > 0 {
			k.add(t.keys.Hash(id), e.Address, round)
		}
	}
	return nil
}

// bodyOf returns the record of something that is owed, also when it has just been moved.
func (s *Store) bodyOf(e *state.OwedEntry) (v record.View, release func(), err error) {
	position, size := e.Position, e.Size
	if size == 0 {
		op, _, err := s.viewAt(e.Address)
		if passing(err) != nil {
			return v, nil, err
		}
		if err == nil {
			position, size = op.View.Position, op.View.Size
		}
	}
	for range 2 {
		var b []byte
		if size == 0 {
			b, release, err = s.recordBytes(position)
		} else {
			b, release, err = s.log.Read(position, int(size))
		}
		if err == nil {
			if v, err = record.Parse(b); err == nil {
				return v, release, nil
			}
			release()
			return v, nil, err
		}
		if passing(err) != nil {
			break
		}
		o, ok := s.owedAt(e.Topic, e.Address)
		if !ok || o.Position == position {
			break
		}
		position, size = o.Position, o.Size
	}
	return v, nil, err
}

// keep is told by the dispatcher about operations that have taken effect. A failure and a send-back make something be owed at an address that
// the rounds may be past; a publish changes the address in the middle of one.
func (d *dispatcher) keep(v record.View, ops []state.Op) {
	s := d.s
	if !s.once.kept.used.Load() || d.replaying {
		return
	}
	for i := range ops {
		op := &ops[i]
		e := state.OwedEntry{Topic: op.Topic, Address: op.First}
		switch op.Kind {
		case state.OpUpdate, state.OpReturn:
		case state.OpPublish:
			show := viewEntry(v, op.View)
			e.Topic, e.Address = op.View.Topic, show.Address
		default:
			continue
		}
		if !s.once.kept.wants(e.Address) {
			continue
		}
		if o, ok := s.owedAt(e.Topic, e.Address); ok {
			e.Position, e.Size = o.Position, o.Size
			if s.keepID(&e, false) != nil {
				s.once.kept.forget() // the key index is asked for everything until a round has ended
			}
		}
	}
}

// wants tells whether add does anything for the dispatcher.
func (k *kept) wants(address int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.next != nil || k.mu.filter != nil && address < k.mu.to
}

// movedRecords calls fn for each message that a record of MovedTopic carries: its position there and its record.
func movedRecords(v record.View, fn func(at int64, m record.View) error) error {
	body, at := v.Body(), v.PhysicalOffset()+int64(v.BodyOffset())
	for len(body) > 0 {
		m, err := record.Parse(body)
		if err != nil {
			return nil // nobody finds it there
		}
		if err := fn(at, m); err != nil {
			return err
		}
		body, at = body[m.Size():], at+int64(m.Size())
	}
	return nil
}

// hasMoved tells whether a part that was written has a record of MovedTopic.
func (s *Store) hasMoved(p *log.Part) bool {
	for i := range p.Items() {
		if it := &p.Items()[i]; it.Seq != nil && it.Seq.Owner.(*lane).topic == s.own.moved {
			return true
		}
	}
	return false
}
