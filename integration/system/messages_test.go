package system

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/fusionmq/fusionmq/integration/internal/raw"
	"github.com/fusionmq/fusionmq/integration/internal/rmq"
)

// A batch of the Go client is in one queue at offsets that follow each other, each message with its own id, tag, keys and properties.
func TestBatch(t *testing.T) {
	s := server(t)
	topic := rmq.Unique("Batch")
	createTopic(t, s, topic, 4)
	p, err := rmq.Producer(s.Addr["nameserver"])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Shutdown() }()
	var ms []*primitive.Message
	for i := range 100 {
		m := message(topic, fmt.Sprint("T", i%2), fmt.Sprint("m", i))
		m.WithKeys([]string{fmt.Sprint("k", i)})
		m.WithProperty("n", fmt.Sprint(i))
		ms = append(ms, m)
	}
	r, err := p.SendSync(context.Background(), ms...)
	if err != nil {
		t.Fatal(err)
	}
	ids := strings.Split(r.OffsetMsgID, ",")
	if r.Status != primitive.SendOK || len(ids) != 100 {
		t.Fatalf("status %d with %d ids", r.Status, len(ids))
	}
	var all, odd rmq.Log
	consume(t, s, rmq.Unique("all"), topic, "*", &all)
	consume(t, s, rmq.Unique("odd"), topic, "T1", &odd)
	if err := all.Wait(100, within); err != nil {
		t.Fatal(err)
	}
	if err := odd.Wait(50, within); err != nil {
		t.Fatal(err)
	}
	uniq := map[string]bool{}
	for i := range 100 {
		got := all.Get(fmt.Sprint("m", i))
		if len(got) != 1 || len(odd.Get(fmt.Sprint("m", i))) != i%2 {
			t.Fatalf("message %d came %d times, and %d times with tag T1", i, len(got), len(odd.Get(fmt.Sprint("m", i))))
		}
		m := got[0]
		if m.OffsetMsgId != ids[i] || m.QueueOffset != r.QueueOffset+int64(i) || m.Queue.QueueId != r.MessageQueue.QueueId || m.GetTags() != fmt.Sprint("T", i%2) || m.GetKeys() != fmt.Sprint("k", i) || m.GetProperty("n") != fmt.Sprint(i) {
			t.Errorf("message %d: %+v", i, m)
		}
		uniq[m.MsgId] = true
	}
	if len(uniq) != 100 {
		t.Errorf("%d different ids", len(uniq))
	}
}

// Delay levels of the Go client and times by property: each message comes once, not before its time, and what was recalled never.
func TestDelaysTimesAndRecall(t *testing.T) {
	s := server(t)
	topic := rmq.Unique("Delay")
	createTopic(t, s, topic, 1)
	send := newProducer(t, s)
	c := dial(t, s, "broker")
	a, err := c.Do(raw.CodeSendV2, []byte("recalled"), "a", "P", "b", topic, "c", "TBW102", "d", "4", "e", "0", "f", "0", "g", "1", "h", "0",
		"i", "TIMER_DELAY_SEC\x014\x02UNIQ_KEY\x01RECALLED\x02TAGS\x01a\x02")
	if err == nil {
		err = a.Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Do(raw.CodeRecall, nil, "producerGroup", "P", "topic", topic, "recallHandle", raw.Str(a.Header, "recallHandle"))
	if err == nil {
		err = r.Err()
	}
	if err != nil || raw.Str(r.Header, "msgId") != "RECALLED" {
		t.Fatalf("recall: %s, %v", r.Header, err)
	}
	sent := map[string]time.Time{}
	level := message(topic, "a", "level 1")
	level.WithDelayTimeLevel(1)
	timed := message(topic, "a", "time")
	timed.WithProperty("TIMER_DELAY_MS", "1500")
	last := message(topic, "a", "last")
	last.WithProperty("TIMER_DELIVER_MS", strconv.FormatInt(time.Now().Add(5*time.Second).UnixMilli(), 10))
	for _, m := range []*primitive.Message{level, timed, last, message(topic, "a", "at once")} {
		sent[string(m.Body)] = time.Now()
		send(m)
	}
	var l rmq.Log
	consume(t, s, rmq.Unique("g"), topic, "a", &l)
	if err := l.Wait(4, within); err != nil {
		t.Fatal(err)
	}
	for body, least := range map[string]time.Duration{"at once": 0, "level 1": time.Second, "time": 1500 * time.Millisecond, "last": 4900 * time.Millisecond} {
		got := l.Get(body)
		if len(got) != 1 {
			t.Fatalf("%q came %d times", body, len(got))
		}
		if took := time.UnixMilli(got[0].StoreTimestamp).Sub(sent[body]); took < least-time.Millisecond || took > least+10*time.Second {
			t.Errorf("%q was delivered after %s, want %s", body, took, least)
		}
	}
	if n := len(l.Get("recalled")); n != 0 {
		t.Errorf("what was recalled came %d times", n)
	}
}

// decisions is a transaction listener that decides by body: what begins with "later" is undecided until it is asked.
type decisions struct{ checked rmq.Log }

func outcome(body []byte) primitive.LocalTransactionState {
	switch {
	case strings.HasSuffix(string(body), "commit"):
		return primitive.CommitMessageState
	case strings.HasSuffix(string(body), "rollback"):
		return primitive.RollbackMessageState
	}
	return primitive.UnkonwnState
}

func (d *decisions) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	if strings.HasPrefix(string(m.Body), "later") {
		return primitive.UnkonwnState
	}
	return outcome(m.Body)
}

func (d *decisions) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	d.checked.Add(string(m.Body), m)
	return outcome(m.Body)
}

// Transactions of the Go client: what is committed comes once, at once or when the producer is asked; what is rolled back never; and what was
// decided is not asked about.
func TestTransactions(t *testing.T) {
	s := server(t)
	topic := rmq.Unique("Tx")
	createTopic(t, s, topic, 2)
	d := &decisions{}
	p, err := rmq.TransactionProducer(s.Addr["nameserver"], d)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Shutdown() }()
	var l rmq.Log
	consume(t, s, rmq.Unique("g"), topic, "*", &l)
	for i := range 5 {
		for _, how := range []string{"now %d commit", "now %d rollback", "later %d commit", "later %d rollback"} {
			m := message(topic, "a", fmt.Sprintf(how, i))
			if strings.HasPrefix(how, "later") {
				m.WithProperty("CHECK_IMMUNITY_TIME_IN_SECONDS", "1")
			}
			if _, err := p.SendMessageInTransaction(context.Background(), m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Wait(10, within); err != nil {
		t.Fatal(err)
	}
	if err := d.checked.Wait(10, within); err != nil {
		t.Fatal(err)
	}
	last := message(topic, "a", "plain")
	newProducer(t, s)(last)
	if err := l.Wait(11, within); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		for how, want := range map[string]int{"now %d commit": 1, "now %d rollback": 0, "later %d commit": 1, "later %d rollback": 0} {
			body := fmt.Sprintf(how, i)
			if n := len(l.Get(body)); n != want {
				t.Errorf("%q came %d times, want %d", body, n, want)
			}
			if n := len(d.checked.Get(body)); (n > 0) != strings.HasPrefix(how, "later") {
				t.Errorf("%q was asked about %d times", body, n)
			}
		}
	}
}
