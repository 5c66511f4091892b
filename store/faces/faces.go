// Package faces keeps which of the two front ends a group name belongs to. Group names are one namespace: a group pulls or is pushed
// to, never both, and a push group also takes the name that it has on the pull side ([meta.PullName]).
//
// A [Table] decides under one lock, so of two front ends that ask for a name at the same moment one gets it. It keeps names only; what
// makes a name taken is elsewhere: a pull name stays, since subscription groups and committed offsets do; a push name is taken while
// the state of the store has a binding of the group or owes it messages, which the table asks, or while a front end holds it. One is
// held over the time in which that state does not show it yet: from before a binding is written until it has taken effect.
package faces

import (
	"fmt"
	"strings"
	"sync"

	"github.com/fusionmq/fusionmq/store/meta"
)

// State tells of a push group whether it has a binding or is owed messages, and whether it ever had a binding.
type State func(group string) (has, known bool)

// Table is the table of names. All methods may be called from any goroutine.
type Table struct {
	state State

	mu    sync.RWMutex
	names map[string]*name // by name on the pull side
}

// name is who a name belongs to. Entries of push groups that are known stay, so that the table is as large as what is kept of groups.
type name struct {
	group string // the push group, by its own name; "" on the pull side
	holds int    // of the push group
}

// New makes an empty table. state is called with the table's lock held.
func New(state State) *Table { return &Table{state: state, names: map[string]*name{}} }

// TakenError is why a name is refused: another group has it.
type TakenError struct {
	Name  string // on the pull side
	Group string // the push group that has it, by its own name; "" when pull consumers have it
}

func (e *TakenError) Error() string {
	if e.Group == "" {
		return fmt.Sprintf("group name %s belongs to a pull group", e.Name)
	}
	return fmt.Sprintf("group name %s belongs to push group %s", e.Name, e.Group)
}

// FullError is why a new name is refused: there are as many groups as may be.
type FullError struct{ Limit int }

func (e *FullError) Error() string {
	return fmt.Sprintf("there are %d groups already, the limit for both front ends together", e.Limit)
}

// Pull takes a name for the pull side, for good. fresh tells that it was not there. It gives a *TakenError, or a *FullError for a new
// name when there are limit names. A name of the pull side is found without waiting for anybody. group may alias a buffer.
func (t *Table) Pull(group string, limit int) (fresh bool, err error) {
	t.mu.RLock()
	n := t.names[group]
	pull := n != nil && n.group == ""
	t.mu.RUnlock()
	if pull {
		return false, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n = t.names[group]
	switch {
	case n == nil && len(t.names) >= limit:
		return false, &FullError{limit}
	case n == nil:
		t.names[strings.Clone(group)] = &name{}
		return true, nil
	case n.group == "": // another caller took it since
		return false, nil
	case t.takenLocked(n):
		return false, &TakenError{strings.Clone(group), n.group}
	}
	n.group = ""
	return false, nil
}

// Undo takes back what a Pull has made of a new name whose group could not be made.
func (t *Table) Undo(group string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.names[group]; n != nil && n.group == "" {
		delete(t.names, group)
	}
}

// Hold takes the name of a push group until Release, which must follow. It gives a *TakenError, or a *FullError for a new name when
// there are limit names.
func (t *Table) Hold(group string, limit int) error {
	pull := meta.PullName(group)
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.names[pull]
	switch {
	case n == nil && len(t.names) >= limit:
		return &FullError{limit}
	case n == nil:
		n = &name{group: strings.Clone(group)}
		t.names[strings.Clone(pull)] = n
	case n.group == group:
	case n.group == "" || t.takenLocked(n):
		return &TakenError{pull, n.group}
	default:
		n.group = strings.Clone(group)
	}
	n.holds++
	return nil
}

// Release gives back what Hold took. The name is free once the state has nothing of the group any more.
func (t *Table) Release(group string) {
	pull := meta.PullName(group)
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.names[pull]
	if n == nil || n.group != group || n.holds == 0 {
		return
	}
	if n.holds--; n.holds > 0 {
		return
	}
	if _, known := t.state(group); !known {
		delete(t.names, pull)
	}
}

// PushGroup returns the push group that has a name of the pull side now, by its own name.
func (t *Table) PushGroup(pull string) (group string, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if n := t.names[pull]; n != nil && n.group != "" && t.takenLocked(n) {
		return n.group, true
	}
	return "", false
}

// takenLocked tells whether the push group of a name still needs it.
func (t *Table) takenLocked(n *name) bool {
	if n.group == "" || n.holds > 0 {
		return true
	}
	has, _ := t.state(n.group)
	return has
}

// AddPush enters a push group that the state knows, at the start. It gives a *TakenError when another push group has the name; then
// only one of them can be told by it.
func (t *Table) AddPush(group string) error {
	pull := meta.PullName(group)
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.names[pull]
	if n == nil {
		t.names[pull] = &name{group: group}
		return nil
	}
	has, _ := t.state(group)
	if n.group == group || !has {
		return nil
	}
	if t.takenLocked(n) {
		return &TakenError{pull, n.group}
	}
	n.group = group
	return nil
}

// AddPull enters a name that the files of the pull side have, at the start or when one was made without a Pull. It gives a
// *TakenError when a push group has it, which keeps it: its bindings are in the log.
func (t *Table) AddPull(group string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.names[group]
	switch {
	case n == nil:
		t.names[strings.Clone(group)] = &name{}
	case n.group != "" && t.takenLocked(n):
		return &TakenError{group, n.group}
	default:
		n.group = ""
	}
	return nil
}

// Len is the number of names.
func (t *Table) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.names)
}
