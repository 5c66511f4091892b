package system

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
	"github.com/fusionmq/fusionmq/integration/internal/raw"
	"github.com/fusionmq/fusionmq/integration/internal/rmq"
)

// within bounds every wait for a client here. It is a bound, not an expectation: the Go client rebalances every 20 s.
const within = 60 * time.Second

func newProducer(t *testing.T, s *proc.Server, options ...producer.Option) func(*primitive.Message) *primitive.SendResult {
	t.Helper()
	p, err := rmq.Producer(s.Addr["nameserver"], options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Shutdown() })
	return func(m *primitive.Message) *primitive.SendResult {
		t.Helper()
		r, err := p.SendSync(context.Background(), m)
		if err != nil {
			t.Fatalf("send to %s: %v", m.Topic, err)
		}
		if r.Status != primitive.SendOK {
			t.Fatalf("send to %s: status %d", m.Topic, r.Status)
		}
		return r
	}
}

// consume starts a member of group. Its stop may be called before the test ends.
func consume(t *testing.T, s *proc.Server, group, topic, tags string, l *rmq.Log, options ...consumer.Option) (stop func()) {
	t.Helper()
	c, err := rmq.Consumer(s.Addr["nameserver"], group, topic, tags, l.ByBody, options...)
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() { _ = c.Shutdown() })
	t.Cleanup(stop)
	return stop
}

func message(topic, tag, body string) *primitive.Message {
	m := primitive.NewMessage(topic, []byte(body))
	if tag != "" {
		m.WithTag(tag)
	}
	return m
}

func TestSendSyncAsyncOneWayToATopicMadeOnTheFly(t *testing.T) {
	s := server(t)
	topic := rmq.Unique("Auto")
	p, err := rmq.Producer(s.Addr["nameserver"])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Shutdown() }()
	r, err := p.SendSync(context.Background(), message(topic, "a", "sync"))
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != primitive.SendOK || r.QueueOffset != 0 || r.MsgID == "" || r.OffsetMsgID == "" {
		t.Errorf("result %+v, want SendOK at offset 0 with both ids", r)
	}
	done := make(chan error, 1)
	if err := p.SendAsync(context.Background(), func(_ context.Context, _ *primitive.SendResult, err error) { done <- err }, message(topic, "a", "async")); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(within):
		t.Fatal("no result of the asynchronous send")
	}
	if err := p.SendOneWay(context.Background(), message(topic, "a", "one way")); err != nil {
		t.Fatal(err)
	}
	var l rmq.Log
	consume(t, s, rmq.Unique("g"), topic, "*", &l)
	if err := l.Wait(3, within); err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"sync", "async", "one way"} {
		if n := len(l.Get(body)); n != 1 {
			t.Errorf("%q came %d times", body, n)
		}
	}
}

func TestWhatWasSentArrivesAsItWas(t *testing.T) {
	s := server(t)
	topic := rmq.Unique("Whole")
	send := newProducer(t, s)
	m := message(topic, "paid", "ünïcode and \x00 bytes")
	m.WithKeys([]string{"order-1", "order-2"})
	m.WithProperty("colour", "green = \"blue\"")
	r := send(m)
	var l rmq.Log
	consume(t, s, rmq.Unique("g"), topic, "*", &l)
	if err := l.Wait(1, within); err != nil {
		t.Fatal(err)
	}
	got := l.Get("ünïcode and \x00 bytes")
	if len(got) != 1 {
		t.Fatalf("came %d times", len(got))
	}
	g := got[0]
	if g.MsgId != r.MsgID || g.GetTags() != "paid" || g.GetKeys() != "order-1 order-2" || g.GetProperty("colour") != "green = \"blue\"" {
		t.Errorf("id %q tags %q keys %q colour %q", g.MsgId, g.GetTags(), g.GetKeys(), g.GetProperty("colour"))
	}
	if g.QueueOffset != r.QueueOffset || g.Queue.QueueId != r.MessageQueue.QueueId || g.OffsetMsgId != r.OffsetMsgID {
		t.Errorf("at queue %d offset %d id %s, the answer said %d, %d, %s", g.Queue.QueueId, g.QueueOffset, g.OffsetMsgId,
			r.MessageQueue.QueueId, r.QueueOffset, r.OffsetMsgID)
	}
}

func TestTagsFilterForEachGroup(t *testing.T) {
	s := server(t)
	topic := rmq.Unique("Tags")
	send := newProducer(t, s)
	for i := range 30 {
		send(message(topic, []string{"a", "b", "c"}[i%3], fmt.Sprint(i)))
	}
	var all, two rmq.Log
	consume(t, s, rmq.Unique("all"), topic, "*", &all)
	consume(t, s, rmq.Unique("two"), topic, "a || c", &two)
	if err := all.Wait(30, within); err != nil {
		t.Fatal(err)
	}
	if err := two.Wait(20, within); err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		want := 1
		if i%3 == 1 {
			want = 0
		}
		if n := len(two.Get(fmt.Sprint(i))); n != want {
			t.Errorf("message %d with tag %s came %d times to a || c", i, []string{"a", "b", "c"}[i%3], n)
		}
	}
}

