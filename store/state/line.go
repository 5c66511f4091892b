package state

import (
	"cmp"
	"slices"
)

// line is what one group has to be sent again of one topic. What is in it lies in the table, in a space of its own; a line is
// made when it is first needed and its number is kept.
type line struct {
	space space
	group *group
	topic *topic
	count int
}

// line returns the line of a group on a topic; nil when there is none and create is false.
func (m *Machine) line(g *group, t *topic, create bool) *line {
	for _, l := range g.lines {
		if l.topic == t {
			return l
		}
	}
	if !create {
		return nil
	}
	l := &line{space: spaceLines + space(len(m.lines)), group: g, topic: t}
	m.lines = append(m.lines, l)
	g.lines = append(g.lines, l)
	return l
}

// retry finds the retry of a message in a line, which may be nil.
func (m *Machine) retry(l *line, address int64) (waiting, bool) {
	if l == nil || l.count == 0 {
		return waiting{}, false
	}
	return m.get(l.space, address, 0)
}

// wait adds a retry that is not in the line.
func (m *Machine) wait(l *line, w *waiting) {
	w.topic = l.topic.id
	m.add(l.space, w)
	l.count++
	m.stats.Retries++
}

// unwait takes out what retry has found.
func (m *Machine) unwait(l *line, w *waiting) {
	m.remove(l.space, w)
	l.count--
	m.stats.Retries--
}

func (l *line) export(w *waiting) Retry {
	return Retry{Topic: l.topic.name, Group: l.group.name, Address: w.address, Position: w.position, Size: w.size, Attempt: w.attempt, Due: w.due}
}

// Retries fills dst with waiting retries of a group in order of (due, address), starting behind after, or at the first
// one when after is the zero Retry; 0 when there are no more.
func (m *Machine) Retries(group string, after Retry, dst []Retry) int {
	g := m.groups[group]
	if g == nil {
		return 0
	}
	n := 0
	for _, l := range g.lines {
		n = m.mergeLine(l, after, dst, n)
	}
	return n
}

// TopicRetries is Retries of one topic, for those who give some topics priority over others.
func (m *Machine) TopicRetries(topic, group string, after Retry, dst []Retry) int {
	g, t := m.groups[group], m.topics[topic]
	if g == nil || t == nil {
		return 0
	}
	if l := m.line(g, t, false); l != nil {
		return m.mergeLine(l, after, dst, 0)
	}
	return 0
}

// mergeLine merges retries of a line into dst[:n], which is in order, and returns how many dst has now. What has no room is
// left out at the end.
func (m *Machine) mergeLine(l *line, after Retry, dst []Retry, n int) int {
	if l.count == 0 || len(dst) == 0 {
		return n
	}
	due, address := after.Due, after.Address
	if after == (Retry{}) {
		due, address = -1, -1
	}
	from := n
	var more []Retry
	if n > 0 {
		more = make([]Retry, 0, 16)
	}
	m.byDue(l.space, due, address, 0, func(w *waiting) bool {
		r := l.export(w)
		if from == 0 {
			dst[n] = r
			n++
			return n < len(dst)
		}
		if n == len(dst) && compareRetries(r, dst[n-1]) >= 0 {
			return false
		}
		more = append(more, r)
		return len(more) < len(dst)
	})
	if from == 0 || len(more) == 0 {
		return n
	}
	all := append(slices.Clone(dst[:n]), more...)
	slices.SortFunc(all, compareRetries)
	return copy(dst, all)
}

func compareRetries(a, b Retry) int {
	return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Topic, b.Topic))
}

// Waits tells whether the message at an address waits for another attempt in a group.
func (m *Machine) Waits(group string, address int64) bool {
	g := m.groups[group]
	if g == nil {
		return false
	}
	for _, l := range g.lines {
		if _, ok := m.retry(l, address); ok {
			return true
		}
	}
	return false
}

// RetryCount is how many targets of a group wait for another attempt.
func (m *Machine) RetryCount(group string) int {
	n := 0
	if g := m.groups[group]; g != nil {
		for _, l := range g.lines {
			n += l.count
		}
	}
	return n
}
