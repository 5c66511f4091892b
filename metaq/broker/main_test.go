package broker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fusionmq/fusionmq/metaq/nameserver"
	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/check"
	"github.com/fusionmq/fusionmq/store/record"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/cloudwego/netpoll.(*defaultPoll).Wait"))
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// env is a broker over a store in a temporary directory, with a name server that hears of it.
type env struct {
	testing.TB
	b     *Broker
	store *store.Store
	ns    *nameserver.NameServer
	addr  string
}

type option func(*Config, *store.Options)

func start(t testing.TB, opts ...option) *env {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().(*net.TCPAddr).AddrPort()
	ns, err := nameserver.New(nameserver.Config{Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	so := store.Options{Dir: t.TempDir(), SegmentBytes: 16 << 20, StoreHost: addr}
	cfg := Config{AdvertiseAddr: addr.String(), StoreHost: addr, Registrars: []Registrar{Embedded{ns}}, Log: quiet}
	for _, o := range opts {
		o(&cfg, &so)
	}
	st, err := store.Open(so)
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(cfg, st, so.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := b.Serve(ln); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := b.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
		ns.Close()
		if err := st.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
		r, err := check.Run(context.Background(), check.Options{Dir: so.Dir, FS: so.FS})
		if err == nil {
			err = r.Err()
		}
		if err != nil {
			t.Errorf("check of what is left: %v", err)
		}
	})
	return &env{TB: t, b: b, store: st, ns: ns, addr: addr.String()}
}

// reply is a decoded frame.
type reply struct {
	*remoting.Header
	body []byte
}

func (r *reply) String() string { return fmt.Sprintf("code %d %q %v", r.Code, r.Remark, r.Ext) }

// client is one raw connection. It is used by one goroutine.
type client struct {
	testing.TB
	conn    net.Conn
	in      *bufio.Reader // what comes through conn
	enc     remoting.Encoder
	opaque  int32
	notes   []*reply // requests of the broker that came while waiting
	binary  bool
	version int32 // that requests state; 0: this implementation's
}

func (e *env) dial() *client {
	e.Helper()
	conn, err := net.Dial("tcp", e.addr)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { conn.Close() })
	return &client{TB: e.TB, conn: conn, in: bufio.NewReader(conn)}
}

// put encodes a request without sending it and returns its opaque.
func (c *client) put(code int32, flag int32, body []byte, kv ...string) int32 {
	c.opaque++
	head := remoting.Head{Code: code, Opaque: c.opaque, Flag: flag, Version: c.version}
	if c.binary {
		head.Serialize = remoting.Binary
	}
	c.enc.Begin(head)
	for i := 0; i < len(kv); i += 2 {
		c.enc.String(kv[i], kv[i+1])
	}
	if err := c.enc.End(body); err != nil {
		c.Fatal(err)
	}
	return c.opaque
}

func (c *client) flush() {
	c.Helper()
	if _, err := c.conn.Write(c.enc.Bytes()); err != nil {
		c.Fatal(err)
	}
	c.enc.Reset(c.enc.Bytes())
}

// read gives the next frame; nil when none has begun to come within d.
func (c *client) read(d time.Duration) *reply {
	c.Helper()
	c.conn.SetReadDeadline(time.Now().Add(d))
	if _, err := c.in.Peek(1); errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	c.conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	frame, err := remoting.ReadFrame(c.in, nil)
	if err != nil {
		c.Fatalf("read: %v", err)
	}
	h := new(remoting.Header)
	body, err := h.Decode(frame)
	if err != nil {
		c.Fatal(err)
	}
	return &reply{h, body}
}

// await gives the answer to a request.
func (c *client) await(opaque int32) *reply {
	c.Helper()
	for {
		r := c.read(30 * time.Second)
		switch {
		case r == nil:
			c.Fatalf("no answer to request %d", opaque)
		case !r.Response():
			c.notes = append(c.notes, r)
		case r.Opaque == opaque:
			return r
		default:
			c.Fatalf("answer to %d while waiting for %d: %v", r.Opaque, opaque, r)
		}
	}
}

func (c *client) call(code int32, body []byte, kv ...string) *reply {
	c.Helper()
	o := c.put(code, 0, body, kv...)
	c.flush()
	return c.await(o)
}

// ok calls and expects success.
func (c *client) ok(code int32, body []byte, kv ...string) *reply {
	c.Helper()
	r := c.call(code, body, kv...)
	if r.Code != 0 {
		c.Fatalf("%s: %v", remoting.RequestName(code), r)
	}
	return r
}

// message is a send with sensible fields.
type message struct {
	topic string
	queue int
	body  string
	props string
	extra []string // further header fields; an empty value takes a field away
	v2    bool
}

