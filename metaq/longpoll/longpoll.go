// Package longpoll keeps requests that wait for something to come, each with a deadline and a connection.
//
// It is only the book-keeping: no clock, no goroutine, no lock. Its owner says what time it is, arms one timer for
// [Table.Next], and is told whose time is over and whose connection went. That keeps a hundred thousand held requests at
// the price of one timer. A table has room for so many and no more, and one connection gets only a share of it.
package longpoll

// Hold is one held request. Its memory is the owner's, who may use it again after it was taken out. The exported field
// belongs to the owner.
type Hold[T any] struct {
	Value T

	deadline   int64
	at         int // place in Table.heap + 1; 0 when not held
	of         *list[T]
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
	conns map[uint64]*list[T] // none is empty
	spare []*list[T]
}

// list is what one connection has, newest first.
type list[T any] struct {
	conn  uint64
	first *Hold[T]
	n     int
}

// New makes a table that holds at most limit requests.
func New[T any](limit int) *Table[T] {
	return &Table[T]{max: limit, conns: map[uint64]*list[T]{}}
}

// Len is how many requests are held.
func (t *Table[T]) Len() int { return len(t.heap) }

// Conns is how many connections have held requests.
func (t *Table[T]) Conns() int { return len(t.conns) }

// Of is how many requests of a connection are held.
func (t *Table[T]) Of(conn uint64) int {
	if of := t.conns[conn]; of != nil {
		return of.n
	}
	return 0
}

// Add holds h, which is not held, as a request of conn until deadline, a time in the owner's unit. It reports false when
// conn has its share: as many as are free. So one connection gets at most half of the table, two that want all of it a third
// each, and while there are fewer connections than places there is one for each that has none.
func (t *Table[T]) Add(h *Hold[T], conn uint64, deadline int64) bool {
	of, free := t.conns[conn], t.max-len(t.heap)
	switch {
	case of == nil && free > 0:
		of = t.list(conn)
	case of == nil || of.n >= free:
		return false
	}
	h.deadline, h.of = deadline, of
	t.heap = append(t.heap, h)
	h.at = len(t.heap)
	t.up(len(t.heap) - 1)
	if of.first != nil {
		h.next, of.first.prev = of.first, h
	}
	of.first = h
	of.n++
	return true
}

// list begins the list of a connection.
func (t *Table[T]) list(conn uint64) *list[T] {
	var of *list[T]
	if n := len(t.spare); n > 0 {
		of, t.spare = t.spare[n-1], t.spare[:n-1]
	} else {
		of = new(list[T])
	}
	of.conn = conn
	t.conns[conn] = of
	return of
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

	of := h.of
	if h.next != nil {
		h.next.prev = h.prev
	}
	if h.prev != nil {
		h.prev.next = h.next
	} else {
		of.first = h.next
	}
	h.prev, h.next, h.of = nil, nil, nil
	if of.n--; of.n == 0 {
		delete(t.conns, of.conn)
		t.spare = append(t.spare, of)
	}
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
	for of := t.conns[conn]; of != nil && of.n > 0; {
		h := of.first
		t.Remove(h)
		dst = append(dst, h)
	}
	return dst
}

// Take removes every request that match picks and appends it to dst. It looks at all of them.
func (t *Table[T]) Take(match func(*Hold[T]) bool, dst []*Hold[T]) []*Hold[T] {
	from := len(dst)
	for _, h := range t.heap {
		if match(h) {
			dst = append(dst, h)
		}
	}
	for _, h := range dst[from:] {
		t.Remove(h)
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
