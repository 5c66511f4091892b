// Package exchange computes which subscriber groups a message is owed to.
//
// An [Exchange] holds the bindings of all groups, with the log positions between which each of them held. It answers
// two questions: which groups a new message is owed to ([Exchange.Targets], asked once a message, in log order) and
// whether a group that reads a topic through its cursor is owed a message it finds there ([History.Match], at the
// bindings that held at the message's position).
//
// The exchange is a pure function of the Bind and Unbind calls made to it: no clock, no connections. That is what lets
// the store replay its log and come to the same targets. Kinds direct and fanout are served; [Check] refuses the two
// others by name.
//
// All methods may be called from any goroutine.
package exchange

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/fusionmq/fusionmq/notify/mapping"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

// Forever is the end of a binding that still holds.
const Forever = math.MaxInt64

// MaxBindings is the most bindings that one group may have on one topic, ended ones that a cursor still needs included.
const MaxBindings = 1024

// ErrKind is returned by [Check] for a binding kind that this version does not evaluate.
var ErrKind = errors.New("exchange: binding kind not served")

// Exchange is the set of all bindings. The zero value is not ready: use [New].
type Exchange struct {
	mu struct {
		sync.RWMutex
		topics map[string]*topic
		groups map[string]names // group -> topics that it has a history on
	}
}

var _ state.Exchange = (*Exchange)(nil)

// topic is the index of one topic. Every group is listed for a message at most once by construction: a group with a
// fanout binding is in fanout and in no direct list. So Targets appends two slices and never has to look for doubles,
// and its cost is the number of groups that match, not of those that are bound.
type topic struct {
	groups map[string]*History
	fanout names            // groups with a fanout binding that holds now
	direct map[string]names // message type -> groups with such a binding and no fanout binding
}

// Span is a binding with the log positions between which it held: a message at address a is matched when
// Since <= a < Until.
type Span struct {
	state.Binding
	Since, Until int64
	code         int64 // of Expr, as a queue entry has it
}

// History is what one group has been bound to on one topic. It is immutable; a change makes a new one.
type History struct {
	group  string
	spans  []Span // the next one may have the same memory, with more behind what is seen here
	fanout bool   // one of them is a fanout binding that holds
}

// New returns an exchange without bindings.
func New() *Exchange {
	x := &Exchange{}
	x.mu.topics = make(map[string]*topic)
	x.mu.groups = make(map[string]names)
	return x
}

// Check tells whether a binding can be evaluated: [ErrKind] for pattern and header bindings.
func Check(b state.Binding) error {
	switch b.Kind {
	case state.BindDirect, state.BindFanout:
		return nil
	case state.BindPattern:
		return fmt.Errorf("%w: kind pattern", ErrKind)
	case state.BindHeader:
		return fmt.Errorf("%w: kind header", ErrKind)
	}
	return fmt.Errorf("%w: kind %d", ErrKind, b.Kind)
}

// Bind applies a registration made by the record at address at. A binding with the same kind and expression is
// replaced in place: it has held since its first registration. How many other groups the topic has, or other topics the group,
// makes no difference to the cost, nor does it to that of Unbind.
func (x *Exchange) Bind(at int64, topicName, group string, b state.Binding) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.mu.topics[topicName]
	if t == nil {
		t = &topic{groups: make(map[string]*History), direct: make(map[string]names)}
		x.mu.topics[topicName] = t
	}
	h := t.groups[group]
	if h == nil {
		h = &History{group: group}
		x.mu.groups[group] = x.mu.groups[group].with(topicName)
	}
	if i := live(h.spans, b); i >= 0 {
		if h.spans[i].Binding != b {
			spans := slices.Clone(h.spans)
			spans[i].Binding = b
			t.groups[group] = &History{group, spans, h.fanout}
		}
		return
	}
	spans := append(h.spans, Span{Binding: b, Since: at, Until: Forever, code: int64(record.HashCode(b.Expr))})
	t.groups[group] = &History{group, spans, h.fanout || b.Kind == state.BindFanout}
	switch {
	case b.Kind == state.BindFanout && !h.fanout:
		t.listDirect(h, false)
		t.fanout = t.fanout.with(group)
	case b.Kind == state.BindDirect && !h.fanout:
		t.direct[b.Expr] = t.direct[b.Expr].with(group)
	}
}

