package store

import (
	"strings"

	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
)

// rebuildTopics makes every message reachable after topics.json was lost, or an older copy of it has taken its place (fault
// STO-13): topics that the log has messages of and the table does not know are made, with as many queues as have some and the
// defaults of everything else, and topics with fewer queues to read than have messages get those. What else was set on them is
// gone, so this is an error for somebody to look at.
func (s *Store) rebuildTopics() error {
	var cs []meta.Topic
	s.index.Topics(func(t *queue.Topic) {
		name, queues := t.Name(), int32(0)
		t.Queues(func(q *queue.Queue) { queues = q.ID() + 1 }) // in order of the number
		queues = min(queues, meta.MaxQueues)
		if queues == 0 || strings.HasPrefix(name, SystemPrefix) || meta.CheckTopic(name) != nil {
			return
		}
		c := meta.DefaultTopic(name)
		if have := s.tables.topics.Get(name); have == nil {
			c.WriteQueues = queues
		} else if c = *have; c.ReadQueues >= queues {
			return
		}
		c.ReadQueues = queues
		cs = append(cs, c)
	})
	if len(cs) == 0 {
		return nil
	}
	s.event(levelError, "topics were lost and are made again from the log with default settings", "topics", len(cs))
	return s.tables.topics.PutAll(cs)
}
