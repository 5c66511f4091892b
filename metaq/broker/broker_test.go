package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/metaq/nameserver"
	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/metaq/server"
	"github.com/fusionmq/fusionmq/store"
)

func TestConfigNamesWhatIsWrong(t *testing.T) {
	good := func() Config {
		return Config{AdvertiseAddr: "10.0.0.1:10911", StoreHost: netip.MustParseAddrPort("10.0.0.1:10911")}
	}
	for _, tc := range []struct {
		want string
		give func(*Config)
	}{
		{"Name", func(c *Config) { c.Name = "a b" }}, {"Cluster", func(c *Config) { c.Cluster = "x.y" }}, {"ID", func(c *Config) { c.ID = 1 }},
		{"AdvertiseAddr", func(c *Config) { c.AdvertiseAddr = "10.0.0.1" }}, {"AdvertiseAddr", func(c *Config) { c.AdvertiseAddr = "10.0.0.1:0" }}, {"AdvertiseAddr", func(c *Config) { c.AdvertiseAddr = "" }},
		{"StoreHost", func(c *Config) { c.StoreHost = netip.AddrPort{} }}, {"Region", func(c *Config) { c.Region = "a\x02b" }},
		{"MaxBodyBytes", func(c *Config) { c.MaxBodyBytes = store.MaxBodyBytes + 1 }}, {"MaxHeld", func(c *Config) { c.MaxHeld = -1 }}, {"MaxHold", func(c *Config) { c.MaxHold = 2 * time.Hour }},
		{"DefaultTopicQueues", func(c *Config) { c.DefaultTopicQueues = 100_000 }}, {"MemberExpiry", func(c *Config) { c.MemberExpiry = time.Millisecond }},
		{"MaxConns", func(c *Config) { c.MaxConns = -1 }}, {"IdleTimeout", func(c *Config) { c.IdleTimeout = time.Millisecond }},
	} {
		c := good()
		tc.give(&c)
		c = c.withDefaults()
		if err := c.validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.want, err)
		}
	}
	c := good().withDefaults()
	if err := c.validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	if c.HAAddr != "10.0.0.1:10912" || c.ReplayBytes < 1<<20 {
		t.Errorf("HAAddr %s, ReplayBytes %d", c.HAAddr, c.ReplayBytes)
	}
}

// Every code without any field or body gets an answer with its opaque, and the connection lives on.
func TestLaw9RequestsWithoutAnything(t *testing.T) {
	e := start(t)
	c := e.dial()
	served := []int32{remoting.ReqSendMessage, remoting.ReqSendMessageV2, remoting.ReqPullMessage, remoting.ReqLitePullMessage}
	for code := range handlers {
		served = append(served, code)
	}
	slices.Sort(served)
	harmless := map[int32]bool{remoting.ReqGetAllTopicConfig: true, remoting.ReqGetAllSubscriptionGroupConfig: true, remoting.ReqGetBrokerRuntimeInfo: true}
	for _, code := range served {
		r := c.call(code, nil)
		if harmless[code] != (r.Code == 0) {
			t.Errorf("%s without fields: %v", remoting.RequestName(code), r)
		}
		if r.Code != 0 && r.Remark == "" {
			t.Errorf("%s: code %d without a word", remoting.RequestName(code), r.Code)
		}
		for _, body := range []string{"null", "{}", "[]", "\x00", strings.Repeat("{", 100_000)} {
			if r := c.call(code, []byte(body)); r.Code == 1 && strings.Contains(r.Remark, "internal error") {
				t.Errorf("%s with body %.10q: %v", remoting.RequestName(code), body, r)
			}
		}
	}
	if e.listeningStats().Panics != 0 {
		t.Error("a handler panicked")
	}
}

func (e *env) listeningStats() server.Stats { return e.b.listening()[0].Stats() }

func TestUnknownCodesAreNamed(t *testing.T) {
	e := start(t)
	c := e.dial()
	for code, name := range map[int32]string{
		9999: "9999", -1: "-1", 65546: "65546", 1<<31 - 1: "2147483647", remoting.ReqGetAllDelayOffset: "GET_ALL_DELAY_OFFSET",
		remoting.ReqPopMessage: "POP_MESSAGE",
	} {
		r := c.call(code, []byte("x"), "topic", "T", "queueId", "0")
		if r.Code != 3 || !strings.Contains(r.Remark, fmt.Sprintf(" request type %d not supported", code)) || !strings.Contains(r.Remark, name) {
			t.Errorf("code %d: %v", code, r)
		}
	}
}

