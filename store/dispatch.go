package store

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/store/lookup"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

// head is what the dispatcher needs of a record without reading it.
type head struct {
	lane   *lane
	entry  queue.Entry
	offset int64
	held   bool // not visible before it is synced
}

// maxHeads bounds what the dispatcher may be behind in memory; further behind it reads the log.
const maxHeads = 8 << 10

// dispatcher feeds the state machine in log order and tells the Observer.
//
// The writer pushes heads of operate-queue records and of messages of topics that a group is attached to, and nothing for
// other topics, which so pay for push groups nothing but one load. An attach takes effect at its record's position, yet
// the writer may be past it before the dispatcher reads it and marks the topic. So when a record marks a topic, the
// dispatcher forgets the heads and reads the log from there up to a position that it takes after marking, and after a batch
// that the writer was about to push: whatever the writer puts behind that position, it puts with the mark seen. A version that pushed a head for every record needed no
// such care and cost every pull-only append 30 ns.
type dispatcher struct {
	s       *Store
	scratch []head // for the writer, as is keys
	keys    []lookup.Entry
	pushing sync.RWMutex // held, shared, by the writer from looking at the marks of a batch's topics to pushing; taken before mu
	looked  func()       // nil, but in tests: called by the writer between the two; guarded by pushing
	wake    chan struct{}
	stop    chan struct{}
	done    sync.WaitGroup

	pos       atomic.Int64 // everything below it has been dispatched
	syncedPos atomic.Int64 // what is below it has been made visible by a sync
	holding   atomic.Bool  // the dispatcher wants to hear of syncs

	mu struct {
		sync.Mutex
		heads   []head // ascending; with lost set they end before end
		spare   []head
		working bool  // what was in heads is being dispatched
		lost    bool  // the heads had no room for some that came later
		end     int64 // everything below it has been pushed or needs no dispatch
		waiters []applyWaiter
	}

	// For the dispatcher's goroutine.
	owed        []state.Owed   // to be told
	held        []state.Owed   // not visible yet, by address
	heldOf      map[string]int // how many of held are of a topic
	marked      bool           // a record has marked a topic
	replaying   bool           // during Open: nobody is told
	failed      error          // of the last operations
	waiting     bool           // a read has failed for a reason that may pass
	behind      bool           // something was left out when the store was closed
	checkpoint  int64          // position of the newest one asked for
	checkpoints chan checkpoint
}

type applyWaiter struct {
	at   int64
	done chan struct{}
}

func (d *dispatcher) init(s *Store) {
	d.s = s
	d.heldOf = map[string]int{}
	d.wake = make(chan struct{}, 1)
	d.stop = make(chan struct{})
	d.checkpoints = make(chan checkpoint, 1)
}

func (d *dispatcher) position() int64 { return d.pos.Load() }

// covered is what the views cover: position, or the end of the log while what came behind it needs no dispatch. Nobody is woken for
// such records, so position stays behind them.
func (d *dispatcher) covered() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.mu.heads) > 0 || d.mu.lost || d.mu.working {
		return d.pos.Load()
	}
	return max(d.pos.Load(), d.mu.end)
}

func (d *dispatcher) signal() {
	select {
	case d.wake <- struct{}{}:
	default: // it has been told and has not looked yet
	}
}

// push is the writer's hand-over: heads in log order, and where the log ends now.
func (d *dispatcher) push(heads []head, end int64) {
	d.mu.Lock()
	d.mu.end = end
	if len(heads) > 0 && !d.mu.lost {
		if len(d.mu.heads)+len(heads) > maxHeads {
			d.mu.lost = true
		} else {
			d.mu.heads = append(d.mu.heads, heads...)
		}
	}
	// Nobody is woken for records that need no dispatch, but for a checkpoint now and then and for who waits.
	wake := len(heads) > 0 || len(d.mu.waiters) > 0 || end-d.pos.Load() > d.s.o.CheckpointBytes/4
	d.mu.Unlock()
	if wake {
		d.signal()
	}
}

// synced tells that everything below end is durable and visible.
func (d *dispatcher) synced(end int64) {
	d.syncedPos.Store(end)
	if d.holding.Load() {
		d.signal()
	}
}

