package broker

// Topics and groups: UPDATE_AND_CREATE_TOPIC (17), GET_ALL_TOPIC_CONFIG (21), GET_TOPIC_CONFIG (351),
// UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200), GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), GET_SUBSCRIPTIONGROUP_CONFIG (352).

import (
	"errors"
	"strings"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store/meta"
)

func updateTopic(c *call) error {
	name := c.req.Get("topic")
	if err := c.b.checkAdminTopic(name); err != nil {
		return err
	}
	defer c.b.creating.lock(name)()
	_, _, err := c.b.store.Topics().Change(name, func(t *meta.Topic) error { return c.setTopic(t, false) })
	if errors.Is(err, meta.ErrNoTopic) {
		t := meta.DefaultTopic(strings.Clone(name))
		if err := c.setTopic(&t, true); err != nil {
			return err
		}
		_, err = c.b.putNewTopicLocked(t)
	}
	if err != nil {
		return err
	}
	return c.ok()
}

// setTopic gives t, which is fresh or was there, what the request says.
func (c *call) setTopic(t *meta.Topic, fresh bool) error {
	r := c.req
	for _, f := range []struct {
		field string
		to    *int32
	}{{"readQueueNums", &t.ReadQueues}, {"writeQueueNums", &t.WriteQueues}, {"perm", &t.Perm}} {
		n, err := r.Int32(f.field)
		if err != nil {
			return err
		}
		*f.to = n
	}
	var err error
	if t.SysFlag, err = r.OptInt32("topicSysFlag", 0); err != nil {
		return err
	}
	if s := r.Get("topicFilterType"); s != "" {
		t.FilterType = strings.Clone(s)
	}
	t.Order = r.Bool("order", false)
	t.Attributes, err = changeAttributes(t.Attributes, r.Get("attributes"), fresh)
	return err
}

func topicConfig(c *call) error {
	name := c.req.Get("topic")
	t := c.b.store.Topics().Get(name)
	if t == nil {
		return refuse(remoting.RespTopicNotExist, "No topic in this broker. topic: %s", clip(name))
	}
	return c.json(t)
}

func allTopics(c *call) error {
	all, version := c.b.store.Topics().All()
	table := make(map[string]*meta.Topic, len(all))
	for _, t := range all {
		table[t.Name] = t
	}
	return c.json(struct {
		Version        meta.DataVersion       `json:"dataVersion"`
		MappingVersion meta.DataVersion       `json:"mappingDataVersion"`
		Topics         map[string]*meta.Topic `json:"topicConfigTable"`
		Mappings       map[string]struct{}    `json:"topicQueueMappingDetailMap"`
	}{version, meta.DataVersion{}, table, map[string]struct{}{}})
}

func updateGroup(c *call) error {
	g := meta.DefaultGroup("")
	if err := remoting.DecodeBody("a SubscriptionGroupConfig", c.req.Body, &g); err != nil {
		return err
	}
	if err := meta.CheckGroup(g.Name); err != nil {
		return err
	}
	defer c.b.creating.lock(g.Name)()
	fresh, err := c.b.claimGroup(g.Name)
	if err != nil {
		return err
	}
	if err := c.b.store.Groups().Put(g); err != nil {
		if fresh {
			c.b.store.UnclaimGroup(g.Name)
		}
		return err
	}
	return c.ok()
}

func allGroups(c *call) error {
	all, version := c.b.store.Groups().All()
	table := make(map[string]*meta.Group, len(all))
	for _, g := range all {
		table[g.Name] = g
	}
	return c.json(struct {
		Version   meta.DataVersion       `json:"dataVersion"`
		Forbidden map[string]struct{}    `json:"forbiddenTable"`
		Groups    map[string]*meta.Group `json:"subscriptionGroupTable"`
	}{version, map[string]struct{}{}, table})
}

func groupConfig(c *call) error {
	name, err := c.req.Require("group")
	if err != nil {
		return err
	}
	g, err := c.b.group(name)
	if err != nil {
		return err
	}
	return c.json(g)
}
