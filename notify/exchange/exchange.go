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
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

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
	}
}

var _ state.Exchange = (*Exchange)(nil)

// topic is the index of one topic. Every group is listed for a message at most once by construction: a group with a
// fanout binding is in fanout and in no direct list. So Targets appends two slices and never has to look for doubles,
// and its cost is the number of groups that match, not of those that are bound.
type topic struct {
	groups map[string]*History
	fanout []string            // sorted; groups with a fanout binding that holds now
	direct map[string][]string // message type -> sorted groups with such a binding and no fanout binding
}

// Span is a binding with the log positions between which it held: a message at address a is matched when
// Since <= a < Until.
type Span struct {
	state.Binding
	Since, Until int64
}

// History is what one group has been bound to on one topic. It is immutable; a change makes a new one.
type History struct {
	spans []Span // ended ones first come first, no order promised
	tags  bool   // whether Match looks at the tag
}

// New returns an exchange without bindings.
func New() *Exchange {
	x := &Exchange{}
	x.mu.topics = make(map[string]*topic)
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
// replaced in place: it has held since its first registration.
func (x *Exchange) Bind(at int64, topicName, group string, b state.Binding) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.mu.topics[topicName]
	if t == nil {
		t = &topic{groups: make(map[string]*History), direct: make(map[string][]string)}
		x.mu.topics[topicName] = t
	}
	var spans []Span
	if h := t.groups[group]; h != nil {
		spans = slices.Clone(h.spans)
	}
	if i := live(spans, b); i >= 0 {
		spans[i].Binding = b
	} else {
		spans = append(spans, Span{Binding: b, Since: at, Until: Forever})
	}
	t.setLocked(group, spans)
}

// Unbind applies a removal made by the record at address at. Removing what is not there changes nothing.
func (x *Exchange) Unbind(at int64, topicName, group string, b state.Binding) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.mu.topics[topicName]
	if t == nil || t.groups[group] == nil {
		return
	}
	spans := slices.Clone(t.groups[group].spans)
	i := live(spans, b)
	if i < 0 {
		return
	}
	if spans[i].Volatile {
		// A binding that is not persistent leaves nothing for a cursor: what came while no machine was connected is
		// skipped for ever (rulings A40), and what was in flight when the last one went is dropped by the service.
		spans = slices.Delete(spans, i, i+1)
	} else {
		spans[i].Until = at
	}
	t.setLocked(group, spans)
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
	t.setLocked(group, slices.DeleteFunc(slices.Clone(old), func(s Span) bool { return s.Until <= below }))
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
func (x *Exchange) Targets(dst []string, at int64, topicName string, properties []byte) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	t := x.mu.topics[topicName]
	if t == nil {
		return dst
	}
	dst = append(dst, t.fanout...)
	if len(t.direct) > 0 {
		dst = append(dst, t.direct[string(Tag(properties))]...)
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

// Len is the number of groups that are known on a topic.
func (x *Exchange) Len(topicName string) int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if t := x.mu.topics[topicName]; t != nil {
		return len(t.groups)
	}
	return 0
}

// Match tells whether a message at address at with this tag is owed to the group.
func (h *History) Match(at int64, tag []byte) bool {
	if h == nil {
		return false
	}
	for i := range h.spans {
		s := &h.spans[i]
		if s.Since <= at && at < s.Until && (s.Kind == state.BindFanout || s.Kind == state.BindDirect && s.Expr == string(tag)) {
			return true
		}
	}
	return false
}

// Persistent is Match through bindings that are persistent only.
func (h *History) Persistent(at int64, tag []byte) bool {
	if h == nil {
		return false
	}
	for i := range h.spans {
		s := &h.spans[i]
		if !s.Volatile && s.Since <= at && at < s.Until && (s.Kind == state.BindFanout || s.Kind == state.BindDirect && s.Expr == string(tag)) {
			return true
		}
	}
	return false
}

// NeedsTag tells whether Match looks at the tag at all; a caller that has to read the message to know the tag can
// spare itself that when it is false.
func (h *History) NeedsTag() bool { return h != nil && h.tags }

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

// Len is the number of bindings, ended ones included.
func (h *History) Len() int {
	if h == nil {
		return 0
	}
	return len(h.spans)
}

// setLocked replaces a group's spans and brings the index up to date with them.
func (t *topic) setLocked(group string, spans []Span) {
	t.unindexLocked(group)
	if len(spans) == 0 {
		delete(t.groups, group)
		return
	}
	h := &History{spans: spans}
	all := false
	for _, s := range spans {
		h.tags = h.tags || s.Kind != state.BindFanout
		all = all || s.Until == Forever && s.Kind == state.BindFanout
	}
	t.groups[group] = h
	if all {
		t.fanout = insert(t.fanout, group)
		return
	}
	for _, s := range spans {
		if s.Until == Forever && s.Kind == state.BindDirect {
			t.direct[s.Expr] = insert(t.direct[s.Expr], group)
		}
	}
}

func (t *topic) unindexLocked(group string) {
	h := t.groups[group]
	if h == nil {
		return
	}
	t.fanout = remove(t.fanout, group)
	for _, s := range h.spans {
		if s.Kind != state.BindDirect {
			continue
		}
		if left := remove(t.direct[s.Expr], group); len(left) > 0 {
			t.direct[s.Expr] = left
		} else {
			delete(t.direct, s.Expr)
		}
	}
}

// live finds the span of a binding that still holds; two bindings with equal kind and expression are the same one.
func live(spans []Span, b state.Binding) int {
	return slices.IndexFunc(spans, func(s Span) bool {
		return s.Until == Forever && s.Kind == b.Kind && s.Expr == b.Expr
	})
}

func insert(list []string, name string) []string {
	i, found := slices.BinarySearch(list, name)
	if found {
		return list
	}
	return slices.Insert(list, i, name)
}

func remove(list []string, name string) []string {
	i, found := slices.BinarySearch(list, name)
	if !found {
		return list
	}
	return slices.Delete(list, i, i+1)
}

var tagName = []byte("TAGS\x01")

// Tag finds the message type in RocketMQ's encoded properties: the value of the first TAGS, nil when there is none.
// The result is part of properties.
func Tag(properties []byte) []byte {
	rest := properties
	for {
		i := bytes.Index(rest, tagName)
		if i < 0 {
			return nil
		}
		if i == 0 || rest[i-1] == 2 {
			value := rest[i+len(tagName):]
			if end := bytes.IndexByte(value, 2); end >= 0 {
				value = value[:end]
			}
			return value
		}
		rest = rest[i+len(tagName):] // "XTAGS": a name that only ends so, or a value that holds it
	}
}
