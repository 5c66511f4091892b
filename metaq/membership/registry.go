// Package membership is the table of who is there: which connections are members of which consumer and producer groups,
// and what each consumer group subscribes.
//
// It is a state machine without clock and socket. Heartbeats, closed connections and the passing of time go in; the
// names of groups whose members have to rebalance come out. Connections are numbers that its owner gives.
//
// What it promises: a member is gone when its connection is dropped, when it leaves, or when its group was not in a
// heartbeat of that connection for the expiry time, even if the same connection keeps other groups alive. Subscriptions
// follow RocketMQ: a larger version replaces, a topic missing from the newest heartbeat is removed.
package membership

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/metaq/tagfilter"
)

// ConnID is a connection. 0 is none.
type ConnID uint64

// Peer is the sender of a heartbeat.
type Peer struct {
	Conn     ConnID
	Addr     string // host:port
	Language string
	Version  int32
}

// Member is one client of a group.
type Member struct {
	Peer
	ClientID string
	Seen     time.Time // of the last heartbeat that named the group
	Subs     string    // what it subscribes, for people; "" of a producer, and before it has said so

	sum uint64 // of what it subscribes; 0 when it is not known
}

// Sub is the subscription of a group to a topic with its compiled filter.
type Sub struct {
	remoting.SubscriptionData
	Filter *tagfilter.Filter // nil when the expression does not compile or is not a TAG expression
	Err    error             // why a TAG expression does not compile

	Compiled atomic.Value // what the registry's owner has made of an expression of another type
}

// Group is what a consumer group is at one moment. It is immutable.
type Group struct {
	Name  string
	Type  remoting.ConsumeType
	Model remoting.MessageModel
	From  remoting.ConsumeFromWhere
	Subs  map[string]*Sub // by topic
}

// Sub returns the subscription to a topic, nil when there is none.
func (g *Group) Sub(topic string) *Sub { return g.Subs[topic] }

// Topics are the subscribed topics in order.
func (g *Group) Topics() []string { return slices.Sorted(maps.Keys(g.Subs)) }

type consumerGroup struct {
	now         atomic.Pointer[Group]
	members     map[ConnID]*Member
	fingerprint int64
	forms       map[uint64]int // how many members subscribe so
}

// connection is what one connection is a member of, each group with its weight.
type connection struct {
	consumers, producers map[string]int
	weight               int // of all of them
}

// join makes the connection a member of a group, or a member of another weight.
func (c *connection) join(groups map[string]int, name string, weight int) {
	c.weight += weight - groups[name]
	groups[name] = weight
}

func (c *connection) leave(groups map[string]int, name string) {
	c.weight -= groups[name]
	delete(groups, name)
}

// Registry is the table. Its methods may be called from any goroutine.
type Registry struct {
	mu struct {
		sync.RWMutex
		consumers map[string]*consumerGroup
		producers map[string]map[ConnID]*Member
		conns     map[ConnID]*connection
	}
}

// New makes an empty table.
func New() *Registry {
	r := &Registry{}
	r.mu.consumers = map[string]*consumerGroup{}
	r.mu.producers = map[string]map[ConnID]*Member{}
	r.mu.conns = map[ConnID]*connection{}
	return r
}

// What one connection may be a member of at a time. A heartbeat names all groups of its client, so an honest connection stays
// within what one heartbeat holds; another could name new groups in every one, and all would stay until they expire.
const (
	MaxGroups = 1000
	MaxWeight = 4 << 20 // bytes that its memberships take, about
)

// Admits says why a connection may not be a member of all that a heartbeat names beside what it is a member of already. Its
// answer holds for a Beat that follows while no other of that connection runs.
func (r *Registry) Admits(conn ConnID, hb *remoting.HeartbeatData) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	c := r.mu.conns[conn]
	if c == nil {
		c = &connection{}
	}
	groups, total := len(c.consumers)+len(c.producers), c.weight
	add := func(was map[string]int, name string, subs []remoting.SubscriptionData) {
		old, known := was[name]
		if !known {
			groups++
		}
		total += weight(hb.ClientID, name, subs) - old
	}
	for _, p := range hb.ProducerDataSet {
		add(c.producers, p.GroupName, nil)
	}
	for _, g := range hb.ConsumerDataSet {
		add(c.consumers, g.GroupName, g.SubscriptionDataSet)
	}
	if groups > MaxGroups {
		return fmt.Errorf("the connection would be a member of %d groups, the limit is %d", groups, MaxGroups)
	}
	if total > MaxWeight {
		return fmt.Errorf("the memberships of the connection would take %d bytes, the limit is %d", total, MaxWeight)
	}
	return nil
}

