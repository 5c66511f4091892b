package remoting

import (
	"fmt"
	"strconv"
)

// HeartbeatData is the body of HEART_BEAT (34).
type HeartbeatData struct {
	ClientID             string         `json:"clientID"`
	ConsumerDataSet      []ConsumerData `json:"consumerDataSet"`
	HeartbeatFingerprint Long           `json:"heartbeatFingerprint"` // not 0: heartbeat V2
	ProducerDataSet      []ProducerData `json:"producerDataSet"`
	WithoutSub           bool           `json:"withoutSub"` // V2: membership only, keep the subscriptions you have
}

// ProducerData names a producer group of a heartbeat.
type ProducerData struct {
	GroupName string `json:"groupName"`
}

// ConsumerData is one consumer group of a heartbeat.
type ConsumerData struct {
	ConsumeFromWhere    ConsumeFromWhere   `json:"consumeFromWhere,omitempty"`
	ConsumeType         ConsumeType        `json:"consumeType,omitempty"`
	GroupName           string             `json:"groupName"`
	MessageModel        MessageModel       `json:"messageModel,omitempty"`
	SubscriptionDataSet []SubscriptionData `json:"subscriptionDataSet"`
	UnitMode            bool               `json:"unitMode"`
}

// SubscriptionData is the interest of a group in a topic. CodeSet is for show: Go clients hash over UTF-8 bytes, so a broker
// hashes TagsSet itself. TagsSet may be absent although SubString names tags.
type SubscriptionData struct {
	ClassFilterMode bool     `json:"classFilterMode"`
	CodeSet         []Long   `json:"codeSet"`
	ExpressionType  string   `json:"expressionType"` // "" means TAG
	SubString       string   `json:"subString"`
	SubVersion      Long     `json:"subVersion"` // Java: milliseconds, Go: nanoseconds
	TagsSet         []string `json:"tagsSet"`
	Topic           string   `json:"topic"`
}

// maxHeartbeat bounds the values of a heartbeat: 1,000 groups with 5 subscriptions each have 50,000.
const maxHeartbeat = 1 << 17

// DecodeHeartbeat reads and checks the body of a heartbeat.
func DecodeHeartbeat(b []byte) (*HeartbeatData, error) {
	const what = "heartbeat data"
	var h HeartbeatData
	if err := decodeBody(what, b, &h, maxHeartbeat); err != nil {
		return nil, err
	}
	need := func(field, v string) error {
		if v == "" {
			return &BodyError{what, &FieldError{Field: field, Missing: true}}
		}
		return nil
	}
	if err := need("clientID", h.ClientID); err != nil {
		return nil, err
	}
	for i, p := range h.ProducerDataSet {
		if err := need("producerDataSet["+strconv.Itoa(i)+"].groupName", p.GroupName); err != nil {
			return nil, err
		}
	}
	for i, c := range h.ConsumerDataSet {
		at := "consumerDataSet[" + strconv.Itoa(i) + "]"
		if err := need(at+".groupName", c.GroupName); err != nil {
			return nil, err
		}
		for j, s := range c.SubscriptionDataSet {
			if err := need(fmt.Sprintf("%s.subscriptionDataSet[%d].topic", at, j), s.Topic); err != nil {
				return nil, err
			}
		}
	}
	return &h, nil
}

// CheckClientConfig is the body of CHECK_CLIENT_CONFIG (46).
type CheckClientConfig struct {
	ClientID         string            `json:"clientId"`
	Group            string            `json:"group"`
	Namespace        string            `json:"namespace,omitempty"`
	SubscriptionData *SubscriptionData `json:"subscriptionData,omitempty"`
}

// ConsumerIDs is the answer to GET_CONSUMER_LIST_BY_GROUP (38).
type ConsumerIDs struct {
	ConsumerIDList []string `json:"consumerIdList"`
}

// MessageQueue names a queue.
type MessageQueue struct {
	BrokerName string `json:"brokerName"`
	QueueID    int32  `json:"queueId"`
	Topic      string `json:"topic"`
}

// LockBatchRequest is the body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ (41, 42).
type LockBatchRequest struct {
	ClientID       string         `json:"clientId"`
	ConsumerGroup  string         `json:"consumerGroup"`
	MQSet          []MessageQueue `json:"mqSet"`
	OnlyThisBroker bool           `json:"onlyThisBroker"`
}

// LockBatchResult is the answer to LOCK_BATCH_MQ.
type LockBatchResult struct {
	LockOKMQSet []MessageQueue `json:"lockOKMQSet"`
}

// Connection is a client of a group as inspection answers list it.
type Connection struct {
	ClientAddr string `json:"clientAddr"`
	ClientID   string `json:"clientId"`
	Language   string `json:"language"`
	Version    int32  `json:"version"`
}

// ConsumerConnection is the answer to GET_CONSUMER_CONNECTION_LIST (203).
type ConsumerConnection struct {
	ConnectionSet     []Connection                `json:"connectionSet"`
	ConsumeFromWhere  ConsumeFromWhere            `json:"consumeFromWhere,omitempty"`
	ConsumeType       ConsumeType                 `json:"consumeType,omitempty"`
	MessageModel      MessageModel                `json:"messageModel,omitempty"`
	SubscriptionTable map[string]SubscriptionData `json:"subscriptionTable"`
}

// ProducerConnection is the answer to GET_PRODUCER_CONNECTION_LIST (204).
type ProducerConnection struct {
	ConnectionSet []Connection `json:"connectionSet"`
}
