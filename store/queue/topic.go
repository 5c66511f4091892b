package queue

import (
	"sync"
	"sync/atomic"
)

// MaxQueueID is the largest queue id of a topic.
const MaxQueueID = 1<<16 - 1

// Topic is the handle of one topic. It stays valid while the topic exists.
type Topic struct {
	index *Index

	// limit is one more than the address up to which Read sees the topic: every entry below it is visible, in all queues.
	// It grows only after the entry was put, so a reader that loads it first misses nothing that it passes.
	limit atomic.Int64

	// mu guards what follows up to queues, and every change to the topic's queues; readers do not take it. It is taken
	// before Index.mu, holders and due, and nothing is called out with it held.
	mu      sync.Mutex
	lastPut int64    // address of the newest entry, held ones included
	held    []*Queue // queues with entries that are not visible yet
	watched bool     // waiters is not empty
	waiters waiters

	number atomic.Int32             // of the topic in the span that was last looked at
	queues atomic.Pointer[[]*Queue] // by id, nil where a queue never was made; replaced under mu
	name   string
}

// Name is the topic's name.
func (t *Topic) Name() string { return t.name }

// Queue returns the handle of a queue, nil when id is outside [0, MaxQueueID], or when it was never made and create is false.
func (t *Topic) Queue(id int32, create bool) *Queue {
	if id < 0 || id > MaxQueueID {
		return nil
	}
	if qs := *t.queues.Load(); int(id) < len(qs) && qs[id] != nil {
		return qs[id]
	}
	if !create {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	old := *t.queues.Load()
	if int(id) < len(old) && old[id] != nil {
		return old[id]
	}
	qs := make([]*Queue, max(len(old), int(id)+1))
	copy(qs, old)
	q := &Queue{topic: t, id: id}
	qs[id] = q
	t.queues.Store(&qs)
	return q
}

// Queues calls fn for every queue that was made, in order of id.
func (t *Topic) Queues(fn func(*Queue)) {
	for _, q := range *t.queues.Load() {
		if q != nil {
			fn(q)
		}
	}
}

// Limit is one more than the address up to which Read sees the topic.
func (t *Topic) Limit() int64 { return t.limit.Load() }

// Read fills dst with visible entries of all queues whose address is at least from, in address order, and returns how
// many it set; 0 means none yet. Entries that come later have greater addresses than what Read has returned, also while
// other queues still hold entries back.
func (t *Topic) Read(from int64, dst []TopicEntry) (int, error) {
	limit := t.limit.Load() // before the queues: see there
	if from >= limit || len(dst) == 0 {
		return 0, nil
	}
	m := merges.Get().(*merge)
	defer merges.Put(m)
	defer m.reset()
	for _, q := range *t.queues.Load() {
		if q == nil || q.lastAddress() < from {
			continue
		}
		offset, err := q.searchAddress(from)
		if err != nil {
			return 0, err
		}
		if err := m.add(q, offset); err != nil {
			return 0, err
		}
	}
	for n := range dst {
		if len(m.heads) == 0 || m.heads[0].buf[m.heads[0].at].Address >= limit {
			return n, nil
		}
		h := m.heads[0]
		dst[n] = TopicEntry{Entry: h.buf[h.at], Queue: h.q.id, QueueOffset: h.next - int64(h.n-h.at)}
		if err := m.step(); err != nil {
			return n + 1, err
		}
	}
	return len(dst), nil
}

// merge is a heap of queues by the address of their next entry.
type merge struct {
	heads []*head
	free  []*head
}

type head struct {
	q     *Queue
	next  int64 // queue offset behind buf
	n, at int   // buf[at:n] are to come
	buf   [16]Entry
}

var merges = sync.Pool{New: func() any { return new(merge) }}

func (m *merge) reset() {
	for _, h := range m.heads {
		h.q = nil
	}
	m.free = append(m.free, m.heads...)
	m.heads = m.heads[:0]
}

func (m *merge) add(q *Queue, offset int64) error {
	var h *head
	if n := len(m.free); n > 0 {
		h, m.free = m.free[n-1], m.free[:n-1]
	} else {
		h = new(head)
	}
	h.q, h.next, h.n, h.at = q, offset, 0, 0
	ok, err := h.fill()
	if !ok {
		h.q = nil
		m.free = append(m.free, h)
		return err
	}
	m.heads = append(m.heads, h)
	for i := len(m.heads) - 1; i > 0; {
		up := (i - 1) / 2
		if m.heads[up].address() <= h.address() {
			break
		}
		m.heads[i], m.heads[up] = m.heads[up], m.heads[i]
		i = up
	}
	return nil
}

func (h *head) address() int64 { return h.buf[h.at].Address }

func (h *head) fill() (bool, error) {
	n, err := h.q.Read(h.next, h.buf[:])
	h.n, h.at = n, 0
	h.next += int64(n)
	return n > 0, err
}

// step takes the first entry away.
func (m *merge) step() error {
	h := m.heads[0]
	if h.at++; h.at == h.n {
		ok, err := h.fill()
		if err != nil {
			return err
		}
		if !ok {
			last := len(m.heads) - 1
			m.heads[0] = m.heads[last]
			m.heads = m.heads[:last]
			h.q = nil
			m.free = append(m.free, h)
		}
	}
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(m.heads) {
			return nil
		}
		if c+1 < len(m.heads) && m.heads[c+1].address() < m.heads[c].address() {
			c++
		}
		if m.heads[i].address() <= m.heads[c].address() {
			return nil
		}
		m.heads[i], m.heads[c] = m.heads[c], m.heads[i]
		i = c
	}
}

// Holding says whether the topic has entries that are not visible yet.
func (t *Topic) Holding() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.held) > 0
}
