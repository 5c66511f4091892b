package state

import "math"

// OutcomeMemory is how long, by store time, the outcome of a transaction is remembered at least, in milliseconds: longer than the ten
// minutes of ruling A22.
const OutcomeMemory = 15 * 60_000

// Outcome is what became of a half.
type Outcome uint8

const (
	Unknown   Outcome = iota // never there, or its outcome is forgotten
	Undecided                // to be asked about
	Aside                    // undecided, and nobody is asked any more
	Committed
	RolledBack
)

// Flags of a delay: the ViewKind that it is published with.
// Flags of an outcome: the Outcome.

// RememberOutcomes sets how long outcomes are remembered, in milliseconds; less than OutcomeMemory counts as that.
func (m *Machine) RememberOutcomes(ms int64) {
	m.remember = max(ms, OutcomeMemory)
	m.pruneAt = math.MaxInt64
	m.byDue(spaceOutcome, -1, 0, 0, func(w *waiting) bool {
		m.pruneAt = w.due + m.remember
		return false
	})
}

// SetTime tells the store time of the record that Message, Half, Delay or Apply is given next, in milliseconds since 1970.
func (m *Machine) SetTime(ms int64) { m.now = max(m.now, ms) }

// Half takes a half message: h names the real topic. It is due for its first check at due.
func (m *Machine) Half(h *Head, due int64) {
	if h.Address <= m.at {
		return
	}
	m.at = h.Address
	m.add(spaceHalf, &waiting{due: due, address: h.Address, position: h.Position, size: h.Size, topic: m.topic(h.Topic).id})
	m.stats.Halves++
}

// Delay takes a delayed message: h names the real topic. It is published at due with a view of this kind.
func (m *Machine) Delay(h *Head, due int64, kind ViewKind) {
	if h.Address <= m.at {
		return
	}
	m.at = h.Address
	m.add(spaceDelay, &waiting{due: due, address: h.Address, position: h.Position, size: h.Size, topic: m.topic(h.Topic).id, flags: uint32(kind)})
	m.stats.Delays++
}

// applyWaiting reports whether the operation found what it names.
func (m *Machine) applyWaiting(op *Op) bool {
	switch op.Kind {
	case OpPublish:
		return m.publish(op)
	case OpRollback:
		return m.rollback(op)
	case OpCancel:
		return m.cancel(op)
	case OpCheck:
		w, ok := m.get(spaceHalf, op.First, 0)
		if !ok {
			return false
		}
		next := w
		next.attempt, next.due = op.Attempt, op.Due
		m.replace(spaceHalf, &w, &next)
		return true
	case OpDefer:
		w, s, ok := m.half(op.First)
		if !ok {
			return false
		}
		m.endHalf(s, &w, Committed)
		m.add(spaceDelay, &waiting{due: op.Due, address: w.address, position: w.position, size: w.size, topic: w.topic, flags: uint32(ViewCommit)})
		m.stats.Delays++
		return true
	case OpReturn, OpPopped:
		return m.giveBack(op)
	case OpAdopt:
		m.empty(spaceHalf, &m.stats.Halves)
		m.empty(spaceAside, &m.stats.Aside)
		m.empty(spaceDelay, &m.stats.Delays)
		return true
	case OpHold:
		return m.hold(op)
	}
	return false
}

// half finds an undecided half, in either of its places.
func (m *Machine) half(address int64) (waiting, space, bool) {
	if m.stats.Halves > 0 {
		if w, ok := m.get(spaceHalf, address, 0); ok {
			return w, spaceHalf, true
		}
	}
	if m.stats.Aside > 0 {
		if w, ok := m.get(spaceAside, address, 0); ok {
			return w, spaceAside, true
		}
	}
	return waiting{}, 0, false
}

// endHalf moves a half to the outcomes.
func (m *Machine) endHalf(s space, w *waiting, o Outcome) {
	m.remove(s, w)
	if s == spaceHalf {
		m.stats.Halves--
	} else {
		m.stats.Aside--
	}
	m.add(spaceOutcome, &waiting{due: m.now, address: w.address, position: w.position, size: w.size, topic: w.topic, flags: uint32(o)})
	m.stats.Outcomes++
	m.pruneAt = min(m.pruneAt, m.now+m.remember)
}

// forgetOutcomes drops what is old enough. Only store times count, so a replay forgets the same.
func (m *Machine) forgetOutcomes() {
	for m.now >= m.pruneAt {
		var old [scanPage]waiting
		n := 0
		m.pruneAt = math.MaxInt64
		m.byDue(spaceOutcome, -1, 0, 0, func(w *waiting) bool {
			if n == len(old) || w.due+m.remember > m.now {
				m.pruneAt = w.due + m.remember
				return false
			}
			old[n] = *w
			n++
			return true
		})
		for i := range old[:n] {
			m.remove(spaceOutcome, &old[i])
			m.stats.Outcomes--
		}
	}
}

