package broker

import (
	"hash/maphash"
	"sync"
)

// creations lets one goroutine at a time look for a name and make it. Different names hardly wait for each other, so the
// table that keeps them writes many that arrive together in one go; a lock over all of them made every topic of a thousand
// wait for a write of its own. The limits of topics and groups are looked at under it too, and so can be passed by as many
// as there are locks.
type creations struct {
	once  sync.Once
	seed  maphash.Seed
	locks [64]sync.Mutex
}

// lock takes the lock of a name and returns what gives it back.
func (c *creations) lock(name string) (unlock func()) {
	c.once.Do(func() { c.seed = maphash.MakeSeed() })
	l := &c.locks[maphash.String(c.seed, name)%uint64(len(c.locks))]
	l.Lock()
	return l.Unlock
}
