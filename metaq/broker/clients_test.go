package broker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/metaq/membership"
	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/state"
)

// note waits for the notice that a group has changed.
func (c *client) note(group string) {
	c.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		for i, n := range c.notes {
			if n.Code == remoting.ReqNotifyConsumerIDsChanged && n.Get("consumerGroup") == group && n.Oneway() {
				c.notes = append(c.notes[:i], c.notes[i+1:]...)
				return
			}
		}
		if time.Now().After(end) {
			c.Fatalf("no notice of %s", group)
		}
		if r := c.read(100 * time.Millisecond); r != nil {
			c.notes = append(c.notes, r)
		}
	}
}

func (c *client) ids(group string) string {
	c.Helper()
	r := c.call(remoting.ReqGetConsumerListByGroup, nil, "consumerGroup", group)
	if r.Code != 0 {
		return fmt.Sprint(r.Code)
	}
	return string(r.body)
}

func TestMembersLearnOfEachOther(t *testing.T) {
	e := start(t, func(c *Config, _ *store.Options) { c.NoticeGap = time.Millisecond })
	e.topic("T", 1)
	watch := e.dial()
	a, b := e.dial(), e.dial()
	if s := watch.ids("G"); s != "1" {
		t.Errorf("nobody there: %s, want code 1", s)
	}
	r := a.beat("a@1", "G", false, sub("T", "*", 1))
	if r.Code != 0 || r.Get("IS_SUPPORT_HEART_BEAT_V2") != "true" || r.Get("IS_SUB_CHANGE") != "true" || r.Version != 479 {
		t.Errorf("%v version %d", r, r.Version)
	}
	a.note("G")
	if s := watch.ids("G"); s != `{"consumerIdList":["a@1"]}` {
		t.Errorf("members %s", s)
	}
	b.beat("b@1", "G", false, sub("T", "*", 1))
	a.note("G")
	b.note("G")
	if s := watch.ids("G"); s != `{"consumerIdList":["a@1","b@1"]}` {
		t.Errorf("members %s", s)
	}
	b.ok(remoting.ReqUnregisterClient, nil, "clientID", "b@1", "consumerGroup", "G")
	a.note("G")
	b.beat("b@1", "G", false, sub("T", "*", 1))
	a.note("G")
	b.conn.Close()
	a.note("G")
	if s := watch.ids("G"); s != `{"consumerIdList":["a@1"]}` {
		t.Errorf("members %s", s)
	}
	if e.store.Topics().Get("%RETRY%G") == nil || e.store.Groups().Get("G") == nil {
		t.Error("a heartbeat must make the group and its retry topic")
	}
	if _, ok := e.ns.Table().Route("%RETRY%G", e.b.cfg.StoreHost.Addr()); !ok {
		t.Error("the retry topic has no route: tools find groups by it")
	}
}

func TestConnectionsOfGroups(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	c := e.dial()
	if r := c.call(remoting.ReqGetConsumerConnectionList, nil, "consumerGroup", "G"); r.Code != 206 {
		t.Errorf("nobody: %v", r)
	}
	if r := c.call(remoting.ReqGetProducerConnectionList, nil, "producerGroup", "P"); r.Code != 1 {
		t.Errorf("nobody: %v", r)
	}
	body := `{"clientID":"c@1","producerDataSet":[{"groupName":"P"}],"consumerDataSet":[{"groupName":"G","consumeType":1,"messageModel":1,"consumeFromWhere":4,"subscriptionDataSet":[{"topic":"T","subString":"é","tagsSet":["é"],"codeSet":["6214"],"subVersion":"3"}]}]}`
	c.ok(remoting.ReqHeartBeat, []byte(body))
	var got remoting.ConsumerConnection
	if err := json.Unmarshal(c.ok(remoting.ReqGetConsumerConnectionList, nil, "consumerGroup", "G").body, &got); err != nil {
		t.Fatal(err)
	}
	s := got.SubscriptionTable["T"]
	if got.ConsumeType != remoting.ConsumePassively || got.MessageModel != remoting.Clustering || got.ConsumeFromWhere != remoting.FromFirstOffset ||
		len(got.ConnectionSet) != 1 || got.ConnectionSet[0].ClientID != "c@1" || got.ConnectionSet[0].ClientAddr != c.conn.LocalAddr().String() || got.ConnectionSet[0].Language != "GO" ||
		s.SubString != "é" || len(s.CodeSet) != 1 || s.CodeSet[0] != 233 {
		t.Errorf("%+v", got)
	}
	if r := c.ok(remoting.ReqGetProducerConnectionList, nil, "producerGroup", "P"); !strings.Contains(string(r.body), `"clientId":"c@1"`) {
		t.Errorf("%s", r.body)
	}
	if g := e.b.ConsumerGroups(); len(g) != 1 || g[0].Name != "G" || len(g[0].Members) != 1 || g[0].Topics[0] != "T" {
		t.Errorf("%+v", g)
	}
}