func TestCompressedBodiesPassThroughLaw3(t *testing.T) {
	s := server(t)
	topic := rmq.Unique("Zip")
	send := newProducer(t, s, producer.WithCompressMsgBodyOverHowmuch(1024), producer.WithCompressLevel(5))
	body := bytes.Repeat([]byte("compressible "), 1000)
	send(primitive.NewMessage(topic, body))
	var l rmq.Log
	consume(t, s, rmq.Unique("g"), topic, "*", &l)
	if err := l.Wait(1, within); err != nil {
		t.Fatal(err)
	}
	got := l.Get(string(body))
	if len(got) != 1 {
		t.Fatalf("the body came back changed or %d times", len(got))
	}
	const compressed = 1
	if got[0].SysFlag&compressed == 0 || int(got[0].StoreSize) >= len(body) {
		t.Errorf("sysFlag %d, stored %d bytes of a body of %d: it was not stored compressed", got[0].SysFlag, got[0].StoreSize, len(body))
	}
}

func TestTwoMembersShareTheQueuesAndOneTakesOver(t *testing.T) {
	s := server(t)
	topic, group := rmq.Unique("Share"), rmq.Unique("g")
	createTopic(t, s, topic, 8)
	send := newProducer(t, s)
	var first, second rmq.Log
	stopFirst := consume(t, s, group, topic, "*", &first)
	consume(t, s, group, topic, "*", &second)

	// Rebalancing is done when both get some of what is sent.
	deadline := time.Now().Add(within)
	sent := map[string]bool{}
	for n := 0; ; n++ {
		body := fmt.Sprintf("shared %d", n)
		send(message(topic, "", body))
		sent[body] = true
		a, _ := first.Counts()
		b, _ := second.Counts()
		if a > 0 && b > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %d messages the members have %d and %d", n, a, b)
		}
		time.Sleep(20 * time.Millisecond)
	}
	stopFirst()
	for n := range 40 {
		body := fmt.Sprintf("alone %d", n)
		send(message(topic, "", body))
		sent[body] = true
	}
	for time.Now().Before(deadline.Add(within)) {
		missing := 0
		for body := range sent {
			if len(first.Get(body))+len(second.Get(body)) == 0 {
				missing++
			}
		}
		if missing == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("messages are missing after the other member took over")
}

// waitCommitted waits until the committed offsets of a group on a topic add up to n.
func waitCommitted(t *testing.T, s *proc.Server, group, topic string, queues int, n int64) {
	t.Helper()
	c := dial(t, s, "broker")
	for end := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		sum := int64(0)
		for q := range queues {
			a, err := c.Do(raw.CodeQueryOffset, nil, "consumerGroup", group, "topic", topic, "queueId", strconv.Itoa(q))
			if err != nil {
				t.Fatal(err)
			}
			if a.Code() == 0 {
				sum += raw.Int(a.Header, "offset")
			}
		}
		if sum == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("group %s has committed %d of %d messages of %s in %s", group, sum, n, topic, within)
		}
	}
}

func TestOffsetsAreKeptOverARestart(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	topic, group := rmq.Unique("Kept"), rmq.Unique("g")
	createTopic(t, s, topic, 4)
	send := newProducer(t, s)
	for i := range 40 {
		send(message(topic, "", fmt.Sprintf("before %d", i)))
	}
	var l rmq.Log
	stop := consume(t, s, group, topic, "*", &l)
	if err := l.Wait(40, within); err != nil {
		t.Fatal(err)
	}
	// The client counts a message as consumed some time after the listener has returned, and commits every few seconds.
	waitCommitted(t, s, group, topic, 4, 40)
	stop()
	if code, took, err := s.Stop(10 * time.Second); code != 0 || err != nil {
		t.Fatalf("stop: exit %d after %s, %v\n%s", code, took, err, s.Output())
	}

	s = start(t, dir)
	send = newProducer(t, s)
	for i := range 4 {
		send(message(topic, "", fmt.Sprintf("after %d", i)))
	}
	var again rmq.Log
	consume(t, s, group, topic, "*", &again)
	if err := again.Wait(4, within); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		if n := len(again.Get(fmt.Sprintf("before %d", i))); n != 0 {
			t.Errorf("message %d came again after the restart", i)
		}
	}
	var anew rmq.Log
	consume(t, s, rmq.Unique("new"), topic, "*", &anew)
	if err := anew.Wait(44, within); err != nil {
		t.Fatal(err)
	}
}
