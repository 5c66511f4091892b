package broker

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store"
)

func TestPullCodes(t *testing.T) {
	e := start(t)
	e.topic("T", 2)
	e.topic("Empty", 1)
	c := e.dial()
	c.ok(remoting.ReqUpdateAndCreateTopic, nil, "topic", "WriteOnly", "readQueueNums", "1", "writeQueueNums", "1", "perm", "2")
	c.ok(remoting.ReqUpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"Off","consumeEnable":false}`))
	for i := range 5 {
		c.sent(message{topic: "T", body: fmt.Sprint(i), props: props("TAGS", "A")})
	}
	for _, tc := range []struct {
		name     string
		give     pullReq
		code     int32
		remark   string
		next     int64 // -1: no offsets in the answer
		min, max int64
		got      int
	}{
		{"from the start", pullReq{}, 0, "FOUND", 5, 0, 5, 5},
		{"two from the middle", pullReq{offset: 1, max: 2}, 0, "FOUND", 3, 0, 5, 2},
		{"none wanted means one", pullReq{max: -1}, 0, "FOUND", 1, 0, 5, 1},
		{"more than one answer holds", pullReq{max: 1 << 30}, 0, "FOUND", 5, 0, 5, 5},
		{"at the end", pullReq{offset: 5}, 19, "OFFSET_OVERFLOW_ONE", 5, 0, 5, 0},
		{"beyond the end", pullReq{offset: 6}, 21, "OFFSET_OVERFLOW_BADLY", 5, 0, 5, 0},
		{"far beyond", pullReq{offset: 1 << 62}, 21, "OFFSET_OVERFLOW_BADLY", 5, 0, 5, 0},
		{"before the start", pullReq{offset: -1}, 21, "OFFSET_TOO_SMALL", 0, 0, 5, 0},
		{"the smallest offset", pullReq{offset: -1 << 63}, 21, "OFFSET_TOO_SMALL", 0, 0, 5, 0},
		{"no tag matches", pullReq{sub: "X || Y"}, 20, "NO_MATCHED_MESSAGE", 5, 0, 5, 0},
		{"a queue without messages", pullReq{queue: 1}, 19, "NO_MATCHED_LOGIC_QUEUE", 0, 0, 0, 0},
		{"beyond in a queue without messages", pullReq{topic: "Empty", offset: 3}, 21, "NO_MATCHED_LOGIC_QUEUE", 0, 0, 0, 0},
		{"an unknown topic", pullReq{topic: "Nowhere"}, 17, "Nowhere", -1, 0, 0, 0},
		{"a topic without read permission", pullReq{topic: "WriteOnly"}, 16, "WriteOnly", -1, 0, 0, 0},
		{"a group that may not consume", pullReq{group: "Off"}, 16, "Off", -1, 0, 0, 0},
		{"queue id at the number of queues", pullReq{queue: 2}, 29, "queueId[2]", -1, 0, 0, 0},
		{"a negative queue id", pullReq{queue: -1}, 29, "queueId[-1]", -1, 0, 0, 0},
		{"a bad group name", pullReq{group: "a b"}, 29, `"a b"`, -1, 0, 0, 0},
		{"an expression without a tag", pullReq{sub: "||"}, 23, `"||"`, -1, 0, 0, 0},
		{"an expression of no kind", pullReq{sub: "a", kind: "REGEX"}, 1, "filter message by REGEX", -1, 0, 0, 0},
	} {
		for _, code := range []int32{remoting.ReqPullMessage, remoting.ReqLitePullMessage} {
			if tc.give.group == "" {
				tc.give.group = "G"
			}
			if tc.give.topic == "" {
				tc.give.topic = "T"
			}
			if tc.give.sub == "" {
				tc.give.sub = "*"
			}
			r := c.call(code, nil, tc.give.fields()...)
			if r.Code != tc.code || !strings.Contains(r.Remark, tc.remark) {
				t.Errorf("%s: code %d %q, want %d %q", tc.name, r.Code, r.Remark, tc.code, tc.remark)
				continue
			}
			if tc.next < 0 {
				if kind := r.Get("forbiddenType"); (kind != "") != (tc.code == 16) {
					t.Errorf("%s: forbiddenType %q", tc.name, kind)
				}
				continue
			}
			if n, lo, hi := num(t, r, "nextBeginOffset"), num(t, r, "minOffset"), num(t, r, "maxOffset"); n != tc.next || lo != tc.min || hi != tc.max || r.Get("suggestWhichBrokerId") != "0" {
				t.Errorf("%s: next %d min %d max %d, want %d %d %d", tc.name, n, lo, hi, tc.next, tc.min, tc.max)
			}
			ms := records(t, r.body)
			if len(ms) != tc.got {
				t.Errorf("%s: %d messages, want %d", tc.name, len(ms), tc.got)
			}
			for i, m := range ms {
				if m.QueueOffset() != tc.give.offset+int64(i) || string(m.Body()) != fmt.Sprint(m.QueueOffset()) {
					t.Errorf("%s: message %d is %q at %d", tc.name, i, m.Body(), m.QueueOffset())
				}
			}
		}
	}
}

func TestPullBySubscriptionOfTheHeartbeat(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	e.topic("U", 1)
	c := e.dial()
	for _, tag := range []string{"A", "B", "é", ""} {
		m := message{topic: "T", body: tag + "!", props: props("TAGS", tag)}
		c.sent(m)
	}
	pull := func(p pullReq) *reply {
		p.group = "G"
		if p.topic == "" {
			p.topic = "T"
		}
		return c.pull(p)
	}
	if r := pull(pullReq{}); r.Code != 24 {
		t.Errorf("without a heartbeat: %v", r)
	}
	s := sub("T", "A || é", 10)
	s.CodeSet = []remoting.Long{65, 6214} // what a Go client makes of é: a broker must not trust it
	c.beat("c1", "G", false, s, remoting.SubscriptionData{Topic: "U", SubString: "x > 1", ExpressionType: "REGEX", SubVersion: 1}, sub("%RETRY%G", "*", 1))
	for _, tc := range []struct {
		name string
		give pullReq
		code int32
	}{
		{"an older version", pullReq{version: 9}, 0}, {"the same version", pullReq{version: 10}, 0}, {"a newer version", pullReq{version: 11}, 25},
		{"a topic that exists without a subscription", pullReq{topic: "TBW102", version: 1}, 24},
		{"a subscription of no kind", pullReq{topic: "U"}, 1},
		{"the retry topic", pullReq{topic: "%RETRY%G"}, 19},
	} {
		if r := pull(tc.give); r.Code != tc.code {
			t.Errorf("%s: %v, want code %d", tc.name, r, tc.code)
		}
	}
	var got []string
	for _, m := range records(t, pull(pullReq{}).body) {
		got = append(got, string(m.Body()))
	}
	if want := []string{"A!", "é!"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	c.ok(remoting.ReqUpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"BC","consumeBroadcastEnable":false}`))
	c.beat("c1", "BC", true, sub("T", "*", 1))
	if r := c.pull(pullReq{group: "BC", topic: "T"}); r.Code != 16 || r.Get("forbiddenType") != "4" {
		t.Errorf("broadcast where it is forbidden: %v", r)
	}
}

