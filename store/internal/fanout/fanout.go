// Package fanout is the exchange of the store's tests: every bound group is a target of every message.
package fanout

import (
	"slices"
	"sync"

	"github.com/fusionmq/fusionmq/store/state"
)

// exchange may be asked by tests while the store is at work.
type exchange struct {
	mu    sync.Mutex
	bound map[string][]string
}

// New makes one without bindings.
func New() state.Exchange { return &exchange{bound: map[string][]string{}} }

// Bind implements [state.Exchange]. A group that is bound already stays bound once.
func (x *exchange) Bind(_ int64, topic, group string, _ state.Binding) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !slices.Contains(x.bound[topic], group) {
		x.bound[topic] = append(x.bound[topic], group)
	}
}

// Unbind implements [state.Exchange].
func (x *exchange) Unbind(_ int64, topic, group string, _ state.Binding) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.bound[topic] = slices.DeleteFunc(x.bound[topic], func(g string) bool { return g == group })
}

// Interested implements [state.Exchange].
func (x *exchange) Interested(topic string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.bound[topic]) > 0
}

// Targets implements [state.Exchange].
func (x *exchange) Targets(dst []string, _ int64, topic string, _ []byte) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append(dst, x.bound[topic]...)
}
