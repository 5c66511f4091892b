package state

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"
)

// Machine is the push state. Message, Apply and Load need it for themselves; the other methods may run beside each other.
type Machine struct {
	exchange Exchange // nil: nothing is owed
	at       int64    // address of the last record that was applied; -1 at first
	topics   map[string]*topic
	groups   map[string]*group
	byID     []*group
	sets     sets
	stats    Stats

	targets []string // scratch of Message
	owed    []*group
}

// Stats count what the state holds, and what it refused since it was made.
type Stats struct {
	Window  int    // messages in the windows
	Retries int    // retries of all groups
	Ignored uint64 // operations, or targets of an update, that came late or named what is not there
}

// topic is what the state knows of a topic that some group had a binding on.
type topic struct {
	name      string
	positions map[string]*position
	attached  int       // positions that are attached
	bindings  []binding // by since
	window    window

	// The set that the last targets led to, as long as no position changes.
	cached struct {
		targets []string
		set     setID
		valid   bool
	}
}

type position struct {
	GroupPosition
	group *group
}

// binding is a binding with its life; until is 0 while it lasts.
type binding struct {
	Binding
	group        *group
	since, until int64
}

type group struct {
	name string
	id   uint32
	line line
}

// NewMachine makes an empty state. With a nil exchange nothing is owed, but operations are applied.
func NewMachine(x Exchange) *Machine {
	return &Machine{exchange: x, at: -1, topics: map[string]*topic{}, groups: map[string]*group{}}
}

// Head is what the state needs of a message record.
type Head struct {
	Topic      string
	Queue      int32
	Address    int64
	Position   int64
	Size       int32
	Time       int64 // store time, milliseconds since 1970
	TagsCode   int64
	Properties []byte // RocketMQ's encoded text
}

// At is the address of the last record that Message or Apply has been given; -1 before the first. What is at or below it
// is ignored, so a replay may begin further back.
func (m *Machine) At() int64 { return m.at }

// Message takes a message and says what attached groups are owed of it; false when nothing.
func (m *Machine) Message(h *Head) (Owed, bool) {
	if h.Address <= m.at {
		return Owed{}, false
	}
	m.at = h.Address
	if m.exchange == nil {
		return Owed{}, false
	}
	m.targets = m.exchange.Targets(m.targets[:0], h.Address, h.Topic, h.Properties)
	if len(m.targets) == 0 {
		return Owed{}, false
	}
	t := m.topics[h.Topic]
	if t == nil {
		return Owed{}, false
	}
	id := m.attached(t)
	if id == noSet {
		return Owed{}, false
	}
	t.window.add(share{address: h.Address, position: h.Position, size: h.Size, set: id})
	m.stats.Window++
	return Owed{
		Topic: t.name, Queue: h.Queue, Address: h.Address, Position: h.Position, Size: h.Size, Time: h.Time,
		TagsCode: h.TagsCode, Targets: m.sets.all[id].names,
	}, true
}

// Owes says whether any group is attached to the topic. While none is, Message has nothing to say about its messages and
// need not be called for them.
func (m *Machine) Owes(topic string) bool {
	t := m.topics[topic]
	return t != nil && t.attached > 0
}

// attached holds the set of those of m.targets that are attached to t.
func (m *Machine) attached(t *topic) setID {
	if t.cached.valid && slices.Equal(t.cached.targets, m.targets) {
		if t.cached.set != noSet {
			m.sets.all[t.cached.set].refs++
		}
		return t.cached.set
	}
	m.owed = m.owed[:0]
	for _, name := range m.targets {
		if p := t.positions[name]; p != nil && p.Attached {
			m.owed = append(m.owed, p.group)
		}
	}
	id := m.sets.hold(m.owed)
	m.forget(t)
	t.cached.targets = append(t.cached.targets[:0], m.targets...)
	t.cached.valid = true
	if t.cached.set = id; id != noSet {
		m.sets.all[id].refs++ // the cache's own
	}
	return id
}