func TestPullStoresProgress(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	c := e.dial()
	c.sent(message{topic: "T", body: "x"})
	stored := func() int64 {
		n, ok := e.store.Offsets().Get("G", "T", 0)
		if !ok {
			return -1
		}
		return n
	}
	c.pull(pullReq{group: "G", topic: "T", sub: "*", commit: 1})
	if n := stored(); n != -1 {
		t.Errorf("stored %d without being asked to", n)
	}
	c.pull(pullReq{group: "G", topic: "T", sub: "*", commit: 1, flags: remoting.PullCommitOffset})
	if n := stored(); n != 1 {
		t.Errorf("stored %d, want 1", n)
	}
}

// Answers stay within the limits of a batch, but one message always goes, and a filter that rejects much advances.
func TestPullLimits(t *testing.T) {
	e := start(t, func(c *Config, _ *store.Options) { c.MaxPullMessages, c.MaxPullBytes, c.MaxScanEntries = 8, 10_000, 50 })
	e.topic("T", 3)
	c := e.dial()
	for i := range 20 {
		c.sent(message{topic: "T", queue: 0, body: fmt.Sprint(i)})
	}
	for range 3 {
		c.sent(message{topic: "T", queue: 1, body: strings.Repeat("b", 20_000)})
		c.sent(message{topic: "T", queue: 1, body: "small"})
	}
	for i := range 120 {
		tag := "N"
		if i == 110 {
			tag = "Y"
		}
		c.sent(message{topic: "T", queue: 2, body: fmt.Sprint(i), props: props("TAGS", tag)})
	}
	if n := len(records(t, c.pull(pullReq{group: "G", topic: "T", sub: "*"}).body)); n != 8 {
		t.Errorf("%d messages, want 8", n)
	}
	if r := c.pull(pullReq{group: "G", topic: "T", queue: 1, sub: "*"}); len(records(t, r.body)) != 1 || num(t, r, "nextBeginOffset") != 1 {
		t.Errorf("a large message: %d messages, %v", len(records(t, r.body)), r)
	}
	if r := c.pull(pullReq{group: "G", topic: "T", queue: 1, offset: 1, sub: "*"}); len(records(t, r.body)) != 1 || num(t, r, "nextBeginOffset") != 2 {
		t.Errorf("a small message before a large one: %d messages, %v", len(records(t, r.body)), r)
	}
	var nexts []int64
	offset := int64(0)
	for range 4 {
		r := c.pull(pullReq{group: "G", topic: "T", queue: 2, offset: offset, sub: "Y"})
		offset = num(t, r, "nextBeginOffset")
		nexts = append(nexts, offset)
		if r.Code == 0 && string(records(t, r.body)[0].Body()) != "110" {
			t.Errorf("got %q", records(t, r.body)[0].Body())
		}
	}
	if want := []int64{50, 100, 120, 120}; !slices.Equal(nexts, want) {
		t.Errorf("a selective filter advanced to %v, want %v", nexts, want)
	}
}

