package store

import (
	"github.com/fusionmq/fusionmq/store/faces"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/state"
)

// Group names are one namespace for both front ends, and the store is where they meet, so it decides whose a name is; see package
// faces. A name is asked for before anything is done with it: by ClaimGroup before the pull side makes or serves a group, by HoldGroup
// before a binding of a push group is written.

// GroupTaken is why a group name is refused: the other front end, or another group, has it.
type GroupTaken = faces.TakenError

// GroupsFull is why a new group name is refused: there are too many.
type GroupsFull = faces.FullError

// ClaimGroup takes a group name for the pull side, for good; taking it again is cheap and no change. fresh tells that nobody had heard
// of it. It gives a *GroupTaken when a push group has the name now, and a *GroupsFull for a new name when there are limit groups. The
// name may alias a buffer.
func (s *Store) ClaimGroup(name string, limit int) (fresh bool, err error) {
	return s.faces.Pull(name, limit)
}

// UnclaimGroup takes a fresh claim back when the group could not be made.
func (s *Store) UnclaimGroup(name string) { s.faces.Undo(name) }

// HoldGroup takes the name of a push group, and the one it has on the pull side, until ReleaseGroup. Bindings and messages that are owed
// keep it after that. It must be held from before the group's binding is written until the binding has been applied. It gives a
// *GroupTaken when another group has the name, and a *GroupsFull for a new one when there are limit groups.
func (s *Store) HoldGroup(group string, limit int) error { return s.faces.Hold(group, limit) }

// ReleaseGroup gives back what one HoldGroup took.
func (s *Store) ReleaseGroup(group string) { s.faces.Release(group) }

// PushGroupOf returns the push group that has a name of the pull side now, by its own name.
func (s *Store) PushGroupOf(name string) (group string, ok bool) { return s.faces.PushGroup(name) }

// PushGroups lists, by name, the groups that have a binding or are still owed messages, with the topics that is about.
func (s *Store) PushGroups() []state.PushGroup {
	s.machine.RLock()
	defer s.machine.RUnlock()
	return s.machine.PushGroups()
}

// openFaces enters the groups that the log and the files of the pull side have.
func (s *Store) openFaces() {
	s.faces = faces.New(func(group string) (has, known bool) {
		s.machine.RLock()
		defer s.machine.RUnlock()
		return s.machine.PushGroup(group)
	})
	for _, g := range s.machine.Known() {
		if err := s.faces.AddPush(g); err != nil {
			s.event(levelWarn, "two push groups have one name on the pull side", "group", g, "err", err)
		}
	}
	pull := func(name string) {
		if err := s.faces.AddPull(name); err != nil {
			s.event(levelWarn, "subscription group has the name of a push group, which keeps it", "group", name, "err", err)
		}
	}
	all, _ := s.tables.groups.All()
	for _, g := range all {
		pull(g.Name)
	}
	last := ""
	for _, o := range s.tables.offsets.All() {
		if o.Group != last {
			last = o.Group
			pull(o.Group)
		}
	}
	s.tables.groups.OnChange(func(g *meta.Group) { pull(g.Name) }) // of one that nobody has claimed
}
