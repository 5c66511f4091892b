package system

import (
	"context"
	"fmt"
	"testing"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/fusionmq/fusionmq/integration/internal/raw"
	"github.com/fusionmq/fusionmq/integration/internal/rmq"
)

// A consumer of the published client that subscribes by SQL92 gets what its expression selects, with a server as it comes.
func TestSQL92SelectsForAGroup(t *testing.T) {
	s := server(t)
	topic, group := rmq.Unique("Sql"), rmq.Unique("g")
	createTopic(t, s, topic, 4)
	send := newProducer(t, s)
	post := func(from, to int) {
		for i := from; i < to; i++ {
			m := message(topic, "paid", fmt.Sprint(i))
			m.WithProperty("amount", fmt.Sprint(i))
			m.WithProperty("colour", []string{"red", "green", "blue"}[i%3])
			send(m)
		}
	}
	post(0, 60) // before the group is there, and after it
	var l rmq.Log
	c, err := rmq.NewConsumer(s.Addr["nameserver"], group)
	if err != nil {
		t.Fatal(err)
	}
	selector := consumer.MessageSelector{Type: consumer.SQL92, Expression: "amount >= 30 AND colour IN ('red', 'blue') AND TAGS = 'paid'"}
	err = c.Subscribe(topic, selector, func(_ context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range ms {
			l.Add(string(m.Body), m)
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Shutdown() })
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := l.Wait(20, within); err != nil {
		t.Fatal(err)
	}
	post(60, 120)
	if err := l.Wait(60, within); err != nil {
		t.Fatal(err)
	}
	waitCommitted(t, s, group, topic, 4, 120) // what was passed over counts as consumed
	for i := range 120 {
		want := 0
		if i >= 30 && i%3 != 1 {
			want = 1
		}
		if n := len(l.Get(fmt.Sprint(i))); n != want {
			t.Errorf("message %d came %d times, want %d", i, n, want)
		}
	}
	a, err := dial(t, s, "broker").Do(raw.CodeCheckClient, []byte(`{"clientId":"c","group":"`+group+`","subscriptionData":{"topic":"`+topic+`","subString":"amount >>> 1","expressionType":"SQL92"}}`))
	if err != nil || a.Code() != 23 {
		t.Errorf("a bad expression is checked with %v, %v", a, err)
	}
}