func TestTrafficIsCountedByTopicAndGroup(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	e.topic("U", 1)
	c := e.dial()
	size := int64(0)
	for _, topic := range []string{"T", "U", "T"} {
		c.sent(message{topic: topic, body: "x"})
	}
	for _, m := range records(t, c.pull(pullReq{group: "G", topic: "T", sub: "*"}).body) {
		size += int64(m.Size())
	}
	c.pull(pullReq{group: "H", topic: "T", offset: 1, sub: "*"})
	got := map[string]int64{}
	e.b.Traffic(func(topic string, n, bytes int64) { got[topic] = n; got[topic+" bytes"] = bytes })
	e.b.Consumption(func(group, topic string, n, bytes int64) { got[group+" "+topic] = n })
	want := map[string]int64{"T": 2, "T bytes": size, "U": 1, "U bytes": size / 2, "G T": 2, "H T": 1}
	if !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

func TestHeldPullIsAnsweredByAMatchingMessage(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	p, c := e.dial(), e.dial()
	o := c.put(remoting.ReqPullMessage, 0, nil, pullReq{group: "G", topic: "T", sub: "A", suspend: 20 * time.Second}.fields()...)
	c.flush()
	e.held(1)
	for i := range 100 {
		p.sent(message{topic: "T", body: fmt.Sprint(i), props: props("TAGS", "B")})
	}
	if r := c.read(100 * time.Millisecond); r != nil {
		t.Fatalf("answered by messages of another tag: %v", r)
	}
	p.sent(message{topic: "T", body: "yes", props: props("TAGS", "A")})
	r := c.await(o)
	if ms := records(t, r.body); r.Code != 0 || len(ms) != 1 || string(ms[0].Body()) != "yes" || num(t, r, "nextBeginOffset") != 101 || num(t, r, "maxOffset") != 101 {
		t.Errorf("%v", r)
	}
	e.held(0)
}

// One client that asks for every queue over and over must not keep the others from waiting.
func TestLaw7OneConnectionHoldsAShareOfThePulls(t *testing.T) {
	e := start(t, func(c *Config, _ *store.Options) { c.MaxHeld = 10 })
	e.topic("T", 1)
	greedy, other := e.dial(), e.dial()
	wait := pullReq{group: "G", topic: "T", sub: "*", suspend: 20 * time.Second}.fields()
	for range 8 {
		greedy.put(remoting.ReqPullMessage, 0, nil, wait...)
	}
	greedy.flush()
	for range 3 {
		if r := greedy.read(10 * time.Second); r == nil || r.Code != remoting.RespSystemBusy || !strings.Contains(r.Remark, "5 pulls of this connection are held, as many as are free: 5 of 10; pull again later") {
			t.Fatalf("over its share: %v", r)
		}
	}
	e.held(5)
	o := other.put(remoting.ReqPullMessage, 0, nil, wait...)
	other.flush()
	e.held(6)
	e.dial().sent(message{topic: "T", body: "x"})
	if r := other.await(o); r.Code != 0 {
		t.Errorf("the other one: %v", r)
	}
	for range 5 {
		if r := greedy.read(10 * time.Second); r == nil || r.Code != 0 {
			t.Errorf("what is held: %v", r)
		}
	}
	e.held(0)
	greedy.put(remoting.ReqPullMessage, 0, nil, pullReq{group: "G", topic: "T", sub: "*", offset: 1, suspend: 20 * time.Second}.fields()...)
	greedy.flush()
	e.held(1)
}

// held waits until n pulls are held.
func (e *env) held(n int) {
	e.Helper()
	for end := time.Now().Add(30 * time.Second); e.b.holds.len() != n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			e.Fatalf("%d pulls are held, want %d", e.b.holds.len(), n)
		}
	}
}

