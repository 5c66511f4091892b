package notify

import (
	"github.com/fusionmq/fusionmq/notify/delivery"
	"github.com/fusionmq/fusionmq/store/state"
)

// observer is the store's way into the service. The store's dispatcher is the only caller, so its fields need no lock.
type observer struct {
	s       *Service
	msgs    []*delivery.Message
	touched []*group
}

// Owed hands new messages to the groups that are owed them: each group's lock is taken once a batch.
func (o *observer) Owed(owed []state.Owed) {
	s := o.s
	if !s.started.Load() {
		return // from before the groups of the last run were detached: they are retries by now
	}
	o.msgs = s.ledger.Add(o.msgs[:0], owed)
	s.mu.RLock()
	for i, m := range o.msgs {
		for j, name := range owed[i].Targets {
			g := s.mu.groups[name]
			if g == nil { // cannot be: a group is attached by its own reader
				s.ledger.Moved(m, j)
				s.log.warn("message owed to a group that is not here", "group", name, "topic", m.Topic, "address", m.Address)
				continue
			}
			if !g.touched {
				g.touched = true
				o.touched = append(o.touched, g)
			}
			g.inbox = append(g.inbox, owedTo{m, int32(j)})
		}
	}
	s.mu.RUnlock()
	crowded := s.waiting.Load() > int64(s.o.MaxWaiting)
	for i, g := range o.touched {
		g.mu.Lock()
		var topic string
		var st *stream
		for _, ow := range g.inbox {
			if st == nil || ow.msg.Topic != topic {
				topic = ow.msg.Topic
				st = g.streamLocked(topic)
			}
			overflow := st.d.Owe(ow.msg, ow.share)
			if crowded && int64(st.d.Owed()) > int64(s.o.MaxWaiting)/max(s.attached.Load(), 1) {
				overflow = true
			}
			if overflow && !st.changing {
				s.counters.overflows.Add(1)
				g.detachLocked(st)
			}
		}
		g.pumpLocked()
		g.mu.Unlock()
		clear(g.inbox)
		g.inbox, g.touched = g.inbox[:0], false
		if cap(g.inbox) > 4096 {
			g.inbox = nil
		}
		o.touched[i] = nil
	}
	o.touched = o.touched[:0]
	clear(o.msgs)
}

// Applied tells groups that their bindings or their retry lines have changed.
func (o *observer) Applied(at int64, ops []state.Op) {
	s := o.s
	if !s.started.Load() {
		return
	}
	for i := range ops {
		op := &ops[i]
		switch op.Kind {
		case state.OpUpdate:
			for _, f := range op.Failed {
				if g := s.group(f.Group, false); g != nil {
					g.retryChanged(op.First, f.Due)
				}
			}
		case state.OpRetire:
			if op.Last == 0 {
				if g := s.group(op.Group, false); g != nil {
					g.retryChanged(op.First, delivery.Never)
				}
			}
		case state.OpCursor:
			s.exchange.Forget(op.Topic, op.Group, op.First)
		case state.OpBind, state.OpUnbind:
			name, topic, volatile := op.Group, op.Topic, op.Kind == state.OpBind && op.Binding.Volatile
			s.work.Add(1)
			go func() {
				defer s.work.Done()
				s.rebound(name, topic, volatile)
			}()
		}
	}
}

// retryChanged notes that a message's place in the retry line is what an operation of ours has made it.
func (g *group) retryChanged(address, due int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	look := g.d.Applied(address)
	if !look || due == delivery.Never || g.d.Members() == 0 {
		return
	}
	g.dueLocked(due)
}
