package state

import (
	"bytes"
	"sync"
)

// lows remembers for each space a key by due time below which it has no row. What is due is asked for from the beginning again and again, and
// taken out there: without this each look would step over all that was taken out before and still lies in the table as deleted rows.
type lows struct {
	mu sync.Mutex
	of map[space][KeyBytes]byte
}

// from is where the rows of a space begin.
func (l *lows) from(s space) [KeyBytes]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k, ok := l.of[s]; ok {
		return k
	}
	return keyOf(s, 1, 0, 0, 0)
}

// found tells the first row of a space, or its end.
func (l *lows) found(s space, k [KeyBytes]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[space][KeyBytes]byte{}
	}
	l.of[s] = k
}

// added tells a row that is new.
func (l *lows) added(s space, k *[KeyBytes]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if low, ok := l.of[s]; ok && bytes.Compare(k[:], low[:]) < 0 {
		l.of[s] = *k
	}
}
