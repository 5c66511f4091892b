package match

import (
	"hash/maphash"
	"slices"
)

// table finds the filters that ask for a text. It is immutable; nil has none.
type table[T comparable] struct {
	hashes []uint32 // 0 is free; a power of two, at most half of them taken. Most lookups end here
	slots  []slot[T]
	used   int
}

type slot[T comparable] struct {
	text string
	list []posting[T]
}

var seed = maphash.MakeSeed()

func hashOf(text []byte) uint32 { return uint32(maphash.Bytes(seed, text)) | 1 }

// place is where a text is, or would be put.
func (t *table[T]) place(h uint32, text string) int {
	mask := len(t.hashes) - 1
	for i := int(h>>1) & mask; ; i = (i + 1) & mask {
		if t.hashes[i] == 0 || t.hashes[i] == h && t.slots[i].text == text {
			return i
		}
	}
}

// find returns the filters that ask for a text.
func (t *table[T]) find(text []byte) []posting[T] {
	h := hashOf(text)
	mask := len(t.hashes) - 1
	for i := int(h>>1) & mask; ; i = (i + 1) & mask {
		switch t.hashes[i] {
		case 0:
			return nil
		case h:
			if s := &t.slots[i]; s.text == string(text) {
				return s.list
			}
		}
	}
}

// put changes a table that nobody has seen yet.
func (t *table[T]) put(h uint32, s slot[T]) {
	i := t.place(h, s.text)
	if t.hashes[i] == 0 {
		t.used++
	}
	t.hashes[i], t.slots[i] = h, s
}

func newTable[T comparable](size int) *table[T] {
	return &table[T]{hashes: make([]uint32, size), slots: make([]slot[T], size)}
}

// with returns a table with one more filter for a text.
func (t *table[T]) with(text string, p posting[T]) *table[T] {
	h := hashOf([]byte(text))
	var n *table[T]
	switch {
	case t == nil:
		n = newTable[T](8)
	case 2*(t.used+1) > len(t.hashes):
		n = t.sized(2 * len(t.hashes))
	default:
		n = &table[T]{slices.Clone(t.hashes), slices.Clone(t.slots), t.used}
	}
	n.put(h, slot[T]{text, append(slices.Clip(n.slots[n.place(h, text)].list), p)})
	return n
}

// without returns a table without a filter, nil when it was the last one.
func (t *table[T]) without(text string, e *entry[T]) *table[T] {
	n := &table[T]{t.hashes, slices.Clone(t.slots), t.used}
	s := &n.slots[t.place(hashOf([]byte(text)), text)]
	if s.list = without(s.list, e); s.list != nil {
		return n
	}
	if t.used == 1 {
		return nil
	}
	// Texts behind the one that goes may have been put there because of it.
	size := len(t.hashes)
	if 8*t.used < size {
		size /= 2
	}
	return n.sized(size)
}

// sized returns the texts that have filters in a table of another size.
func (t *table[T]) sized(size int) *table[T] {
	n := newTable[T](size)
	for i, s := range t.slots {
		if s.list != nil {
			n.put(t.hashes[i], s)
		}
	}
	return n
}
