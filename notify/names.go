package notify

import (
	"context"
	"errors"

	"github.com/fusionmq/fusionmq/notify/wire"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/state"
)

// Group names are one namespace with the pull front end. A group that subscribes takes its name before the binding is written, and
// has it for as long as the service remembers the group, bindings that wait for a member included. After that the store has it,
// while a binding is left or messages are owed. A group that only publishes takes no name.

// naming is what a group knows about its name; guarded by the group's lock.
type naming struct {
	held    bool  // the store holds it for us
	kept    bool  // until the group is forgotten, not only for the changes under way
	changes int   // of bindings, under way
	bound   int64 // address of the newest of them
}

// hold returns the session's group of this name with the name taken. letGo must follow.
func (se *Session) hold(name string) (*group, error) {
	ms := se.member(name)
	if ms == nil {
		return nil, notMember(name)
	}
	g := ms.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gone { // the connection has just been closed
		return nil, notMember(name)
	}
	if err := g.takeNameLocked(); err != nil {
		return nil, err
	}
	g.naming.changes++
	return g, nil
}

func notMember(group string) *Refusal {
	return refuse("group %s is not in the metadata of this connection", wire.Quote(group))
}

func (g *group) takeNameLocked() error {
	if g.naming.held {
		return nil
	}
	err := g.s.store.HoldGroup(g.name, g.s.o.MaxGroups)
	g.naming.held = err == nil
	var taken *store.GroupTaken
	var full *store.GroupsFull
	switch {
	case errors.As(err, &full):
		return &Refusal{wire.StatusFailed, "group " + wire.Quote(g.name) + " is not made: " + full.Error()}
	case errors.As(err, &taken) && taken.Group != "":
		return refuse("group %s: its name for RocketMQ clients, %s, already names the group %s; subscribe under another name",
			wire.Quote(g.name), wire.Quote(taken.Name), wire.Quote(taken.Group))
	case errors.As(err, &taken):
		return refuse("group %s: RocketMQ consumers have the group %s, and a name is for one of both; subscribe under another name (a group cannot be switched from pull to push yet)",
			wire.Quote(g.name), wire.Quote(taken.Name))
	}
	return err
}

// keepName takes the name of a group that has bindings, for as long as it is remembered.
func (g *group) keepName() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.naming.kept = true
	if err := g.takeNameLocked(); err != nil {
		g.s.log.warn("push group goes on with a name that is another group's too", "group", g.name, "error", err)
	}
}

// letGo ends a hold.
func (g *group) letGo() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.naming.changes--
	g.dropNameLocked()
}

// dropNameLocked gives the name back when nothing needs it.
func (g *group) dropNameLocked() {
	if n := &g.naming; n.held && n.changes == 0 && (!n.kept || g.gone) {
		n.held = false
		g.s.store.ReleaseGroup(g.name)
	}
}

// bind writes a binding of the group and waits until it holds. It is called between hold and letGo.
func (g *group) bind(op state.Op) error {
	g.mu.Lock()
	g.naming.kept = true // even a record that is reported as failed may be in the log
	g.mu.Unlock()
	at, err := g.s.change(op)
	g.mu.Lock()
	g.naming.bound = max(g.naming.bound, at)
	g.mu.Unlock()
	return err
}

// change writes a change of bindings and waits until it holds. It returns the address of the record, which may still come to hold when
// there is an error; 0 when it was not written.
func (s *Service) change(op state.Op) (at int64, err error) {
	if at, err = s.operate(op); err != nil {
		return 0, refusal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), wire.BindTimeout)
	defer cancel()
	if err := s.store.WaitApplied(ctx, at); err != nil {
		return at, refusal(err)
	}
	return at, nil
}
