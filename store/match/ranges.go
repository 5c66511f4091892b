package match

import (
	"math/bits"
	"slices"
)

// ranges finds the filters that ask for a number between two bounds. It is immutable.
//
// It is a segment tree: bounds cut the numbers into points and the gaps between them, which are the leaves, and a range is
// kept at the few nodes that together cover it. A lookup visits the leaf of a number and what is above it, so its cost is
// the logarithm of the number of ranges and the filters that are found, also when ranges overlap.
type ranges[T comparable] struct {
	all    []interval[T]
	bounds []float64      // ascending, finite ones and infinities alike
	leaves int            // a power of two
	nodes  [][]posting[T] // node i has the children 2i and 2i+1, leaves begin at index leaves
}

type interval[T comparable] struct {
	low, high float64
	posting[T]
}

// forest is ranges in several trees, each larger than all behind it together but for small ones, so that one more range makes few of them again.
type forest[T comparable] []*ranges[T]

const smallTree = 32 // ranges; up to here one tree is made again for each

// with returns a forest with one more range.
func (f forest[T]) with(low, high float64, p posting[T]) forest[T] {
	all := []interval[T]{{low, high, p}}
	n := len(f)
	for n > 0 && len(f[n-1].all) <= max(len(all), smallTree) {
		n--
		all = append(slices.Clip(f[n].all), all...)
	}
	return append(slices.Clone(f[:n]), newRanges(all))
}

// size is the number of ranges.
func (f forest[T]) size() int {
	n := 0
	for _, r := range f {
		n += len(r.all)
	}
	return n
}

// swept returns a forest of the ranges whose filters have not gone, nil when there are none.
func (f forest[T]) swept() forest[T] {
	var all []interval[T]
	for _, r := range f {
		for _, i := range r.all {
			if !i.gone() {
				all = append(all, i)
			}
		}
	}
	if all == nil {
		return nil
	}
	return forest[T]{newRanges(all)}
}

func newRanges[T comparable](all []interval[T]) *ranges[T] {
	r := &ranges[T]{all: all}
	for _, i := range all {
		r.bounds = append(r.bounds, i.low, i.high)
	}
	slices.Sort(r.bounds)
	r.bounds = slices.Clip(slices.Compact(r.bounds))
	r.leaves = 1 << bits.Len(uint(2*len(r.bounds)))
	r.nodes = make([][]posting[T], 2*r.leaves)
	for _, i := range all {
		if i.low > i.high {
			continue // nothing is in it
		}
		from, to := r.leaves+r.leaf(i.low), r.leaves+r.leaf(i.high)+1
		for ; from < to; from, to = from/2, to/2 {
			if from&1 == 1 {
				r.nodes[from] = append(r.nodes[from], i.posting)
				from++
			}
			if to&1 == 1 {
				to--
				r.nodes[to] = append(r.nodes[to], i.posting)
			}
		}
	}
	return r
}

// leaf is the leaf of a number: an odd one for a bound, an even one for a gap.
func (r *ranges[T]) leaf(n float64) int {
	low, high := 0, len(r.bounds)
	for low < high {
		if mid := int(uint(low+high) / 2); r.bounds[mid] < n {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low < len(r.bounds) && r.bounds[low] == n {
		return 2*low + 1
	}
	return 2 * low
}

// take appends the owners of the filters that select the message and have n in a range.
func (r *ranges[T]) take(dst []T, n float64, w *Matcher, whole bool) []T {
	if n != n {
		// For RocketMQ not-a-number is above every number.
		for i := range r.all {
			dst = r.all[i].take(dst, w, false)
		}
		return dst
	}
	for i := r.leaves + r.leaf(n); i > 0; i /= 2 {
		for k := range r.nodes[i] {
			dst = r.nodes[i][k].take(dst, w, whole)
		}
	}
	return dst
}
