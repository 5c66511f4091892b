package store

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/lookup"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
)

// topic is what the append path needs to know of a topic, found with one map lookup.
type topic struct {
	name   string
	number int  // of topics in the order in which they were met, from 0
	system bool // only the store writes it
	keys   lookup.Topic
	index  *queue.Topic

	config     atomic.Pointer[meta.Topic] // what it is in Topics; nil for the store's own
	exists     atomic.Bool                // it is in Topics, or the store's own
	sync       atomic.Bool                // it asks for Sync
	once       atomic.Bool                // its messages are to be stored once
	memory     atomic.Bool                // it asks for no more than Memory
	interested atomic.Bool                // some group is attached to it; stored by the dispatcher

	near  [nearLanes]atomic.Pointer[lane] // of the first queues, where one look is enough; stored under topics.mu
	lanes atomic.Pointer[[]*lane]         // of the others, by queue id - nearLanes; replaced under topics.mu
}

// nearLanes is how many queues of a topic are found without going through a slice: with tens of thousands of queues, none of
// which is in the processor's caches, each step costs more than all that is done with it.
const nearLanes = 8

// lane is one queue on the append path: the sequence that numbers it, and its handle in the index.
type lane struct {
	seq   log.Sequence
	topic *topic
	queue *queue.Queue
}

type topicTable struct {
	mu     sync.RWMutex
	byName map[string]*topic
	owed   map[string]bool // topics that a group is attached to, also those that have no entry in byName yet
}

// topic returns the topic's entry, or nil when there is no such topic.
func (s *Store) topic(name string) *topic {
	s.topics.mu.RLock()
	t := s.topics.byName[name]
	s.topics.mu.RUnlock()
	if t != nil && t.exists.Load() {
		return t
	}
	c := s.tables.topics.Get(name)
	if c == nil {
		return nil
	}
	return s.setTopic(c)
}

// TopicRef is a topic that FindTopic has found. The zero value is none.
type TopicRef struct{ t *topic }

// Number is the topic's place among all that the store has met since Open: dense, from 0, never another's. It is an index for what a front
// end keeps for each topic. Only of a topic that was found.
func (r TopicRef) Number() int { return r.t.number }

// FindTopic returns a topic's configuration, nil when there is no such topic, and what saves an Append finding it again: among thousands
// of topics that are sent to in turn, finding one costs more than all else that is done for each.
func (s *Store) FindTopic(name string) (TopicRef, *meta.Topic) {
	t := s.topic(name)
	if t == nil {
		return TopicRef{}, nil
	}
	return TopicRef{t}, t.config.Load()
}

// topicOf returns the topic of m, or nil when there is no such topic.
func (s *Store) topicOf(m *Message) *topic {
	if t := m.Ref.t; t != nil && t.exists.Load() && t.name == m.Topic {
		return t
	}
	return s.topic(m.Topic)
}

// setTopic takes over a topic's configuration.
func (s *Store) setTopic(c *meta.Topic) *topic {
	s.topics.mu.Lock()
	defer s.topics.mu.Unlock()
	// Of two changes at once the later one may come here first: what the table says now counts.
	if now := s.tables.topics.Get(c.Name); now != nil {
		c = now
	}
	t := s.topicLocked(c.Name)
	d := c.Durability(s.o.Durability)
	t.sync.Store(d == meta.Sync)
	t.memory.Store(d == meta.Memory)
	if once := c.Once(); once != t.once.Load() {
		t.once.Store(once)
		if once {
			s.once.forget(s.log.Told(), s.now())
		}
	}
	t.config.Store(c)
	t.exists.Store(true)
	return t
}

func (s *Store) topicLocked(name string) *topic {
	t := s.topics.byName[name]
	if t == nil {
		t = &topic{name: strings.Clone(name), number: len(s.topics.byName), system: strings.HasPrefix(name, SystemPrefix), keys: lookup.TopicOf(name), index: s.index.Topic(name, true)}
		t.lanes.Store(new([]*lane))
		if t.interested.Store(s.topics.owed[name]); isWaitTopic(name) {
			t.system = true
			t.interested.Store(true)
		}
		s.topics.byName[t.name] = t
	}
	return t
}

// lane returns the lane of a queue, which is made when it is missing.
func (s *Store) lane(t *topic, id int32) *lane {
	if l := t.lane(id); l != nil {
		return l
	}
	s.topics.mu.Lock()
	defer s.topics.mu.Unlock()
	if l := t.lane(id); l != nil {
		return l
	}
	l := &lane{topic: t, queue: t.index.Queue(id, true)}
	// Nobody has appended to this queue since Open, so what the index has is all there is.
	l.seq.Reset(l.queue.Next())
	l.seq.Owner = l
	if id < nearLanes {
		t.near[id].Store(l)
		return l
	}
	old := *t.lanes.Load()
	ls := make([]*lane, max(len(old), int(id)-nearLanes+1))
	copy(ls, old)
	ls[id-nearLanes] = l
	t.lanes.Store(&ls)
	return l
}

// lane is nil when it was not made yet.
func (t *topic) lane(id int32) *lane {
	if id < nearLanes {
		return t.near[id].Load()
	}
	if ls := *t.lanes.Load(); int(id)-nearLanes < len(ls) {
		return ls[id-nearLanes]
	}
	return nil
}

// setInterested is told by the dispatcher after a binding or an attached group has come or gone.
func (s *Store) setInterested(name string, yes bool) {
	s.topics.mu.Lock()
	defer s.topics.mu.Unlock()
	if yes {
		s.topics.owed[name] = true
	} else {
		delete(s.topics.owed, name)
	}
	if t := s.topics.byName[name]; t != nil {
		t.interested.Store(yes)
	}
}

func (t *topicTable) isOwed(name string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.owed[name]
}

// DurabilityOf is the durability that a send to the topic reaches now.
func (s *Store) DurabilityOf(name string) meta.Durability {
	t := s.topic(name)
	switch {
	case t != nil && t.sync.Load():
		return meta.Sync
	case t != nil && t.memory.Load():
		return meta.Memory
	}
	return meta.Async
}
