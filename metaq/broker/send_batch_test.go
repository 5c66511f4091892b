package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/record"
)

// batchOf is a send of several messages.
func batchOf(m message, members ...remoting.BatchMessage) message {
	var body []byte
	for i := range members {
		body = remoting.AppendBatchMessage(body, &members[i])
	}
	m.body, m.extra = string(body), append(slices.Clone(m.extra), "batch", "true")
	if m.v2 {
		m.extra[len(m.extra)-2] = "m"
	}
	return m
}

func (c *client) sendBatch(m message, members ...remoting.BatchMessage) *reply {
	c.Helper()
	m = batchOf(m, members...)
	return c.call(remoting.ReqSendBatchMessage, []byte(m.body), m.fields()...)
}

func member(body string, kv ...string) remoting.BatchMessage {
	return remoting.BatchMessage{Body: []byte(body), Properties: props(kv...)}
}

// Every message of a batch is a record of its own, with its own flag, id and properties and what the batch has in common, found by its
// offset id and by its unique id; fault SND-09.
func TestBatch(t *testing.T) {
	e := start(t)
	e.topic("T", 4)
	for _, tc := range []struct {
		name     string
		code     int32
		v2       bool
		uniq, id string // of the batch; transactionId
	}{
		{"320 as Java sends it", 320, true, "BATCH", "BATCH"},
		{"320 as Go sends it", 320, true, "", ""},
		{"310 that says batch", 310, true, "", ""},
		{"10 that says batch", 10, false, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := e.dial()
			first := c.sent(message{topic: "T", queue: 2, body: "before"})
			m := batchOf(message{topic: "T", queue: 2, v2: tc.v2, props: props("UNIQ_KEY", tc.uniq, "WAIT", "true", "shared", "batch")},
				remoting.BatchMessage{Flag: 7, Body: []byte("a"), Properties: props("TAGS", "A", "UNIQ_KEY", "U1"+tc.name, "shared", "own")},
				remoting.BatchMessage{Flag: -1, Body: []byte("b"), Properties: "KEYS\x01k"}, // without the last separator
				remoting.BatchMessage{Body: []byte("c")})
			r := c.ok(tc.code, []byte(m.body), m.fields()...)
			ids := strings.Split(r.Get("msgId"), ",")
			if len(ids) != 3 || num(t, r, "queueId") != 2 || num(t, r, "queueOffset") != num(t, first, "queueOffset")+1 || r.Get("transactionId") != tc.id || r.Get("TRACE_ON") != "true" {
				t.Fatalf("%v", r)
			}
			seen := map[string]bool{}
			for i, id := range ids {
				_, at, err := record.ParseOffsetID(id)
				if err != nil {
					t.Fatal(err)
				}
				m := records(t, c.ok(remoting.ReqViewMessageByID, nil, "offset", fmt.Sprint(at)).body)[0]
				if string(m.Body()) != string(rune('a'+i)) || m.QueueOffset() != num(t, r, "queueOffset")+int64(i) || m.QueueID() != 2 || m.Flag() != []int32{7, -1, 0}[i] || m.CheckBody() != nil {
					t.Errorf("message %d: %q queue %d offset %d flag %d", i, m.Body(), m.QueueID(), m.QueueOffset(), m.Flag())
				}
				uniq, _ := m.Property("UNIQ_KEY")
				if seen[string(uniq)] || i == 0 && string(uniq) != "U1"+tc.name || i > 0 && len(uniq) != uniqLen {
					t.Errorf("message %d: UNIQ_KEY %q", i, uniq)
				}
				seen[string(uniq)] = true
				tail := props("CLUSTER", "DefaultCluster", "MSG_REGION", "DefaultRegion", "TRACE_ON", "true")
				want := []string{
					props("TAGS", "A", "UNIQ_KEY", "U1"+tc.name, "shared", "own", "WAIT", "true") + tail,
					props("KEYS", "k", "WAIT", "true", "shared", "batch", "UNIQ_KEY", string(uniq)) + tail,
					props("WAIT", "true", "shared", "batch", "UNIQ_KEY", string(uniq)) + tail,
				}[i]
				if got := string(m.Properties()); got != want {
					t.Errorf("message %d has properties %q, want %q", i, got, want)
				}
				q := c.ok(remoting.ReqQueryMessage, nil, "topic", "T", "key", string(uniq), "maxNum", "32", "beginTimestamp", "0", "endTimestamp", "9000000000000000", uniqKeyQuery, "true")
				if got := records(t, q.body); len(got) != 1 || string(got[0].Body()) != string(m.Body()) {
					t.Errorf("message %d: %d found by UNIQ_KEY", i, len(got))
				}
			}
		})
	}
	if s := e.b.Stats(); s.Put != 4*4 || s.Batches != 4 || s.PutRefused != 0 {
		t.Errorf("%+v", s)
	}
}