// weight is about how many bytes a membership takes.
func weight(client, group string, subs []remoting.SubscriptionData) int {
	const member, sub, text = 256, 256, 16
	n := member + len(client) + len(group)
	for i := range subs {
		s := &subs[i]
		n += sub + len(s.Topic) + len(s.SubString) + len(s.ExpressionType) + 8*len(s.CodeSet)
		for _, t := range s.TagsSet {
			n += text + len(t)
		}
	}
	return n
}

// Beat registers what a heartbeat says at time now. rebalance are the clustering groups that gained a member or changed
// the set of their topics. resend is true when the heartbeat left its subscriptions out and the table does not know them
// in that form: the client has to send them in full.
func (r *Registry) Beat(now time.Time, p Peer, hb *remoting.HeartbeatData) (rebalance []string, resend bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.mu.conns[p.Conn]
	if c == nil {
		c = &connection{consumers: map[string]int{}, producers: map[string]int{}}
		r.mu.conns[p.Conn] = c
	}
	for _, producer := range hb.ProducerDataSet {
		name := producer.GroupName
		g := r.mu.producers[name]
		if g == nil {
			g = map[ConnID]*Member{}
			r.mu.producers[name] = g
		}
		g[p.Conn] = &Member{Peer: p, ClientID: hb.ClientID, Seen: now}
		c.join(c.producers, name, weight(hb.ClientID, name, nil))
	}
	fingerprint := int64(hb.HeartbeatFingerprint)
	for i := range hb.ConsumerDataSet {
		in := &hb.ConsumerDataSet[i]
		name := in.GroupName
		g := r.mu.consumers[name]
		if g == nil {
			g = &consumerGroup{members: map[ConnID]*Member{}, fingerprint: fingerprint}
			g.now.Store(&Group{Name: name, Subs: map[string]*Sub{}})
			r.mu.consumers[name] = g
			resend = resend || hb.WithoutSub
		} else if fingerprint != 0 && g.fingerprint != fingerprint {
			resend = resend || hb.WithoutSub
			g.fingerprint = fingerprint
		}
		old := g.members[p.Conn]
		joined := old == nil || old.ClientID != hb.ClientID
		m := &Member{Peer: p, ClientID: hb.ClientID, Seen: now}
		switch {
		case !hb.WithoutSub:
			if m.sum, m.Subs = form(in); old != nil && old.Subs == m.Subs {
				m.Subs = old.Subs
			}
		case old != nil:
			m.sum, m.Subs = old.sum, old.Subs
		}
		g.countLocked(old, -1)
		g.countLocked(m, 1)
		g.members[p.Conn] = m
		c.join(c.consumers, name, weight(hb.ClientID, name, in.SubscriptionDataSet))
		next, topics := merge(g.now.Load(), in, hb.WithoutSub)
		g.now.Store(next)
		if (joined || topics) && next.Model != remoting.Broadcasting {
			rebalance = append(rebalance, name)
		}
	}
	return rebalance, resend
}

// merge gives the group after a heartbeat, the same pointer when nothing changed, and whether its set of topics changed.
func merge(was *Group, in *remoting.ConsumerData, keepSubs bool) (next *Group, topics bool) {
	changed := was.Type != in.ConsumeType || was.Model != in.MessageModel || was.From != in.ConsumeFromWhere
	subs := was.Subs
	if !keepSubs {
		subs = make(map[string]*Sub, len(in.SubscriptionDataSet))
		for _, s := range in.SubscriptionDataSet {
			if old := was.Subs[s.Topic]; old != nil && old.SubVersion >= s.SubVersion {
				subs[s.Topic] = old
				continue
			}
			changed = true
			topics = topics || was.Subs[s.Topic] == nil
			subs[s.Topic] = compile(s)
		}
		for t := range was.Subs {
			if subs[t] == nil {
				changed, topics = true, true
			}
		}
	}
	if !changed {
		return was, false
	}
	return &Group{Name: was.Name, Type: in.ConsumeType, Model: in.MessageModel, From: in.ConsumeFromWhere, Subs: subs}, topics
}

// compile makes the filter of a subscription. A type that is missing means TAG; class filters are obsolete and pass
// everything, as in RocketMQ.
func compile(s remoting.SubscriptionData) *Sub {
	if s.ExpressionType == "" {
		s.ExpressionType = "TAG"
	}
	out := &Sub{SubscriptionData: s}
	switch {
	case s.ClassFilterMode:
		out.Filter = tagfilter.All()
	case s.ExpressionType == "TAG":
		out.Filter, out.Err = tagfilter.Subscription(s.SubString, s.TagsSet)
	}
	return out
}

