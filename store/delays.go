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
	failing               bool  // of its goroutine
	rest                  int64 // no batch before this time; of its goroutine
}

func (p *publisher) init(s *Store) {
	p.s = s
	p.wake = make(chan struct{}, 1)
	p.next.Store(noTime)
}

// expect tells that something is due at a time.
func (p *publisher) expect(due int64) {
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
		ops, next, claimed := p.collect(now, ds)
		if len(ops) == 0 {
			if claimed { // somebody else ends what is due
				return min(next, now+claimedPause.Milliseconds())
			}
			return next
		}
		err := s.writeEnds(ops)[0] // they are one record
		if err == nil {
			err = s.settled(ctx)
		}
		if err != nil {
			if !p.failing && ctx.Err() == nil {
				s.event(levelError, "messages that are due cannot be published, trying again", "messages", len(ops), "err", err)
			}
			p.failing = true
			return now + publishPause.Milliseconds()
		}
		p.failing = false
		p.published.Add(int64(len(ops)))
		if len(ops) < len(ds) {
			p.rest = now + publishGap.Milliseconds()
			return p.rest
		}
	}
	return noTime
}

// collect claims what is due and makes the operations that publish it, at most len(ds). next is when something else is due.
func (p *publisher) collect(now int64, ds []state.Due) (ops []state.Op, next int64, claimed bool) {
	s := p.s
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	next = noTime
	behind := max(0, now-s.o.Now().UnixMilli()) // how far the machine's clock is, see clock
	for _, list := range []func(state.Due, []state.Due) int{s.Delays, s.Returns} {
		for after := (state.Due{}); len(ops) < len(ds); {
			room := ds[:len(ds)-len(ops)]
			n := list(after, room)
			due := 0
			for due < n && room[due].Due <= now {
				due++
			}
			for i := range room[:due] {
				d := &room[i]
				if d.Group == "" && d.Kind != state.ViewDelay && d.Due > now-behind {
					next = min(next, d.Due+behind) // it waits for a time that somebody stated
					continue
				}
				if _, ok := s.claims.takeLocked(claim{d.Group, d.Address}, state.Unknown); ok {
					ops = append(ops, p.op(d))
				} else {
					claimed = true
				}
			}
			if due < n {
				next = min(next, room[due].Due)
				break
			}
			if n < len(room) {
				break
			}
			after = room[n-1]
		}
	}
	return ops, next, claimed
}

// op publishes d.
func (p *publisher) op(d *state.Due) state.Op {
	s := p.s
	op := state.Op{Kind: state.OpPublish, Topic: d.Topic, Group: d.Group, First: d.Address}
	var err error
	if d.Group != "" {
		op.View, err = s.retryView(d)
	} else {
		op.View, err = s.waitingView(d.Kind, d.Address, d.Position, d.Size)
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
	return op
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
