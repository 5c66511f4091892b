package nameserver_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fusionmq/fusionmq/metaq/internal/vectors"
	"github.com/fusionmq/fusionmq/metaq/nameserver"
	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/metaq/server"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/cloudwego/netpoll.(*defaultPoll).Wait"))
}

type fixture struct {
	*nameserver.NameServer
	srv  *server.Server
	now  atomic.Int64
	tick chan time.Time
}

func start(t *testing.T, cfg nameserver.Config) *fixture {
	t.Helper()
	f := &fixture{tick: make(chan time.Time)}
	f.now.Store(1_700_000_000_000)
	cfg.Log = slog.New(slog.DiscardHandler)
	cfg.Now = func() time.Time { return time.UnixMilli(f.now.Load()) }
	cfg.Tick = func() (<-chan time.Time, func()) { return f.tick, func() {} }
	var err error
	if f.NameServer, err = nameserver.New(cfg); err != nil {
		t.Fatal(err)
	}
	if f.srv, err = server.Listen("127.0.0.1:0", server.Config{Handler: f, Closed: f.Closed, Log: cfg.Log}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := f.srv.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		f.Close()
	})
	return f
}

func (f *fixture) pass(d time.Duration) {
	f.now.Add(d.Milliseconds())
	f.tick <- time.Time{}
	f.tick <- time.Time{} // taken when the first has been worked off
}

type client struct {
	t *testing.T
	c net.Conn
	r *bufio.Reader
}

func (f *fixture) dial(t *testing.T) *client {
	t.Helper()
	c, err := net.Dial("tcp", f.srv.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute)) // a hang fails the test instead of the run
	return &client{t, c, bufio.NewReader(c)}
}