// Broken frames and foreign protocols end their own connection and no other.
func TestLaw9HostileInputEndsOnlyItsConnection(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	good := e.dial()
	frame := func(total uint32, rest ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, total), rest...)
	}
	for name, give := range map[string][]byte{
		"a frame of two bytes":              frame(2, 0, 0),
		"an empty header":                   frame(4, 0, 0, 0, 0),
		"an unknown encoding":               frame(8, 0x7f, 0, 0, 0, 0, 0, 0, 0),
		"a header longer than the frame":    frame(8, 0, 0, 0, 100, 0, 0, 0, 0),
		"a frame over the limit":            frame(16<<20 + 1),
		"HTTP":                              []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"HTTP/2":                            []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
		"a TLS hello":                       append([]byte{0x16, 3, 1, 2, 0}, make([]byte, 100)...),
		"a JSON header that is none":        frame(8, 0, 0, 0, 4, '{', '{', '{', '{'),
		"a binary header with a bad length": append(frame(25, 1, 0, 0, 21), bytes.Repeat([]byte{0xff}, 21)...),
	} {
		c := e.dial()
		if _, err := c.conn.Write(give); err != nil {
			t.Fatal(err)
		}
		c.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if n, err := c.conn.Read(make([]byte, 100)); err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: read %d bytes, %v; want a closed connection", name, n, err)
		}
		good.sent(message{topic: "T", body: name})
	}
	// Half a frame that stays half holds nobody up.
	c := e.dial()
	c.conn.Write(frame(1000, 0, 0))
	good.sent(message{topic: "T", body: "beside half a frame"})
}

// Random fields for every code: always an answer, never a panic, nothing stored.
func FuzzLaw9Request(f *testing.F) {
	e := start(f)
	e.topic("T", 1)
	c := e.dial()
	f.Add(int32(10), "topic", "T", "queueId", "0", []byte("body"))
	f.Add(int32(310), "b", "T", "e", "-1", []byte(nil))
	f.Add(int32(11), "topic", "T", "sysFlag", "7", []byte(nil))
	f.Add(int32(14), "consumerGroup", "G", "queueId", "9223372036854775807", []byte(nil))
	f.Add(int32(15), "commitOffset", "-9223372036854775808", "topic", "T", []byte(nil))
	f.Add(int32(17), "topic", "a\x00b", "perm", "7", []byte(nil))
	f.Add(int32(33), "offset", "-1", "", "", []byte(nil))
	f.Add(int32(34), "", "", "", "", []byte(`{"clientID":"c","consumerDataSet":[{"groupName":"G"}]}`))
	f.Add(int32(46), "", "", "", "", []byte(`{"subscriptionData":{}}`))
	f.Add(int32(200), "", "", "", "", []byte(`{"groupName":"\u0001"}`))
	f.Fuzz(func(t *testing.T, code int32, k1, v1, k2, v2 string, body []byte) {
		if len(k1)+len(v1)+len(k2)+len(v2)+len(body) > 1<<16 {
			return
		}
		panics := e.listeningStats().Panics
		c.TB = t
		r := c.call(code, body, k1, v1, k2, v2, "producerGroup", "P", "bornTimestamp", "0", "flag", "0")
		if r.Code != 0 && r.Remark == "" {
			t.Errorf("code %d: %v without a word", code, r)
		}
		if e.listeningStats().Panics != panics {
			t.Fatalf("code %d panicked: %v", code, r)
		}
	})
}

