package notify

import (
	"time"

	"github.com/fusionmq/fusionmq/store/state"
)

// canAttachLocked tells whether a group that is at the head of a topic may be attached. Retries that are due and not
// loaded count as waiting.
func (g *group) canAttachLocked(st *stream) bool {
	return st.d.CanAttach() && !g.loading && g.retryAt > g.s.now() && !g.s.draining.Load()
}

// attach writes the attach record. The reader goes on to it afterwards.
func (s *Service) attach(g *group, st *stream) {
	topic := st.d.Topic
	s.commit.Lock()
	ops, _ := s.ledger.Ops(s.commit.pending, s.now(), false)
	at, err := s.writeLast(ops, state.Op{Kind: state.OpAttach, Topic: topic, Group: g.name})
	if err != nil {
		at = -1
	}
	g.mu.Lock()
	st.d.EndAttach(at)
	if at >= 0 {
		s.counters.attaches.Add(1)
		s.attached.Add(1)
	}
	g.mu.Unlock()
	s.commit.Unlock()
	poke(s.flushNow) // Ops may have left something that is not due yet
	if err != nil {
		s.log.warn("group not attached", "group", g.name, "topic", topic, "error", err)
		select {
		case <-s.quit:
		case <-time.After(time.Second):
		}
	}
	g.mu.Lock()
	st.changing = false
	g.pumpLocked()
	g.mu.Unlock()
}
