package notify

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fusionmq/fusionmq/notify/delivery"
	"github.com/fusionmq/fusionmq/notify/exchange"
	"github.com/fusionmq/fusionmq/notify/wire"
	"github.com/fusionmq/fusionmq/store/state"
)

// MaxGroups is the most groups that one connection may belong to.
const MaxGroups = 128

// Delivery is a message on its way to a connection; see [delivery.Delivery].
type Delivery = delivery.Delivery

// Outlet is the writing half of a transport's connection. Its methods are called with a group's lock held: they must not
// block and must not call the session. Deliveries that Push was given are loaded with [Session.Load] when they are
// written, so what waits for a slow connection are heads, not bodies.
type Outlet = delivery.Conn

// Session is one connection of a client. Metadata, Subscribe, Unsubscribe, Credit, Send and Answers belong to the
// goroutine that reads the connection; Load, SetTimeout, Drop and Drained to the one that writes it. Close may be called
// by anybody.
type Session struct {
	s    *Service
	out  Outlet
	peer netip.AddrPort

	queue uint32 // next queue that a send goes to

	members atomic.Pointer[[]*membership] // by member index; replaced as a whole

	mu struct { // before Service.mu
		sync.Mutex
		next    uint8 // member index that is tried next
		limited bool
		closed  bool
	}
}

// membership is a connection's place in one group.
type membership struct {
	g *group
	m *delivery.Member
}

