package broker

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/record"
)

// quick makes the delays of a store so short that a test can wait for them.
func quick(_ *Config, o *store.Options) {
	o.DelayLevels = slices.Repeat([]time.Duration{time.Millisecond}, 18)
}

// back sends a message back. kv are further fields.
func (c *client) back(group string, offset int64, level int, kv ...string) *reply {
	c.Helper()
	return c.call(remoting.ReqConsumerSendMsgBack, nil, append([]string{"group", group, "offset", strconv.FormatInt(offset, 10), "delayLevel", strconv.Itoa(level),
		"originTopic", "T", "originMsgId", "7F0000010000276B0000000000000400", "unitMode", "false"}, kv...)...)
}

// next waits for the message at an offset of a queue and gives it; there has to be no other behind it.
func (c *client) next(group, topic string, offset int64) record.View {
	c.Helper()
	r := c.pull(pullReq{group: group, topic: topic, offset: offset, sub: "*", suspend: 20 * time.Second})
	if r.Code != 0 {
		c.Fatalf("offset %d of %s: %v", offset, topic, r)
	}
	ms := records(c, r.body)
	if len(ms) != 1 {
		c.Fatalf("%d messages at offset %d of %s, want one", len(ms), offset, topic)
	}
	return ms[0]
}

func prop(v record.View, name string) string {
	b, _ := v.Property(name)
	return string(b)
}