// listDirect puts the group into the lists of its direct bindings, or takes it out of them.
func (t *topic) listDirect(h *History, in bool) {
	for i := range h.spans {
		if s := &h.spans[i]; s.Until == Forever && s.Kind == state.BindDirect {
			t.list(s.Expr, h.group, in)
		}
	}
}

func (t *topic) list(expr, group string, in bool) {
	if in {
		t.direct[expr] = t.direct[expr].with(group)
	} else if left := t.direct[expr].without(group); left != nil {
		t.direct[expr] = left
	} else {
		delete(t.direct, expr)
	}
}

// Unbind applies a removal made by the record at address at. Removing what is not there changes nothing.
func (x *Exchange) Unbind(at int64, topicName, group string, b state.Binding) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.mu.topics[topicName]
	if t == nil || t.groups[group] == nil {
		return
	}
	old := t.groups[group]
	i := live(old.spans, b)
	if i < 0 {
		return
	}
	spans := slices.Clone(old.spans)
	if spans[i].Volatile {
		// A binding that is not persistent leaves nothing for a cursor: what came while no machine was connected is
		// skipped for ever (rulings A40), and what was in flight when the last one went is dropped by the service.
		spans = slices.Delete(spans, i, i+1)
	} else {
		spans[i].Until = at
	}
	h := x.setLocked(topicName, group, spans)
	switch {
	case old.fanout && !h.fanout:
		t.fanout = t.fanout.without(group)
		t.listDirect(h, true)
	case b.Kind == state.BindDirect && !old.fanout:
		t.list(b.Expr, group, false)
	}
}

// Forget drops ended bindings of a group that no message at or above address below can be matched by. The service calls
// it as the group's cursor moves on, so that a group that subscribes and unsubscribes all day holds no memory.
func (x *Exchange) Forget(topicName, group string, below int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.mu.topics[topicName]
	if t == nil || t.groups[group] == nil {
		return
	}
	old := t.groups[group].spans
	if !slices.ContainsFunc(old, func(s Span) bool { return s.Until <= below }) {
		return
	}
	x.setLocked(topicName, group, slices.DeleteFunc(slices.Clone(old), func(s Span) bool { return s.Until <= below }))
}

// Interested says whether any group has a binding on the topic now.
func (x *Exchange) Interested(topicName string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	t := x.mu.topics[topicName]
	return t != nil && (len(t.fanout) > 0 || len(t.direct) > 0)
}

// Targets appends the groups that a message is owed to, each once. at is the message's address, above every address
// that was given to Bind and Unbind before.
func (x *Exchange) Targets(dst []string, at int64, topicName string, props []byte) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	t := x.mu.topics[topicName]
	if t == nil {
		return dst
	}
	tag, only := properties(props)
	if only != nil {
		if t.groups[string(only)].now(tag) {
			dst = append(dst, string(only))
		}
		return dst
	}
	dst = t.fanout.appendTo(dst)
	if len(t.direct) > 0 {
		dst = t.direct[string(tag)].appendTo(dst)
	}
	return dst
}

// History returns what a group has been bound to on a topic, nil when nothing is known.
func (x *Exchange) History(topicName, group string) *History {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if t := x.mu.topics[topicName]; t != nil {
		return t.groups[group]
	}
	return nil
}

// Topics lists the topics that a group has or had bindings on, in order.
func (x *Exchange) Topics(group string) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.mu.groups[group].appendTo(nil)
}

// Len is the number of groups that are known on a topic.
func (x *Exchange) Len(topicName string) int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if t := x.mu.topics[topicName]; t != nil {
		return len(t.groups)
	}
	return 0
}

// Match tells whether a message at address at with these properties is owed to the group.
func (h *History) Match(at int64, props []byte) bool { return h.match(at, props, false) }

// MayMatch is Match as far as it can be told from a queue entry, without the record: it is true whenever Match is, and
// seldom otherwise.
func (h *History) MayMatch(at, tagsCode int64) bool {
	if h == nil {
		return false
	}
	for i := range h.spans {
		s := &h.spans[i]
		if s.Since <= at && at < s.Until && (s.Kind == state.BindFanout || s.Kind == state.BindDirect && s.code == tagsCode) {
			return true
		}
	}
	return false
}

