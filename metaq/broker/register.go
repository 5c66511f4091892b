package broker

import (
	"fmt"
	"time"

	"github.com/fusionmq/fusionmq/metaq/nameserver"
	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store/meta"
)

// Registrar is a name server as the broker sees it.
//
// Register is called for every change of a topic, before the request that made the change is answered, so one that is
// embedded is up to date when a client asks next; and with everything every Config.RegisterInterval. One that has to talk
// over a network takes the registration and returns. Calls may come from several goroutines. Unregister is the last call.
type Registrar interface {
	Register(nameserver.Registration) error
	Unregister(nameserver.Registration) error
}

// Embedded is a name server in the same process.
type Embedded struct{ *nameserver.NameServer }

// Register implements Registrar.
func (e Embedded) Register(r nameserver.Registration) error {
	_, err := e.NameServer.Register(r)
	return err
}

// Unregister implements Registrar.
func (e Embedded) Unregister(r nameserver.Registration) error {
	e.NameServer.Unregister(r.Cluster, r.Broker, r.ID, r.Addr)
	return nil
}

// registration is the broker without topics.
//
// A name server takes topics only when the version differs from the last one it saw. The version of the topic table does
// not serve for that: two changes that are told one after the other would carry the same. So this one counts what is told.
func (b *Broker) registration() nameserver.Registration {
	return nameserver.Registration{
		Cluster: b.cfg.Cluster, Broker: b.cfg.Name, ID: b.cfg.ID, Addr: b.cfg.AdvertiseAddr, HAAddr: b.cfg.HAAddr, Topics: map[string]remoting.TopicConfig{},
		Version: remoting.DataVersion{Counter: b.told.Load(), Timestamp: b.started.UnixMilli()},
	}
}

// routed reports whether clients may learn of a topic. Without auto-creation the template stays out, or producers would
// go on sending to topics that do not exist.
func (b *Broker) routed(t *meta.Topic) bool {
	return t.Name != templateTopic || !b.cfg.NoAutoCreateTopics
}

// registerAll tells every name server everything.
func (b *Broker) registerAll() {
	r := b.registration()
	r.Complete = true
	all, _ := b.store.Topics().All()
	for _, t := range all {
		if b.routed(t) {
			r.Topics[t.Name] = topicOf(t)
		}
	}
	b.register(r)
}

// registerTopic tells every name server of one topic.
func (b *Broker) registerTopic(t *meta.Topic) {
	if !b.routed(t) || b.stopping.Load() {
		return
	}
	b.told.Add(1)
	r := b.registration()
	r.Topics[t.Name] = topicOf(t)
	b.register(r)
}

func topicOf(t *meta.Topic) remoting.TopicConfig {
	return remoting.TopicConfig{
		Attributes: t.Attributes, Order: t.Order, Perm: t.Perm, ReadQueueNums: t.ReadQueues, TopicFilterType: t.FilterType, TopicName: t.Name,
		TopicSysFlag: t.SysFlag, WriteQueueNums: t.WriteQueues,
	}
}

func (b *Broker) register(r nameserver.Registration) {
	for _, to := range b.cfg.Registrars {
		if err := to.Register(r); err != nil && b.registerErrors.allow(time.Now()) {
			b.cfg.Log.Warn("registration at a name server failed", "error", err, "topics", len(r.Topics), "complete", r.Complete)
		}
	}
}

func (b *Broker) unregister() (errs []error) {
	for _, to := range b.cfg.Registrars {
		if err := to.Unregister(b.registration()); err != nil {
			errs = append(errs, fmt.Errorf("broker: unregister: %w", err))
		}
	}
	return errs
}
