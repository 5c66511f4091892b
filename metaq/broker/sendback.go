package broker

// CONSUMER_SEND_MSG_BACK (36): a consumer gives back a message that it could not consume. It comes again in %RETRY%group after a delay, and
// after the last attempt it is a dead letter in %DLQ%group; both are views of the stored message. Checks are in RocketMQ's order
// (spec/remoting.md 3.8). The same end have messages that a client sends to %RETRY%group itself, as it does when 36 has failed.

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/view"
)

const (
	// statesAttempts is the first version of a client whose maxReconsumeTimes counts (V3_4_9).
	statesAttempts = 121
	// sendBackWait is how long a send-back waits for another one of the same message to take effect. Clients wait for 3 s and longer.
	sendBackWait = 2 * time.Second
)

func sendBack(c *call) error {
	b := store.SendBack{}
	var err error
	if b.Address, err = c.req.Int64("offset"); err != nil {
		return err
	}
	name, err := c.req.Require("group")
	if err != nil {
		return err
	}
	if b.Level, err = c.req.Int32("delayLevel"); err != nil {
		return err
	}
	stated := int32(-1)
	if c.req.Version >= statesAttempts {
		if stated, err = c.req.OptInt32("maxReconsumeTimes", -1); err != nil {
			return err
		}
	}
	group, err := c.b.group(name)
	if err != nil {
		if code, _ := codeOf(err); code == remoting.RespSubscriptionGroupNotExist {
			return refuse(code, "subscription group not exist, %s %s", clip(name), faq)
		}
		return err
	}
	b.Group, b.Most = group.Name, mostAttempts(group, stated)
	if group.RetryQueues <= 0 { // its owner wants no retries, and RocketMQ makes no dead letter of it either
		c.b.stats.notReturned.Add(1)
		return c.ok()
	}
	if err := c.b.retryTopic(group); err != nil {
		return err
	}
	if t := c.b.store.Topics().Get(meta.RetryPrefix + group.Name); t != nil && t.Perm&meta.PermWrite == 0 {
		return refuse(remoting.RespNoPermission, "the topic[%s] sending message is forbidden", t.Name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), sendBackWait)
	defer cancel()
	dead, err := c.b.store.SendBack(ctx, b)
	switch {
	case errors.Is(err, store.ErrNotAddress):
		return refuse(remoting.RespSystemError, "look message by offset failed, %d", b.Address)
	case errors.Is(err, context.DeadlineExceeded):
		return refuse(remoting.RespSystemBusy, "the message at %d is being sent back by another consumer of %s", b.Address, b.Group)
	case err != nil && !errors.Is(err, store.ErrFlushTimeout): // after that one it is in the log
		return c.b.storeError(err)
	}
	c.b.stats.returned.Add(1)
	if dead {
		c.b.dead(group, c.req.Get("originTopic"))
	}
	return c.ok()
}

// mostAttempts is after how many attempts a message of the group is dead: what its client states, else the group's limit, else none.
func mostAttempts(g *meta.Group, stated int32) int32 {
	switch {
	case stated >= 0:
		return stated
	case g.RetryMaxTimes >= 0:
		return g.RetryMaxTimes
	}
	return math.MaxInt32
}

// dead counts a dead letter. origin is the topic of the message as its consumer says, so it counts only when there is such a topic.
func (b *Broker) dead(g *meta.Group, origin string) {
	b.stats.dead.Add(1)
	name := ""
	if t := b.store.Topics().Get(origin); t != nil {
		name = t.Name
	}
	b.traffic.dead(g.Name, name).add(1, 0)
}

// deadSend turns the send of a message to its group's retry topic into one to the dead letters, when its attempts are over. It returns nil for
// any other. The topic is made when it is missing.
func (b *Broker) deadSend(s *remoting.SendHeader, topic *meta.Topic, version int32) (ref store.TopicRef, letters *meta.Topic, err error) {
	if !strings.HasPrefix(topic.Name, meta.RetryPrefix) {
		return ref, nil, nil
	}
	g, _, err := b.retryGroup(topic.Name)
	if err != nil {
		return ref, nil, err
	}
	stated := int32(-1)
	if version >= statesAttempts {
		stated = s.MaxReconsumeTimes
	}
	if s.ReconsumeTimes <= mostAttempts(g, stated) && !b.locks.any(time.Now(), g.Name) { // who consumes in order sends only what it gives up
		return ref, nil, nil
	}
	name := meta.DLQPrefix + g.Name
	if b.store.Topics().Get(name) == nil {
		unlock := b.creating.lock(name)
		if b.store.Topics().Get(name) == nil {
			c := meta.DefaultTopic(name)
			c.ReadQueues, c.WriteQueues = 1, 1
			err = b.store.Topics().Put(c)
		}
		unlock()
		if err != nil {
			return ref, nil, err
		}
	}
	if ref, letters = b.store.FindTopic(name); letters == nil {
		return ref, nil, noTopic(name)
	}
	s.Topic, s.QueueID = letters.Name, 0
	props := record.AppendWithout(make([]byte, 0, len(s.Properties)+16), stringBytes(s.Properties), view.PropDelay) // a dead letter does not wait
	if len(props) < maxProperties-len("DELAY=-1;") {
		props = record.AppendProperty(props, view.PropDelay, "-1")
	}
	s.Properties = bytesString(props)
	b.dead(g, propertyOf(s.Properties, view.PropRetryTopic))
	return ref, letters, nil
}

// propertyOf is the value of a property in property text, "" when it is not there.
func propertyOf(text, name string) string {
	for n, v := range record.Properties(stringBytes(text)) {
		if string(n) == name {
			return string(v)
		}
	}
	return ""
}
