package system

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/rocketmq-client-go/v2/primitive"

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
