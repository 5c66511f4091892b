package fusion

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/fusion/httpapi"
	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/notify"
	"github.com/fusionmq/fusionmq/notify/wire"
)

// full is a connection without room: what it is owed waits.
type full struct{}

func (full) Room() bool           { return false }
func (full) Push(notify.Delivery) {}
func (full) Kick()                {}

// TestGroupsOfBothFrontEnds: a group that pulls and one that is pushed to share a topic, and each is shown with its members and lag.
func TestGroupsOfBothFrontEnds(t *testing.T) {
	a, _ := start(t, load(t, t.TempDir(), nil))
	c := dial(t, a.Listeners()["broker"])
	for range 5 {
		c.send("orders", "text")
	}

	beat, err := remoting.EncodeBody(remoting.HeartbeatData{ClientID: "client-1", ConsumerDataSet: []remoting.ConsumerData{{
		GroupName: "billing", ConsumeType: "CONSUME_PASSIVELY", MessageModel: "CLUSTERING", ConsumeFromWhere: "CONSUME_FROM_FIRST_OFFSET",
		SubscriptionDataSet: []remoting.SubscriptionData{{Topic: "orders", SubString: "*", SubVersion: 1}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if h, _ := c.call(remoting.ReqHeartBeat, nil, beat); h.Code != 0 {
		t.Fatalf("heartbeat: code %d %s", h.Code, h.Remark)
	}
	commit := func(e *remoting.Encoder) {
		e.String("consumerGroup", "billing")
		e.String("topic", "orders")
		e.Int("queueId", 1)
		e.Int("commitOffset", 2)
	}
	if h, _ := c.call(remoting.ReqUpdateConsumerOffset, commit, nil); h.Code != 0 {
		t.Fatalf("commit: code %d %s", h.Code, h.Remark)
	}

	peer := netip.MustParseAddrPort("192.0.2.1:7")
	se, err := a.push.Open(full{}, peer)
	if err != nil {
		t.Fatal(err)
	}
	defer se.Close()
	if err := se.Metadata([]string{"mail"}, false); err != nil {
		t.Fatal(err)
	}
	if err := se.Subscribe(&wire.Binding{Kind: wire.Fanout, Topic: "orders", Group: "mail", WaterMark: wire.DefaultWaterMark, Persistent: true}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c.send("orders", "text")
	}

	// The push service hears of a message a moment after its producer.
	var p httpapi.GroupPage
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		get(t, a, "/api/v1/groups", &p)
		if len(p.Groups) == 2 && p.Groups[1].Lag >= 3 || time.Now().After(end) {
			break
		}
	}
	if len(p.Groups) != 2 {
		t.Fatalf("groups %+v", p.Groups)
	}
	pull, push := p.Groups[0], p.Groups[1]
	local := c.nc.LocalAddr().String()
	if pull.Name != "billing" || pull.Mode != "pull" || pull.Lag != 6 || len(pull.Members) != 1 || pull.Members[0].ID != "client-1" || pull.Members[0].Address != local {
		t.Errorf("pull group %+v", pull)
	}
	for _, topic := range pull.Topics {
		if topic.Topic == "orders" && topic.Lag != 6 || topic.Attached != nil {
			t.Errorf("topic of the pull group %+v", topic)
		}
	}
	// Messages from before the binding are not owed to it; all three since then wait, whether the group has attached yet or not.
	if push.Name != "mail" || push.Mode != "push" || push.Lag != 3 || push.Retries != 0 ||
		!reflect.DeepEqual(push.Members, []httpapi.Member{{ID: peer.String(), Address: peer.String()}}) ||
		len(push.Topics) != 1 || push.Topics[0].Topic != "orders" || push.Topics[0].Attached == nil {
		t.Errorf("push group %+v", push)
	}

	var one httpapi.Group
	get(t, a, "/api/v1/groups/mail", &one)
	if one.Name != "mail" || one.Mode != "push" {
		t.Errorf("one group %+v", one)
	}
	var s httpapi.Status
	get(t, a, "/api/v1/status", &s)
	if s.Counts.PullGroups != 1 || s.Counts.PushGroups != 1 {
		t.Errorf("counts %+v", s.Counts)
	}
	page := get(t, a, "/metrics", nil)
	for _, want := range []string{
		`consumer_group="billing",is_retry="false",is_system="false",node_id="broker-t",node_type="broker",topic="orders"} 6`,
		`consumer_group="mail",is_retry="false",is_system="false",node_id="broker-t",node_type="broker",topic="orders"}`,
		`protocol_type="notify"`, `protocol_type="remoting"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// taker is a connection that takes everything and answers nothing.
type taker struct{ got chan notify.Delivery }

func (taker) Room() bool               { return true }
func (k taker) Push(d notify.Delivery) { k.got <- d }
func (taker) Kick()                    {}

// TestGroupNamesAreOneNamespace: a group that pulls is not pushed to, and the other way round, whoever comes first.
func TestGroupNamesAreOneNamespace(t *testing.T) {
	a, _ := start(t, load(t, t.TempDir(), nil))
	c := dial(t, a.Listeners()["broker"])
	c.send("orders", "text")
	beat := func(group string) (int32, string) {
		t.Helper()
		body, err := remoting.EncodeBody(remoting.HeartbeatData{ClientID: "client-1", ConsumerDataSet: []remoting.ConsumerData{{
			GroupName: group, ConsumeType: "CONSUME_PASSIVELY", MessageModel: "CLUSTERING", SubscriptionDataSet: []remoting.SubscriptionData{{Topic: "orders", SubString: "*", SubVersion: 1}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		h, _ := c.call(remoting.ReqHeartBeat, nil, body)
		return h.Code, h.Remark
	}
	k := taker{make(chan notify.Delivery, 100)}
	se, err := a.push.Open(k, netip.MustParseAddrPort("192.0.2.1:7"))
	if err != nil {
		t.Fatal(err)
	}
	defer se.Close()
	if err := se.Metadata([]string{"live", "X.a"}, false); err != nil {
		t.Fatal(err)
	}
	binding := func(group string) *wire.Binding {
		return &wire.Binding{Kind: wire.Fanout, Topic: "orders", Group: group, WaterMark: wire.DefaultWaterMark, Persistent: true}
	}
	if code, text := beat("live"); code != 0 {
		t.Fatalf("heartbeat: code %d %s", code, text)
	}
	if err := se.Subscribe(binding("live")); err == nil || !strings.Contains(err.Error(), "RocketMQ consumers") {
		t.Errorf("subscription of a group that pulls: %v", err)
	}
	if code, text := beat("live"); code != 0 {
		t.Errorf("heartbeat after a refused subscription: code %d %s", code, text)
	}

	if err := se.Subscribe(binding("X.a")); err != nil {
		t.Fatal(err)
	}
	c.send("orders", "text")
	select {
	case <-k.got:
	case <-time.After(20 * time.Second):
		t.Fatal("no delivery")
	}
	if err := se.Unsubscribe(binding("X.a")); err != nil {
		t.Fatal(err)
	}
	// Nothing is bound any more, and a message is unanswered.
	if code, text := beat("X%2Ea"); code != 16 || !strings.Contains(text, `"X.a"`) {
		t.Errorf("heartbeat of a push group's name: code %d %s, want 16", code, text)
	}
	var one httpapi.Group
	get(t, a, "/api/v1/groups/X.a", &one)
	if one.Mode != "push" || len(one.Members) != 1 || len(one.Topics) != 1 || one.Topics[0].Topic != "orders" || one.Lag < 1 {
		t.Errorf("a group that is owed a message: %+v", one)
	}
	var p httpapi.GroupPage
	get(t, a, "/api/v1/groups", &p)
	if len(p.Groups) != 2 || p.Groups[0].Name != "X.a" || p.Groups[1].Name != "live" {
		t.Errorf("groups %+v", p.Groups)
	}
}

// TestLagMissesNothingOnItsWay: messages that move from a group's cursor into the memory of the service while an answer is made are in it.
func TestLagMissesNothingOnItsWay(t *testing.T) {
	a, _ := start(t, load(t, t.TempDir(), nil))
	c := dial(t, a.Listeners()["broker"])
	c.send("orders", "from before the binding")
	se, err := a.push.Open(full{}, netip.MustParseAddrPort("192.0.2.1:7"))
	if err != nil {
		t.Fatal(err)
	}
	defer se.Close()
	if err := se.Metadata([]string{"mail"}, false); err != nil {
		t.Fatal(err)
	}
	if err := se.Subscribe(&wire.Binding{Kind: wire.Fanout, Topic: "orders", Group: "mail", WaterMark: wire.DefaultWaterMark, Persistent: true}); err != nil {
		t.Fatal(err)
	}
	push := a.readPushes() // the answer begins
	for range 3 {
		c.send("orders", "text")
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		pos, _ := a.store.Cursor("orders", "mail")
		if g := a.push.Groups(); len(g) == 1 && g[0].Waiting == 3 && pos.Attached {
			break
		} else if time.Now().After(end) {
			t.Fatalf("the messages do not wait in the service: %+v, %+v", g, pos)
		}
	}
	push.follow(a, push.names)
	if g := push.group("mail"); g.Lag != 3 {
		t.Errorf("group %+v, want a lag of 3", g)
	}
}

// TestLaw7MetricsAreBounded: more topics than metrics.max-series allows do not make the page grow.
func TestLaw7MetricsAreBounded(t *testing.T) {
	a, _ := start(t, load(t, t.TempDir(), nil))
	small := *a.live.Load()
	small.Metrics.MaxSeries = 3
	a.Reload(&small)
	c := dial(t, a.Listeners()["broker"])
	for _, topic := range strings.Split("abcdefgh", "") {
		c.send(topic, "text")
	}
	page := get(t, a, "/metrics", nil)
	if n := strings.Count(page, "\nrocketmq_messages_in_total{"); n != 3 {
		t.Errorf("%d topics on the page, want 3", n)
	}
	if !strings.Contains(page, `metric="rocketmq_messages_in_total",node_id="broker-t",node_type="broker"} 5`) {
		t.Error("the page does not count what it leaves out")
	}
}
