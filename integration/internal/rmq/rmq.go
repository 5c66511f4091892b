// Package rmq starts the unmodified Apache RocketMQ Go client with what tests and the demo need set: instance names that never collide, so
// that several clients of one process are several members, and no log output.
package rmq

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var quiet = sync.OnceFunc(func() { rlog.SetLogLevel("fatal") })

var names atomic.Int64

// Unique appends what makes a topic, group or instance name new in this run and on this machine.
func Unique(prefix string) string {
	return fmt.Sprintf("%s-%x-%d", prefix, start, names.Add(1))
}

var start = time.Now().UnixMilli() & 0xffffffff

// Producer starts a producer of its own group. The caller shuts it down.
func Producer(nameServer string, options ...producer.Option) (rocketmq.Producer, error) {
	quiet()
	p, err := rocketmq.NewProducer(append([]producer.Option{
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{nameServer})),
		producer.WithGroupName(Unique("P")),
		producer.WithInstanceName(Unique("p")),
		producer.WithSendMsgTimeout(10 * time.Second),
	}, options...)...)
	if err != nil {
		return nil, err
	}
	return p, p.Start()
}

// NewConsumer makes a push consumer (which pulls) that reads from the first message on. The caller subscribes, starts it and shuts it down.
func NewConsumer(nameServer, group string, options ...consumer.Option) (rocketmq.PushConsumer, error) {
	quiet()
	return rocketmq.NewPushConsumer(append([]consumer.Option{
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{nameServer})),
		consumer.WithGroupName(group),
		consumer.WithInstance(Unique("c")),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumeMessageBatchMaxSize(1),
	}, options...)...)
}

// TransactionProducer starts a producer of transactions of its own group, whose outcomes l says. The caller shuts it down.
func TransactionProducer(nameServer string, l primitive.TransactionListener) (rocketmq.TransactionProducer, error) {
	quiet()
	p, err := rocketmq.NewTransactionProducer(l,
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{nameServer})),
		producer.WithGroupName(Unique("TP")),
		producer.WithInstanceName(Unique("tp")),
		producer.WithSendMsgTimeout(10*time.Second),
	)
	if err != nil {
		return nil, err
	}
	return p, p.Start()
}

// Consumer starts a clustering push consumer that reads topic from the first message on and calls handle with every message;
// an error of handle leaves the message to be consumed again. The caller shuts it down.
func Consumer(nameServer, group, topic, tags string, handle func(*primitive.MessageExt) error, options ...consumer.Option) (rocketmq.PushConsumer, error) {
	c, err := NewConsumer(nameServer, group, options...)
	if err != nil {
		return nil, err
	}
	err = c.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: tags}, func(_ context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range ms {
			if err := handle(m); err != nil {
				return consumer.ConsumeRetryLater, nil //nolint:nilerr // the result is how this client is told
			}
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return nil, err
	}
	return c, c.Start()
}

// Log counts deliveries by a key; its methods may be called from any goroutine.
type Log struct {
	mu   sync.Mutex
	cond chan struct{} // closed and replaced at every Add
	m    map[string][]*primitive.MessageExt
	n    int
}

// Add notes a delivery.
func (l *Log) Add(key string, m *primitive.MessageExt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m == nil {
		l.m = map[string][]*primitive.MessageExt{}
	}
	l.m[key] = append(l.m[key], m)
	l.n++
	if l.cond != nil {
		close(l.cond)
		l.cond = nil
	}
}

// ByBody is a handler for Consumer that keys deliveries by body.
func (l *Log) ByBody(m *primitive.MessageExt) error {
	l.Add(string(m.Body), m)
	return nil
}

// Get returns the deliveries of a key.
func (l *Log) Get(key string) []*primitive.MessageExt {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*primitive.MessageExt(nil), l.m[key]...)
}

// Counts are distinct keys and all deliveries.
func (l *Log) Counts() (distinct, total int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.m), l.n
}

// Wait returns when at least n distinct keys have come, or an error after limit.
func (l *Log) Wait(n int, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		l.mu.Lock()
		have := len(l.m)
		if l.cond == nil {
			l.cond = make(chan struct{})
		}
		next := l.cond
		l.mu.Unlock()
		if have >= n {
			return nil
		}
		select {
		case <-next:
		case <-timer.C:
			return fmt.Errorf("%d of %d messages after %s", have, n, limit)
		}
	}
}
