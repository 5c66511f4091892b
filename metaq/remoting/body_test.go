package remoting

import "testing"

func TestQuick(t *testing.T) {
	Pretouch()
	h, err := DecodeHeartbeat([]byte(`{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":1,"messageModel":"CLUSTERING","subscriptionDataSet":[{"topic":"T","codeSet":["12",-3],"subVersion":"5"}]}]}`))
	t.Logf("%+v %v", h, err)
	var r TopicRouteData
	t.Log(DecodeBody("x", []byte(`{"brokerDatas":[{"brokerAddrs":{0:"a:1",-1:"b"},"brokerName":"b"}]}`), &r), r)
	b, err := EncodeBody(r)
	t.Log(string(b), err)
	for _, s := range []string{"", "null", "[]", "{}", "{", `{"clientID":1}`, `{"clientID":"x","producerDataSet":[null]}`, `{"clientID":"x"}x`} {
		_, err := DecodeHeartbeat([]byte(s))
		t.Log(s, err)
	}
}
