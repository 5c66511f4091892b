package queue

import (
	"fmt"
	"sort"
	"sync/atomic"
)

// Queue is the handle of one topic and queue. It stays valid while the topic exists.
//
// Any goroutine may read. Put is for the one writer, see [Index].
//
// With tens of thousands of queues that are written in turn, a Put waits for memory more than for anything else, so what
// it needs of a queue is in the first 64 bytes and the whole is two cache lines.
type Queue struct {
	topic   *Topic
	visible atomic.Int64 // one more than the last offset that can be read; stored after the entry

	// Guarded by topic.mu, as is all behind hint.
	next    int64       // the offset that the next Put gives; visible <= next, and what lies between is held
	gen     *generation // of tail
	block   []slotEntry // of tail, the one that takes the next entry
	id      int32       // does not change
	fill    uint16      // entries in block
	watched bool        // waiters is not empty
	known   bool        // there was an entry

	min  atomic.Int64         // first offset that can be read
	head atomic.Pointer[run]  // oldest run in memory; nil when all entries are in spans
	last atomic.Int64         // address of the newest entry in spans
	hint atomic.Pointer[part] // where the last read of a span was

	tail    *run     // the run that takes the next entry; nil like head
	born    int64    // address of the first entry when it came in this process, else 0
	waiters *waiters // nil until the first Watch
	_       [8]byte
}

// Topic is the handle of the topic.
func (q *Queue) Topic() *Topic { return q.topic }

// ID is the number of the queue in its topic.
func (q *Queue) ID() int32 { return q.id }

// Range returns the first offset that can be read and the next one to be given to a visible entry; equal when the queue
// is empty.
func (q *Queue) Range() (min, max int64) {
	max = q.visible.Load()
	return q.min.Load(), max
}

// Next is the offset that the next Put must give: one more than that of the newest entry, held ones included.
func (q *Queue) Next() int64 {
	q.topic.mu.Lock()
	defer q.topic.mu.Unlock()
	return q.next
}

// GapError is returned by Put for an offset that is not the next one of its queue.
type GapError struct {
	Topic     string
	Queue     int32
	Got, Want int64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("queue %s/%d: entry has offset %d, the next one is %d", e.Topic, e.Queue, e.Got, e.Want)
}

// Put adds the entry with the next offset of the queue. Calls for one index must not overlap, and come in log order. An
// entry that the index already has, which a replay from further back gives again, is ignored. The first entry of a queue
// may have any offset; after that, one that leaves out an offset gives a *GapError and changes nothing.
//
// A visible entry can be read when Put returns, unless an earlier one of the queue is held; one that is not visible is
// held until [Index.Synced] passes it. Waiters are called by [Index.Wake], so that a batch wakes them once.
func (q *Queue) Put(offset int64, e Entry, visible bool) error {
	t := q.topic
	t.mu.Lock()
	if q.known && offset != q.next {
		want := q.next
		t.mu.Unlock()
		if offset < want {
			return nil
		}
		return &GapError{t.name, q.id, offset, want}
	}
	if e.Address < t.index.cur.start {
		t.mu.Unlock()
		return fmt.Errorf("queue %s/%d: entry %d at address %d is new, but nothing below %d can be", t.name, q.id, offset, e.Address, t.index.cur.start)
	}
	if int64(int32(e.TagsCode)) != e.TagsCode {
		t.mu.Unlock()
		return fmt.Errorf("queue %s/%d: tags code %d of entry %d has more than 32 bits", t.name, q.id, e.TagsCode, offset)
	}
	if !q.known { // what came before, if anything, was deleted with its part of the log
		q.known, q.born, q.next = true, e.Address, offset
		q.min.Store(offset)
		q.visible.Store(offset)
	}
	gen := t.index.generationFor(e.Address, e.Address == e.Position)
	if q.gen != gen {
		q.newRun(gen)
	} else if int(q.fill) == len(q.block) {
		k, _ := slot(int(q.next - q.tail.base))
		q.tail.grow(k)
		q.block, q.fill = q.tail.block(k), 0
	}
	q.block[q.fill] = e.slot()
	q.fill++
	gen.count++
	t.lastPut = e.Address
	q.next++
	if visible && q.visible.Load() == q.next-1 {
		q.visible.Store(q.next)
		if len(t.held) == 0 {
			t.limit.Store(e.Address + 1)
		}
		if q.watched {
			q.wakeLocked()
		}
		if t.watched {
			t.wakeLocked()
		}
	} else if q.visible.Load() == q.next-1 { // the first one that is held
		if t.held = append(t.held, q); len(t.held) == 1 {
			t.index.holding.Add(1)
			t.index.hold(t)
		}
	}
	t.mu.Unlock()
	return nil
}