func (c *client) raw(frame []byte) (*remoting.Header, []byte) {
	c.t.Helper()
	if _, err := c.c.Write(frame); err != nil {
		c.t.Fatal(err)
	}
	b, err := remoting.ReadFrame(c.r, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	var h remoting.Header
	body, err := h.Decode(b)
	if err != nil {
		c.t.Fatal(err)
	}
	return &h, body
}

// ask sends a request with ext fields in pairs.
func (c *client) ask(code int32, body []byte, ext ...string) (*remoting.Header, []byte) {
	c.t.Helper()
	var e remoting.Encoder
	e.Begin(remoting.Head{Code: code, Opaque: 1})
	for i := 0; i+1 < len(ext); i += 2 {
		e.String(ext[i], ext[i+1])
	}
	if err := e.End(body); err != nil {
		c.t.Fatal(err)
	}
	return c.raw(e.Bytes())
}

func (c *client) want(code int32, got *remoting.Header) {
	c.t.Helper()
	if got.Code != code {
		c.t.Fatalf("answer %s %q, want %s", remoting.ResponseName(got.Code), got.Remark, remoting.ResponseName(code))
	}
}

func (c *client) register(name, addr string, id int64, body string) *remoting.Header {
	c.t.Helper()
	h, _ := c.ask(remoting.ReqRegisterBroker, []byte(body), "brokerName", name, "brokerAddr", addr, "clusterName", "C",
		"brokerId", strconv.FormatInt(id, 10), "haServerAddr", "h:"+addr)
	return h
}

func topics(counter int, names ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"topicConfigSerializeWrapper":{"dataVersion":{"counter":%d,"timestamp":1},"topicConfigTable":{`, counter)
	for i, n := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"%s":{"topicName":"%[1]s","readQueueNums":4,"writeQueueNums":4,"perm":6}`, n)
	}
	b.WriteString("}}}")
	return b.String()
}

func (c *client) route(topic string) (*remoting.TopicRouteData, *remoting.Header) {
	c.t.Helper()
	h, body := c.ask(remoting.ReqGetRouteInfoByTopic, nil, "topic", topic)
	if h.Code != 0 {
		return nil, h
	}
	r := new(remoting.TopicRouteData)
	if err := remoting.DecodeBody("route", body, r); err != nil {
		c.t.Fatal(err)
	}
	return r, h
}

// TestRecordedBrokersAreAnsweredAsTheirNameServerDid replays what brokers of both releases sent to their name server.
func TestRecordedBrokersAreAnsweredAsTheirNameServerDid(t *testing.T) {
	for _, file := range []string{"broker-4.9.7", "broker-4.9.7-compressed", "broker-5.3.3", "broker-5.3.3-compressed", "broker-5.3.3-binary"} {
		t.Run(file, func(t *testing.T) {
			frames, err := vectors.Load("../remoting/testdata", file)
			if err != nil {
				t.Fatal(err)
			}
			answers := map[int]*vectors.Frame{}
			for _, f := range frames {
				if f.Response {
					answers[f.Answers] = f
				}
			}
			f := start(t, nameserver.Config{})
			c := f.dial(t)
			compared, registered := 0, map[string]remoting.TopicConfig{}
			for _, fr := range frames {
				if fr.Response {
					continue
				}
				if fr.Oneway {
					if _, err := c.c.Write(fr.Bytes); err != nil {
						t.Fatal(err)
					}
					continue
				}
				h, body := c.raw(fr.Bytes)
				if h.Opaque != fr.Header.Opaque || h.Serialize.String() != fr.Serialize {
					t.Errorf("%v: answer %d in %v", fr, h.Opaque, h.Serialize)
				}
				if fr.Code == remoting.ReqRegisterBroker && h.Code != 0 {
					t.Errorf("%v: registration: %s %s", fr, remoting.ResponseName(h.Code), h.Remark)
				}
				if fr.Code == remoting.ReqRegisterBroker {
					var reg remoting.Header
					b, err := reg.Decode(fr.Bytes)
					if err != nil {
						t.Fatal(err)
					}
					r, err := remoting.DecodeRegisterBody(b)
					if err != nil {
						t.Fatal(err)
					}
					maps.Copy(registered, r.TopicConfigSerializeWrapper.TopicConfigTable)
				}
				if topic, asked := fr.Header.ExtFields["topic"]; asked {
					if _, ok := registered[topic]; !ok {
						continue // the capture was thinned: the frame that registered it is missing
					}
				}
				want := answers[fr.N]
				if want == nil || want.Code != 0 || file == "broker-5.3.3-compressed" {
					// Recorded brokers that compress wrongly stayed unknown to their name server; ours knows them.
					continue
				}
				compared++
				if h.Code != want.Code {
					t.Errorf("%v: %s %q, want %s", fr, remoting.ResponseName(h.Code), h.Remark, remoting.ResponseName(want.Code))
				}
				var wh remoting.Header
				wbody, err := wh.Decode(want.Bytes)
				if err != nil {
					t.Fatal(err)
				}
				var give, wantJSON any
				switch fr.Code {
				case remoting.ReqGetRouteInfoByTopic:
					give, wantJSON = new(remoting.TopicRouteData), new(remoting.TopicRouteData)
				case remoting.ReqGetBrokerClusterInfo:
					give, wantJSON = new(remoting.ClusterInfo), new(remoting.ClusterInfo)
				default:
					continue
				}
				if err := json.Unmarshal(body, give); err != nil { // strict JSON
					t.Fatalf("%v: %v", fr, err)
				}
				if err := remoting.DecodeBody("recorded answer", wbody, wantJSON); err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(give, wantJSON) {
					t.Errorf("%v: got %+v, want %+v", fr, give, wantJSON)
				}
			}
			if compared == 0 && file != "broker-5.3.3-compressed" {
				t.Error("nothing was compared")
			}
			c.c.Close()
		})
	}
}

// goRoute reads brokerAddrs the way the Go client does: it cuts the raw text at commas and at the first colon.
func goRoute(t *testing.T, body []byte) map[int64]string {
	t.Helper()
	_, rest, ok := bytes.Cut(body, []byte(`"brokerAddrs":`))
	end := bytes.IndexByte(rest, '}')
	if !ok || end < 1 {
		t.Fatalf("no brokerAddrs in %s", body)
	}
	m := map[int64]string{}
	for _, s := range strings.Split(string(rest[1:end]), ",") {
		k, v, _ := strings.Cut(s, ":")
		id, err := strconv.ParseInt(strings.ReplaceAll(k, `"`, ""), 10, 64)
		if err != nil {
			t.Fatalf("id %q in %s", k, body)
		}
		m[id] = strings.ReplaceAll(v, `"`, "")
	}
	return m
}

func TestRoutesAreWhatGoClientsCanRead(t *testing.T) {
	f := start(t, nameserver.Config{})
	b := f.dial(t)
	b.want(0, b.register("a", "10.0.0.1:10911", 0, topics(1, "T", "U")))
	s := f.dial(t)
	h := s.register("a", "10.0.0.2:10911", 1, topics(1, "T", "U"))
	s.want(0, h)
	if h.Get("masterAddr") != "10.0.0.1:10911" || h.Get("haServerAddr") != "h:10.0.0.1:10911" {
		t.Errorf("a replica is told %v", h.Ext)
	}
	_, body := f.dial(t).ask(remoting.ReqGetRouteInfoByTopic, nil, "topic", "T")
	if got := goRoute(t, body); len(got) != 2 || got[0] != "10.0.0.1:10911" || got[1] != "10.0.0.2:10911" {
		t.Errorf("a Go client reads %v from %s", got, body)
	}
	if !bytes.Contains(body, []byte(`"queueDatas":[{`)) || bytes.ContainsAny(body, " \n\t") {
		t.Errorf("got %s", body)
	}
}

func TestABrokerOfThisProcessIsFoundAtTheAddressThatReachedUs(t *testing.T) {
	f := start(t, nameserver.Config{})
	_, err := f.Register(nameserver.Registration{Cluster: "C", Broker: "a", Addr: ":10911", Complete: true,
		Topics: map[string]remoting.TopicConfig{"T": remoting.NewTopicConfig("T")}})
	if err != nil {
		t.Fatal(err)
	}
	c := f.dial(t)
	r, _ := c.route("T")
	if r == nil || r.BrokerDatas[0].BrokerAddrs[0] != "127.0.0.1:10911" || r.QueueDatas[0].WriteQueueNums != 16 {
		t.Errorf("got %+v", r)
	}
	for local, want := range map[string]string{"10.1.2.3": "10.1.2.3:10911", "::1": "[::1]:10911", "::ffff:10.1.2.3": "10.1.2.3:10911", "fe80::1%eth0": "[fe80::1]:10911"} {
		if got := nameserver.Resolve(":10911", netip.MustParseAddr(local)); got != want {
			t.Errorf("at %s: %s, want %s", local, got, want)
		}
	}
	// One that registers over the wire has to say its host.
	c.want(remoting.RespInvalidParameter, c.register("b", ":10911", 0, topics(1, "T", "U")))
	f.Unregister("C", "a", 0, ":10911")
	if _, h := c.route("T"); h.Code != remoting.RespTopicNotExist {
		t.Errorf("after unregistering: %d", h.Code)
	}
}

func TestATopicDeletedOnOneBrokerLeavesItsRoute(t *testing.T) { // faults NSR-02
	f := start(t, nameserver.Config{})
	c := f.dial(t)
	c.want(0, c.register("b", "10.0.0.2:1", 0, topics(1, "T", "U")))
	reg := nameserver.Registration{Cluster: "C", Broker: "a", Addr: ":1", Complete: true, Topics: map[string]remoting.TopicConfig{
		"T": remoting.NewTopicConfig("T"), "U": remoting.NewTopicConfig("U")}}
	if _, err := f.Register(reg); err != nil {
		t.Fatal(err)
	}
	if r, _ := c.route("T"); len(r.BrokerDatas) != 2 {
		t.Fatalf("got %+v", r)
	}
	reg.Topics = map[string]remoting.TopicConfig{"U": remoting.NewTopicConfig("U")}
	reg.Version.Counter++
	if _, err := f.Register(reg); err != nil {
		t.Fatal(err)
	}
	if r, _ := c.route("T"); r == nil || len(r.BrokerDatas) != 1 || r.BrokerDatas[0].BrokerName != "b" {
		t.Errorf("got %+v", r)
	}
}

func TestBrokersExpireAndGoWithTheirConnection(t *testing.T) {
	f := start(t, nameserver.Config{})
	b, c := f.dial(t), f.dial(t)
	b.want(0, b.register("a", "10.0.0.1:1", 0, topics(1, "T", "U")))
	has := func() bool { _, h := c.route("T"); return h.Code == 0 }
	f.pass(119 * time.Second)
	if !has() {
		t.Fatal("gone after 119 s")
	}
	h, _ := b.ask(remoting.ReqBrokerHeartbeat, nil, "clusterName", "C", "brokerAddr", "10.0.0.1:1", "brokerName", "a")
	b.want(0, h)
	f.pass(119 * time.Second)
	if !has() {
		t.Fatal("gone although it sent a heartbeat")
	}
	// A version query with the version we have is a sign of life too.
	h, _ = b.ask(remoting.ReqQueryDataVersion, []byte(`{"counter":1,"timestamp":1}`), "clusterName", "C", "brokerAddr", "10.0.0.1:1", "brokerName", "a", "brokerId", "0")
	if b.want(0, h); h.Get("changed") != "false" {
		t.Errorf("changed=%q", h.Get("changed"))
	}
	f.pass(119 * time.Second)
	if !has() {
		t.Fatal("gone although it asked for its version")
	}
	f.pass(2 * time.Second)
	if has() {
		t.Fatal("still there after 121 s of silence")
	}
	b.want(0, b.register("a", "10.0.0.1:1", 0, topics(1, "T", "U")))
	if !has() {
		t.Fatal("not back")
	}
	b.c.Close()
	for end := time.Now().Add(30 * time.Second); has(); {
		if time.Now().After(end) {
			t.Fatal("still there although its connection closed")
		}
	}
}