// Whether the body is a batch, batch alone says: 320 without it is a send of one message, as in RocketMQ 5.3.3.
func TestBatchFieldDecides(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	c := e.dial()
	m := batchOf(message{topic: "T"}, member("a"), member("b"))
	m.extra = nil
	if r := c.ok(remoting.ReqSendBatchMessage, []byte(m.body), m.fields()...); strings.Contains(r.Get("msgId"), ",") {
		t.Errorf("%v", r)
	}
	if got := records(t, c.pull(pullReq{group: "G", topic: "T", sub: "*"}).body); len(got) != 1 || string(got[0].Body()) != m.body {
		t.Errorf("%d messages", len(got))
	}
}

// A batch with one message that cannot be stored is refused as a whole; faults SND-06 and SND-10.
func TestBatchIsRefusedAsAWhole(t *testing.T) {
	e := start(t, func(c *Config, _ *store.Options) { c.MaxBodyBytes = 100_000 })
	e.topic("T", 1)
	c := e.dial()
	c.ok(remoting.ReqUpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"G"}`))
	before := e.store.Bounds().Max
	good := member("good")
	goodBytes := string(remoting.AppendBatchMessage(nil, &good))
	long := remoting.BatchMessage{Body: []byte("x"), Properties: "p\x01" + strings.Repeat("x", maxProperties-1)}
	for _, tc := range []struct {
		name string
		give message
		code int32
		want string // in the remark
	}{
		{"a retry topic", batchOf(message{topic: "%RETRY%G"}, good), 13, "batch request does not support retry group %RETRY%G"},
		{"the half topic", batchOf(message{topic: "RMQ_SYS_TRANS_HALF_TOPIC"}, good), 16, "RMQ_SYS_TRANS_HALF_TOPIC"},
		{"a queue that is not there", batchOf(message{topic: "T", queue: 1}, good), 29, "queueId[1]"},
		{"no message", batchOf(message{topic: "T"}), 13, "empty"},
		{"an empty message", batchOf(message{topic: "T"}, good, member("")), 13, "message 1 of the batch: its body is empty"},
		{"properties over the limit", batchOf(message{topic: "T"}, good, good, long), 13, "message 2 of the batch: its properties have 32768 bytes, the limit is 32767"},
		{"bodies over the limit", batchOf(message{topic: "T"}, member(strings.Repeat("x", 60_000)), member(strings.Repeat("x", 60_000))), 13, "the limit is 100000 bytes"},
		{"a zero byte in properties", batchOf(message{topic: "T"}, good, member("x", "a", "\x00")), 13, "zero byte"},
		{"a delay level", batchOf(message{topic: "T"}, good, member("x", "DELAY", "3")), 13, "message 1 of the batch: "},
		{"a delay", batchOf(message{topic: "T"}, good, member("x", "TIMER_DELAY_SEC", "5")), 13, "TIMER_DELAY_SEC"},
		{"a delay in milliseconds", batchOf(message{topic: "T"}, good, member("x", "TIMER_DELAY_MS", "5")), 13, "TIMER_DELAY_MS"},
		{"a time of delivery", batchOf(message{topic: "T"}, good, member("x", "TIMER_DELIVER_MS", "99999999999999")), 13, "TIMER_DELIVER_MS"},
		{"a half message", batchOf(message{topic: "T"}, good, member("x", "TRAN_MSG", "true")), 13, "TRAN_MSG"},
		{"a delay of the whole", batchOf(message{topic: "T", props: props("DELAY", "3")}, good), 13, "DELAY"},
		{"a half batch", batchOf(message{topic: "T", props: props("TRAN_MSG", "true")}, good), 13, "TRAN_MSG"},
		{"marked prepared", batchOf(message{topic: "T", extra: []string{"sysFlag", "4"}}, good), 13, "sysFlag 0x4"},
		{"cut in a head", message{topic: "T", body: goodBytes + goodBytes[:10], extra: []string{"batch", "true"}}, 13, "message 1 of the batch"},
		{"cut in a body", message{topic: "T", body: goodBytes + goodBytes[:22], extra: []string{"batch", "true"}}, 13, "its body has 4 bytes"},
		{"cut in properties", message{topic: "T", body: goodBytes[:len(goodBytes)-1] + "\x09", extra: []string{"batch", "true"}}, 13, "its properties have 9 bytes"},
		{"a huge body", message{topic: "T", body: strings.Repeat("\xff", 40), extra: []string{"batch", "true"}}, 13, "4294967295"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if r := c.call(remoting.ReqSendBatchMessage, []byte(tc.give.body), tc.give.fields()...); r.Code != tc.code || !strings.Contains(r.Remark, tc.want) || r.Get("TRACE_ON") != "true" {
				t.Errorf("%v, want %d with %q", r, tc.code, tc.want)
			}
		})
	}
	if now := e.store.Bounds().Max; now != before {
		t.Errorf("the log went from %d to %d", before, now)
	}
	// What was refused leaves nothing behind for what comes with it.
	bad, fine := batchOf(message{topic: "T"}, good, member("")), batchOf(message{topic: "T"}, good, member("more"))
	o1 := c.put(remoting.ReqSendMessage, 0, []byte("alone"), message{topic: "T"}.fields()...)
	o2 := c.put(remoting.ReqSendBatchMessage, 0, []byte(bad.body), bad.fields()...)
	o3 := c.put(remoting.ReqSendBatchMessage, 0, []byte(fine.body), fine.fields()...)
	c.flush()
	answers := map[int32]*reply{}
	for range 3 {
		r := c.read(30e9)
		answers[r.Opaque] = r
	}
	if answers[o1].Code != 0 || answers[o2].Code != 13 || answers[o3].Code != 0 || num(t, answers[o3], "queueOffset") != 1 {
		t.Errorf("%v, %v, %v", answers[o1], answers[o2], answers[o3])
	}
	var bodies []string
	for _, m := range records(t, c.pull(pullReq{group: "G", topic: "T", sub: "*"}).body) {
		bodies = append(bodies, string(m.Body()))
	}
	if !slices.Equal(bodies, []string{"alone", "good", "more"}) {
		t.Errorf("stored %q", bodies)
	}
}

// A compressed flag of a batch speaks of each of its bodies, and they pass as they came.
func TestLaw3FlagsOfABatchAreThoseOfItsMessages(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	c := e.dial()
	if r := c.sendBatch(message{topic: "T", extra: []string{"sysFlag", "769"}}, member("\x78\x9c no zlib"), member("\x78\x9c neither")); r.Code != 0 {
		t.Fatal(r)
	}
	for _, m := range records(t, c.pull(pullReq{group: "G", topic: "T", sub: "*"}).body) {
		if m.SysFlag() != 0x301 || !strings.HasPrefix(string(m.Body()), "\x78\x9c n") {
			t.Errorf("sysFlag %#x, body %q", m.SysFlag(), m.Body())
		}
	}
}

// A batch of more than the store writes at a time for others is one write, so that nobody's messages come between.
func TestBatchIsOneAppend(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	c := e.dial()
	before := e.store.Stats().Log
	var ms []remoting.BatchMessage
	for range 3000 {
		ms = append(ms, member(strings.Repeat("x", 1000)))
	}
	r := c.sendBatch(message{topic: "T"}, ms...)
	if r.Code != 0 || strings.Count(r.Get("msgId"), ",") != 2999 {
		t.Fatalf("code %d %s", r.Code, r.Remark)
	}
	if now := e.store.Stats().Log; now.Records-before.Records != 3000 || now.Writes-before.Writes != 1 {
		t.Errorf("%d records in %d writes", now.Records-before.Records, now.Writes-before.Writes)
	}
	if r := c.sendBatch(message{topic: "T"}, make([]remoting.BatchMessage, 0)...); r.Code != 13 {
		t.Error(r)
	}
	ms = slices.Repeat([]remoting.BatchMessage{member("x")}, maxBatch+1)
	if r := c.sendBatch(message{topic: "T"}, ms...); r.Code != 13 || !strings.Contains(r.Remark, "32768 messages") {
		t.Errorf("code %d %s", r.Code, r.Remark)
	}
	if r := c.sendBatch(message{topic: "T"}, ms[1:]...); r.Code != 0 {
		t.Errorf("code %d %s", r.Code, r.Remark)
	}
}
