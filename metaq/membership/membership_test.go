package membership

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/fusionmq/fusionmq/metaq/remoting"
)

var t0 = time.UnixMilli(1_800_000_000_000)

func at(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }

type (
	hb       = remoting.HeartbeatData
	consumer = remoting.ConsumerData
	sub      = remoting.SubscriptionData
)

func producers(groups ...string) (out []remoting.ProducerData) {
	for _, g := range groups {
		out = append(out, remoting.ProducerData{GroupName: g})
	}
	return out
}

func beat(id, group string, subs ...sub) *hb {
	return &hb{ClientID: id, ConsumerDataSet: []consumer{{GroupName: group, MessageModel: remoting.Clustering, SubscriptionDataSet: subs}}}
}

func tag(topic, expr string, version remoting.Long) sub {
	return sub{Topic: topic, SubString: expr, ExpressionType: "TAG", SubVersion: version}
}

func TestMembersJoinLeaveAndGo(t *testing.T) {
	r := New()
	steps := []struct {
		name string
		do   func() []string
		want []string // groups to rebalance
		ids  string   // members of G afterwards
	}{
		{"the first member joins", func() []string { g, _ := r.Beat(at(0), Peer{Conn: 1}, beat("a", "G", tag("T", "*", 1))); return g }, []string{"G"}, "a"},
		{"the same heartbeat again changes nothing", func() []string { g, _ := r.Beat(at(1), Peer{Conn: 1}, beat("a", "G", tag("T", "*", 1))); return g }, nil, "a"},
		{"a second member joins", func() []string { g, _ := r.Beat(at(2), Peer{Conn: 2}, beat("b", "G", tag("T", "*", 1))); return g }, []string{"G"}, "a b"},
		{"a second connection of one client is listed once", func() []string { g, _ := r.Beat(at(3), Peer{Conn: 3}, beat("b", "G", tag("T", "*", 1))); return g }, []string{"G"}, "a b"},
		{"a new topic", func() []string {
			g, _ := r.Beat(at(4), Peer{Conn: 1}, beat("a", "G", tag("T", "*", 1), tag("U", "*", 1)))
			return g
		}, []string{"G"}, "a b"},
		{"a topic goes", func() []string { g, _ := r.Beat(at(5), Peer{Conn: 1}, beat("a", "G", tag("T", "*", 1))); return g }, []string{"G"}, "a b"},
		{"a new expression is no new topic", func() []string { g, _ := r.Beat(at(6), Peer{Conn: 1}, beat("a", "G", tag("T", "A", 2))); return g }, nil, "a b"},
		{"one connection closes", func() []string { return r.Drop(2) }, []string{"G"}, "a b"},
		{"a stranger leaves", func() []string { return r.Leave(9, "", "G") }, nil, "a b"},
		{"a member leaves a group it is not in", func() []string { return r.Leave(1, "P", "H") }, nil, "a b"},
		{"a member leaves", func() []string { return r.Leave(3, "", "G") }, []string{"G"}, "a"},
		{"the last goes: nobody is left to be told", func() []string { return r.Drop(1) }, nil, ""},
	}
	for _, s := range steps {
		if got := s.do(); !slices.Equal(got, s.want) {
			t.Fatalf("%s: rebalance %q, want %q", s.name, got, s.want)
		}
		if got := strings.Join(r.ClientIDs("G"), " "); got != s.ids {
			t.Fatalf("%s: members %q, want %q", s.name, got, s.ids)
		}
	}
	if c, g, p := r.Counts(); c+g+p != 0 {
		t.Errorf("left behind: %d connections, %d consumer and %d producer groups", c, g, p)
	}
}

func TestLeaveKeepsNothingOfTheRequest(t *testing.T) {
	r := New()
	r.Beat(at(0), Peer{Conn: 1}, beat("a", "Group", tag("T", "*", 1)))
	r.Beat(at(0), Peer{Conn: 2}, beat("b", "Group", tag("T", "*", 1)))
	frame := []byte("Group")
	got := r.Leave(2, "", unsafe.String(&frame[0], len(frame)))
	copy(frame, "#####")
	if !slices.Equal(got, []string{"Group"}) {
		t.Errorf("rebalance %q, want Group", got)
	}
}

