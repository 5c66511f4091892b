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

// waiters is a list of them, guarded by Topic.mu.
type waiters struct{ list []*waiter }

// take moves the waiters at or below reached to due.
func (ws *waiters) take(due []*waiter, reached int64) []*waiter {
	left := ws.list[:0]
	for _, w := range ws.list {
		if w.from <= reached {
			due = append(due, w)
		} else {
			left = append(left, w)
		}
	}
	clear(ws.list[len(left):])
	ws.list = left
	return due
}

// wakeLocked makes the waiters due that are satisfied; topic.mu is held.
func (q *Queue) wakeLocked() {
	q.watched = q.topic.index.wakeWaiters(q.waiters, q.visible.Load()-1)
}

func (t *Topic) wakeLocked() {
	t.watched = t.index.wakeWaiters(&t.waiters, t.limit.Load()-1)
}

// wakeWaiters reports whether some are left.
func (x *Index) wakeWaiters(ws *waiters, reached int64) bool {
	if due := ws.take(nil, reached); len(due) > 0 {
		x.addDue(due)
	}
	return len(ws.list) > 0
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
	q.addLocked(w)
	t.mu.Unlock()
	return func() bool { return t.stop(w, q.waiters, &q.watched) }
}

// Waiter is the memory of a watch that its owner keeps, for those who watch often: Wait allocates nothing. It may be used
// again once its fn has been called, but not after a Stop that returned true, since whoever makes entries visible may still
// hold it. The zero value is ready.
type Waiter struct {
	w waiter
	q *Queue
}

// Wait is Watch with the memory of w.
func (q *Queue) Wait(w *Waiter, offset int64, fn func()) {
	w.q, w.w.from, w.w.fn = q, offset, fn
	w.w.state.Store(waiting)
	t := q.topic
	t.mu.Lock()
	if q.visible.Load() > offset {
		t.mu.Unlock()
		w.w.fire()
		return
	}
	q.addLocked(&w.w)
	t.mu.Unlock()
}

// Stop cancels the watch and reports whether fn will not be called.
func (w *Waiter) Stop() bool {
	if w.q == nil {
		return true
	}
	return w.q.topic.stop(&w.w, w.q.waiters, &w.q.watched)
}

func (q *Queue) addLocked(w *waiter) {
	if q.waiters == nil {
		q.waiters = new(waiters)
	}
	q.waiters.list = append(q.waiters.list, w)
	q.watched = true
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
	t.waiters.list = append(t.waiters.list, w)
	t.watched = true
	t.mu.Unlock()
	return func() bool { return t.stop(w, &t.waiters, &t.watched) }
}

func (t *Topic) stop(w *waiter, ws *waiters, watched *bool) bool {
	if !w.state.CompareAndSwap(waiting, stopped) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(ws.list, w); i >= 0 {
		ws.list = slices.Delete(ws.list, i, i+1)
		*watched = len(ws.list) > 0
	}
	return true
}
