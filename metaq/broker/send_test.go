package broker

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/record"
)

func TestSendAnswersWithIdsAndOffsets(t *testing.T) {
	e := start(t)
	e.topic("T", 4)
	for _, v2 := range []bool{false, true} {
		for _, binary := range []bool{false, true} {
			t.Run(fmt.Sprintf("v2=%v binary=%v", v2, binary), func(t *testing.T) {
				c := e.dial()
				c.binary = binary
				r := c.sent(message{topic: "T", queue: 3, body: "hello", props: props("TAGS", "A", "KEYS", "k", "UNIQ_KEY", "ID1"), v2: v2})
				if binary != (r.Serialize == remoting.Binary) {
					t.Errorf("answer in %v", r.Serialize)
				}
				if r.Version != remoting.Version || r.Get("queueId") != "3" || r.Get("transactionId") != "ID1" || r.Get("MSG_REGION") != "DefaultRegion" || r.Get("TRACE_ON") != "true" || len(r.Get("msgId")) != 32 {
					t.Errorf("%v", r)
				}
				host, at, err := record.ParseOffsetID(r.Get("msgId"))
				if err != nil || host.String() != e.addr {
					t.Fatalf("msgId %s: host %v, %v", r.Get("msgId"), host, err)
				}
				seen := c.ok(remoting.ReqViewMessageByID, nil, "offset", fmt.Sprint(at))
				m := records(t, seen.body)[0]
				if string(m.Body()) != "hello" || m.QueueOffset() != num(t, r, "queueOffset") || m.QueueID() != 3 || m.BornTime() != 1700000000000 || m.BornHost().String() != c.conn.LocalAddr().String() {
					t.Errorf("stored %q queue %d offset %d born %d at %v; answered %v", m.Body(), m.QueueID(), m.QueueOffset(), m.BornTime(), m.BornHost(), r)
				}
				want := props("TAGS", "A", "KEYS", "k", "UNIQ_KEY", "ID1", "CLUSTER", "DefaultCluster", "MSG_REGION", "DefaultRegion", "TRACE_ON", "true")
				if got := string(m.Properties()); got != want {
					t.Errorf("stored properties %q, want %q", got, want)
				}
			})
		}
	}
}

// Properties: what is added stays apart from what came, with and without the closing separator, and nothing of the client
// is lost or doubled.
func TestSendProperties(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	c := e.dial()
	added := props("CLUSTER", "DefaultCluster", "MSG_REGION", "DefaultRegion", "TRACE_ON", "true")
	full := "U\x01" + strings.Repeat("x", maxProperties-len("U\x01\x02")) + "\x02"
	for _, tc := range []struct {
		name, give string
		want       string // U stands for the generated key
	}{
		{"none", "", "U" + added},
		{"without the last separator", "TAGS\x01TagA", "TAGS\x01TagA\x02U" + added},
		{"a unique key of the client's", "UNIQ_KEY\x01me\x02", "UNIQ_KEY\x01me\x02" + added},
		{"what only the broker says is replaced", "CLUSTER\x01other\x02a\x01b\x02TRACE_ON\x01false\x02POP_CK\x01x\x02MSG_REGION\x01r\x02", "a\x01b\x02U" + added},
		{"an immediate delay level is kept", "DELAY\x010\x02", "DELAY\x010\x02U" + added},
		{"a transaction that is none", "TRAN_MSG\x01false\x02", "TRAN_MSG\x01false\x02U" + added},
		{"no room for more", full, full},
		{"no room for the separator", full[:len(full)-1] + "x", full[:len(full)-1] + "x"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := c.sent(message{topic: "T", body: "x", props: tc.give})
			_, at, _ := record.ParseOffsetID(r.Get("msgId"))
			m := records(t, c.ok(remoting.ReqViewMessageByID, nil, "offset", fmt.Sprint(at)).body)[0]
			uniq, _ := m.Property("UNIQ_KEY")
			if got := r.Get("transactionId"); got != string(uniq) {
				t.Errorf("transactionId %q, UNIQ_KEY %q", got, uniq)
			}
			want := tc.want
			if len(uniq) == uniqLen {
				want = strings.Replace(want, "U", "UNIQ_KEY\x01"+string(uniq)+"\x02", 1)
			}
			if got := string(m.Properties()); got != want {
				t.Errorf("stored %.200q, want %.200q", got, want)
			}
		})
	}
}

