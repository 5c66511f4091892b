package delivery

import (
	"slices"
	"sync"
	"time"

	"github.com/fusionmq/fusionmq/store/state"
)

// Ledger collects what became of every message and turns it into operate-queue entries.
//
// A message of the window is done when each of its targets has an outcome. Done ones that stand side by side in their
// topic's window make one range. A target that failed is written at once and on its own, so that its retry waits for
// nobody; an acknowledgement that waits longer than the linger time for the other groups of its message is written on
// its own too, in ranges again. So the state on disk is never further behind than one linger time, whatever one slow
// group does.
//
// Its methods may be called from any goroutine. The lock is taken after a group's lock and held for a short time; no
// method calls out.
type Ledger struct {
	linger int64
	wake   func() // called without the lock when there is something new to write

	mu struct {
		sync.Mutex
		windows map[string]*window
		arena   arena[windowMessage]
		open    int // messages in all windows
		awake   bool

		updates []state.Op // failures
		retires []state.Op // single acknowledgements: retries, and shares that a detach has made retries of
		done    []*Message // all targets have an outcome
		linger  fifo[lingering]
		cursors []state.Op
		at      map[cursorKey]int // index in cursors
	}
}

type window struct{ head, tail *Message }

type lingering struct {
	msg   *Message
	since int64
}

type cursorKey struct{ topic, group string }

// NewLedger makes an empty ledger. wake is called when there is something to write and there was nothing before.
func NewLedger(linger time.Duration, wake func()) *Ledger {
	if linger == 0 {
		linger = 250 * time.Millisecond
	}
	l := &Ledger{linger: linger.Milliseconds(), wake: wake}
	l.mu.windows = make(map[string]*window)
	l.mu.at = make(map[cursorKey]int)
	return l
}

// Add takes messages of the window in address order per topic and returns them in dst, one each. A caller that gives
// no targets gets nil for it.
func (l *Ledger) Add(dst []*Message, owed []state.Owed) []*Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range owed {
		o := &owed[i]
		if len(o.Targets) == 0 {
			dst = append(dst, nil)
			continue
		}
		wm := l.mu.arena.take()
		m := &wm.Message
		m.shares = &wm.own
		m.Topic, m.Queue, m.Size, m.Address, m.Position, m.Time, m.TagsCode = o.Topic, o.Queue, o.Size, o.Address, o.Position, o.Time, o.TagsCode
		m.targets, m.open = o.Targets, int32(len(o.Targets))
		switch n := len(o.Targets); {
		case n > len(m.few):
			m.states = make([]shareState, n)
		case n > 1: // one target needs no state: open says it all
			m.states = m.few[:n]
		}
		w := l.mu.windows[o.Topic]
		if w == nil {
			w = &window{}
			l.mu.windows[o.Topic] = w
		}
		m.prev = w.tail
		if w.tail != nil {
			w.tail.next = m
		} else {
			w.head = m
		}
		w.tail = m
		l.mu.open++
		dst = append(dst, m)
	}
	return dst
}

// Open is how many messages have targets without an outcome, or an outcome that is not written yet.
func (l *Ledger) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.open
}

// cursorAt is a cursor's new place.
type cursorAt struct {
	topic string
	at    int64
}

// settle takes outcomes of one group, and where its cursors are now, as one: Ops gives both or none. Its caller holds the
// group's lock.
func (l *Ledger) settle(group string, outs []outcome, cursors []cursorAt) {
	l.mu.Lock()
	for i := range outs {
		o := &outs[i]
		if o.failed {
			l.mu.updates = append(l.mu.updates, state.Op{
				Kind: state.OpUpdate, Topic: o.msg.Topic, First: o.msg.Address,
				Failed: []state.Failed{{Group: group, Attempt: o.attempt, Due: o.due}},
			})
		} else if o.source == fromRetry {
			l.mu.retires = append(l.mu.retires, state.Op{Kind: state.OpRetire, Topic: o.msg.Topic, Group: group, First: o.msg.Address})
		}
		if o.source == fromWindow {
			st := acked
			if o.failed {
				st = settled
			}
			l.closeLocked(o.msg, o.share, st)
		}
	}
	for _, c := range cursors {
		k := cursorKey{c.topic, group}
		if i, ok := l.mu.at[k]; ok {
			l.mu.cursors[i].First = c.at
		} else {
			l.mu.at[k] = len(l.mu.cursors)
			l.mu.cursors = append(l.mu.cursors, state.Op{Kind: state.OpCursor, Topic: c.topic, Group: group, First: c.at})
		}
	}
	l.wakeLocked()
}