// Leave takes a connection out of the named groups; empty names are skipped. It returns the groups whose remaining
// members have to rebalance. It keeps nothing of the names.
func (r *Registry) Leave(conn ConnID, producer, consumer string) (rebalance []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.mu.conns[conn]
	if c == nil {
		return nil
	}
	if _, ok := c.producers[producer]; ok {
		r.leaveProducerLocked(c, conn, producer)
	}
	if _, ok := c.consumers[consumer]; ok {
		name := r.mu.consumers[consumer].now.Load().Name // the caller's text may be memory that is used again
		if r.leaveConsumerLocked(c, conn, consumer) {
			rebalance = append(rebalance, name)
		}
	}
	r.forgetLocked(conn, c)
	return rebalance
}

// Drop takes a closed connection out of everything.
func (r *Registry) Drop(conn ConnID) (rebalance []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.mu.conns[conn]
	if c == nil {
		return nil
	}
	for name := range c.producers {
		r.leaveProducerLocked(c, conn, name)
	}
	for name := range c.consumers {
		if r.leaveConsumerLocked(c, conn, name) {
			rebalance = append(rebalance, name)
		}
	}
	delete(r.mu.conns, conn)
	slices.Sort(rebalance)
	return rebalance
}

// Expire takes out every member not heard of since the time since. silent are connections that have no membership left
// because of it; their owner closes them.
func (r *Registry) Expire(since time.Time) (rebalance []string, silent []ConnID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for conn, c := range r.mu.conns {
		for name := range c.producers {
			if r.mu.producers[name][conn].Seen.Before(since) {
				r.leaveProducerLocked(c, conn, name)
			}
		}
		for name := range c.consumers {
			if r.mu.consumers[name].members[conn].Seen.Before(since) && r.leaveConsumerLocked(c, conn, name) {
				rebalance = append(rebalance, name)
			}
		}
		if r.forgetLocked(conn, c) {
			silent = append(silent, conn)
		}
	}
	slices.Sort(rebalance)
	slices.Sort(silent)
	rebalance = slices.DeleteFunc(slices.Compact(rebalance), func(name string) bool { return r.mu.consumers[name] == nil })
	return rebalance, silent
}

func (r *Registry) leaveProducerLocked(c *connection, conn ConnID, name string) {
	c.leave(c.producers, name)
	g := r.mu.producers[name]
	delete(g, conn)
	if len(g) == 0 {
		delete(r.mu.producers, name)
	}
}

// leaveConsumerLocked reports whether there are members left who have to rebalance.
func (r *Registry) leaveConsumerLocked(c *connection, conn ConnID, name string) bool {
	c.leave(c.consumers, name)
	g := r.mu.consumers[name]
	g.countLocked(g.members[conn], -1)
	delete(g.members, conn)
	if len(g.members) == 0 {
		delete(r.mu.consumers, name)
		return false
	}
	return g.now.Load().Model != remoting.Broadcasting
}

func (r *Registry) forgetLocked(conn ConnID, c *connection) bool {
	if len(c.consumers)+len(c.producers) > 0 {
		return false
	}
	delete(r.mu.conns, conn)
	return true
}

// Group returns a consumer group that has members, nil when it has none. It does not allocate.
func (r *Registry) Group(name string) *Group {
	r.mu.RLock()
	g := r.mu.consumers[name]
	r.mu.RUnlock()
	if g == nil {
		return nil
	}
	return g.now.Load()
}

// ClientIDs are the ids of a group's members, each once, in order: every broker has to give the same list.
func (r *Registry) ClientIDs(group string) []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	g := r.mu.consumers[group]
	if g == nil {
		return nil
	}
	ids := make([]string, 0, len(g.members))
	for _, m := range g.members {
		ids = append(ids, m.ClientID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Consumers are the members of a consumer group, ordered by client id and connection.
func (r *Registry) Consumers(group string) []Member {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if g := r.mu.consumers[group]; g != nil {
		return list(g.members)
	}
	return nil
}

// Producers are the members of a producer group, ordered by client id and connection.
func (r *Registry) Producers(group string) []Member {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return list(r.mu.producers[group])
}

func list(m map[ConnID]*Member) []Member {
	var out []Member
	for _, x := range m {
		out = append(out, *x)
	}
	slices.SortFunc(out, func(a, b Member) int {
		if a.ClientID != b.ClientID {
			if a.ClientID < b.ClientID {
				return -1
			}
			return 1
		}
		return int(int64(a.Conn) - int64(b.Conn))
	})
	return out
}

// GroupNames are the consumer groups that have members, in order.
func (r *Registry) GroupNames() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.mu.consumers))
}

// Counts tells how many connections, consumer groups and producer groups the table holds.
func (r *Registry) Counts() (conns, consumers, producers int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.mu.conns), len(r.mu.consumers), len(r.mu.producers)
}
