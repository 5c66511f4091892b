package store

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

// The bodies of views. A segment goes at the age limit plus the view window, so a view that is made within the window after its body was
// stored has it for as long as the age limit. What is published later gets its body again: the stored record is appended once more,
// whole and unchanged, in a record of MovedTopic, and the view names the copy. The view's operation alone counts, so a copy that a crash
// has left without one is of no use and does no harm.

// bodies is about the bodies that operations name.
type bodies struct {
	// mu is held, shared, from the look at a body to when the operation that names it is in the log. A deletion sets cut with it: from then
	// on no operation names a body below, so what expires and what moves is known when it looks.
	mu  sync.RWMutex
	cut int64

	young atomic.Pointer[placed] // a place of the log that is within the window, so that not every body has to be looked at
	again atomic.Int64           // bodies that were appended again
	said  func()                 // nil, but in tests: called when some were
}

// placed is a position, and when what is there was stored, in milliseconds since 1970.
type placed struct{ position, time int64 }

// bodyAt is where the body of a message is.
type bodyAt struct {
	position int64
	size     int32
}

// cutBodies has no operation name a body below a position from now on: what is there is about to go.
func (s *Store) cutBodies(position int64) {
	s.bodies.mu.Lock()
	defer s.bodies.mu.Unlock()
	s.bodies.cut = position
}

// namesBodies says whether operations name bodies that may go.
func namesBodies(ops []state.Op) bool {
	return slices.ContainsFunc(ops, func(o state.Op) bool { return o.View != nil || o.Kind == state.OpReturn })
}

// keepBodies returns ops with other bodies where those that they name are too old, or about to go, and were appended again, or have moved
// meanwhile. It changes neither ops nor what they point to. ErrNotAddress: what was sent back has gone; ErrUnavailable: a body cannot be read at the moment.
func (s *Store) keepBodies(ops []state.Op) ([]state.Op, error) {
	now, window := s.now(), s.o.Retention.ViewWindow.Milliseconds()
	var others map[bodyAt]bodyAt
	var old []bodyAt
	for i := range ops {
		op := &ops[i]
		b, ok := named(op)
		switch {
		case !ok:
		case b.position < s.log.Min():
			if o, ok := s.movedBody(op.First); ok {
				if others == nil {
					others = map[bodyAt]bodyAt{}
				}
				others[b] = o
			} else if op.View == nil {
				return nil, ErrNotAddress
			}
		case b.position < s.bodies.cut:
			old = append(old, b)
		case op.View != nil:
			is, err := s.isOld(b, now, window)
			if err != nil {
				return nil, err
			}
			if is {
				old = append(old, b)
			}
		}
	}
	if len(old) == 0 && others == nil {
		return ops, nil
	}
	if others == nil {
		others = make(map[bodyAt]bodyAt, len(old))
	}
	slices.SortFunc(old, func(a, b bodyAt) int { return cmp.Compare(a.position, b.position) })
	for old = slices.Compact(old); len(old) > 0; {
		n, err := s.copySome(old, others)
		if err != nil {
			return nil, err
		}
		old = old[n:]
	}
	ops = slices.Clone(ops)
	for i := range ops {
		op := &ops[i]
		b, ok := named(op)
		if !ok {
			continue
		}
		o, ok := others[b]
		if !ok && b.position < s.log.Min() { // the deletion that was about to take it has done so, while others were copied
			if o, ok = s.movedBody(op.First); !ok && op.View == nil {
				return nil, ErrNotAddress
			}
		}
		switch {
		case !ok:
		case op.View == nil:
			op.Position, op.Size = o.position, o.size
		default:
			v := *op.View
			v.Position, v.Size, op.View = o.position, o.size, &v
		}
	}
	return ops, nil
}

// named is the body that an operation names, if it names one that may go.
func named(op *state.Op) (bodyAt, bool) {
	if op.View != nil {
		return bodyAt{op.View.Position, op.View.Size}, true
	}
	return bodyAt{op.Position, op.Size}, op.Kind == state.OpReturn
}

// movedBody is where the body of what is owed by name at an address is now, if it is anywhere.
func (s *Store) movedBody(address int64) (bodyAt, bool) {
	s.machine.RLock()
	defer s.machine.RUnlock()
	o, ok := s.machine.Place(address)
	return bodyAt{o.Position, o.Size}, ok && o.Position >= s.log.Min()
}

// body returns the stored record of what is owed by name, which may have moved since its place was looked up.
func (s *Store) body(address, position int64, size int32) (b []byte, release func(), err error) {
	b, release, err = s.log.Read(position, int(size))
	if errors.Is(err, log.ErrRange) {
		s.machine.RLock()
		o, ok := s.machine.Place(address)
		s.machine.RUnlock()
		if ok && o.Position >= s.log.Min() {
			return s.log.Read(o.Position, int(o.Size))
		}
	}
	return b, release, err
}

// isOld says whether the record of a body was put there longer than the view window before now. One that is damaged is not: there is
// nothing to append, and who reads the view says so.
func (s *Store) isOld(b bodyAt, now, window int64) (bool, error) {
	y := s.bodies.young.Load()
	if y != nil && b.position >= y.position && now-y.time <= window {
		return false, nil // store times never go back along the log
	}
	raw, release, err := s.log.Read(b.position, int(b.size))
	if err != nil {
		return false, passing(err)
	}
	defer release()
	v, err := record.Parse(raw)
	if err != nil {
		return false, nil
	}
	p := s.placedAt(b.position, v)
	if now-p.time > window {
		return true, nil
	}
	if y == nil || now-y.time > window || p.position < y.position && now-p.time < window/2 {
		s.bodies.young.Store(&p)
	}
	return false, nil
}

// placedAt is when v came to where it is: when it was stored, or moved.
func (s *Store) placedAt(position int64, v record.View) placed {
	p := placed{position, v.StoreTime()}
	if v.PhysicalOffset() == position {
		return p
	}
	q := s.index.Queue(MovedTopic, 0, false)
	if q == nil {
		return p
	}
	var es [1]queue.Entry
	if n, err := q.Read(q.SearchAddress(position)-1, es[:]); err == nil && n == 1 {
		if e := &es[0]; e.Address < position && position < e.Address+int64(e.Size) {
			return placed{e.Address, e.Time}
		}
	}
	return p
}

// copySome appends the first of some records again, as many as go into one record, and adds their new places to copies. It says how many
// are done.
func (s *Store) copySome(old []bodyAt, copies map[bodyAt]bodyAt) (done int, err error) {
	var body []byte
	for _, o := range old {
		b, release, err := s.log.Read(o.position, int(o.size))
		if passing(err) != nil {
			return 0, err
		}
		if err != nil {
			release = noRelease // damaged: it stays where it is
		} else if len(body) > 0 && len(body)+len(b) > s.movedRoom() {
			release()
			break
		} else {
			copies[o] = bodyAt{int64(len(body)), o.size}
			body = append(body, b...)
		}
		release()
		done++
	}
	if len(body) == 0 {
		return done, nil
	}
	start, err := s.appendMoved(body, false)
	for _, o := range old[:done] {
		if c, ok := copies[o]; ok {
			c.position += start
			copies[o] = c
			s.bodies.again.Add(1)
		}
	}
	if s.bodies.said != nil {
		s.bodies.said()
	}
	return done, err
}
