package store

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/store/bits"
	"github.com/fusionmq/fusionmq/store/filter"
	"github.com/fusionmq/fusionmq/store/match"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
)

// PullFilter is what a pull group wants of a topic: an expression over the properties of messages, ready to be evaluated, and
// known to the store, which answers it for new messages as they come (see Select). It may be used by any goroutine.
type PullFilter struct {
	program *filter.Program
	id      bits.ID
	mask    bits.Mask   // of id
	topic   *bits.Topic // nil when it has no bits
	seen    atomic.Int64
	now     func() time.Time
}

// FilterMemory is how long a filter is answered for new messages after it was used last.
const FilterMemory = 24 * time.Hour

// answers precomputes what the filters of pull groups say of new messages. One goroutine follows the topics that have filters,
// reading what has become visible in address order, so appends know nothing of it and topics without filters pay nothing; it
// runs from the first filter on. What it has not come to, or has skipped because it was too far behind, is evaluated by
// whoever pulls it.
type answers struct {
	s     *Store
	table *bits.Table
	wake  chan struct{}
	stop  chan struct{}
	done  sync.WaitGroup

	mu struct {
		sync.Mutex
		topics  map[string]*filtered
		started bool
		stopped bool
	}
}

// filtered is a topic with filters.
type filtered struct {
	name    string
	bits    *bits.Topic
	queue   *queue.Topic
	filters map[bits.ID]*PullFilter // guarded by answers.mu
	changed bool                    // filters has changed since covered was made; guarded by answers.mu
	due     atomic.Bool             // there is something to read

	// For the goroutine.
	index *match.Index[*PullFilter]
	from  int64 // where to read on
	idle  func() bool
}

// Limits of a follower: how much of a topic it reads before it looks at the next one, and how far behind, in bytes of log, it
// gives up and goes to the end.
const (
	answerBatch  = 64
	answerBehind = 256 << 20
	answerEvery  = time.Minute // files are written and filters forgotten this often
)

func (a *answers) open(logMin, logEnd int64) (err error) {
	a.wake, a.stop = make(chan struct{}, 1), make(chan struct{})
	a.mu.topics = map[string]*filtered{}
	a.table, err = bits.Open(bits.Config{
		FS: a.s.o.FS, Dir: a.s.path(ownDir, bitsDir), LogMin: logMin, LogEnd: logEnd,
		Failed: func(err error) { a.s.event(levelWarn, "filter bits could not be used", "err", err) },
	})
	return err
}

// PullFilter makes the filter of a pull group on a topic and has it answered for new messages; equal filters of a topic are
// one. Call it with every subscription, and Use when it is pulled by.
func (s *Store) PullFilter(topic string, e *filter.Expr) *PullFilter {
	a := &s.answers
	id := bits.IDOf(e)
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.mu.topics[topic]
	if t != nil && t.filters[id] != nil {
		t.filters[id].Use()
		return t.filters[id]
	}
	f := &PullFilter{program: e.Compile(nil), id: id, mask: id.Mask(), now: s.o.Now}
	f.Use()
	if t == nil {
		q := s.index.Topic(topic, s.topic(topic) != nil)
		if q == nil {
			return f // no such topic, so there is nothing to answer
		}
		t = &filtered{name: q.Name(), bits: a.table.Topic(q.Name()), queue: q, filters: map[bits.ID]*PullFilter{}, index: match.New[*PullFilter](nil), from: -1}
	}
	if a.mu.stopped || len(t.filters) == bits.MaxFilters {
		f.topic = t.bits // what files have still answers
		return f
	}
	f.topic = t.bits
	t.filters[id], t.changed = f, true
	a.mu.topics[t.name] = t
	if !a.mu.started {
		a.mu.started = true
		a.done.Add(1)
		go a.run()
	}
	t.due.Store(true)
	a.signal()
	return f
}

// Use says that somebody pulls by the filter: one that nobody has used for FilterMemory is not answered for new messages any
// more, until PullFilter is asked for it again.
func (f *PullFilter) Use() { f.seen.Store(f.now().UnixMilli()) }

// Stale says that nobody has used the filter for FilterMemory: PullFilter has to be asked for it again, if it is to be answered for new messages.
func (f *PullFilter) Stale() bool { return f.seen.Load() < f.now().Add(-FilterMemory).UnixMilli() }

// Program is the filter in its compiled form.
func (f *PullFilter) Program() *filter.Program { return f.program }

func (a *answers) signal() {
	select {
	case a.wake <- struct{}{}:
	default: // it has been told and has not looked yet
	}
}

func (a *answers) run() {
	defer a.done.Done()
	tick := time.NewTicker(answerEvery)
	defer tick.Stop()
	var w worker
	for {
		select {
		case <-a.stop:
			for _, t := range a.all() {
				if t.idle != nil {
					t.idle()
				}
			}
			return
		case <-tick.C:
			a.forget()
			if err := a.table.Flush(a.s.log.Synced(), false); err != nil {
				a.s.event(levelWarn, "filter bits could not be written", "err", err)
			}
		case <-a.wake:
		}
		for again := true; again && !a.stopping(); {
			again = false
			for _, t := range a.all() {
				if t.due.Load() || a.changed(t) {
					again = a.follow(t, &w) || again
				}
			}
		}
	}
}

func (a *answers) stopping() bool {
	select {
	case <-a.stop:
		return true
	default:
		return false
	}
}