// forget drops the cached set after a change of positions.
func (m *Machine) forget(t *topic) {
	m.sets.drop(t.cached.set)
	t.cached.set, t.cached.valid = noSet, false
}

// Apply takes the operations of the record at address at, in order.
func (m *Machine) Apply(at int64, ops []Op) {
	if at <= m.at {
		return
	}
	m.at = at
	for i := range ops {
		if !m.apply(at, &ops[i]) {
			m.stats.Ignored++
		}
	}
}

// apply reports whether the operation found what it names.
func (m *Machine) apply(at int64, op *Op) bool {
	switch op.Kind {
	case OpDelete:
		return m.delete(op)
	case OpUpdate:
		m.update(at, op)
		return true // counts its own
	case OpRetire:
		return m.retire(op)
	case OpBind:
		return m.bind(at, op)
	case OpUnbind:
		return m.unbind(at, op)
	case OpRelocate:
		return m.relocate(op)
	}
	t := m.topics[op.Topic]
	if t == nil {
		return false
	}
	p := t.positions[op.Group]
	if p == nil {
		return false
	}
	switch op.Kind {
	case OpAttach:
		if p.Attached || p.SkipFrom < p.SkipTo {
			return false
		}
		p.Attached, p.Attach = true, at
		t.attached++
		m.forget(t)
		return true
	case OpDetach:
		if !p.Attached {
			return false
		}
		m.detach(at, t, p)
		return true
	case OpCursor:
		return m.cursor(t, p, min(op.First, at))
	}
	return false
}

func (m *Machine) delete(op *Op) bool {
	t := m.topics[op.Topic]
	if t == nil {
		return false
	}
	found := false
	for i := t.window.from(op.First); i < len(t.window.shares) && t.window.shares[i].address <= op.Last; i++ {
		if s := &t.window.shares[i]; s.set != noSet {
			found = true
			m.sets.drop(s.set)
			m.done(t, s)
		}
	}
	t.window.trim()
	return found
}

// done takes a share out of the window's count; its set was dropped.
func (m *Machine) done(t *topic, s *share) {
	s.set = noSet
	t.window.live--
	m.stats.Window--
}

// take ends what a share owes a group.
func (m *Machine) take(t *topic, s *share, g *group) {
	if s.set = m.sets.without(s.set, g); s.set == noSet {
		m.done(t, s)
	}
}

func (m *Machine) update(at int64, op *Op) {
	t := m.topic(op.Topic)
	for i := range op.Failed {
		f := &op.Failed[i]
		g := m.group(f.Group)
		w := waiting{due: f.Due, address: op.First, position: op.First, topic: t, attempt: f.Attempt}
		s := t.window.find(op.First)
		switch old := g.line.get(op.First); {
		case s != nil && m.sets.has(s.set, g):
			w.position, w.size = s.position, s.size
			m.take(t, s, g)
		case old != nil && old.topic == t:
			w.position, w.size = old.position, old.size
		case old != nil: // an address is in one topic only
			m.stats.Ignored++
			continue
		default:
			// Only a cursor can have read it: below the attach record, and below this one.
			if p := t.positions[f.Group]; op.First >= at || p != nil && p.Attached && op.First >= p.Attach {
				m.stats.Ignored++
				continue
			}
		}
		m.wait(g, w)
	}
	t.window.trim()
}

func (m *Machine) wait(g *group, w waiting) {
	n := g.line.len()
	g.line.put(w)
	m.stats.Retries += g.line.len() - n
}

func (m *Machine) retire(op *Op) bool {
	t, g := m.topics[op.Topic], m.groups[op.Group]
	if t == nil || g == nil {
		return false
	}
	if w := g.line.get(op.First); op.Last == 0 && w != nil && w.topic == t {
		g.line.take(op.First)
		m.stats.Retries--
		return true
	}
	found := false
	for i := t.window.from(op.First); i < len(t.window.shares) && t.window.shares[i].address <= max(op.First, op.Last); i++ {
		if s := &t.window.shares[i]; m.sets.has(s.set, g) {
			found = true
			m.take(t, s, g)
		}
	}
	t.window.trim()
	return found
}