// Persistent is Match through bindings that are persistent only.
func (h *History) Persistent(at int64, props []byte) bool { return h.match(at, props, true) }

func (h *History) match(at int64, props []byte, persistent bool) bool {
	if h == nil {
		return false
	}
	tag, only := properties(props)
	return h.owed(at, tag, only, persistent)
}

// Owed is Match for a caller that has read the properties: tag is the message type, only the one group that the sender
// restricted delivery to, nil without a restriction.
func (h *History) Owed(at int64, tag, only []byte) bool {
	return h != nil && h.owed(at, tag, only, false)
}

func (h *History) owed(at int64, tag, only []byte, persistent bool) bool {
	if only != nil && string(only) != h.group {
		return false
	}
	for i := range h.spans {
		s := &h.spans[i]
		if s.Since <= at && at < s.Until && s.matches(tag) && !(persistent && s.Volatile) {
			return true
		}
	}
	return false
}

// now is Match at the end of the log.
func (h *History) now(tag []byte) bool {
	return h != nil && slices.ContainsFunc(h.spans, func(s Span) bool { return s.Until == Forever && s.matches(tag) })
}

func (s *Span) matches(tag []byte) bool {
	return s.Kind == state.BindFanout || s.Kind == state.BindDirect && s.Expr == string(tag)
}

// Live appends the bindings that hold now.
func (h *History) Live(dst []state.Binding) []state.Binding {
	if h == nil {
		return dst
	}
	for _, s := range h.spans {
		if s.Until == Forever {
			dst = append(dst, s.Binding)
		}
	}
	return dst
}

// First is the lowest address that any of the bindings matches, Forever without one: nothing below needs to be read.
func (h *History) First() int64 {
	first := int64(Forever)
	if h != nil {
		for _, s := range h.spans {
			first = min(first, s.Since)
		}
	}
	return first
}

// Volatile lists the bindings that hold and are not persistent.
func (h *History) Volatile() []Span {
	if h == nil {
		return nil
	}
	var vs []Span
	for _, s := range h.spans {
		if s.Volatile && s.Until == Forever {
			vs = append(vs, s)
		}
	}
	return vs
}

// Matches tells whether the span matches a message at address at with these properties.
func (s *Span) Matches(at int64, props []byte) bool {
	tag, _ := properties(props)
	return s.Since <= at && at < s.Until && s.matches(tag)
}

// Len is the number of bindings, ended ones included.
func (h *History) Len() int {
	if h == nil {
		return 0
	}
	return len(h.spans)
}

// setLocked replaces a group's spans, which nobody else has, and returns what is in them now. The lists of a topic are the caller's.
func (x *Exchange) setLocked(topicName, group string, spans []Span) *History {
	h := &History{group: group, spans: spans}
	for i := range spans {
		h.fanout = h.fanout || spans[i].Until == Forever && spans[i].Kind == state.BindFanout
	}
	t := x.mu.topics[topicName]
	if len(spans) > 0 {
		t.groups[group] = h
		return h
	}
	delete(t.groups, group)
	if left := x.mu.groups[group].without(topicName); left != nil {
		x.mu.groups[group] = left
	} else {
		delete(x.mu.groups, group)
	}
	return h
}

// live finds the span of a binding that still holds; two bindings with equal kind and expression are the same one.
func live(spans []Span, b state.Binding) int {
	return slices.IndexFunc(spans, func(s Span) bool {
		return s.Until == Forever && s.Kind == b.Kind && s.Expr == b.Expr
	})
}

// properties reads what the exchange looks at out of encoded properties, in one pass: the message type, and the one group
// that the sender restricted delivery to (targetGroup, spec/notify.md 1.2). The last entry of a name wins, as everywhere.
func properties(props []byte) (tag, only []byte) {
	for name, value := range record.Properties(props) {
		switch {
		case len(name) == len(record.PropTags) && string(name) == record.PropTags:
			tag = value
		case len(name) == len(targetName) && string(name) == targetName:
			only = value
		}
	}
	return tag, only
}

const targetName = mapping.PrefixField + "target"
