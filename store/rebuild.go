package store

import (
	"strings"

	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
)

// rebuildTopics makes the topics that the log has messages of, with as many queues as have some and the defaults of
// everything else, after topics.json and its backup have both been lost (fault STO-13). What was set on them is gone, so
// this is an error for somebody to look at, but no message is out of reach.
func (s *Store) rebuildTopics() error {
	var cs []meta.Topic
	s.index.Topics(func(t *queue.Topic) {
		name := t.Name()
		if strings.HasPrefix(name, SystemPrefix) || s.tables.topics.Get(name) != nil || meta.CheckTopic(name) != nil {
			return
		}
		c := meta.DefaultTopic(name)
		t.Queues(func(q *queue.Queue) { c.ReadQueues = q.ID() + 1 }) // in order of the number
		c.ReadQueues = min(c.ReadQueues, meta.MaxQueues)
		c.WriteQueues = c.ReadQueues
		cs = append(cs, c)
	})
	if len(cs) == 0 {
		return nil
	}
	s.event(levelError, "topics were lost and are made again from the log with default settings", "topics", len(cs))
	return s.tables.topics.PutAll(cs)
}