func TestBroadcastGroupsDoNotRebalance(t *testing.T) {
	r := New()
	all := &hb{ClientID: "a", ConsumerDataSet: []consumer{{GroupName: "G", MessageModel: remoting.Broadcasting, SubscriptionDataSet: []sub{tag("T", "*", 1)}}}}
	for conn := ConnID(1); conn <= 2; conn++ {
		if g, _ := r.Beat(at(0), Peer{Conn: conn}, all); g != nil {
			t.Errorf("join of connection %d: rebalance %q", conn, g)
		}
	}
	if g := r.Drop(1); g != nil {
		t.Errorf("close: rebalance %q", g)
	}
}

func TestSubscriptionsFollowTheirVersion(t *testing.T) {
	r := New()
	for _, s := range []struct {
		give sub
		want string // tag whose messages pass afterwards
	}{{tag("T", "A", 5), "A"}, {tag("T", "B", 5), "A"}, {tag("T", "B", 4), "A"}, {tag("T", "B", 6), "B"}} {
		r.Beat(at(0), Peer{Conn: 1}, beat("a", "G", s.give))
		got := r.Group("G").Sub("T")
		if got == nil || got.SubString != s.want {
			t.Fatalf("after %v: %+v, want %s", s.give, got, s.want)
		}
	}
	r.Beat(at(0), Peer{Conn: 1}, beat("a", "G", sub{Topic: "S", SubString: "a > 1", ExpressionType: "SQL92", SubVersion: 1}, tag("E", "||", 1)))
	g := r.Group("G")
	if g.Sub("T") != nil {
		t.Error("a topic that is not in the newest heartbeat is still subscribed")
	}
	if s := g.Sub("S"); s == nil || s.Filter != nil || s.Err != nil {
		t.Errorf("SQL92 subscription: %+v", s)
	}
	if s := g.Sub("E"); s == nil || s.Filter != nil || s.Err == nil {
		t.Errorf("subscription without a tag: %+v", s)
	}
}

// A heartbeat of one group must not keep another group of the same connection alive.
func TestExpiryIsPerGroup(t *testing.T) {
	r := New()
	both := &hb{ClientID: "a", ProducerDataSet: producers("P"), ConsumerDataSet: []consumer{{GroupName: "A"}, {GroupName: "B"}}}
	r.Beat(at(0), Peer{Conn: 1}, both)
	r.Beat(at(0), Peer{Conn: 2}, both)
	r.Beat(at(100), Peer{Conn: 1}, &hb{ClientID: "a", ConsumerDataSet: []consumer{{GroupName: "A"}}})
	if g, silent := r.Expire(at(0)); len(g) != 0 || silent != nil {
		t.Fatalf("nothing is old yet: %q %v", g, silent)
	}
	g, silent := r.Expire(at(50))
	if !slices.Equal(g, []string{"A"}) || !slices.Equal(silent, []ConnID{2}) {
		t.Fatalf("rebalance %q, silent %v; want A and connection 2", g, silent)
	}
	if r.Group("B") != nil || len(r.Producers("P")) != 0 || len(r.Consumers("A")) != 1 {
		t.Error("B and P must be gone, A must have one member")
	}
	if g, silent = r.Expire(at(101)); len(g) != 0 || !slices.Equal(silent, []ConnID{1}) {
		t.Fatalf("rebalance %q, silent %v", g, silent)
	}
	if c, g, p := r.Counts(); c+g+p != 0 {
		t.Errorf("left behind: %d connections, %d consumer and %d producer groups", c, g, p)
	}
}

func TestHeartbeatWithoutSubscriptions(t *testing.T) {
	r := New()
	full := &hb{ClientID: "a", HeartbeatFingerprint: 7, ConsumerDataSet: []consumer{{GroupName: "G", SubscriptionDataSet: []sub{tag("T", "*", 1)}}}}
	short := &hb{ClientID: "a", HeartbeatFingerprint: 7, WithoutSub: true, ConsumerDataSet: []consumer{{GroupName: "G"}}}
	if _, resend := r.Beat(at(0), Peer{Conn: 1}, short); !resend {
		t.Error("a broker that knows nothing must ask for the subscriptions")
	}
	if _, resend := r.Beat(at(1), Peer{Conn: 1}, full); resend {
		t.Error("a full heartbeat needs no other")
	}
	if _, resend := r.Beat(at(2), Peer{Conn: 1}, short); resend || r.Group("G").Sub("T") == nil {
		t.Error("the short form must keep the subscriptions")
	}
	short.HeartbeatFingerprint = 8
	if _, resend := r.Beat(at(3), Peer{Conn: 1}, short); !resend {
		t.Error("another fingerprint means other subscriptions")
	}
}

