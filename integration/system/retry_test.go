package system

import (
	"context"
	"fmt"
	"testing"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/fusionmq/fusionmq/integration/internal/rmq"
)

// A consumer of the published client that fails gets a message again, with its attempts, and in the end it is a dead letter, which another
// consumer reads.
func TestFailedMessagesComeAgainAndThenAreDeadLetters(t *testing.T) {
	s := server(t)
	topic, group := rmq.Unique("Fail"), rmq.Unique("g")
	createTopic(t, s, topic, 4)
	send := newProducer(t, s)
	const messages, attempts = 8, 2
	ids := map[string]string{}
	for i := range messages {
		m := message(topic, "paid", fmt.Sprint(i))
		m.WithKeys([]string{fmt.Sprint("order-", i)})
		ids[fmt.Sprint(i)] = send(m).OffsetMsgID
	}
	var l rmq.Log
	c, err := rmq.NewConsumer(s.Addr["nameserver"], group, consumer.WithMaxReconsumeTimes(attempts))
	if err != nil {
		t.Fatal(err)
	}
	err = c.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "paid"}, func(ctx context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		if cc, ok := primitive.GetConcurrentlyCtx(ctx); ok {
			cc.DelayLevelWhenNextConsume = 1 // a second
		}
		for _, m := range ms {
			l.Add(fmt.Sprint(string(m.Body), " attempt ", m.ReconsumeTimes), m)
		}
		return consumer.ConsumeRetryLater, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Shutdown() })
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := l.Wait(messages*(attempts+1), within); err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		for attempt := range attempts + 1 {
			got := l.Get(fmt.Sprint(i, " attempt ", attempt))
			if len(got) != 1 {
				t.Errorf("message %d came %d times as attempt %d", i, len(got), attempt)
				continue
			}
			if m := got[0]; m.Topic != topic || attempt > 0 && m.GetProperty("ORIGIN_MESSAGE_ID") != ids[fmt.Sprint(i)] {
				t.Errorf("message %d attempt %d: topic %q, origin %q, want %q %q", i, attempt, m.Topic, m.GetProperty("ORIGIN_MESSAGE_ID"), topic, ids[fmt.Sprint(i)])
			}
		}
	}
	var dead rmq.Log
	consume(t, s, rmq.Unique("reader"), "%DLQ%"+group, "*", &dead)
	if err := dead.Wait(messages, within); err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		got := dead.Get(fmt.Sprint(i))
		if len(got) != 1 || got[0].GetProperty("RETRY_TOPIC") != topic || got[0].ReconsumeTimes != attempts+1 || got[0].GetKeys() != fmt.Sprint("order-", i) {
			t.Errorf("dead letters of message %d: %v", i, got)
		}
	}
}
