package meta

import (
	"bytes"
	"encoding/json"
	"maps"
)

// Group is RocketMQ's SubscriptionGroupConfig.
type Group struct {
	Name                     string            `json:"groupName"`
	ConsumeEnable            bool              `json:"consumeEnable"`
	ConsumeFromMinEnable     bool              `json:"consumeFromMinEnable"`
	ConsumeBroadcastEnable   bool              `json:"consumeBroadcastEnable"`
	ConsumeMessageOrderly    bool              `json:"consumeMessageOrderly"`
	RetryQueues              int32             `json:"retryQueueNums"` // 0..MaxQueues; 0 means no retry topic
	RetryMaxTimes            int32             `json:"retryMaxTimes"`  // -1: no limit of its own
	BrokerID                 int64             `json:"brokerId"`
	WhichBrokerWhenSlow      int64             `json:"whichBrokerWhenConsumeSlowly"`
	NotifyConsumerIDsChanged bool              `json:"notifyConsumerIdsChangedEnable"`
	SysFlag                  int32             `json:"groupSysFlag"`
	ConsumeTimeoutMinutes    int32             `json:"consumeTimeoutMinute"`
	Attributes               map[string]string `json:"attributes"`

	// Extra are the fields this version does not know (groupRetryPolicy, subscriptionDataSet, ...), by name, as they were
	// read. Put keeps those of the stored group when it is nil.
	Extra map[string]json.RawMessage `json:"-"`
}

// DefaultGroup is a group with RocketMQ's defaults. Decode JSON onto one, so that fields that are not there have them.
func DefaultGroup(name string) Group {
	return Group{
		Name:                     name,
		ConsumeEnable:            true,
		ConsumeFromMinEnable:     true,
		ConsumeBroadcastEnable:   true,
		RetryQueues:              1,
		RetryMaxTimes:            16,
		WhichBrokerWhenSlow:      1,
		NotifyConsumerIDsChanged: true,
		ConsumeTimeoutMinutes:    15,
	}
}

// groupFields are the known fields in the order in which they are written. The retry policy is an extra field that is
// always there.
type groupFields struct {
	Attributes               map[string]string `json:"attributes"`
	BrokerID                 int64             `json:"brokerId"`
	ConsumeBroadcastEnable   bool              `json:"consumeBroadcastEnable"`
	ConsumeEnable            bool              `json:"consumeEnable"`
	ConsumeFromMinEnable     bool              `json:"consumeFromMinEnable"`
	ConsumeMessageOrderly    bool              `json:"consumeMessageOrderly"`
	ConsumeTimeoutMinutes    int32             `json:"consumeTimeoutMinute"`
	Name                     string            `json:"groupName"`
	RetryPolicy              json.RawMessage   `json:"groupRetryPolicy"`
	SysFlag                  int32             `json:"groupSysFlag"`
	NotifyConsumerIDsChanged bool              `json:"notifyConsumerIdsChangedEnable"`
	RetryMaxTimes            int32             `json:"retryMaxTimes"`
	RetryQueues              int32             `json:"retryQueueNums"`
	WhichBrokerWhenSlow      int64             `json:"whichBrokerWhenConsumeSlowly"`
}

const retryPolicy = "groupRetryPolicy"

var defaultRetryPolicy = json.RawMessage(`{"type":"CUSTOMIZED"}`)

func (g *Group) fields() groupFields {
	f := groupFields{g.Attributes, g.BrokerID, g.ConsumeBroadcastEnable, g.ConsumeEnable, g.ConsumeFromMinEnable, g.ConsumeMessageOrderly,
		g.ConsumeTimeoutMinutes, g.Name, g.Extra[retryPolicy], g.SysFlag, g.NotifyConsumerIDsChanged, g.RetryMaxTimes, g.RetryQueues, g.WhichBrokerWhenSlow}
	if f.Attributes == nil {
		f.Attributes = map[string]string{}
	}
	if f.RetryPolicy == nil {
		f.RetryPolicy = defaultRetryPolicy
	}
	return f
}

// MarshalJSON writes the known fields and Extra, ordered by name. A group without a retry policy gets RocketMQ's default
// one, which its Java classes write as well.
func (g Group) MarshalJSON() ([]byte, error) {
	extra := g.Extra
	if _, ok := extra[retryPolicy]; ok && len(extra) == 1 {
		extra = nil // it is among the fields
	}
	return marshalWith(g.fields(), extra)
}

// UnmarshalJSON sets the fields that are there and leaves the others as they are; what it does not know goes to Extra.
func (g *Group) UnmarshalJSON(b []byte) error {
	f := g.fields()
	// Decoding into a map or a RawMessage would change that of whoever shares it.
	f.Attributes, f.RetryPolicy = nil, nil
	extra, err := unmarshalWith(b, &f, groupNames)
	if err != nil {
		return err
	}
	if len(extra) == 0 && f.RetryPolicy != nil && !bytes.Equal(f.RetryPolicy, defaultRetryPolicy) {
		extra = map[string]json.RawMessage{retryPolicy: f.RetryPolicy}
	}
	if f.Attributes == nil {
		f.Attributes = g.Attributes
	}
	*g = Group{f.Name, f.ConsumeEnable, f.ConsumeFromMinEnable, f.ConsumeBroadcastEnable, f.ConsumeMessageOrderly, f.RetryQueues, f.RetryMaxTimes,
		f.BrokerID, f.WhichBrokerWhenSlow, f.NotifyConsumerIDsChanged, f.SysFlag, f.ConsumeTimeoutMinutes, f.Attributes, extra}
	return nil
}

var groupNames = func() map[string]bool {
	names := fieldNames(groupFields{})
	delete(names, retryPolicy)
	return names
}()

func (g *Group) check() error {
	if err := CheckGroup(g.Name); err != nil {
		return err
	}
	if g.RetryQueues < 0 || g.RetryQueues > maxRetryQueues {
		return invalidInt("retryQueueNums", int64(g.RetryQueues), "0 to 16384")
	}
	if g.RetryMaxTimes < -1 {
		return invalidInt("retryMaxTimes", int64(g.RetryMaxTimes), "-1 or more")
	}
	if g.BrokerID < 0 {
		return invalidInt("brokerId", g.BrokerID, "0 or more")
	}
	if err := checkAttributes(g.Attributes); err != nil {
		return err
	}
	return checkExtra(g.Extra)
}

func (g Group) clone() *Group {
	g.Attributes = maps.Clone(g.Attributes)
	g.Extra = maps.Clone(g.Extra)
	return &g
}
