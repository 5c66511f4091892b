package system

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"

	"github.com/fusionmq/fusionmq/integration/internal/rmq"
)

// order notes what comes, by queue.
type order struct {
	mu     sync.Mutex
	queues map[string][]int // numbers of messages, as they came
	failed map[int]int      // how often a message was put off
	by     map[string]int   // messages by member
	done   int
}

// handler is a member of the group; it puts every tenth message off twice.
func (o *order) handler(member string) func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	return func(_ context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, m := range ms {
			n, err := strconv.Atoi(string(m.Body))
			if err != nil {
				return consumer.ConsumeSuccess, err
			}
			if n%10 == 0 && o.failed[n] < 2 {
				o.failed[n]++
				return consumer.SuspendCurrentQueueAMoment, nil
			}
			o.queues[m.Queue.String()] = append(o.queues[m.Queue.String()], n)
			o.by[member]++
			o.done++
		}
		return consumer.ConsumeSuccess, nil
	}
}

// Members of an ordered group of the published client share the queues by locks: each queue is consumed in order, also where a message fails
// and is tried again before the next one, and after one member has gone.
func TestOrderedConsumptionAndHandOver(t *testing.T) {
	s := server(t)
	topic, group := rmq.Unique("Order"), rmq.Unique("g")
	createTopic(t, s, topic, 4)
	send := newProducer(t, s, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	sent := 0
	post := func(n int) {
		for range n {
			m := message(topic, "", fmt.Sprint(sent))
			m.WithShardingKey(fmt.Sprint("key-", sent%7))
			send(m)
			sent++
		}
	}
	o := &order{queues: map[string][]int{}, failed: map[int]int{}, by: map[string]int{}}
	join := func(member string) (stop func()) {
		c, err := rmq.NewConsumer(s.Addr["nameserver"], group, consumer.WithConsumerOrder(true), consumer.WithSuspendCurrentQueueTimeMillis(100*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}, o.handler(member)); err != nil {
			t.Fatal(err)
		}
		stop = sync.OnceFunc(func() { _ = c.Shutdown() })
		t.Cleanup(stop)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return stop
	}
	wait := func(what string, fn func() bool) {
		t.Helper()
		for end := time.Now().Add(2 * within); ; time.Sleep(20 * time.Millisecond) {
			o.mu.Lock()
			ok, done := fn(), o.done
			o.mu.Unlock()
			if ok {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %d of %d consumed, by %v", what, done, sent, o.by)
			}
		}
	}
	post(50)
	stopFirst := join("first")
	wait("alone", func() bool { return o.done >= 50 })
	join("second")
	for end := time.Now().Add(2 * within); ; time.Sleep(100 * time.Millisecond) { // until the second one has some queues
		post(8)
		o.mu.Lock()
		shared := o.by["second"] > 0
		o.mu.Unlock()
		if shared {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the second member gets no queue")
		}
	}
	stopFirst()
	post(50)
	wait("taken over", func() bool { return o.done >= sent })
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := map[int]int{}
	for q, ns := range o.queues {
		last := -1
		for _, n := range ns {
			if seen[n]++; seen[n] == 1 && n < last {
				t.Errorf("%s: %d came after %d", q, n, last)
			}
			last = max(last, n)
		}
	}
	for n := range sent {
		if seen[n] == 0 {
			t.Errorf("message %d is missing", n)
		}
		if n%10 == 0 && o.failed[n] != 2 {
			t.Errorf("message %d was put off %d times", n, o.failed[n])
		}
	}
}
