package notify

import (
	"time"

	"github.com/fusionmq/fusionmq/notify/exchange"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

type parked struct {
	topic   string
	binding state.Binding
}

// unpark registers again what was parked while the group had no member: from now on, for what came in between is gone. When the
// store refuses that it is tried again in the background, as long as a member is there.
func (s *Service) unpark(g *group) {
	defer s.work.Done()
	if s.tryUnpark(g) {
		return
	}
	s.work.Add(1)
	go func() {
		defer s.work.Done()
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-s.quit:
				return
			case <-t.C:
			}
			if s.tryUnpark(g) {
				return
			}
		}
	}()
}

// tryUnpark reports whether nothing is left to do. Bindings stay parked until they are registered, so that the group is not
// forgotten meanwhile.
func (s *Service) tryUnpark(g *group) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.parked) > 0 && g.d.Members() > 0 && !g.unparking {
		ps := g.parked
		g.unparking = true
		g.mu.Unlock()
		ops := make([]state.Op, len(ps))
		for i, p := range ps {
			ops[i] = state.Op{Kind: state.OpBind, Topic: p.topic, Group: g.name, Binding: p.binding}
		}
		_, err := s.operate(ops...)
		if err != nil {
			s.log.warn("volatile bindings not restored, trying again", "group", g.name, "error", err)
		}
		g.mu.Lock()
		g.unparking = false
		if err != nil {
			return false
		}
		g.parked = g.parked[len(ps):]
	}
	return true
}

// dropVolatile takes off the retry line what only bindings that are not persistent had brought.
func (s *Service) dropVolatile(g *group, topic string, spans []exchange.Span) {
	h := s.exchange.History(topic, g.name)
	var after state.Retry
	buf := make([]state.Retry, 256)
	drop := make([]int64, 0, len(buf))
	dropped := 0
	for {
		n := s.store.Retries(g.name, after, buf)
		for _, r := range buf[:n] {
			if r.Topic != topic {
				continue
			}
			b, release, err := s.store.RecordAt(r.Address)
			if err != nil {
				continue // the loader of the line says so when it comes to it
			}
			if v, err := record.Parse(b); err == nil && !h.Persistent(r.Address, v.Properties()) {
				for i := range spans {
					if spans[i].Matches(r.Address, v.Properties()) {
						drop = append(drop, r.Address)
						break
					}
				}
			}
			release()
		}
		// The group knows before the line does: a member that comes meanwhile does not get them.
		g.mu.Lock()
		g.d.Taken(drop)
		g.mu.Unlock()
		for _, address := range drop {
			s.ledger.Retire(topic, g.name, address)
		}
		dropped += len(drop)
		drop = drop[:0]
		if n < len(buf) {
			break
		}
		after = buf[n-1]
	}
	if dropped > 0 {
		s.counters.volatileDrops.Add(uint64(dropped))
		s.log.info("messages of volatile bindings dropped, their last member has gone", "group", g.name, "topic", topic, "messages", dropped)
	}
}
