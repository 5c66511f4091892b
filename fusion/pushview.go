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
	topics map[string][]string // by group, sorted: what it has bindings on
	stats  map[string]notify.GroupStats
	peers  map[string][]netip.AddrPort // connections, by group
}

// readPushes reads all groups that have bindings, in one pass.
func (a *App) readPushes() pushes {
	ps := pushes{topics: map[string][]string{}, stats: map[string]notify.GroupStats{}, peers: a.push.Peers()}
	for _, b := range a.store.Bindings() { // ordered by topic
		topics, known := ps.topics[b.Group]
		if !known {
			ps.names = append(ps.names, b.Group)
		}
		if !slices.Contains(topics, b.Topic) {
			ps.topics[b.Group] = append(topics, b.Topic)
		}
	}
	for _, g := range a.push.Groups() {
		ps.stats[g.Name] = g
	}
	slices.Sort(ps.names)
	return ps
}

// has says whether a group is pushed to.
func (ps *pushes) has(name string) bool { _, ok := ps.topics[name]; return ok }

// group assembles one group that is pushed to.
func (ps *pushes) group(a *App, name string) httpapi.Group {
	g := httpapi.Group{Name: name, Mode: "push", Topics: []httpapi.GroupTopic{}, Members: []httpapi.Member{}}
	st := ps.stats[name]
	for _, topic := range ps.topics[name] {
		t := httpapi.GroupTopic{Topic: topic}
		pos, ok := a.store.Cursor(topic, name)
		t.Attached = &pos.Attached
		if ok {
			t.Lag = a.behind(topic, pos)
		}
		g.Lag += t.Lag
		g.Topics = append(g.Topics, t)
	}
	for _, peer := range ps.peers[name] {
		g.Members = append(g.Members, httpapi.Member{ID: peer.String(), Address: peer.String()})
	}
	g.Retries = a.store.RetryCount(name)
	g.Unanswered = st.Unanswered
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
