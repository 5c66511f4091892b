package remoting

import "strconv"

// Perm bits of a topic.
const (
	PermInherit int32 = 1 << 0 // the topic is a template for auto-created ones
	PermWrite   int32 = 1 << 1
	PermRead    int32 = 1 << 2
)

// DataVersion orders the states of a table.
type DataVersion struct {
	Counter      int64 `json:"counter"`
	StateVersion int64 `json:"stateVersion"`
	Timestamp    int64 `json:"timestamp"` // milliseconds since 1970
}

// TopicConfig is a topic as RocketMQ's tools and brokers exchange it. Fields absent from JSON have RocketMQ's defaults.
type TopicConfig struct {
	Attributes      map[string]string `json:"attributes"`
	Order           bool              `json:"order"`
	Perm            int32             `json:"perm"`
	ReadQueueNums   int32             `json:"readQueueNums"`
	TopicFilterType string            `json:"topicFilterType"` // SINGLE_TAG or MULTI_TAG, without effect
	TopicName       string            `json:"topicName"`
	TopicSysFlag    int32             `json:"topicSysFlag"`
	WriteQueueNums  int32             `json:"writeQueueNums"`
}

// NewTopicConfig returns the defaults of RocketMQ's class.
func NewTopicConfig(name string) TopicConfig {
	return TopicConfig{Perm: PermRead | PermWrite, ReadQueueNums: 16, WriteQueueNums: 16, TopicFilterType: "SINGLE_TAG", TopicName: name}
}

func (t *TopicConfig) UnmarshalJSON(b []byte) error {
	type fields TopicConfig
	f := fields(NewTopicConfig(""))
	if err := bodyDecoder.Unmarshal(b, &f); err != nil {
		return err
	}
	*t = TopicConfig(f)
	return nil
}

// TopicConfigList is the body of UPDATE_AND_CREATE_TOPIC_LIST (18).
type TopicConfigList struct {
	TopicConfigList []TopicConfig `json:"topicConfigList"`
}

// TopicConfigTable is the answer to GET_ALL_TOPIC_CONFIG (21), and part of a broker's registration.
type TopicConfigTable struct {
	DataVersion      DataVersion            `json:"dataVersion"`
	TopicConfigTable map[string]TopicConfig `json:"topicConfigTable"`
}

// TopicList is the answer to the requests that list topic names (206, 224, 304, 305, 343).
type TopicList struct {
	BrokerAddr string   `json:"brokerAddr,omitempty"`
	TopicList  []string `json:"topicList"`
}

// SubscriptionGroupConfig is a consumer group as RocketMQ's tools exchange it. Fields absent from JSON have RocketMQ's
// defaults.
type SubscriptionGroupConfig struct {
	Attributes                     map[string]string `json:"attributes"`
	BrokerID                       int64             `json:"brokerId"`
	ConsumeBroadcastEnable         bool              `json:"consumeBroadcastEnable"`
	ConsumeEnable                  bool              `json:"consumeEnable"`
	ConsumeFromMinEnable           bool              `json:"consumeFromMinEnable"`
	ConsumeMessageOrderly          bool              `json:"consumeMessageOrderly"`
	ConsumeTimeoutMinute           int32             `json:"consumeTimeoutMinute"`
	GroupName                      string            `json:"groupName"`
	GroupRetryPolicy               RetryPolicy       `json:"groupRetryPolicy"`
	GroupSysFlag                   int32             `json:"groupSysFlag"`
	NotifyConsumerIDsChangedEnable bool              `json:"notifyConsumerIdsChangedEnable"`
	RetryMaxTimes                  int32             `json:"retryMaxTimes"`
	RetryQueueNums                 int32             `json:"retryQueueNums"`
	WhichBrokerWhenConsumeSlowly   int64             `json:"whichBrokerWhenConsumeSlowly"`
}

// RetryPolicy is how a group's retries are spaced.
type RetryPolicy struct {
	Type string `json:"type"`
}

// NewSubscriptionGroupConfig returns the defaults of RocketMQ's class.
func NewSubscriptionGroupConfig(group string) SubscriptionGroupConfig {
	return SubscriptionGroupConfig{
		ConsumeBroadcastEnable: true, ConsumeEnable: true, ConsumeFromMinEnable: true, ConsumeTimeoutMinute: 15, GroupName: group,
		GroupRetryPolicy: RetryPolicy{"CUSTOMIZED"}, NotifyConsumerIDsChangedEnable: true, RetryMaxTimes: 16, RetryQueueNums: 1,
		WhichBrokerWhenConsumeSlowly: 1,
	}
}

func (g *SubscriptionGroupConfig) UnmarshalJSON(b []byte) error {
	type fields SubscriptionGroupConfig
	f := fields(NewSubscriptionGroupConfig(""))
	if err := bodyDecoder.Unmarshal(b, &f); err != nil {
		return err
	}
	*g = SubscriptionGroupConfig(f)
	return nil
}

// SubscriptionGroupTable is the answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201).
type SubscriptionGroupTable struct {
	DataVersion            DataVersion                        `json:"dataVersion"`
	ForbiddenTable         map[string]map[string]int32        `json:"forbiddenTable"`
	SubscriptionGroupTable map[string]SubscriptionGroupConfig `json:"subscriptionGroupTable"`
}

// KVTable is the answer to GET_BROKER_RUNTIME_INFO (28), GET_KVLIST_BY_NAMESPACE (219) and REGISTER_BROKER (103).
type KVTable struct {
	Table map[string]string `json:"table"`
}

// QueueOffset is an offset of a queue.
type QueueOffset struct {
	MessageQueue
	Offset int64
}

// AppendOffsetTable appends the body of answers and requests that have offsets by queue (222, 220), as Java writes it: objects are keys, which no
// JSON has.
func AppendOffsetTable(b []byte, qs []QueueOffset) []byte {
	b = append(b, `{"offsetTable":{`...)
	for i, q := range qs {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"brokerName":"`...)
		b = appendEscaped(b, q.BrokerName)
		b = append(b, `","queueId":`...)
		b = strconv.AppendInt(b, int64(q.QueueID), 10)
		b = append(b, `,"topic":"`...)
		b = appendEscaped(b, q.Topic)
		b = append(b, `"}:`...)
		b = strconv.AppendInt(b, q.Offset, 10)
	}
	return append(b, "}}"...)
}
