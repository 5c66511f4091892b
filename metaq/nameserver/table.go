package nameserver

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
)

// DefaultTimeout is how long a broker lives without a sign of life, unless its registration says otherwise.
const DefaultTimeout = 120 * time.Second

// Bounds of the table: what registers is not trusted to be sane.
const (
	maxTopics  = 500_000
	maxBrokers = 10_000
	maxName    = 255
	maxQueues  = 65_536
)

// Registration is what a broker says of itself.
type Registration struct {
	Cluster string
	Broker  string // name of the broker group
	ID      int64  // 0 is the master
	Addr    string // host:port for clients; an empty host is filled in per client
	HAAddr  string
	Timeout time.Duration // 0: DefaultTimeout
	// ActingMaster: a replica with the smallest id may speak for the group.
	ActingMaster bool
	Zone         string

	Version remoting.DataVersion
	// Topics are all of the broker's topics, or only those that changed.
	Topics map[string]remoting.TopicConfig
	// Complete says that Topics are all: others the group registered before are removed. RocketMQ's brokers cannot say so.
	Complete bool
}

// Registered is the answer to a registration.
type Registered struct {
	HAAddr, MasterAddr string // of the group's master, for a replica
	Ignored            bool   // another live broker with a newer state owns the name and id
	First              bool   // the address was not known
	Skipped            int    // topics left out because of their name or queue counts
}

// ErrRegistration is wrapped by the reasons for refusing a registration; the text is for the broker.
var ErrRegistration = errors.New("registration refused")

// Table knows the live brokers and their topics. All methods may be called from any goroutine.
type Table struct {
	mu sync.RWMutex

	groups map[string]*group                        // by broker name
	live   map[member]*broker                       // by cluster and address
	topics map[string]map[string]remoting.QueueData // topic, broker name
}

// group is the brokers of one name.
type group struct {
	cluster, name string
	addrs         map[int64]string
	acting        bool
	zone          string
}

// member identifies a broker process.
type member struct{ cluster, addr string }

type broker struct {
	name    string
	id      int64
	haAddr  string
	owner   any // who registered it; its end is the broker's
	seen    time.Time
	timeout time.Duration
	version remoting.DataVersion
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{groups: map[string]*group{}, live: map[member]*broker{}, topics: map[string]map[string]remoting.QueueData{}}
}

func (r *Registration) check() error {
	bad := func(field, v, want string) error {
		return fmt.Errorf("%w: %s %q: want %s", ErrRegistration, field, v, want)
	}
	for _, n := range []struct{ field, v string }{{"clusterName", r.Cluster}, {"brokerName", r.Broker}} {
		if n.v == "" || len(n.v) > maxName {
			return bad(n.field, n.v[:min(len(n.v), 64)], "1 to 255 bytes")
		}
	}
	if r.ID < 0 {
		return bad("brokerId", strconv.FormatInt(r.ID, 10), "0 or more")
	}
	// Go clients split the addresses of a route at the comma.
	if _, port, err := net.SplitHostPort(r.Addr); err != nil || len(r.Addr) > maxName || strings.ContainsAny(r.Addr, ", \"") || !validPort(port) {
		return bad("brokerAddr", r.Addr[:min(len(r.Addr), 64)], "host:port")
	}
	return nil
}

func validPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// Register applies a registration. owner stands for the connection it came on; Lost with the same value takes it back.
func (t *Table) Register(r Registration, owner any, now time.Time) (Registered, error) {
	var out Registered
	if err := r.check(); err != nil {
		return out, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := member{r.Cluster, r.Addr}
	known := t.live[key]
	out.First = known == nil
	if out.First {
		if len(t.live) >= maxBrokers {
			return out, fmt.Errorf("%w: more than %d brokers", ErrRegistration, maxBrokers)
		}
		// A broker that changes one topic sends that topic alone. From one we do not know it would pass for its whole table.
		if len(r.Topics) == 1 && !r.Complete {
			return out, fmt.Errorf("%w: a single topic from a broker that is not registered; send all topics first", ErrRegistration)
		}
	}
	g := t.groups[r.Broker]
	if g != nil && g.cluster != r.Cluster {
		return out, fmt.Errorf("%w: broker name %s is in use by cluster %s", ErrRegistration, r.Broker, g.cluster)
	}
	if g != nil {
		if addr, ok := g.addrs[r.ID]; ok && addr != r.Addr {
			if old := t.live[member{r.Cluster, addr}]; old != nil && old.version.StateVersion > r.Version.StateVersion {
				out.Ignored = true
				return out, nil
			}
			delete(t.live, member{r.Cluster, addr}) // replaced
		}
	}
	if known != nil && (known.name != r.Broker || known.id != r.ID) {
		t.drop(key, known) // the same process under another identity
		known, g = nil, t.groups[r.Broker]
	}
	if g == nil {
		g = &group{cluster: r.Cluster, name: r.Broker, addrs: map[int64]string{}}
		t.groups[r.Broker] = g
	}
	g.addrs[r.ID] = r.Addr
	g.acting, g.zone = r.ActingMaster, r.Zone

	speaks := r.ID == remoting.MasterID || r.ActingMaster && r.ID == slices.Min(slices.Collect(maps.Keys(g.addrs)))
	if speaks && (known == nil || known.version != r.Version) {
		out.Skipped = t.setTopics(r)
	}
	if r.Timeout <= 0 {
		r.Timeout = DefaultTimeout
	}
	t.live[key] = &broker{name: r.Broker, id: r.ID, haAddr: r.HAAddr, owner: owner, seen: now, timeout: r.Timeout, version: r.Version}

	if r.ID != remoting.MasterID {
		if addr, ok := g.addrs[remoting.MasterID]; ok {
			out.MasterAddr = addr
			if m := t.live[member{r.Cluster, addr}]; m != nil {
				out.HAAddr = m.haAddr
			}
		}
	}
	return out, nil
}

func (t *Table) setTopics(r Registration) (skipped int) {
	for name, c := range r.Topics {
		queues := t.topics[name]
		if !validTopic(name) || c.ReadQueueNums < 0 || c.ReadQueueNums > maxQueues || c.WriteQueueNums < 0 || c.WriteQueueNums > maxQueues ||
			queues == nil && len(t.topics) >= maxTopics {
			skipped++
			continue
		}
		if queues == nil {
			queues = map[string]remoting.QueueData{}
			t.topics[name] = queues
		}
		queues[r.Broker] = remoting.QueueData{
			BrokerName: r.Broker, Perm: c.Perm, ReadQueueNums: c.ReadQueueNums, TopicSysFlag: c.TopicSysFlag, WriteQueueNums: c.WriteQueueNums,
		}
	}
	if r.Complete {
		for name, queues := range t.topics {
			if _, still := r.Topics[name]; !still {
				t.removeQueues(name, queues, r.Broker)
			}
		}
	}
	return skipped
}

func (t *Table) removeQueues(topic string, queues map[string]remoting.QueueData, broker string) {
	delete(queues, broker)
	if len(queues) == 0 {
		delete(t.topics, topic)
	}
}

func validTopic(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '%', c == '|':
		default:
			return false
		}
	}
	return true
}

// drop forgets a broker; its group's topics go with its last member.
func (t *Table) drop(key member, b *broker) {
	delete(t.live, key)
	g := t.groups[b.name]
	if g == nil || g.addrs[b.id] != key.addr {
		return
	}
	delete(g.addrs, b.id)
	if len(g.addrs) > 0 {
		return
	}
	delete(t.groups, b.name)
	for topic, queues := range t.topics {
		t.removeQueues(topic, queues, b.name)
	}
}

// Unregister removes a broker that says goodbye; it reports whether it was there.
func (t *Table) Unregister(cluster, name string, id int64, addr string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := member{cluster, addr}
	b := t.live[key]
	if b == nil || b.name != name || b.id != id {
		return false
	}
	t.drop(key, b)
	return true
}

// Lost removes what was registered by owner, whose connection is gone, and returns the addresses.
func (t *Table) Lost(owner any) []string {
	return t.dropIf(func(b *broker) bool { return b.owner == owner })
}

// Expire removes the brokers that have been silent for longer than their timeout and returns their addresses.
func (t *Table) Expire(now time.Time) []string {
	return t.dropIf(func(b *broker) bool { return now.Sub(b.seen) > b.timeout })
}

func (t *Table) dropIf(gone func(*broker) bool) (addrs []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, b := range t.live {
		if gone(b) {
			t.drop(key, b)
			addrs = append(addrs, key.addr)
		}
	}
	return addrs
}

// Alive notes a sign of life; false when the broker is not registered.
func (t *Table) Alive(cluster, addr string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.live[member{cluster, addr}]
	if b != nil {
		b.seen = now
	}
	return b != nil
}

// Version returns the data version of a broker's last registration.
func (t *Table) Version(cluster, addr string) (remoting.DataVersion, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if b := t.live[member{cluster, addr}]; b != nil {
		return b.version, true
	}
	return remoting.DataVersion{}, false
}

