package notify

import (
	"errors"
	"math"

	"github.com/fusionmq/fusionmq/notify/delivery"
	"github.com/fusionmq/fusionmq/notify/mapping"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

const (
	retryBatch      = 128
	unavailableWait = 1000 // milliseconds until what cannot be read at the moment is tried again

	retryAhead = 256 // retries of each part of a group's line that wait in memory for a machine
)

// linePart is how far a part of a group's retry line is loaded.
type linePart struct {
	after state.Retry // loading goes on behind it
	at    int64       // when, milliseconds; 0: at once, for there is or may be more that is due; Never: nothing more is known
}

// The parts of a retry line. What a detach has made of first deliveries is due at once and stands in front, up to
// [delivery.Config.DetachBacklog] messages of each topic. A retry that has become due must not wait until a slow group has taken
// those, so both parts are loaded, each up to retryAhead, and a lane makes them take turns.
const (
	partDetached = iota
	partDue
)

// partStart is where loading of a part starts.
var partStart = [2]state.Retry{partDue: {Address: math.MaxInt64}} // behind everything of due time 0

// rewindLocked makes the loader look at the retry line from its start.
func (g *group) rewindLocked() {
	g.rewindPartLocked(partDetached)
	g.rewindPartLocked(partDue)
}

func (g *group) rewindPartLocked(part int) {
	g.line[part] = linePart{after: partStart[part]}
	g.rewinds++
}

// dueLocked notes that the line may have a retry with this due time that the loader does not know.
func (g *group) dueLocked(due int64) {
	part := partDue
	if due <= 0 {
		part = partDetached
	}
	p := &g.line[part]
	if due <= p.after.Due {
		g.rewindPartLocked(part)
	}
	p.at = min(p.at, due)
	g.wakeLocked(due)
}

// retryAtLocked is when the next retry is due, Never when none is known.
func (g *group) retryAtLocked() int64 { return min(g.line[partDetached].at, g.line[partDue].at) }

// partLocked is the part that is to be loaded next: one that is due and has room in memory, the one with more room first; -1
// when there is none.
func (g *group) partLocked(now int64) int {
	var waiting [2]int
	waiting[partDetached], waiting[partDue] = g.d.RetriesWaiting()
	part := -1
	for i := range g.line {
		if g.line[i].at <= now && waiting[i] < retryAhead && (part < 0 || waiting[i] < waiting[part]) {
			part = i
		}
	}
	return part
}

// mayLoadLocked tells whether the line may be loaded at all.
func (g *group) mayLoadLocked() bool {
	return g.d.Members() > 0 && g.dropping == 0 && !g.s.draining.Load() && g.s.started.Load()
}

// loadLocked begins to load retries that are due, and has the tick come back for those that will be.
func (g *group) loadLocked() {
	if g.loading || !g.mayLoadLocked() {
		return
	}
	now := g.s.now()
	if g.partLocked(now) >= 0 {
		g.loading = true
		g.s.work.Add(1)
		go g.s.loadRetries(g)
		return
	}
	for i := range g.line {
		if at := g.line[i].at; at > now {
			g.wakeLocked(at)
		}
	}
}

// loadRetries reads the retry line up to what is not due.
func (s *Service) loadRetries(g *group) {
	defer s.work.Done()
	buf := make([]state.Retry, retryBatch)
	items := make([]delivery.Retry, 0, retryBatch)
	var known [retryBatch]bool
	var ended []state.Retry
	var batch delivery.Batch
	for {
		g.mu.Lock()
		if g.d.BeginLoad() {
			g.rewindLocked()
		}
		now := s.now()
		part := g.partLocked(now)
		if part < 0 || !g.mayLoadLocked() {
			g.d.EndLoad() // BeginLoad has just looked
			g.loading = false
			g.pumpLocked()
			g.mu.Unlock()
			return
		}
		p := &g.line[part]
		p.at = delivery.Never
		after, rewinds := p.after, g.rewinds
		g.mu.Unlock()
		n := s.store.Retries(g.name, after, buf)
		g.mu.Lock()
		for i := range buf[:n] {
			known[i] = g.d.Retrying(buf[i].Address) // waits or is posted, or its outcome is on its way
		}
		g.mu.Unlock()
		items, ended = items[:0], ended[:0]
		next := int64(0) // more behind these
		if n < len(buf) {
			next = delivery.Never
		}
		for i, r := range buf[:n] {
			if r.Due > 0 && part == partDetached {
				next = delivery.Never
				break
			}
			if r.Due > now {
				next = r.Due
				break
			}
			if known[i] {
				after = r
				continue
			}
			visible := s.store.TopicVisible(r.Topic) // before looking
			m, err := s.retryHead(&batch, r)
			if err != nil && !errors.Is(err, errNotOwed) && visible <= r.Address {
				next = now + 1 // of a sync topic, and not synced yet: a detach makes retries of what is not visible
				break
			}
			if errors.Is(err, store.ErrUnavailable) {
				next = now + unavailableWait
				break
			}
			after = r
			if err != nil {
				if !errors.Is(err, errNotOwed) {
					s.lost("retry", r.Topic, r.Address, err)
				}
				ended = append(ended, r)
				continue
			}
			items = append(items, delivery.Retry{Retry: r, Message: m})
		}
		g.mu.Lock()
		for _, r := range ended {
			g.d.Taken([]int64{r.Address})
			s.ledger.Retire(r.Topic, g.name, r.Address)
		}
		if g.mayLoadLocked() { // else the line is read again from its start when it may
			g.d.Retry(items)
			if g.rewinds == rewinds { // else something came in before the place that we read
				p.after, p.at = after, min(p.at, next)
				g.olderLocked()
			}
		}
		g.pumpLocked()
		g.mu.Unlock()
	}
}

// olderLocked lets the readers of the group's cursors go on once the line has nothing older than what they will find: what a
// detach has made is loaded, and what it has interrupted in a cursor before.
func (g *group) olderLocked() {
	if d, f := &g.line[partDetached], &g.line[partDue]; d.at == delivery.Never && (f.at > 0 || f.after.Attempt > 0) {
		g.older = false
	}
}

// retryHead makes the head of a retry's message. It returns errNotOwed for one that the group is not owed: a cursor takes a
// message by its queue entry, and what it has interrupted before anybody loaded it is a retry of a message that may be
// restricted to another group. A message type that only has the hash of one that the group is bound to is not told here: the
// binding that it came by may have ended and be forgotten, and a message too many is better than one too few.
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
	if r.Size == 0 { // read through a cursor
		if only, ok := mapping.Target(v.Properties()); ok && string(only) != r.Group {
			return nil, errNotOwed
		}
	}
	m := batch.New(r.Topic, v.QueueID(), int32(len(b)), r.Address, r.Position, v.StoreTime(), v.TagsCode())
	if r.Attempt > 0 {
		m.Failed = r.Due - delivery.Backoff(r.Attempt).Milliseconds()
	}
	return m, nil
}
