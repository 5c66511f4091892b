// Package longpoll keeps requests that wait for something to come, each with a deadline and a connection.
//
// It is only the book-keeping: no clock, no goroutine, no lock. Its owner says what time it is, arms one timer for
// [Table.Next], and is told whose time is over and whose connection went. That keeps a hundred thousand held requests at
// the price of one timer.
package longpoll

// Hold is one held request. Its memory is the owner's, who may use it again after it was taken out. The exported field
// belongs to the owner.
type Hold[T any] struct {
	Value T

	deadline   int64
	conn       uint64
	at         int // place in Table.heap + 1; 0 when not held
	prev, next *Hold[T]
}

// Held reports whether the request is still in the table.
func (h *Hold[T]) Held() bool { return h.at > 0 }

// Deadline is the time given to Add.
func (h *Hold[T]) Deadline() int64 { return h.deadline }

// Table is a set of held requests. It is not safe for concurrent use. Create one with New.
type Table[T any] struct {
	max   int
	heap  []*Hold[T]          // by deadline, earliest first
	conns map[uint64]*Hold[T] // first of the list of each connection
}

// New makes a table that holds at most limit requests.
func New[T any](limit int) *Table[T] {
	return &Table[T]{max: limit, conns: map[uint64]*Hold[T]{}}
}

// Len is how many requests are held.
func (t *Table[T]) Len() int { return len(t.heap) }

// Conns is how many connections have held requests.
func (t *Table[T]) Conns() int { return len(t.conns) }

// Add holds h, which is not held, as a request of conn until deadline, a time in the owner's unit. It reports false when
// the table is full.
func (t *Table[T]) Add(h *Hold[T], conn uint64, deadline int64) bool {
	if len(t.heap) >= t.max {
		return false
	}
	h.deadline, h.conn = deadline, conn
	t.heap = append(t.heap, h)
	h.at = len(t.heap)
	t.up(len(t.heap) - 1)
	if first := t.conns[conn]; first != nil {
		h.next, first.prev = first, h
	}
	t.conns[conn] = h
	return true
}

// Remove takes a request out and reports whether it was in: of several that try, one wins.
func (t *Table[T]) Remove(h *Hold[T]) bool {
	if h.at == 0 {
		return false
	}
	last := len(t.heap) - 1
	i := h.at - 1
	if i != last {
		t.heap[i] = t.heap[last]
		t.heap[i].at = i + 1
	}
	t.heap[last] = nil
	t.heap = t.heap[:last]
	if i != last {
		if !t.down(i) {
			t.up(i)
		}
	}
	h.at = 0

	if h.next != nil {
		h.next.prev = h.prev
	}
	if h.prev != nil {
		h.prev.next = h.next
	} else if h.next != nil {
		t.conns[h.conn] = h.next
	} else {
		delete(t.conns, h.conn)
	}
	h.prev, h.next = nil, nil
	return true
}

// Expire removes every request whose deadline is now or earlier, earliest first, and appends it to dst.
func (t *Table[T]) Expire(now int64, dst []*Hold[T]) []*Hold[T] {
	for len(t.heap) > 0 && t.heap[0].deadline <= now {
		h := t.heap[0]
		t.Remove(h)
		dst = append(dst, h)
	}
	return dst
}

// Drop removes every request of a connection and appends it to dst.
func (t *Table[T]) Drop(conn uint64, dst []*Hold[T]) []*Hold[T] {
	for h := t.conns[conn]; h != nil; h = t.conns[conn] {
		t.Remove(h)
		dst = append(dst, h)
	}
	return dst
}

// Clear removes every request and appends it to dst.
func (t *Table[T]) Clear(dst []*Hold[T]) []*Hold[T] {
	for len(t.heap) > 0 {
		h := t.heap[len(t.heap)-1]
		t.Remove(h)
		dst = append(dst, h)
	}
	return dst
}

// Next is the earliest deadline; ok is false when nothing is held.
func (t *Table[T]) Next() (deadline int64, ok bool) {
	if len(t.heap) == 0 {
		return 0, false
	}
	return t.heap[0].deadline, true
}

func (t *Table[T]) swap(i, j int) {
	t.heap[i], t.heap[j] = t.heap[j], t.heap[i]
	t.heap[i].at, t.heap[j].at = i+1, j+1
}

func (t *Table[T]) up(i int) {
	for i > 0 {
		p := (i - 1) / 2
		if t.heap[p].deadline <= t.heap[i].deadline {
			return
		}
		t.swap(i, p)
		i = p
	}
}

func (t *Table[T]) down(i int) (moved bool) {
	for {
		c := 2*i + 1
		if c >= len(t.heap) {
			return moved
		}
		if c+1 < len(t.heap) && t.heap[c+1].deadline < t.heap[c].deadline {
			c++
		}
		if t.heap[i].deadline <= t.heap[c].deadline {
			return moved
		}
		t.swap(i, c)
		i, moved = c, true
	}
}
