package broker

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
)

// templateTopic is the template of auto-created topics; a broker that has it in its routes tells producers that it will
// make what they send to.
const templateTopic = "TBW102"

const (
	traceTopic    = "RMQ_SYS_TRACE_TOPIC"
	systemPrefix  = "rmq_sys_"        // system topics: clients may send to them but not create or delete them
	ownPrefix     = "rmq_sys_fusion_" // the store's own topics, which clients may not touch at all
	consumerGuard = "CID_RMQ_SYS_"    // groups of the system, created even when auto-creation is off
)

// closedTopics are topics that no client may send to: they hold messages that are not visible yet.
var closedTopics = map[string]bool{
	"SCHEDULE_TOPIC_XXXX": true, "RMQ_SYS_TRANS_HALF_TOPIC": true, "RMQ_SYS_TRANS_OP_HALF_TOPIC": true,
	"TRANS_CHECK_MAX_TIME_TOPIC": true, "SELF_TEST_TOPIC": true, "OFFSET_MOVED_EVENT": true,
}

var systemTopics = map[string]bool{templateTopic: true, "BenchmarkTest": true, traceTopic: true, "CHECKPOINT_TOPIC": true}

// checkSendTopic says why no client may send to a topic of this name.
func checkSendTopic(name string) error {
	if err := meta.CheckTopic(name); err != nil {
		return err
	}
	if closedTopics[name] || strings.HasPrefix(name, ownPrefix) {
		return refuse(remoting.RespNoPermission, "Sending message to topic[%s] is forbidden: it is kept by the broker itself", name)
	}
	return nil
}

// checkAdminTopic says why no client may create, change or delete a topic of this name.
func (b *Broker) checkAdminTopic(name string) error {
	if err := meta.CheckTopic(name); err != nil {
		return err
	}
	switch {
	case strings.HasPrefix(name, ownPrefix):
		return refuse(remoting.RespNoPermission, "The topic[%s] is kept by the broker itself", name)
	case closedTopics[name], systemTopics[name], strings.HasPrefix(name, systemPrefix), name == b.cfg.Cluster, name == b.cfg.Name, name == b.replyTopic():
		return refuse(remoting.RespInvalidParameter, "The topic[%s] is conflict with system topic.", name)
	}
	return nil
}

func (b *Broker) replyTopic() string { return b.cfg.Cluster + "_REPLY_TOPIC" }

// systemTopics are the topics made at start. RocketMQ makes some more, for features that this broker does not have, and
// BenchmarkTest with 1,024 queues, which here is auto-created like any other.
func (b *Broker) initialTopics() []meta.Topic {
	topic := func(name string, queues, perm int32) meta.Topic {
		t := meta.DefaultTopic(name)
		t.ReadQueues, t.WriteQueues, t.Perm = queues, queues, perm
		return t
	}
	const rw, template = meta.PermRead | meta.PermWrite, meta.PermRead | meta.PermWrite | meta.PermInherit
	ts := []meta.Topic{
		topic("SELF_TEST_TOPIC", 1, rw),
		topic("OFFSET_MOVED_EVENT", 1, rw),
		topic("SCHEDULE_TOPIC_XXXX", 18, rw),
		topic("RMQ_SYS_TRANS_HALF_TOPIC", 1, rw),
		topic("RMQ_SYS_TRANS_OP_HALF_TOPIC", 1, rw),
		topic(b.replyTopic(), 1, rw),
		// mqadmin and the dashboard look brokers up by the routes of these two.
		topic(b.cfg.Cluster, 16, template),
		topic(b.cfg.Name, 1, template),
	}
	if !b.cfg.NoAutoCreateTopics {
		ts = append(ts, topic(templateTopic, b.cfg.DefaultTopicQueues, template))
	}
	if b.cfg.TraceTopic {
		ts = append(ts, topic(traceTopic, 1, rw))
	}
	return ts
}