func (m *Machine) publish(op *Op) bool {
	switch op.View.Kind {
	case ViewCommit:
		if w, s, ok := m.half(op.First); ok {
			m.endHalf(s, &w, Committed)
			return true
		}
		return m.undelay(op.First) // committed before, for later
	case ViewDelay, ViewTimer:
		return m.undelay(op.First)
	case ViewAside:
		w, ok := m.get(spaceHalf, op.First, 0)
		if !ok {
			return false
		}
		m.remove(spaceHalf, &w)
		w.due = m.now
		m.add(spaceAside, &w)
		m.stats.Halves--
		m.stats.Aside++
		return true
	case ViewRetry, ViewRevive:
		return m.unreturn(op)
	case ViewDead:
		if m.unreturn(op) {
			return true
		}
		m.retire(&Op{Kind: OpRetire, Topic: op.Topic, Group: op.Group, First: op.First})
		return true // a pull group sends back what it has read, which is in no place of ours
	}
	return false
}

func (m *Machine) undelay(address int64) bool {
	w, ok := m.get(spaceDelay, address, 0)
	if ok {
		m.remove(spaceDelay, &w)
		m.stats.Delays--
	}
	return ok
}

func (m *Machine) unreturn(op *Op) bool {
	g := m.groups[op.Group]
	if g == nil || m.stats.Returns == 0 {
		return false
	}
	w, ok := m.get(spaceReturn, op.First, g.id)
	if ok {
		m.remove(spaceReturn, &w)
		m.stats.Returns--
	}
	return ok
}

func (m *Machine) giveBack(op *Op) bool {
	g, t := m.group(op.Group), m.topic(op.Topic)
	w := waiting{due: op.Due, address: op.First, position: op.Position, size: op.Size, attempt: op.Attempt, group: g.id, topic: t.id, flags: uint32(op.Level)}
	if op.Kind == OpPopped {
		w.flags |= popped
	}
	if old, ok := m.get(spaceReturn, op.First, g.id); ok {
		m.replace(spaceReturn, &old, &w)
		m.noteLate(spaceReturn, &w) // it may have come from where the body was
		return true
	}
	m.add(spaceReturn, &w)
	m.stats.Returns++
	return true
}

// ranged collects what of a topic waits in a space between two addresses, in pages, and calls fn for each.
func (m *Machine) ranged(s space, op *Op, fn func(w *waiting)) bool {
	t := m.topics[op.Topic]
	if t == nil {
		return false
	}
	found := false
	for from := op.First; ; {
		var page [scanPage]waiting
		n := 0
		m.byAddress(s, from, op.Last, func(w *waiting) bool {
			if from = w.address + 1; w.topic == t.id {
				page[n] = *w
				n++
			}
			return n < len(page)
		})
		for i := range page[:n] {
			found = true
			fn(&page[i])
		}
		if n < len(page) {
			return found
		}
	}
}

func (m *Machine) rollback(op *Op) bool {
	found := false
	for _, s := range [...]space{spaceHalf, spaceAside} {
		found = m.ranged(s, op, func(w *waiting) { m.endHalf(s, w, RolledBack) }) || found
	}
	return found
}

func (m *Machine) cancel(op *Op) bool {
	return m.ranged(spaceDelay, op, func(w *waiting) {
		m.remove(spaceDelay, w)
		m.stats.Delays--
	})
}

// empty takes everything out of a space.
func (m *Machine) empty(s space, count *int) {
	for first := int64(0); *count > 0; {
		var page [scanPage]waiting
		n := 0
		m.byAddress(s, first, math.MaxInt64, func(w *waiting) bool {
			page[n] = *w
			n++
			return n < len(page)
		})
		if n == 0 {
			*count = 0
			return
		}
		for i := range page[:n] {
			m.remove(s, &page[i])
		}
		first = page[n-1].address // not behind it: several groups may have one
		*count -= n
	}
}

func (m *Machine) hold(op *Op) bool {
	w := waiting{due: op.Due, address: op.First, position: op.Position, size: op.Size, attempt: op.Attempt, topic: m.topic(op.Topic).id}
	s, count := spaceDelay, &m.stats.Delays
	switch HoldKind(op.Level) {
	case HoldHalf:
		s, count = spaceHalf, &m.stats.Halves
	case HoldDelay:
		w.flags = uint32(ViewDelay)
	case HoldTimer:
		w.flags = uint32(ViewTimer)
	}
	if old, ok := m.get(s, op.First, 0); ok {
		m.replace(s, &old, &w)
		return true
	}
	m.add(s, &w)
	*count++
	return true
}