// A message that is sent back again and again has what a broker 5.3.3 gives it (vectors java-5.3.3), at every attempt, and its body is
// stored once.
func TestLaw2SentBackMessagesComeAgainAndThenAreDeadLetters(t *testing.T) {
	e := start(t, quick)
	e.topic("T", 4)
	c := e.dial()
	c.ok(remoting.ReqUpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"G","retryMaxTimes":2,"retryQueueNums":1}`))
	body := strings.Repeat("x", 1<<20)
	c.sent(message{topic: "T", queue: 3, body: body, props: props("TAGS", "A", "KEYS", "k", "own", "1", "UNIQ_KEY", "C000020278234E0E2F2A92F517D1001B", "WAIT", "true")})
	m := records(t, c.pull(pullReq{group: "G", topic: "T", queue: 3, sub: "*"}).body)[0]
	first := m.PhysicalOffset()
	bytes := e.store.Bounds().Max
	check := func(v record.View, topic string, attempt int32, delay string) {
		t.Helper()
		if string(v.Topic()) != topic || v.QueueID() != 0 || v.ReconsumeTimes() != attempt || string(v.Body()) != body || v.BornTime() != m.BornTime() || v.TagsCode() != m.TagsCode() {
			t.Errorf("%s queue %d attempt %d, want %s 0 %d and the rest as it was", v.Topic(), v.QueueID(), v.ReconsumeTimes(), topic, attempt)
		}
		for name, want := range map[string]string{
			"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": record.OffsetID(v.StoreHost(), first), "DELAY": delay, "WAIT": "false", "TAGS": "A", "KEYS": "k", "own": "1",
			"UNIQ_KEY": "C000020278234E0E2F2A92F517D1001B", "MSG_REGION": "DefaultRegion", "CLUSTER": "DefaultCluster", "TRACE_ON": "true",
		} {
			if got := prop(v, name); got != want {
				t.Errorf("attempt %d of %s: %s is %q, want %q", attempt, topic, name, got, want)
			}
		}
	}
	for attempt := range int64(2) {
		if r := c.back("G", m.PhysicalOffset(), 0); r.Code != 0 {
			t.Fatalf("attempt %d: %v", attempt, r)
		}
		m = c.next("G", "%RETRY%G", attempt)
		check(m, "%RETRY%G", int32(attempt)+1, strconv.FormatInt(3+attempt, 10))
		if prop(m, "REAL_TOPIC") != "%RETRY%G" || prop(m, "REAL_QID") != "0" {
			t.Errorf("real place %q %q", prop(m, "REAL_TOPIC"), prop(m, "REAL_QID"))
		}
	}
	if r := c.back("G", m.PhysicalOffset(), 0); r.Code != 0 {
		t.Fatal(r)
	}
	check(c.next("G", "%DLQ%G", 0), "%DLQ%G", 3, "0")
	if n := e.store.Bounds().Max - bytes; n > 16<<10 {
		t.Errorf("three views of a message took %d bytes of log", n)
	}
	var dead []string
	e.b.DeadLetters(func(group, topic string, n int64) { dead = append(dead, fmt.Sprint(group, " ", topic, " ", n)) })
	if s := e.b.Stats(); s.SentBack != 3 || s.DeadLetters != 1 || !slices.Equal(dead, []string{"G T 1"}) {
		t.Errorf("sent back %d, dead %d, %q", s.SentBack, s.DeadLetters, dead)
	}
}

func TestSendBackSaysWhatIsWrong(t *testing.T) {
	e := start(t, quick, func(c *Config, _ *store.Options) { c.NoAutoCreateGroups = true })
	e.topic("T", 1)
	c := e.dial()
	for _, g := range []string{`{"groupName":"G"}`, `{"groupName":"NoRetry","retryQueueNums":0}`, `{"groupName":"Closed"}`} {
		c.ok(remoting.ReqUpdateAndCreateSubscriptionGroup, []byte(g))
	}
	c.ok(remoting.ReqUpdateAndCreateTopic, nil, topicFields("%RETRY%Closed", "perm", "4")...)
	c.sent(message{topic: "T", body: "x"})
	at := records(t, c.pull(pullReq{group: "G", topic: "T", sub: "*"}).body)[0].PhysicalOffset()
	for _, tc := range []struct {
		name string
		give *reply
		code int32
		want string
	}{
		{"no such group", c.back("Nobody", at, 0), 26, "subscription group not exist, Nobody"},
		{"inside a message", c.back("G", at+1, 0), 1, "look message by offset failed, " + strconv.FormatInt(at+1, 10)},
		{"behind the log", c.back("G", 1<<62, 0), 1, "look message by offset failed"},
		{"below the log", c.back("G", -1, 0), 1, "look message by offset failed"},
		{"retry topic without write permission", c.back("Closed", at, 0), 16, "the topic[%RETRY%Closed] sending message is forbidden"},
		{"no offset", c.call(remoting.ReqConsumerSendMsgBack, nil, "group", "G", "delayLevel", "0"), 29, "offset"},
		{"no group", c.call(remoting.ReqConsumerSendMsgBack, nil, "offset", "0", "delayLevel", "0"), 29, "group"},
		{"a level that is no number", c.call(remoting.ReqConsumerSendMsgBack, nil, "offset", "0", "group", "G", "delayLevel", "x"), 29, "delayLevel"},
		{"a group without retry queues", c.back("NoRetry", at, 0), 0, ""},
	} {
		if tc.give.Code != tc.code || !strings.Contains(tc.give.Remark, tc.want) {
			t.Errorf("%s: %v, want code %d %q", tc.name, tc.give, tc.code, tc.want)
		}
	}
	if s := e.b.Stats(); s.SentBack != 0 || s.NotReturned != 1 || e.store.StateStats().Returns != 0 {
		t.Errorf("sent back %d, not returned %d, waiting %d", s.SentBack, s.NotReturned, e.store.StateStats().Returns)
	}
	if topics := e.store.Topics(); topics.Get("%RETRY%NoRetry") != nil || topics.Get("%RETRY%Nobody") != nil {
		t.Error("a retry topic was made for nothing")
	}
}

// What decides between another attempt and a dead letter.
func TestSendBackLimits(t *testing.T) {
	e := start(t, quick)
	e.topic("T", 1)
	c := e.dial()
	for i, tc := range []struct {
		name    string
		limit   string // of the group
		level   int
		version int32
		fields  []string
		dead    bool
	}{
		{"the group's limit", "1", 0, 0, nil, false},
		{"no attempt allowed", "0", 0, 0, nil, true},
		{"no limit", "-1", 0, 0, nil, false},
		{"a level", "16", 5, 0, nil, false},
		{"a level above the last", "16", 1 << 30, 0, nil, false},
		{"at once", "16", -1, 0, nil, true},
		{"the client's limit", "16", 0, 0, []string{"maxReconsumeTimes", "0"}, true},
		{"a limit of a client that states none", "0", 0, 0, []string{"maxReconsumeTimes", "-1"}, true},
		{"the client's limit, larger", "0", 0, 0, []string{"maxReconsumeTimes", "1"}, false},
		{"a limit that an old client may not state", "16", 0, 120, []string{"maxReconsumeTimes", "0"}, false},
	} {
		group := fmt.Sprintf("G%d", i)
		c.ok(remoting.ReqUpdateAndCreateSubscriptionGroup, fmt.Appendf(nil, `{"groupName":%q,"retryMaxTimes":%s,"retryQueueNums":1}`, group, tc.limit))
		c.sent(message{topic: "T", body: tc.name})
		at := records(t, c.pull(pullReq{group: group, topic: "T", offset: int64(i), sub: "*"}).body)[0].PhysicalOffset()
		c.version = tc.version
		if r := c.back(group, at, tc.level, tc.fields...); r.Code != 0 {
			t.Fatalf("%s: %v", tc.name, r)
		}
		c.version = 0
		topic := "%RETRY%" + group
		if tc.dead {
			topic = "%DLQ%" + group
		}
		if v := c.next(group, topic, 0); string(v.Body()) != tc.name {
			t.Errorf("%s: %s has %q", tc.name, topic, v.Body())
		}
	}
}

func TestSendBackMakesTheRetryTopicOfItsGroup(t *testing.T) {
	e := start(t, quick)
	e.topic("T", 1)
	c := e.dial()
	c.ok(remoting.ReqUpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"G","retryQueueNums":3}`))
	for i := range int64(20) {
		c.sent(message{topic: "T", body: "x"})
		if r := c.back("G", records(t, c.pull(pullReq{group: "G", topic: "T", offset: i, sub: "*"}).body)[0].PhysicalOffset(), 0); r.Code != 0 {
			t.Fatal(r)
		}
	}
	if g := e.store.Topics().Get("%RETRY%G"); g == nil || g.ReadQueues != 3 || g.WriteQueues != 3 || g.Perm != 6 {
		t.Fatalf("the retry topic is %+v", g)
	}
	for q := range 3 { // all are used
		if r := c.pull(pullReq{group: "G", topic: "%RETRY%G", queue: q, sub: "*", suspend: 20 * time.Second}); r.Code != 0 {
			t.Errorf("queue %d: %v", q, r)
		}
	}
}

