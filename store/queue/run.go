package queue

import (
	"math/bits"
	"sync/atomic"
)

// generation is a span of the log whose entries are in memory. All but the newest are finished: they get no more entries.
type generation struct {
	start  int64 // log position
	end    int64 // first position behind it; set when it is finished
	count  int   // entries
	loaded int   // how many of them came from a short file, which is still there under the name of this start
}

// run is what one queue has in one generation. Its first entries lie in one small block, which is cut from a slab, since
// with tens of thousands of queues a run has a handful of entries; then blocks double up to maxBlock.
//
// One writer fills slots in order and publishes them by Queue.visible; a reader that has loaded it may read every slot
// below it. Slots are never written again.
type run struct {
	gen   *generation
	base  int64                         // queue offset of the first entry
	first *[firstBlock]slotEntry        // entries 0..3
	more  atomic.Pointer[[][]slotEntry] // then 4, 8, 16, ... maxBlock, maxBlock, ...
	next  atomic.Pointer[run]           // the run in a later generation
}

const (
	firstBlock  = 4
	maxBlock    = 1024
	doubling    = 8                      // blocks of more before they are all of maxBlock: 4 8 16 32 64 128 256 512
	doublingEnd = firstBlock << doubling // entries before them
)

// slot returns the block of entry i of a run and its place there; blocks count from 0 for first.
func slot(i int) (block, at int) {
	switch {
	case i < firstBlock:
		return 0, i
	case i < doublingEnd:
		k := bits.Len(uint(i / firstBlock)) // 1 for 4..7, 2 for 8..15, ...
		return k, i - firstBlock<<(k-1)
	default:
		i -= doublingEnd
		return 1 + doubling + i/maxBlock, i % maxBlock
	}
}

func blockSize(block int) int {
	if block <= doubling {
		return firstBlock << (block - 1)
	}
	return maxBlock
}

func (r *run) block(k int) []slotEntry {
	if k == 0 {
		return r.first[:]
	}
	return (*r.more.Load())[k-1]
}

// at returns entry i, which must be published.
func (r *run) at(i int) *slotEntry {
	k, n := slot(i)
	return &r.block(k)[n]
}

// read copies entries from i on; all of them must be published.
func (r *run) read(i int, dst []Entry) {
	for len(dst) > 0 {
		k, n := slot(i)
		from := r.block(k)[n:]
		c := min(len(dst), len(from))
		for j := range c {
			dst[j] = from[j].entry()
		}
		dst, i = dst[c:], i+c
	}
}

// grow makes room for entry i, the next one, when it is the first of a block.
func (r *run) grow(k int) {
	var more [][]slotEntry
	if p := r.more.Load(); p != nil {
		more = *p
	}
	// Readers of the shorter slice do not look behind its end, so appending in place is safe.
	more = append(more, make([]slotEntry, blockSize(k)))
	r.more.Store(&more)
}

// slabs hand out runs and first blocks. One caller at a time. A slab belongs to one generation, since it is freed as a
// whole, when the last run cut from it is gone: shared with a later one it would keep all blocks of its runs.
type slabs struct {
	gen    *generation
	runs   []run
	blocks [][firstBlock]slotEntry
}

const slabRuns = 256

func (s *slabs) run(g *generation, base int64) *run {
	if len(s.runs) == 0 || s.gen != g {
		s.gen = g
		s.runs = make([]run, slabRuns)
		s.blocks = make([][firstBlock]slotEntry, slabRuns)
	}
	r := &s.runs[0]
	r.gen, r.base, r.first = g, base, &s.blocks[0]
	s.runs, s.blocks = s.runs[1:], s.blocks[1:]
	return r
}
