package state

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Machine is the push state. Message, Apply and Load need it for themselves; the other methods may run beside each other.
type Machine struct {
	exchange Exchange // nil: nothing is owed
	table    Table
	at       int64 // address of the last record that was applied; -1 at first
	now      int64 // newest store time of the records so far, milliseconds since 1970
	remember int64 // how long an outcome is remembered, see RememberOutcomes
	pruneAt  int64 // when the oldest outcome is forgotten
	topics   map[string]*topic
	groups   map[string]*group
	byTopic  []*topic // by id
	byID     []*group // by id
	lines    []*line  // by space
	sets     sets
	stats    Stats
	late     late
	lows     lows

	targets []string // scratch of Message
	owed    []*group
	looked  int            // bindings that were looked at to find some; for tests
	key     [KeyBytes]byte // scratch of those who change the table
	value   [ValueBytes]byte
}

// Stats count what the state holds, and what it refused since it was made.
type Stats struct {
	Window  int    // messages in the windows
	Retries int    // retries of all push groups
	Ignored uint64 // operations, or targets of an update, that came late or named what is not there

	Halves   int // undecided transactions, without those that were moved aside
	Aside    int // undecided, and nobody is asked any more
	Delays   int // messages that wait for their time
	Returns  int // messages that pull groups have sent back and will get again
	Outcomes int // transactions whose outcome is remembered
}

// topic is what the state knows of a topic that some group had a binding on.
type topic struct {
	name      string
	id        uint32
	positions map[string]*position
	attached  int // positions that are attached
	live      map[bindingKey]*binding
	window    window

	// The set that the last targets led to, as long as no position changes.
	cached struct {
		targets []string
		set     setID
		valid   bool
	}
}

// position is where a group stands on a topic. It is there from the group's first binding on.
type position struct {
	GroupPosition
	topic *topic
	group *group
	live  int        // bindings that hold
	ended []*binding // that the cursor may still need
}

// binding is a binding with its life; until is 0 while it lasts.
type binding struct {
	Binding
	group        *group
	since, until int64
}

// bindingKey is what makes a binding of a topic that holds.
type bindingKey struct {
	group *group
	kind  BindingKind
	expr  string
}

func (b *binding) key() bindingKey { return bindingKey{b.group, b.Kind, b.Expr} }

type group struct {
	name      string
	id        uint32
	lines     []*line     // one for each topic that the group ever had a retry of
	positions []*position // one for each topic that it ever had a binding on
}

// NewMachine makes an empty state with a table in memory. With a nil exchange nothing is owed, but operations are applied.
func NewMachine(x Exchange) *Machine { return NewMachineOn(x, new(memTable)) }

// NewMachineOn makes an empty state that keeps what waits in t, which is empty.
func NewMachineOn(x Exchange, t Table) *Machine {
	return &Machine{exchange: x, table: t, at: -1, remember: OutcomeMemory, pruneAt: math.MaxInt64, topics: map[string]*topic{}, groups: map[string]*group{}}
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
	m.forgetOutcomes()
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
	if op.Kind.waits() {
		return m.applyWaiting(op)
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
		w := waiting{due: f.Due, address: op.First, position: op.First, topic: t.id, attempt: f.Attempt}
		s := t.window.find(op.First)
		l := m.line(g, t, false)
		if s != nil && m.sets.has(s.set, g) {
			w.position, w.size = s.position, s.size
			m.take(t, s, g)
		} else if old, ok := m.retry(l, op.First); ok {
			w.position, w.size = old.position, old.size
			m.replace(l.space, &old, &w)
			continue
		} else if p := t.positions[f.Group]; op.First >= at || p != nil && p.Attached && op.First >= p.Attach {
			// Only a cursor can have read it: below the attach record, and below this one.
			m.stats.Ignored++
			continue
		}
		m.wait(m.line(g, t, true), &w)
	}
	t.window.trim()
}

func (m *Machine) retire(op *Op) bool {
	t, g := m.topics[op.Topic], m.groups[op.Group]
	if t == nil || g == nil {
		return false
	}
	found := false
	for i := t.window.from(op.First); i < len(t.window.shares) && t.window.shares[i].address <= max(op.First, op.Last); i++ {
		if s := &t.window.shares[i]; m.sets.has(s.set, g) {
			found = true
			m.take(t, s, g)
		}
	}
	t.window.trim()
	if op.Last == 0 && !found {
		l := m.line(g, t, false)
		if w, ok := m.retry(l, op.First); ok {
			m.unwait(l, &w)
			return true
		}
	}
	return found
}

func (m *Machine) bind(at int64, op *Op) bool {
	t, g := m.topic(op.Topic), m.group(op.Group)
	m.looked++
	if b := t.live[bindingKey{g, op.Binding.Kind, op.Binding.Expr}]; b != nil {
		if b.Binding != op.Binding {
			b.Binding = op.Binding
			m.tellBind(at, t, b)
		}
		return true
	}
	p := t.positions[op.Group]
	if p == nil { // a new group starts now (ruling A42)
		p = t.place(g, GroupPosition{Cursor: at})
	}
	b := &binding{Binding: op.Binding, group: g, since: at}
	t.live[b.key()] = b
	p.live++
	m.tellBind(at, t, b)
	return true
}

// place makes the position of a group that has none.
func (t *topic) place(g *group, at GroupPosition) *position {
	p := &position{GroupPosition: at, topic: t, group: g}
	t.positions[g.name] = p
	g.positions = append(g.positions, p)
	return p
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
	m.looked++
	b := t.live[bindingKey{g, op.Binding.Kind, op.Binding.Expr}]
	if b == nil {
		return false
	}
	delete(t.live, b.key())
	b.until = at
	if m.exchange != nil {
		m.exchange.Unbind(at, t.name, g.name, b.Binding)
	}
	p := t.positions[g.name]
	p.live--
	p.ended = append(p.ended, b)
	m.prune(p)
	return true
}

// prune forgets bindings that have ended below everything that the group's cursor still has to read, and those that were not
// persistent, which leave nothing for a cursor (ruling A40).
func (m *Machine) prune(p *position) {
	m.looked += len(p.ended)
	p.ended = slices.DeleteFunc(p.ended, func(b *binding) bool { return b.Volatile || b.until == b.since || p.next() >= b.until })
	if len(p.ended) == 0 {
		p.ended = nil
	}
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
			m.wait(m.line(p.group, t, true), &waiting{address: s.address, position: s.position, size: s.size})
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
	m.prune(p)
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
	m.prune(p)
	return true
}

func (m *Machine) topic(name string) *topic {
	t := m.topics[name]
	if t == nil {
		t = &topic{name: strings.Clone(name), id: uint32(len(m.byTopic)), positions: map[string]*position{}, live: map[bindingKey]*binding{}}
		m.topics[t.name] = t
		m.byTopic = append(m.byTopic, t)
	}
	return t
}

func (m *Machine) group(name string) *group {
	g := m.groups[name]
	if g == nil {
		g = &group{name: strings.Clone(name), id: uint32(len(m.byID))}
		m.groups[g.name] = g
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
		for _, b := range t.live {
			all = append(all, GroupBinding{t.name, b.group.name, b.Binding, b.since})
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

// Stats counts what is there.
func (m *Machine) Stats() Stats { return m.stats }