func (a *answers) all() []*filtered {
	a.mu.Lock()
	defer a.mu.Unlock()
	ts := make([]*filtered, 0, len(a.mu.topics))
	for _, t := range a.mu.topics {
		ts = append(ts, t)
	}
	return ts
}

func (a *answers) changed(t *filtered) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return t.changed
}

// forget drops filters that nobody has used for long.
func (a *answers) forget() {
	before := a.s.o.Now().Add(-FilterMemory).UnixMilli()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.mu.topics {
		for id, f := range t.filters {
			if f.seen.Load() < before {
				delete(t.filters, id)
				t.changed = true
			}
		}
	}
}

// adopt takes over the filters of a topic as they are now: messages from here on are answered for these.
func (a *answers) adopt(t *filtered) (any bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.changed {
		t.changed = false
		t.index = match.New[*PullFilter](nil)
		ids := make([]bits.ID, 0, len(t.filters))
		for id, f := range t.filters {
			t.index.Add(f.program.Expr(), f)
			ids = append(ids, id)
		}
		t.bits.Cover(ids)
	}
	return len(t.filters) > 0
}

// worker is the memory of the goroutine.
type worker struct {
	entries [answerBatch]TopicEntry
	matcher match.Matcher
	found   []*PullFilter
}

// follow answers the next messages of a topic and tells whether there may be more.
func (a *answers) follow(t *filtered, w *worker) bool {
	if !a.adopt(t) {
		t.due.Store(false)
		t.bits.Pause()
		t.from = -1
		return false
	}
	end := a.s.TopicVisible(t.name)
	if t.from < 0 || end-t.from > answerBehind {
		// Whatever was there before is for who pulls it.
		t.bits.Pause()
		t.from = end
	}
	n := a.s.ReadTopic(t.name, t.from, w.entries[:])
	for _, e := range w.entries[:n] {
		mask, ok := a.mask(t, e.Entry, w)
		if ok {
			t.bits.Put(e.Address, mask)
		}
		t.from = e.Address + 1
	}
	if n == len(w.entries) {
		return true
	}
	t.due.Store(false)
	t.idle = t.queue.Watch(t.from, func() {
		t.due.Store(true)
		a.signal()
	})
	return false
}

// mask evaluates the filters of a topic for a message, ok false when it cannot be read.
func (a *answers) mask(t *filtered, e queue.Entry, w *worker) (mask bits.Mask, ok bool) {
	b, release, err := a.s.Record(e)
	if err != nil {
		return mask, false
	}
	defer release()
	v, err := record.Parse(b)
	if err != nil {
		return mask, false
	}
	w.found = t.index.Match(w.found[:0], &filter.Message{Properties: v.Properties()}, &w.matcher)
	for _, f := range w.found {
		mask = mask.Or(f.mask)
	}
	clear(w.found)
	return mask, true
}

// halt ends the goroutine.
func (a *answers) halt() {
	a.mu.Lock()
	first := !a.mu.stopped
	a.mu.stopped = true
	a.mu.Unlock()
	if first && a.stop != nil {
		close(a.stop)
	}
	a.done.Wait()
}

// save writes what is in memory; the log below end is on the disk.
func (a *answers) save(end int64) {
	if err := a.table.Flush(end, true); err != nil {
		a.s.event(levelWarn, "filter bits could not be written", "err", err)
	}
}

// Selected counts what a Select did.
type Selected struct {
	Entries int   // of dst that were set
	Looked  int   // entries that were looked at
	Read    int   // of them, records whose properties were read; the others were told by their bits
	Next    int64 // the offset behind the last entry that was looked at
}

// Select fills dst with entries of a queue from an offset on that a filter selects, in order. It looks at no more than look
// entries, so that a filter that selects little costs a call no more than that: the caller goes on at Next. Entries whose
// record cannot be read are among those that are given, so that the caller sees the error. A damaged index gives an error, and what was found before it.
func (s *Store) Select(q *queue.Queue, offset int64, f *PullFilter, dst []TopicEntry, look int) (r Selected, err error) {
	r.Next = offset
	var cursor bits.Cursor
	if f.topic != nil {
		cursor = f.topic.Cursor(f.id, f.mask)
	}
	var es [64]queue.Entry
	for r.Entries < len(dst) && r.Looked < look {
		n, err := q.Read(r.Next, es[:min(len(es), look-r.Looked)])
		for _, e := range es[:n] {
			if r.Entries == len(dst) {
				break
			}
			r.Looked++
			r.Next++
			known := bits.Unknown
			if f.topic != nil {
				known = cursor.Known(e.Address)
			}
			if known == bits.No {
				continue
			}
			r.Read++
			if s.selects(f, e) {
				dst[r.Entries] = TopicEntry{Entry: e, Queue: q.ID(), QueueOffset: r.Next - 1}
				r.Entries++
			}
		}
		if err != nil || n == 0 {
			return r, err
		}
	}
	return r, nil
}

// selects evaluates the filter for an entry. One that cannot be read is for the caller to find and report, not for a filter to
// hide; one without a record is stepped over by every reader.
func (s *Store) selects(f *PullFilter, e queue.Entry) bool {
	if e.Size == 0 {
		return false
	}
	b, release, err := s.Record(e)
	if err != nil {
		return true
	}
	defer release()
	v, err := record.Parse(b)
	return err != nil || f.program.Match(&filter.Message{Properties: v.Properties()})
}
