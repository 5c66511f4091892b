package store

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/store/state"
)

const (
	publishBatch = 512           // views of one record
	publishPause = time.Second   // after a failure
	publishLook  = time.Second   // how long a clock that was set may go unnoticed
	noTime       = math.MaxInt64 // nothing is due
	claimedPause = 5 * time.Millisecond

	// publishGap is from one batch to the next, unless it is full, so that where much is due, several views share a record.
	publishGap = 4 * time.Millisecond
)

// publisher publishes what is due: delayed messages, and what pull groups get again. It works in the order of due times, a batch
// at a time, and looks at the state again when a batch has taken effect.
type publisher struct {
	s    *Store
	wake chan struct{}
	next atomic.Int64 // the time that it waits for; noTime while it works, so that nothing that comes is missed

	published, unreadable atomic.Int64
	rows                  atomic.Int64 // of what waits, that it has read

	// Of its goroutine.
	failing bool
	rest    int64     // no batch before this time
	seen    state.Due // what is delayed by a level has ended up to here, but for what late tells of; the zero value: it may be anywhere

	late atomic.Int64 // the least time of what came with a level since seen was looked at; noTime without one
}

func (p *publisher) init(s *Store) {
	p.s = s
	p.wake = make(chan struct{}, 1)
	p.next.Store(noTime)
	p.late.Store(noTime)
}

// expect tells that something is due at a time, which stated says is the machine's.
func (p *publisher) expect(due int64, stated bool) {
	for late := p.late.Load(); !stated && due < late && !p.late.CompareAndSwap(late, due); late = p.late.Load() {
	}
	if due < p.next.Load() {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

func (p *publisher) run() {
	defer p.s.done.Done()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-p.s.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-timer.C:
		}
		p.next.Store(noTime)
		next := p.publishDue(ctx)
		p.next.Store(next)
		timer.Stop()
		if next != noTime {
			wait := min(max(next-p.s.now(), 0), publishLook.Milliseconds()) // one that another broker has left may be any number
			timer.Reset(time.Duration(wait) * time.Millisecond)
		}
	}
}

// publishDue publishes everything that is due and returns when the next is.
func (p *publisher) publishDue(ctx context.Context) int64 {
	s := p.s
	if s.now() < p.rest {
		return p.rest
	}
	ds := make([]state.Due, publishBatch)
	for ctx.Err() == nil {
		now := s.now()
		c := p.collect(now, ds)
		if len(c.ops) == 0 {
			p.seen = c.seen
			if c.err != nil {
				if !p.failing {
					s.event(levelWarn, "messages that are due cannot be read at the moment, which is tried again", "err", c.err)
				}
				p.failing = true
				return now + publishPause.Milliseconds()
			}
			if c.claimed { // somebody else ends what is due
				return min(c.next, now+claimedPause.Milliseconds())
			}
			return c.next
		}
		err := s.writeEnds(c.ops)[0] // they are one record
		if err == nil {
			err = s.settled(ctx)
		}
		if err != nil {
			if !p.failing && ctx.Err() == nil {
				s.event(levelError, "messages that are due cannot be published, trying again", "messages", len(c.ops), "err", err)
			}
			p.failing = true
			return now + publishPause.Milliseconds()
		}
		p.failing = false
		p.seen = c.seen
		p.published.Add(int64(len(c.ops)))
		if len(c.ops) < len(ds) {
			p.rest = now + publishGap.Milliseconds()
			return p.rest
		}
	}
	return noTime
}

// collection is what is due.
type collection struct {
	p       *publisher
	ds      []state.Due // memory
	ops     []state.Op  // that publish it, claimed
	claimed bool        // somebody else ends some of it
	next    int64       // when something else is due
	seen    state.Due   // publisher.seen, once ops have taken effect
	open    int64       // the least time of a message delayed by a level that somebody else ends, or that err is of; noTime without one
	err     error       // why something that is due cannot be read at the moment
}

// lastOf is the place behind everything that is due at a time.
func lastOf(due int64) state.Due { return state.Due{Due: due, Address: math.MaxInt64} }

func laterOf(a, b state.Due) state.Due {
	if a.Due < b.Due || a.Due == b.Due && a.Address < b.Address {
		return b
	}
	return a
}

// collect claims what is due and makes the operations that publish it, at most len(ds). While the machine's clock is behind, see clock,
// what waits for a time that somebody stated is due by that clock and all else by store time. What lies between the two is read when store
// time comes to it and not again at each look: there may be millions.
func (p *publisher) collect(now int64, ds []state.Due) *collection {
	s := p.s
	if late := p.late.Swap(noTime); late <= p.seen.Due { // what comes from here on tells again
		p.seen = lastOf(late - 1)
	}
	c := &collection{p: p, ds: ds, next: noTime, seen: p.seen, open: noTime}
	behind := max(0, now-s.o.Now().UnixMilli())
	wall := now - behind
	next, seen := c.take(s.delaysUntil, state.Due{}, wall, true)
	if next < noTime {
		c.next = next + behind // what a level delays may come earlier, and is found here:
	}
	if behind > 0 && !c.full() {
		next, seen = c.take(s.delaysUntil, laterOf(p.seen, lastOf(wall)), now, false)
		c.next = min(c.next, next)
	}
	if seen.Due >= c.open {
		seen = lastOf(c.open - 1)
	}
	c.seen = laterOf(p.seen, seen)
	next, _ = c.take(s.returnsUntil, state.Due{}, now, true)
	c.next = min(c.next, next)
	return c
}