// HalfState is what became of a half, and when undecided, how often it was asked about and when it is due.
type HalfState struct {
	Outcome           Outcome
	Topic             string
	Address, Position int64
	Size              int32
	Checks            int32
	Due               int64 // next check; of an outcome: when it came
}

// HalfAt tells about the half at an address.
func (m *Machine) HalfAt(address int64) HalfState {
	w, s, ok := m.half(address)
	h := HalfState{Outcome: Undecided}
	if s == spaceAside {
		h.Outcome = Aside
	}
	if !ok {
		if w, ok = m.get(spaceOutcome, address, 0); !ok {
			return HalfState{Address: address}
		}
		h.Outcome = Outcome(w.flags)
	}
	h.fill(m, &w)
	return h
}

func (h *HalfState) fill(m *Machine, w *waiting) {
	h.Topic, h.Address, h.Position, h.Size, h.Checks, h.Due = m.topicName(w.topic), w.address, w.position, w.size, w.attempt, w.due
}

// Halves fills dst with undecided halves in the order of their next check, starting behind after, or at the first one when after
// is the zero HalfState; aside asks for those that were moved aside instead.
func (m *Machine) Halves(aside bool, after HalfState, dst []HalfState) int {
	s, o := spaceHalf, Undecided
	if aside {
		s, o = spaceAside, Aside
	}
	due, address := after.Due, after.Address
	if after == (HalfState{}) {
		due, address = -1, -1
	}
	n := 0
	if len(dst) == 0 {
		return 0
	}
	m.byDue(s, due, address, 0, func(w *waiting) bool {
		dst[n] = HalfState{Outcome: o}
		dst[n].fill(m, w)
		n++
		return n < len(dst)
	})
	return n
}

// Due is something to be published.
type Due struct {
	Kind      ViewKind
	Topic     string // the message's
	Group     string // of a ViewRetry or ViewRevive
	Address   int64
	Position  int64
	Size      int32
	Due       int64
	Attempt   int32
	Level     int32 // of a ViewRetry: delay level; of a ViewRevive: milliseconds from the pop to Due
	fromGroup uint32
}

// Delays fills dst with delayed messages in the order of their time, starting behind after, or at the first one when after is
// the zero Due.
func (m *Machine) Delays(after Due, dst []Due) int {
	n, _ := m.dues(spaceDelay, m.stats.Delays, after, math.MaxInt64, dst)
	return n
}

// Returns is Delays for what pull groups have sent back, or had been given by a pop of another program and not acknowledged.
func (m *Machine) Returns(after Due, dst []Due) int {
	n, _ := m.dues(spaceReturn, m.stats.Returns, after, math.MaxInt64, dst)
	return n
}

// DelaysUntil is Delays for what is due at a time or before, which is all that it reads, but for one: next is the time of the first one
// behind it, math.MaxInt64 when there is none, or dst is full.
func (m *Machine) DelaysUntil(after Due, until int64, dst []Due) (n int, next int64) {
	return m.dues(spaceDelay, m.stats.Delays, after, until, dst)
}

// ReturnsUntil is DelaysUntil for Returns.
func (m *Machine) ReturnsUntil(after Due, until int64, dst []Due) (n int, next int64) {
	return m.dues(spaceReturn, m.stats.Returns, after, until, dst)
}

func (m *Machine) dues(s space, count int, after Due, until int64, dst []Due) (n int, next int64) {
	next = math.MaxInt64
	if count == 0 || len(dst) == 0 {
		return 0, next
	}
	due, address := after.Due, after.Address
	if after == (Due{}) {
		due, address = -1, -1
	}
	m.byDue(s, due, address, after.fromGroup, func(w *waiting) bool {
		if w.due > until {
			next = w.due
			return false
		}
		d := Due{Kind: ViewKind(w.flags), Topic: m.topicName(w.topic), Address: w.address, Position: w.position, Size: w.size, Due: w.due, Attempt: w.attempt, fromGroup: w.group}
		if s == spaceReturn {
			d.Kind, d.Level, d.Group = ViewRetry, int32(w.flags&^popped), m.groupName(w.group)
			if w.flags&popped != 0 {
				d.Kind = ViewRevive
			}
		}
		dst[n] = d
		n++
		return n < len(dst)
	})
	return n, next
}

// DelayAt finds a delayed message by its address.
func (m *Machine) DelayAt(address int64) (d Due, ok bool) {
	w, ok := m.get(spaceDelay, address, 0)
	if !ok {
		return d, false
	}
	return Due{Kind: ViewKind(w.flags), Topic: m.topicName(w.topic), Address: w.address, Position: w.position, Size: w.size, Due: w.due}, true
}
