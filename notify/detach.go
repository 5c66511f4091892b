package notify

import (
	"context"
	"time"

	"github.com/fusionmq/fusionmq/notify/delivery"
	"github.com/fusionmq/fusionmq/notify/exchange"
	"github.com/fusionmq/fusionmq/store/state"
)

// detachLocked begins to detach the group from a topic, and to end its volatile bindings there when no member is left.
func (g *group) detachLocked(st *stream) {
	st.changing = true
	var was delivery.Mode
	attached := st.d.Mode() != delivery.Detached
	if attached {
		was = st.d.BeginDetach()
	}
	drops := st.volatile
	if drops {
		g.dropping++
	}
	g.s.work.Add(1)
	go g.s.detach(g, st, attached, drops, was)
}

// detach writes a detach record. When no member is left, bindings that are not persistent end with it.
func (s *Service) detach(g *group, st *stream, attached, drops bool, was delivery.Mode) {
	defer s.work.Done()
	topic := st.d.Topic
	s.commit.Lock()
	g.mu.Lock()
	offline := g.d.Members() == 0
	g.mu.Unlock()
	var last []state.Op
	var volatile []exchange.Span
	kept := false // a persistent binding is left
	if offline {
		h := s.exchange.History(topic, g.name)
		volatile = h.Volatile()
		kept = h.Len() > len(volatile)
		for _, v := range volatile {
			last = append(last, state.Op{Kind: state.OpUnbind, Topic: topic, Group: g.name, Binding: v.Binding})
		}
	}
	ops := s.commit.pending
	if attached {
		last = append(last, state.Op{Kind: state.OpDetach, Topic: topic, Group: g.name})
		ops = s.ledger.DetachOps(ops, topic, g.name, s.now())
	} else {
		ops, _ = s.ledger.Ops(ops, s.now(), false)
	}
	at, err := s.writeLast(ops, last...)
	if err != nil {
		at = -1
		s.log.warn("group not detached", "group", g.name, "topic", topic, "error", err)
	}
	g.mu.Lock()
	if attached {
		st.d.EndDetach(at, was, s.now())
		st.atHead = false
	}
	if err == nil {
		if attached {
			g.d.Taken(s.ledger.Detached(topic, g.name, at))
			s.counters.detaches.Add(1)
			s.attached.Add(-1)
		}
		for _, v := range volatile {
			g.parked = append(g.parked, parked{topic, v.Binding})
		}
		if len(volatile) > 0 && !kept {
			s.counters.volatileDrops.Add(uint64(st.left)) // no binding is left through which the cursor could find them again
		}
		st.volatile = st.volatile && !offline
	}
	g.mu.Unlock()
	s.commit.Unlock()
	poke(s.flushNow) // the ledger may have something left that is not due yet

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err == nil {
		_ = s.store.WaitApplied(ctx, at) // the retries it made are there then; without them the loader comes back
	} else {
		select { // the store refuses writes: no reason to hurry
		case <-s.quit:
			return
		case <-time.After(time.Second):
		}
	}
	if at >= 0 && len(volatile) > 0 {
		s.dropVolatile(g, topic, volatile)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	st.changing = false
	if drops {
		g.dropping--
	}
	if g.d.Members() > 0 {
		if len(g.parked) > 0 {
			s.work.Add(1)
			go s.unpark(g)
		}
		g.older = true
		g.rewindLocked()
	}
	g.pumpLocked()
}
