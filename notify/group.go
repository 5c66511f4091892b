package notify

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/notify/delivery"
	"github.com/fusionmq/fusionmq/notify/exchange"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

// group is one subscriber group with its lock, and what the service does for it in the background.
type group struct {
	s    *Service
	name string

	busy atomic.Bool // something is posted or stuck: the tick looks at it

	// Only the store's dispatcher uses these: the messages of the batch that it is at.
	inbox   []owedTo
	touched bool

	mu      sync.Mutex
	d       *delivery.Group
	streams map[string]*stream
	parked  []parked // bindings that are not persistent, while no member is connected
	gone    bool     // no longer in the service's table

	after   state.Retry // where loading of the retry line goes on
	rewinds int         // how often after went back to the start
	loading bool
	// dropping is how many detaches are about to take messages off the retry line with volatile bindings: it is not to be
	// loaded before they have.
	dropping int
	// older says that retries which were in flight at a detach may wait in the line: they are older than what the cursors
	// will find, so the readers wait until they are loaded.
	older   bool
	retryAt int64 // when the next retry is due, milliseconds; Never when none is known
	counted int   // of Service.waiting
	leftAt  int64 // when the last member left
}

type owedTo struct {
	msg   *delivery.Message
	share int32
}

type parked struct {
	topic   string
	binding state.Binding
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
}

func newGroup(s *Service, name string) *group {
	return &group{
		s: s, name: name, retryAt: delivery.Never,
		d: delivery.NewGroup(name, s.o.Delivery, s.ledger), streams: make(map[string]*stream),
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
		if s.draining.Load() || !st.started || st.reading || st.changing || g.older {
			continue
		}
		if st.atHead && !g.canAttachLocked(st) {
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
	if !g.busy.Load() && g.d.Deadline() != delivery.Never {
		g.busy.Store(true)
		poke(s.tickNow)
	}
	if g.retryAt <= s.now() {
		g.loadLocked()
	}
}

// online brings a group up whose first member has come: its bindings and cursors are as the store says.
func (s *Service) online(g *group) {
	for _, topic := range s.exchange.Topics(g.name) {
		s.refresh(g, topic)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.older = true
	g.rewindLocked()
	g.pumpLocked()
}

// rewindLocked makes the loader look at the retry line from its start.
func (g *group) rewindLocked() {
	g.after, g.retryAt = state.Retry{}, 0
	g.rewinds++
}

// refresh brings a stream's bindings up to date and places its cursor when that has not been done.
func (s *Service) refresh(g *group, topic string) {
	pos, ok := s.store.Cursor(topic, g.name)
	g.mu.Lock()
	defer g.mu.Unlock()
	st := g.streamLocked(topic)
	h := s.exchange.History(topic, g.name)
	st.d.Bindings(h.Live(nil))
	st.volatile = len(h.Volatile()) > 0
	if !st.started && ok && !pos.Attached {
		st.d.Start(pos.Cursor, pos.SkipFrom, pos.SkipTo)
		st.started = true
	}
}

// leaveLocked is called when a member has gone.
func (g *group) leaveLocked() {
	if g.d.Members() > 0 {
		return
	}
	now := g.s.now()
	g.leftAt = now
	g.d.ForgetRetries()
	g.retryAt = delivery.Never
	for _, st := range g.streams {
		st.left = st.d.Abandon(now)
		st.atHead = false
	}
}

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

// unpark registers again what was parked while the group had no member: from now on, for what came in between is gone.
func (s *Service) unpark(g *group) {
	defer s.work.Done()
	g.mu.Lock()
	ps := g.parked
	g.parked = nil
	g.mu.Unlock()
	if len(ps) == 0 {
		return
	}
	ops := make([]state.Op, len(ps))
	for i, p := range ps {
		ops[i] = state.Op{Kind: state.OpBind, Topic: p.topic, Group: g.name, Binding: p.binding}
	}
	if _, err := s.operate(ops...); err != nil {
		s.log.warn("volatile bindings not restored", "group", g.name, "error", err)
		g.mu.Lock()
		g.parked = append(g.parked, ps...)
		g.mu.Unlock()
	}
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

// canAttachLocked tells whether a group that is at the head of a topic may be attached. Retries that are due and not
// loaded count as waiting.
func (g *group) canAttachLocked(st *stream) bool {
	return st.d.CanAttach() && !g.loading && g.retryAt > g.s.now() && !g.s.draining.Load()
}

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
		st.d.Read(ms, next, s.now())
		if head && g.canAttachLocked(st) {
			st.d.BeginAttach()
			st.changing = true
		} else if head {
			st.atHead = true
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

// lost counts and names a message that cannot be delivered because it is not there any more or cannot be read.
func (s *Service) lost(where, topic string, address int64, err error) {
	s.counters.lost.Add(1)
	s.log.warn("message cannot be read, it is not delivered", "by", where, "topic", topic, "address", address, "error", err)
}

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
			poke(s.tickNow)
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

// load returns the record of a delivery.
func (s *Service) load(m *delivery.Message) (record.View, func(), error) {
	b, release, err := s.store.Record(queue.Entry{Address: m.Address, Position: m.Position, Size: m.Size, TagsCode: m.TagsCode, Time: m.Time})
	if err != nil {
		return record.View{}, nil, err
	}
	v, err := record.Parse(b)
	if err != nil {
		release()
		return record.View{}, nil, err
	}
	return v, release, nil
}
