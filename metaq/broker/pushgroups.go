package broker

import (
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/store"
)

// pushGroups are the names that belong to the push front end. Push and pull groups share one namespace, and the store
// knows the former by their bindings. The set is read for every pull, so it is a snapshot that the broker's housekeeping
// renews; the moment where it has to be exact, the creation of a group, renews it itself.
type pushGroups struct {
	bindings func() []store.GroupBinding
	names    atomic.Pointer[map[string]struct{}]
}

// pushRefresh is how old the snapshot may be.
const pushRefresh = time.Second

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
