package broker

// What clients say about themselves and ask about each other: HEART_BEAT (34), UNREGISTER_CLIENT (35),
// GET_CONSUMER_LIST_BY_GROUP (38), CHECK_CLIENT_CONFIG (46), GET_CONSUMER_CONNECTION_LIST (203),
// GET_PRODUCER_CONNECTION_LIST (204), and the notice to members that their group has changed (40).

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fusionmq/fusionmq/metaq/membership"
	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/metaq/server"
	"github.com/fusionmq/fusionmq/store/meta"
)

// Limits of one heartbeat. Honest ones have tens of groups and a few hundred subscriptions, and ids of some dozen characters.
const (
	maxHeartbeatBytes = 1 << 20
	maxClientIDBytes  = 1024
)

// peer is a connection as the broker knows it. Its number is unique over all listeners.
type peer struct {
	id   uint64
	conn *server.Conn
}

func peerOf(c *server.Conn) *peer { return c.Value().(*peer) }

// opened gives a connection its number.
func (b *Broker) opened(c *server.Conn) {
	c.SetValue(&peer{id: b.lastPeer.Add(1), conn: c})
}

// closed forgets a connection: closing is as good as unregistering, which Go clients never do.
func (b *Broker) closed(c *server.Conn, _ error) {
	p := peerOf(c)
	b.holds.drop(p.id)
	b.peers.Delete(membership.ConnID(p.id))
	b.changed(b.members.Drop(membership.ConnID(p.id)))
}

func heartbeat(c *call) error {
	if n := len(c.req.Body); n > maxHeartbeatBytes {
		return refuse(remoting.RespInvalidParameter, "the heartbeat has %d bytes, the limit is %d", n, maxHeartbeatBytes)
	}
	data, err := remoting.DecodeHeartbeat(c.req.Body)
	if err != nil {
		return err
	}
	if n := len(data.ClientID); n > maxClientIDBytes {
		return refuse(remoting.RespInvalidParameter, "clientID %q has %d bytes, the limit is %d", clip(data.ClientID), n, maxClientIDBytes)
	}
	id := membership.ConnID(c.peer.id)
	if err := c.b.members.Admits(id, data); err != nil {
		return refuse(remoting.RespInvalidParameter, "heartbeat of %s: %s", clip(data.ClientID), err)
	}
	// Groups that may not be here are left out and the others registered; the first reason is the answer. A group that is
	// only missing while groups are not auto-created is left out in silence, as RocketMQ does.
	var first error
	data.ProducerDataSet = slices.DeleteFunc(data.ProducerDataSet, func(p remoting.ProducerData) bool {
		long := len(p.GroupName) > meta.MaxGroupBytes
		if long && first == nil {
			first = refuse(remoting.RespInvalidParameter, "producer group %q has %d bytes, the limit is %d", clip(p.GroupName), len(p.GroupName), meta.MaxGroupBytes)
		}
		return long
	})
	kept := data.ConsumerDataSet[:0]
	for _, g := range data.ConsumerDataSet {
		config, err := c.b.group(g.GroupName)
		if err == nil {
			if err = c.b.retryTopic(config); err != nil && !errors.As(err, new(*refusal)) {
				c.b.notKept(err, "topic", meta.RetryPrefix+config.Name)
				err = nil
			}
		}
		if err != nil {
			if code, _ := codeOf(err); code != remoting.RespSubscriptionGroupNotExist && first == nil {
				first = err
			}
			continue
		}
		g.GroupName = config.Name
		kept = append(kept, g)
	}
	data.ConsumerDataSet = kept
	c.b.peers.Store(id, c.peer.conn)
	rebalance, resend := c.b.members.Beat(time.Now(), membership.Peer{
		Conn: id, Addr: c.peer.conn.Remote().String(), Language: c.req.Language.String(), Version: c.req.Version,
	}, data)
	c.b.changed(rebalance)
	if first != nil {
		return first
	}
	e := c.burst.Reply(c.req, remoting.RespSuccess, "")
	e.Bool("IS_SUPPORT_HEART_BEAT_V2", true)
	e.Bool("IS_SUB_CHANGE", resend || data.HeartbeatFingerprint == 0)
	c.burst.End(nil)
	return nil
}

func unregisterClient(c *call) error {
	if _, err := c.req.Require("clientID"); err != nil {
		return err
	}
	c.b.changed(c.b.members.Leave(membership.ConnID(c.peer.id), c.req.Get("producerGroup"), c.req.Get("consumerGroup")))
	return c.ok()
}

func consumerList(c *call) error {
	group, err := c.req.Require("consumerGroup")
	if err != nil {
		return err
	}
	ids := c.b.members.ClientIDs(group)
	if len(ids) == 0 {
		return refuse(remoting.RespSystemError, "no consumer for this group, %s", clip(group))
	}
	return c.json(remoting.ConsumerIDs{ConsumerIDList: ids})
}