func (c *collection) full() bool { return len(c.ops) == len(c.ds) }

// take collects from a list, behind a place, what is due until a time; without stated not what waits for a time that somebody stated. It
// returns when the next is due, and how far it has come.
func (c *collection) take(list func(state.Due, int64, []state.Due) (int, int64), after state.Due, until int64, stated bool) (next int64, seen state.Due) {
	for !c.full() {
		room := len(c.ds) - len(c.ops)
		n, next, err := c.page(list, after, until, stated)
		if err != nil {
			c.err = err
			return noTime, after
		}
		if n < room {
			return next, laterOf(after, lastOf(until))
		}
		after = c.ds[n-1]
	}
	return noTime, after
}

// page is one step of take, and returns how much it has looked at. What cannot be read at the moment ends it: what is due later waits.
func (c *collection) page(list func(state.Due, int64, []state.Due) (int, int64), after state.Due, until int64, stated bool) (n int, next int64, err error) {
	claims := &c.p.s.claims
	claims.mu.Lock()
	defer claims.mu.Unlock()
	n, next = list(after, until, c.ds[:len(c.ds)-len(c.ops)])
	c.p.rows.Add(int64(n))
	for i := range c.ds[:n] {
		d := &c.ds[i]
		level := d.Group == "" && d.Kind == state.ViewDelay
		if !stated && !level {
			continue
		}
		name := claim{d.Group, d.Address}
		_, ours := claims.takeLocked(name, state.Unknown)
		if ours {
			var op state.Op
			if op, err = c.p.op(d); err == nil {
				c.ops = append(c.ops, op)
				continue
			}
			delete(claims.of, name) // nobody has seen it
		}
		if level {
			c.open = min(c.open, d.Due)
		}
		if err != nil {
			return n, next, err
		}
		c.claimed = true
	}
	return n, next, nil
}

// op publishes d. It fails only when that cannot be read at the moment.
func (p *publisher) op(d *state.Due) (state.Op, error) {
	s := p.s
	op := state.Op{Kind: state.OpPublish, Topic: d.Topic, Group: d.Group, First: d.Address}
	var err error
	if d.Group != "" {
		op.View, err = s.retryView(d)
	} else {
		op.View, err = s.waitingView(d.Kind, d.Address, d.Position, d.Size)
	}
	if passing(err) != nil {
		return op, err
	}
	if err != nil {
		// Its view ends the wait and names the place; readers step over what they cannot read.
		p.unreadable.Add(1)
		s.event(levelError, "message that is due cannot be read", "topic", d.Topic, "group", d.Group, "address", d.Address, "position", d.Position, "err", err)
		op.View = &state.View{Kind: d.Kind, Topic: d.Topic, Position: d.Position, Size: d.Size, Reconsume: d.Attempt, Level: d.Level}
		if d.Group != "" {
			s.placeRetry(op.View, d)
		}
	}
	return op, nil
}

// Delays fills dst with delayed messages in the order in which they are due, starting behind after, or at the first one when after is the
// zero Due.
func (s *Store) Delays(after state.Due, dst []state.Due) int {
	s.machine.RLock()
	defer s.machine.RUnlock()
	return s.machine.Delays(after, dst)
}

// Returns is Delays for the messages that pull groups have sent back.
func (s *Store) Returns(after state.Due, dst []state.Due) int {
	s.machine.RLock()
	defer s.machine.RUnlock()
	return s.machine.Returns(after, dst)
}

func (s *Store) delaysUntil(after state.Due, until int64, dst []state.Due) (n int, next int64) {
	s.machine.RLock()
	defer s.machine.RUnlock()
	return s.machine.DelaysUntil(after, until, dst)
}

func (s *Store) returnsUntil(after state.Due, until int64, dst []state.Due) (n int, next int64) {
	s.machine.RLock()
	defer s.machine.RUnlock()
	return s.machine.ReturnsUntil(after, until, dst)
}

// CancelDelay takes a delayed message back: it is never published. ErrNoDelay when none waits at the address, or it is just being
// published.
func (s *Store) CancelDelay(ctx context.Context, address int64) error {
	if err := s.waitHalf(ctx, address); err != nil {
		if errors.Is(err, ErrNoHalf) {
			err = ErrNoDelay
		}
		return err
	}
	s.claims.mu.Lock()
	s.machine.RLock()
	d, ok := s.machine.DelayAt(address)
	s.machine.RUnlock()
	if ok {
		_, ok = s.claims.takeLocked(claim{address: address}, state.Unknown)
	}
	s.claims.mu.Unlock()
	if !ok {
		return ErrNoDelay
	}
	return s.writeEnds([]state.Op{{Kind: state.OpCancel, Topic: d.Topic, First: address, Last: address}})[0]
}
