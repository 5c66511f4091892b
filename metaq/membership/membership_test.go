package membership

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var t0 = time.UnixMilli(1_800_000_000_000)

func at(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }

func beat(id, group string, subs ...Subscription) Heartbeat {
	return Heartbeat{ClientID: id, Consumers: []Consumer{{Group: group, Model: "CLUSTERING", Subs: subs}}}
}

func tag(topic, expr string, version int64) Subscription {
	return Subscription{Topic: topic, Expr: expr, Type: "TAG", Version: version}
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

func TestBroadcastGroupsDoNotRebalance(t *testing.T) {
	r := New()
	hb := Heartbeat{ClientID: "a", Consumers: []Consumer{{Group: "G", Model: Broadcasting, Subs: []Subscription{tag("T", "*", 1)}}}}
	for conn := ConnID(1); conn <= 2; conn++ {
		if g, _ := r.Beat(at(0), Peer{Conn: conn}, hb); g != nil {
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
		give Subscription
		want string // tag whose messages pass afterwards
	}{{tag("T", "A", 5), "A"}, {tag("T", "B", 5), "A"}, {tag("T", "B", 4), "A"}, {tag("T", "B", 6), "B"}} {
		r.Beat(at(0), Peer{Conn: 1}, beat("a", "G", s.give))
		sub := r.Group("G").Sub("T")
		if sub == nil || sub.Expr != s.want {
			t.Fatalf("after %v: %+v, want %s", s.give, sub, s.want)
		}
	}
	r.Beat(at(0), Peer{Conn: 1}, beat("a", "G", Subscription{Topic: "S", Expr: "a > 1", Type: "SQL92", Version: 1}, tag("E", "||", 1)))
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
	both := Heartbeat{ClientID: "a", Producers: []string{"P"}, Consumers: []Consumer{{Group: "A"}, {Group: "B"}}}
	r.Beat(at(0), Peer{Conn: 1}, both)
	r.Beat(at(0), Peer{Conn: 2}, both)
	r.Beat(at(100), Peer{Conn: 1}, Heartbeat{ClientID: "a", Consumers: []Consumer{{Group: "A"}}})
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
	full := Heartbeat{ClientID: "a", Fingerprint: 7, Consumers: []Consumer{{Group: "G", Subs: []Subscription{tag("T", "*", 1)}}}}
	short := Heartbeat{ClientID: "a", Fingerprint: 7, WithoutSub: true, Consumers: []Consumer{{Group: "G"}}}
	if _, resend := r.Beat(at(0), Peer{Conn: 1}, short); !resend {
		t.Error("a broker that knows nothing must ask for the subscriptions")
	}
	if _, resend := r.Beat(at(1), Peer{Conn: 1}, full); resend {
		t.Error("a full heartbeat needs no other")
	}
	if _, resend := r.Beat(at(2), Peer{Conn: 1}, short); resend || r.Group("G").Sub("T") == nil {
		t.Error("the short form must keep the subscriptions")
	}
	short.Fingerprint = 8
	if _, resend := r.Beat(at(3), Peer{Conn: 1}, short); !resend {
		t.Error("another fingerprint means other subscriptions")
	}
}

func TestParseHeartbeatTakesEveryDialect(t *testing.T) {
	want := Heartbeat{ClientID: "c", Producers: []string{"P"}, Consumers: []Consumer{{
		Group: "G", Type: "CONSUME_PASSIVELY", Model: "CLUSTERING", From: "CONSUME_FROM_FIRST_OFFSET",
		Subs: []Subscription{{Topic: "T", Expr: "A", Type: "TAG", Tags: []string{"A"}, Version: 17}},
	}}}
	for name, body := range map[string]string{
		"names and numbers, as Java":        `{"clientID":"c","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"G","messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[65],"expressionType":"TAG","subString":"A","subVersion":17,"tagsSet":["A"],"topic":"T"}],"unitMode":false}],"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"P"}],"withoutSub":false}`,
		"quoted codes, as Go":               `{"clientID":"c","producerDataSet":[{"groupName":"P"}],"consumerDataSet":[{"groupName":"G","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","subscriptionDataSet":[{"classFilterMode":false,"topic":"T","subString":"A","tagsSet":["A"],"codeSet":["65"],"subVersion":17,"expressionType":"TAG"}],"unitMode":false}]}`,
		"ordinals and quoted numbers, as C": `{"clientID":"c","producerDataSet":[{"groupName":"P"}],"consumerDataSet":[{"groupName":"G","consumeType":1,"messageModel":1,"consumeFromWhere":4,"subscriptionDataSet":[{"topic":"T","subString":"A","tagsSet":["A"],"subVersion":"17"}]}]}`,
	} {
		got, err := ParseHeartbeat([]byte(body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: (-want +got)\n%s", name, d)
		}
	}
}

func TestParseHeartbeatNamesWhatIsWrong(t *testing.T) {
	many, _ := json.Marshal(map[string]any{"clientID": "c", "producerDataSet": make([]struct{ groupName string }, MaxGroups+1)})
	for body, want := range map[string]string{
		"": "body is missing", " ": "body is missing", "null": "clientID is missing", "{}": "clientID is missing", "[]": "array", `{"clientID":7}`: "clientID",
		`{"clientID":"c","consumerDataSet":[{}]}`:                                                           "no groupName",
		`{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":[{}]}]}`:                 `group "G" has no topic`,
		`{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":[{"subVersion":"x"}]}]}`: "not an integer",
		string(many):                             fmt.Sprintf("%d groups, at most %d", MaxGroups+1, MaxGroups),
		strings.Repeat(" ", MaxHeartbeatBytes+1): fmt.Sprintf("%d bytes, at most %d", MaxHeartbeatBytes+1, MaxHeartbeatBytes),
	} {
		if _, err := ParseHeartbeat([]byte(body)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want an error with %q", body, err, want)
		}
	}
}

func FuzzParseHeartbeat(f *testing.F) {
	for _, s := range []string{"", "null", "[]", "{}", `{"clientID":"c"}`, `{"clientID":"c","consumerDataSet":[{"groupName":"G","consumeType":1,"subscriptionDataSet":[{"topic":"T","subVersion":"9"}]}]}`, `{"clientID":"c","consumerDataSet":[{"groupName":"G","messageModel":null}]}x`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		hb, err := ParseHeartbeat(b)
		if err != nil {
			return
		}
		r := New()
		r.Beat(t0, Peer{Conn: 1}, hb)
		if got, _ := r.Beat(t0, Peer{Conn: 1}, hb); !hb.WithoutSub && len(dup(hb)) == 0 && got != nil {
			t.Fatalf("the same heartbeat twice asks for a rebalance of %q", got)
		}
		r.Drop(1)
		if c, g, p := r.Counts(); c+g+p != 0 {
			t.Fatalf("left behind: %d %d %d", c, g, p)
		}
	})
}

// dup lists groups that a heartbeat names twice: their entries replace each other.
func dup(hb Heartbeat) (out []string) {
	seen := map[string]bool{}
	for _, c := range hb.Consumers {
		if seen[c.Group] {
			out = append(out, c.Group)
		}
		seen[c.Group] = true
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
