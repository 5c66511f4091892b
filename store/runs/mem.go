package runs

import (
	"bytes"
	"slices"
	"sort"
)

// Sizes of a row.
const (
	KeyBytes   = 24
	ValueBytes = 32
)

// Key and Value are the parts of a row. Keys are ordered as bytes.
type (
	Key   = [KeyBytes]byte
	Value = [ValueBytes]byte
)

// kind of a row.
type kind uint8

const (
	rowPut    kind = 1
	rowDelete kind = 2
	rowFresh  kind = 3 // in memory only: as rowPut, and what is below has no such row, so it can go without a trace
)

type row struct {
	key   Key
	value Value
	kind  kind
}

// tail is the part of the table in memory: a list of short sorted pieces, so that an insertion moves little.
type tail struct {
	pieces [][]row // none is empty
	rows   int
}

const maxPiece = 128

// seek finds the first row at or above key: a piece and a place in it, which may be behind its end.
func (t *tail) seek(key *Key) (piece, i int) {
	if len(t.pieces) == 0 {
		return 0, 0
	}
	piece = max(sort.Search(len(t.pieces), func(i int) bool { return bytes.Compare(t.pieces[i][0].key[:], key[:]) > 0 })-1, 0)
	p := t.pieces[piece]
	if bytes.Compare(p[len(p)-1].key[:], key[:]) < 0 {
		return piece, len(p)
	}
	return piece, sort.Search(len(p), func(i int) bool { return bytes.Compare(p[i].key[:], key[:]) >= 0 })
}

func (t *tail) find(key *Key) *row {
	if n, i := t.seek(key); n < len(t.pieces) && i < len(t.pieces[n]) && t.pieces[n][i].key == *key {
		return &t.pieces[n][i]
	}
	return nil
}

// set puts a row in the place of its key.
func (t *tail) set(r row) {
	if len(t.pieces) == 0 {
		t.pieces = append(t.pieces, append(make([]row, 0, 8), r))
		t.rows = 1
		return
	}
	n, i := t.seek(&r.key)
	p := t.pieces[n]
	if i < len(p) && p[i].key == r.key {
		p[i] = r
		return
	}
	t.rows++
	if len(p) < maxPiece {
		t.pieces[n] = slices.Insert(p, i, r)
		return
	}
	if i == len(p) { // the usual case, above all that are near: start a new piece and leave this one full
		t.pieces = slices.Insert(t.pieces, n+1, append(make([]row, 0, maxPiece), r))
		return
	}
	half := append(make([]row, 0, maxPiece), p[maxPiece/2:]...)
	t.pieces[n] = p[:maxPiece/2]
	t.pieces = slices.Insert(t.pieces, n+1, half)
	if i > maxPiece/2 {
		n, i = n+1, i-maxPiece/2
	}
	t.pieces[n] = slices.Insert(t.pieces[n], i, r)
}

// put adds or replaces a row; fresh promises that what is below the tail has none of the key.
func (t *tail) put(key *Key, value *Value, fresh bool) {
	r := row{*key, *value, rowPut}
	if old := t.find(key); old != nil {
		if old.kind == rowFresh {
			r.kind = rowFresh
		}
		*old = r
		return
	}
	if fresh {
		r.kind = rowFresh
	}
	t.set(r)
}

func (t *tail) delete(key *Key) {
	n, i := t.seek(key)
	if n < len(t.pieces) && i < len(t.pieces[n]) && t.pieces[n][i].key == *key {
		r := &t.pieces[n][i]
		if r.kind != rowFresh {
			*r = row{key: *key, kind: rowDelete}
			return
		}
		t.rows--
		if t.pieces[n] = slices.Delete(t.pieces[n], i, i+1); len(t.pieces[n]) == 0 {
			t.pieces = slices.Delete(t.pieces, n, n+1)
		}
		return
	}
	t.set(row{key: *key, kind: rowDelete})
}

// tailCursor goes through a tail.
type tailCursor struct {
	t        *tail
	piece, i int
}

func (c *tailCursor) seek(key *Key) error {
	c.piece, c.i = c.t.seek(key)
	c.skip()
	return nil
}

func (c *tailCursor) skip() {
	for c.piece < len(c.t.pieces) && c.i >= len(c.t.pieces[c.piece]) {
		c.piece, c.i = c.piece+1, 0
	}
}

func (c *tailCursor) row() *row {
	if c.piece >= len(c.t.pieces) {
		return nil
	}
	return &c.t.pieces[c.piece][c.i]
}

func (c *tailCursor) next() error {
	c.i++
	c.skip()
	return nil
}
