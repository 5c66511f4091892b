package fusion

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/fusionmq/fusionmq/fusion/config"
	"github.com/fusionmq/fusionmq/fusion/httpapi"
	"github.com/fusionmq/fusionmq/fusion/telemetry"
	"github.com/fusionmq/fusionmq/store/meta"
)

// adminView is the App as the administration port sees it. It reads what the store and the front ends say at that moment;
// numbers of one answer may be moments apart.
type adminView App

func (v *adminView) app() *App { return (*App)(v) }

// Status tells what the process is.
func (v *adminView) Status(context.Context) (httpapi.Status, error) {
	a := v.app()
	c := &a.cfg.Config
	b := a.store.Bounds()
	s := httpapi.Status{
		Version: Version, GoVersion: runtime.Version(), PID: os.Getpid(),
		Started: a.since.UTC().Truncate(time.Millisecond), UptimeSeconds: int64(time.Since(a.since).Seconds()),
		Ready: a.Ready() == nil, Profile: string(c.Profile), Security: "none",
		Cluster: c.Broker.Cluster, Broker: c.Broker.Name, Advertised: a.adv.String(), Data: a.data, Listeners: a.Listeners(),
		Store:  httpapi.StoreStatus{MinPosition: b.Min, MaxPosition: b.Max, SyncedPosition: b.Synced, DispatchedPosition: b.Dispatched, Flush: c.Store.Flush},
		Memory: httpapi.Memory{AnonymousBytes: telemetry.AnonymousBytes(), HeapBytes: telemetry.HeapBytes(), LimitBytes: a.opts.Limit},
	}
	if err := a.store.Err(); err != nil {
		s.Store.Problem = err.Error()
	}
	topics, _ := a.store.Topics().All()
	for _, t := range topics {
		if !a.systemTopic(t) {
			s.Counts.Topics++
		}
	}
	push := a.readPushes()
	for _, name := range v.groupNames(false, &push) {
		if push.has(name) {
			s.Counts.PushGroups++
		} else {
			s.Counts.PullGroups++
		}
	}
	s.Counts.BrokerConnections, s.Counts.NotifyConnections = a.connections()
	return s, nil
}

// systemTopic says whether the system made a topic for itself.
func (a *App) systemTopic(t *meta.Topic) bool {
	return systemTopicName(t.Name) || t.Name == a.cfg.Broker.Name || t.Name == a.cfg.Broker.Cluster
}

// page cuts a part out of names, which are sorted. next is "" on the last page.
func page(names []string, p httpapi.Page) (part []string, next string) {
	i := sort.SearchStrings(names, p.Prefix)
	if p.After != "" {
		i = max(i, sort.Search(len(names), func(k int) bool { return names[k] > p.After }))
	}
	for ; i < len(names) && strings.HasPrefix(names[i], p.Prefix); i++ {
		if len(part) == p.Limit {
			return part, part[len(part)-1]
		}
		part = append(part, names[i])
	}
	return part, ""
}

// Topics lists topics.
func (v *adminView) Topics(_ context.Context, p httpapi.Page) (httpapi.TopicPage, error) {
	a := v.app()
	all, _ := a.store.Topics().All()
	var names []string
	for _, t := range all {
		if p.System || !a.systemTopic(t) {
			names = append(names, t.Name)
		}
	}
	part, next := page(names, p)
	out := httpapi.TopicPage{Topics: []httpapi.Topic{}, Next: next}
	for _, name := range part {
		if t := a.store.Topics().Get(name); t != nil {
			out.Topics = append(out.Topics, v.topic(t).Topic)
		}
	}
	return out, nil
}

// Topic tells about one topic.
func (v *adminView) Topic(_ context.Context, name string) (httpapi.TopicDetail, error) {
	t := v.app().store.Topics().Get(name)
	if t == nil {
		return httpapi.TopicDetail{}, noTopic(name)
	}
	return v.topic(t), nil
}

func (v *adminView) topic(t *meta.Topic) httpapi.TopicDetail {
	a := v.app()
	def, _ := meta.ParseDurability(a.cfg.Store.Flush) // the configuration allows only words that can be read
	out := httpapi.TopicDetail{Queues: []httpapi.Queue{}, Topic: httpapi.Topic{
		Name: t.Name, ReadQueues: t.ReadQueues, WriteQueues: t.WriteQueues, Perm: permWord(t.Perm),
		Durability: t.Durability(def).String(), System: a.systemTopic(t),
		Idempotent: t.Once(), Order: t.Order, Attributes: otherAttributes(t.Attributes),
	}}
	if most, ok := t.KeepUntilConsumed(); ok {
		out.UntilConsumed = config.FormatDuration(most)
	}
	for id := range max(t.ReadQueues, t.WriteQueues) {
		q := a.store.Queue(t.Name, id, false)
		if q == nil {
			continue
		}
		least, next := q.Range()
		if next == 0 {
			continue
		}
		out.Messages += next - least
		out.Queues = append(out.Queues, httpapi.Queue{ID: id, MinOffset: least, MaxOffset: next})
	}
	return out
}

func permWord(perm int32) string {
	word := ""
	if perm&meta.PermRead != 0 {
		word += "r"
	}
	if perm&meta.PermWrite != 0 {
		word += "w"
	}
	if word == "" {
		return "-"
	}
	return word
}

