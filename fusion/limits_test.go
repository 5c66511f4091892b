package fusion

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fusionmq/fusionmq/fusion/config"
	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/notify"
	"github.com/fusionmq/fusionmq/notify/wire"
)

// TestLargestMessageFollowsTheSegments: a directory with segments that are small for broker.max-message-size lowers it, for both front
// ends, and the limit that a person reads is the one that holds.
func TestLargestMessageFollowsTheSegments(t *testing.T) {
	data := t.TempDir()
	with := func(env ...string) *config.Loaded {
		cfg := *load(t, data, nil)
		other, err := config.Load(config.Sources{Env: env})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Store.SegmentSize, cfg.Broker.MaxMessageSize = other.Store.SegmentSize, other.Broker.MaxMessageSize
		return &cfg
	}
	for _, tc := range []struct {
		name  string
		cfg   *config.Loaded
		limit int
		told  string
		warns bool
	}{
		{"small segments are made", with("FUSIONMQ_STORE_SEGMENT_SIZE=131072", "FUSIONMQ_BROKER_MAX_MESSAGE_SIZE=32KiB"), 32 << 10, "a message 32KiB,", false},
		{"and found with the default size", with(), 64 << 10, "a message 64KiB,", true},
		{"and found with a size that fits", with("FUSIONMQ_BROKER_MAX_MESSAGE_SIZE=10KiB"), 10 << 10, "a message 10KiB,", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, log := start(t, tc.cfg)
			if sum := a.Summary(); !strings.Contains(sum, tc.told) {
				t.Errorf("summary lacks %q:\n%s", tc.told, sum)
			}
			if warned := strings.Contains(log.String(), "less than broker.max-message-size"); warned != tc.warns {
				t.Errorf("warned %v, want %v:\n%s", warned, tc.warns, log)
			}
			c := dial(t, a.Listeners()["broker"])
			c.send("sizes", strings.Repeat("x", tc.limit))
			h := remoting.SendHeader{ProducerGroup: "p", Topic: "sizes", DefaultTopic: "TBW102", DefaultTopicQueueNums: 4, QueueID: 1, BornTimestamp: 1}
			resp, _ := c.call(remoting.ReqSendMessageV2, func(e *remoting.Encoder) { h.Write(e, true) }, make([]byte, tc.limit+1))
			if resp.Code != remoting.RespMessageIllegal || !strings.Contains(resp.Remark, "the limit is") {
				t.Errorf("a body of one byte more: code %d %q", resp.Code, resp.Remark)
			}

			se, err := a.push.Open(full{}, netip.MustParseAddrPort("192.0.2.1:7"))
			if err != nil {
				t.Fatal(err)
			}
			defer se.Close()
			out := make([]notify.Sent, 2)
			se.Send([]notify.Incoming{incoming(tc.limit), incoming(tc.limit + 1)}, out)
			if out[0].Err != nil {
				t.Errorf("Notify refuses a body of the limit: %+v", out[0].Err)
			}
			if out[1].Err == nil || !strings.Contains(out[1].Err.Text, "this server takes 1 to") {
				t.Errorf("Notify, a body of one byte more: %+v", out[1].Err)
			}
		})
	}
}

// TestNotifyRefusesTheSystemsTopics: the broker makes topics named as its cluster and itself, and tools look it up by them.
func TestNotifyRefusesTheSystemsTopics(t *testing.T) {
	a, _ := start(t, load(t, t.TempDir(), nil))
	se, err := a.push.Open(full{}, netip.MustParseAddrPort("192.0.2.1:7"))
	if err != nil {
		t.Fatal(err)
	}
	defer se.Close()
	for _, topic := range []string{"cluster-t", "broker-t", "cluster-t_REPLY_TOPIC", "TBW102"} {
		m, out := incoming(1), make([]notify.Sent, 1)
		m.Header.Topic = []byte(topic)
		before := a.store.Stats().Appends
		se.Send([]notify.Incoming{m}, out)
		if out[0].Err == nil || out[0].Err.Status != wire.StatusError || !strings.Contains(out[0].Err.Text, "belongs to the system") {
			t.Errorf("a send to %s: %+v, want ERROR", topic, out[0].Err)
		}
		if a.store.Stats().Appends != before {
			t.Errorf("a send to %s is stored", topic)
		}
	}
}

// incoming is a message from a Notify client.
func incoming(size int) notify.Incoming {
	return notify.Incoming{Body: make([]byte, size), Header: &wire.MessageHeader{
		ID: make([]byte, 16), Topic: []byte("sizes"), Type: []byte("x"), Group: []byte("g"), Committed: true}}
}
