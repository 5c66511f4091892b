package queue

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// Config of an index. Zero fields have the defaults of their comments.
type Config struct {
	FS     vfs.FS
	Dir    string // of the index files; made when missing
	LogMin int64  // first position of the log
	LogEnd int64  // first position behind its last record. Index files that reach further are removed

	// SpanBytes and SpanEntries end a span of the log, whichever is reached first. Default 256 MiB and 262,144, at most
	// 1<<24 entries. May change between starts.
	SpanBytes   int64
	SpanEntries int

	// Failed is told about an index file that could not be read or written. Readers get the error too; writing is tried
	// again at the next Synced. It is called from the goroutine that noticed. Default: nobody is told.
	Failed func(error)
}

// Limits of a span when Config does not say.
const (
	DefaultSpanBytes   = 256 << 20
	DefaultSpanEntries = 256 << 10
)

// Index is the queue index of one store directory.
//
// Put and Seal are for the one writer: their calls must not overlap. Synced and DropBelow may run beside them, each one
// call at a time. Everything else may be called from any goroutine at any time.
//
// Locks, in this order: settling, sealing, Topic.mu, then one of Index.mu, holders, due.
type Index struct {
	cfg Config

	topics struct {
		sync.RWMutex
		byName map[string]*Topic
	}
	spans  atomic.Pointer[[]*span] // by start, each begins where the one before ends; replaced under mu
	sealed atomic.Int64            // end of the last settled span, or the start of the first generation
	resume int64

	// For the writer only.
	cur   *generation
	slabs slabs

	holding atomic.Int64 // topics with held entries
	mu      struct {
		sync.Mutex
		gens               []*generation // oldest first; the last one is cur
		synced             int64
		sealErr, settleErr error // of the last attempts
	}
	holders struct {
		sync.Mutex
		topics []*Topic // with held entries, but for those that Synced is looking at
	}
	due struct {
		sync.Mutex
		waiters []*waiter
	}

	settling sync.Mutex // held while a file is made durable
	sealing  sync.Mutex // held while generations become spans
	sorted   []*Topic   // by name, guarded by sealing; as long as topics.byName
	tables   tables     // guarded by sealing

	seal, settle chan struct{} // wake the two background goroutines
	stop         chan struct{}
	done         sync.WaitGroup
}

// Open loads the index files that speak for a prefix of the log from LogMin on and removes the others. The caller then
// puts again every entry from Resume on.
func Open(c Config) (*Index, error) {
	if c.SpanBytes == 0 {
		c.SpanBytes = DefaultSpanBytes
	}
	if c.SpanEntries == 0 {
		c.SpanEntries = DefaultSpanEntries
	}
	if c.SpanBytes < 1 || c.SpanEntries < 1 || c.SpanEntries > maxSpanEntries || c.LogMin < 0 || c.LogEnd < c.LogMin {
		return nil, fmt.Errorf("queue: SpanBytes %d, SpanEntries %d, LogMin %d, LogEnd %d: want at least 1 byte, 1 to %d entries, 0 <= LogMin <= LogEnd",
			c.SpanBytes, c.SpanEntries, c.LogMin, c.LogEnd, maxSpanEntries)
	}
	if c.Failed == nil {
		c.Failed = func(error) {}
	}
	x := &Index{cfg: c, seal: make(chan struct{}, 1), settle: make(chan struct{}, 1), stop: make(chan struct{})}
	x.topics.byName = map[string]*Topic{}
	if err := x.load(); err != nil {
		for _, s := range *x.spans.Load() {
			s.release()
		}
		return nil, err
	}
	x.done.Add(2)
	go x.background(x.seal, x.sealOldest)
	go x.background(x.settle, x.settleOldest)
	return x, nil
}

// Resume is the log position from which the caller has to put entries after Open.
func (x *Index) Resume() int64 { return x.resume }

// Sealed is the log position below which entries are in durable files: where Resume would be after a crash.
func (x *Index) Sealed() int64 { return x.sealed.Load() }

