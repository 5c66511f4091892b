package lookup

import (
	"math/bits"
	"slices"
)

// before is the order in a run: by hash, then newest address first.
func (e Entry) before(o Entry) bool {
	return e.Hash < o.Hash || e.Hash == o.Hash && e.Address > o.Address
}

func compare(a, b Entry) int {
	switch {
	case a.before(b):
		return -1
	case b.before(a):
		return 1
	}
	return 0
}

// table holds the entries of a part of the log in memory. Entries come in the order of their addresses.
type table struct {
	start   int64
	entries []Entry
	next    []int32 // of each entry, the one before it in its bucket, or -1
	buckets []int32 // newest entry, or -1; a power of two
}

const minBuckets = 256

// newTable makes a table; room is how many entries it is likely to get.
func newTable(start int64, room int) *table {
	t := &table{start: start}
	if room > minBuckets {
		t.entries, t.next = make([]Entry, 0, room), make([]int32, 0, room)
	}
	return t
}

func (t *table) add(e Entry) {
	if len(t.entries) >= len(t.buckets) {
		t.grow()
	}
	b := &t.buckets[e.Hash&uint64(len(t.buckets)-1)]
	t.next = append(t.next, *b)
	*b = int32(len(t.entries))
	t.entries = append(t.entries, e)
}

func (t *table) grow() {
	t.buckets = make([]int32, max(minBuckets, 2*len(t.buckets)))
	for i := range t.buckets {
		t.buckets[i] = -1
	}
	for i := range t.entries {
		b := &t.buckets[t.entries[i].Hash&uint64(len(t.buckets)-1)]
		t.next[i] = *b
		*b = int32(i)
	}
}

// cut takes away the entries from an address on, which are the newest.
func (t *table) cut(from int64) {
	n := len(t.entries)
	for ; n > 0 && t.entries[n-1].Address >= from; n-- {
		t.buckets[t.entries[n-1].Hash&uint64(len(t.buckets)-1)] = t.next[n-1]
	}
	t.entries, t.next = t.entries[:n], t.next[:n]
}

// find fills dst with entries of the hash, newest first, from the chain's entry at on, -1 for its beginning; more is where to go
// on, or -2 when that was all.
func (t *table) find(hash uint64, at int32, dst []Entry) (n int, more int32) {
	if at == -1 || int(at) >= len(t.entries) { // or cut meanwhile: what is left is older than all that was found
		if len(t.buckets) == 0 {
			return 0, -2
		}
		at = t.buckets[hash&uint64(len(t.buckets)-1)]
	}
	for at >= 0 {
		if e := &t.entries[at]; e.Hash == hash {
			if n == len(dst) {
				return n, at
			}
			dst[n] = *e
			n++
		}
		at = t.next[at]
	}
	return n, -2
}

// sorted returns the entries in the order of a run, in the memory of buf when they fit. Hashes lie anywhere, so their
// highest bits say nearly where each goes, and little is left to sort.
func (t *table) sorted(buf []Entry) []Entry {
	n := len(t.entries)
	if cap(buf) < n {
		buf = make([]Entry, n)
	}
	buf = buf[:n]
	shift := 64 - max(0, bits.Len(uint(n))-4) // 16 to 32 in a bucket
	ends := make([]int32, 1<<(64-shift))
	for i := range t.entries {
		ends[t.entries[i].Hash>>shift]++
	}
	sum := int32(0)
	for i, k := range ends {
		ends[i] = sum
		sum += k
	}
	for i := range t.entries {
		at := &ends[t.entries[i].Hash>>shift]
		buf[*at] = t.entries[i]
		*at++
	}
	from := int32(0)
	for _, end := range ends {
		if end-from > 1 {
			slices.SortFunc(buf[from:end], compare)
		}
		from = end
	}
	return buf
}
