package broker

// The requests about positions in a queue: QUERY_CONSUMER_OFFSET (14), UPDATE_CONSUMER_OFFSET (15),
// SEARCH_OFFSET_BY_TIMESTAMP (29), GET_MAX_OFFSET (30), GET_MIN_OFFSET (31), GET_EARLIEST_MSG_STORETIME (32).
//
// A queue or topic that is not there gives plain numbers and not refusals: Go clients read the number without a look at
// the code, and an absent one would be 0 to them.

import (
	"strings"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
)

// place is a queue named by a request.
type place struct {
	topic string // aliases the frame
	id    int32
}

func (c *call) place() (p place, err error) {
	if p.topic, err = c.req.Require("topic"); err != nil {
		return p, err
	}
	p.id, err = c.req.Int32("queueId")
	return p, err
}

func (c *call) queue() (*queue.Queue, error) {
	p, err := c.place()
	if err != nil || p.id < 0 {
		return nil, err
	}
	return c.b.store.Queue(p.topic, p.id, false), nil
}

func queryConsumerOffset(c *call) error {
	group, err := c.req.Require("consumerGroup")
	if err != nil {
		return err
	}
	p, err := c.place()
	if err != nil {
		return err
	}
	if n, ok := c.b.store.Offsets().Get(group, p.topic, p.id); ok {
		return c.number("offset", n)
	}
	if !c.req.Bool("setZeroIfNotFound", true) {
		return refuse(remoting.RespQueryNotFound, "Not found, do not set to zero, maybe this group boot first")
	}
	if c.b.bootsAtZero(p) {
		return c.number("offset", 0)
	}
	return refuse(remoting.RespQueryNotFound, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
}

// bootsAtZero decides for a group without an offset: it starts at 0 while the queue still has its first message and not
// much was written since, whatever the client's own rule says. An empty queue counts as such. RocketMQ 4.9 answers so;
// 5.x answers "not found" for an empty queue, and a group that starts at the end then misses what is sent between this
// answer and its next question.
func (b *Broker) bootsAtZero(p place) bool {
	if p.id < 0 || b.store.Topics().Get(p.topic) == nil {
		return false
	}
	q := b.store.Queue(p.topic, p.id, false)
	if q == nil {
		return true
	}
	low, high := q.Range()
	if low > 0 {
		return false
	}
	if high == 0 {
		return true
	}
	var first [1]queue.Entry
	if n, err := q.Read(0, first[:]); err != nil || n == 0 {
		return false
	}
	return b.store.Bounds().Max-first[0].Position <= b.cfg.ReplayBytes
}

// updateConsumerOffset stores a group's progress, also backwards. Unlike a pull or a heartbeat it does not make the group:
// RocketMQ 5.3 does not either.
func updateConsumerOffset(c *call) error {
	name, err := c.req.Require("consumerGroup")
	if err != nil {
		return err
	}
	p, err := c.place()
	if err != nil {
		return err
	}
	group := c.b.store.Groups().Get(name)
	if group == nil {
		if err := meta.CheckGroup(name); err != nil {
			return err
		}
		if owner, push := c.b.store.PushGroupOf(name); push {
			return pushGroup(name, owner)
		}
		return refuse(remoting.RespSubscriptionGroupNotExist, "Group %s not exist!", name)
	}
	if _, err := c.b.claimGroup(name); err != nil {
		return err
	}
	topic := c.b.store.Topics().Get(p.topic)
	if topic == nil {
		return refuse(remoting.RespTopicNotExist, "Topic %s not exist!", clip(p.topic))
	}
	if c.req.Get("commitOffset") == "" {
		return refuse(remoting.RespInvalidParameter, "Offset is null, topic is %s", topic.Name)
	}
	offset, err := c.req.Int64("commitOffset")
	if err != nil {
		return err
	}
	if n := max(topic.ReadQueues, topic.WriteQueues); p.id < 0 || p.id >= n {
		return refuse(remoting.RespInvalidParameter, "queueId[%d] is illegal, topic:[%s] has %d queues", p.id, topic.Name, n)
	}
	if c.b.resets.has(resetKey{group.Name, topic.Name, p.id}) { // it is about where the group was before
		c.burst.Reply(c.req, remoting.RespSuccess, "Offset has been previously reset")
		c.burst.End(nil)
		return nil
	}
	if offset >= 0 { // clients say -1 while they have no progress
		c.b.store.Offsets().Commit(group.Name, topic.Name, p.id, offset)
	}
	return c.ok()
}

func searchOffset(c *call) error {
	q, err := c.queue()
	if err != nil {
		return err
	}
	ms, err := c.req.Int64("timestamp")
	if err != nil {
		return err
	}
	if q == nil {
		return c.number("offset", 0)
	}
	return c.number("offset", q.Search(ms, strings.EqualFold(c.req.Get("boundaryType"), "UPPER")))
}

func maxOffset(c *call) error {
	q, err := c.queue()
	if err != nil {
		return err
	}
	if q == nil {
		return c.number("offset", 0)
	}
	_, n := q.Range()
	return c.number("offset", n)
}

func minOffset(c *call) error {
	q, err := c.queue()
	if err != nil {
		return err
	}
	if q == nil {
		return c.number("offset", 0)
	}
	n, _ := q.Range()
	return c.number("offset", n)
}

func earliestTime(c *call) error {
	q, err := c.queue()
	if err != nil {
		return err
	}
	if q != nil {
		low, _ := q.Range()
		var first [1]queue.Entry
		n, err := q.Read(low, first[:])
		if err != nil {
			return err
		}
		if n > 0 {
			return c.number("timestamp", first[0].Time)
		}
	}
	return c.number("timestamp", -1)
}

// viewMessage is VIEW_MESSAGE_BY_ID (33): offset is the position inside an offset message id. Only what is the address of
// a visible message is read.
func viewMessage(c *call) error {
	at, err := c.req.Int64("offset")
	if err != nil {
		return err
	}
	rec, release, err := c.b.store.RecordAt(at)
	if err != nil {
		return refuse(remoting.RespSystemError, "can not find message by the offset, %d", at)
	}
	c.burst.Reply(c.req, remoting.RespSuccess, "")
	c.burst.EndParts([][]byte{rec}, release)
	return nil
}