// Close stops the background work and closes the files. Nobody may use the index any more, nor call a stop function.
func (x *Index) Close() error {
	close(x.stop)
	x.done.Wait()
	for _, s := range *x.spans.Load() {
		s.release()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return errors.Join(x.mu.sealErr, x.mu.settleErr)
}

// Topic returns the handle of a topic, or nil when the index has none of that name and create is false.
func (x *Index) Topic(name string, create bool) *Topic {
	x.topics.RLock()
	t := x.topics.byName[name]
	x.topics.RUnlock()
	if t != nil || !create {
		return t
	}
	x.topics.Lock()
	defer x.topics.Unlock()
	if t = x.topics.byName[name]; t == nil {
		t = &Topic{index: x, name: string([]byte(name))} // the caller's may be part of something large
		t.lastPut = -1
		t.queues.Store(new([]*Queue))
		x.topics.byName[t.name] = t
	}
	return t
}

// Queue is Topic followed by [Topic.Queue].
func (x *Index) Queue(topic string, id int32, create bool) *Queue {
	t := x.Topic(topic, create && id >= 0 && id <= MaxQueueID)
	if t == nil {
		return nil
	}
	return t.Queue(id, create)
}

// Topics calls fn for every topic, in no order.
func (x *Index) Topics(fn func(*Topic)) {
	for _, t := range x.allTopics() {
		fn(t)
	}
}

func (x *Index) allTopics() []*Topic {
	x.topics.RLock()
	defer x.topics.RUnlock()
	ts := make([]*Topic, 0, len(x.topics.byName))
	for _, t := range x.topics.byName {
		ts = append(ts, t)
	}
	return ts
}

func (x *Index) topicCount() int {
	x.topics.RLock()
	defer x.topics.RUnlock()
	return len(x.topics.byName)
}

// generationFor returns the generation that takes an entry of this address; the writer calls it with Topic.mu held. own says that a
// record begins at the address: a span must begin with one, since whoever fills it again reads the log from there.
func (x *Index) generationFor(address int64, own bool) *generation {
	g := x.cur
	if g.count < x.cfg.SpanEntries && address-g.start < x.cfg.SpanBytes || g.count == 0 || !own {
		return g
	}
	return x.finish(address)
}

// finish ends the current generation at a log position and begins the next one there.
func (x *Index) finish(at int64) *generation {
	g := &generation{start: at}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cur.end = at
	x.mu.gens = append(x.mu.gens, g)
	x.cur = g
	signal(x.seal)
	return g
}

func (x *Index) hold(t *Topic) {
	x.holders.Lock()
	defer x.holders.Unlock()
	x.holders.topics = append(x.holders.topics, t)
}

func (x *Index) addDue(ws []*waiter) {
	x.due.Lock()
	defer x.due.Unlock()
	x.due.waiters = append(x.due.waiters, ws...)
}

// Wake calls the waiters of what has become visible. The writer calls it after each batch of Puts.
func (x *Index) Wake() {
	x.due.Lock()
	ws := x.due.waiters
	x.due.waiters = nil
	x.due.Unlock()
	for _, w := range ws {
		w.fire()
	}
}

// Synced says that the log below a position is on the disk and that all its entries have been put. Held entries below it
// become visible, their waiters are called, and files of spans below it can be made durable.
func (x *Index) Synced(position int64) {
	x.holders.Lock()
	ts := x.holders.topics
	x.holders.topics = nil
	x.holders.Unlock()
	for _, t := range ts {
		t.release(position)
	}
	if len(ts) > 0 {
		x.Wake()
	}

	x.mu.Lock()
	defer x.mu.Unlock()
	if position > x.mu.synced {
		x.mu.synced = position
	}
	if len(x.mu.gens) > 1 {
		signal(x.seal)
	}
	if spans := *x.spans.Load(); len(spans) > 0 && !spans[len(spans)-1].settled.Load() {
		signal(x.settle)
	}
}

// release makes the held entries below address visible and their waiters due.
func (t *Topic) release(address int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	limit := t.limit.Load()
	left := t.held[:0]
	for _, q := range t.held {
		last, held := q.release(address)
		limit = max(limit, last+1)
		if held {
			left = append(left, q)
		}
		if q.watched {
			q.wakeLocked()
		}
	}
	clear(t.held[len(left):])
	if t.held = left; len(left) == 0 {
		limit = t.lastPut + 1 // with those that were visible in other queues all the time
		t.index.holding.Add(-1)
	} else {
		t.index.hold(t)
	}
	t.limit.Store(limit)
	if t.watched {
		t.wakeLocked()
	}
}

// damaged reports an error of reading a span. When the file is to blame it is removed, so that the next start builds the
// span again.
func (x *Index) damaged(s *span, err error) {
	var c *CorruptError
	if errors.As(err, &c) && s.removed.CompareAndSwap(false, true) {
		if e := x.cfg.FS.Remove(s.path()); e == nil {
			err = errors.Join(err, x.cfg.FS.SyncDir(x.cfg.Dir))
		}
	}
	x.cfg.Failed(err)
}
