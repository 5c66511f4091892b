package fusion

import (
	"net/netip"
	"slices"

	"github.com/fusionmq/fusionmq/fusion/httpapi"
	"github.com/fusionmq/fusionmq/notify"
	"github.com/fusionmq/fusionmq/store/state"
)

// pushes is what one answer needs about groups that are pushed to.
type pushes struct {
	names  []string            // sorted
	topics map[string][]string // by group, sorted: where it has a binding or is still owed messages

	// of the groups that follow was asked for
	cursors map[string][]httpapi.GroupTopic
	retries map[string]int
	stats   map[string]notify.GroupStats
	peers   map[string][]netip.AddrPort // connections, by group
}

// readPushes reads which groups have bindings or are owed messages, in one pass, and which have members that had some or bindings
// that wait for a member.
func (a *App) readPushes() pushes {
	ps := pushes{topics: map[string][]string{}}
	for _, g := range a.store.PushGroups() {
		ps.names = append(ps.names, g.Name)
		ps.topics[g.Name] = g.Topics
	}
	for _, g := range a.push.Groups() {
		if !ps.has(g.Name) && (g.Parked > 0 || g.Members > 0 && len(g.Topics) > 0) {
			ps.names = append(ps.names, g.Name)
			ps.topics[g.Name] = nil
		}
	}
	slices.Sort(ps.names)
	return ps
}

// has says whether a group is pushed to.
func (ps *pushes) has(name string) bool { _, ok := ps.topics[name]; return ok }

// follow reads how far those of the named groups are that are pushed to. A message goes from the cursor into the memory of the
// service, so the two are read in this order: one that moves meanwhile is seen in both places, never in none.
func (ps *pushes) follow(a *App, names []string) {
	ps.cursors, ps.retries = map[string][]httpapi.GroupTopic{}, map[string]int{}
	for _, name := range names {
		if !ps.has(name) {
			continue
		}
		topics := make([]httpapi.GroupTopic, len(ps.topics[name]))
		for i, topic := range ps.topics[name] {
			pos, ok := a.store.Cursor(topic, name)
			topics[i] = httpapi.GroupTopic{Topic: topic, Attached: &pos.Attached}
			if ok {
				topics[i].Lag = a.behind(topic, pos)
			}
		}
		ps.cursors[name], ps.retries[name] = topics, a.store.RetryCount(name)
	}
	ps.stats, ps.peers = map[string]notify.GroupStats{}, a.push.Peers()
	for _, g := range a.push.Groups() {
		ps.stats[g.Name] = g
	}
}

// group assembles one group that is pushed to and was followed.
func (ps *pushes) group(name string) httpapi.Group {
	st := ps.stats[name]
	g := httpapi.Group{Name: name, Mode: "push", Topics: ps.cursors[name], Members: []httpapi.Member{}, Retries: ps.retries[name], Unanswered: st.Unanswered}
	for _, t := range g.Topics {
		g.Lag += t.Lag
	}
	for _, peer := range ps.peers[name] {
		g.Members = append(g.Members, httpapi.Member{ID: peer.String(), Address: peer.String()})
	}
	// What the service holds in memory may have come through a cursor or out of a retry line, and is then in there too.
	g.Lag = max(g.Lag+int64(g.Retries), int64(st.Waiting+st.Unanswered))
	return g
}

// behind counts the messages of a topic that a group still reads through its cursor: those from the cursor to its end, or to
// the attach record, without what it has got already while it was attached. Messages that its bindings do not want are counted too.
func (a *App) behind(topic string, pos state.GroupPosition) (n int64) {
	t := a.store.Topics().Get(topic)
	if t == nil || pos.Attached && pos.Cursor >= pos.Attach {
		return 0
	}
	for id := range max(t.ReadQueues, t.WriteQueues) {
		q := a.store.Queue(topic, id, false)
		if q == nil {
			continue
		}
		_, end := q.Range()
		if pos.Attached {
			end = q.SearchAddress(pos.Attach)
		}
		from := q.SearchAddress(pos.Cursor)
		n += max(0, end-from)
		if pos.SkipTo > pos.Cursor {
			n -= max(0, min(end, q.SearchAddress(pos.SkipTo))-max(from, q.SearchAddress(pos.SkipFrom)))
		}
	}
	return n
}
