package queue

import (
	"slices"
	"sync/atomic"
)

// waiter is one Watch. It leaves its list when it is due; whoever moves state away from waiting decides what happens.
type waiter struct {
	from  int64 // offset in a queue, address in a topic
	fn    func()
	state atomic.Int32
}

const (
	waiting = iota
	fired
	stopped
)

func (w *waiter) fire() {
	if w.state.CompareAndSwap(waiting, fired) {
		w.fn()
	}
}

// takeDue moves the waiters at or below reached from ws to due.
func takeDue(ws, due []*waiter, reached int64) (left, all []*waiter) {
	left = ws[:0]
	for _, w := range ws {
		if w.from <= reached {
			due = append(due, w)
		} else {
			left = append(left, w)
		}
	}
	clear(ws[len(left):])
	return left, due
}

// Watch calls fn once when an entry at offset or above is visible; at once when it already is. fn runs on the goroutine
// that made the entry visible, in its [Index.Wake] or [Index.Synced], and must not block. stop cancels and reports
// whether fn will not be called.
func (q *Queue) Watch(offset int64, fn func()) (stop func() bool) {
	w := &waiter{from: offset, fn: fn}
	t := q.topic
	t.mu.Lock()
	if q.visible.Load() > offset {
		t.mu.Unlock()
		w.fire()
		return func() bool { return false }
	}
	q.waiters = append(q.waiters, w)
	t.mu.Unlock()
	return func() bool { return t.stop(w, &q.waiters) }
}

// Watch calls fn once when an entry with an address of at least from is visible to [Topic.Read]; otherwise it is as
// [Queue.Watch].
func (t *Topic) Watch(from int64, fn func()) (stop func() bool) {
	w := &waiter{from: from, fn: fn}
	t.mu.Lock()
	if t.limit.Load() > from {
		t.mu.Unlock()
		w.fire()
		return func() bool { return false }
	}
	t.waiters = append(t.waiters, w)
	t.mu.Unlock()
	return func() bool { return t.stop(w, &t.waiters) }
}

func (t *Topic) stop(w *waiter, list *[]*waiter) bool {
	if !w.state.CompareAndSwap(waiting, stopped) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(*list, w); i >= 0 {
		*list = slices.Delete(*list, i, i+1)
	}
	return true
}