func (m *Machine) bind(at int64, op *Op) bool {
	t, g := m.topic(op.Topic), m.group(op.Group)
	for i := range t.bindings {
		if b := &t.bindings[i]; b.is(g, op.Binding) {
			if b.Binding != op.Binding {
				b.Binding = op.Binding
				m.tellBind(at, t, b)
			}
			return true
		}
	}
	t.bindings = append(t.bindings, binding{Binding: op.Binding, group: g, since: at})
	if t.positions[op.Group] == nil { // a new group starts now (ruling A42)
		t.positions[g.name] = &position{group: g, GroupPosition: GroupPosition{Cursor: at}}
	}
	m.tellBind(at, t, &t.bindings[len(t.bindings)-1])
	return true
}

// is reports whether b is the live binding that the other one names: kind and expression make it.
func (b *binding) is(g *group, o Binding) bool {
	return b.until == 0 && b.group == g && b.Kind == o.Kind && b.Expr == o.Expr
}

func (m *Machine) tellBind(at int64, t *topic, b *binding) {
	if m.exchange != nil {
		m.exchange.Bind(at, t.name, b.group.name, b.Binding)
	}
}

func (m *Machine) unbind(at int64, op *Op) bool {
	t, g := m.topics[op.Topic], m.groups[op.Group]
	if t == nil || g == nil {
		return false
	}
	i := slices.IndexFunc(t.bindings, func(b binding) bool { return b.is(g, op.Binding) })
	if i < 0 {
		return false
	}
	b := &t.bindings[i]
	b.until = at
	if m.exchange != nil {
		m.exchange.Unbind(at, t.name, g.name, b.Binding)
	}
	m.prune(t, t.positions[g.name])
	return true
}

// prune forgets bindings that have ended below everything that the group's cursor still has to read.
func (m *Machine) prune(t *topic, p *position) {
	t.bindings = slices.DeleteFunc(t.bindings, func(b binding) bool {
		return b.group == p.group && b.until != 0 && (b.until == b.since || p.next() >= b.until)
	})
}

// next is the first address that the cursor has still to read.
func (p *position) next() int64 {
	if p.Attached && p.Cursor >= p.Attach {
		return math.MaxInt64
	}
	return p.Cursor
}

func (m *Machine) detach(at int64, t *topic, p *position) {
	for i := t.window.head; i < len(t.window.shares); i++ {
		if s := &t.window.shares[i]; m.sets.has(s.set, p.group) {
			m.wait(p.group, waiting{address: s.address, position: s.position, size: s.size, topic: t})
			m.take(t, s, p.group)
		}
	}
	t.window.trim()
	if p.Cursor >= p.Attach {
		p.Cursor = at
	} else {
		p.SkipFrom, p.SkipTo = p.Attach, at
	}
	p.Attached, p.Attach = false, 0
	t.attached--
	m.forget(t)
	m.prune(t, p)
}

func (m *Machine) cursor(t *topic, p *position, to int64) bool {
	if p.Attached {
		to = min(to, p.Attach)
	}
	if to <= p.Cursor {
		return false
	}
	if p.SkipFrom < p.SkipTo && to >= p.SkipFrom {
		to = max(to, p.SkipTo)
		p.SkipFrom, p.SkipTo = 0, 0
	}
	p.Cursor = to
	m.prune(t, p)
	return true
}

func (m *Machine) topic(name string) *topic {
	t := m.topics[name]
	if t == nil {
		t = &topic{name: name, positions: map[string]*position{}}
		m.topics[name] = t
	}
	return t
}

func (m *Machine) group(name string) *group {
	g := m.groups[name]
	if g == nil {
		g = &group{name: name, id: uint32(len(m.byID))}
		m.groups[name] = g
		m.byID = append(m.byID, g)
	}
	return g
}

