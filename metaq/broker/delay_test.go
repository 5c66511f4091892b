package broker

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

// shortLevels has levels of 20 and 40 ms, and a last one that no test waits for.
func shortLevels(_ *Config, o *store.Options) {
	o.DelayLevels = []time.Duration{20 * time.Millisecond, 40 * time.Millisecond, time.Hour}
}

// nextOf waits for the messages of queue 0 of T from an offset on.
func (c *client) nextOf(offset int64) []record.View {
	c.Helper()
	for range 100 {
		if r := c.pull(pullReq{group: "G", topic: "T", offset: offset, sub: "*", suspend: 20 * time.Second}); r.Code == 0 {
			return records(c, r.body)
		}
	}
	c.Fatal("nothing came")
	return nil
}

func (e *env) delays() []state.Due {
	if err := e.store.WaitApplied(context.Background(), e.store.Bounds().Max-1); err != nil {
		e.Fatal(err)
	}
	ds := make([]state.Due, 100)
	return ds[:e.store.Delays(state.Due{}, ds)]
}

// A message with a level is in its queue when the time of the level is over, with the properties that 5.3.3 leaves it; faults DLY-01 and DLY-07.
func TestDelayLevels(t *testing.T) {
	e := start(t, shortLevels)
	e.topic("T", 1)
	c := e.dial()
	for _, now := range []string{"-1", "0", "-2147483648"} {
		if r := c.sent(message{topic: "T", body: now, props: props("DELAY", now)}); r.Get("recallHandle") != "" {
			t.Errorf("%v", r)
		}
	}
	if got := c.nextOf(0); len(got) != 3 {
		t.Fatalf("%d messages without a delay", len(got))
	}
	begun := time.Now().Truncate(time.Millisecond) // as the store counts
	r := c.sent(message{topic: "T", body: "level 2", props: props("DELAY", "02", "TAGS", "A", "UNIQ_KEY", "U2", "TIMER_DELAY_SEC", "no number", "TIMER_DELIVER_MS", "99999999999999999")})
	if num(t, r, "queueId") != 0 || num(t, r, "queueOffset") != 0 || r.Get("transactionId") != "U2" || r.Get("recallHandle") != "" || len(r.Get("msgId")) != 32 {
		t.Errorf("%v", r)
	}
	got := c.nextOf(3)
	if took := time.Since(begun); took < 40*time.Millisecond {
		t.Errorf("came after %s", took)
	}
	want := props("DELAY", "02", "TAGS", "A", "UNIQ_KEY", "U2", "CLUSTER", "DefaultCluster", "MSG_REGION", "DefaultRegion", "TRACE_ON", "true", "REAL_TOPIC", "T", "REAL_QID", "0")
	if len(got) != 1 || string(got[0].Body()) != "level 2" || string(got[0].Properties()) != want || got[0].QueueOffset() != 3 {
		t.Errorf("%q, want %q", got[0].Properties(), want)
	}
	for _, last := range []string{"3", "19", "2147483647", "+4"} { // above the table it is the last level
		c.sent(message{topic: "T", body: last, props: "DELAY\x01" + last})
	}
	ds := e.delays()
	if len(ds) != 4 || ds[0].Kind != state.ViewDelay || ds[0].Topic != "T" || ds[0].Due < begun.Add(time.Hour).UnixMilli() || ds[3].Due > time.Now().Add(time.Hour).UnixMilli() {
		t.Errorf("%+v", ds)
	}
	if r := c.pull(pullReq{group: "G", topic: "T", offset: 4, sub: "*"}); r.Code == 0 {
		t.Error("a message of an hour's delay is in its queue")
	}
}