// Route returns where a topic's queues are, for a client that reached us at local. false: no live broker has it.
func (t *Table) Route(topic string, local netip.Addr) (remoting.TopicRouteData, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	queues := t.topics[topic]
	r := remoting.TopicRouteData{QueueDatas: make([]remoting.QueueData, 0, len(queues)), BrokerDatas: make([]remoting.BrokerData, 0, len(queues))}
	for name, q := range queues {
		if g := t.groups[name]; g != nil {
			r.QueueDatas = append(r.QueueDatas, q)
			r.BrokerDatas = append(r.BrokerDatas, g.data(local))
		}
	}
	slices.SortFunc(r.QueueDatas, func(a, b remoting.QueueData) int { return cmp.Compare(a.BrokerName, b.BrokerName) })
	slices.SortFunc(r.BrokerDatas, func(a, b remoting.BrokerData) int { return cmp.Compare(a.BrokerName, b.BrokerName) })
	return r, len(r.QueueDatas) > 0
}

func (g *group) data(local netip.Addr) remoting.BrokerData {
	d := remoting.BrokerData{BrokerAddrs: make(map[int64]string, len(g.addrs)), BrokerName: g.name, Cluster: g.cluster, EnableActingMaster: g.acting, ZoneName: g.zone}
	for id, addr := range g.addrs {
		d.BrokerAddrs[id] = Resolve(addr, local)
	}
	return d
}

// Resolve fills the empty host of an address with the one at which a client reached us; other addresses stay as they are.
func Resolve(addr string, local netip.Addr) string {
	if port, ok := strings.CutPrefix(addr, ":"); ok && local.IsValid() {
		return net.JoinHostPort(local.Unmap().WithZone("").String(), port)
	}
	return addr
}

// Cluster returns all clusters and brokers.
func (t *Table) Cluster(local netip.Addr) remoting.ClusterInfo {
	t.mu.RLock()
	defer t.mu.RUnlock()
	c := remoting.ClusterInfo{BrokerAddrTable: make(map[string]remoting.BrokerData, len(t.groups)), ClusterAddrTable: map[string][]string{}}
	for name, g := range t.groups {
		c.BrokerAddrTable[name] = g.data(local)
		c.ClusterAddrTable[g.cluster] = append(c.ClusterAddrTable[g.cluster], name)
	}
	for _, names := range c.ClusterAddrTable {
		slices.Sort(names)
	}
	return c
}

// Members returns the live brokers of a group, none when it is unknown.
func (t *Table) Members(cluster, name string, local netip.Addr) remoting.BrokerMembers {
	t.mu.RLock()
	defer t.mu.RUnlock()
	m := remoting.BrokerMembers{BrokerAddrs: map[int64]string{}, BrokerName: name, Cluster: cluster}
	if g := t.groups[name]; g != nil && g.cluster == cluster {
		m.BrokerAddrs = g.data(local).BrokerAddrs
	}
	return m
}

// Topics returns the names of the topics for which keep is true, in order; keep sees each broker group's part, and nil keeps all.
func (t *Table) Topics(keep func(cluster string, q remoting.QueueData) bool) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	names := make([]string, 0, len(t.topics))
	for topic, queues := range t.topics {
		for name, q := range queues {
			if g := t.groups[name]; g != nil && (keep == nil || keep(g.cluster, q)) {
				names = append(names, topic)
				break
			}
		}
	}
	slices.Sort(names)
	return names
}

// RemoveTopic takes a topic out of the routes, of one cluster only when cluster is not empty. Brokers that still have it bring
// it back with their next change.
func (t *Table) RemoveTopic(topic, cluster string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	queues := t.topics[topic]
	for name := range queues {
		if g := t.groups[name]; cluster == "" || g != nil && g.cluster == cluster {
			t.removeQueues(topic, queues, name)
		}
	}
}

// SetTopic puts a topic on the given brokers into the routes, those that are known.
func (t *Table) SetTopic(topic string, queues []remoting.QueueData) error {
	if !validTopic(topic) {
		return fmt.Errorf("%w: topic %q", ErrRegistration, topic[:min(len(topic), 64)])
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range queues {
		if t.groups[q.BrokerName] == nil || q.ReadQueueNums < 0 || q.ReadQueueNums > maxQueues || q.WriteQueueNums < 0 || q.WriteQueueNums > maxQueues {
			continue
		}
		if t.topics[topic] == nil {
			if len(t.topics) >= maxTopics {
				return fmt.Errorf("%w: more than %d topics", ErrRegistration, maxTopics)
			}
			t.topics[topic] = map[string]remoting.QueueData{}
		}
		t.topics[topic][q.BrokerName] = q
	}
	return nil
}

// ChangePerm applies change to the permissions of all topics of a broker, until it registers them anew, and returns how many
// it has.
func (t *Table) ChangePerm(broker string, change func(perm int32) int32) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, queues := range t.topics {
		if q, ok := queues[broker]; ok {
			q.Perm = change(q.Perm)
			queues[broker] = q
			n++
		}
	}
	return n
}
