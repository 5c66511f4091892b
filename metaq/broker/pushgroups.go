package broker

import (
	"sync/atomic"

	"github.com/fusionmq/fusionmq/store"
)

// pushGroups are the names that belong to the push front end. Push and pull groups share one namespace, and the store
// knows the former by their bindings. Where it has to be exact, at the creation of a pull group, the set is renewed; after
// that the push front end refuses the name. For groups that are there already it is a snapshot that the broker's
// housekeeping renews, since it is read for every pull.
type pushGroups struct {
	bindings func() []store.GroupBinding
	names    atomic.Pointer[map[string]struct{}]
}

func newPushGroups(bindings func() []store.GroupBinding) *pushGroups {
	p := &pushGroups{bindings: bindings}
	p.refresh()
	return p
}

func (p *pushGroups) refresh() {
	m := map[string]struct{}{}
	for _, b := range p.bindings() {
		m[b.Group] = struct{}{}
	}
	p.names.Store(&m)
}

func (p *pushGroups) has(group string) bool {
	m := *p.names.Load()
	if len(m) == 0 {
		return false
	}
	_, ok := m[group]
	return ok
}
