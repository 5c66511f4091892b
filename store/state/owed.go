package state

import "math"

// OwedBody is a message that is owed by name, and where its record is.
type OwedBody struct {
	Topic             string
	Address, Position int64
	Size              int32 // 0: not known, see [Retry].Size
}

// Place finds where the record of an address is, for as long as it is owed by name. It asks every topic and group, so it is for
// addresses that the log itself has lost.
func (m *Machine) Place(address int64) (b OwedBody, ok bool) {
	for _, t := range m.byTopic {
		if s := t.window.find(address); s != nil {
			return OwedBody{t.name, s.address, s.position, s.size}, true
		}
	}
	for s := range m.spaces() {
		m.byAddress(s, address, address, func(w *waiting) bool {
			b, ok = OwedBody{m.topicName(w.topic), w.address, w.position, w.size}, true
			return false
		})
		if ok {
			return b, true
		}
	}
	return OwedBody{}, false
}

// OwedAt finds a message of a topic that is owed by name by its address.
func (m *Machine) OwedAt(topic string, address int64) (b OwedBody, ok bool) {
	t := m.topics[topic]
	if t == nil {
		return b, false
	}
	if s := t.window.find(address); s != nil {
		return OwedBody{t.name, s.address, s.position, s.size}, true
	}
	find := func(s space) {
		m.byAddress(s, address, address, func(w *waiting) bool {
			b, ok = OwedBody{t.name, w.address, w.position, w.size}, true
			return false
		})
	}
	for i, n := range []int{m.stats.Halves, m.stats.Aside, m.stats.Delays, m.stats.Returns} {
		if n > 0 && !ok {
			find(space(i))
		}
	}
	for _, l := range m.lines {
		if l.topic == t && l.count > 0 && !ok {
			find(l.space)
		}
	}
	return b, ok
}

// relocate takes a message's new place wherever it is owed.
func (m *Machine) relocate(op *Op) bool {
	t := m.topics[op.Topic]
	if t == nil {
		return false
	}
	found := false
	move := func(s space, w waiting) {
		old := w
		w.position, w.size = op.Last, op.Size
		m.replace(s, &old, &w)
		found = true
	}
	for i, n := range []int{m.stats.Halves, m.stats.Aside, m.stats.Delays} {
		if n == 0 {
			continue
		}
		if w, ok := m.get(space(i), op.First, 0); ok {
			move(space(i), w)
		}
	}
	if m.stats.Returns > 0 {
		var all []waiting // of one message, at most one for each group
		m.byAddress(spaceReturn, op.First, op.First, func(w *waiting) bool {
			all = append(all, *w)
			return true
		})
		for _, w := range all {
			move(spaceReturn, w)
		}
	}
	for _, l := range m.lines {
		if l.topic == t {
			if w, ok := m.retry(l, op.First); ok {
				move(l.space, w)
			}
		}
	}
	if s := t.window.find(op.First); s != nil {
		s.position, s.size, found = op.Last, op.Size, true
	}
	return found
}

// OwedKind says what an OwedEntry is.
type OwedKind uint8

const (
	OwedHalf   OwedKind = 1 + iota // undecided
	OwedAside                      // undecided, moved aside
	OwedDelay                      // not due yet
	OwedReturn                     // sent back by pull group Group
	OwedRetry                      // to be tried again for push group Group
	OwedWindow                     // owed to attached groups, and not answered
)

// OwedEntry is something that is owed by name.
type OwedEntry struct {
	Kind     OwedKind
	Topic    string
	Group    string // of OwedReturn and OwedRetry
	Address  int64
	Position int64 // of the body
	Size     int32 // 0: not known, Position is Address
	Attempt  int32
	Due      int64
}

// OwedPlace is how far Owed has come; the zero value is the beginning.
type OwedPlace struct {
	space   space
	address int64
	group   uint32
	topic   int // of the windows, which come last
	windows bool
}

// OwedWindows is the place of what attached groups are owed.
var OwedWindows = OwedPlace{windows: true}

// Owed fills dst with what is owed by name and has its body below a position, and returns how many and the place from which to
// go on; 0 at the end. Between calls the state may change: what is added or moved behind the place is seen, what is added in
// front of it has its body at or above the end of the log as of the first call.
func (m *Machine) Owed(below int64, from OwedPlace, dst []OwedEntry) (int, OwedPlace) {
	return m.OwedFrom(0, below, from, dst)
}

// OwedFrom is Owed without what has an address below first.
func (m *Machine) OwedFrom(first, below int64, from OwedPlace, dst []OwedEntry) (int, OwedPlace) {
	n := 0
	if !from.windows {
		for s := range m.spaces() {
			if s < from.space {
				continue
			}
			if s > from.space {
				from = OwedPlace{space: s}
			}
			if from.address < first {
				from.address, from.group = first, 0
			}
			m.scan(keyOf(s, 0, from.address, 0, from.group), keyOf(s, 1, 0, 0, 0), func(w *waiting) bool {
				if n == len(dst) {
					return false
				}
				from.address, from.group = w.address, w.group+1
				if w.position < below {
					dst[n] = m.owedEntry(s, w)
					n++
				}
				return true
			})
			if n == len(dst) {
				return n, from
			}
		}
		from = OwedPlace{windows: true}
	}
	for ; from.topic < len(m.byTopic); from.topic, from.address = from.topic+1, 0 {
		t := m.byTopic[from.topic]
		for i := t.window.from(max(first, from.address)); i < len(t.window.shares); i++ {
			s := &t.window.shares[i]
			if n == len(dst) {
				from.address = s.address
				return n, from
			}
			if s.set != noSet && s.position < below {
				dst[n] = OwedEntry{Kind: OwedWindow, Topic: t.name, Address: s.address, Position: s.position, Size: s.size}
				n++
			}
		}
	}
	return n, from
}

// Waiting fills dst with the undecided halves or the delays, as kind says, with an address from first on, by address, and returns how many.
func (m *Machine) Waiting(kind OwedKind, first int64, dst []OwedEntry) int {
	s := spaceHalf
	if kind == OwedDelay {
		s = spaceDelay
	}
	n := 0
	if len(dst) == 0 {
		return 0
	}
	m.byAddress(s, first, math.MaxInt64, func(w *waiting) bool {
		dst[n] = m.owedEntry(s, w)
		n++
		return n < len(dst)
	})
	return n
}

func (m *Machine) owedEntry(s space, w *waiting) OwedEntry {
	e := OwedEntry{Kind: OwedRetry, Topic: m.topicName(w.topic), Address: w.address, Position: w.position, Size: w.size, Attempt: w.attempt, Due: w.due}
	switch s {
	case spaceHalf:
		e.Kind = OwedHalf
	case spaceAside:
		e.Kind = OwedAside
	case spaceDelay:
		e.Kind = OwedDelay
	case spaceReturn:
		e.Kind, e.Group = OwedReturn, m.groupName(w.group)
	default:
		e.Group = m.lines[s-spaceLines].group.name
	}
	return e
}

// topicName and groupName are of what a row names; "" for a number that the state does not have.
func (m *Machine) topicName(id uint32) string {
	if int64(id) >= int64(len(m.byTopic)) {
		return ""
	}
	return m.byTopic[id].name
}

func (m *Machine) groupName(id uint32) string {
	if int64(id) >= int64(len(m.byID)) {
		return ""
	}
	return m.byID[id].name
}