// A client whose send-back fails sends the message to the retry topic itself, with its attempts.
func TestSendsToARetryTopicBeyondTheLimitAreDeadLetters(t *testing.T) {
	e := start(t, quick)
	c := e.dial()
	c.ok(remoting.ReqUpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"G","retryMaxTimes":3}`))
	sent := 0
	for _, tc := range []struct {
		attempts, most string
		dead           bool
	}{{"3", "", false}, {"4", "", true}, {"2147483647", "16", true}, {"17", "16", true}, {"16", "16", false}, {"2147483647", "2147483647", false}, {"4", "-1", true}, {"-5", "", false}} {
		for _, v2 := range []bool{false, true} {
			m := message{topic: "%RETRY%G", body: "body", v2: v2, props: props("RETRY_TOPIC", "T", "ORIGIN_MESSAGE_ID", "id", "KEYS", "k")}
			names := []string{"reconsumeTimes", "maxReconsumeTimes"}
			if v2 {
				names = []string{"j", "l"}
			}
			m.extra = []string{names[0], tc.attempts, names[1], tc.most}
			if tc.dead {
				m.props += props("DELAY", "6") // it does not wait
			}
			r := c.sent(m)
			if !tc.dead {
				continue
			}
			v := c.next("G", "%DLQ%G", int64(sent))
			if got := prop(v, "RETRY_TOPIC") + prop(v, "ORIGIN_MESSAGE_ID") + prop(v, "KEYS") + prop(v, "DELAY"); got != "Tidk-1" || fmt.Sprint(v.ReconsumeTimes()) != tc.attempts || num(t, r, "queueOffset") != int64(sent) {
				t.Errorf("attempt %s of %s: %q at %d, reconsumed %d times", tc.attempts, tc.most, got, num(t, r, "queueOffset"), v.ReconsumeTimes())
			}
			sent++
		}
	}
	if n := e.b.Stats().DeadLetters; n != int64(sent) {
		t.Errorf("%d dead letters, counted %d", sent, n)
	}
	if d := e.store.Topics().Get("%DLQ%G"); d == nil || d.ReadQueues != 1 || d.Perm != 6 {
		t.Errorf("topic of the dead letters is %+v", d)
	}
}
