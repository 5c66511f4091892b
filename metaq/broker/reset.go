package broker

// INVOKE_BROKER_TO_RESET_OFFSET (222): a group goes on elsewhere in a topic, by time or at a given offset, whether its members are there or not.
//
// As with RocketMQ 5.3.3 the broker does it alone, so every client can be moved: the offset is stored, and until the group's next pull of the
// queue commits are ignored (15) and that pull is answered 21 with it, on which clients drop what they have of the queue and go on there. A
// held pull is answered at once. What is pending is in memory; after a restart the stored offset counts, and a member that did not pull meanwhile
// may commit its old one over it.

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store/meta"
)

// maxResets bounds the queues whose groups have not taken their reset yet; each takes about 150 bytes.
const maxResets = 200_000

// resets are offsets that groups have to go on at and have not been told. Methods may be called from any goroutine.
type resets struct {
	n  atomic.Int32 // of pending, so that pulls need no lock while it is 0
	mu struct {
		sync.Mutex
		pending map[resetKey]int64
	}
}

type resetKey struct {
	group, topic string
	queue        int32
}

// put makes offset the one that the group's next pull is answered with; false when there are too many.
func (r *resets) put(k resetKey, offset int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := r.mu.pending[k]; !there && len(r.mu.pending) >= maxResets {
		return false
	}
	if r.mu.pending == nil {
		r.mu.pending = map[resetKey]int64{}
	}
	r.mu.pending[k] = offset
	r.n.Store(int32(len(r.mu.pending)))
	return true
}

// take gives the offset that is pending and forgets it.
func (r *resets) take(k resetKey) (offset int64, ok bool) {
	if r.n.Load() == 0 {
		return 0, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if offset, ok = r.mu.pending[k]; ok {
		delete(r.mu.pending, k)
		r.n.Store(int32(len(r.mu.pending)))
	}
	return offset, ok
}

// has reports whether an offset is pending.
func (r *resets) has(k resetKey) bool {
	if r.n.Load() == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.mu.pending[k]
	return ok
}

func (p *pull) resetKey() resetKey { return resetKey{p.group.Name, p.topic.Name, p.queue} }

func resetOffset(c *call) error {
	name, err := c.req.Require("topic")
	if err != nil {
		return err
	}
	group, err := c.req.Require("group")
	if err != nil {
		return err
	}
	id, err := c.req.OptInt32("queueId", -1)
	if err != nil {
		return err
	}
	at, err := c.req.OptInt64("offset", -1)
	if err != nil {
		return err
	}
	ms, err := c.req.Int64("timestamp")
	if err != nil {
		return err
	}
	topic := c.b.store.Topics().Get(name)
	if topic == nil {
		return refuse(remoting.RespTopicNotExist, "Topic %s does not exist", clip(name))
	}
	g := c.b.store.Groups().Get(group)
	if g == nil {
		if owner, push := c.b.store.PushGroupOf(group); push {
			return pushGroup(group, owner)
		}
		return refuse(remoting.RespSubscriptionGroupNotExist, "Group %s does not exist", clip(group))
	}
	if _, err := c.b.claimGroup(g.Name); err != nil {
		return err
	}
	if id >= topic.ReadQueues {
		return refuse(remoting.RespInvalidParameter, "queueId[%d] is illegal, topic:[%s] topicConfig.readQueueNums:[%d]", id, topic.Name, topic.ReadQueues)
	}
	targets := map[int32]int64{}
	if id >= 0 {
		if targets[id], err = c.b.resetTarget(topic, id, at, ms); err != nil {
			return err
		}
	} else {
		for q := range topic.ReadQueues {
			if targets[q], err = c.b.resetTarget(topic, q, -1, ms); err != nil { // an offset is of one queue
				return err
			}
		}
	}
	table := make([]remoting.QueueOffset, 0, len(targets))
	for q := range topic.ReadQueues {
		offset, ok := targets[q]
		if !ok {
			continue
		}
		if !c.b.resets.put(resetKey{g.Name, topic.Name, q}, offset) {
			return refuse(remoting.RespSystemBusy, "%d queues wait for their groups to take a reset, the limit; those before queue %d are reset", maxResets, q)
		}
		c.b.store.Offsets().Commit(g.Name, topic.Name, q, offset)
		c.b.cfg.Log.Info("offset reset", "group", g.Name, "topic", topic.Name, "queue", q, "offset", offset)
		table = append(table, remoting.QueueOffset{MessageQueue: remoting.MessageQueue{BrokerName: c.b.cfg.Name, QueueID: q, Topic: topic.Name}, Offset: offset})
	}
	c.b.stats.resets.Add(int64(len(table)))
	c.b.holds.moved(g.Name, topic.Name)
	c.burst.Reply(c.req, remoting.RespSuccess, "")
	c.burst.End(remoting.AppendOffsetTable(nil, table))
	return nil
}

// resetTarget is where a queue is reset to: at when that is not below 0, else the first message at or after the time, or the end for a time below 0.
func (b *Broker) resetTarget(topic *meta.Topic, id int32, at, ms int64) (int64, error) {
	low, high := int64(0), int64(0)
	q := b.store.Queue(topic.Name, id, false)
	if q != nil {
		low, high = q.Range()
	}
	switch {
	case at < -1, at >= 0 && (at < low || at > high):
		return 0, refuse(remoting.RespSystemError, "Target offset %d not in consume queue range [%d-%d]", at, low, high)
	case at >= 0:
		return at, nil
	case ms < 0, q == nil:
		return high, nil
	}
	return q.Search(ms, false), nil
}

// moved answers the held pulls of a group on a topic: they are at an offset that is not the group's any more.
func (h *holds) moved(group, topic string) {
	h.mu.Lock()
	h.mu.moved = append(h.mu.moved, resetKey{group: strings.Clone(group), topic: strings.Clone(topic)})
	h.mu.Unlock()
	h.wake()
}
