package remoting

import (
	"errors"
	"strings"
	"testing"
)

func TestHeartbeatOfACPPClientIsRead(t *testing.T) {
	// Ordinals for enums, quoted numbers, sets left out.
	h, err := DecodeHeartbeat([]byte(`{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":1,"messageModel":1,"consumeFromWhere":4,
		"subscriptionDataSet":[{"topic":"T","subString":"A","codeSet":["12",-3,null],"subVersion":"1700000000000"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	c := h.ConsumerDataSet[0]
	s := c.SubscriptionDataSet[0]
	if c.ConsumeType != ConsumePassively || c.MessageModel != Clustering || c.ConsumeFromWhere != FromFirstOffset || s.SubVersion != 1700000000000 ||
		len(s.CodeSet) != 3 || s.CodeSet[1] != -3 || s.TagsSet != nil || s.ExpressionType != "" {
		t.Errorf("got %+v", c)
	}
}

func TestBadBodiesAreRefusedByName(t *testing.T) { // faults REM-07
	for _, tc := range []struct{ name, give, want string }{
		{"empty", "", "heartbeat data: the body is empty"},
		{"blank", " \n", "the body is empty"},
		{"null", "null", "starts with 'n'"},
		{"list", "[]", "starts with '['"},
		{"no client id", "{}", "field clientID is missing"},
		{"cut off", `{"clientID":"x`, "string without end"},
		{"wrong type", `{"clientID":[1]}`, "heartbeat data"},
		{"null element", `{"clientID":"x","producerDataSet":[null]}`, "producerDataSet[0].groupName is missing"},
		{"no topic", `{"clientID":"x","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{}]}]}`, "consumerDataSet[0].subscriptionDataSet[0].topic is missing"},
		{"garbage behind", `{"clientID":"x"}x`, "heartbeat data"},
		{"number too large", `{"clientID":"x","heartbeatFingerprint":"99999999999999999999"}`, "heartbeat data"},
		{"deep", `{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}", "nested deeper than 64"},
		{"too many values", `{"clientID":"x","consumerDataSet":[` + strings.Repeat("{},", 1<<17) + `{}]}`, "more than 131072 values"},
		{"very deep", strings.Repeat(`{"a":`, 1_000_000), "nested deeper than 64"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := DecodeHeartbeat([]byte(tc.give))
			var b *BodyError
			if !errors.As(err, &b) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want a *BodyError with %q", err, tc.want)
			}
			if len(err.Error()) > 300 {
				t.Errorf("the remark has %d bytes", len(err.Error()))
			}
		})
	}
}

func TestFastjsonKeysBecomeJSON(t *testing.T) {
	for _, tc := range []struct{ name, give, want string }{
		{"already JSON", `{"a":{"0":1}}`, `{"a":{"0":1}}`},
		{"integer keys", `{"a":{0:"x",-12:"y"},"b":[1,-2,{3:4}]}`, `{"a":{"0":"x","-12":"y"},"b":[1,-2,{"3":4}]}`},
		{"object keys", `{{"q":1,"t":"a\"b"}:5,{"q":2}:6}`, `{"{\"q\":1,\"t\":\"a\\\"b\"}":5,"{\"q\":2}":6}`},
		{"looks like one in a string", `{"a":"{0:1}","b":"\"{1:2"}`, `{"a":"{0:1}","b":"\"{1:2"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := standardJSON([]byte(tc.give), 100)
			if err != nil || string(got) != tc.want {
				t.Errorf("standardJSON(%s) = %s, %v, want %s", tc.give, got, err, tc.want)
			}
		})
	}
}

func TestRouteIsWrittenAsGoClientsCanReadIt(t *testing.T) {
	r := TopicRouteData{
		BrokerDatas: []BrokerData{{BrokerAddrs: map[int64]string{1: "10.0.0.2:10911", 0: "10.0.0.1:10911"}, BrokerName: "broker-a", Cluster: "C"}},
		QueueDatas:  []QueueData{{BrokerName: "broker-a", Perm: 6, ReadQueueNums: 4, WriteQueueNums: 4}},
	}
	got, err := EncodeBody(r)
	const want = `{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"C","enableActingMaster":false}],` +
		`"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
	// Absent lists are empty, not null: the Go client slices into brokerAddrs without looking.
	got, err = EncodeBody(TopicRouteData{BrokerDatas: []BrokerData{{}}})
	if err != nil || strings.Contains(string(got), "null") {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestTopicAndGroupFieldsThatAreAbsentHaveTheirDefaults(t *testing.T) {
	var l TopicConfigList
	if err := DecodeBody("topics", []byte(`{"topicConfigList":[{"topicName":"T","perm":4}]}`), &l); err != nil {
		t.Fatal(err)
	}
	if c := l.TopicConfigList[0]; c.Perm != 4 || c.ReadQueueNums != 16 || c.WriteQueueNums != 16 || c.TopicFilterType != "SINGLE_TAG" {
		t.Errorf("got %+v", c)
	}
	var g SubscriptionGroupConfig
	if err := DecodeBody("group", []byte(`{"groupName":"G","consumeEnable":false}`), &g); err != nil {
		t.Fatal(err)
	}
	if g.ConsumeEnable || !g.ConsumeBroadcastEnable || g.RetryMaxTimes != 16 || g.GroupRetryPolicy.Type != "CUSTOMIZED" {
		t.Errorf("got %+v", g)
	}
}

func TestDecodedBodiesDoNotAliasTheFrame(t *testing.T) {
	b := []byte(`{"clientID":"client-one","producerDataSet":[{"groupName":"group-one"}]}`)
	h, err := DecodeHeartbeat(b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		b[i] = 'x'
	}
	if h.ClientID != "client-one" || h.ProducerDataSet[0].GroupName != "group-one" {
		t.Errorf("got %+v", h)
	}
}

func TestAZipBombIsRefused(t *testing.T) {
	if err := new(RegisterBrokerBody).inflate(bomb(t, 1<<20), 1<<20-1); err == nil || !strings.Contains(err.Error(), "inflates to more than") {
		t.Errorf("got %v", err)
	}
}