// looked returns when every held pull has looked at what is in the topic's queue 0, which ends at end: one goroutine looks for all, and answers a
// pull whose time is over behind those that a message has woken.
func (e *env) looked(topic string, end int64) {
	e.Helper()
	if r := e.dial().pull(pullReq{group: "barrier", topic: topic, offset: end, sub: "*", suspend: time.Millisecond}); r.Code != remoting.RespPullNotFound {
		e.Fatalf("a pull at the end of the queue: %v", r)
	}
}

// What forbids a pull forbids it also when it was held before.
func TestHeldPullIsCheckedAgainWhenAMessageComes(t *testing.T) {
	e := start(t)
	e.topic("T", 2)
	c, admin := e.dial(), e.dial()
	topic := func(read, perm string) {
		admin.ok(remoting.ReqUpdateAndCreateTopic, nil, "topic", "T", "readQueueNums", read, "writeQueueNums", "2", "perm", perm)
	}
	group := func(enabled bool) {
		admin.ok(remoting.ReqUpdateAndCreateSubscriptionGroup, fmt.Appendf(nil, `{"groupName":"G","consumeEnable":%v}`, enabled))
	}
	offset := int64(0)
	for _, tc := range []struct {
		name     string
		forbid   func()
		allow    func()
		code     int32
		want     string
		readable bool // the message is there, as far as this pull is concerned
	}{
		{"nothing changed", func() {}, func() {}, 0, "FOUND", true},
		{"the topic is not readable any more", func() { topic("2", "2") }, func() { topic("2", "6") }, 16, "pulling message is forbidden", false},
		{"the queue is not read any more", func() { topic("1", "6") }, func() { topic("2", "6") }, 29, "queueId[1] is illegal", false},
		{"the group is switched off", func() { group(false) }, func() { group(true) }, 16, "no permission, G", false},
		{"another setting changed", func() { topic("8", "7") }, func() { topic("2", "6") }, 0, "FOUND", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := c.put(remoting.ReqPullMessage, 0, nil, pullReq{group: "G", topic: "T", queue: 1, offset: offset, sub: "*", suspend: 30 * time.Second}.fields()...)
			c.flush()
			e.held(1)
			tc.forbid()
			admin.sent(message{topic: "T", queue: 1, body: "x"})
			offset++
			r := c.await(o)
			tc.allow()
			if r.Code != tc.code || !strings.Contains(r.Remark, tc.want) || (len(r.body) > 0) != tc.readable {
				t.Errorf("%v with %d bytes, want code %d with %q", r, len(r.body), tc.code, tc.want)
			}
		})
	}
}

