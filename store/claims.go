package store

import (
	"sync"

	"github.com/fusionmq/fusionmq/store/state"
)

// claims are the things that wait and whose end is being written: from the look at the state until the operation has taken effect, nobody
// else may end them. So the log has one end of each, and a publish never comes twice.
type claims struct {
	mu sync.Mutex
	of map[claim]*ending
}

// claim names one thing that waits.
type claim struct {
	group   string // of what a pull group has sent back; halves and delays have none
	address int64
}

// ending is an end that is being written.
type ending struct {
	outcome state.Outcome
	done    chan struct{} // closed when it is in the log, or is not
	err     error         // set before
}

// takeLocked claims c; false, and the one that is there, when somebody else has it.
func (cs *claims) takeLocked(c claim, o state.Outcome) (*ending, bool) {
	if e := cs.of[c]; e != nil {
		return e, false
	}
	if cs.of == nil {
		cs.of = map[claim]*ending{}
	}
	e := &ending{outcome: o, done: make(chan struct{})}
	cs.of[c] = e
	return e, true
}

// applied ends the claims of operations that have taken effect.
func (cs *claims) applied(ops []state.Op) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.of) == 0 {
		return
	}
	for i := range ops {
		if c, ok := claimOf(&ops[i]); ok {
			delete(cs.of, c)
		}
	}
}

// claimOf is what an operation needs a claim on.
func claimOf(op *state.Op) (c claim, ok bool) {
	c.address = op.First
	switch op.Kind {
	case state.OpRollback, state.OpCancel:
		return c, op.First == op.Last
	case state.OpReturn, state.OpPopped, state.OpPublish:
		c.group = op.Group
		return c, true
	case state.OpDefer:
		return c, true
	}
	return c, false
}