// GroupBinding is a binding with its owner and the address of the record that made it.
type GroupBinding struct {
	Topic, Group string
	Binding      Binding
	Since        int64
}

// Bindings lists the bindings that hold, ordered by topic, group, kind and expression.
func (m *Machine) Bindings() []GroupBinding {
	var all []GroupBinding
	for _, t := range m.topics {
		for i := range t.bindings {
			if b := &t.bindings[i]; b.until == 0 {
				all = append(all, GroupBinding{t.name, b.group.name, b.Binding, b.since})
			}
		}
	}
	slices.SortFunc(all, func(a, b GroupBinding) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Group, b.Group),
			cmp.Compare(a.Binding.Kind, b.Binding.Kind), cmp.Compare(a.Binding.Expr, b.Binding.Expr))
	})
	return all
}

// Cursor tells where a group stands on a topic; false when it never had a binding there.
func (m *Machine) Cursor(topic, group string) (GroupPosition, bool) {
	t := m.topics[topic]
	if t == nil {
		return GroupPosition{}, false
	}
	p := t.positions[group]
	if p == nil {
		return GroupPosition{}, false
	}
	return p.GroupPosition, true
}

// Retries fills dst with waiting retries of a group in order of (due, address), starting behind after, or at the first
// one when after is the zero Retry; 0 when there are no more.
func (m *Machine) Retries(group string, after Retry, dst []Retry) int {
	g := m.groups[group]
	if g == nil || len(dst) == 0 {
		return 0
	}
	due, address := after.Due, after.Address
	if after == (Retry{}) {
		address = -1
	}
	n := 0
	g.line.after(due, address, func(w *waiting) bool {
		dst[n] = w.retry(g)
		n++
		return n < len(dst)
	})
	return n
}

func (w *waiting) retry(g *group) Retry {
	return Retry{Topic: w.topic.name, Group: g.name, Address: w.address, Position: w.position, Size: w.size, Attempt: w.attempt, Due: w.due}
}

// Waits tells whether the message at an address waits for another attempt in a group.
func (m *Machine) Waits(group string, address int64) bool {
	g := m.groups[group]
	return g != nil && g.line.get(address) != nil
}

// RetryCount is how many targets of a group wait for another attempt.
func (m *Machine) RetryCount(group string) int {
	if g := m.groups[group]; g != nil {
		return g.line.len()
	}
	return 0
}

// Stats counts what is there.
func (m *Machine) Stats() Stats { return m.stats }

// Pending is a message with an open outcome: what the data queue says minus what the operate queue says.
type Pending struct {
	Address, Position int64
	Size              int32
	Targets           []string // that hold it in the window, ordered by name
	Retries           []Retry  // ordered by group
}

// Scan goes through the messages of a topic from an address on whose outcome is open, in address order. It sorts the
// retries of the topic first, so it is for operators and tests, not for delivery.
func (m *Machine) Scan(topic string, from int64) iter.Seq[Pending] {
	return func(yield func(Pending) bool) {
		t := m.topics[topic]
		if t == nil {
			return
		}
		pending := map[int64]*Pending{}
		entry := func(address, position int64, size int32) *Pending {
			p := pending[address]
			if p == nil {
				p = &Pending{Address: address}
				pending[address] = p
			}
			if p.Size == 0 {
				p.Position, p.Size = position, size
			}
			return p
		}
		for i := t.window.from(from); i < len(t.window.shares); i++ {
			if s := &t.window.shares[i]; s.set != noSet {
				entry(s.address, s.position, s.size).Targets = slices.Sorted(slices.Values(m.sets.all[s.set].names))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(m.groups)) {
			g := m.groups[name]
			g.line.after(-1, 0, func(w *waiting) bool {
				if w.topic == t && w.address >= from {
					p := entry(w.address, w.position, w.size)
					p.Retries = append(p.Retries, w.retry(g))
				}
				return true
			})
		}
		for _, address := range slices.Sorted(maps.Keys(pending)) {
			if !yield(*pending[address]) {
				return
			}
		}
	}
}
