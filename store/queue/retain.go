package queue

import (
	"errors"
	"slices"
)

// RaiseMin makes entries with addresses below a position unreadable: the log is about to lose them. With an error some queues still begin
// where they did.
func (x *Index) RaiseMin(position int64) error {
	var errs []error
	for _, t := range x.allTopics() {
		t.Queues(func(q *Queue) {
			offset, err := q.searchAddress(position)
			if err != nil {
				errs = append(errs, err)
			} else if offset > q.min.Load() {
				q.min.Store(offset)
			}
		})
	}
	return errors.Join(errs...)
}

// DropBelow forgets what the log no longer has: entries with addresses below a position cannot be read any more, and
// files that speak only for positions below it are removed. A file that comes back after a crash is removed by the next start.
func (x *Index) DropBelow(position int64) error {
	if err := x.RaiseMin(position); err != nil {
		return err
	}
	x.settling.Lock()
	defer x.settling.Unlock()
	x.sealing.Lock()
	defer x.sealing.Unlock()
	x.mu.Lock()
	old := *x.spans.Load()
	n := 0
	for n < len(old) && old[n].end <= position {
		n++
	}
	kept := slices.Clone(old[n:])
	x.spans.Store(&kept)
	x.mu.Unlock()
	var errs []error
	for _, s := range old[:n] {
		if err := x.cfg.FS.Remove(s.path()); err != nil {
			errs = append(errs, err)
		}
		s.release()
	}
	return errors.Join(errs...)
}

// Bound is where a queue without entries goes on.
type Bound struct {
	Topic string
	Queue int32
	Next  int64 // the offset of its next entry
}

// BoundsBelow lists the queues whose newest entry has an address below position, in no order. When the log below it goes, nothing
// tells a later start where they go on, but what their owner writes down of this.
func (x *Index) BoundsBelow(position int64) []Bound {
	var bs []Bound
	for _, t := range x.allTopics() {
		t.mu.Lock()
		t.Queues(func(q *Queue) {
			if !q.known {
				return
			}
			last := q.last.Load()
			if q.tail != nil {
				last = q.block[q.fill-1].address
			}
			if last < position {
				bs = append(bs, Bound{t.name, q.id, q.next})
			}
		})
		t.mu.Unlock()
	}
	return bs
}

// Restore makes a queue that has no entry yet go on at b.Next, as a record at the address at says. A queue that is known is left as it
// is. It is a call of the writer, like Put, and comes in log order with those.
func (x *Index) Restore(b Bound, at int64) {
	q := x.Queue(b.Topic, b.Queue, true)
	if q == nil || b.Next < 0 {
		return
	}
	q.topic.mu.Lock()
	defer q.topic.mu.Unlock()
	if q.known {
		return
	}
	q.known, q.born, q.next = true, at, b.Next
	q.min.Store(b.Next)
	q.visible.Store(b.Next)
}

// Newest is the address of the newest entry, visible or not; -1 when there never was one.
func (q *Queue) Newest() int64 {
	q.topic.mu.Lock()
	defer q.topic.mu.Unlock()
	switch {
	case !q.known:
		return -1
	case q.tail != nil:
		return q.block[q.fill-1].address
	}
	return q.last.Load()
}
