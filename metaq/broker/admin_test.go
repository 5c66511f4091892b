package broker

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store"
)

func topicFields(name string, kv ...string) []string {
	f := []string{"topic", name, "defaultTopic", "TBW102", "readQueueNums", "8", "writeQueueNums", "4", "perm", "6", "topicFilterType", "SINGLE_TAG", "topicSysFlag", "0", "order", "false"}
	for i := 0; i < len(kv); i += 2 {
		for j := 0; j < len(f); j += 2 {
			if f[j] == kv[i] {
				f = append(f[:j], f[j+2:]...)
				break
			}
		}
		if kv[i+1] != "-" {
			f = append(f, kv[i], kv[i+1])
		}
	}
	return f
}

func TestTopicAdmin(t *testing.T) {
	e := start(t)
	c := e.dial()
	describe := func(name string) (got remoting.TopicConfig) {
		t.Helper()
		if err := json.Unmarshal(c.ok(remoting.ReqGetTopicConfig, nil, "topic", name).body, &got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	c.ok(remoting.ReqUpdateAndCreateTopic, nil, topicFields("T", "attributes", "+message.type=NORMAL,+reserve.time=1")...)
	if got := describe("T"); got.TopicName != "T" || got.ReadQueueNums != 8 || got.WriteQueueNums != 4 || got.Perm != 6 || got.Attributes["message.type"] != "NORMAL" || got.Attributes["reserve.time"] != "1" {
		t.Errorf("made as %+v", got)
	}
	c.ok(remoting.ReqUpdateAndCreateTopic, nil, topicFields("T", "writeQueueNums", "2", "perm", "4", "attributes", "-reserve.time")...)
	if got := describe("T"); got.WriteQueueNums != 2 || got.Perm != 4 || len(got.Attributes) != 1 || got.Attributes["message.type"] != "NORMAL" {
		t.Errorf("changed to %+v", got)
	}
	if r, ok := e.ns.Table().Route("T", e.b.cfg.StoreHost.Addr()); !ok || r.QueueDatas[0].WriteQueueNums != 2 || r.QueueDatas[0].Perm != 4 {
		t.Errorf("route %+v", r)
	}
	_, version := e.store.Topics().All()
	c.ok(remoting.ReqUpdateAndCreateTopic, nil, topicFields("T", "writeQueueNums", "2", "perm", "4")...)
	if _, after := e.store.Topics().All(); after != version {
		t.Error("the same content again counted as a change")
	}
	for _, tc := range []struct {
		name, want string
		give       []string
		code       int32
	}{
		{"no name", "topic", topicFields(""), 29}, {"a dot", `"a.b"`, topicFields("a.b"), 29}, {"a slash", `"a/b"`, topicFields("a/b"), 29}, {"Chinese", "中文", topicFields("中文"), 29},
		{"128 characters", "127", topicFields(strings.Repeat("a", 128)), 29},
		{"a system topic", "system topic", topicFields("SCHEDULE_TOPIC_XXXX"), 29}, {"the trace topic", "system topic", topicFields("RMQ_SYS_TRACE_TOPIC"), 29},
		{"the template", "system topic", topicFields("TBW102"), 29}, {"the cluster's topic", "system topic", topicFields("DefaultCluster"), 29},
		{"a system prefix", "system topic", topicFields("rmq_sys_x"), 29}, {"a topic of the store's", "broker itself", topicFields("rmq_sys_fusion_oq"), 16},
		{"no queues", "readQueueNums is missing", topicFields("N", "readQueueNums", "-"), 29}, {"zero queues", "writeQueueNums", topicFields("N", "writeQueueNums", "0"), 29},
		{"too many queues", "readQueueNums", topicFields("N", "readQueueNums", "16385"), 29}, {"bad perm", "perm", topicFields("N", "perm", "8"), 29},
		{"bad filter type", "topicFilterType", topicFields("N", "topicFilterType", "X"), 29},
		{"mixed types", "MIXED", topicFields("N", "attributes", "+message.type=MIXED"), 29}, {"a durability that is none", "fusion.durability", topicFields("N", "attributes", "+fusion.durability=replicated"), 29},
	} {
		if r := c.call(remoting.ReqUpdateAndCreateTopic, nil, tc.give...); r.Code != tc.code || !strings.Contains(r.Remark, tc.want) {
			t.Errorf("%s: %v, want code %d with %q", tc.name, r, tc.code, tc.want)
		}
	}
	for _, name := range []string{"a%b", "a|b", "%RETRY%x", strings.Repeat("a", 127)} {
		if r := c.call(remoting.ReqUpdateAndCreateTopic, nil, topicFields(name)...); r.Code != 0 {
			t.Errorf("%s: %v", name, r)
		}
	}
	if r := c.call(remoting.ReqGetTopicConfig, nil, "topic", "N"); r.Code != 17 || !strings.Contains(r.Remark, "N") {
		t.Errorf("a refused topic: %v", r)
	}
	var all struct {
		Table map[string]remoting.TopicConfig `json:"topicConfigTable"`
	}
	if err := json.Unmarshal(c.ok(remoting.ReqGetAllTopicConfig, nil).body, &all); err != nil || all.Table["T"].WriteQueueNums != 2 || all.Table["TBW102"].Perm != 7 {
		t.Errorf("all topics: %v %+v", err, all)
	}
}

func TestGroupAdmin(t *testing.T) {
	e := start(t, func(c *Config, _ *store.Options) { c.MaxGroups = 3 })
	c := e.dial()
	c.ok(remoting.ReqUpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"G","retryMaxTimes":5,"groupRetryPolicy":{"type":"EXPONENTIAL"}}`))
	var got remoting.SubscriptionGroupConfig
	if err := json.Unmarshal(c.ok(remoting.ReqGetSubscriptionGroupConfig, nil, "group", "G").body, &got); err != nil || got.RetryMaxTimes != 5 || !got.ConsumeEnable || got.RetryQueueNums != 1 || got.GroupRetryPolicy.Type != "EXPONENTIAL" {
		t.Errorf("%v %+v", err, got)
	}
	if r := c.ok(remoting.ReqGetSubscriptionGroupConfig, nil, "group", "ByUse"); !strings.Contains(string(r.body), `"retryMaxTimes":16`) {
		t.Errorf("a group is made by asking, as in RocketMQ: %s", r.body)
	}
	if r := c.ok(remoting.ReqGetAllSubscriptionGroupConfig, nil); !strings.Contains(string(r.body), `"forbiddenTable":{}`) || !strings.Contains(string(r.body), `"ByUse"`) {
		t.Errorf("%s", r.body)
	}
	for _, tc := range []struct{ name, give, want string }{
		{"no body", "", "empty"}, {"null", "null", "want a SubscriptionGroupConfig"}, {"a list", "[]", "want a SubscriptionGroupConfig"}, {"no name", "{}", "group"}, {"a bad name", `{"groupName":"a b"}`, `"a b"`},
		{"a bad number", `{"groupName":"N","retryQueueNums":-1}`, "retryQueueNums"}, {"a long name", `{"groupName":"` + strings.Repeat("g", 256) + `"}`, "255"},
	} {
		if r := c.call(remoting.ReqUpdateAndCreateSubscriptionGroup, []byte(tc.give)); r.Code != 29 || !strings.Contains(r.Remark, tc.want) {
			t.Errorf("%s: %v, want code 29 with %q", tc.name, r, tc.want)
		}
	}
	c.ok(remoting.ReqUpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"Third"}`))
	if r := c.call(remoting.ReqUpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"Fourth"}`)); r.Code != 1 || !strings.Contains(r.Remark, "limit of 3 groups") {
		t.Errorf("%v", r)
	}
	if r := c.pull(pullReq{group: "Fourth", topic: "TBW102", sub: "*"}); r.Code != 1 || !strings.Contains(r.Remark, "limit of 3 groups") {
		t.Errorf("%v", r)
	}
	c.ok(remoting.ReqUpdateAndCreateSubscriptionGroup, []byte(`{"groupName":"G","consumeEnable":false}`))
	if e.store.Groups().Get("G").ConsumeEnable {
		t.Error("a group that is there cannot be changed at the limit")
	}
}

// The runtime information has every key that mqadmin and the dashboard read, as text that parses as what they expect.
func TestRuntimeInfo(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	c := e.dial()
	c.sent(message{topic: "T", body: "x"})
	var got remoting.KVTable
	if err := json.Unmarshal(c.ok(remoting.ReqGetBrokerRuntimeInfo, nil).body, &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range strings.Fields(`brokerVersionDesc brokerVersion bootTimestamp runtime putTps getTotalTps getFoundTps getMissTps getTransferredTps getTransferedTps
		msgPutTotalTodayNow msgPutTotalTodayMorning msgPutTotalYesterdayMorning msgGetTotalTodayNow msgGetTotalTodayMorning msgGetTotalYesterdayMorning
		commitLogMinOffset commitLogMaxOffset commitLogDiskRatio consumeQueueDiskRatio commitLogDirCapacity dispatchBehindBytes dispatchMaxBuffer pageCacheLockTimeMills
		earliestMessageTimeStamp remainHowManyDataToFlush remainTransientStoreBufferNumbs sendThreadPoolQueueSize sendThreadPoolQueueCapacity sendThreadPoolQueueHeadWaitTimeMills
		pullThreadPoolQueueSize queryThreadPoolQueueSize litePullThreadPoolQueueSize ackThreadPoolQueueSize EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity brokerActive`) {
		if got.Table[key] == "" {
			t.Errorf("%s is missing", key)
		}
	}
	if got.Table["msgPutTotalTodayNow"] != "1" || got.Table["commitLogMaxOffset"] == "0" || got.Table["brokerVersion"] != "479" || got.Table["commitLogDiskRatio"] == "0.0000" {
		t.Errorf("%v", got.Table)
	}
}

func TestRatesAndTotals(t *testing.T) {
	var r rates
	t0 := time.Date(2026, 3, 31, 23, 59, 40, 0, time.Local)
	puts := func(s sample) int64 { return s.puts }
	at := func(i int) sample { return sample{at: t0.Add(time.Duration(i) * sampleEvery), puts: int64(100 * i)} }
	if got := r.text(at(0), puts); got != "0.0 " {
		t.Errorf("before the first sample: %q", got)
	}
	r.add(at(0))
	if got := r.text(at(1), puts); got != "10.000 " {
		t.Errorf("a young broker: %q", got)
	}
	for i := 1; i <= 6; i++ {
		r.add(at(i))
	}
	if got := r.text(sample{at: at(7).at, puts: 1600}, puts); got != "100.000 25.000 " {
		t.Errorf("after a minute: %q, want the last ten seconds and the last minute", got)
	}
	if r.morning.puts != 200 || r.yesterday.puts != 0 {
		t.Errorf("at midnight: morning %d, yesterday %d", r.morning.puts, r.yesterday.puts)
	}
	for i := 7; i <= 2*8640+10; i++ {
		r.add(at(i))
	}
	if r.morning.puts <= r.yesterday.puts || r.yesterday.puts == 0 {
		t.Errorf("two days later: morning %d, yesterday %d", r.morning.puts, r.yesterday.puts)
	}
	if got := r.text(at(2*8640+11), puts); got != "10.000 10.000 10.000 " {
		t.Errorf("after days: %q", got)
	}
}

func TestUniqueIDs(t *testing.T) {
	now := time.Date(2026, 3, 31, 23, 59, 59, 999e6, time.Local)
	u := newUniqueIDs(netip.MustParseAddr("10.0.0.1"), 4711, func() time.Time { return now })
	seen := map[string]bool{}
	for i := range 200_000 {
		if i == 100_000 {
			now = now.Add(time.Millisecond) // into the next month
		}
		id := string(u.append(nil))
		if len(id) != uniqLen || id != strings.ToUpper(id) || seen[id] {
			t.Fatalf("key %d is %q, seen %v", i, id, seen[id])
		}
		seen[id] = true
	}
}
