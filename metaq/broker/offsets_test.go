package broker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/record"
)

func TestConsumerOffsets(t *testing.T) {
	e := start(t)
	e.topic("T", 2)
	c := e.dial()
	query := func(group, topic string, queue int, kv ...string) string {
		r := c.call(remoting.ReqQueryConsumerOffset, nil, append([]string{"consumerGroup", group, "topic", topic, "queueId", fmt.Sprint(queue)}, kv...)...)
		return fmt.Sprint(r.Code, " ", r.Get("offset"))
	}
	commit := func(group, topic string, queue int, offset string) *reply {
		return c.call(remoting.ReqUpdateConsumerOffset, nil, "consumerGroup", group, "topic", topic, "queueId", fmt.Sprint(queue), "commitOffset", offset)
	}
	if r := commit("G", "T", 0, "1"); r.Code != 26 {
		t.Errorf("a commit must not make the group: %v", r)
	}
	c.ok(remoting.ReqUpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"G"}`))
	if got := query("G", "T", 0, "setZeroIfNotFound", "false"); got != "22 " {
		t.Errorf("a new group that wants to know: %s", got)
	}
	if got := query("G", "T", 0); got != "0 0" {
		t.Errorf("a new group on an empty queue: %s, want to start at 0", got)
	}
	c.sent(message{topic: "T", body: "x"})
	if got := query("G", "T", 0); got != "0 0" {
		t.Errorf("a new group on a young queue: %s, want to start at 0", got)
	}
	if got := query("G", "Nowhere", 0); got != "22 " {
		t.Errorf("an unknown topic: %s", got)
	}
	for _, offset := range []string{"1", "0", "7"} {
		if r := commit("G", "T", 1, offset); r.Code != 0 {
			t.Errorf("commit %s: %v", offset, r)
		}
		if got := query("G", "T", 1); got != "0 "+offset {
			t.Errorf("after commit of %s: %s", offset, got)
		}
	}
	for _, tc := range []struct {
		name string
		got  *reply
		code int32
		want string
	}{
		{"unknown topic", commit("G", "Nowhere", 0, "1"), 17, "Nowhere"},
		{"no offset", commit("G", "T", 0, ""), 29, "Offset is null"},
		{"no number", commit("G", "T", 0, "x"), 29, `"x"`},
		{"no progress yet", commit("G", "T", 1, "-1"), 0, ""},
		{"queue out of range", commit("G", "T", 2, "1"), 29, "queueId[2]"},
		{"negative queue", commit("G", "T", -1, "1"), 29, "queueId[-1]"},
		{"bad group", commit("a b", "T", 0, "1"), 29, `"a b"`},
		{"no group", commit("", "T", 0, "1"), 29, "consumerGroup is missing"},
	} {
		if tc.got.Code != tc.code || !strings.Contains(tc.got.Remark, tc.want) {
			t.Errorf("%s: %v, want code %d with %q", tc.name, tc.got, tc.code, tc.want)
		}
	}
	if got := query("G", "T", 1); got != "0 7" {
		t.Errorf("after a commit of -1: %s, want what was stored", got)
	}
}

// An old queue that still has its first message does not make a new group read all of it.
func TestNewGroupOnALongQueue(t *testing.T) {
	e := start(t, func(c *Config, _ *store.Options) { c.ReplayBytes = 10_000 })
	e.topic("T", 1)
	c := e.dial()
	ask := func() int32 {
		return c.call(remoting.ReqQueryConsumerOffset, nil, "consumerGroup", "G", "topic", "T", "queueId", "0").Code
	}
	c.sent(message{topic: "T", body: "first"})
	if code := ask(); code != 0 {
		t.Errorf("a young queue: code %d", code)
	}
	c.sent(message{topic: "T", body: strings.Repeat("x", 10_000)})
	if code := ask(); code != 22 {
		t.Errorf("10,000 bytes later: code %d, want 22 so that the client's own rule decides", code)
	}
}

// Questions about queues are plain numbers also where there is nothing.
func TestQueueOffsets(t *testing.T) {
	e := start(t)
	e.topic("T", 2)
	c := e.dial()
	var times []int64
	for i := range 3 {
		_, at, _ := record.ParseOffsetID(c.sent(message{topic: "T", body: fmt.Sprint(i)}).Get("msgId"))
		times = append(times, records(t, c.ok(remoting.ReqViewMessageByID, nil, "offset", fmt.Sprint(at)).body)[0].StoreTime())
	}
	for _, tc := range []struct {
		code        int32
		topic       string
		queue       string
		kv          []string
		field, want string
	}{
		{remoting.ReqGetMaxOffset, "T", "0", nil, "offset", "3"}, {remoting.ReqGetMinOffset, "T", "0", nil, "offset", "0"},
		{remoting.ReqGetEarliestMsgStoretime, "T", "0", nil, "timestamp", fmt.Sprint(times[0])},
		{remoting.ReqSearchOffsetByTimestamp, "T", "0", []string{"timestamp", "0"}, "offset", "0"},
		{remoting.ReqSearchOffsetByTimestamp, "T", "0", []string{"timestamp", fmt.Sprint(times[2] + 1)}, "offset", "3"},
		{remoting.ReqSearchOffsetByTimestamp, "T", "0", []string{"timestamp", fmt.Sprint(times[2] + 1), "boundaryType", "upper"}, "offset", "2"},
	} {
		if r := c.ok(tc.code, nil, append([]string{"topic", tc.topic, "queueId", tc.queue}, tc.kv...)...); r.Get(tc.field) != tc.want {
			t.Errorf("%s %v: %v, want %s", remoting.RequestName(tc.code), tc.kv, r, tc.want)
		}
	}
	for _, place := range [][2]string{{"T", "1"}, {"T", "7"}, {"T", "-1"}, {"T", "2147483647"}, {"Nowhere", "0"}} {
		for code, want := range map[int32]string{remoting.ReqGetMaxOffset: "0", remoting.ReqGetMinOffset: "0", remoting.ReqSearchOffsetByTimestamp: "0", remoting.ReqGetEarliestMsgStoretime: "-1"} {
			field := "offset"
			if code == remoting.ReqGetEarliestMsgStoretime {
				field = "timestamp"
			}
			if r := c.ok(code, nil, "topic", place[0], "queueId", place[1], "timestamp", "5"); r.Get(field) != want {
				t.Errorf("%s of %v: %v, want %s", remoting.RequestName(code), place, r, want)
			}
		}
	}
	if e.store.Topics().Get("Nowhere") != nil {
		t.Error("asking made a topic")
	}
}

func TestViewMessageReadsOnlyMessages(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	c := e.dial()
	inner := c.sent(message{topic: "T", body: "first"})
	_, first, _ := record.ParseOffsetID(inner.Get("msgId"))
	rec := c.ok(remoting.ReqViewMessageByID, nil, "offset", fmt.Sprint(first)).body
	// A body that is itself a record must not be taken for one.
	_, at, _ := record.ParseOffsetID(c.sent(message{topic: "T", body: string(rec)}).Get("msgId"))
	outer := records(t, c.ok(remoting.ReqViewMessageByID, nil, "offset", fmt.Sprint(at)).body)[0]
	inside := at + int64(strings.Index(string(outer.Bytes()), string(rec)))
	for _, offset := range []int64{inside, at + 1, at - 1, -1, 1 << 62, -1 << 63, e.store.Bounds().Max} {
		if r := c.call(remoting.ReqViewMessageByID, nil, "offset", fmt.Sprint(offset)); r.Code != 1 || !strings.Contains(r.Remark, fmt.Sprint(offset)) {
			t.Errorf("offset %d: %v", offset, r)
		}
	}
}
