package state

import (
	"iter"
	"math"
	"slices"
	"strings"
)

// Pending is a message with an open outcome: what the data queue says minus what the operate queue says.
type Pending struct {
	Address, Position int64
	Size              int32
	Targets           []string // that hold it in the window, ordered by name
	Retries           []Retry  // ordered by group
	Half              bool     // an undecided transaction, moved aside or not
	Delayed           bool     // waits for its time, or sent back by a pull group
}

// scanPage is how many rows of one source a scan holds.
const scanPage = 64

// source is one ordered sequence of what waits, read in pages.
type source struct {
	space space
	line  *line // nil: halves, delays and the like
	topic uint32
	page  []waiting
	i     int
	end   bool
}

// head is what comes next, nil at the end.
func (s *source) head(m *Machine) *waiting {
	for s.i == len(s.page) {
		if s.end {
			return nil
		}
		last := s.page[len(s.page)-1] // a page that is not the last one is full
		s.fill(m, last.address, last.group+1)
	}
	return &s.page[s.i]
}

func (s *source) fill(m *Machine, from int64, group uint32) {
	s.page, s.i, s.end = s.page[:0], 0, true
	m.scan(keyOf(s.space, 0, from, 0, group), keyOf(s.space, 1, 0, 0, 0), func(w *waiting) bool {
		if s.line != nil || w.topic == s.topic {
			s.page = append(s.page, *w)
		}
		s.end = len(s.page) < scanPage // a full page may have more behind it
		return s.end
	})
}

// Scan goes through the messages of a topic from an address on whose outcome is open, in address order: window, retry lines,
// halves and delays, merged. It holds a page of each. The state must not change meanwhile.
func (m *Machine) Scan(topic string, from int64) iter.Seq[Pending] {
	return func(yield func(Pending) bool) {
		t := m.topics[topic]
		if t == nil {
			return
		}
		var sources []*source
		add := func(s source) {
			s.topic, s.page = t.id, make([]waiting, 0, scanPage)
			s.fill(m, from, 0)
			sources = append(sources, &s)
		}
		for _, l := range m.lines {
			if l.topic == t && l.count > 0 {
				add(source{space: l.space, line: l})
			}
		}
		slices.SortFunc(sources, func(a, b *source) int { return strings.Compare(a.line.group.name, b.line.group.name) })
		for s, n := range map[space]int{spaceHalf: m.stats.Halves, spaceAside: m.stats.Aside, spaceDelay: m.stats.Delays, spaceReturn: m.stats.Returns} {
			if n > 0 {
				add(source{space: s})
			}
		}
		for i := t.window.from(from); ; {
			for i < len(t.window.shares) && t.window.shares[i].set == noSet {
				i++
			}
			p := Pending{Address: math.MaxInt64}
			if i < len(t.window.shares) {
				p.Address = t.window.shares[i].address
			}
			for _, s := range sources {
				if w := s.head(m); w != nil {
					p.Address = min(p.Address, w.address)
				}
			}
			if p.Address == math.MaxInt64 {
				return
			}
			if i < len(t.window.shares) && t.window.shares[i].address == p.Address {
				s := &t.window.shares[i]
				p.Position, p.Size = s.position, s.size
				p.Targets = slices.Sorted(slices.Values(m.sets.all[s.set].names))
				i++
			}
			for _, s := range sources {
				for w := s.head(m); w != nil && w.address == p.Address; w = s.head(m) {
					if p.Size == 0 {
						p.Position, p.Size = w.position, w.size
					}
					switch s.space {
					case spaceHalf, spaceAside:
						p.Half = true
					case spaceDelay, spaceReturn:
						p.Delayed = true
					default:
						p.Retries = append(p.Retries, s.line.export(w))
					}
					s.i++
				}
			}
			if !yield(p) {
				return
			}
		}
	}
}

// LowWater is the lowest address that anything is owed at or waits under; what is below it is only a cursor's or nobody's.
// math.MaxInt64 when nothing is open.
func (m *Machine) LowWater() int64 {
	low := int64(math.MaxInt64)
	for _, t := range m.byTopic {
		if t.window.live > 0 {
			low = min(low, t.window.shares[t.window.head].address)
		}
	}
	for s := range m.spaces() {
		m.byAddress(s, 0, math.MaxInt64, func(w *waiting) bool {
			low = min(low, w.address)
			return false
		})
	}
	return low
}

// spaces are those that have something which is owed by name, in order.
func (m *Machine) spaces() iter.Seq[space] {
	return func(yield func(space) bool) {
		for s, n := range []int{m.stats.Halves, m.stats.Aside, m.stats.Delays, m.stats.Returns} {
			if n > 0 && !yield(space(s)) {
				return
			}
		}
		for _, l := range m.lines {
			if l.count > 0 && !yield(l.space) {
				return
			}
		}
	}
}