func FuzzHeartbeat(f *testing.F) {
	for _, s := range []string{"", "null", "[]", "{}", `{"clientID":"c"}`, `{"clientID":"c","consumerDataSet":[{"groupName":"G","consumeType":1,"subscriptionDataSet":[{"topic":"T","subVersion":"9"}]}]}`, `{"clientID":"c","consumerDataSet":[{"groupName":"G","messageModel":null}]}x`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		data, err := remoting.DecodeHeartbeat(b)
		if err != nil {
			return
		}
		r := New()
		r.Beat(t0, Peer{Conn: 1}, data)
		if got, _ := r.Beat(t0, Peer{Conn: 1}, data); len(dup(data)) == 0 && got != nil {
			t.Fatalf("the same heartbeat twice asks for a rebalance of %q", got)
		}
		r.Drop(1)
		if c, g, p := r.Counts(); c+g+p != 0 {
			t.Fatalf("left behind: %d %d %d", c, g, p)
		}
	})
}

// dup lists groups that a heartbeat names twice: their entries replace each other.
func dup(data *hb) (out []string) {
	seen := map[string]bool{}
	for _, c := range data.ConsumerDataSet {
		if seen[c.GroupName] {
			out = append(out, c.GroupName)
		}
		seen[c.GroupName] = true
	}
	return out
}

func TestNoticesAreSpaced(t *testing.T) {
	n := Notices{Gap: 100 * time.Millisecond}
	ms := func(d int) time.Time { return t0.Add(time.Duration(d) * time.Millisecond) }
	due := func(d int) (string, int) {
		got, next, ok := n.Due(ms(d), nil)
		slices.Sort(got)
		if !ok {
			return strings.Join(got, " "), -1
		}
		return strings.Join(got, " "), int(next.Sub(t0).Milliseconds())
	}
	for _, s := range []struct {
		at       int
		changed  string
		want     string
		wantNext int
	}{
		{0, "A", "A", -1}, {10, "A", "", 100}, {20, "A B", "B", 100}, {99, "", "", 100}, {100, "", "A", -1},
		{150, "A", "", 200}, {200, "", "A", -1}, {301, "", "", -1}, {302, "A", "A", -1},
	} {
		for _, g := range strings.Fields(s.changed) {
			n.Changed(ms(s.at), g)
		}
		if got, next := due(s.at); got != s.want || next != s.wantNext {
			t.Fatalf("at %d ms: announced %q, next %d; want %q, %d", s.at, got, next, s.want, s.wantNext)
		}
	}
	n.Due(ms(1000), nil)
	if len(n.groups) != 0 {
		t.Errorf("%d quiet groups are kept", len(n.groups))
	}
}

// One connection must not fill the memory with a new set of groups in every heartbeat.
func TestWhatOneConnectionMayBeAMemberOfIsBounded(t *testing.T) {
	r := New()
	names := func(from, n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("P%d", from+i))
		}
		return out
	}
	ok := func(what string, data *hb, want string) {
		t.Helper()
		switch err := r.Admits(1, data); {
		case err == nil && want == "":
			r.Beat(at(0), Peer{Conn: 1}, data)
		case err == nil || want == "" || !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	full := &hb{ClientID: "a", ProducerDataSet: producers(names(0, MaxGroups)...)}
	ok("as many groups as may be", full, "")
	ok("the same again", full, "")
	ok("one more", &hb{ClientID: "a", ProducerDataSet: producers("Q")}, "1001 groups, the limit is 1000")
	ok("one more, of another kind", beat("a", "P0"), "1001 groups")
	r.Leave(1, "P7", "")
	ok("one more after one has left", &hb{ClientID: "a", ProducerDataSet: producers("Q")}, "")
	if err := r.Admits(2, full); err != nil {
		t.Errorf("another connection: %v", err)
	}
	r.Drop(1)
	ok("after all have gone", full, "")
	r.Drop(1)

	large := func(group string) *hb { return beat("a", group, tag("T", strings.Repeat("x", MaxWeight/3), 1)) }
	ok("large subscriptions", large("A"), "")
	ok("more of them", large("B"), "")
	ok("the same again", large("A"), "")
	ok("too large together", large("C"), "bytes, the limit is 4194304")
	r.Leave(1, "", "A")
	ok("too large together, after one has left", large("C"), "")
	r.Expire(at(1))
	ok("after all have expired", large("A"), "")
	r.Drop(1)
	if c, g, p := r.Counts(); c+g+p != 0 {
		t.Errorf("left: %d connections, %d consumer and %d producer groups", c, g, p)
	}
}