// Open makes the session of a new connection, without any group. peer is written as the BORNHOST of what it sends.
func (s *Service) Open(out Outlet, peer netip.AddrPort) (*Session, error) {
	if !s.started.Load() {
		return nil, ErrStopping
	}
	se := &Session{s: s, out: out, peer: peer, queue: s.queue.Add(1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.stopping {
		return nil, ErrStopping
	}
	s.mu.sessions[se] = struct{}{}
	return se, nil
}

// Metadata sets the groups that the connection belongs to; a later call replaces the set. credit says that the client
// grants credit: it is sent nothing for a group before Credit says so.
func (se *Session) Metadata(groups []string, credit bool) error {
	if len(groups) == 0 {
		return refuse("clientInfoSet is empty: at least one group is needed")
	}
	if len(groups) > MaxGroups {
		return refuse("clientInfoSet has %d groups; at most %d are allowed", len(groups), MaxGroups)
	}
	for _, name := range groups {
		if err := wire.CheckGroup("group", name); err != nil {
			return refusal(err)
		}
	}
	se.mu.Lock()
	defer se.mu.Unlock()
	if se.mu.closed {
		return refusal(ErrStopping)
	}
	if old := se.members.Load(); old != nil {
		for _, ms := range *old {
			if ms == nil {
				continue
			}
			if !slices.Contains(groups, ms.g.name) {
				se.leaveLocked(ms)
			} else if credit != se.mu.limited {
				ms.g.mu.Lock()
				ms.g.d.Limit(ms.m, credit, se.s.now())
				ms.g.pumpLocked()
				ms.g.mu.Unlock()
			}
		}
	}
	se.mu.limited = credit
	for _, name := range groups {
		if se.member(name) == nil {
			se.joinLocked(name)
		}
	}
	return nil
}

// In tells whether the connection belongs to a group.
func (se *Session) In(group string) bool { return se.member(group) != nil }

// Ready tells whether metadata was accepted.
func (se *Session) Ready() bool { return se.members.Load() != nil }

func (se *Session) member(group string) *membership {
	if all := se.members.Load(); all != nil {
		for _, ms := range *all {
			if ms != nil && ms.g.name == group {
				return ms
			}
		}
	}
	return nil
}

// setLocked replaces the table of members by one with ms, which may be nil, at index.
func (se *Session) setLocked(index uint8, ms *membership) {
	var next []*membership
	if old := se.members.Load(); old != nil {
		next = slices.Clone(*old)
	}
	for len(next) <= int(index) {
		next = append(next, nil)
	}
	next[index] = ms
	se.members.Store(&next)
}

// at is the membership with a member index, nil when there is none.
func (se *Session) at(index uint8) *membership {
	if all := se.members.Load(); all != nil && int(index) < len(*all) {
		return (*all)[index]
	}
	return nil
}

func (se *Session) joinLocked(name string) {
	s := se.s
	for se.at(se.mu.next) != nil {
		se.mu.next++
	}
	index := se.mu.next
	se.mu.next++ // an answer on its way may still name a member of before
	for {
		g := s.group(name, true)
		g.mu.Lock()
		if g.gone {
			g.mu.Unlock()
			continue
		}
		first := g.d.Members() == 0
		ms := &membership{g: g, m: g.d.Join(se.out, index, se.mu.limited)}
		back := len(g.parked) > 0
		se.setLocked(index, ms)
		g.mu.Unlock()
		if first {
			s.online(g)
		} else {
			g.mu.Lock()
			g.pumpLocked()
			g.mu.Unlock()
		}
		if back {
			s.work.Add(1)
			s.unpark(g)
		}
		return
	}
}

func (se *Session) leaveLocked(ms *membership) {
	g := ms.g
	g.mu.Lock()
	se.setLocked(ms.m.Index, nil)
	g.d.Leave(ms.m, g.s.now())
	g.leaveLocked()
	g.pumpLocked()
	publisher := g.publisherLocked()
	g.mu.Unlock()
	if !publisher {
		return
	}
	// A group without a subscription leaves nothing behind, so that names cost memory only while they are connected.
	s := g.s
	s.mu.Lock()
	defer s.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.publisherLocked() && !g.gone {
		s.dropLocked(g)
	}
}

// dropLocked takes a group out of the table. It is called with the locks of the table and of the group held.
func (s *Service) dropLocked(g *group) {
	g.gone = true
	g.dropNameLocked()
	s.counters.keepCounts(g.d.Counts())
	delete(s.mu.groups, g.name)
}

// publisherLocked tells whether the group has no member and never had a subscription. One that was made a moment ago may not have
// reached the group's streams, but the exchange knows it.
func (g *group) publisherLocked() bool {
	return g.d.Members() == 0 && len(g.streams) == 0 && len(g.parked) == 0 && !g.loading && !g.naming.held && len(g.s.exchange.Topics(g.name)) == 0
}

// Close ends the session: what it had not answered goes to other machines. It may be called more than once.
func (se *Session) Close() {
	se.mu.Lock()
	defer se.mu.Unlock()
	if se.mu.closed {
		return
	}
	se.mu.closed = true
	if all := se.members.Load(); all != nil {
		for _, ms := range *all {
			if ms != nil {
				se.leaveLocked(ms)
			}
		}
	}
	se.s.mu.Lock()
	delete(se.s.mu.sessions, se)
	se.s.mu.Unlock()
}

// Subscribe registers a binding and returns when it holds: every message stored from then on is matched against it.
// Registering a binding again changes its watermark and persistence.
func (se *Session) Subscribe(b *wire.Binding) error {
	s := se.s
	if err := se.checkBinding(b); err != nil {
		return err
	}
	sb := stateBinding(b)
	if err := exchange.Check(sb); err != nil {
		return refuse("kind %s: this server serves direct and fanout bindings only", b.Kind)
	}
	if b.Shadow {
		return refuse("shadow: this server does not serve shadow subscriptions")
	}
	g, err := se.hold(b.Group)
	if err != nil {
		return err
	}
	defer g.letGo()
	if err := s.topicFor(b.Topic); err != nil {
		return refusal(err)
	}
	h := s.exchange.History(b.Topic, b.Group)
	if slices.Contains(h.Live(nil), sb) {
		return nil // as every client does at every start
	}
	if h.Len() >= exchange.MaxBindings {
		return refuse("group %s has %d bindings on topic %s; at most %d are allowed, ended ones that its cursor needs included",
			wire.Quote(b.Group), h.Len(), b.Topic, exchange.MaxBindings)
	}
	return g.bind(state.Op{Kind: state.OpBind, Topic: b.Topic, Group: b.Group, Binding: sb})
}

// Unsubscribe removes a binding; messages from then on are not matched against it. What is owed already is delivered.
func (se *Session) Unsubscribe(b *wire.Binding) error {
	if err := se.checkBinding(b); err != nil {
		return err
	}
	sb := stateBinding(b)
	for _, have := range se.s.exchange.History(b.Topic, b.Group).Live(nil) {
		if have.Kind == sb.Kind && have.Expr == sb.Expr {
			_, err := se.s.change(state.Op{Kind: state.OpUnbind, Topic: b.Topic, Group: b.Group, Binding: have})
			return err
		}
	}
	return refuse("group %s has no %s binding %s on topic %s", wire.Quote(b.Group), b.Kind, wire.Quote(b.Expr), b.Topic)
}

func (se *Session) checkBinding(b *wire.Binding) error {
	if err := b.Validate(); err != nil {
		return refusal(err)
	}
	if !se.In(b.Group) {
		return notMember(b.Group)
	}
	return nil
}

func stateBinding(b *wire.Binding) state.Binding {
	sb := state.Binding{Expr: b.Expr, WaterMark: b.WaterMark, Volatile: !b.Persistent}
	switch b.Kind {
	case wire.Direct:
		sb.Kind = state.BindDirect
	case wire.Pattern:
		sb.Kind = state.BindPattern
	case wire.Header:
		sb.Kind = state.BindHeader
	case wire.Fanout:
		sb.Kind = state.BindFanout
	}
	return sb
}

// Credit sets how many deliveries of a group, and how many of their bytes (0: no limit), may be unanswered on this
// connection. It is a level, and the newest one holds.
func (se *Session) Credit(group string, messages uint32, bytes uint64) error {
	ms := se.member(group)
	if ms == nil {
		return notMember(group)
	}
	ms.g.mu.Lock()
	defer ms.g.mu.Unlock()
	ms.g.d.Credit(ms.m, messages, int64(min(bytes, 1<<62)))
	ms.g.pumpLocked()
	return nil
}

// Answer is a subscriber's answer to one delivery.
type Answer struct {
	Handle uint32
	Status wire.Status
	ID     uint64 // first eight bytes of the message id in the answer; 0 without one
}

// Answers applies answers in their order. Ones that say nothing new are ignored.
func (se *Session) Answers(as []Answer) {
	now := se.s.now()
	for len(as) > 0 {
		index := delivery.MemberIndex(as[0].Handle)
		n := 1
		for n < len(as) && delivery.MemberIndex(as[n].Handle) == index {
			n++
		}
		if ms := se.at(index); ms != nil {
			ms.g.mu.Lock()
			for _, a := range as[:n] {
				ms.g.d.Answer(ms.m, a.Handle, verdict(a.Status), a.ID, now)
			}
			ms.g.pumpLocked()
			ms.g.mu.Unlock()
		}
		as = as[n:]
	}
}

func verdict(s wire.Status) delivery.Verdict {
	switch s {
	case wire.NoError:
		return delivery.Acked
	case wire.StatusBusy:
		return delivery.Busy
	case wire.StatusUnknown:
		return delivery.Unknown
	}
	return delivery.Failed // undefined numbers, too (rulings A12)
}

// Drained tells that an outlet that had no room has some again.
func (se *Session) Drained() {
	all := se.members.Load()
	if all == nil {
		return
	}
	for _, ms := range *all {
		if ms != nil {
			ms.g.mu.Lock()
			ms.g.d.Wake(ms.m)
			ms.g.pumpLocked()
			ms.g.mu.Unlock()
		}
	}
}

func (se *Session) byHandle(handle uint32) *membership { return se.at(delivery.MemberIndex(handle)) }