// A member may pull before its heartbeat has changed the group's subscription. What the old one rejects meanwhile must not be
// stepped over.
func TestHeldPullFollowsTheSubscription(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	c := e.dial()
	c.beat("c@1", "G", false, sub("T", "A", 1))
	o := c.put(remoting.ReqPullMessage, 0, nil, pullReq{group: "G", topic: "T", suspend: 30 * time.Second}.fields()...)
	c.flush()
	e.held(1)
	p := e.dial()
	p.sent(message{topic: "T", body: "one", props: props("TAGS", "B")})
	e.looked("T", 1)
	e.dial().beat("c@2", "G", false, sub("T", "B", 2))
	p.sent(message{topic: "T", body: "two", props: props("TAGS", "B")})
	if r := c.await(o); r.Code != 0 || len(records(t, r.body)) != 2 {
		t.Errorf("with the next message: %v and %d messages, want both", r, len(records(t, r.body)))
	}
}

func TestHeldPullEndsWithItsTime(t *testing.T) {
	e := start(t, func(c *Config, _ *store.Options) { c.MaxHold = 300 * time.Millisecond })
	e.topic("T", 2)
	p, c := e.dial(), e.dial()
	p.sent(message{topic: "T", body: "0"})
	pull := func(req pullReq) (*reply, time.Duration) {
		req.group, req.topic = "G", "T"
		t0 := time.Now()
		r := c.pull(req)
		return r, time.Since(t0)
	}
	if r, d := pull(pullReq{offset: 1, sub: "*", suspend: 50 * time.Millisecond}); r.Code != 19 || d < 50*time.Millisecond || num(t, r, "maxOffset") != 1 {
		t.Errorf("%v after %v", r, d)
	}
	if r, d := pull(pullReq{queue: 1, sub: "*", suspend: 50 * time.Millisecond}); r.Code != 19 || d < 50*time.Millisecond {
		t.Errorf("a queue without messages: %v after %v", r, d)
	}
	for _, suspend := range []time.Duration{time.Hour, 1<<63 - 1} {
		if r, d := pull(pullReq{offset: 1, sub: "*", suspend: suspend}); r.Code != 19 || d < 300*time.Millisecond {
			t.Errorf("suspend %v: %v after %v, want the cap of 300 ms", suspend, r, d)
		}
	}
	if r, _ := pull(pullReq{offset: 1, sub: "*", suspend: -time.Millisecond}); r.Code != 19 {
		t.Errorf("negative suspend: %v", r)
	}
	e.held(0)
}

func TestHeldPullsGoWithTheirConnection(t *testing.T) {
	e := start(t)
	e.topic("T", 4)
	for range 20 {
		c := e.dial()
		for q := range 4 {
			c.put(remoting.ReqPullMessage, 0, nil, pullReq{group: "G", topic: "T", queue: q, sub: "*", suspend: 30 * time.Second}.fields()...)
		}
		c.flush()
		e.held(4)
		c.conn.Close()
		e.held(0)
	}
	e.dial().sent(message{topic: "T", body: "nobody waits"})
}

// The answers fill the window of a client that does not read, so its next requests pile up, and are not read further once they are
// handled.
func TestPausesAreCounted(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	c := e.dial()
	large := strings.Repeat("x", 1<<20)
	for range 32 {
		c.sent(message{topic: "T", body: large})
	}
	for i := range 32 {
		c.put(remoting.ReqPullMessage, 0, nil, pullReq{group: "G", topic: "T", sub: "*", offset: int64(i)}.fields()...)
	}
	for range 256 {
		c.put(remoting.ReqHeartBeat, remoting.FlagOneway, []byte(large[:128<<10]))
	}
	c.flush() // 32 MiB, so that much of it has been read ahead
	last := c.put(remoting.ReqPullMessage, 0, nil, pullReq{group: "G", topic: "T", sub: "*", offset: 32}.fields()...)
	c.flush()
	for i := range 32 {
		if r := c.read(30 * time.Second); r == nil || r.Code != 0 || len(r.body) < 1<<20 {
			t.Fatalf("answer %d: %v", i, r)
		}
	}
	if r := c.await(last); r.Code != 19 {
		t.Errorf("behind the pause: %v", r)
	}
	if n := e.b.Stats().Paused; n == 0 {
		t.Error("no pause is counted")
	}
}