// checkClientConfig says before a consumer starts whether its expression would do.
func checkClientConfig(c *call) error {
	var body remoting.CheckClientConfig
	if err := remoting.DecodeBody("CheckClientRequestBody", c.req.Body, &body); err != nil {
		return err
	}
	if s := body.SubscriptionData; s != nil {
		if err := c.b.checkExpression(s.ExpressionType, s.SubString); err != nil {
			return err
		}
	}
	return c.ok()
}

func consumerConnections(c *call) error {
	name, err := c.req.Require("consumerGroup")
	if err != nil {
		return err
	}
	g := c.b.members.Group(name)
	if g == nil {
		return refuse(remoting.RespConsumerNotOnline, "the consumer group[%s] not online", clip(name))
	}
	subs := make(map[string]remoting.SubscriptionData, len(g.Subs))
	for topic, s := range g.Subs {
		data := s.SubscriptionData
		data.CodeSet = nil // not what the client says, but what is matched
		if s.Filter != nil {
			for _, code := range s.Filter.Codes() {
				data.CodeSet = append(data.CodeSet, remoting.Long(code))
			}
		}
		subs[topic] = data
	}
	return c.json(remoting.ConsumerConnection{
		ConnectionSet: connections(c.b.members.Consumers(name)), ConsumeFromWhere: g.From, ConsumeType: g.Type, MessageModel: g.Model, SubscriptionTable: subs,
	})
}

func producerConnections(c *call) error {
	name, err := c.req.Require("producerGroup")
	if err != nil {
		return err
	}
	members := c.b.members.Producers(name)
	if len(members) == 0 {
		return refuse(remoting.RespSystemError, "the producer group[%s] not exist", clip(name))
	}
	return c.json(remoting.ProducerConnection{ConnectionSet: connections(members)})
}

func connections(members []membership.Member) []remoting.Connection {
	out := make([]remoting.Connection, len(members))
	for i, m := range members {
		out[i] = remoting.Connection{ClientAddr: m.Addr, ClientID: m.ClientID, Language: m.Language, Version: m.Version}
	}
	return out
}

// changed lets the members of groups know that they have to share the queues anew.
func (b *Broker) changed(groups []string) {
	if len(groups) == 0 {
		return
	}
	now := time.Now()
	b.notices.Lock()
	for _, name := range groups {
		if g := b.store.Groups().Get(name); g == nil || g.NotifyConsumerIDsChanged {
			b.notices.Changed(now, name)
		}
	}
	b.notices.Unlock()
	select {
	case b.notices.kick <- struct{}{}:
	default:
	}
}

// announce sends the notices that are due and returns when the next are; ok is false when none waits.
func (b *Broker) announce(now time.Time) (next time.Time, ok bool) {
	b.notices.Lock()
	due, next, ok := b.notices.Due(now, nil)
	b.notices.Unlock()
	for _, group := range due {
		for _, m := range b.members.Consumers(group) {
			conn, _ := b.peers.Load(m.Conn)
			if conn == nil {
				continue
			}
			_ = conn.(*server.Conn).Oneway(remoting.ReqNotifyConsumerIDsChanged, func(e *remoting.Encoder) {
				e.String("consumerGroup", group)
			}, nil) // whoever cannot be told is gone, and has taken its membership along
		}
	}
	return next, ok
}

// expire takes out members that have gone silent and closes connections that have nothing else.
func (b *Broker) expire(now time.Time) {
	rebalance, silent := b.members.Expire(now.Add(-b.cfg.MemberExpiry))
	b.changed(rebalance)
	for _, id := range silent {
		if conn, ok := b.peers.Load(id); ok {
			conn.(*server.Conn).Close(errSilent)
		}
	}
}

// reportConflicts logs which groups have come into a conflict of subscriptions since those in were, or out of one, and gives those that are in one.
func (b *Broker) reportConflicts(were []string) []string {
	are := b.members.Conflicts()
	for _, name := range are {
		if _, old := slices.BinarySearch(were, name); old {
			continue
		}
		var says []string
		for _, m := range b.members.Consumers(name) {
			if len(says) < 4 && !slices.ContainsFunc(says, func(s string) bool { return strings.HasSuffix(s, " subscribes "+m.Subs) }) {
				says = append(says, m.ClientID+" subscribes "+m.Subs)
			}
		}
		b.cfg.Log.Warn("members of a group subscribe differently, each overwrites the others' and messages are passed over", "group", name, "members", says)
	}
	for _, name := range were {
		if _, still := slices.BinarySearch(are, name); !still {
			b.cfg.Log.Info("members of a group subscribe alike again", "group", name)
		}
	}
	return are
}
