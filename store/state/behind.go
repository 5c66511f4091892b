package state

import (
	"cmp"
	"slices"
)

// TopicPosition is where a group stands on a topic.
type TopicPosition struct {
	Topic, Group string
	GroupPosition
}

// Owes says whether the group's cursor still has to read the message at an address.
func (p *GroupPosition) Owes(address int64) bool {
	return address >= p.Cursor && (!p.Attached || address < p.Attach) && (address < p.SkipFrom || address >= p.SkipTo)
}

// BehindOf lists the groups whose cursor still has to read something below a log position, if there is anything, ordered by topic and
// group.
func (m *Machine) BehindOf(position int64) []TopicPosition {
	var all []TopicPosition
	for _, t := range m.topics {
		for name, p := range t.positions {
			if (p.live > 0 || len(p.ended) > 0) && p.next() < position { // one without bindings reads nothing
				all = append(all, TopicPosition{t.name, name, p.GroupPosition})
			}
		}
	}
	slices.SortFunc(all, func(a, b TopicPosition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Group, b.Group))
	})
	return all
}