func (d *dispatcher) run() {
	defer d.done.Done()
	for {
		select {
		case <-d.stop:
			d.drain()
			return
		case <-d.wake:
			d.drain()
		}
	}
}

// drain dispatches everything that has been pushed.
func (d *dispatcher) drain() {
	for {
		d.mu.Lock()
		heads, lost, end := d.mu.heads, d.mu.lost, d.mu.end
		d.mu.heads, d.mu.spare, d.mu.lost, d.mu.working = d.mu.spare[:0], nil, false, true
		d.mu.Unlock()
		from := d.pos.Load()
		for i := range heads {
			h := &heads[i]
			d.record(h)
			from = h.entry.Position + int64(h.entry.Size)
			if d.marked {
				break
			}
		}
		if lost {
			d.scan(from, end)
		}
		for d.marked {
			// See the type's comment. What is in heads now is part of what is read.
			if lost {
				from = end // the scan has covered everything below it with the marks it made
			}
			d.marked, lost = false, true
			d.pushing.Lock()   // who looked at the mark before it was set has pushed
			d.pushing.Unlock() //nolint:staticcheck // empty on purpose: it waits
			d.mu.Lock()
			d.mu.heads, d.mu.lost, end = d.mu.heads[:0], false, d.mu.end
			d.mu.Unlock()
			d.scan(from, end)
		}
		d.tell()
		d.releaseHeld()
		clear(heads)
		d.mu.Lock()
		d.mu.spare, d.mu.working = heads[:0], false
		idle := d.mu.end == end
		d.mu.Unlock()
		d.advance(end)
		if idle {
			return
		}
	}
}

// advance publishes the position and wakes who waits for it.
func (d *dispatcher) advance(end int64) {
	d.pos.Store(end)
	d.mu.Lock()
	ws := d.mu.waiters[:0]
	for _, w := range d.mu.waiters {
		if w.at < end {
			close(w.done)
		} else {
			ws = append(ws, w)
		}
	}
	clear(d.mu.waiters[len(ws):])
	d.mu.waiters = ws
	d.mu.Unlock()
	if !d.behind && end-d.checkpoint >= d.s.o.CheckpointBytes/2 && len(d.checkpoints) == 0 {
		d.checkpoint = end
		d.checkpoints <- d.s.snapshot(end, false) // there is room: nobody else sends
	}
}

// scan reads [from, end) of the log and dispatches what is for the state machine.
func (d *dispatcher) scan(from, end int64) {
	if from >= end {
		return
	}
	err := d.s.log.Scan(from, end, func(v record.View) error {
		d.view(v)
		from = v.PhysicalOffset() + int64(v.Size())
		return nil
	})
	if d.again(err) {
		d.scan(from, end)
		return
	}
	if err != nil {
		d.s.event(levelError, "log could not be read for dispatch", "from", from, "end", end, "err", err)
	}
}

// unavailableWait is how long the dispatcher waits before it reads again what could not be read for a reason that may pass.
const unavailableWait = 100 * time.Millisecond

// again says whether to try a read again that failed, after a while. What was not dispatched would be owed to nobody until the next
// start, so the dispatcher waits; when the store is closed meanwhile, no checkpoint speaks for what it has left out.
func (d *dispatcher) again(err error) bool {
	if !errors.Is(err, ErrUnavailable) {
		return false
	}
	if !d.waiting {
		d.s.event(levelWarn, "log cannot be read for dispatch at the moment, which is tried again", "err", err)
	}
	d.waiting = true
	t := time.NewTimer(unavailableWait)
	defer t.Stop()
	select {
	case <-d.stop:
		d.behind = true
		return false
	case <-t.C:
		return true
	}
}

// read is Log.Read that waits for what cannot be read at the moment.
func (d *dispatcher) read(position int64, size int32) (b []byte, release func(), err error) {
	for {
		if b, release, err = d.s.log.Read(position, int(size)); err == nil {
			d.waiting = false
		}
		if err == nil || !d.again(err) {
			return b, release, err
		}
	}
}