func (m message) fields() []string {
	long := []string{"producerGroup", "P", "topic", m.topic, "defaultTopic", "TBW102", "defaultTopicQueueNums", "4", "queueId", strconv.Itoa(m.queue),
		"sysFlag", "0", "bornTimestamp", "1700000000000", "flag", "0", "properties", m.props, "reconsumeTimes", "0", "unitMode", "false", "batch", "false"}
	short := strings.Split("a b c d e f g h i j k m", " ")
	out := append([]string{}, long...)
	for i := range short {
		if m.v2 {
			out[2*i] = short[i]
		}
	}
	for i := 0; i < len(m.extra); i += 2 {
		found := false
		for j := 0; j < len(out); j += 2 {
			if out[j] == m.extra[i] {
				found, out[j+1] = true, m.extra[i+1]
				if m.extra[i+1] == "" {
					out = append(out[:j], out[j+2:]...)
				}
				break
			}
		}
		if !found && m.extra[i+1] != "" {
			out = append(out, m.extra[i], m.extra[i+1])
		}
	}
	return out
}

func (m message) code() int32 {
	if m.v2 {
		return remoting.ReqSendMessageV2
	}
	return remoting.ReqSendMessage
}

func (c *client) send(m message) *reply {
	c.Helper()
	return c.call(m.code(), []byte(m.body), m.fields()...)
}

func (c *client) sent(m message) *reply {
	c.Helper()
	r := c.send(m)
	if r.Code != 0 {
		c.Fatalf("send to %s: %v", m.topic, r)
	}
	return r
}

// pullReq is a pull with sensible fields.
type pullReq struct {
	group, topic string
	queue        int
	offset       int64
	max          int
	sub          string // not empty: travels with the request
	kind         string
	suspend      time.Duration
	version      int64
	flags        int32
	commit       int64
}

func (p pullReq) fields() []string {
	flags := p.flags
	if p.sub != "" {
		flags |= remoting.PullSubscription
	}
	if p.suspend != 0 {
		flags |= remoting.PullSuspend
	}
	if p.max == 0 {
		p.max = 32
	}
	return []string{"consumerGroup", p.group, "topic", p.topic, "queueId", strconv.Itoa(p.queue), "queueOffset", strconv.FormatInt(p.offset, 10),
		"maxMsgNums", strconv.Itoa(p.max), "sysFlag", strconv.Itoa(int(flags)), "commitOffset", strconv.FormatInt(p.commit, 10),
		"suspendTimeoutMillis", strconv.FormatInt(p.suspend.Milliseconds(), 10), "subVersion", strconv.FormatInt(p.version, 10), "subscription", p.sub, "expressionType", p.kind}
}

func (c *client) pull(p pullReq) *reply {
	c.Helper()
	return c.call(remoting.ReqPullMessage, nil, p.fields()...)
}

func (e *env) topic(name string, queues int) string {
	e.Helper()
	c := e.dial()
	c.ok(remoting.ReqUpdateAndCreateTopic, nil, "topic", name, "defaultTopic", "TBW102", "readQueueNums", strconv.Itoa(queues), "writeQueueNums", strconv.Itoa(queues),
		"perm", "6", "topicFilterType", "SINGLE_TAG", "topicSysFlag", "0", "order", "false")
	return name
}

func (c *client) beat(id, group string, broadcast bool, subs ...remoting.SubscriptionData) *reply {
	c.Helper()
	model := remoting.Clustering
	if broadcast {
		model = remoting.Broadcasting
	}
	body, err := json.Marshal(remoting.HeartbeatData{ClientID: id, ConsumerDataSet: []remoting.ConsumerData{{
		GroupName: group, ConsumeType: remoting.ConsumePassively, MessageModel: model, ConsumeFromWhere: remoting.FromFirstOffset, SubscriptionDataSet: subs,
	}}})
	if err != nil {
		c.Fatal(err)
	}
	return c.call(remoting.ReqHeartBeat, body)
}

func sub(topic, expr string, version int64) remoting.SubscriptionData {
	return remoting.SubscriptionData{Topic: topic, SubString: expr, ExpressionType: "TAG", SubVersion: remoting.Long(version)}
}

// records takes the messages of a body apart.
func records(t testing.TB, body []byte) (out []record.View) {
	t.Helper()
	for len(body) > 0 {
		size := int(body[0])<<24 | int(body[1])<<16 | int(body[2])<<8 | int(body[3])
		if size > len(body) {
			t.Fatalf("record of %d bytes in %d", size, len(body))
		}
		v, err := record.Parse(body[:size])
		if err != nil {
			t.Fatal(err)
		}
		out, body = append(out, v), body[size:]
	}
	return out
}

func num(t testing.TB, r *reply, field string) int64 {
	t.Helper()
	n, err := r.Int64(field)
	if err != nil {
		t.Fatalf("%v in %v", err, r)
	}
	return n
}

func props(kv ...string) string {
	var b []byte
	for i := 0; i < len(kv); i += 2 {
		b = record.AppendProperty(b, kv[i], kv[i+1])
	}
	return string(b)
}

// until waits for something that comes about on other goroutines.
func (e *env) until(what string, fn func() bool) {
	e.Helper()
	for end := time.Now().Add(20 * time.Second); !fn(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			e.Fatalf("not in 20 s: %s", what)
		}
	}
}