// moved gives up a share that a detach has made a retry of; its caller holds the group's lock.
func (l *Ledger) moved(m *Message, share int32) {
	l.mu.Lock()
	l.closeLocked(m, share, settled)
	l.wakeLocked()
}

// Moved gives up a share of a group that is not here.
func (l *Ledger) Moved(m *Message, share int) { l.moved(m, int32(share)) }

// Retire ends a retry whose message cannot be delivered any more.
func (l *Ledger) Retire(topic, group string, address int64) {
	l.mu.Lock()
	l.mu.retires = append(l.mu.retires, state.Op{Kind: state.OpRetire, Topic: topic, Group: group, First: address})
	l.wakeLocked()
}

// closeLocked notes the outcome of a share.
func (l *Ledger) closeLocked(m *Message, share int32, st shareState) {
	if m.open == 0 || m.stateOf(int(share)) != pending {
		return // a detach has closed it already
	}
	m.setState(int(share), st)
	if m.open--; m.open == 0 {
		m.closed = true
		l.mu.done = append(l.mu.done, m)
	} else if !m.lingers && st == acked {
		m.lingers = true
		l.mu.linger.push(lingering{m, 0})
	}
}

// The states of messages with one target, so that the usual message has no slice of its own. They are never written.
var (
	oneSettled = []shareState{settled}
	oneAcked   = []shareState{acked}
)

func (m *Message) stateOf(i int) shareState {
	if m.states == nil {
		return pending
	}
	return m.states[i]
}

func (m *Message) setState(i int, st shareState) {
	switch {
	case len(m.targets) > 1:
		m.states[i] = st
	case st == acked:
		m.states = oneAcked
	default:
		m.states = oneSettled
	}
}

// target is the index of a group among the targets, -1 when the message is not owed to it.
func (m *Message) target(group string) int { return slices.Index(m.targets, group) }

// wakeLocked gives up the lock, and wakes the writer when it sleeps.
func (l *Ledger) wakeLocked() {
	wake := !l.mu.awake && l.pendingLocked()
	l.mu.awake = l.mu.awake || wake
	l.mu.Unlock()
	if wake {
		l.wake()
	}
}

func (l *Ledger) pendingLocked() bool {
	return len(l.mu.updates) > 0 || len(l.mu.retires) > 0 || len(l.mu.done) > 0 || l.mu.linger.len() > 0 || len(l.mu.cursors) > 0
}

// Ops appends the operations that are due at now (milliseconds), or all of them, and forgets them: the caller keeps
// them until they are written. The order matters: failures come before the ranges that cover their messages, cursors
// after the failures of messages they pass. sleep says that nothing is left to wait for: wake will be called again.
func (l *Ledger) Ops(dst []state.Op, now int64, all bool) (ops []state.Op, sleep bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	dst = l.opsLocked(dst, now, all)
	if sleep = !l.pendingLocked(); sleep {
		l.mu.awake = false
	}
	return dst, sleep
}

func (l *Ledger) opsLocked(dst []state.Op, now int64, all bool) []state.Op {
	dst = append(dst, l.mu.updates...)
	dst = append(dst, l.mu.retires...)
	dst = append(dst, l.mu.cursors...)
	clear(l.mu.updates)
	clear(l.mu.retires)
	clear(l.mu.cursors)
	clear(l.mu.at)
	l.mu.updates, l.mu.retires, l.mu.cursors = l.mu.updates[:0], l.mu.retires[:0], l.mu.cursors[:0]
	dst = l.lingerLocked(dst, now, all)
	return l.deletesLocked(dst)
}

