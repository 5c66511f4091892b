package broker

// LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42): which member of an ordered group consumes a queue. A lock lasts for lockLife from when its owner
// asked for it last, which clients do every 20 s. It is in memory, as RocketMQ's: after a restart whoever asks first has it.
//
// A connection that closes leaves its client's locks alone. The client may be working on a message of the queue, and trusts its lock for 30 s:
// somebody else would overtake it. One that stops in an orderly way gives its locks back itself.

import (
	"strings"
	"sync"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
)

const (
	lockLife = 60 * time.Second
	maxLocks = 200_000 // of all groups together; about 200 bytes each
)

// locks are the queue locks of all groups. Methods may be called from any goroutine; time comes in.
type locks struct {
	mu     sync.Mutex
	groups map[string]map[lockedQueue]*lock // none is empty
	n      int                              // of all groups
}

type lockedQueue struct {
	topic string
	id    int32
}

type lock struct {
	client string
	asked  time.Time // by its owner, last
}

func (l *lock) live(now time.Time) bool { return now.Sub(l.asked) <= lockLife }

// take makes client the owner of a queue, or renews that it is, and reports whether it is now. The strings may be memory that is used again.
func (ls *locks) take(now time.Time, group string, q lockedQueue, client string) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.groups[group][q]
	switch {
	case l != nil && l.client == client:
		l.asked = now
		return true
	case l != nil && l.live(now):
		return false
	case l != nil:
		l.client, l.asked = strings.Clone(client), now
		return true
	case ls.n >= maxLocks:
		return false
	}
	if ls.groups == nil {
		ls.groups = map[string]map[lockedQueue]*lock{}
	}
	if ls.groups[group] == nil {
		ls.groups[strings.Clone(group)] = map[lockedQueue]*lock{}
	}
	q.topic = strings.Clone(q.topic)
	ls.groups[group][q] = &lock{strings.Clone(client), now}
	ls.n++
	return true
}

// give takes the lock of a queue from client, if it is the owner.
func (ls *locks) give(group string, q lockedQueue, client string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.groups[group][q]; l != nil && l.client == client {
		ls.removeLocked(group, q)
	}
}

func (ls *locks) removeLocked(group string, q lockedQueue) {
	delete(ls.groups[group], q)
	ls.n--
	if len(ls.groups[group]) == 0 {
		delete(ls.groups, group)
	}
}

// any reports whether a group has a live lock: it consumes in order.
func (ls *locks) any(now time.Time, group string) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.groups[group] {
		if l.live(now) {
			return true
		}
	}
	return false
}

// expire forgets locks that are over.
func (ls *locks) expire(now time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for group, qs := range ls.groups {
		for q, l := range qs {
			if !l.live(now) {
				ls.removeLocked(group, q)
			}
		}
	}
}

// len is how many queues are locked, those included whose locks are over and not forgotten yet.
func (ls *locks) len() int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.n
}

// lockRequest reads the body of 41 and 42.
func (c *call) lockRequest(what string) (r remoting.LockBatchRequest, err error) {
	if err := remoting.DecodeBody(what, c.req.Body, &r); err != nil {
		return r, err
	}
	for _, f := range []struct{ name, v string }{{"clientId", r.ClientID}, {"consumerGroup", r.ConsumerGroup}} {
		if f.v == "" {
			return r, &remoting.BodyError{Body: what, Err: &remoting.FieldError{Field: f.name, Missing: true}}
		}
	}
	if n := len(r.ClientID); n > maxClientIDBytes {
		return r, refuse(remoting.RespInvalidParameter, "clientId %q has %d bytes, the limit is %d", clip(r.ClientID), n, maxClientIDBytes)
	}
	return r, nil
}

// lockQueues locks what it can. Queues that are not here are left out of the answer, as those are that somebody else has.
func lockQueues(c *call) error {
	r, err := c.lockRequest("LockBatchRequestBody")
	if err != nil {
		return err
	}
	group, err := c.b.group(r.ConsumerGroup)
	if err != nil {
		return err
	}
	now := time.Now()
	res := remoting.LockBatchResult{LockOKMQSet: []remoting.MessageQueue{}}
	for _, q := range r.MQSet {
		t := c.b.store.Topics().Get(q.Topic)
		if t == nil || q.QueueID < 0 || q.QueueID >= max(t.ReadQueues, t.WriteQueues) {
			continue
		}
		if c.b.locks.take(now, group.Name, lockedQueue{t.Name, q.QueueID}, r.ClientID) {
			res.LockOKMQSet = append(res.LockOKMQSet, q)
		}
	}
	return c.json(res)
}

func unlockQueues(c *call) error {
	r, err := c.lockRequest("UnlockBatchRequestBody")
	if err != nil {
		return err
	}
	for _, q := range r.MQSet {
		c.b.locks.give(r.ConsumerGroup, lockedQueue{q.Topic, q.QueueID}, r.ClientID)
	}
	return c.ok()
}
