package store

import (
	"errors"
	"strings"

	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/rocketmq"
)

// Light queues (%LMQ%): a record of an Apache broker that has them on is in further queues, whose names and offsets are in its properties. They
// are read as that broker left them. No message joins one here, as with a broker that has them off, which is the default: what a client
// writes into those properties means nothing. So only records below Store.foreign count.

// LightOf calls fn for each light queue that the record v is in: the queue, the offset there, and the entry, which is that of v. For tools.
func (s *Store) LightOf(v record.View, fn func(topic string, id int32, offset int64, e queue.Entry)) {
	if v.PhysicalOffset() >= s.foreign {
		return
	}
	for _, l := range rocketmq.LightQueues(v) {
		if len(l.Name) <= record.MaxTopicBytes {
			fn(l.Name, 0, l.Offset, entryOf(v))
		}
	}
}

// replayLight gives the index the entries of a record in light queues, in replay.
func (s *Store) replayLight(v record.View) error {
	var failed error
	s.LightOf(v, func(topic string, id int32, offset int64, e queue.Entry) {
		failed = errors.Join(failed, s.replayPut(topic, id, offset, e))
	})
	return failed
}

// adoptLight makes topics of the light queues, to be read only, and takes over what groups have committed: a broker that has light queues on
// keeps the offsets of all queues in a file of its own.
func (s *Store) adoptLight(p *rocketmq.Progress) error {
	var topics []meta.Topic
	s.index.Topics(func(t *queue.Topic) {
		name := t.Name()
		if !strings.HasPrefix(name, rocketmq.LightPrefix) || s.tables.topics.Get(name) != nil {
			return
		}
		if err := meta.CheckTopic(name); err != nil {
			s.event(levelWarn, "light queue cannot be a topic and is not served", "err", err)
			return
		}
		c := meta.DefaultTopic(name)
		c.ReadQueues, c.WriteQueues, c.Perm = 1, 1, meta.PermRead
		topics = append(topics, c)
	})
	if len(topics) > 0 {
		if err := s.tables.topics.PutAll(topics); err != nil {
			return err
		}
	}
	commit := func(key string, id int32, n int64) {
		topic, group, ok := strings.Cut(key, "@")
		if !ok || s.tables.topics.Get(topic) == nil || meta.CheckGroup(group) != nil {
			return
		}
		if _, ok := s.tables.offsets.Get(group, topic, id); !ok {
			s.tables.offsets.Commit(group, topic, id, n)
		}
	}
	for key, queues := range p.Offsets {
		for id, n := range queues {
			commit(key, id, n)
		}
	}
	for key, n := range p.Light {
		commit(key, 0, n)
	}
	for _, l := range s.tables.offsets.Lower(s.queueEnd) {
		s.event(levelWarn, "committed offset was above the end of its queue and is lowered to it", "topic", l.Topic, "group", l.Group, "queue", l.Queue, "offset", l.Offset)
	}
	return nil
}
