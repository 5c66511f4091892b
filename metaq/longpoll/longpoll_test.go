package longpoll

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// model is the same table as a plain list.
type model struct{ held []*Hold[int] }

func (m *model) remove(h *Hold[int]) bool {
	i := slices.Index(m.held, h)
	if i < 0 {
		return false
	}
	m.held = slices.Delete(m.held, i, i+1)
	return true
}

func (m *model) take(keep func(*Hold[int]) bool) (out []*Hold[int]) {
	m.held = slices.DeleteFunc(m.held, func(h *Hold[int]) bool {
		if !keep(h) {
			out = append(out, h)
			return true
		}
		return false
	})
	return out
}

// of counts the requests of a connection.
func (m *model) of(conn uint64) (n int) {
	for _, h := range m.held {
		if h.of.conn == conn {
			n++
		}
	}
	return n
}

func sameSet(a, b []*Hold[int]) bool {
	if len(a) != len(b) {
		return false
	}
	for _, h := range a {
		if !slices.Contains(b, h) {
			return false
		}
	}
	return true
}

func TestTableAgainstAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 20
		tab, m := New[int](limit), &model{}
		var ever []*Hold[int]
		n := 0
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				n++
				h := &Hold[int]{Value: n}
				for _, old := range ever { // memory is used again
					if !old.Held() {
						h, ever = old, slices.DeleteFunc(ever, func(x *Hold[int]) bool { return x == old })
						break
					}
				}
				conn := rapid.Uint64Range(1, 4).Draw(t, "conn")
				ok := tab.Add(h, conn, rapid.Int64Range(0, 50).Draw(t, "deadline"))
				if ok != (m.of(conn) < limit-len(m.held)) {
					t.Fatalf("Add with %d held, %d of the connection: %v", len(m.held), m.of(conn), ok)
				}
				if ok {
					m.held, ever = append(m.held, h), append(ever, h)
				}
			},
			"remove": func(t *rapid.T) {
				if len(ever) == 0 {
					return // nothing to remove
				}
				h := rapid.SampledFrom(ever).Draw(t, "hold")
				if got, want := tab.Remove(h), m.remove(h); got != want || h.Held() {
					t.Fatalf("Remove = %v, want %v", got, want)
				}
			},
			"expire": func(t *rapid.T) {
				now := rapid.Int64Range(0, 50).Draw(t, "now")
				got := tab.Expire(now, nil)
				want := m.take(func(h *Hold[int]) bool { return h.Deadline() > now })
				if !sameSet(got, want) || !slices.IsSortedFunc(got, func(a, b *Hold[int]) int { return int(a.Deadline() - b.Deadline()) }) {
					t.Fatalf("Expire(%d) gave %d requests, want %d in order of deadline", now, len(got), len(want))
				}
			},
			"drop": func(t *rapid.T) {
				c := rapid.Uint64Range(1, 4).Draw(t, "conn")
				if want, got := m.take(func(h *Hold[int]) bool { return h.of.conn != c }), tab.Drop(c, nil); !sameSet(got, want) {
					t.Fatalf("Drop(%d) gave %d requests, want %d", c, len(got), len(want))
				}
			},
			"": func(t *rapid.T) {
				if tab.Len() != len(m.held) {
					t.Fatalf("Len = %d, want %d", tab.Len(), len(m.held))
				}
				next, ok := tab.Next()
				if ok != (len(m.held) > 0) {
					t.Fatalf("Next = %v with %d held", ok, len(m.held))
				}
				conns := map[uint64]bool{}
				for _, h := range m.held {
					conns[h.of.conn] = true
					if !h.Held() || h.Deadline() < next {
						t.Fatalf("a held request has deadline %d, Next says %d", h.Deadline(), next)
					}
				}
				if tab.Conns() != len(conns) {
					t.Fatalf("Conns = %d, want %d", tab.Conns(), len(conns))
				}
				for c := range uint64(5) {
					if tab.Of(c) != m.of(c) {
						t.Fatalf("Of(%d) = %d, want %d", c, tab.Of(c), m.of(c))
					}
				}
			},
		})
		if got := tab.Clear(nil); !sameSet(got, m.held) || tab.Len() != 0 || tab.Conns() != 0 {
			t.Fatalf("Clear gave %d of %d and left %d", len(got), len(m.held), tab.Len())
		}
	})
}

func TestAConnectionGetsAShare(t *testing.T) {
	const limit = 100
	fill := func(tab *Table[int], conn uint64) (n int) {
		for tab.Add(new(Hold[int]), conn, 1) {
			n++
		}
		return n
	}
	tab := New[int](limit)
	if n := fill(tab, 1); n != limit/2 {
		t.Errorf("alone it got %d, want half of %d", n, limit)
	}
	got := 0
	for c := range uint64(20) {
		n := fill(tab, 2+c)
		if got += n; n > limit/4 {
			t.Errorf("another one got %d", n)
		}
	}
	if got+limit/2 > limit {
		t.Errorf("%d are held, the limit is %d", got+limit/2, limit)
	}
	tab = New[int](limit)
	for c := range uint64(limit) {
		if !tab.Add(new(Hold[int]), c, 1) {
			t.Errorf("connection %d of %d got no place", c, limit)
		}
	}
	if fill(tab, 1) != 0 || fill(tab, limit) != 0 {
		t.Error("a full table took another one")
	}
}

func BenchmarkAddRemove(b *testing.B) {
	tab := New[int](150_000)
	for i := range 100_000 {
		tab.Add(&Hold[int]{Value: i}, uint64(i%1000), int64(i*7919%20_000))
	}
	b.ReportAllocs()
	var h Hold[int]
	for i := range b.N {
		tab.Add(&h, uint64(i%1000), int64(i%20_000))
		tab.Remove(&h)
	}
}

func TestTakePicks(t *testing.T) {
	table := New[int](100)
	for i := range 20 {
		h := &Hold[int]{Value: i}
		if !table.Add(h, uint64(i%3), int64(20-i)) {
			t.Fatal("refused")
		}
	}
	got := table.Take(func(h *Hold[int]) bool { return h.Value%2 == 0 }, nil)
	if len(got) != 10 || table.Len() != 10 {
		t.Fatalf("took %d, %d are left", len(got), table.Len())
	}
	for _, h := range got {
		if h.Value%2 != 0 || h.Held() {
			t.Errorf("took %d, held %v", h.Value, h.Held())
		}
	}
	last := int64(0)
	for _, h := range table.Expire(100, nil) {
		if h.Value%2 == 0 || h.Deadline() < last {
			t.Errorf("left %d with deadline %d after %d", h.Value, h.Deadline(), last)
		}
		last = h.Deadline()
	}
}