// Every message that comes while pulls are held and answered on many connections is seen once by each.
func TestHeldPullsUnderLoad(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	const readers, messages = 8, 300
	done := make(chan error, readers)
	for i := range readers {
		c := e.dial()
		go func() {
			next := int64(0)
			for next < messages {
				o := c.put(remoting.ReqPullMessage, 0, nil, pullReq{group: fmt.Sprint("G", i), topic: "T", offset: next, sub: "*", suspend: 10 * time.Second}.fields()...)
				c.flush()
				r := c.await(o)
				for _, m := range records(t, r.body) {
					if m.QueueOffset() != next || string(m.Body()) != fmt.Sprint(next) {
						done <- fmt.Errorf("reader %d: %q at %d, want %d", i, m.Body(), m.QueueOffset(), next)
						return
					}
					next++
				}
			}
			done <- nil
		}()
	}
	p := e.dial()
	for i := range messages {
		p.sent(message{topic: "T", body: fmt.Sprint(i)})
	}
	for range readers {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(60 * time.Second):
			t.Fatal("readers do not end")
		}
	}
}

// Pulls that end by a message, by their time and by their connection, all at once: each live one gets one answer, in the
// order of the queue, and none is left.
func TestHeldPullsEndOnce(t *testing.T) {
	e := start(t)
	e.topic("T", 2)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	const clients, rounds = 12, 60
	stop := make(chan struct{})
	var senders, readers sync.WaitGroup
	p := e.dial()
	senders.Add(1)
	go func() {
		defer senders.Done()
		rnd := rand.New(rand.NewPCG(seed, 0))
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				m := message{topic: "T", queue: i % 2, body: fmt.Sprint(i), props: props("TAGS", []string{"A", "B", "C"}[rnd.IntN(3)])}
				if r := p.send(m); r.Code != 0 {
					t.Errorf("%v", r)
					return
				}
			}
		}
	}()
	for i := range clients {
		readers.Add(1)
		go func() {
			defer readers.Done()
			rnd := rand.New(rand.NewPCG(seed, uint64(i)+1))
			c := e.dial()
			next := [2]int64{}
			for range rounds {
				if rnd.IntN(10) == 0 {
					c.put(remoting.ReqPullMessage, 0, nil, pullReq{group: "G", topic: "T", offset: next[0] + 1000, sub: "A", suspend: time.Second}.fields()...)
					c.put(remoting.ReqPullMessage, 0, nil, pullReq{group: "G", topic: "T", offset: next[0], sub: "Z", suspend: time.Second}.fields()...)
					c.flush()
					c.conn.Close()
					c = e.dial()
					continue
				}
				asked := map[int32]int{}
				for q := range 2 {
					tag := []string{"*", "A", "B || C", "Z"}[rnd.IntN(4)]
					o := c.put(remoting.ReqPullMessage, 0, nil, pullReq{group: "G", topic: "T", queue: q, offset: next[q], sub: tag, suspend: time.Duration(1+rnd.IntN(20)) * time.Millisecond}.fields()...)
					asked[o] = q
				}
				c.flush()
				for len(asked) > 0 {
					r := c.read(30 * time.Second)
					if r == nil {
						t.Errorf("client %d: %d pulls have no answer", i, len(asked))
						return
					}
					q, ok := asked[r.Opaque]
					if !ok {
						t.Errorf("client %d: an answer more: %v", i, r)
						return
					}
					delete(asked, r.Opaque)
					at, err := r.Int64("nextBeginOffset")
					if err != nil || at < next[q] || !slices.Contains([]int32{0, 19, 20}, r.Code) {
						t.Errorf("client %d: from %d: %v, %v", i, next[q], r, err)
						return
					}
					next[q] = at
				}
			}
			c.conn.Close()
		}()
	}
	readers.Wait()
	close(stop)
	senders.Wait()
	e.held(0)
}