func TestHeartbeatRefusals(t *testing.T) {
	e := start(t, func(c *Config, _ *store.Options) { c.NoAutoCreateGroups = true })
	c := e.dial()
	c.ok(remoting.ReqUpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"Known","retryQueueNums":3}`))
	many, _ := json.Marshal(remoting.HeartbeatData{ClientID: "c", ProducerDataSet: make([]remoting.ProducerData, membership.MaxGroups+1)})
	many = []byte(strings.ReplaceAll(string(many), `"groupName":""`, `"groupName":"P"`))
	group := func(names ...string) string {
		var b strings.Builder
		for i, n := range names {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"groupName":%q,"subscriptionDataSet":[{"topic":"T","subString":"*"}]}`, n)
		}
		return `{"clientID":"c","consumerDataSet":[` + b.String() + `]}`
	}
	for _, tc := range []struct {
		name, give string
		code       int32
		want       string
	}{
		{"no body", "", 29, "empty"}, {"null", "null", 29, "heartbeat"}, {"a list", "[]", 29, "heartbeat"}, {"nothing in it", "{}", 29, "clientID is missing"},
		{"not JSON", "{x", 29, "heartbeat"}, {"too large", "{" + strings.Repeat(" ", maxHeartbeatBytes) + "}", 29, "the limit is 1048576"},
		{"too many groups", string(many), 29, "1001 groups, the limit is 1000"},
		{"a long client id", `{"clientID":"` + strings.Repeat("c", maxClientIDBytes+1) + `"}`, 29, "has 1025 bytes, the limit is 1024"},
		{"a long producer group", `{"clientID":"c","producerDataSet":[{"groupName":"` + strings.Repeat("p", 256) + `"}]}`, 29, "has 256 bytes, the limit is 255"},
		{"a bad group name beside a good one", group("a b", "Known"), 29, `"a b"`},
		{"an unknown group while they are not made", group("Unknown"), 0, ""},
	} {
		if r := c.call(remoting.ReqHeartBeat, []byte(tc.give)); r.Code != tc.code || !strings.Contains(r.Remark, tc.want) {
			t.Errorf("%s: %v, want code %d with %q", tc.name, r, tc.code, tc.want)
		}
	}
	if s := c.ids("Known"); s != `{"consumerIdList":["c"]}` {
		t.Errorf("the good group beside the bad one: %s", s)
	}
	if e.store.Topics().Get("%RETRY%Known").WriteQueues != 3 {
		t.Error("the retry topic must have the group's number of queues")
	}
	if s := c.ids("Unknown"); s != "1" || e.store.Groups().Get("Unknown") != nil {
		t.Errorf("an unknown group was registered: %s", s)
	}
	if r := c.pull(pullReq{group: "Unknown", topic: "TBW102", sub: "*"}); r.Code != 26 {
		t.Errorf("pull of an unknown group: %v", r)
	}
	if r := c.pull(pullReq{group: "CID_RMQ_SYS_x", topic: "TBW102", sub: "*"}); r.Code != 19 {
		t.Errorf("groups of the system are made all the same: %v", r)
	}
}

