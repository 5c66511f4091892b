package remoting

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// MasterID is the broker id of a master.
const MasterID int64 = 0

// TopicRouteData is the answer to GET_ROUTEINFO_BY_TOPIC (105): where the queues of a topic are.
type TopicRouteData struct {
	BrokerDatas       []BrokerData        `json:"brokerDatas"`
	FilterServerTable map[string][]string `json:"filterServerTable"`
	OrderTopicConf    string              `json:"orderTopicConf,omitempty"` // broker-a:4;broker-b:4
	QueueDatas        []QueueData         `json:"queueDatas"`
}

// BrokerData is a broker group: a master and its replicas.
type BrokerData struct {
	BrokerAddrs        map[int64]string `json:"brokerAddrs"` // broker id to host:port; no comma in the address
	BrokerName         string           `json:"brokerName"`
	Cluster            string           `json:"cluster"`
	EnableActingMaster bool             `json:"enableActingMaster"`
	ZoneName           string           `json:"zoneName,omitempty"`
}

// QueueData is what one broker group has of a topic.
type QueueData struct {
	BrokerName     string `json:"brokerName"`
	Perm           int32  `json:"perm"`
	ReadQueueNums  int32  `json:"readQueueNums"`
	TopicSysFlag   int32  `json:"topicSysFlag"`
	WriteQueueNums int32  `json:"writeQueueNums"`
}

// ClusterInfo is the answer to GET_BROKER_CLUSTER_INFO (106).
type ClusterInfo struct {
	BrokerAddrTable  map[string]BrokerData `json:"brokerAddrTable"`
	ClusterAddrTable map[string][]string   `json:"clusterAddrTable"`
}

// BrokerMemberGroup is the answer to GET_BROKER_MEMBER_GROUP (901).
type BrokerMemberGroup struct {
	BrokerMemberGroup BrokerMembers `json:"brokerMemberGroup"`
}

// BrokerMembers are the live members of a broker group.
type BrokerMembers struct {
	BrokerAddrs map[int64]string `json:"brokerAddrs"`
	BrokerName  string           `json:"brokerName"`
	Cluster     string           `json:"cluster"`
}

// RegisterBrokerBody is the body of REGISTER_BROKER (103).
type RegisterBrokerBody struct {
	FilterServerList            []string         `json:"filterServerList"`
	TopicConfigSerializeWrapper TopicConfigTable `json:"topicConfigSerializeWrapper"`
}

// maxInflated bounds what a compressed registration may grow to: 500,000 topics with long names.
const maxInflated = 64 << 20

// DecodeRegisterBody reads the body of a registration in either form. A body that starts with 0x78 is a zlib stream
// whatever the header says: RocketMQ 5.3.3 sends compressed=false with a compressed body.
func DecodeRegisterBody(b []byte) (*RegisterBrokerBody, error) {
	const what = "the topics of the broker (RegisterBrokerBody)"
	r := new(RegisterBrokerBody)
	if len(b) > 0 && b[0] == 0x78 {
		if err := r.inflate(b, maxInflated); err != nil {
			return nil, &BodyError{what, err}
		}
		return r, nil
	}
	if err := DecodeBody(what, b, r); err != nil {
		return nil, err
	}
	for name, t := range r.TopicConfigSerializeWrapper.TopicConfigTable {
		if t.TopicName == "" {
			t.TopicName = name
			r.TopicConfigSerializeWrapper.TopicConfigTable[name] = t
		}
	}
	return r, nil
}

// inflate reads the compressed form: length + DataVersion JSON; count; per topic length + "name read write perm filterType
// attributesJSON"; length + filter servers JSON; more that newer brokers add and nobody needs.
func (r *RegisterBrokerBody) inflate(b []byte, limit int) error {
	z, err := zlib.NewReader(bytes.NewReader(b))
	if err != nil {
		return err
	}
	b, err = io.ReadAll(io.LimitReader(z, int64(limit)+1))
	if err != nil {
		return fmt.Errorf("inflate: %w", err)
	}
	if len(b) > limit {
		return fmt.Errorf("inflates to more than %d bytes", limit)
	}
	word := func() (int, error) {
		if len(b) < 4 {
			return 0, io.ErrUnexpectedEOF
		}
		n := int32(binary.BigEndian.Uint32(b))
		if b = b[4:]; n < 0 || int(n) > len(b) {
			return 0, fmt.Errorf("length or count %d, but only %d bytes follow", n, len(b))
		}
		return int(n), nil
	}
	text := func() ([]byte, error) {
		n, err := word()
		if err != nil {
			return nil, err
		}
		s := b[:n]
		b = b[n:]
		return s, nil
	}
	s, err := text()
	if err != nil {
		return fmt.Errorf("data version: %w", err)
	}
	w := &r.TopicConfigSerializeWrapper
	if err := json.Unmarshal(s, &w.DataVersion); err != nil {
		return fmt.Errorf("data version: %w", err)
	}
	n, err := word()
	if err != nil {
		return fmt.Errorf("topic count: %w", err)
	}
	w.TopicConfigTable = make(map[string]TopicConfig, min(n, 1024))
	for i := range n {
		s, err := text()
		if err != nil {
			return fmt.Errorf("topic %d: %w", i, err)
		}
		t, err := parseTopicLine(string(s))
		if err != nil {
			return fmt.Errorf("topic %d: %w", i, err)
		}
		w.TopicConfigTable[t.TopicName] = t
	}
	if s, err = text(); err != nil {
		return fmt.Errorf("filter servers: %w", err)
	}
	if err := json.Unmarshal(s, &r.FilterServerList); err != nil {
		return fmt.Errorf("filter servers: %w", err)
	}
	return nil
}

func parseTopicLine(s string) (TopicConfig, error) {
	t := NewTopicConfig("")
	words := strings.SplitN(s, " ", 6)
	if len(words) < 5 || words[0] == "" {
		return t, fmt.Errorf("%q is not NAME READ WRITE PERM FILTERTYPE", clip(s))
	}
	t.TopicName, t.TopicFilterType = words[0], words[4]
	for i, to := range []*int32{&t.ReadQueueNums, &t.WriteQueueNums, &t.Perm} {
		n, err := strconv.ParseInt(words[i+1], 10, 32)
		if err != nil {
			return t, fmt.Errorf("%q: %w", clip(s), errors.Unwrap(err))
		}
		*to = int32(n)
	}
	if len(words) == 6 && words[5] != "" { // RocketMQ 4 has no sixth word
		if err := json.Unmarshal([]byte(words[5]), &t.Attributes); err != nil {
			return t, fmt.Errorf("attributes of %q: %w", t.TopicName, err)
		}
	}
	return t, nil
}