func TestSendRefusals(t *testing.T) {
	e := start(t, func(c *Config, _ *store.Options) { c.MaxBodyBytes, c.NoAutoCreateGroups = 1000, true })
	e.topic("T", 4)
	c := e.dial()
	c.ok(remoting.ReqUpdateAndCreateTopic, nil, "topic", "ReadOnly", "readQueueNums", "1", "writeQueueNums", "1", "perm", "4")
	c.ok(remoting.ReqUpdateAndCreateTopic, nil, "topic", "Wide", "readQueueNums", "8", "writeQueueNums", "4", "perm", "6")
	c.ok(remoting.ReqUpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"G","retryMaxTimes":3}`))
	before := e.store.Bounds().Max
	x := strings.Repeat
	for _, tc := range []struct {
		name     string
		give     message
		wantCode int32
		want     string // in the remark
	}{
		{"no topic name", message{topic: ""}, 29, "topic"},
		{"a blank in the name", message{topic: "a b"}, 29, `"a b"`},
		{"a dot in the name", message{topic: "a.b"}, 29, `"a.b"`},
		{"a Chinese name", message{topic: "中文"}, 29, "中文"},
		{"a long name", message{topic: x("a", 128)}, 29, "127"},
		{"the delay topic", message{topic: "SCHEDULE_TOPIC_XXXX"}, 16, "SCHEDULE_TOPIC_XXXX"},
		{"the half topic", message{topic: "RMQ_SYS_TRANS_HALF_TOPIC"}, 16, "forbidden"},
		{"a topic of the store's", message{topic: "rmq_sys_fusion_oq"}, 16, "rmq_sys_fusion_oq"},
		{"a topic of the store's that is not there", message{topic: "rmq_sys_fusion_x"}, 16, "rmq_sys_fusion_x"},
		{"an unknown template", message{topic: "New", extra: []string{"defaultTopic", "Nothing"}}, 17, "New"},
		{"a template that is none", message{topic: "New", extra: []string{"defaultTopic", "T"}}, 17, "New"},
		{"queue id at the number of queues", message{topic: "T", queue: 4}, 29, "queueId[4]"},
		{"a huge queue id", message{topic: "T", queue: 1<<31 - 1}, 29, "queueId[2147483647]"},
		{"queue id at the larger number", message{topic: "Wide", queue: 8}, 29, "queueId[8]"},
		{"a topic without write permission", message{topic: "ReadOnly"}, 16, "perm is 4"},
		{"an empty body", message{topic: "T", body: "-"}, 13, "empty"},
		{"a body over the limit", message{topic: "T", body: x("b", 1001)}, 13, "1001 bytes, the limit is 1000"},
		{"properties over the limit", message{topic: "T", props: x("p", 32768)}, 13, "32768 bytes, the limit is 32767"},
		{"many bytes in fewer characters", message{topic: "T", props: props("a", x("中", 10923))}, 13, "the limit is 32767"},
		{"prepared by its flag", message{topic: "T", extra: []string{"sysFlag", "4"}}, 13, "sysFlag 0x4"},
		{"rolled back by its flag", message{topic: "T", extra: []string{"sysFlag", "12"}}, 13, "sysFlag 0xc"},
		{"a retry topic without a group", message{topic: "%RETRY%Nobody"}, 26, "Nobody"},
		{"a field missing", message{topic: "T", extra: []string{"bornTimestamp", ""}}, 29, "bornTimestamp is missing"},
		{"a field that is no number", message{topic: "T", extra: []string{"queueId", "abc"}}, 29, `queueId: "abc"`},
		{"a number too large", message{topic: "T", extra: []string{"sysFlag", "4294967296"}}, 29, "sysFlag"},
	} {
		for _, v2 := range []bool{false, true} {
			m := tc.give
			if m.v2 = v2; v2 && m.extra != nil {
				continue // the extra fields have their long names
			}
			if m.body == "" {
				m.body = "x"
			} else if m.body == "-" {
				m.body = ""
			}
			r := c.send(m)
			if r.Code != tc.wantCode || !strings.Contains(r.Remark, tc.want) {
				t.Errorf("%s (v2 %v): code %d %q, want %d with %q", tc.name, v2, r.Code, r.Remark, tc.wantCode, tc.want)
			}
			if region := r.Get("MSG_REGION"); region == "" {
				t.Errorf("%s: MSG_REGION %q with code %d", tc.name, region, r.Code)
			}
		}
	}
	if after := e.store.Bounds().Max; after != before {
		t.Errorf("refused messages took %d bytes of the log", after-before)
	}
	for _, name := range []string{"New", "%RETRY%Nobody", "rmq_sys_fusion_x"} {
		if e.store.Topics().Get(name) != nil {
			t.Errorf("a refused send made topic %s", name)
		}
	}
	if r := c.sent(message{topic: "T", body: "still served"}); num(t, r, "queueOffset") != 0 {
		t.Errorf("offsets were consumed: %v", r)
	}
}

// A retry topic is made in the image of its group and not of a template, also where topics are not auto-created.
func TestRetryTopicOfASend(t *testing.T) {
	e := start(t, func(c *Config, _ *store.Options) { c.NoAutoCreateTopics = true })
	c := e.dial()
	c.ok(remoting.ReqUpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"G","retryQueueNums":3}`))
	c.ok(remoting.ReqUpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"None","retryQueueNums":0}`))
	for group, queues := range map[string]int32{"G": 3, "ByUse": 1} {
		c.sent(message{topic: "%RETRY%" + group, body: "x", extra: []string{"reconsumeTimes", "2"}})
		if got := e.store.Topics().Get("%RETRY%" + group); got == nil || got.WriteQueues != queues {
			t.Errorf("%s: %+v, want %d queues", group, got, queues)
		}
		if m := records(t, c.pull(pullReq{group: group, topic: "%RETRY%" + group, sub: "*"}).body); len(m) != 1 || m[0].ReconsumeTimes() != 2 {
			t.Errorf("%s: %d messages", group, len(m))
		}
	}
	if r := c.send(message{topic: "%RETRY%None", body: "x"}); r.Code != 17 {
		t.Errorf("a group that wants no retry topic: %v", r)
	}
}

func TestBrokerPicksTheQueue(t *testing.T) {
	e := start(t)
	e.topic("T", 4)
	c := e.dial()
	for _, q := range []int{-1, -100, -1 << 31} {
		if n := num(t, c.sent(message{topic: "T", queue: q, body: "x"}), "queueId"); n < 0 || n > 3 {
			t.Errorf("queue %d: stored in %d", q, n)
		}
	}
}

func TestTopicsAreMadeByTheFirstSend(t *testing.T) {
	for _, tc := range []struct {
		name     string
		template string
		queues   string
		want     int32 // write queues; 0: not made
	}{
		{"the client wants fewer queues than the template has", "TBW102", "4", 4},
		{"the template has fewer", "TBW102", "100", 8},
		{"nonsense from the client", "TBW102", "-5", 1},
		{"the cluster's topic is a template too", "DefaultCluster", "20", 16},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := start(t)
			e.dial().sent(message{topic: "New", queue: -1, body: "x", extra: []string{"defaultTopic", tc.template, "defaultTopicQueueNums", tc.queues}})
			got := e.store.Topics().Get("New")
			if got == nil || got.WriteQueues != tc.want || got.ReadQueues != tc.want || got.Perm != 6 {
				t.Fatalf("%+v, want %d queues", got, tc.want)
			}
			if r, ok := e.ns.Table().Route("New", e.b.cfg.StoreHost.Addr()); !ok || r.QueueDatas[0].WriteQueueNums != tc.want || r.BrokerDatas[0].BrokerAddrs[0] != e.addr {
				t.Errorf("route %+v", r)
			}
		})
	}
	t.Run("switched off, whatever the template", func(t *testing.T) {
		e := start(t, func(c *Config, _ *store.Options) { c.NoAutoCreateTopics = true })
		c := e.dial()
		for _, template := range []string{"TBW102", "DefaultCluster", "broker-a"} {
			if r := c.send(message{topic: "New", body: "x", extra: []string{"defaultTopic", template}}); r.Code != 17 {
				t.Errorf("template %s: %v", template, r)
			}
		}
		if e.store.Topics().Get("New") != nil {
			t.Error("the topic was made")
		}
		if _, ok := e.ns.Table().Route("TBW102", e.b.cfg.StoreHost.Addr()); ok {
			t.Error("TBW102 has a route: producers would go on sending")
		}
	})
	t.Run("up to the limit", func(t *testing.T) {
		e := start(t, func(c *Config, _ *store.Options) { c.MaxTopics = 10 })
		c := e.dial()
		for i := range 5 {
			r := c.send(message{topic: fmt.Sprint("New", i), body: "x"})
			if full := e.store.Topics().Len() >= 10; r.Code != 0 && !full || r.Code == 0 && e.store.Topics().Len() > 10 {
				t.Errorf("topic %d: %v with %d topics", i, r, e.store.Topics().Len())
			}
		}
		if r := c.send(message{topic: "OneMore", body: "x"}); r.Code != 1 || !strings.Contains(r.Remark, "limit of 10 topics") {
			t.Errorf("%v", r)
		}
	})
}

// A burst of sends is stored in order and answered completely, with other requests and refusals in between; what wants
// no answer gets none.
func TestBurst(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	c := e.dial()
	opaques := map[int32]string{}
	n := 0
	for i := range 200 {
		m := message{topic: "T", body: fmt.Sprint("m", i), v2: i%2 == 0}
		switch {
		case i%10 == 3:
			m.topic = "a b"
			opaques[c.put(m.code(), 0, []byte(m.body), m.fields()...)] = "29"
		case i%10 == 5:
			c.put(m.code(), remoting.FlagOneway, []byte(m.body), m.fields()...)
			n++
		case i%10 == 7:
			opaques[c.put(remoting.ReqGetMaxOffset, 0, nil, "topic", "T", "queueId", "0")] = fmt.Sprint("max ", n)
		default:
			opaques[c.put(m.code(), 0, []byte(m.body), m.fields()...)] = fmt.Sprint("offset ", n)
			n++
		}
	}
	last := c.put(remoting.ReqPullMessage, 0, nil, pullReq{group: "G", topic: "T", offset: int64(n - 1), sub: "*"}.fields()...)
	opaques[last] = "pull"
	c.flush()
	for len(opaques) > 0 {
		r := c.read(10e9)
		if r == nil {
			t.Fatalf("%d answers are missing", len(opaques))
		}
		want, ok := opaques[r.Opaque]
		if !ok {
			t.Fatalf("answer to %d, which wants none or has had one: %v", r.Opaque, r)
		}
		delete(opaques, r.Opaque)
		var got string
		switch {
		case r.Code == 29:
			got = "29"
		case r.Opaque == last && r.Code == 0 && len(records(t, r.body)) == 1:
			got = "pull"
		case r.Get("offset") != "":
			got = "max " + r.Get("offset")
		default:
			got = "offset " + r.Get("queueOffset")
		}
		if got != want {
			t.Errorf("answer to %d is %s, want %s: %v", r.Opaque, got, want, r)
		}
	}
	if s := e.b.Stats(); s.Put != int64(n) || s.PutRefused != 20 {
		t.Errorf("counted %d stored and %d refused, want %d and 20", s.Put, s.PutRefused, n)
	}
}

// Whatever a producer says of its body's compression reaches the consumer, and the body is not touched. The two bits about
// the form of addresses are the store's.
func TestLaw3BodiesAndFlagsPassThrough(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	c := e.dial()
	body := "\x78\x9c not really \x00\xff compressed"
	flags := []int32{0, 0x1, 0x101, 0x201, 0x301, 0x701, 0x11, 0x31, 0x2, 0x8}
	for _, f := range flags {
		c.sent(message{topic: "T", body: body, extra: []string{"sysFlag", fmt.Sprint(f), "flag", "-7"}})
	}
	got := records(t, c.pull(pullReq{group: "G", topic: "T", sub: "*"}).body)
	if len(got) != len(flags) {
		t.Fatalf("%d messages, want %d", len(got), len(flags))
	}
	for i, m := range got {
		if m.SysFlag() != flags[i]&^0x30 || m.Flag() != -7 || string(m.Body()) != body || m.BornHost().String() != c.conn.LocalAddr().String() {
			t.Errorf("sysFlag %#x: stored %#x, flag %d, body %q from %v", flags[i], m.SysFlag(), m.Flag(), m.Body(), m.BornHost())
		}
	}
}

// A topic that asks for sync is answered when its messages are on the disk, beside one that does not, from one burst.
func TestLaw4SyncTopicIsAnsweredFromTheDisk(t *testing.T) {
	e := start(t)
	e.topic("A", 1)
	c := e.dial()
	c.ok(remoting.ReqUpdateAndCreateTopic, nil, "topic", "S", "readQueueNums", "1", "writeQueueNums", "1", "perm", "6", "attributes", "+fusion.durability=sync")
	wait := map[int32]bool{}
	for i := range 20 {
		m := message{topic: []string{"A", "S"}[i%2], body: fmt.Sprint(i)}
		wait[c.put(m.code(), 0, []byte(m.body), m.fields()...)] = true
	}
	c.flush()
	for len(wait) > 0 {
		r := c.read(20e9)
		if r == nil || r.Code != 0 || !wait[r.Opaque] {
			t.Fatalf("%v", r)
		}
		delete(wait, r.Opaque)
	}
	if b := e.store.Bounds(); b.Synced <= 0 {
		t.Errorf("bounds %+v: nothing is synced", b)
	}
	for _, topic := range []string{"A", "S"} {
		if got := records(t, c.pull(pullReq{group: "G", topic: topic, sub: "*"}).body); len(got) != 10 {
			t.Errorf("%d messages in %s", len(got), topic)
		}
	}
}

func TestStoreErrorsHaveTheirCodes(t *testing.T) {
	b := &Broker{}
	for _, tc := range []struct {
		give error
		code int32
	}{
		{store.ErrNoSpace, 14}, {store.ErrFailed, 14}, {store.ErrClosed, 14}, {store.ErrTooLarge, 13}, {&store.FieldError{Field: "length of body"}, 13},
		{store.ErrUnknownTopic, 17}, {store.ErrSystemTopic, 16}, {errors.New("something else"), 1},
	} {
		if code, remark := codeOf(b.storeError(fmt.Errorf("wrapped: %w", tc.give))); code != tc.code || !strings.Contains(remark, tc.give.Error()) {
			t.Errorf("%v: code %d %q, want %d", tc.give, code, remark, tc.code)
		}
	}
}
