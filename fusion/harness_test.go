package fusion

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fusionmq/fusionmq/fusion/config"
	"github.com/fusionmq/fusionmq/metaq/remoting"
)

// netpoll's poller runs for as long as the process.
var poller = goleak.IgnoreAnyFunction("github.com/cloudwego/netpoll.(*defaultPoll).Wait")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, poller) }

// logged is the log of an App under test.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// load makes a configuration on free ports of loopback; flags override it.
func load(t *testing.T, data string, flags map[string]string) *config.Loaded {
	t.Helper()
	all := map[string]string{
		"data": data, "nameserver.addr": "127.0.0.1:0", "broker.addr": "127.0.0.1:0", "notify.addr": "127.0.0.1:0", "http.addr": "127.0.0.1:0",
	}
	for k, v := range flags {
		all[k] = v
	}
	cfg, err := config.Load(config.Sources{
		Flags: all,
		Env:   []string{"FUSIONMQ_STORE_SEGMENT_SIZE=16MiB", "FUSIONMQ_BROKER_NAME=broker-t", "FUSIONMQ_BROKER_CLUSTER=cluster-t"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// start starts an App and stops it at the end of the test.
func start(t *testing.T, cfg *config.Loaded) (*App, *logged) {
	t.Helper()
	log := &logged{}
	a := New(cfg, Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	if err := a.Start(t.Context()); err != nil {
		t.Fatalf("Start: %v\n%s", err, log)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // the test's own has ended
		defer cancel()
		if err := a.Stop(ctx); err != nil {
			t.Errorf("Stop: %v\n%s", err, log)
		}
		if t.Failed() {
			t.Logf("log:\n%s", log)
		}
	})
	return a, log
}

// conn speaks the remoting protocol to one address.
type conn struct {
	t  *testing.T
	nc net.Conn
}

func dial(t *testing.T, addr string) *conn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(60 * time.Second))
	return &conn{t, nc}
}

func (c *conn) call(code int32, fields func(*remoting.Encoder), body []byte) (remoting.Header, []byte) {
	c.t.Helper()
	c.ask(code, fields, body)
	return c.answer()
}

func (c *conn) ask(code int32, fields func(*remoting.Encoder), body []byte) {
	c.t.Helper()
	var e remoting.Encoder
	e.Begin(remoting.Head{Code: code, Opaque: 7})
	if fields != nil {
		fields(&e)
	}
	if err := e.End(body); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.nc.Write(e.Bytes()); err != nil {
		c.t.Fatal(err)
	}
}

func (c *conn) answer() (remoting.Header, []byte) {
	c.t.Helper()
	for {
		frame, err := remoting.ReadFrame(c.nc, nil)
		if err != nil {
			c.t.Fatal(err)
		}
		var h remoting.Header
		answer, err := h.Decode(frame)
		if err != nil {
			c.t.Fatal(err)
		}
		if h.Response() { // a broker also asks and tells on its own
			return h, answer
		}
	}
}

func (c *conn) send(topic, text string) remoting.SendResult {
	c.t.Helper()
	h := remoting.SendHeader{ProducerGroup: "p", Topic: topic, DefaultTopic: "TBW102", DefaultTopicQueueNums: 4, QueueID: 1, BornTimestamp: 1}
	resp, _ := c.call(remoting.ReqSendMessageV2, func(e *remoting.Encoder) { h.Write(e, true) }, []byte(text))
	var r remoting.SendResult
	if err := r.Read(&resp); resp.Code != 0 || err != nil {
		c.t.Fatalf("send: code %d %q, %v", resp.Code, resp.Remark, err)
	}
	return r
}

// get asks the administration port; out may be nil.
func get(t *testing.T, a *App, path string, out any) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + a.Listeners()["http"] + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("GET %s = %d %s, %v", path, resp.StatusCode, b, err)
	}
	if out != nil {
		if err := json.Unmarshal(b, out); err != nil {
			t.Fatalf("GET %s: %v in %s", path, err, b)
		}
	}
	return string(b)
}
