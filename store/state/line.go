package state

import (
	"cmp"
	"slices"
	"sort"
)

// waiting is one retry in a line.
type waiting struct {
	due      int64
	address  int64
	position int64
	topic    *topic
	size     int32
	attempt  int32
}

func (a *waiting) compare(due, address int64) int {
	return cmp.Or(cmp.Compare(a.due, due), cmp.Compare(a.address, address))
}

// line is what one group has to be sent again, ordered by due time and address: a list of short sorted pieces, so that
// an insertion moves little.
type line struct {
	pieces [][]waiting     // none is empty
	due    map[int64]int64 // by address; a message waits once
}

const maxPiece = 256

func (l *line) len() int { return len(l.due) }

// piece is the number of the piece in which (due, address) is or would be.
func (l *line) piece(due, address int64) int {
	i := sort.Search(len(l.pieces), func(i int) bool { return l.pieces[i][0].compare(due, address) > 0 })
	return max(i-1, 0)
}

// put adds a retry, or replaces the one of the same address.
func (l *line) put(w waiting) {
	if old, ok := l.due[w.address]; ok {
		if old == w.due {
			p, i := l.place(old, w.address)
			l.pieces[p][i] = w
			return
		}
		l.take(w.address)
	}
	if l.due == nil {
		l.due = map[int64]int64{}
	}
	l.due[w.address] = w.due
	if len(l.pieces) == 0 {
		l.pieces = append(l.pieces, []waiting{w})
		return
	}
	n := l.piece(w.due, w.address)
	p := l.pieces[n]
	i := sort.Search(len(p), func(i int) bool { return p[i].compare(w.due, w.address) > 0 })
	if len(p) < maxPiece {
		l.pieces[n] = slices.Insert(p, i, w)
		return
	}
	if i == len(p) && n == len(l.pieces)-1 { // the usual case, later than all: start a new piece and leave this one full
		l.pieces = append(l.pieces, []waiting{w})
		return
	}
	half := slices.Clone(p[maxPiece/2:])
	clear(p[maxPiece/2:])
	l.pieces[n] = p[:maxPiece/2]
	l.pieces = slices.Insert(l.pieces, n+1, half)
	if i > maxPiece/2 {
		n, i = n+1, i-maxPiece/2
	}
	l.pieces[n] = slices.Insert(l.pieces[n], i, w)
}

// place finds a retry that is there.
func (l *line) place(due, address int64) (piece, i int) {
	piece = l.piece(due, address)
	p := l.pieces[piece]
	return piece, sort.Search(len(p), func(i int) bool { return p[i].compare(due, address) >= 0 })
}

// get returns the retry of an address, or nil. It is valid until the line changes.
func (l *line) get(address int64) *waiting {
	due, ok := l.due[address]
	if !ok {
		return nil
	}
	p, i := l.place(due, address)
	return &l.pieces[p][i]
}

// take removes the retry of an address and reports whether there was one.
func (l *line) take(address int64) bool {
	due, ok := l.due[address]
	if !ok {
		return false
	}
	p, i := l.place(due, address)
	l.pieces[p] = slices.Delete(l.pieces[p], i, i+1)
	if len(l.pieces[p]) == 0 {
		l.pieces = slices.Delete(l.pieces, p, p+1)
	}
	if delete(l.due, address); len(l.due) == 0 {
		*l = line{} // maps do not shrink
	}
	return true
}

// after calls fn for the retries behind (due, address) in order until it returns false.
func (l *line) after(due, address int64, fn func(*waiting) bool) {
	if len(l.pieces) == 0 {
		return
	}
	n := l.piece(due, address)
	i := sort.Search(len(l.pieces[n]), func(i int) bool { return l.pieces[n][i].compare(due, address) > 0 })
	for ; n < len(l.pieces); n, i = n+1, 0 {
		for ; i < len(l.pieces[n]); i++ {
			if !fn(&l.pieces[n][i]) {
				return
			}
		}
	}
}