// A message with a time comes at it, to the millisecond, and of several properties the first counts: seconds, milliseconds, time.
func TestTimedMessages(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	c := e.dial()
	begun := time.Now()
	ms := func(d time.Duration) string { return fmt.Sprint(begun.Add(d).UnixMilli()) }
	for _, p := range []string{
		props("TIMER_DELAY_SEC", "0", "TIMER_DELAY_MS", "100000"), props("TIMER_DELAY_SEC", "-5"), props("TIMER_DELAY_MS", "-9223372036854775808"),
		props("TIMER_DELIVER_MS", "5"), props("TIMER_DELIVER_MS", ms(-time.Second)), props("TIMER_OUT_MS", "5", "TIMER_DELAY_SEC", "100"),
	} {
		if r := c.sent(message{topic: "T", body: "now", props: p}); r.Get("recallHandle") != "" {
			t.Errorf("%q: %v", p, r)
		}
	}
	if got := c.nextOf(0); len(got) != 6 {
		t.Fatalf("%d messages whose time has come", len(got))
	}
	for i, p := range []string{
		props("TIMER_DELAY_MS", "30"), props("TIMER_DELAY_MS", "30", "TIMER_DELIVER_MS", ms(time.Hour)), props("UNIQ_KEY", "U"),
	} {
		at := ms(time.Since(begun) + 2*time.Second)
		if i == 2 {
			p += props("TIMER_DELIVER_MS", at)
		}
		sent := time.Now().Truncate(time.Millisecond) // as the store counts
		c.sent(message{topic: "T", body: "later", props: p})
		m := c.nextOf(int64(6 + i))[0]
		took, least := time.Since(sent), []time.Duration{30, 30, 1999}[i]*time.Millisecond
		if took < least || string(m.Body()) != "later" {
			t.Errorf("%q came after %s", p, took)
		}
		if i < 2 {
			continue
		}
		names := map[string]string{}
		for n, v := range record.Properties(m.Properties()) {
			names[string(n)] = string(v)
		}
		for n, v := range map[string]string{"UNIQ_KEY": "U", "REAL_TOPIC": "T", "REAL_QID": "0", "TIMER_OUT_MS": at, "TIMER_DELIVER_MS": at, "CLUSTER": "DefaultCluster"} {
			if names[n] != v {
				t.Errorf("property %s is %q, want %q", n, names[n], v)
			}
		}
		if names["TIMER_ENQUEUE_MS"] == "" || names["TIMER_DEQUEUE_MS"] == "" {
			t.Errorf("%v", names)
		}
	}
	for _, p := range []string{
		props("TIMER_DELAY_SEC", "3456000"), props("TIMER_DELAY_MS", "3456000000"), props("TIMER_DELIVER_MS", ms(40*24*time.Hour)), props("TIMER_DELAY_SEC", "30", "TIMER_DELAY_MS", "1"),
	} {
		c.sent(message{topic: "T", body: "much later", props: p})
	}
	ds := e.delays()
	least := []time.Duration{30 * time.Second, 40 * 24 * time.Hour, 40 * 24 * time.Hour, 40 * 24 * time.Hour}
	for i := range ds {
		if d := ds[i].Due - begun.Add(least[i]).UnixMilli(); d < 0 || d > 60_000 || ds[i].Kind != state.ViewTimer {
			t.Errorf("%d: due %d ms later than it should be at least", i, d)
		}
	}
	if len(ds) != 4 {
		t.Errorf("%d messages wait", len(ds))
	}
}

// Delays that are no numbers, overflow or are too far away are refused with 13 and the value and nothing is stored; faults DLY-01, DLY-05, DLY-06.
func TestDelayRefusals(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	c := e.dial()
	before := e.store.Bounds().Max
	for _, p := range []string{"DELAY\x01\x02", "DELAY\x01", "DELAY\x01abc\x02", "DELAY\x014x\x02", "DELAY\x01 3\x02", "DELAY\x011.5\x02", "DELAY\x012147483648\x02", "DELAY\x014Pinpoint-Flags"} {
		if r := c.send(message{topic: "T", body: "x", props: p}); r.Code != 13 || !strings.Contains(r.Remark, "DELAY is \"") {
			t.Errorf("%q: %v", p, r)
		}
	}
	far := fmt.Sprint(time.Now().UnixMilli() + store.MaxDelay + 60_000)
	for _, value := range []string{"", "abc", "1.5", " 5", "0x5", "9223372036854775807", "9223372036854776", "9223372036854775808", "TOO FAR"} {
		for _, name := range []string{propDelaySec, propDelayMS, propDeliverMS} {
			v := value
			if v == "TOO FAR" {
				v = map[string]string{propDelaySec: "3456001", propDelayMS: "3456000001", propDeliverMS: far}[name]
			}
			r := c.send(message{topic: "T", body: "x", props: "TAGS\x01A\x02" + name + "\x01" + v + "\x02"})
			if r.Code != 13 || !strings.HasPrefix(r.Remark, "timer message illegal, ") || !strings.Contains(r.Remark, name) || r.Get("TRACE_ON") != "true" {
				t.Errorf("%s %q: %v", name, v, r)
			}
			if value == "TOO FAR" && !strings.Contains(r.Remark, "3456000000ms") {
				t.Errorf("%s: %s", name, r.Remark)
			}
		}
	}
	if now := e.store.Bounds().Max; now != before {
		t.Errorf("the log went from %d to %d", before, now)
	}
}

