package notify

import (
	"context"
	"log/slog"
	"time"

	"github.com/fusionmq/fusionmq/notify/delivery"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/state"
)

// Options configure New. The zero value of a field means its default.
type Options struct {
	// Delivery are timeouts, limits and the source of chance; see [delivery.Config].
	Delivery delivery.Config

	// NoAutoCreate makes a send or a subscription to an unknown topic an error instead of making the topic.
	NoAutoCreate bool
	// SystemTopics are names that belong to the system besides those that wire.CheckTopic knows: what the cluster and the broker are
	// called. They are refused to clients.
	SystemTopics []string
	// TopicQueues is the number of queues of a topic that is made. Default 4, at most meta.MaxQueues.
	TopicQueues int32

	// MaxTopics is how many topics there may be when a send or a subscription makes one, MaxGroups how many groups of both front ends
	// when a subscription makes one. Default 100,000 each.
	MaxTopics, MaxGroups int

	// FlushInterval is how long outcomes wait for others before they are written. Default 4 ms.
	FlushInterval time.Duration
	// MaxWaiting is how many messages may wait in all attached groups together; above it a group that has more than its
	// share is detached. Default 1,000,000; a waiting message takes about 32 bytes a group.
	MaxWaiting int
	// MaxSending is how many messages of all connections may be on their way into the store; more are refused as busy.
	// Default 16,384.
	MaxSending int

	Log *slog.Logger     // default slog.Default
	Now func() time.Time // default time.Now
}

func (o Options) withDefaults() Options {
	if o.TopicQueues == 0 {
		o.TopicQueues = 4
	}
	if o.MaxTopics == 0 {
		o.MaxTopics = 100_000
	}
	if o.MaxGroups == 0 {
		o.MaxGroups = 100_000
	}
	if o.FlushInterval == 0 {
		o.FlushInterval = 4 * time.Millisecond
	}
	if o.MaxWaiting == 0 {
		o.MaxWaiting = 1_000_000
	}
	if o.MaxSending == 0 {
		o.MaxSending = 16 << 10
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Store is what the service needs of a store; *store.Store is one. The contracts are those of the methods there.
type Store interface {
	Append(ms []store.Message, rs []store.Result)
	Operate(ops []state.Op) (at int64, err error)
	WaitApplied(ctx context.Context, at int64) error
	Record(e queue.Entry) (b []byte, release func(), err error)
	RecordAt(at int64) (b []byte, release func(), err error)
	ReadTopic(topic string, from int64, dst []store.TopicEntry) int
	TopicVisible(topic string) int64
	Bindings() []store.GroupBinding
	Cursor(topic, group string) (pos state.GroupPosition, ok bool)
	Retries(group string, after state.Retry, dst []state.Retry) int
	RetryCount(group string) int
	Waits(group string, address int64) bool
	PushGroups() []state.PushGroup
	HoldGroup(group string, limit int) error
	ReleaseGroup(group string)
	Topics() *meta.Topics
}
