package dedup

// Filter is a set of hashes in fixed memory. It forgets none; of hashes that it does not have it takes about 1 in 100 for its own
// while there are no more than 10 bits for each, and more of them beyond that.
//
// It has no lock.
type Filter struct {
	bits []byte
	n    int
}

// NewFilter makes an empty one of about so many bytes, at least 64.
func NewFilter(bytes int) *Filter {
	return &Filter{bits: make([]byte, max(1, bytes/blockBytes)*blockBytes)}
}

// Add puts a hash into the set.
func (f *Filter) Add(hash uint64) {
	if b := block(f.bits, hash); !has(b, hash) {
		set(b, hash)
		f.n++
	}
}

// May is false for a hash that is surely not in the set.
func (f *Filter) May(hash uint64) bool { return has(block(f.bits, hash), hash) }

// Len is how many different hashes were added, but for those that it took for its own already.
func (f *Filter) Len() int { return f.n }

// Bytes is the memory of the set.
func (f *Filter) Bytes() int { return len(f.bits) }
