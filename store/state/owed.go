package state

import "iter"

// OwedBody is a message that is owed by name, and where its record is.
type OwedBody struct {
	Topic             string
	Address, Position int64
	Size              int32 // 0: not known, see [Retry].Size
}

// OwedBelow goes through the messages that are owed by name and whose record is below a log position, in no order; one that several
// groups are owed may come several times.
func (m *Machine) OwedBelow(position int64) iter.Seq[OwedBody] {
	return func(yield func(OwedBody) bool) {
		for _, t := range m.topics {
			for i := t.window.head; i < len(t.window.shares); i++ {
				if s := &t.window.shares[i]; s.set != noSet && s.position < position && !yield(OwedBody{t.name, s.address, s.position, s.size}) {
					return
				}
			}
		}
		for _, g := range m.groups {
			more := true
			g.line.after(-1, 0, func(w *waiting) bool {
				if w.position < position {
					more = yield(OwedBody{w.topic.name, w.address, w.position, w.size})
				}
				return more
			})
			if !more {
				return
			}
		}
	}
}

// Place finds where the record of an address is, for as long as it is owed by name. It asks every topic and group, so it is for
// addresses that the log itself has lost.
func (m *Machine) Place(address int64) (b OwedBody, ok bool) {
	for _, t := range m.topics {
		if s := t.window.find(address); s != nil {
			return OwedBody{t.name, s.address, s.position, s.size}, true
		}
	}
	for _, g := range m.groups {
		if w := g.line.get(address); w != nil {
			return OwedBody{w.topic.name, w.address, w.position, w.size}, true
		}
	}
	return OwedBody{}, false
}

// relocate takes a message's new place wherever it is owed.
func (m *Machine) relocate(op *Op) bool {
	t := m.topics[op.Topic]
	if t == nil {
		return false
	}
	found := false
	if s := t.window.find(op.First); s != nil {
		s.position, s.size, found = op.Last, op.Size, true
	}
	for _, g := range m.groups {
		if w := g.line.get(op.First); w != nil && w.topic == t {
			w.position, w.size, found = op.Last, op.Size, true
		}
	}
	return found
}
