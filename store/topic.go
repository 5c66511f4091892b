package store

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
)

// topic is what the append path needs to know of a topic, found with one map lookup.
type topic struct {
	name   string
	system bool // only the store writes it
	index  *queue.Topic

	exists     atomic.Bool // it is in Topics, or the store's own
	sync       atomic.Bool // it asks for Sync
	interested atomic.Bool // some group has a binding on it; stored by the dispatcher

	lanes atomic.Pointer[[]*lane] // by queue id; replaced under topics.mu
}

// lane is one queue on the append path: the sequence that numbers it, and its handle in the index.
type lane struct {
	seq   log.Sequence
	topic *topic
	queue *queue.Queue
}

type topicTable struct {
	mu     sync.RWMutex
	byName map[string]*topic
	bound  map[string]bool // topics with a binding, also those that have no entry in byName yet
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

// setTopic takes over a topic's configuration.
func (s *Store) setTopic(c *meta.Topic) *topic {
	s.topics.mu.Lock()
	defer s.topics.mu.Unlock()
	// Of two changes at once the later one may come here first: what the table says now counts.
	if now := s.tables.topics.Get(c.Name); now != nil {
		c = now
	}
	t := s.topicLocked(c.Name)
	t.sync.Store(c.Durability(s.o.Durability) == meta.Sync)
	t.exists.Store(true)
	return t
}

func (s *Store) topicLocked(name string) *topic {
	t := s.topics.byName[name]
	if t == nil {
		t = &topic{name: strings.Clone(name), system: strings.HasPrefix(name, SystemPrefix), index: s.index.Topic(name, true)}
		t.lanes.Store(new([]*lane))
		t.interested.Store(s.topics.bound[name])
		s.topics.byName[t.name] = t
	}
	return t
}

// lane returns the lane of a queue, which is made when it is missing.
func (s *Store) lane(t *topic, id int32) *lane {
	if ls := *t.lanes.Load(); int(id) < len(ls) && ls[id] != nil {
		return ls[id]
	}
	s.topics.mu.Lock()
	defer s.topics.mu.Unlock()
	old := *t.lanes.Load()
	if int(id) < len(old) && old[id] != nil {
		return old[id]
	}
	ls := slices.Grow(slices.Clone(old), max(0, int(id)+1-len(old)))
	for len(ls) <= int(id) {
		ls = append(ls, nil)
	}
	l := &lane{topic: t, queue: t.index.Queue(id, true)}
	// Nobody has appended to this queue since Open, so what the index has is all there is.
	l.seq.Reset(l.queue.Next())
	l.seq.Owner = l
	ls[id] = l
	t.lanes.Store(&ls)
	return l
}

// setInterested is told by the dispatcher after a binding has come or gone.
func (s *Store) setInterested(name string, yes bool) {
	s.topics.mu.Lock()
	defer s.topics.mu.Unlock()
	if yes {
		s.topics.bound[name] = true
	} else {
		delete(s.topics.bound, name)
	}
	if t := s.topics.byName[name]; t != nil {
		t.interested.Store(yes)
	}
}

func (t *topicTable) isBound(name string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.bound[name]
}

// DurabilityOf is the durability that a send to the topic reaches now.
func (s *Store) DurabilityOf(name string) meta.Durability {
	if t := s.topic(name); t != nil && t.sync.Load() {
		return meta.Sync
	}
	return meta.Async
}
