package broker

import (
	"sync"
	"sync/atomic"

	"github.com/fusionmq/fusionmq/store"
)

// traffic counts messages by topic and by group and topic, for operators who ask for such series. Names come from the
// tables of topics and groups, so their limits bound it.
type traffic struct {
	mu     sync.RWMutex
	topics map[string]*flow
	near   atomic.Pointer[[]atomic.Pointer[flow]] // those of topics, by the topic's number; replaced under mu when it grows
	groups map[groupTopic]*flow
	lost   map[groupTopic]*flow // dead letters
}

type groupTopic struct{ group, topic string }

// flow is what went one way.
type flow struct{ messages, bytes atomic.Int64 }

func (f *flow) add(n, bytes int) {
	f.messages.Add(int64(n))
	f.bytes.Add(int64(bytes))
}

// maxFlows bounds the pairs of group and topic that are counted; a pair beyond is not.
const maxFlows = 100_000

func flowOf[K comparable](mu *sync.RWMutex, m *map[K]*flow, key K) *flow {
	mu.RLock()
	f := (*m)[key]
	mu.RUnlock()
	if f != nil {
		return f
	}
	mu.Lock()
	defer mu.Unlock()
	if f = (*m)[key]; f == nil {
		f = new(flow)
		if len(*m) < maxFlows {
			if *m == nil {
				*m = map[K]*flow{}
			}
			(*m)[key] = f
		}
	}
	return f
}

// in is the flow of a topic, which is found by its number: looking its name up once more would cost as much as finding the topic.
func (t *traffic) in(ref store.TopicRef, name string) *flow {
	n := ref.Number()
	if near := t.near.Load(); near != nil && n < len(*near) {
		if f := (*near)[n].Load(); f != nil {
			return f
		}
	}
	f := flowOf(&t.mu, &t.topics, name)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.topics[name] != f { // one too many
		return f
	}
	near := t.near.Load()
	if near == nil || n >= len(*near) {
		grown := make([]atomic.Pointer[flow], n+n/2+16)
		if near != nil {
			for i := range *near {
				grown[i].Store((*near)[i].Load())
			}
		}
		near = &grown
		t.near.Store(near)
	}
	(*near)[n].Store(f)
	return f
}

func (t *traffic) out(group, topic string) *flow {
	return flowOf(&t.mu, &t.groups, groupTopic{group, topic})
}

// dead are the dead letters of a group, by the topic that they were sent to.
func (t *traffic) dead(group, topic string) *flow {
	return flowOf(&t.mu, &t.lost, groupTopic{group, topic})
}

// DeadLetters calls fn for every group and topic with dead letters, in no order: how many messages of the topic became dead letters of the
// group since the start. topic is empty when there is none of the name that the consumer stated. fn must not call the broker.
func (b *Broker) DeadLetters(fn func(group, topic string, messages int64)) {
	b.traffic.mu.RLock()
	defer b.traffic.mu.RUnlock()
	for k, f := range b.traffic.lost {
		fn(k.group, k.topic, f.messages.Load())
	}
}

// Traffic calls fn for every topic that was sent to through this broker, in no order: messages stored and the bytes of
// their records since the start. fn must not call the broker.
func (b *Broker) Traffic(fn func(topic string, messages, bytes int64)) {
	b.traffic.mu.RLock()
	defer b.traffic.mu.RUnlock()
	for topic, f := range b.traffic.topics {
		fn(topic, f.messages.Load(), f.bytes.Load())
	}
}

// Consumption calls fn for every group and topic that was pulled, in no order: messages handed out and the bytes of their
// records since the start. fn must not call the broker.
func (b *Broker) Consumption(fn func(group, topic string, messages, bytes int64)) {
	b.traffic.mu.RLock()
	defer b.traffic.mu.RUnlock()
	for k, f := range b.traffic.groups {
		fn(k.group, k.topic, f.messages.Load(), f.bytes.Load())
	}
}
