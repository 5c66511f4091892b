package state

import (
	"bytes"
	"slices"
	"sort"
)

// Sizes of a row of a Table.
const (
	KeyBytes   = 24
	ValueBytes = 32
)

// Table is an ordered map that the Machine keeps in it what waits: halves, delays and retries, as many as there may be.
// Keys are ordered as bytes. Get, Scan and Freeze may run beside each other, not beside Put and Delete.
type Table interface {
	Get(key *[KeyBytes]byte, value *[ValueBytes]byte) bool
	// Put adds or replaces a row. fresh is a promise that the table has no row of this key.
	Put(key *[KeyBytes]byte, value *[ValueBytes]byte, fresh bool)
	// Delete removes a row that is there.
	Delete(key *[KeyBytes]byte)
	// Scan calls fn for the rows with from <= key < to in order until it returns false. What fn is given is valid during the call.
	Scan(from, to *[KeyBytes]byte, fn func(key *[KeyBytes]byte, value *[ValueBytes]byte) bool)
	// Freeze returns the rows as of now.
	Freeze() Rows
}

// Rows are those of a Table as of one moment. They may be read beside everything that is done to the table.
type Rows interface {
	// Scan is that of Table; an error means that not all rows could be read.
	Scan(from, to *[KeyBytes]byte, fn func(key *[KeyBytes]byte, value *[ValueBytes]byte) bool) error
	// Release ends it.
	Release()
}

type row struct {
	key   [KeyBytes]byte
	value [ValueBytes]byte
}

// memTable is a Table in memory: a list of short sorted pieces, so that an insertion moves little.
type memTable struct {
	pieces [][]row // none is empty
}

const maxPiece = 128

// NewTable makes a table in memory, for tools and tests.
func NewTable() Table { return new(memTable) }

// seek finds the first row at or above key: a piece and a place in it, which may be behind its end.
func (m *memTable) seek(key *[KeyBytes]byte) (piece, i int) {
	piece = sort.Search(len(m.pieces), func(i int) bool { return bytes.Compare(m.pieces[i][0].key[:], key[:]) > 0 })
	if piece = max(piece-1, 0); len(m.pieces) == 0 {
		return 0, 0
	}
	p := m.pieces[piece]
	if bytes.Compare(p[len(p)-1].key[:], key[:]) < 0 {
		return piece, len(p)
	}
	return piece, sort.Search(len(p), func(i int) bool { return bytes.Compare(p[i].key[:], key[:]) >= 0 })
}

func (m *memTable) find(key *[KeyBytes]byte) *row {
	if n, i := m.seek(key); n < len(m.pieces) && i < len(m.pieces[n]) && m.pieces[n][i].key == *key {
		return &m.pieces[n][i]
	}
	return nil
}

func (m *memTable) Get(key *[KeyBytes]byte, value *[ValueBytes]byte) bool {
	r := m.find(key)
	if r != nil {
		*value = r.value
	}
	return r != nil
}

func (m *memTable) Put(key *[KeyBytes]byte, value *[ValueBytes]byte, _ bool) {
	if len(m.pieces) == 0 {
		m.pieces = append(m.pieces, append(make([]row, 0, 8), row{*key, *value}))
		return
	}
	n, i := m.seek(key)
	p := m.pieces[n]
	if i < len(p) && p[i].key == *key {
		p[i].value = *value
		return
	}
	if len(p) < maxPiece {
		m.pieces[n] = slices.Insert(p, i, row{*key, *value})
		return
	}
	if i == len(p) { // the usual case, above all that are near: start a new piece and leave this one full
		m.pieces = slices.Insert(m.pieces, n+1, append(make([]row, 0, maxPiece), row{*key, *value}))
		return
	}
	half := append(make([]row, 0, maxPiece), p[maxPiece/2:]...)
	m.pieces[n] = p[:maxPiece/2]
	m.pieces = slices.Insert(m.pieces, n+1, half)
	if i > maxPiece/2 {
		n, i = n+1, i-maxPiece/2
	}
	m.pieces[n] = slices.Insert(m.pieces[n], i, row{*key, *value})
}

func (m *memTable) Delete(key *[KeyBytes]byte) {
	n, i := m.seek(key)
	if n >= len(m.pieces) || i >= len(m.pieces[n]) || m.pieces[n][i].key != *key {
		return
	}
	if m.pieces[n] = slices.Delete(m.pieces[n], i, i+1); len(m.pieces[n]) == 0 {
		m.pieces = slices.Delete(m.pieces, n, n+1)
	}
}

func (m *memTable) Scan(from, to *[KeyBytes]byte, fn func(key *[KeyBytes]byte, value *[ValueBytes]byte) bool) {
	n, i := m.seek(from)
	for ; n < len(m.pieces); n, i = n+1, 0 {
		for ; i < len(m.pieces[n]); i++ {
			r := &m.pieces[n][i]
			if bytes.Compare(r.key[:], to[:]) >= 0 || !fn(&r.key, &r.value) {
				return
			}
		}
	}
}

func (m *memTable) Freeze() Rows {
	f := &memRows{memTable{make([][]row, len(m.pieces))}}
	for i, p := range m.pieces {
		f.pieces[i] = slices.Clone(p)
	}
	return f
}

type memRows struct{ memTable }

func (r *memRows) Scan(from, to *[KeyBytes]byte, fn func(key *[KeyBytes]byte, value *[ValueBytes]byte) bool) error {
	r.memTable.Scan(from, to, fn)
	return nil
}

func (r *memRows) Release() {}
