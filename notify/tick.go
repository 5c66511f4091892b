package notify

import (
	"context"
	"time"

	"github.com/fusionmq/fusionmq/notify/delivery"
)

// tickEvery is how exact timeouts and due times are kept: never early, at most this late.
const tickEvery = 50 * time.Millisecond

// keepGroup is how long a group without members is remembered: long enough for its last outcomes to be applied.
const keepGroup = time.Minute

// tickLoop is the one timer of the service: answers that are out of time, and retries that are due. It sleeps while
// nothing is posted and nothing is due.
func (s *Service) tickLoop() {
	defer s.done.Done()
	t := time.NewTimer(s.tickEvery)
	defer t.Stop()
	soon := true // the timer is set to one tick
	var swept int64
	for {
		select {
		case <-s.quit:
			return
		case <-t.C:
		case <-s.tickNow:
			// Wait one tick all the same, for pokes come in crowds; but not once more for each, for a crowd need not end.
			if !soon {
				soon = true
				t.Reset(s.tickEvery)
			}
			continue
		}
		now := s.now()
		wake := int64(delivery.Never)
		applied := int64(-1)
		if now-swept >= keepGroup.Milliseconds() {
			applied = s.allApplied()
		}
		for _, g := range s.everyGroup() {
			wake = min(wake, g.tick(now))
			if applied >= 0 {
				s.forget(g, now, applied)
			}
		}
		if applied >= 0 {
			swept = now
		}
		d := keepGroup
		if wake != delivery.Never {
			d = min(d, max(time.Duration(wake-now)*time.Millisecond, s.tickEvery))
		}
		soon = d == s.tickEvery
		t.Reset(d)
	}
}

// tick does what is due in a group and returns when something is due next.
func (g *group) tick(now int64) (wake int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wakeAt > now {
		return g.wakeAt
	}
	if g.d.Deadline() <= now {
		g.d.Expire(now)
	}
	// What is due then and not begun by pumpLocked cannot be: whatever stands in its way ends with another call of it.
	g.wakeAt, g.ticking = delivery.Never, true
	g.pumpLocked()
	g.ticking = false
	if g.d.Deadline() == delivery.Never {
		g.d.Trim()
	}
	return g.wakeAt
}

// allApplied writes every outcome and waits until the store has applied them, so that what it says of a group is what the
// group itself knows. It returns the address of the last record, -1 when that has not worked.
func (s *Service) allApplied() int64 {
	s.commit.Lock()
	defer s.commit.Unlock()
	ops, _ := s.ledger.Ops(s.commit.pending, s.now(), true)
	if _, err := s.writeLocked(ops); err != nil {
		return -1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if s.store.WaitApplied(ctx, s.commit.last) != nil {
		return -1
	}
	return s.commit.last
}

// forget drops a group that has had no member for a while and nothing to remember. What was written up to address applied has been
// applied.
func (s *Service) forget(g *group, now, applied int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.d.Members() > 0 || len(g.parked) > 0 || g.loading || g.naming.changes > 0 || g.naming.bound > applied || now-g.leftAt < keepGroup.Milliseconds() {
		return
	}
	for _, st := range g.streams {
		if st.reading || st.changing || st.d.Mode() != delivery.Detached {
			return
		}
	}
	s.dropLocked(g)
}
