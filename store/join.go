package store

import (
	"errors"
	"sync"
	"time"

	"github.com/fusionmq/fusionmq/store/state"
)

const (
	joinMost   = 512                    // operations of one record
	joinWait   = 2 * time.Millisecond   // how long the first waits for a second, at most
	joinMisses = 4                      // so many waits in vain, one after the other, and nobody waits any more
	joinProbe  = 200 * time.Millisecond // until it is tried again
)

// joiner lets the ends of transactions and delays that come together share a record: its head takes four times what a commit takes in it.
//
// Who finds nobody writing writes for all that have come by then, and who comes meanwhile is in the next record. At a few thousand a second that alone joins
// nothing, since a write takes microseconds. So the first waits for a second one, as long as that has paid: a caller that ends its transactions one after the
// other never has company, and after joinMisses vain waits it does not wait any more but once in joinProbe, which costs it one part in a hundred. Ends that are
// further apart than twice joinWait, and several of one call, are written at once. To wait for a time instead of a second one was tried: many callers that wait for their
// answers were held to a group in every joinWait.
type joiner struct {
	s    *Store
	sync bool // writes what has to be durable
	mu   struct {
		sync.Mutex
		queue   []*joining
		busy    bool          // somebody has the pen: it writes, or waits for a second one
		company chan struct{} // closed when a second one comes; nil when nobody waits for it
		last    time.Time     // when the last one came
		vain    time.Time     // when a wait was last in vain
		misses  int           // waits in vain since one that was not
	}
}

// joining is one caller's operations.
type joining struct {
	ops  []state.Op
	err  error
	wake chan bool // cap 1: true, take the pen; false, they are written and err is set
}

func (j *joiner) init(s *Store, sync bool) {
	j.s, j.sync, j.mu.misses = s, sync, joinMisses
}

// operate is Store.operate for operations that may share their record with others.
func (j *joiner) operate(ops []state.Op) error {
	me := &joining{ops: ops, wake: make(chan bool, 1)}
	now := j.s.o.Now()
	m := &j.mu
	m.Lock()
	near := now.Sub(m.last) < 2*joinWait
	m.last = now
	m.queue = append(m.queue, me)
	if m.busy {
		if m.company != nil {
			close(m.company)
			m.company = nil
		}
		m.Unlock()
		if !<-me.wake {
			return me.err
		}
		m.Lock()
	}
	m.busy = true
	if len(m.queue) == 1 && len(ops) == 1 && near && (m.misses < joinMisses || now.Sub(m.vain) >= joinProbe) {
		j.waitLocked()
	}
	n := 1
	for size := len(ops); n < len(m.queue) && size+len(m.queue[n].ops) <= joinMost; n++ {
		size += len(m.queue[n].ops)
	}
	group := m.queue[:n:n]
	m.queue = m.queue[n:]
	m.Unlock()

	j.write(group)
	m.Lock()
	if m.busy = len(m.queue) > 0; m.busy {
		m.queue[0].wake <- true
	} else {
		m.queue = nil
	}
	m.Unlock()
	for _, o := range group[1:] {
		o.wake <- false
	}
	return me.err
}

// waitLocked waits for a second caller. It unlocks meanwhile.
func (j *joiner) waitLocked() {
	m := &j.mu
	company := make(chan struct{})
	m.company = company
	m.Unlock()
	timer := time.NewTimer(joinWait)
	select {
	case <-company:
	case <-timer.C:
	case <-j.s.stop:
	}
	timer.Stop()
	m.Lock()
	m.company = nil
	if len(m.queue) > 1 {
		m.misses = 0
	} else if m.misses++; m.misses >= joinMisses {
		m.vain = j.s.o.Now()
	}
}

// write writes a group as one record. When that is refused each is written alone, since what is wrong with one concerns no other.
func (j *joiner) write(group []*joining) {
	if len(group) > 1 {
		var ops []state.Op
		for _, o := range group {
			ops = append(ops, o.ops...)
		}
		if _, err := j.s.operate(ops, j.sync); err == nil || errors.Is(err, ErrFlushTimeout) {
			for _, o := range group {
				o.err = err
			}
			return
		}
	}
	for _, o := range group {
		_, o.err = j.s.operate(o.ops, j.sync)
	}
}
