package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/metaq/internal/vectors"
	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store"
)

// differences are answers that are meant to differ from RocketMQ 5.3.3's, by request and its code there, each with the
// code here. docs/compat.md says why.
var differences = map[string]int32{
	"raw send, empty body/1":                               remoting.RespMessageIllegal,   // there a NullPointerException
	"raw send, missing field/1":                            remoting.RespInvalidParameter, // there a NullPointerException
	"raw send, number not parsable/1":                      remoting.RespInvalidParameter, // there a NumberFormatException
	"raw code 10 with short names/1":                       remoting.RespSuccess,          // either spelling is read
	"raw send, topic without write permission/0":           remoting.RespNoPermission,     // there stored
	"pull unknown topic, bad queue, unknown group (raw)/1": remoting.RespInvalidParameter, // there a NullPointerException
	"timer message beyond the limit/13":                    remoting.RespSuccess,          // there 3 days, here 40
	"raw 222 127.0.0.2:20911 - topic VecT group GID_vec_pull timestamp -1 isForce true/206": remoting.RespSuccess, // there with useServerSideResetOffset=false
	"pull SQL92 bad/0": remoting.RespSubscriptionParseFailed, // there all messages, unfiltered
}

// stateful are requests whose outcome depends on what was stored and who was there before. The recordings leave out
// repeated exchanges, so only what does not depend on them is compared: any of these codes will do for any other.
var stateful = map[int32][]int32{
	remoting.ReqPullMessage:               {0, 1, 19, 20, 21, 24, 25},
	remoting.ReqLitePullMessage:           {0, 1, 19, 20, 21, 24, 25},
	remoting.ReqQueryConsumerOffset:       {0, 22},
	remoting.ReqGetConsumerListByGroup:    {0, 1},
	remoting.ReqViewMessageByID:           {0, 1},
	remoting.ReqQueryMessage:              {0, 22},
	remoting.ReqConsumerSendMsgBack:       {0, 1}, // the positions of another log
	remoting.ReqGetConsumerConnectionList: {0, 206},
	remoting.ReqGetProducerConnectionList: {0, 1},
	remoting.ReqEndTransaction:            {0, 1},   // of another broker's offsets
	remoting.ReqRecallMessage:             {0, 604}, // the times in the handles are over
}

// Requests recorded from real clients get the code and the fields that RocketMQ 5.3.3 answered.
func TestLaw10RecordedRequests(t *testing.T) {
	for _, file := range []string{"go-2173d07", "go-2173d07-binary", "java-5.3.3", "java-5.3.3-binary", "mqadmin-5.3.3"} {
		t.Run(file, func(t *testing.T) { replay(t, file) })
	}
}

func replay(t *testing.T, file string) {
	frames, err := vectors.Load("../remoting/testdata", file)
	if err != nil {
		t.Fatal(err)
	}
	frames = slices.DeleteFunc(frames, func(f *vectors.Frame) bool { return f.File != file })
	e := start(t, func(c *Config, _ *store.Options) { c.MaxBodyBytes, c.MaxHold = 16384, 20*time.Millisecond })
	for name, queues := range map[string]int{"VecT": 4, "VecT2": 2, "VecEmpty": 1, "VecTimer": 1, "VecPop": 2, "VecTx": 2, "VecReq": 1, "VecNoReq": 1,
		"%RETRY%GID_vec_gopull": 1, "%RETRY%GID_vec_goorder": 1, "%RETRY%GID_vec_hold": 1} { // the heartbeats that made these were left out of the recording
		e.topic(name, queues)
	}
	c := e.dial()
	c.ok(remoting.ReqUpdateAndCreateTopic, nil, "topic", "VecReadOnly", "readQueueNums", "1", "writeQueueNums", "1", "perm", "4")
	c.ok(remoting.ReqUpdateAndCreateTopic, nil, "topic", "VecWriteOnly", "readQueueNums", "1", "writeQueueNums", "1", "perm", "2")
	c.ok(remoting.ReqUpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"GID_vec_off","consumeEnable":false}`))
	for _, g := range []string{"GID_vec_goorder", "GID_vec_gopush", "GID_vec_gosql", "GID_vec_hold", "GID_vec_pull"} {
		c.ok(remoting.ReqUpdateAndCreateSubscriptionGroup, fmt.Appendf(nil, `{"groupName":%q}`, g))
	}

	answers := map[int]*vectors.Frame{}
	for _, f := range frames {
		if f.Response {
			answers[f.Answers] = f
		}
	}
	conns := map[int]*client{}
	compared := 0
	for _, f := range frames {
		if f.Peer != "broker" || f.Dir != "c2s" || f.Response {
			continue
		}
		hot := slices.Contains([]int32{remoting.ReqSendMessage, remoting.ReqSendMessageV2, remoting.ReqSendBatchMessage, remoting.ReqEndTransaction, remoting.ReqPullMessage, remoting.ReqLitePullMessage}, f.Code)
		want := answers[f.N]
		if handlers[f.Code] == nil && !hot || want == nil && !f.Oneway {
			continue
		}
		c := conns[f.Conn]
		if c == nil {
			c = e.dial()
			conns[f.Conn] = c
		}
		if _, err := c.conn.Write(f.Bytes); err != nil {
			t.Fatalf("%v: %v", f, err)
		}
		if f.Oneway {
			continue
		}
		got := c.read(20 * time.Second)
		for got != nil && !got.Response() {
			got = c.read(20 * time.Second)
		}
		if got == nil || got.Opaque != f.Header.Opaque {
			t.Fatalf("%v: answered by %v", f, got)
		}
		compared++
		if why := compare(f, want, got); why != "" {
			t.Errorf("%v, %q, %s %v: %s", f, f.Step, remoting.RequestName(f.Code), f.Header.ExtFields, why)
		}
	}
	if compared < 50 {
		t.Errorf("only %d requests were compared", compared)
	}
}

// compare says how an answer differs from the recorded one, "" when it does not or is meant to.
func compare(f, want *vectors.Frame, got *reply) string {
	if code, ok := differences[fmt.Sprintf("%s/%d", f.Step, want.Code)]; ok && got.Code == code {
		return ""
	}
	if got.Code != want.Code {
		if any := stateful[f.Code]; slices.Contains(any, got.Code) && slices.Contains(any, want.Code) {
			return ""
		}
		return fmt.Sprintf("got code %d %q, want %d %q", got.Code, got.Remark, want.Code, want.Header.Remark)
	}
	if got.Code == 0 {
		for key := range want.Header.ExtFields {
			if _, ok := got.Lookup(key); !ok && (key != "recallHandle" || !strings.Contains(f.Header.ExtFields["i"], propDeliverMS)) { // whose time is over
				return fmt.Sprintf("field %s is missing: %v", key, got)
			}
		}
	}
	return ""
}