// createInitialTopics makes those that are missing; one that an operator changed stays as it is.
func (b *Broker) createInitialTopics() error {
	var missing []meta.Topic
	for _, t := range b.initialTopics() {
		if b.store.Topics().Get(t.Name) == nil {
			missing = append(missing, t)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return b.store.Topics().PutAll(missing)
}

// autoCreateTopic makes a topic that a client sends to, in the image of the template it names, and returns nil when it
// may not. The queue count is the smaller one of what the client wants and what the template has.
func (b *Broker) autoCreateTopic(name, template string, queues int32) (*meta.Topic, error) {
	if b.cfg.NoAutoCreateTopics {
		return nil, nil
	}
	defer b.creating.lock(name)()
	if t := b.store.Topics().Get(name); t != nil {
		return t, nil
	}
	t := b.store.Topics().Get(template)
	if t == nil || t.Perm&meta.PermInherit == 0 {
		return nil, nil
	}
	c := meta.DefaultTopic(strings.Clone(name))
	c.ReadQueues = max(1, min(queues, t.WriteQueues))
	c.WriteQueues = c.ReadQueues
	c.Perm = t.Perm &^ meta.PermInherit
	c.FilterType = t.FilterType
	return b.putNewTopicLocked(c)
}

// retryTopic makes the retry topic of a group, unless it is there or the group wants none.
func (b *Broker) retryTopic(g *meta.Group) error {
	if g.RetryQueues <= 0 {
		return nil
	}
	name := meta.RetryPrefix + g.Name
	if b.store.Topics().Get(name) != nil || meta.CheckTopic(name) != nil {
		return nil // the group's name leaves no room for the prefix: RocketMQ could not name such a topic either
	}
	defer b.creating.lock(name)()
	if b.store.Topics().Get(name) != nil {
		return nil
	}
	c := meta.DefaultTopic(name)
	c.ReadQueues, c.WriteQueues = g.RetryQueues, g.RetryQueues
	_, err := b.putNewTopicLocked(c)
	return err
}

func (b *Broker) putNewTopicLocked(c meta.Topic) (*meta.Topic, error) {
	topics := b.store.Topics()
	if n := topics.Len(); n >= b.cfg.MaxTopics {
		return nil, refuse(remoting.RespSystemError, "topic[%s] not created: the broker has its limit of %d topics", c.Name, n)
	}
	if err := topics.Put(c); err != nil {
		return nil, err
	}
	b.cfg.Log.Info("topic created", "topic", c.Name, "queues", c.WriteQueues)
	return topics.Get(c.Name), nil
}

// group returns the configuration of a consumer group and makes it when groups are made by being used. It refuses a group
// that cannot be there, and one whose name belongs to the push front end; the name belongs to this one from then on.
func (b *Broker) group(name string) (*meta.Group, error) {
	groups := b.store.Groups()
	g := groups.Get(name)
	if g == nil {
		if err := meta.CheckGroup(name); err != nil {
			return nil, err
		}
		if b.cfg.NoAutoCreateGroups && !strings.HasPrefix(name, consumerGuard) {
			return nil, refuse(remoting.RespSubscriptionGroupNotExist, "subscription group [%s] does not exist%s", name, faq)
		}
		defer b.creating.lock(name)()
		g = groups.Get(name)
	}
	if _, err := b.claimGroup(name); err != nil {
		return nil, err
	}
	if g != nil {
		return g, nil
	}
	made := meta.DefaultGroup(strings.Clone(name))
	if err := groups.Put(made); err != nil {
		b.notKept(err, "group", made.Name)
		return &made, nil
	}
	b.cfg.Log.Info("consumer group created", "group", name)
	return groups.Get(name), nil
}

// claimGroup takes a group name for this front end. fresh tells that nobody had heard of it.
func (b *Broker) claimGroup(name string) (fresh bool, err error) {
	fresh, err = b.store.ClaimGroup(name, b.cfg.MaxGroups)
	var taken *store.GroupTaken
	var full *store.GroupsFull
	switch {
	case errors.As(err, &taken):
		return false, pushGroup(taken.Name, taken.Group)
	case errors.As(err, &full):
		return false, refuse(remoting.RespSystemError, "subscription group [%s] not created: the broker has its limit of %d groups", name, full.Limit)
	}
	return fresh, err
}

// notKept reports what could not be written for a consumer that only reads. A full or read-only disk does not keep it from
// reading: it goes on with the defaults, and what is missing is made when it is next asked for and can be.
func (b *Broker) notKept(err error, what, name string) {
	if b.notKeptErrors.allow(time.Now()) {
		b.cfg.Log.Warn("not written, consumers go on without it", what, name, "error", err)
	}
}

// pushGroup refuses a group name that a push group has under its own name.
func pushGroup(name, group string) error {
	what := "it is a push group of the Notify front end"
	if group != name {
		what = "it is the name of the push group " + strconv.Quote(group) + " of the Notify front end"
	}
	return refuse(remoting.RespNoPermission, "subscription group no permission, %s: %s; consume under another group name", clip(name), what)
}
