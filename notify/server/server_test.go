package server

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/cloudwego/netpoll"
	"go.uber.org/goleak"

	"github.com/fusionmq/fusionmq/notify"
	"github.com/fusionmq/fusionmq/notify/wire"
	"github.com/fusionmq/fusionmq/store"
)

func TestMain(m *testing.M) {
	netpoll.SetLoggerOutput(io.Discard)
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/cloudwego/netpoll.(*defaultPoll).Wait"))
}

// rig is a whole server on a store of its own.
type rig struct {
	t   testing.TB
	dir string
	st  *store.Store
	svc *notify.Service
	srv *Server
}

func newRig(t testing.TB, change func(*notify.Options, *Options)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir()}
	r.start(change)
	t.Cleanup(r.stop)
	return r
}

func (r *rig) start(change func(*notify.Options, *Options)) {
	r.t.Helper()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	no, so := notify.Options{Log: log}, Options{Addr: "127.0.0.1:0", Log: log}
	if change != nil {
		change(&no, &so)
	}
	r.svc = notify.New(no)
	var err error
	r.st, err = store.Open(store.Options{Dir: r.dir, SegmentBytes: 64 << 20, Exchange: r.svc.Exchange(), Observer: r.svc.Observer()})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.svc.Start(r.st); err != nil {
		r.t.Fatal(err)
	}
	so.Service = r.svc
	if r.srv, err = Listen(so); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.srv.Shutdown(ctx); err != nil {
		r.t.Errorf("Shutdown: %v", err)
	}
	if err := r.svc.Stop(ctx); err != nil {
		r.t.Errorf("Stop: %v", err)
	}
	if err := r.st.Close(); err != nil {
		r.t.Errorf("Close: %v", err)
	}
}

// client speaks frames to the server.
type client struct {
	t    testing.TB
	nc   net.Conn
	buf  []byte
	next uint32
}

func (r *rig) dial() *client {
	r.t.Helper()
	nc, err := net.Dial("tcp", r.srv.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { nc.Close() })
	return &client{t: r.t, nc: nc}
}

func (c *client) write(b []byte) {
	c.t.Helper()
	if _, err := c.nc.Write(b); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

// read returns the next frame; its bytes are good until the next read.
func (c *client) read() wire.Frame {
	c.t.Helper()
	f, err := c.tryRead(10 * time.Second)
	if err != nil {
		c.t.Fatalf("read: %v", err)
	}
	return f
}

func (c *client) tryRead(d time.Duration) (wire.Frame, error) {
	_ = c.nc.SetReadDeadline(time.Now().Add(d))
	var head [wire.ResponseFixed]byte
	n := wire.RequestFixed
	if _, err := io.ReadFull(c.nc, head[:n]); err != nil {
		return wire.Frame{}, err
	}
	if head[0] == wire.MagicResponse {
		n = wire.ResponseFixed
		if _, err := io.ReadFull(c.nc, head[wire.RequestFixed:n]); err != nil {
			return wire.Frame{}, err
		}
	}
	h, err := wire.ParseHead(head[:n])
	if err != nil {
		return wire.Frame{}, err
	}
	c.buf = append(c.buf[:0], head[:n]...)
	c.buf = append(c.buf, make([]byte, h.TotalLen)...)
	if _, err := io.ReadFull(c.nc, c.buf[n:]); err != nil {
		return wire.Frame{}, err
	}
	return wire.FrameOf(h, c.buf)
}

// call sends a request and returns its answer. Nothing else may be on its way.
func (c *client) call(op wire.Opcode, header, body []byte) wire.Frame {
	c.t.Helper()
	c.next++
	b, err := wire.AppendRequest(nil, op, c.next, header, body)
	if err != nil {
		c.t.Fatal(err)
	}
	c.write(b)
	f := c.read()
	if !f.Response || f.Opcode != op || f.Opaque != c.next {
		c.t.Fatalf("answer to %v %d is %+v", op, c.next, f.Head)
	}
	return f
}

func (c *client) must(op wire.Opcode, header, body []byte) {
	c.t.Helper()
	if f := c.call(op, header, body); f.Status != wire.NoError {
		text, _, _ := wire.ErrorText(f.Header)
		c.t.Fatalf("%v is answered %v: %s", op, f.Status, text)
	}
}

func (c *client) refused(op wire.Opcode, header, body []byte, status wire.Status) string {
	c.t.Helper()
	f := c.call(op, header, body)
	text, _, _ := wire.ErrorText(f.Header)
	if f.Status != status {
		c.t.Fatalf("%v is answered %v %q, want %v", op, f.Status, text, status)
	}
	return string(text)
}

func (c *client) metadata(features wire.Feature, groups ...string) {
	c.t.Helper()
	var m wire.Metadata
	for _, g := range groups {
		m.Clients = append(m.Clients, wire.ClientInfo{Group: []byte(g)})
	}
	if features != 0 {
		m.Build = []wire.Property{wire.FeatureProperty(features)}
	}
	c.must(wire.OpMetadata, nil, m.Append(nil))
}

func binding(kind wire.BindingKind, topic, expr, group string) []byte {
	b := wire.Binding{Kind: kind, Topic: topic, Expr: expr, Group: group, WaterMark: -1, Persistent: true}
	s := wire.Subscription{Binding: []byte(b.String())}
	return s.Append(nil)
}

func header(id uint64, topic, typ string) []byte {
	h := wire.MessageHeader{
		ID: binary.BigEndian.AppendUint64(make([]byte, 8), id), Topic: []byte(topic), Type: []byte(typ), Group: []byte("P-test"),
		Committed: true, BornTime: uint64(time.Now().UnixMilli()), Priority: 4,
	}
	return h.Append(nil)
}

func (c *client) send(id uint64, topic, typ, body string) {
	c.t.Helper()
	c.must(wire.OpSend, header(id, topic, typ), []byte(body))
}

// delivery reads one DELIVER_MESSAGE.
func (c *client) delivery() (wire.MessageHeader, string, uint32) {
	c.t.Helper()
	f := c.read()
	if f.Response || f.Opcode != wire.OpDeliver {
		c.t.Fatalf("got %+v, want a delivery", f.Head)
	}
	var h wire.MessageHeader
	if err := h.Decode(f.Header); err != nil {
		c.t.Fatal(err)
	}
	return h, string(f.Body), f.Opaque
}

func (c *client) ack(opaque uint32, status wire.Status) {
	b, _ := wire.AppendResponse(nil, wire.OpDeliver, status, opaque, nil, nil)
	c.write(b)
}

func TestPlainClientSendsAndIsPushed(t *testing.T) {
	r := newRig(t, nil)
	sub := r.dial()
	sub.metadata(0, "S-a")
	sub.must(wire.OpSubscribe, binding(wire.Direct, "T", "paid", "S-a"), nil)
	pub := r.dial()
	pub.metadata(0, "P-test")
	for i := range 3 {
		pub.send(uint64(i), "T", "paid", fmt.Sprintf("body %d", i))
		pub.send(uint64(100+i), "T", "other", "not for S-a")
	}
	for i := range 3 {
		h, body, opaque := sub.delivery()
		if want := fmt.Sprintf("body %d", i); body != want || string(h.TargetGroup) != "S-a" || h.DeliveryCount != 1 || string(h.Type) != "paid" {
			t.Errorf("delivery %d: body %q, header %+v", i, body, h)
		}
		sub.ack(opaque, wire.NoError)
	}
}
