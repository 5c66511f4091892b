package state

// Before a part of the log goes, what is owed by name in it is moved. These are for the one who does so while the state goes on: pages that
// hold nobody up, and what becomes owed behind his back.

const (
	owedRows = 8 << 10 // rows that one call of OwedPage looks at
	lateMost = 1 << 10 // messages that are noted
)

// OwedPage fills dst with messages that are owed by name and have their body below a position, and returns how many, the place from which to go
// on, and whether that is the end. It looks at some thousand rows at most, so n may be anything before the end. One that several groups are owed
// may come several times. What is moved, or changes where it waits, between two calls is for Watch.
func (m *Machine) OwedPage(below int64, from OwedPlace, dst []OwedBody) (n int, next OwedPlace, end bool) {
	looked, full := 0, false
	more := func() bool {
		full = full || n == len(dst) || looked == owedRows
		looked++
		return !full
	}
	if !from.windows {
		for s := range m.spaces() {
			if s < from.space {
				continue
			}
			if s > from.space {
				from = OwedPlace{space: s}
			}
			m.scan(keyOf(s, 0, from.address, 0, from.group), keyOf(s, 1, 0, 0, 0), func(w *waiting) bool {
				if !more() {
					return false
				}
				from.address, from.group = w.address, w.group+1
				if w.position < below {
					dst[n] = OwedBody{m.topicName(w.topic), w.address, w.position, w.size}
					n++
				}
				return true
			})
			if full {
				return n, from, false
			}
		}
		from = OwedPlace{windows: true}
	}
	for ; from.topic < len(m.byTopic); from.topic, from.address = from.topic+1, 0 {
		t := m.byTopic[from.topic]
		for i := t.window.from(from.address); i < len(t.window.shares); i++ {
			s := &t.window.shares[i]
			if from.address = s.address; !more() {
				return n, from, false
			}
			if s.set != noSet && s.position < below {
				dst[n] = OwedBody{t.name, s.address, s.position, s.size}
				n++
			}
		}
	}
	return n, from, true
}

// late notes what becomes owed with its body below a position.
type late struct {
	below    int64
	all      []OwedBody
	overflow bool
}

// Watch has what becomes owed by name from now on, or comes to another place in the state, noted if its body is below a position. 0 ends it.
func (m *Machine) Watch(below int64) { m.late = late{below: below} }

// Late returns what was noted since the last call; complete is false when that was too much to be noted, and all has to be looked at again.
func (m *Machine) Late() (all []OwedBody, complete bool) {
	all, complete = m.late.all, !m.late.overflow
	m.late = late{below: m.late.below}
	return all, complete
}

func (m *Machine) noteLate(s space, w *waiting) {
	l := &m.late
	switch {
	case w.position >= l.below || s == spaceOutcome:
	case len(l.all) == lateMost:
		l.overflow = true
	default:
		l.all = append(l.all, OwedBody{m.topicName(w.topic), w.address, w.position, w.size})
	}
}
