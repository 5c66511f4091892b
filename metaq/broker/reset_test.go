package broker

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
)

// reset sends 222. kv are further fields.
func (c *client) reset(group, topic string, ms int64, kv ...string) *reply {
	c.Helper()
	return c.call(remoting.ReqInvokeBrokerToResetOffset, nil, append([]string{"topic", topic, "group", group, "timestamp", strconv.FormatInt(ms, 10), "isForce", "true"}, kv...)...)
}

func (c *client) stored(group, topic string, queue int) int64 {
	c.Helper()
	r := c.ok(remoting.ReqQueryConsumerOffset, nil, "consumerGroup", group, "topic", topic, "queueId", strconv.Itoa(queue))
	return num(c, r, "offset")
}

func (c *client) commit(group, topic string, queue int, offset int64) *reply {
	c.Helper()
	return c.ok(remoting.ReqUpdateConsumerOffset, nil, "consumerGroup", group, "topic", topic, "queueId", strconv.Itoa(queue), "commitOffset", strconv.FormatInt(offset, 10))
}

// A group is moved whether it is there or not: its next pull is told, and what it commits before that is of no account.
func TestResetOffset(t *testing.T) {
	e := start(t)
	e.topic("T", 2)
	c := e.dial()
	c.ok(remoting.ReqUpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"G"}`))
	for i := range 10 {
		c.sent(message{topic: "T", queue: i % 2, body: fmt.Sprint(i)})
	}
	middle := int64(0)
	for _, v := range records(t, c.pull(pullReq{group: "G", topic: "T", sub: "*", max: 4}).body) {
		middle = v.StoreTime()
	}
	c.commit("G", "T", 0, 5)
	for _, tc := range []struct {
		name string
		ms   int64
		kv   []string
		want string
		to   int64 // of queue 0
	}{
		{"to the first", 0, nil, `{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:0,{"brokerName":"broker-a","queueId":1,"topic":"T"}:0}}`, 0},
		{"to the end", -1, []string{"queueId", "-1", "offset", "-1"}, `{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5,{"brokerName":"broker-a","queueId":1,"topic":"T"}:5}}`, 5},
		{"one queue by value", 0, []string{"queueId", "0", "offset", "2"}, `{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:2}}`, 2},
		{"to a time", middle, []string{"queueId", "0"}, "", -1},
		{"after everything", time.Now().Add(time.Hour).UnixMilli(), []string{"queueId", "0"}, `{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5}}`, 5},
		{"to the first again", 0, []string{"queueId", "0"}, `{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:0}}`, 0},
	} {
		r := c.reset("G", "T", tc.ms, tc.kv...)
		if r.Code != 0 || tc.want != "" && string(r.body) != tc.want {
			t.Fatalf("%s: %v %s", tc.name, r, r.body)
		}
		to := c.stored("G", "T", 0)
		if tc.to >= 0 && to != tc.to {
			t.Errorf("%s: stored %d", tc.name, to)
		}
		if r := c.commit("G", "T", 0, (to+2)%5); r.Remark != "Offset has been previously reset" || c.stored("G", "T", 0) != to {
			t.Errorf("%s: a commit of before counts: %v", tc.name, r)
		}
		elsewhere := (to + 1) % 5
		r = c.pull(pullReq{group: "G", topic: "T", offset: elsewhere, sub: "*", flags: remoting.PullCommitOffset, commit: elsewhere})
		if r.Code != 21 || r.Remark != "OFFSET_RESET" || num(t, r, "nextBeginOffset") != to || num(t, r, "maxOffset") != 5 {
			t.Errorf("%s: the next pull: %v", tc.name, r)
		}
		if c.stored("G", "T", 0) != to {
			t.Errorf("%s: a pull of before commits", tc.name)
		}
		if r := c.pull(pullReq{group: "G", topic: "T", offset: elsewhere, sub: "*"}); r.Code != 0 {
			t.Errorf("%s: the pull after that: %v", tc.name, r)
		}
		c.commit("G", "T", 0, 3)
		if c.stored("G", "T", 0) != 3 {
			t.Errorf("%s: a commit of after does not count", tc.name)
		}
	}
	// One that begins there has nothing to be told.
	c.reset("G", "T", 0, "queueId", "0")
	if r := c.pull(pullReq{group: "G", topic: "T", offset: 0, sub: "*"}); r.Code != 0 {
		t.Errorf("a pull at the offset of the reset: %v", r)
	}
	if n := e.b.Stats().Resets; n != 9 {
		t.Errorf("%d resets counted", n)
	}
}

func TestResetAnswersHeldPulls(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	c, d := e.dial(), e.dial()
	c.sent(message{topic: "T", body: "x"})
	held := func(c *client, group string) int32 {
		o := c.put(remoting.ReqPullMessage, 0, nil, pullReq{group: group, topic: "T", offset: 1, sub: "*", suspend: 50 * time.Second}.fields()...)
		c.flush()
		return o
	}
	mine, other := held(c, "G"), held(d, "H")
	e.held(2)
	if r := e.dial().reset("G", "T", 0); r.Code != 0 {
		t.Fatal(r)
	}
	if r := c.await(mine); r.Code != 21 || num(t, r, "nextBeginOffset") != 0 {
		t.Errorf("the held pull: %v", r)
	}
	e.held(1)
	c.sent(message{topic: "T", body: "y"})
	if r := d.await(other); r.Code != 0 {
		t.Errorf("another group's: %v", r)
	}
}

func TestResetSaysWhatIsWrong(t *testing.T) {
	e := start(t)
	e.topic("T", 2)
	c := e.dial()
	c.ok(remoting.ReqUpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"G"}`))
	c.sent(message{topic: "T", body: "x"})
	for _, tc := range []struct {
		name string
		give *reply
		code int32
		want string
	}{
		{"no such topic", c.reset("G", "U", 0), 17, "Topic U does not exist"},
		{"no such group", c.reset("H", "T", 0), 26, "Group H does not exist"},
		{"no such queue", c.reset("G", "T", 0, "queueId", "2"), 29, "queueId[2]"},
		{"behind the end", c.reset("G", "T", 0, "queueId", "0", "offset", "2"), 1, "Target offset 2 not in consume queue range [0-1]"},
		{"before the beginning", c.reset("G", "T", 0, "queueId", "0", "offset", "-2"), 1, "Target offset -2 not in consume queue range [0-1]"},
		{"no time", c.call(remoting.ReqInvokeBrokerToResetOffset, nil, "topic", "T", "group", "G"), 29, "timestamp"},
		{"a queue without messages", c.reset("G", "T", 5, "queueId", "1"), 0, ""},
	} {
		if tc.give.Code != tc.code || !strings.Contains(tc.give.Remark, tc.want) {
			t.Errorf("%s: %v, want code %d %q", tc.name, tc.give, tc.code, tc.want)
		}
	}
}
