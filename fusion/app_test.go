package fusion

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/fusion/httpapi"
	"github.com/fusionmq/fusionmq/metaq/remoting"
)

func TestAppServesWhatItSays(t *testing.T) {
	a, _ := start(t, load(t, t.TempDir(), nil))

	route, body := dial(t, a.Listeners()["nameserver"]).call(remoting.ReqGetRouteInfoByTopic, func(e *remoting.Encoder) { e.String("topic", "TBW102") }, nil)
	if route.Code != 0 || !strings.Contains(string(body), a.Listeners()["broker"]) {
		t.Errorf("route: code %d %s, want it to name %s", route.Code, body, a.Listeners()["broker"])
	}
	c := dial(t, a.Listeners()["broker"])
	for i := range 3 {
		if r := c.send("orders", "one message"); r.QueueID != 1 || r.QueueOffset != int64(i) {
			t.Errorf("send %d = %+v", i, r)
		}
	}
	alone(t, a)

	var s httpapi.Status
	get(t, a, "/api/v1/status", &s)
	if !s.Ready || s.Cluster != "cluster-t" || s.Broker != "broker-t" || s.Counts.Topics != 1 || s.Counts.BrokerConnections != 1 || s.Store.MaxPosition < 300 ||
		s.Listeners["http"] != a.Listeners()["http"] || s.Advertised != a.Listeners()["broker"] || s.PID != os.Getpid() || s.Security != "none" {
		t.Errorf("status %+v", s)
	}
	for _, name := range []string{"nameserver", "broker", "notify", "http"} {
		if _, err := netip.ParseAddrPort(s.Listeners[name]); err != nil {
			t.Errorf("listener %s: %v", name, err)
		}
	}
	if _, ok := s.Listeners["fast"]; ok {
		t.Errorf("the fast port is open beside a broker port that the system chose: %v", s.Listeners)
	}

	var topics httpapi.TopicPage
	get(t, a, "/api/v1/topics", &topics)
	if !reflect.DeepEqual(topics.Topics, []httpapi.Topic{{Name: "orders", ReadQueues: 4, WriteQueues: 4, Perm: "rw", Durability: "async", Messages: 3}}) {
		t.Errorf("topics %+v", topics)
	}
	var topic httpapi.TopicDetail
	get(t, a, "/api/v1/topics/orders", &topic)
	if len(topic.Queues) != 1 || topic.Queues[0] != (httpapi.Queue{ID: 1, MaxOffset: 3}) {
		t.Errorf("topic %+v", topic)
	}
	if got := get(t, a, "/readyz", nil); got != "ready\n" {
		t.Errorf("readyz %q", got)
	}
	page := get(t, a, "/metrics", nil)
	for _, want := range []string{
		`rocketmq_messages_in_total{cluster="cluster-t",is_system="false",message_type="normal",node_id="broker-t",node_type="broker",topic="orders"} 3`,
		`fusionmq_store_appends_total{cluster="cluster-t",node_id="broker-t",node_type="broker"} 3`,
		`fusionmq_broker_connections{cluster="cluster-t",node_id="broker-t",node_type="broker"} 1`,
		`rocketmq_throughput_in_total{cluster="cluster-t",is_system="false",message_type="normal",node_id="broker-t",node_type="broker",topic="orders"} `,
		"fusionmq_ready{", "rocketmq_storage_size_bytes{", "go_goroutines ",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	if line := a.ReadyLine(); !strings.HasPrefix(line, "ready nameserver=127.0.0.1:") || !strings.Contains(line, " http="+a.Listeners()["http"]) {
		t.Errorf("ready line %q", line)
	}
	if sum := a.Summary(); !strings.Contains(sum, "everyone who reaches a port may do everything") || !strings.Contains(sum, "clients are told "+a.Listeners()["broker"]) {
		t.Errorf("summary:\n%s", sum)
	}
}

// TestLaw4AcknowledgedMeansKept: what one process has acknowledged, the next one serves.
func TestLaw4AcknowledgedMeansKept(t *testing.T) {
	data := t.TempDir()
	func() {
		log := &logged{}
		a := New(load(t, data, nil), Options{Log: slog.New(slog.NewTextHandler(log, nil))})
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := dial(t, a.Listeners()["broker"])
		c.send("kept", "x")
		_ = c.nc.Close()
		if err := a.Stop(t.Context()); err != nil {
			t.Fatalf("Stop: %v\n%s", err, log)
		}
		for name, addr := range a.Listeners() {
			if nc, err := net.Dial("tcp", addr); err == nil {
				_ = nc.Close()
				t.Errorf("%s still accepts after Stop", name)
			}
		}
	}()
	a, log := start(t, load(t, data, nil))
	if r := dial(t, a.Listeners()["broker"]).send("kept", "y"); r.QueueOffset != 1 {
		t.Errorf("offset of the second message = %d, want 1", r.QueueOffset)
	}
	if !strings.Contains(log.String(), "clean=true") {
		t.Errorf("the second start did not find a clean end:\n%s", log)
	}
}

func TestCreateTopicOverHTTP(t *testing.T) {
	a, _ := start(t, load(t, t.TempDir(), nil))
	post := func(body string) (int, string) {
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Post("http://"+a.Listeners()["http"]+"/api/v1/topics", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	for _, tc := range []struct {
		name, give string
		code       int
		want       string
	}{
		{"defaults", `{"name":"a"}`, 201, `"readQueues":8,"writeQueues":8,"perm":"rw","durability":"async"`},
		{"all fields", `{"name":"b","queues":2,"perm":"r","durability":"sync"}`, 201, `"readQueues":2,"writeQueues":2,"perm":"r","durability":"sync"`},
		{"twice", `{"name":"a"}`, 409, `topic \"a\" exists`},
		{"bad name", `{"name":"a b"}`, 400, `"field":"topic","value":"a b"`},
		{"no name", `{}`, 400, `"field":"topic"`},
		{"system", `{"name":"rmq_sys_fusion_x"}`, 403, "belongs to the system"},
		{"own name of the broker", `{"name":"broker-t"}`, 403, "belongs to the system"},
		{"too many queues", `{"name":"c","queues":100000}`, 400, `"value":"100000"`},
		{"fewer than none", `{"name":"c","queues":-1}`, 400, `"value":"-1"`},
		{"flags", `{"name":"t4","idempotent":true,"untilConsumed":"36h","order":true}`, 201, `"idempotent":true,"untilConsumed":"36h","order":true,"queues":[]`},
		{"for as long as possible", `{"name":"t5","untilConsumed":"true"}`, 201, `"idempotent":false,"untilConsumed":"168h"`},
		{"for too long", `{"name":"c","untilConsumed":"169h"}`, 400, `"value":"169h","limit":"true, or a duration of at most 168h"`},
		{"bad perm", `{"name":"c","perm":"x"}`, 400, `"field":"perm"`},
		{"neither perm", `{"name":"c","perm":"-"}`, 400, `"field":"perm"`},
		{"bad durability", `{"name":"c","durability":"replicated"}`, 400, `"value":"replicated"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, body := post(tc.give)
			if code != tc.code || !strings.Contains(body, tc.want) {
				t.Errorf("POST %s = %d %s, want %d and %s", tc.give, code, body, tc.code, tc.want)
			}
		})
	}
	if a.store.Topics().Get("c") != nil {
		t.Error("a refused topic was made")
	}
	// A topic made here is in the routes at once.
	if h, _ := dial(t, a.Listeners()["nameserver"]).call(remoting.ReqGetRouteInfoByTopic, func(e *remoting.Encoder) { e.String("topic", "b") }, nil); h.Code != 0 {
		t.Errorf("route of b: code %d %s", h.Code, h.Remark)
	}
	var first, second httpapi.TopicPage
	get(t, a, "/api/v1/topics?limit=1", &first)
	get(t, a, "/api/v1/topics?limit=1&after="+first.Next, &second)
	if len(first.Topics) != 1 || len(second.Topics) != 1 || first.Topics[0].Name != "a" || second.Topics[0].Name != "b" || second.Next != "b" {
		t.Errorf("pages %+v, %+v", first, second)
	}
	if all := get(t, a, "/api/v1/topics?system=true&prefix=T", nil); !strings.Contains(all, "TBW102") {
		t.Errorf("system topics: %s", all)
	}
}

func TestStartFailures(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	held := t.TempDir()
	start(t, load(t, held, nil))
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		data  string
		flags map[string]string
		want  []string
	}{
		{"data of a running process", held, nil, []string{"store: ", "--data", "process " + itoa(os.Getpid())}},
		{"data of a running process, and its ports", held, map[string]string{"http.addr": taken.Addr().String()}, []string{"store: ", "--data"}},
		{"taken port", t.TempDir(), map[string]string{"http.addr": taken.Addr().String()}, []string{"http: http.addr is " + taken.Addr().String(), "another process has", "--http-addr", "FUSIONMQ_HTTP_ADDR"}},
		{"foreign address", t.TempDir(), map[string]string{"nameserver.addr": "192.0.2.1:0"}, []string{"nameserver.addr is 192.0.2.1:0", "no address of this machine"}},
		{"data is a file", file, nil, []string{"store: ", "file"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			log := &logged{}
			a := New(load(t, tc.data, tc.flags), Options{Log: slog.New(slog.NewTextHandler(log, nil))})
			err := a.Start(t.Context())
			if err == nil {
				t.Fatalf("Start succeeded: %v", a.Stop(t.Context()))
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("Start = %v\nwant it to contain %q", err, w)
				}
			}
			for name, addr := range a.Listeners() {
				if nc, err := net.Dial("tcp", addr); err == nil {
					_ = nc.Close()
					t.Errorf("%s was left open", name)
				}
			}
		})
	}
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

func TestEverythingButHTTPOff(t *testing.T) {
	a, _ := start(t, load(t, t.TempDir(), map[string]string{"nameserver.addr": "off", "broker.addr": "off", "notify.addr": "off"}))
	if got := a.Listeners(); len(got) != 1 || got["http"] == "" {
		t.Errorf("listeners %v", got)
	}
	var s httpapi.Status
	get(t, a, "/api/v1/status", &s)
	if !s.Ready || s.Advertised != "" {
		t.Errorf("status %+v", s)
	}
	get(t, a, "/api/v1/groups", nil)
	var lost httpapi.Expiries
	if get(t, a, "/api/v1/expiries", &lost); lost.Expiries == nil || len(lost.Expiries) > 0 {
		t.Errorf("expiries of a new store: %+v", lost)
	}
	get(t, a, "/metrics", nil)
}

func TestFastPort(t *testing.T) {
	for _, tc := range []struct{ fast, broker, want string }{
		{"auto", ":10911", ":10909"}, {"auto", "127.0.0.1:0", "off"}, {"auto", "[::1]:3", "[::1]:1"}, {"auto", ":2", "off"}, {"auto", "off", "off"},
		{"off", ":10911", "off"}, {":7", ":10911", ":7"},
	} {
		if got := fastAddr(tc.fast, tc.broker); got != tc.want {
			t.Errorf("fastAddr(%q, %q) = %q, want %q", tc.fast, tc.broker, got, tc.want)
		}
	}
	a, _ := start(t, load(t, t.TempDir(), map[string]string{"fast.addr": "127.0.0.1:0"}))
	if r := dial(t, a.Listeners()["fast"]).send("t", "x"); r.QueueOffset != 0 {
		t.Errorf("send through the fast port = %+v", r)
	}
}

// TestAdvertisedToLocalClients: nobody said what clients can reach, so one that came by loopback is told loopback.
func TestAdvertisedToLocalClients(t *testing.T) {
	a, _ := start(t, load(t, t.TempDir(), map[string]string{"broker.addr": ":0"}))
	_, port, _ := net.SplitHostPort(a.Listeners()["broker"])
	_, body := dial(t, a.Listeners()["nameserver"]).call(remoting.ReqGetRouteInfoByTopic, func(e *remoting.Encoder) { e.String("topic", "TBW102") }, nil)
	if !strings.Contains(string(body), `"127.0.0.1:`+port+`"`) {
		t.Errorf("route %s, want 127.0.0.1:%s", body, port)
	}
	if a.adv.String() != "*:"+port || a.adv.storeHost.Addr().IsUnspecified() {
		t.Errorf("advertised %s, store host %s", a.adv, a.adv.storeHost)
	}
}

func TestReload(t *testing.T) {
	data := t.TempDir()
	log := &logged{}
	var level slog.LevelVar
	a := New(load(t, data, nil), Options{Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: &level})), Level: &level})
	a.Reload(load(t, data, map[string]string{"log.level": "warn", "store.flush": "sync"}))
	for _, want := range []string{"msg=\"setting changed\" key=log.level from=info to=warn", "msg=\"setting waits for the next start\" key=store.flush now=async then=sync"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log lacks %s:\n%s", want, log)
		}
	}
	if level.Level() != slog.LevelWarn {
		t.Errorf("level %v", level.Level())
	}
	a.Reload(load(t, data, map[string]string{"log.level": "warn", "store.flush": "sync"}))
	if n := strings.Count(log.String(), "setting changed"); n != 1 {
		t.Errorf("a second reload of the same file logged the change again: %d lines", n)
	}
}

func TestListenErrorsNameTheKey(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{syscall.EADDRINUSE, "which another process has"}, {syscall.EACCES, "a privilege"}, {syscall.EADDRNOTAVAIL, "no address of this machine"}, {io.EOF, "cannot be opened: EOF"},
	} {
		got := (&listenError{name: "notify", addr: ":80", err: tc.err}).Error()
		if !strings.Contains(got, "notify.addr is :80") || !strings.Contains(got, tc.want) || !strings.Contains(got, "FUSIONMQ_NOTIFY_ADDR") {
			t.Errorf("%v: %s", tc.err, got)
		}
	}
}

// alone waits until the broker has one connection, that of the test, which has had an answer. The start looks in the background whether the broker
// can be reached: that connection may come, and go, after the test's.
func alone(t *testing.T, a *App) {
	t.Helper()
	all := int64(2)
	if a.adv.follow {
		all = 1
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if s := a.broker.Stats(); s.Accepted == all && s.Connections == 1 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the broker counts %+v", a.broker.Stats())
		}
	}
}

func TestBrokerConnectionsAreBounded(t *testing.T) {
	cfg := load(t, t.TempDir(), nil)
	cfg.Broker.MaxConnections = 2
	a, _ := start(t, cfg)
	dial(t, a.Listeners()["broker"]).send("t", "x")
	alone(t, a)
	dial(t, a.Listeners()["broker"]).send("t", "x")
	third := dial(t, a.Listeners()["broker"])
	if n, err := third.nc.Read(make([]byte, 1)); err == nil {
		t.Errorf("the third connection got %d bytes, want it closed", n)
	}
}

// TestStopWithWorkInFlight: a held pull and idle connections on every port neither keep the process nor are forgotten.
func TestStopWithWorkInFlight(t *testing.T) {
	log := &logged{}
	a := New(load(t, t.TempDir(), nil), Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := dial(t, a.Listeners()["broker"])
	c.send("held", "x")
	p := remoting.PullHeader{ConsumerGroup: "g", Topic: "held", QueueID: 1, QueueOffset: 1, MaxMsgNums: 32,
		SysFlag: remoting.PullSuspend | remoting.PullSubscription, SuspendTimeoutMillis: 20_000, Subscription: "*"}
	c.ask(remoting.ReqPullMessage, p.Write, nil)
	for end := time.Now().Add(20 * time.Second); a.broker.Stats().HeldPulls == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the pull is not held")
		}
	}
	for _, name := range []string{"nameserver", "notify", "http"} {
		dial(t, a.Listeners()[name])
	}
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	if err := a.Stop(ctx); err != nil {
		t.Errorf("Stop = %v\n%s", err, log)
	}
	if h, _ := c.answer(); h.Code != remoting.RespPullNotFound && h.Code != remoting.RespPullRetryImmediately {
		t.Errorf("the held pull was answered with %d %s", h.Code, h.Remark)
	}
	if err := a.Ready(); err == nil {
		t.Error("ready after Stop")
	}
}

// waitFor waits until a log holds a text.
func waitFor(t *testing.T, log *logged, text string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !strings.Contains(log.String(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the log lacks %q:\n%s", text, log)
		}
	}
}

func TestAdvertiseHost(t *testing.T) {
	// Nothing listens at 127.0.0.2, so the check at the start must say so.
	a, log := start(t, load(t, t.TempDir(), map[string]string{"advertise-host": "127.0.0.2"}))
	_, port, _ := net.SplitHostPort(a.Listeners()["broker"])
	_, body := dial(t, a.Listeners()["nameserver"]).call(remoting.ReqGetRouteInfoByTopic, func(e *remoting.Encoder) { e.String("topic", "TBW102") }, nil)
	if !strings.Contains(string(body), `"127.0.0.2:`+port+`"`) {
		t.Errorf("route %s, want 127.0.0.2:%s", body, port)
	}
	waitFor(t, log, "clients may not reach the broker")
	// The offset id of a message carries the same address: 4 bytes of address and 4 of port in hex.
	if r := dial(t, a.Listeners()["broker"]).send("t", "x"); !strings.HasPrefix(r.MsgID, "7F000002") {
		t.Errorf("offset id %s, want it to begin with 7F000002", r.MsgID)
	}
}

func TestNameServerElsewhere(t *testing.T) {
	names, _ := start(t, load(t, t.TempDir(), map[string]string{"broker.addr": "off", "notify.addr": "off"}))
	cfg := load(t, t.TempDir(), map[string]string{"nameserver.addr": "off", "broker.addr": ":0"})
	cfg.Broker.Nameservers = []string{names.Listeners()["nameserver"]}
	b, _ := start(t, cfg)
	c := dial(t, names.Listeners()["nameserver"])
	ask := func() (remoting.Header, []byte) {
		return c.call(remoting.ReqGetRouteInfoByTopic, func(e *remoting.Encoder) { e.String("topic", "TBW102") }, nil)
	}
	h, body := ask()
	for end := time.Now().Add(20 * time.Second); h.Code != 0; h, body = ask() {
		if time.Now().After(end) {
			t.Fatalf("the broker does not register: code %d %s", h.Code, h.Remark)
		}
		time.Sleep(time.Millisecond)
	}
	if !strings.Contains(string(body), `"`+b.adv.addr()+`"`) || b.adv.follow {
		t.Errorf("route %s, want %s", body, b.adv.addr())
	}
}

func TestProductionCreatesNothingByItself(t *testing.T) {
	a, _ := start(t, load(t, t.TempDir(), map[string]string{"profile": "production", "insecure": "true"}))
	h := remoting.SendHeader{ProducerGroup: "p", Topic: "unknown", DefaultTopic: "TBW102", DefaultTopicQueueNums: 4, BornTimestamp: 1}
	resp, _ := dial(t, a.Listeners()["broker"]).call(remoting.ReqSendMessageV2, func(e *remoting.Encoder) { h.Write(e, true) }, []byte("x"))
	if resp.Code != remoting.RespTopicNotExist {
		t.Errorf("send to an unknown topic: code %d %s, want %d", resp.Code, resp.Remark, remoting.RespTopicNotExist)
	}
	if a.store.Topics().Get("unknown") != nil {
		t.Error("the topic was made")
	}
}

// TestLaw4StopUnderLoad: producers that never pause neither keep the process from stopping nor lose an acknowledged message.
func TestLaw4StopUnderLoad(t *testing.T) {
	const producers, least = 4, 200 // messages before the stop
	data := t.TempDir()
	log := &logged{}
	a := New(load(t, data, nil), Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	dial(t, a.Listeners()["broker"]).send("busy", "first") // makes the topic
	var acked [producers]int64
	var done sync.WaitGroup
	enough := make(chan struct{})
	for i := range producers {
		c := dial(t, a.Listeners()["broker"])
		done.Go(func() {
			var e remoting.Encoder
			h := remoting.SendHeader{ProducerGroup: "p", Topic: "busy", QueueID: int32(i % 4), BornTimestamp: 1}
			for {
				e.Reset(nil)
				e.Begin(remoting.Head{Code: remoting.ReqSendMessageV2, Opaque: 1})
				h.Write(&e, true)
				if e.End([]byte("text")) != nil {
					return
				}
				if _, err := c.nc.Write(e.Bytes()); err != nil {
					return
				}
				frame, err := remoting.ReadFrame(c.nc, nil)
				if err != nil {
					return
				}
				var resp remoting.Header
				if _, err := resp.Decode(frame); err != nil || resp.Code != 0 {
					return
				}
				if acked[i]++; acked[i] == least && i == 0 {
					close(enough)
				}
			}
		})
	}
	<-enough
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := a.Stop(ctx); err != nil {
		t.Errorf("Stop = %v\n%s", err, log)
	}
	done.Wait()
	var want int64 = 1
	for _, n := range acked {
		want += n
	}
	b, _ := start(t, load(t, data, nil))
	var topic httpapi.TopicDetail
	get(t, b, "/api/v1/topics/busy", &topic)
	if topic.Messages < want || topic.Messages > want+producers {
		t.Errorf("%d messages after the restart, want %d acknowledged ones and at most %d that were not", topic.Messages, want, producers)
	}
}
