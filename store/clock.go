package store

import (
	"sync"
	"sync/atomic"
	"time"
)

// clock makes store times. They never go back, for queues are searched by them. When the machine's clock was set back they go on from the newest
// one, a little slower than real time so that the clock gets there some day; to stand still would hold what is delayed for as long as
// the clock is behind. A second or less is waited for, though.
type clock struct {
	last   atomic.Int64 // the newest, milliseconds since 1970
	behind atomic.Bool  // the machine's clock is more than clockWaits behind
	mu     struct {
		sync.Mutex
		base int64     // store time at seen
		seen time.Time // when behind was noticed, or the clock was set again
	}
}

const (
	clockWaits = 1000 // milliseconds
	clockSlow  = 100  // of so many milliseconds one is left out
)

// now is the store time when the machine's clock says wall.
func (c *clock) now(wall time.Time) int64 {
	ms := wall.UnixMilli()
	for {
		last := c.last.Load()
		switch {
		case ms < last-clockWaits:
			return c.slow(wall)
		case ms <= last:
			return last
		}
		if c.last.CompareAndSwap(last, ms) {
			if c.behind.Load() {
				c.behind.Store(false)
			}
			return ms
		}
	}
}

// slow is now while the machine's clock is behind.
func (c *clock) slow(wall time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if passed := wall.Sub(c.mu.seen); c.behind.Load() && passed >= 0 { // by the monotonic clock, which nobody sets
		ms := passed.Milliseconds()
		c.raise(c.mu.base + ms - ms/clockSlow)
		return c.last.Load()
	}
	c.mu.base, c.mu.seen = c.last.Load(), wall
	c.behind.Store(true)
	return c.mu.base
}

// raise brings store times to at least ms.
func (c *clock) raise(ms int64) {
	for last := c.last.Load(); last < ms && !c.last.CompareAndSwap(last, ms); last = c.last.Load() {
	}
}

// now is the store time of this moment: at or above that of every record in the log.
func (s *Store) now() int64 { return s.clock.now(s.o.Now()) }
