package notify

import (
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
	t := time.NewTimer(tickEvery)
	defer t.Stop()
	var swept int64
	for {
		select {
		case <-s.quit:
			return
		case <-t.C:
		case <-s.tickNow:
			// Wait one tick all the same: pokes come in crowds.
			t.Reset(tickEvery)
			continue
		}
		now := s.now()
		wake := int64(delivery.Never)
		sweep := now-swept >= keepGroup.Milliseconds()
		for _, g := range s.everyGroup() {
			wake = min(wake, g.tick(now))
			if sweep {
				s.forget(g, now)
			}
		}
		if sweep {
			swept = now
		}
		d := keepGroup
		if wake != delivery.Never {
			d = min(d, max(time.Duration(wake-now)*time.Millisecond, tickEvery))
		}
		t.Reset(d)
	}
}

// tick does what is due in a group and returns when something is due next.
func (g *group) tick(now int64) (wake int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	wake = delivery.Never
	if g.busy.Load() {
		if d := g.d.Deadline(); d <= now {
			g.d.Expire(now)
			g.pumpLocked()
		}
		wake = g.d.Deadline()
		if wake == delivery.Never {
			g.busy.Store(false)
		}
	}
	if g.d.Members() > 0 && g.retryAt != delivery.Never {
		if g.retryAt <= now {
			g.loadLocked()
		}
		wake = min(wake, g.retryAt)
	}
	return wake
}

// forget drops a group that has had no member for a while and nothing to remember.
func (s *Service) forget(g *group, now int64) {
	s.commit.Lock()
	clean := len(s.commit.pending) == 0
	s.commit.Unlock()
	if !clean {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.d.Members() > 0 || len(g.parked) > 0 || g.loading || now-g.leftAt < keepGroup.Milliseconds() {
		return
	}
	for _, st := range g.streams {
		if st.reading || st.changing || st.d.Mode() != delivery.Detached {
			return
		}
	}
	g.gone = true
	s.counters.keepCounts(g.d.Counts())
	delete(s.mu.groups, g.name)
}
