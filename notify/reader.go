package notify

import (
	"context"
	"sync"
	"time"

	"github.com/fusionmq/fusionmq/notify/delivery"
	"github.com/fusionmq/fusionmq/store"
)

const readBatch = 1024

// reader is what a cursor's reader needs while it runs.
type reader struct {
	entries [readBatch]store.TopicEntry
	ms      [readBatch]*delivery.Message
	batch   delivery.Batch
}

var readers = sync.Pool{New: func() any { return new(reader) }}

// read is the reader of one group's cursor on one topic: it goes on while the group wants more, attaches the group when
// it is near the head, and ends. pumpLocked starts it again.
func (s *Service) read(g *group, st *stream) {
	defer s.work.Done()
	topic := st.d.Topic
	buf := readers.Get().(*reader)
	defer readers.Put(buf)
	entries, ms, batch := buf.entries[:], buf.ms[:0], &buf.batch
	for {
		g.mu.Lock()
		if g.d.Members() == 0 || st.changing || !st.d.WantsMore() || s.draining.Load() {
			st.reading = false
			g.mu.Unlock()
			return
		}
		from, stop := st.d.ReadTo()
		joining := st.d.Mode() == delivery.Joining
		g.mu.Unlock()

		first := s.exchange.History(topic, g.name).First()
		visible := s.store.TopicVisible(topic) // before reading: what comes between the two must not be passed over
		n := s.store.ReadTopic(topic, max(from, min(first, stop)), entries)
		if n > 0 && !s.waitApplied(entries[n-1].Address) {
			g.mu.Lock()
			st.reading = false
			g.mu.Unlock()
			return
		}
		h := s.exchange.History(topic, g.name) // after that: it knows every binding below the messages
		// A crash can leave a message both above the cursor and in the retry line: the line has it.
		retries := s.store.RetryCount(g.name) > 0
		ms = ms[:0]
		next, passed := from, false
		for i := range n {
			e := &entries[i]
			if e.Address >= stop {
				next, passed = stop, true
				break
			}
			next = e.Address + 1
			if retries && s.store.Waits(g.name, e.Address) {
				continue
			}
			if h.MayMatch(e.Address, e.TagsCode) {
				m := batch.New(topic, e.Queue, e.Size, e.Address, e.Position, e.Time, e.TagsCode)
				m.Unchecked = true
				ms = append(ms, m)
			}
		}
		if n < len(entries) && !passed && stop != delivery.Never {
			// Nothing more is visible below stop. It stays so when everything below stop was visible.
			if visible >= stop {
				next, passed = stop, true
			} else if n == 0 && !s.waitVisible(topic, stop) {
				g.mu.Lock()
				st.reading = false
				g.mu.Unlock()
				return
			}
		}
		head := n < len(entries) && !passed && !joining && stop == delivery.Never
		s.counters.catchUps.Add(uint64(len(ms)))

		g.mu.Lock()
		if f, e := st.d.ReadTo(); f != from || e != stop { // the last member went and one came, say: read from there
			g.mu.Unlock()
			continue
		}
		if g.d.Members() == 0 || st.changing { // it would be read again
			st.reading = false
			g.mu.Unlock()
			return
		}
		st.d.Read(ms, next)
		if head && g.canAttachLocked(st) {
			st.d.BeginAttach()
			st.changing = true
		} else if head {
			st.atHead, st.lookAt = true, delivery.Never
			if now := s.now(); st.attachAt > now {
				st.lookAt = now + attachRetry.Milliseconds()
			}
			st.reading = false
		}
		g.pumpLocked()
		attach := st.changing && st.d.Mode() == delivery.Attaching
		idle := !st.reading
		g.mu.Unlock()
		if attach {
			s.attach(g, st)
		} else if idle {
			return
		}
	}
}

// waitApplied waits until everything up to address at has been dispatched; false when the service stops first.
func (s *Service) waitApplied(at int64) bool {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err := s.store.WaitApplied(ctx, at)
		cancel()
		if err == nil {
			return true
		}
		select {
		case <-s.quit:
			return false
		default:
		}
	}
}

// waitVisible waits until everything of the topic below address at can be read; false when the service stops first.
func (s *Service) waitVisible(topic string, at int64) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.store.WaitApplied(ctx, at) == nil && s.store.TopicVisible(topic) >= at {
		return true
	}
	select { // a sync topic shows its messages after the next sync
	case <-s.quit:
		return false
	case <-time.After(5 * time.Millisecond):
		return true
	}
}
