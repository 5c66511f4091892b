package state

import (
	"maps"
	"slices"
)

// PushGroup is a group that is pushed to, and the topics that it has something on.
type PushGroup struct {
	Name   string
	Topics []string // in order: where it has a binding, is attached, or is still owed messages
}

// PushGroups lists, by name, the groups that have a binding or are still owed messages.
func (m *Machine) PushGroups() []PushGroup {
	var all []PushGroup
	for _, name := range slices.Sorted(maps.Keys(m.groups)) {
		if topics := m.groups[name].topics(); len(topics) > 0 {
			all = append(all, PushGroup{name, topics})
		}
	}
	return all
}

// PushGroup tells whether PushGroups has a group; known whether it ever had a binding.
func (m *Machine) PushGroup(name string) (has, known bool) {
	g := m.groups[name]
	if g == nil {
		return false, false
	}
	return slices.ContainsFunc(g.positions, (*position).holds) || slices.ContainsFunc(g.lines, (*line).holds), len(g.positions) > 0
}

// Known lists, by name, the groups that have ever had a binding.
func (m *Machine) Known() []string {
	var all []string
	for name, g := range m.groups {
		if len(g.positions) > 0 {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

func (g *group) topics() []string {
	var all []string
	for _, p := range g.positions {
		if p.holds() {
			all = append(all, p.topic.name)
		}
	}
	for _, l := range g.lines {
		if l.holds() {
			all = append(all, l.topic.name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// holds tells whether the group has a binding on the topic, or is owed messages by the window, which it is while it is attached, or
// by its cursor, which may find some as long as it needs a binding that has ended.
func (p *position) holds() bool { return p.live > 0 || len(p.ended) > 0 || p.Attached }

func (l *line) holds() bool { return l.count > 0 }

// Windows lists, in order, the topics whose windows owe attached groups something.
func (m *Machine) Windows() []string {
	var all []string
	for _, t := range m.byTopic {
		if t.window.live > 0 {
			all = append(all, t.name)
		}
	}
	slices.Sort(all)
	return all
}
