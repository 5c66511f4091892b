package notify

import (
	"sync"

	"github.com/fusionmq/fusionmq/notify/delivery"
)

// group is one subscriber group with its lock, and what the service does for it in the background.
type group struct {
	s    *Service
	name string

	// Only the store's dispatcher uses these: the messages of the batch that it is at.
	inbox   []owedTo
	touched bool

	mu      sync.Mutex
	d       *delivery.Group
	streams map[string]*stream
	parked  []parked // bindings that are not persistent, while no member is connected; appended to at the end only
	gone    bool     // no longer in the service's table
	naming  naming

	unparking bool // the first of parked are being registered

	line    [2]linePart // how far the retry line is loaded
	rewinds int         // how often a part of it went back to its start
	loading bool
	// dropping is how many detaches are about to take messages off the retry line with volatile bindings: it is not to be
	// loaded before they have.
	dropping int
	// older says that retries which were in flight at a detach may wait in the line: they are older than what the cursors
	// will find, so the readers wait until they are loaded.
	older   bool
	wakeAt  int64 // when the tick looks at the group at the latest, milliseconds; Never while nothing is due. Only wakeLocked and tick set it
	ticking bool  // the tick is looking: it need not be woken
	counted int   // of Service.waiting
	leftAt  int64 // when the last member left
}

type owedTo struct {
	msg   *delivery.Message
	share int32
}

// stream is the background work of a group on one topic. Guarded by the group's lock.
type stream struct {
	d        *delivery.Stream
	reading  bool // a reader runs
	changing bool // an attach or a detach is being written
	started  bool // the cursor is placed
	atHead   bool // the reader found nothing more and could not attach yet
	volatile bool // has bindings that are not persistent
	left     int  // messages that the cursor had found when the last member went

	// After the store has refused an attach: how often it has in a row, when the next one may be tried and, at the head, when
	// the reader looks again without being attached; milliseconds, Never when it need not.
	refusals int
	attachAt int64
	lookAt   int64
}

func newGroup(s *Service, name string) *group {
	return &group{
		s: s, name: name, wakeAt: delivery.Never,
		line: [2]linePart{{at: delivery.Never}, {at: delivery.Never}},
		d:    delivery.NewGroup(name, s.o.Delivery, s.ledger), streams: make(map[string]*stream),
	}
}

func (g *group) streamLocked(topic string) *stream {
	st := g.streams[topic]
	if st == nil {
		st = &stream{d: g.d.Stream(topic)}
		g.streams[topic] = st
	}
	return st
}

// pumpLocked posts what can be posted, then starts what background work the group's new state asks for. Every
// function that changes a group ends with it.
func (g *group) pumpLocked() {
	s := g.s
	if s.draining.Load() {
		g.d.Settle(s.now())
	} else {
		g.d.Pump(s.now())
	}
	owed := 0
	for _, st := range g.streams {
		owed += st.d.Owed()
		if g.d.Members() == 0 {
			if m := st.d.Mode(); !st.changing && (st.volatile || m == delivery.Attached || m == delivery.Joining) {
				g.detachLocked(st)
			}
			continue
		}
		if !st.changing && st.d.Overflows() { // while the attach was being written, else the observer sees it
			s.counters.overflows.Add(1)
			g.detachLocked(st)
		}
		if s.draining.Load() || !st.started || st.reading || st.changing || g.older {
			continue
		}
		if st.atHead && !g.canAttachLocked(st) && st.lookAt > s.now() {
			g.wakeLocked(st.lookAt)
			continue
		}
		if st.d.WantsMore() {
			st.reading, st.atHead = true, false
			s.work.Add(1)
			go s.read(g, st)
		}
	}
	s.waiting.Add(int64(owed - g.counted))
	g.counted = owed
	g.wakeLocked(g.d.Deadline())
	g.loadLocked()
}

// wakeLocked has the tick look at the group at a time, if it does not earlier anyway.
func (g *group) wakeLocked(at int64) {
	if at < g.wakeAt {
		g.wakeAt = at
		if !g.ticking {
			poke(g.s.tickNow)
		}
	}
}

// online brings a group up whose first member has come: its bindings and cursors are as the store says.
func (s *Service) online(g *group) {
	topics := s.exchange.Topics(g.name)
	if len(topics) > 0 {
		g.keepName()
	}
	for _, topic := range topics {
		s.refresh(g, topic)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.older = true
	g.rewindLocked()
	g.pumpLocked()
}

// rebound is called when a binding of a group has changed. A group with a binding that is not persistent is made when it is not
// there: its last member may have gone before the binding held, and then the binding has to end.
func (s *Service) rebound(name, topic string, create bool) {
	for {
		g := s.group(name, create)
		if g == nil {
			return // online looks when a member comes
		}
		if s.refresh(g, topic) {
			g.mu.Lock()
			g.pumpLocked()
			g.mu.Unlock()
			return
		}
	}
}

// refresh brings a stream's bindings up to date and places its cursor when that has not been done. It reports false for a group
// that is no longer in the table: another one may have its name by now.
func (s *Service) refresh(g *group, topic string) bool {
	pos, ok := s.store.Cursor(topic, g.name)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gone {
		return false
	}
	st := g.streamLocked(topic)
	h := s.exchange.History(topic, g.name)
	st.d.Bindings(h.Live(nil))
	st.volatile = len(h.Volatile()) > 0
	if !st.started && ok && !pos.Attached {
		st.d.Start(pos.Cursor, pos.SkipFrom, pos.SkipTo)
		st.started = true
	}
	return true
}

// leaveLocked is called when a member has gone.
func (g *group) leaveLocked() {
	if g.d.Members() > 0 {
		return
	}
	now := g.s.now()
	g.leftAt = now
	g.d.ForgetRetries()
	g.line[partDetached].at, g.line[partDue].at = delivery.Never, delivery.Never
	for _, st := range g.streams {
		st.left = st.d.Abandon(now)
		st.atHead = false
	}
}