// view dispatches a record that was read from the log.
func (d *dispatcher) view(v record.View) {
	if tx := v.TxType(); tx == record.FlagTxPrepared || tx == record.FlagTxRollback {
		return
	}
	if string(v.Topic()) == OQTopic {
		d.operations(v)
		return
	}
	if isWaitTopic(string(v.Topic())) {
		d.waits(v)
		return
	}
	s := d.s
	s.topics.mu.RLock()
	t, owed := s.topics.byName[string(v.Topic())], s.topics.owed[string(v.Topic())]
	s.topics.mu.RUnlock()
	if !owed {
		return
	}
	e := queue.Entry{Address: v.PhysicalOffset(), Position: v.PhysicalOffset(), Size: v.Size(), Time: v.StoreTime(), TagsCode: v.TagsCode()}
	if t == nil { // owed, but deleted from the table by hand
		d.message(string(v.Topic()), v.QueueID(), e, v.Properties(), false)
		return
	}
	d.message(t.name, v.QueueID(), e, v.Properties(), t.sync.Load())
}

// record dispatches a head.
func (d *dispatcher) record(h *head) {
	t := h.lane.topic
	oq := t == d.s.oq
	if !oq && !t.interested.Load() {
		return // the last binding has gone meanwhile
	}
	b, release, err := d.read(h.entry.Position, h.entry.Size)
	if err != nil {
		d.s.event(levelError, "log could not be read for dispatch", "position", h.entry.Position, "err", err)
		return
	}
	defer release()
	v, err := record.Parse(b)
	if err != nil {
		d.s.event(levelError, "log could not be read for dispatch", "position", h.entry.Position, "err", err)
		return
	}
	if oq {
		d.operations(v)
		return
	}
	if t == d.s.waits.half || t == d.s.waits.schedule || t == d.s.waits.timer {
		d.waits(v)
		return
	}
	d.message(t.name, h.lane.queue.ID(), h.entry, v.Properties(), h.held)
}

// tell hands what is owed to the Observer.
func (d *dispatcher) tell() {
	if len(d.owed) == 0 {
		return
	}
	if o := d.s.o.Observer; o != nil {
		o.Owed(d.owed)
	}
	d.owed = nil // the Observer may have kept it
}

// owe tells now or, when the message is not visible yet, after the sync that makes it so.
func (d *dispatcher) owe(o state.Owed, held bool) {
	// Behind a message of its topic that is held another one must wait too, whatever its own durability: they are told in
	// address order.
	if held && o.Address >= d.syncedPos.Load() || d.heldOf[o.Topic] > 0 {
		d.held = append(d.held, o)
		d.heldOf[o.Topic]++
		d.holding.Store(true)
		return
	}
	d.owed = append(d.owed, o)
}

func (d *dispatcher) releaseHeld() {
	if len(d.held) == 0 {
		return
	}
	end := d.syncedPos.Load()
	n := 0
	for n < len(d.held) && d.held[n].Address < end {
		n++
	}
	for i := range d.held[:n] {
		t := d.held[i].Topic
		if d.heldOf[t]--; d.heldOf[t] == 0 {
			delete(d.heldOf, t)
		}
	}
	d.owed = append(d.owed, d.held[:n]...)
	rest := copy(d.held, d.held[n:])
	clear(d.held[rest:])
	d.held = d.held[:rest]
	d.tell()
	d.holding.Store(rest > 0)
	if rest > 0 && d.syncedPos.Load() > end {
		d.signal() // it came between looking and asking to be told
	}
}

// WaitApplied returns when every record below or at address at has been dispatched.
func (s *Store) WaitApplied(ctx context.Context, at int64) error {
	d := &s.dispatch
	d.mu.Lock()
	if d.pos.Load() > at {
		d.mu.Unlock()
		return nil
	}
	w := applyWaiter{at: at, done: make(chan struct{})}
	d.mu.waiters = append(d.mu.waiters, w)
	d.mu.Unlock()
	d.signal()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		d.mu.Lock()
		defer d.mu.Unlock()
		for i := range d.mu.waiters {
			if d.mu.waiters[i].done == w.done {
				d.mu.waiters = append(d.mu.waiters[:i], d.mu.waiters[i+1:]...)
				break
			}
		}
		return ctx.Err()
	}
}
