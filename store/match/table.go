package match

import (
	"hash/maphash"
	"slices"
)

// table finds the filters that ask for a text. It is immutable; nil has none. A change copies a chunk and the list of chunks, so that an index
// takes many filters in little time.
type table[T comparable] struct {
	chunks []*chunk[T] // by the upper bits of the hash; a power of two
	shift  int         // of the hash
	used   int         // texts
}

const chunkTexts = 48 // at most, on average

func (t *table[T]) find(text []byte) []posting[T] {
	h := hashOf(text)
	if c := t.chunks[h>>t.shift]; c != nil {
		return c.find(h, text)
	}
	return nil
}

// with returns a table with one more filter for a text.
func (t *table[T]) with(text string, p posting[T]) *table[T] {
	n := &table[T]{chunks: make([]*chunk[T], 1), shift: 32}
	switch {
	case t != nil && t.used >= chunkTexts*len(t.chunks):
		n = t.split()
	case t != nil:
		n = &table[T]{slices.Clone(t.chunks), t.shift, t.used}
	}
	h := hashOf([]byte(text))
	n.set(h, n.chunks[h>>n.shift].with(h, text, p))
	return n
}

// without returns a table without a filter that has gone, nil when it was the last one, and whether it is out of it. It does not get
// fewer chunks.
func (t *table[T]) without(text string, e *entry[T]) (*table[T], bool) {
	h := hashOf([]byte(text))
	n := &table[T]{slices.Clone(t.chunks), t.shift, t.used}
	c, out := t.chunks[h>>t.shift].without(h, text, e)
	if n.set(h, c); n.used == 0 {
		return nil, out
	}
	return n, out
}

// set changes a table that nobody has seen yet.
func (t *table[T]) set(h uint32, c *chunk[T]) {
	p := &t.chunks[h>>t.shift]
	t.used += c.texts() - (*p).texts()
	*p = c
}

func (t *chunk[T]) texts() int {
	if t == nil {
		return 0
	}
	return t.used
}

// split returns the texts in twice as many chunks.
func (t *table[T]) split() *table[T] {
	n := &table[T]{make([]*chunk[T], 2*len(t.chunks)), t.shift - 1, t.used}
	for _, c := range t.chunks {
		if c == nil {
			continue
		}
		for i, s := range c.slots {
			if s.list.all == nil {
				continue
			}
			p := &n.chunks[c.hashes[i]>>n.shift]
			if *p == nil {
				*p = newChunk[T](len(c.hashes))
			}
			(*p).put(c.hashes[i], s)
		}
	}
	return n
}

// chunk has the texts of some hashes. It is immutable; nil has none.
type chunk[T comparable] struct {
	hashes []uint32 // 0 is free; a power of two, at most half of them taken. Most lookups end here
	slots  []slot[T]
	used   int
}

type slot[T comparable] struct {
	text string
	list list[T]
}

var seed = maphash.MakeSeed()

func hashOf(text []byte) uint32 { return uint32(maphash.Bytes(seed, text)) | 1 }

// place is where a text is, or would be put.
func (t *chunk[T]) place(h uint32, text string) int {
	mask := len(t.hashes) - 1
	for i := int(h>>1) & mask; ; i = (i + 1) & mask {
		if t.hashes[i] == 0 || t.hashes[i] == h && t.slots[i].text == text {
			return i
		}
	}
}

// find returns the filters that ask for a text.
func (t *chunk[T]) find(h uint32, text []byte) []posting[T] {
	mask := len(t.hashes) - 1
	for i := int(h>>1) & mask; ; i = (i + 1) & mask {
		switch t.hashes[i] {
		case 0:
			return nil
		case h:
			if s := &t.slots[i]; s.text == string(text) {
				return s.list.all
			}
		}
	}
}

// put changes a chunk that nobody has seen yet.
func (t *chunk[T]) put(h uint32, s slot[T]) {
	i := t.place(h, s.text)
	if t.hashes[i] == 0 {
		t.used++
	}
	t.hashes[i], t.slots[i] = h, s
}

func newChunk[T comparable](size int) *chunk[T] {
	return &chunk[T]{hashes: make([]uint32, size), slots: make([]slot[T], size)}
}

// with returns a chunk with one more filter for a text.
func (t *chunk[T]) with(h uint32, text string, p posting[T]) *chunk[T] {
	var n *chunk[T]
	switch {
	case t == nil:
		n = newChunk[T](8)
	case 2*(t.used+1) > len(t.hashes):
		n = t.sized(2 * len(t.hashes))
	default:
		n = &chunk[T]{slices.Clone(t.hashes), slices.Clone(t.slots), t.used}
	}
	n.put(h, slot[T]{text, n.slots[n.place(h, text)].list.with(p)})
	return n
}

// without returns a chunk without a filter, nil when it was the last one, and whether it is out of it.
func (t *chunk[T]) without(h uint32, text string, e *entry[T]) (*chunk[T], bool) {
	n := &chunk[T]{t.hashes, slices.Clone(t.slots), t.used}
	s := &n.slots[t.place(h, text)]
	list, out := s.list.without(e)
	if s.list = list; list.all != nil {
		return n, out
	}
	if t.used == 1 {
		return nil, out
	}
	// Texts behind the one that goes may have been put there because of it.
	size := len(t.hashes)
	if 8*t.used < size {
		size /= 2
	}
	return n.sized(size), out
}

// sized returns the texts that have filters in a chunk of another size.
func (t *chunk[T]) sized(size int) *chunk[T] {
	n := newChunk[T](size)
	for i, s := range t.slots {
		if s.list.all != nil {
			n.put(t.hashes[i], s)
		}
	}
	return n
}
