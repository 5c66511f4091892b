package meta

import (
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

type groupFields Group // without methods, so that encoding/json does not call them again

// MarshalJSON writes the known fields and Extra, ordered by name. A group without a retry policy gets RocketMQ's default
// one, which its Java classes write as well.
func (g Group) MarshalJSON() ([]byte, error) {
	if g.Attributes == nil {
		g.Attributes = map[string]string{}
	}
	extra := g.Extra
	if _, ok := extra["groupRetryPolicy"]; !ok {
		if extra = maps.Clone(extra); extra == nil {
			extra = map[string]json.RawMessage{}
		}
		extra["groupRetryPolicy"] = json.RawMessage(`{"type":"CUSTOMIZED"}`)
	}
	return marshalWith(groupFields(g), extra)
}

// UnmarshalJSON sets the fields that are there and leaves the others as they are; what it does not know goes to Extra.
func (g *Group) UnmarshalJSON(b []byte) error {
	extra, err := unmarshalWith(b, (*groupFields)(g), groupNames)
	if err == nil {
		g.Extra = extra
	}
	return err
}

var groupNames = fieldNames(groupFields{})

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