// deletesLocked makes ranges of the done messages and drops them from their windows.
func (l *Ledger) deletesLocked(dst []state.Op) []state.Op {
	for i, m := range l.mu.done {
		l.mu.done[i] = nil
		if !m.closed {
			continue // went with an earlier one's range
		}
		w := l.mu.windows[m.Topic]
		first, last := m, m
		for first.prev != nil && first.prev.closed {
			first = first.prev
		}
		for last.next != nil && last.next.closed {
			last = last.next
		}
		if first.prev != nil {
			first.prev.next = last.next
		} else {
			w.head = last.next
		}
		if last.next != nil {
			last.next.prev = first.prev
		} else {
			w.tail = first.prev
		}
		needed := false
		from, to := first.Address, last.Address
		for n := first; n != nil; {
			next := n.next
			if n == last {
				next = nil
			}
			n.closed = false
			for _, st := range n.states {
				needed = needed || st == acked
			}
			n.prev, n.next = nil, nil
			l.mu.open--
			n = next
		}
		if needed {
			dst = append(dst, state.Op{Kind: state.OpDelete, Topic: m.Topic, First: from, Last: to})
		}
	}
	l.mu.done = l.mu.done[:0]
	return dst
}

// lingerLocked writes acknowledgements that have waited long enough for other groups: for each group, runs of
// neighbours in the window.
func (l *Ledger) lingerLocked(dst []state.Op, now int64, all bool) []state.Op {
	var runs map[string]int // group -> index in dst of its last run
	var ends map[string]*Message
	for l.mu.linger.len() > 0 {
		e := l.mu.linger.at(0)
		if e.since == 0 {
			e.since = now
		}
		if !all && now-e.since < l.linger && e.msg.open > 0 {
			break
		}
		m := l.mu.linger.pop().msg
		m.lingers = false
		if m.open == 0 {
			continue
		}
		for i, st := range m.states {
			if st != acked {
				continue
			}
			m.setState(i, settled)
			g := m.targets[i]
			if runs == nil {
				runs, ends = make(map[string]int), make(map[string]*Message)
			}
			if end := ends[g]; end != nil && end == m.prev && end.Topic == m.Topic {
				dst[runs[g]].Last = m.Address
			} else {
				runs[g] = len(dst)
				dst = append(dst, state.Op{Kind: state.OpRetire, Topic: m.Topic, Group: g, First: m.Address, Last: m.Address})
			}
			ends[g] = m
		}
	}
	// What came after the first of the queue was seen gets its time now; its own wait is at most one flush longer.
	for i := range l.mu.linger.len() {
		e := l.mu.linger.at(l.mu.linger.len() - 1 - i)
		if e.since != 0 {
			break
		}
		e.since = now
	}
	return dst
}

// DetachOps appends, behind all that is pending, what the log must say before a detach of the group: every
// acknowledgement it has given. The caller writes them and the detach as one record, in this order.
func (l *Ledger) DetachOps(dst []state.Op, topic, group string, now int64) []state.Op {
	l.mu.Lock()
	defer l.mu.Unlock()
	dst = l.opsLocked(dst, now, false)
	w := l.mu.windows[topic]
	if w == nil {
		return dst
	}
	var run *Message
	for m := w.head; m != nil; m = m.next {
		i := m.target(group)
		if i < 0 || m.stateOf(i) != acked {
			continue
		}
		m.setState(i, settled)
		if run != nil && run == m.prev {
			dst[len(dst)-1].Last = m.Address
		} else {
			dst = append(dst, state.Op{Kind: state.OpRetire, Topic: topic, Group: group, First: m.Address, Last: m.Address})
		}
		run = m
	}
	return dst
}

// Detached tells that the group's detach is in the log at address at. What the window owed the group below it has
// become retries; acknowledgements that came while the record was being written are taken off those, and the addresses
// returned: the group is told with [Group.Taken], because the line shows them until that is applied.
func (l *Ledger) Detached(topic, group string, at int64) (taken []int64) {
	l.mu.Lock()
	if w := l.mu.windows[topic]; w != nil {
		for m := w.head; m != nil && m.Address < at; m = m.next {
			i := m.target(group)
			if i < 0 {
				continue
			}
			switch m.stateOf(i) {
			case pending:
				l.closeLocked(m, int32(i), settled)
			case acked:
				l.mu.retires = append(l.mu.retires, state.Op{Kind: state.OpRetire, Topic: topic, Group: group, First: m.Address})
				m.setState(i, settled)
				taken = append(taken, m.Address)
			}
		}
	}
	l.wakeLocked()
	return taken
}