func TestOneConnectionCannotFillTheMemoryWithGroups(t *testing.T) {
	e := start(t)
	c := e.dial()
	full := func(prefix string) *reply {
		data := remoting.HeartbeatData{ClientID: "c"}
		for i := range membership.MaxGroups {
			data.ProducerDataSet = append(data.ProducerDataSet, remoting.ProducerData{GroupName: fmt.Sprint(prefix, i)})
		}
		body, _ := json.Marshal(data)
		return c.call(remoting.ReqHeartBeat, body)
	}
	if r := full("P"); r.Code != 0 {
		t.Fatal(r)
	}
	if r := full("Q"); r.Code != 29 || !strings.Contains(r.Remark, "2000 groups, the limit is 1000") {
		t.Errorf("a second thousand: %v", r)
	}
	if r := full("P"); r.Code != 0 {
		t.Errorf("the first thousand again: %v", r)
	}
	if _, _, n := e.b.members.Counts(); n != membership.MaxGroups {
		t.Errorf("%d producer groups, want %d", n, membership.MaxGroups)
	}
}

// ended waits until the broker has closed the connection.
func (c *client) ended() {
	c.Helper()
	c.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.Copy(io.Discard, c.conn); errors.Is(err, os.ErrDeadlineExceeded) {
		c.Error("the connection is not closed")
	}
}

// Members that say nothing for the expiry time go, and a connection without any other is closed.
func TestSilentMembersGo(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	a, b := e.dial(), e.dial()
	b.beat("b@1", "G", false, sub("T", "*", 1))
	between := time.Now()
	a.beat("a@1", "G", false, sub("T", "*", 1))
	e.b.expire(between.Add(e.b.cfg.MemberExpiry))
	if s := a.ids("G"); s != `{"consumerIdList":["a@1"]}` {
		t.Errorf("members %s", s)
	}
	b.ended()
}

func TestHousekeepingLooksForSilentMembers(t *testing.T) {
	e := start(t, func(c *Config, _ *store.Options) { c.MemberExpiry, c.ScanInterval = time.Second, 10*time.Millisecond })
	e.topic("T", 1)
	c := e.dial()
	c.beat("c@1", "G", false, sub("T", "*", 1))
	c.ended()
	if s := e.dial().ids("G"); s != "1" {
		t.Errorf("members %s", s)
	}
}

