package main

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// histogram counts durations in buckets about 3% wide. Its methods may be called from any goroutine.
type histogram struct{ n [64 * steps]atomic.Uint32 }

const steps = 32 // buckets a power of two

func bucket(d time.Duration) int {
	v := uint64(max(d, 1))
	if v < 2*steps {
		return int(v)
	}
	e := bits.Len64(v) - 6 // v>>e is within [steps, 2*steps)
	return min(e*steps+int(v>>e), 64*steps-1)
}

// top is the largest duration of a bucket.
func top(i int) time.Duration {
	if i < 2*steps {
		return time.Duration(i)
	}
	e := i/steps - 1
	return time.Duration(uint64(i-e*steps+1)<<e - 1)
}

func (h *histogram) add(d time.Duration) { h.n[bucket(d)].Add(1) }

func (h *histogram) count() (n int64) {
	for i := range h.n {
		n += int64(h.n[i].Load())
	}
	return n
}

// quantile is an upper bound of the duration that the share q of all does not exceed.
func (h *histogram) quantile(q float64) time.Duration {
	want := int64(math.Ceil(q * float64(h.count())))
	var seen int64
	for i := range h.n {
		if seen += int64(h.n[i].Load()); seen >= want && seen > 0 {
			return top(i)
		}
	}
	return 0
}
