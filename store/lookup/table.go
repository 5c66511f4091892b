package lookup

import "slices"

// entry says that the message at an address has a key with a hash.
type entry struct {
	hash          uint64
	address, time int64
}

// before is the order in a run: by hash, then newest address first.
func (e entry) before(o entry) bool {
	return e.hash < o.hash || e.hash == o.hash && e.address > o.address
}

func compare(a, b entry) int {
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
	entries []entry
	next    []int32 // of each entry, the one before it in its bucket, or -1
	buckets []int32 // newest entry, or -1; a power of two
}

const minBuckets = 256

func newTable(start int64) *table { return &table{start: start} }

func (t *table) add(e entry) {
	if len(t.entries) >= len(t.buckets) {
		t.grow()
	}
	b := &t.buckets[e.hash&uint64(len(t.buckets)-1)]
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
		b := &t.buckets[t.entries[i].hash&uint64(len(t.buckets)-1)]
		t.next[i] = *b
		*b = int32(i)
	}
}

// cut takes away the entries from an address on, which are the newest.
func (t *table) cut(from int64) {
	n := len(t.entries)
	for ; n > 0 && t.entries[n-1].address >= from; n-- {
		t.buckets[t.entries[n-1].hash&uint64(len(t.buckets)-1)] = t.next[n-1]
	}
	t.entries, t.next = t.entries[:n], t.next[:n]
}

// find fills dst with entries of the hash, newest first, from the chain's entry at on, -1 for its beginning; more is where to go
// on, or -2 when that was all.
func (t *table) find(hash uint64, at int32, dst []entry) (n int, more int32) {
	if at == -1 || int(at) >= len(t.entries) { // or cut meanwhile: what is left is older than all that was found
		if len(t.buckets) == 0 {
			return 0, -2
		}
		at = t.buckets[hash&uint64(len(t.buckets)-1)]
	}
	for at >= 0 {
		if e := &t.entries[at]; e.hash == hash {
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

// sorted returns the entries in the order of a run.
func (t *table) sorted() []entry {
	es := slices.Clone(t.entries)
	slices.SortFunc(es, compare)
	return es
}