func (q *Queue) newRun(g *generation) {
	r := q.topic.index.slabs.run(g, q.next)
	if q.tail != nil {
		q.tail.next.Store(r)
	} else {
		q.head.Store(r)
	}
	q.tail, q.gen, q.block, q.fill = r, g, r.first[:], 0
}

// release makes the held entries below address visible; topic.mu is held. It returns the address of the last one it
// released, or -1, and whether some are still held.
func (q *Queue) release(address int64) (last int64, held bool) {
	last = -1
	r := q.head.Load()
	v := q.visible.Load()
	for ; v < q.next; v++ {
		for n := r.next.Load(); n != nil && v >= n.base; n = r.next.Load() {
			r = n
		}
		a := r.at(int(v - r.base)).address
		if a >= address {
			break
		}
		last = a
	}
	q.visible.Store(v)
	return last, v < q.next
}

// Read fills dst with visible entries from offset on and returns how many; 0 outside [min, max). It returns fewer than
// asked for only at the end of the queue. A damaged span gives a *CorruptError.
func (q *Queue) Read(offset int64, dst []Entry) (int, error) {
	visible := q.visible.Load() // before anything else: what lies below it does not change any more
	if offset < q.min.Load() || offset >= visible {
		return 0, nil
	}
	if n := visible - offset; n < int64(len(dst)) {
		dst = dst[:n]
	}
	done := 0
	for done < len(dst) {
		n, err := q.readSome(offset+int64(done), dst[done:])
		if err != nil || n == 0 {
			return done, err
		}
		done += n
	}
	return done, nil
}

// readSome reads from one run or one span.
func (q *Queue) readSome(offset int64, dst []Entry) (int, error) {
	if r := q.head.Load(); r != nil && offset >= r.base {
		n := r.next.Load()
		for n != nil && offset >= n.base {
			r, n = n, n.next.Load()
		}
		if n != nil && n.base-offset < int64(len(dst)) {
			dst = dst[:n.base-offset]
		}
		r.read(int(offset-r.base), dst)
		return len(dst), nil
	}
	// Spans are loaded after head: sealing publishes a span before it takes the run away.
	return q.readSpan(offset, dst)
}

func (q *Queue) entry(offset int64) (Entry, error) {
	var e [1]Entry
	n, err := q.readSome(offset, e[:])
	if err == nil && n == 0 {
		err = errGone
	}
	return e[0], err
}

// Search finds an offset by publish time: lower gives the first entry with Time >= ms, upper the last with Time <= ms,
// both kept inside [min, max] as spec/remoting.md 3.12 has it. An entry that cannot be read counts as older.
func (q *Queue) Search(ms int64, upper bool) int64 {
	low, high := q.Range()
	first := low + int64(sort.Search(int(high-low), func(i int) bool {
		e, err := q.entry(low + int64(i))
		if upper {
			return err == nil && e.Time > ms
		}
		return err == nil && e.Time >= ms
	}))
	if upper && first > low {
		return first - 1
	}
	return first
}

// SearchAddress is the first offset whose entry has an address of at least at; max when none has.
func (q *Queue) SearchAddress(at int64) int64 {
	offset, err := q.searchAddress(at)
	if err != nil {
		low, _ := q.Range()
		return max(offset, low)
	}
	return offset
}

func (q *Queue) searchAddress(at int64) (int64, error) {
	low, high := q.Range()
	head := q.head.Load()
	if head == nil || head.base >= high || head.gen.start > at {
		// The spans are loaded after head, so nothing can be in neither.
		offset, ok, err := q.searchSpans(at)
		if !ok {
			offset = high
			if head != nil {
				offset = min(high, head.base)
			}
		}
		return max(low, min(high, offset)), err
	}
	r, n := head, head.next.Load()
	for n != nil && n.base < high && n.gen.start <= at {
		r, n = n, n.next.Load()
	}
	end := high
	if n != nil {
		end = min(end, n.base)
	}
	i := sort.Search(int(end-r.base), func(i int) bool { return r.at(i).address >= at })
	return max(low, r.base+int64(i)), nil
}

// lastAddress is the address of the newest visible entry, -1 without one.
func (q *Queue) lastAddress() int64 {
	v := q.visible.Load()
	if v == q.min.Load() {
		return -1
	}
	r := q.head.Load()
	if r == nil || v <= r.base {
		return q.last.Load()
	}
	for n := r.next.Load(); n != nil && v > n.base; n = r.next.Load() {
		r = n
	}
	return r.at(int(v - 1 - r.base)).address
}