// What a producer takes back by the handle of its answer is not delivered, and the answers are those of 5.3.3 with the handles that a
// message was really sent under.
func TestRecall(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	e.topic("U", 1)
	c := e.dial()
	handleOf := func(r *reply) string {
		t.Helper()
		h := r.Get("recallHandle")
		if h == "" {
			t.Fatalf("no handle: %v", r)
		}
		return h
	}
	at := time.Now().Add(time.Hour).UnixMilli()
	r := c.sent(message{topic: "T", body: "recalled", props: props("TIMER_DELIVER_MS", fmt.Sprint(at), "UNIQ_KEY", "RRR")})
	h := handleOf(r)
	if text, err := base64.URLEncoding.DecodeString(h); err != nil || string(text) != fmt.Sprintf("v1 T broker-a %d RRR", at) {
		t.Errorf("handle %q, %v", text, err)
	}
	handleOf(c.sent(message{topic: "T", body: "soon", props: props("TIMER_DELAY_MS", "1000", "UNIQ_KEY", "SOON")}))
	generated := handleOf(c.sent(message{topic: "T", body: "generated", props: props("TIMER_DELAY_SEC", "500")}))
	if r := c.sent(message{topic: "%RETRY%G", body: "x", props: props("TIMER_DELAY_SEC", "500")}); r.Get("recallHandle") != "" {
		t.Errorf("a message in a retry topic has a handle: %v", r)
	}
	handle := func(format string, args ...any) string {
		return base64.URLEncoding.EncodeToString(fmt.Appendf(nil, format, args...))
	}
	now := time.Now().UnixMilli()
	for _, tc := range []struct {
		name          string
		topic, handle string
		code          int32
		remark        string
	}{
		{"of another topic", "U", h, 604, "recall failed, topic not match"},
		{"of a topic that is not there", "New", h, 17, "recall failed, the topic[New] not exist"},
		{"that is no base64", "T", "%%", 604, "recall handle is invalid"},
		{"that is too short", "T", "AAAA", 604, "recall handle is invalid"},
		{"of another version", "T", handle("v2 T broker-a %d RRR", at), 604, "recall handle is invalid"},
		{"without an id", "T", handle("v1 T broker-a %d", at), 604, "recall handle is invalid"},
		{"that is missing", "T", "", 604, "recall handle is invalid"},
		{"of another broker", "T", handle("v1 T broker-b %d RRR", at), 604, "recall failed, broker service not available"},
		{"without a time", "T", handle("v1 T broker-a soon RRR"), 604, "recall failed, timestamp invalid"},
		{"of the past", "T", handle("v1 T broker-a %d RRR", now-1000), 604, "recall failed, timestamp invalid"},
		{"of a far future", "T", handle("v1 T broker-a %d RRR", now+2*store.MaxDelay), 604, "recall failed, timestamp invalid"},
		{"of a message that never was", "T", handle("v1 T broker-a %d NOSUCH", at), 604, "recall failed, no delayed message of the topic has this id"},
		{"that is right", "T", h, 0, ""},
		{"that is right, once more", "T", h, 0, ""},
		{"without its padding", "T", strings.TrimRight(generated, "="), 0, ""},
	} {
		kv := []string{"producerGroup", "P", "topic", tc.topic, "recallHandle", tc.handle}
		if tc.handle == "" {
			kv = kv[:4]
		}
		r := c.call(remoting.ReqRecallMessage, nil, kv...)
		if r.Code != tc.code || r.Remark != tc.remark || r.Get("MSG_REGION") != "DefaultRegion" || tc.code == 0 && r.Get("msgId") == "" {
			t.Errorf("a handle %s: %v, want %d %q", tc.name, r, tc.code, tc.remark)
		}
	}
	if got := c.nextOf(0); len(got) != 1 || string(got[0].Body()) != "soon" {
		t.Fatalf("%d messages came", len(got))
	}
	if r := c.call(remoting.ReqRecallMessage, nil, "topic", "T", "recallHandle", handle("v1 T broker-a %d SOON", at)); r.Code != 604 || r.Remark != "recall failed, the message is delivered already" {
		t.Errorf("recall of what is delivered: %v", r)
	}
	if ds := e.delays(); len(ds) != 1 || ds[0].Topic != "%RETRY%G" {
		t.Errorf("%+v", ds)
	}
	if s := e.b.Stats(); s.Recalls != 3 {
		t.Errorf("%d recalls", s.Recalls)
	}
}