// CreateTopic makes a topic.
func (v *adminView) CreateTopic(_ context.Context, n httpapi.NewTopic) (out httpapi.TopicDetail, err error) {
	a := v.app()
	t := meta.DefaultTopic(n.Name)
	if err := meta.CheckTopic(n.Name); err != nil {
		return out, refusal(err)
	}
	if a.systemTopic(&t) {
		return out, &httpapi.Problem{Status: http.StatusForbidden, Field: "name", Value: n.Name, Detail: fmt.Sprintf("topic %q belongs to the system", n.Name)}
	}
	if old := a.store.Topics().Get(n.Name); old != nil {
		return out, &httpapi.Problem{Status: http.StatusConflict, Field: "name", Value: n.Name, Detail: fmt.Sprintf("topic %q exists", n.Name)}
	}
	t.ReadQueues = int32(a.cfg.Broker.DefaultQueues)
	if n.Queues != 0 {
		t.ReadQueues = n.Queues
	}
	t.WriteQueues = t.ReadQueues
	if n.Perm == "" {
		n.Perm = "rw"
	}
	if t.Perm = permOf(n.Perm); t.Perm == 0 {
		return out, &httpapi.Problem{Status: http.StatusBadRequest, Field: "perm", Value: n.Perm, Limit: "r, w or rw", Detail: fmt.Sprintf("perm is %q; want r, w or rw", n.Perm)}
	}
	t.Order, t.Attributes = n.Order, map[string]string{}
	if n.Durability != "" {
		t.Attributes[meta.DurabilityAttribute] = n.Durability
	}
	if n.Idempotent {
		t.Attributes[meta.OnceAttribute] = "true"
	}
	if n.UntilConsumed != "" {
		t.Attributes[meta.UntilConsumedAttribute] = n.UntilConsumed
	}
	if err := a.store.Topics().Put(t); err != nil {
		return out, refusal(err)
	}
	a.log.Info("topic created", "topic", t.Name, "queues", t.WriteQueues, "by", "http")
	return v.topic(a.store.Topics().Get(t.Name)), nil
}

// refusal turns what the metadata says about a bad value into an answer; other errors stay as they are.
func refusal(err error) error {
	var bad *meta.Invalid
	if !errors.As(err, &bad) {
		return err
	}
	return &httpapi.Problem{Status: http.StatusBadRequest, Field: bad.Field, Value: bad.Value, Limit: bad.Limit, Detail: err.Error()}
}

// groupNames are the names of the groups of both front ends, sorted, each once.
func (v *adminView) groupNames(system bool, push *pushes) []string {
	a := v.app()
	var names []string
	all, _ := a.store.Groups().All()
	for _, g := range all {
		if system || !systemGroupName(g.Name) {
			names = append(names, g.Name)
		}
	}
	names = append(names, push.names...)
	slices.Sort(names)
	return slices.Compact(names)
}

// Groups lists groups.
func (v *adminView) Groups(ctx context.Context, p httpapi.Page) (httpapi.GroupPage, error) {
	push := v.app().readPushes()
	part, next := page(v.groupNames(p.System, &push), p)
	out := httpapi.GroupPage{Groups: []httpapi.Group{}, Next: next}
	pull := v.app().readPulls(part)
	push.follow(v.app(), part)
	for _, name := range part {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		out.Groups = append(out.Groups, v.group(name, &pull, &push))
	}
	return out, nil
}

// Group tells about one group.
func (v *adminView) Group(_ context.Context, name string) (httpapi.Group, error) {
	a := v.app()
	push := a.readPushes()
	if a.store.Groups().Get(name) == nil && !push.has(name) {
		return httpapi.Group{}, &httpapi.Problem{Status: http.StatusNotFound, Field: "name", Value: name, Detail: fmt.Sprintf("there is no group %q", name)}
	}
	pull := a.readPulls([]string{name})
	push.follow(a, []string{name})
	return v.group(name, &pull, &push), nil
}

// group assembles one group out of what was read.
func (v *adminView) group(name string, pull *pulls, push *pushes) httpapi.Group {
	a := v.app()
	if push.has(name) {
		return push.group(name)
	}
	g := httpapi.Group{Name: name, Mode: "pull", Topics: []httpapi.GroupTopic{}, Members: pull.members[name], Conflict: pull.conflicts[name]}
	for _, topic := range pull.topics[name] {
		lag := a.pullLag(name, topic)
		g.Lag += lag
		g.Topics = append(g.Topics, httpapi.GroupTopic{Topic: topic, Lag: lag})
	}
	return g
}

// pullLag is how many messages of a topic a pull group has not committed yet. A queue without an offset counts in full.
func (a *App) pullLag(group, topic string) (lag int64) {
	t := a.store.Topics().Get(topic)
	if t == nil {
		return 0
	}
	for id := range t.ReadQueues {
		q := a.store.Queue(topic, id, false)
		if q == nil {
			continue
		}
		least, next := q.Range()
		at, _ := a.store.Offsets().Get(group, topic, id)
		lag += max(0, next-max(at, least))
	}
	return lag
}

// Expiries lists the newest messages that were deleted before a group had read them.
func (v *adminView) Expiries(_ context.Context, most int) (httpapi.Expiries, error) {
	all, err := v.app().store.Expiries(most)
	es := httpapi.Expiries{Expiries: make([]httpapi.Expiry, len(all))}
	for i, e := range all {
		es.Expiries[i] = httpapi.Expiry{
			Group: e.Group, Topic: e.Topic, Queue: e.Queue, First: e.First, Last: e.Last, Count: e.Count, Reason: e.Reason, Face: e.Face,
			Time: time.UnixMilli(e.Time).UTC(),
		}
	}
	return es, err
}
