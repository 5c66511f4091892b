package socket

import (
	"cmp"
	"slices"
)

// Largest calls shut for the connections with the most bytes that wait to be handled, the largest first, until excess bytes of them are gone:
// whoever took the memory shall pay for it, not the next one that sends. waiting says how many bytes a connection has; those with none are
// left alone.
func Largest[C any](conns []C, excess int64, waiting func(C) int64, shut func(c C, bytes int64)) {
	type holder struct {
		c C
		n int64
	}
	var all []holder
	for _, c := range conns {
		if n := waiting(c); n > 0 {
			all = append(all, holder{c, n})
		}
	}
	slices.SortFunc(all, func(a, b holder) int { return cmp.Compare(b.n, a.n) })
	for _, h := range all {
		if excess <= 0 {
			return
		}
		excess -= h.n
		shut(h.c, h.n)
	}
}
