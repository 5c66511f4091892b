package notify

import (
	"github.com/fusionmq/fusionmq/notify/delivery"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

const (
	retryBatch = 128
	retryAhead = 256 // retries of a group that wait in memory for a machine
)

// loadLocked begins to load retries that are due.
func (g *group) loadLocked() {
	if g.loading || g.dropping > 0 || g.d.Members() == 0 || g.d.RetriesWaiting() >= retryAhead || g.s.draining.Load() || !g.s.started.Load() {
		return
	}
	g.loading = true
	g.retryAt = delivery.Never
	g.s.work.Add(1)
	go g.s.loadRetries(g)
}

// loadRetries reads the retry line up to what is not due.
func (s *Service) loadRetries(g *group) {
	defer s.work.Done()
	buf := make([]state.Retry, retryBatch)
	items := make([]delivery.Retry, 0, retryBatch)
	var batch delivery.Batch
	for {
		g.mu.Lock()
		if g.d.BeginLoad() {
			g.rewindLocked()
		}
		after, rewinds := g.after, g.rewinds
		g.mu.Unlock()
		now := s.now()
		n := s.store.Retries(g.name, after, buf)
		items = items[:0]
		next := int64(delivery.Never)
		for _, r := range buf[:n] {
			if r.Due > now {
				next = r.Due
				break
			}
			visible := s.store.TopicVisible(r.Topic) // before looking
			m, err := s.retryHead(&batch, r)
			if err != nil && visible <= r.Address {
				next = now + 1 // of a sync topic, and not synced yet: a detach makes retries of what is not visible
				break
			}
			after = r
			if err != nil {
				s.lost("retry", r.Topic, r.Address, err)
				s.ledger.Retire(r.Topic, g.name, r.Address)
				continue
			}
			items = append(items, delivery.Retry{Retry: r, Message: m})
		}
		g.mu.Lock()
		if g.d.Members() == 0 {
			g.loading = false
			g.d.EndLoad()
			g.mu.Unlock()
			return
		}
		g.d.Retry(items)
		if g.rewinds != rewinds { // something came in before the place that we read
			g.pumpLocked()
			g.mu.Unlock()
			continue
		}
		g.after = after
		full := g.d.RetriesWaiting() >= retryAhead
		if !full || after.Attempt > 0 {
			g.older = g.older && n == len(buf) && next == delivery.Never && !full
		}
		if next != delivery.Never || n < len(buf) || full {
			g.loading = false
			g.retryAt = min(g.retryAt, next)
			if g.d.EndLoad() {
				g.rewindLocked()
			}
			if full {
				g.retryAt = 0
			}
			g.pumpLocked()
			g.mu.Unlock()
			return
		}
		g.pumpLocked()
		g.mu.Unlock()
	}
}

func (s *Service) retryHead(batch *delivery.Batch, r state.Retry) (*delivery.Message, error) {
	b, release, err := s.store.RecordAt(r.Address)
	if err != nil {
		return nil, err
	}
	defer release()
	v, err := record.Parse(b)
	if err != nil {
		return nil, err
	}
	m := batch.New(r.Topic, v.QueueID(), int32(len(b)), r.Address, r.Position, v.StoreTime(), v.TagsCode())
	if r.Attempt > 0 {
		m.Failed = r.Due - delivery.Backoff(r.Attempt).Milliseconds()
	}
	return m, nil
}
