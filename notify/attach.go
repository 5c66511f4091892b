package notify

import (
	"time"

	"github.com/fusionmq/fusionmq/store/state"
)

// canAttachLocked tells whether a group that is at the head of a topic may be attached. Retries that are due and not
// loaded count as waiting.
func (g *group) canAttachLocked(st *stream) bool {
	now := g.s.now()
	return st.d.CanAttach() && !g.loading && g.retryAtLocked() > now && st.attachAt <= now && !g.s.draining.Load()
}

// attachRetry is how long a group that the store has refused to attach waits before it tries again, twice as long after each
// refusal up to attachRetryMost. Meanwhile its cursor is read on every attachRetry.
const (
	attachRetry     = time.Second
	attachRetryMost = 5 * time.Minute
)

// attach writes the attach record. The reader goes on to it afterwards. The store applies the record or, when it does not fit
// what the log says of the group, refuses it; a group that took itself for attached would be owed nothing by anybody then, so
// it is asked.
func (s *Service) attach(g *group, st *stream) {
	topic := st.d.Topic
	s.commit.Lock()
	g.mu.Lock()
	alone := g.d.Members() == 0
	g.mu.Unlock()
	var at int64
	var err error
	if !alone { // the cursor of a group without members has everything in its order
		ops, _ := s.ledger.Ops(s.commit.pending, s.now(), false)
		at, err = s.writeLast(ops, state.Op{Kind: state.OpAttach, Topic: topic, Group: g.name})
	}
	s.commit.Unlock()
	poke(s.flushNow) // Ops may have left something that is not due yet
	var pos state.GroupPosition
	refused := false
	if !alone && err == nil && s.waitApplied(at) { // else the service stops, and the next start sees what the log says
		pos, _ = s.store.Cursor(topic, g.name)
		refused = !pos.Attached || pos.Attach != at
	}
	g.mu.Lock()
	switch {
	case err != nil, alone:
		st.d.EndAttach(-1)
	case refused:
		st.d.Refused(pos)
		st.attachAt = s.now() + min(attachRetry<<min(st.refusals, 16), attachRetryMost).Milliseconds()
		st.refusals++
		s.counters.attachesRefused.Add(1)
	default:
		st.d.EndAttach(at)
		st.refusals = 0
		s.counters.attaches.Add(1)
		s.attached.Add(1)
	}
	refusals := st.refusals
	g.mu.Unlock()
	if err != nil {
		s.log.warn("group not attached", "group", g.name, "topic", topic, "error", err)
		select {
		case <-s.quit:
		case <-time.After(time.Second):
		}
	}
	if refused {
		s.log.warn("the store refused to attach a group, it is served from its cursor", "group", g.name, "topic", topic, "at", at,
			"refusals", refusals, "attached", pos.Attached, "attach", pos.Attach, "cursor", pos.Cursor, "skip_from", pos.SkipFrom, "skip_to", pos.SkipTo)
	}
	g.mu.Lock()
	st.changing = false
	g.pumpLocked()
	g.mu.Unlock()
}