func TestStopAnswersHeldPullsAndUnregisters(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	e.topic("U", 1)
	c := e.dial()
	p := e.dial()
	o := c.put(remoting.ReqPullMessage, 0, nil, pullReq{group: "G", topic: "T", sub: "*", suspend: 30 * time.Second}.fields()...)
	c.flush()
	d := e.dial()
	rejecting := d.put(remoting.ReqPullMessage, 0, nil, pullReq{group: "G", topic: "U", sub: "A", suspend: 30 * time.Second}.fields()...)
	d.flush()
	e.held(2)
	for range 2 {
		p.sent(message{topic: "U", body: "x", props: props("TAGS", "B")})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := e.b.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if r := c.await(o); r.Code != 19 {
		t.Errorf("the held pull: %v", r)
	}
	if r := d.await(rejecting); r.Code != 20 || num(t, r, "nextBeginOffset") != 2 {
		t.Errorf("after rejected messages: %v, want code 20 and the offset behind them", r)
	}
	if _, ok := e.ns.Table().Route("T", e.b.cfg.StoreHost.Addr()); ok {
		t.Error("the broker is still in the routes")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.b.Serve(ln); !errors.Is(err, ErrStopped) {
		t.Errorf("Serve after Stop: %v", err)
	}
	if err := e.b.Stop(ctx); err != nil {
		t.Errorf("second Stop: %v", err)
	}
}

// Two listeners, the broker's and the fast one, share one broker: numbers of connections must not clash.
func TestTwoListeners(t *testing.T) {
	e := start(t, func(c *Config, _ *store.Options) { c.NoticeGap = time.Millisecond })
	e.topic("T", 1)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.b.Serve(ln); err != nil {
		t.Fatal(err)
	}
	a := e.dial()
	e.addr = ln.Addr().String()
	b := e.dial()
	a.beat("a@1", "G", false, sub("T", "*", 1))
	b.beat("b@1", "G", false, sub("T", "*", 1))
	a.note("G")
	b.note("G")
	if s := a.ids("G"); s != `{"consumerIdList":["a@1","b@1"]}` {
		t.Errorf("members %s", s)
	}
}

// A remote name server is told everything at first, then changes, and everything again after it was away.
func TestRemoteNameServer(t *testing.T) {
	ns, err := nameserver.New(nameserver.Config{Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	ln, err := net.Listen("tcp", "127.0.77.2:0") // where nobody else takes the port while the name server is away
	if err != nil {
		t.Fatal(err)
	}
	serve := func(ln net.Listener) *server.Server {
		s, err := server.Serve(ln, server.Config{Handler: ns, Closed: ns.Closed, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := serve(ln)
	e := start(t, func(c *Config, _ *store.Options) {
		c.Registrars = append(c.Registrars, NewRemote(ln.Addr().String(), c.Log))
		c.AdvertiseAddr = fmt.Sprintf(":%d", c.StoreHost.Port())
	})
	routed := func(topic string) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			r, ok := ns.Table().Route(topic, netip.Addr{})
			if ok && r.BrokerDatas[0].BrokerAddrs[0] == fmt.Sprintf("127.0.0.1:%d", e.b.cfg.StoreHost.Port()) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s is not in the routes: %+v", topic, r)
			}
		}
	}
	routed("TBW102")
	e.topic("T", 1)
	routed("T")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	e.topic("Meanwhile", 1)
	if ln, err = net.Listen("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	s = serve(ln)
	e.topic("After", 1)
	routed("T")
	routed("Meanwhile")
	routed("After")
	if err := e.b.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, ok := ns.Table().Route("T", netip.Addr{}); !ok {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the broker is still in the routes after it stopped")
		}
	}
	if err := s.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
}

// So many topics that one frame would be too large are registered in parts.
func TestRemoteSplitsLargeRegistrations(t *testing.T) {
	ns, err := nameserver.New(nameserver.Config{Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	s, err := server.Listen("127.0.0.1:0", server.Config{Handler: ns, Closed: ns.Closed, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	r := NewRemote(s.Addr().String(), quiet)
	reg := nameserver.Registration{Cluster: "C", Broker: "b", Addr: "10.0.0.1:10911", HAAddr: "10.0.0.1:10912", Complete: true, Topics: map[string]remoting.TopicConfig{}}
	const n = 3*remoteTopics + 1
	for i := range n {
		name := fmt.Sprintf("%060d", i)
		reg.Topics[name] = remoting.NewTopicConfig(name)
	}
	if err := r.Register(reg); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); len(ns.Table().Topics(nil)) != n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d topics have a route, want %d", len(ns.Table().Topics(nil)), n)
		}
	}
	if err := r.Unregister(reg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
}
