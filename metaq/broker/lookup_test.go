package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fusionmq/fusionmq/metaq/remoting"
)

func (c *client) byKey(topic, key string, unique bool, kv ...string) *reply {
	c.Helper()
	fields := append([]string{"topic", topic, "key", key, "_UNIQUE_KEY_QUERY", fmt.Sprint(unique)}, kv...)
	for _, d := range [][2]string{{"maxNum", "10"}, {"beginTimestamp", "0"}, {"endTimestamp", "9223372036854775807"}} {
		if !slices.Contains(kv, d[0]) {
			fields = append(fields, d[0], d[1])
		}
	}
	return c.call(remoting.ReqQueryMessage, nil, fields...)
}

func TestQueryMessageFindsWhatWasSentBeforeIt(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	e.topic("U", 1)
	c := e.dial()
	for i := range 40 {
		c.sent(message{topic: "T", body: fmt.Sprint("body ", i), props: fmt.Sprintf("KEYS\x01order-%d all\x02UNIQ_KEY\x017F%02d\x02", i, i)})
	}
	c.sent(message{topic: "U", body: "other topic", props: "KEYS\x01all\x02"})
	bodies := func(r *reply) []string {
		t.Helper()
		if r.Code != 0 {
			t.Fatalf("%v", r)
		}
		if r.Get("indexLastUpdateTimestamp") == "" || r.Get("indexLastUpdatePhyoffset") == "" {
			t.Errorf("no state of the index in %v", r)
		}
		var bs []string
		for _, v := range records(t, r.body) {
			bs = append(bs, string(v.Body()))
		}
		return bs
	}
	for _, tc := range []struct {
		name string
		give *reply
		want []string
	}{
		{"a key", c.byKey("T", "order-7", false), []string{"body 7"}},
		{"newest first, at most maxNum", c.byKey("T", "all", false, "maxNum", "3"), []string{"body 39", "body 38", "body 37"}},
		{"a unique id", c.byKey("T", "7F12", true), []string{"body 12"}},
		{"maxNum does not count for a unique id", c.byKey("T", "7F12", true, "maxNum", "0"), []string{"body 12"}},
		{"another topic", c.byKey("U", "all", false), []string{"other topic"}},
	} {
		if got := bodies(tc.give); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	for _, r := range []*reply{
		c.byKey("T", "order", false), c.byKey("T", "order-7", true), c.byKey("Nowhere", "all", false), c.byKey("T", "all", false, "endTimestamp", "5"),
		c.byKey("T", "all", false, "maxNum", "-1"),
	} {
		if r.Code != remoting.RespQueryNotFound || !strings.Contains(r.Remark, "can not find message") {
			t.Errorf("%v, want code 22", r)
		}
	}
	if r := c.byKey("T", "all", false, "maxNum", "many"); r.Code != remoting.RespInvalidParameter || !strings.Contains(r.Remark, "maxNum") {
		t.Errorf("%v", r)
	}
	if r := c.byKey("T", "all", false, "maxNum", "1000"); len(records(t, r.body)) != 40 {
		t.Errorf("%d of 40 messages", len(records(t, r.body)))
	}
}

// More than fits a frame is cut, newest first.
func TestQueryMessageFitsAFrame(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	c := e.dial()
	for range 6 {
		c.sent(message{topic: "T", body: strings.Repeat("x", 3<<20), props: "KEYS\x01k\x02"})
	}
	r := c.byKey("T", "k", false)
	if r.Code != 0 || len(records(t, r.body)) != 3 {
		t.Errorf("code %d, %d messages, want 3", r.Code, len(records(t, r.body)))
	}
}

// A topic that asks for it answers a repeated unique id with the first message's id, queue and offset.
func TestRepeatedUniqueIDIsAnsweredWithTheFirstMessage(t *testing.T) {
	e := start(t)
	c := e.dial()
	c.ok(remoting.ReqUpdateAndCreateTopic, nil, "topic", "Idem", "readQueueNums", "4", "writeQueueNums", "4", "perm", "6", "attributes", "+fusion.idempotent=true")
	e.topic("Plain", 4)
	for _, topic := range []string{"Idem", "Plain"} {
		first := c.sent(message{topic: topic, body: "first", queue: 1, props: "UNIQ_KEY\x017F01\x02"})
		again := c.sent(message{topic: topic, body: "again", queue: 3, props: "UNIQ_KEY\x017F01\x02"})
		other := c.sent(message{topic: topic, body: "other", queue: 3, props: "UNIQ_KEY\x017F02\x02"})
		is := again.Get("msgId") == first.Get("msgId") && again.Get("queueId") == "1" && again.Get("queueOffset") == first.Get("queueOffset") && again.Get("transactionId") == "7F01"
		if is != (topic == "Idem") || other.Get("msgId") == first.Get("msgId") {
			t.Errorf("%s: first %v, again %v, other %v", topic, first, again, other)
		}
	}
	if r := c.call(remoting.ReqUpdateAndCreateTopic, nil, "topic", "Idem", "readQueueNums", "4", "writeQueueNums", "4", "perm", "6", "attributes", "+fusion.idempotent=maybe"); r.Code == 0 || !strings.Contains(r.Remark, "fusion.idempotent") {
		t.Errorf("%v", r)
	}
}