// Group names are one namespace: a group that the push front end has cannot be a pull group, nor can the name that it has here.
func TestPushGroupsAreNotPullGroups(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	for _, g := range []struct{ push, name, says string }{
		{"Push", "Push", "a push group"}, {"X.a", "X%2Ea", `the push group "X.a"`},
	} {
		if err := e.store.HoldGroup(g.push, 10); err != nil { // as the push front end does before it writes a binding
			t.Fatal(err)
		}
		c := e.dial()
		refused := func(when string) {
			t.Helper()
			for what, r := range map[string]*reply{
				"heartbeat": c.beat("c@1", g.name, false, sub("T", "*", 1)), "pull": c.pull(pullReq{group: g.name, topic: "T", sub: "*"}),
				"offset":    c.call(remoting.ReqUpdateConsumerOffset, nil, "consumerGroup", g.name, "topic", "T", "queueId", "0", "commitOffset", "1"),
				"configure": c.call(remoting.ReqUpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"`+g.name+`"}`)),
				"ask":       c.call(remoting.ReqGetSubscriptionGroupConfig, nil, "group", g.name),
			} {
				if r.Code != 16 || !strings.Contains(r.Remark, g.says) {
					t.Errorf("%s, %s of %s: %v, want code 16 and %q", when, what, g.name, r, g.says)
				}
			}
			if e.store.Groups().Get(g.name) != nil || e.b.members.Group(g.name) != nil {
				t.Errorf("%s: group %s was made all the same", when, g.name)
			}
		}
		refused("while the name is held")
		bind := state.Op{Kind: state.OpBind, Topic: "T", Group: g.push, Binding: state.Binding{Kind: state.BindFanout}}
		operate := func(ops ...state.Op) int64 {
			t.Helper()
			at, err := e.store.Operate(ops)
			if err != nil {
				t.Fatal(err)
			}
			if err := e.store.WaitApplied(t.Context(), at); err != nil {
				t.Fatal(err)
			}
			return at
		}
		operate(bind)
		e.store.ReleaseGroup(g.push)
		refused("bound")
		bind.Kind = state.OpUnbind
		at := operate(bind)
		refused("with a cursor that has not passed its last binding")
		operate(state.Op{Kind: state.OpCursor, Topic: "T", Group: g.push, First: at})
		if r := c.beat("c@1", g.name, false, sub("T", "*", 1)); r.Code != 0 {
			t.Errorf("%s, which has nothing any more: %v", g.name, r)
		}
		if err := e.store.HoldGroup(g.push, 10); err == nil {
			t.Errorf("%s has a pull group's name", g.push)
		}
	}
}

// A heartbeat takes a name for this front end at once, and keeps it.
func TestPullGroupsAreNotPushGroups(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	c := e.dial()
	c.beat("c@1", "Live", false, sub("T", "*", 1))
	c.ok(remoting.ReqUpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"Y%2Ea"}`))
	for _, push := range []string{"Live", "Y.a"} {
		var taken *store.GroupTaken
		if err := e.store.HoldGroup(push, 10); !errors.As(err, &taken) || taken.Group != "" {
			t.Errorf("%s: %v, want that a pull group has it", push, err)
		}
	}
	if r := c.call(remoting.ReqUpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"N","retryQueueNums":-1}`)); r.Code != 29 {
		t.Errorf("%v, want code 29", r)
	}
	if err := e.store.HoldGroup("N", 10); err != nil {
		t.Errorf("a group that could not be made has taken its name: %v", err)
	}
}

func TestCheckClientConfig(t *testing.T) {
	c := start(t).dial()
	for _, tc := range []struct {
		give string
		code int32
	}{
		{`{"clientId":"c","group":"G"}`, 0},
		{`{"clientId":"c","group":"G","subscriptionData":{"topic":"T","subString":"A||B","expressionType":"TAG"}}`, 0},
		{`{"clientId":"c","group":"G","subscriptionData":{"topic":"T","subString":"||"}}`, 23},
		{`{"clientId":"c","group":"G","subscriptionData":{"topic":"T","subString":"a > 1","expressionType":"SQL92"}}`, 0},
		{``, 29}, {`null`, 29}, {`[]`, 29},
	} {
		if r := c.call(remoting.ReqCheckClientConfig, []byte(tc.give)); r.Code != tc.code {
			t.Errorf("%s: %v, want code %d", tc.give, r, tc.code)
		}
	}
}

// lines is a log that a test reads.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

func TestConflictingSubscriptionsAreReported(t *testing.T) {
	var l lines
	e := start(t, func(c *Config, _ *store.Options) {
		c.Log, c.ScanInterval = slog.New(slog.NewTextHandler(&l, nil)), 10*time.Millisecond
	})
	e.topic("T", 1)
	a, b := e.dial(), e.dial()
	a.beat("a", "G", false, sub("T", "A", 1))
	b.beat("b", "G", false, sub("T", "A", 2))
	a.beat("a", "Other", false, sub("T", "A", 1))
	if s := e.b.Stats(); s.ConflictingGroups != 0 {
		t.Errorf("%d groups in conflict", s.ConflictingGroups)
	}
	b.beat("b", "G", false, sub("T", "A || B", 3))
	if s := e.b.Stats(); s.ConflictingGroups != 1 {
		t.Errorf("%d groups in conflict, want G", s.ConflictingGroups)
	}
	for _, g := range e.b.ConsumerGroups() {
		if g.Conflict != (g.Name == "G") {
			t.Errorf("%s: conflict %v", g.Name, g.Conflict)
		}
	}
	said := `group=G members="[a subscribes T: A b subscribes T: A || B]"`
	e.until("it is in the log", func() bool { return l.count(said) == 1 })
	b.beat("b", "G", false, sub("T", "A", 4))
	e.until("its end is in the log", func() bool { return l.count("subscribe alike again") == 1 })
	if n := l.count(said); n != 1 {
		t.Errorf("said %d times", n)
	}
}
