package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fusionmq/fusionmq/notify"
	"github.com/fusionmq/fusionmq/notify/wire"
	"github.com/fusionmq/fusionmq/socket"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/check"
	"github.com/fusionmq/fusionmq/store/state"
)

func TestMain(m *testing.M) {
	socket.Configure()
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
	left, err := check.Run(context.Background(), check.Options{Dir: r.dir, Exchange: func() state.Exchange {
		return notify.New(notify.Options{Log: slog.New(slog.DiscardHandler)}).Exchange()
	}})
	if err == nil {
		err = left.Err()
	}
	if err != nil {
		r.t.Errorf("check of what is left: %v", err)
	}
}

// clock is one that a test turns by hand.
type clock struct{ moved atomic.Int64 } // nanoseconds

var clockBegins = time.Unix(1_700_000_000, 0)

func (k *clock) set(o *Options) {
	o.Now = func() time.Time { return clockBegins.Add(time.Duration(k.moved.Load())) }
}
func (k *clock) pass(d time.Duration) { k.moved.Add(int64(d)) }

// until waits for something that happens without us.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 30 s for %s", what)
		}
	}
}

// client speaks frames to the server.
type client struct {
	t    testing.TB
	nc   net.Conn
	buf  []byte
	next uint32
	// Deliveries that came before the answer that call waited for: on a connection that subscribes to what it sends, either may be first.
	early []wire.Frame
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
	f, err := c.tryRead(patience)
	if err != nil {
		c.t.Fatalf("read: %v", err)
	}
	return f
}

const patience = 30 * time.Second // for a frame, or the end, that is to come

func (c *client) tryRead(d time.Duration) (wire.Frame, error) {
	if len(c.early) > 0 {
		f := c.early[0]
		c.early = c.early[1:]
		return f, nil
	}
	return c.receive(d)
}

// receive reads the next frame from the connection.
func (c *client) receive(d time.Duration) (wire.Frame, error) {
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

// call sends a request and returns its answer. What is pushed before it, read returns later.
func (c *client) call(op wire.Opcode, header, body []byte) wire.Frame {
	c.t.Helper()
	c.next++
	b, err := wire.AppendRequest(nil, op, c.next, header, body)
	if err != nil {
		c.t.Fatal(err)
	}
	c.write(b)
	f, err := c.receive(patience)
	for ; err == nil && !f.Response; f, err = c.receive(patience) {
		f.Header, f.Body = bytes.Clone(f.Header), bytes.Clone(f.Body)
		c.early = append(c.early, f)
	}
	if err != nil {
		c.t.Fatalf("answer to %v: %v", op, err)
	}
	if f.Opcode != op || f.Opaque != c.next {
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

func TestBatchClientGetsTagsAndAcknowledgesRuns(t *testing.T) {
	r := newRig(t, nil)
	sub := r.dial()
	sub.metadata(wire.AllFeatures, "S-a", "S-b")
	sub.must(wire.OpSubscribe, binding(wire.Fanout, "T", "", "S-a"), nil)
	sub.must(wire.OpSubscribe, binding(wire.Fanout, "T", "", "S-b"), nil)
	pub := r.dial()
	pub.metadata(0, "P-test")
	for i := range 10 {
		pub.send(uint64(i), "T", "x", "body")
	}
	// No credit, no message.
	if f, err := sub.tryRead(50 * time.Millisecond); err == nil {
		t.Fatalf("got %+v before any credit", f.Head)
	}
	for _, g := range []string{"S-a", "S-b"} {
		c := wire.Credit{Group: []byte(g), Messages: 4}
		b, _ := wire.AppendRequest(nil, wire.OpCredit, 77, c.Append(nil), nil)
		sub.write(b)
	}
	got := map[string]int{}
	answers := 0
	var last uint64
	read := func(want int) {
		t.Helper()
		for n := 0; n < want; {
			f := sub.read()
			if f.Opcode == wire.OpCredit {
				answers++
				continue
			}
			if f.Opcode != wire.OpDeliverBatch {
				t.Fatalf("got %+v, want a batch", f.Head)
			}
			ds, err := wire.Batch(f.Header, f.Body)
			if err != nil {
				t.Fatal(err)
			}
			for {
				tag, hdr, body, ok, err := ds.Next()
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				var h wire.MessageHeader
				if err := h.Decode(hdr); err != nil || string(body) != "body" {
					t.Fatalf("%v %q", err, body)
				}
				if tag != last+1 {
					t.Errorf("tag %d after %d", tag, last)
				}
				last = tag
				got[string(h.TargetGroup)]++
				n++
			}
		}
	}
	read(8)
	if got["S-a"] != 4 || got["S-b"] != 4 {
		t.Errorf("with credit for 4 each: %v", got)
	}
	var e wire.AckEncoder
	body := e.Append(nil, wire.AckRun{First: 1, Last: 8})
	b, _ := wire.AppendRequest(nil, wire.OpAckBatch, 0, nil, body)
	sub.write(b)
	read(8)
	e = wire.AckEncoder{}
	body = e.Append(nil, wire.AckRun{First: 3, Last: 1 << 60}) // answered ones and ones that never were: ignored
	b, _ = wire.AppendRequest(nil, wire.OpAckBatch, 0, nil, body)
	sub.write(b)
	read(4)
	if answers != 2 || got["S-a"] != 10 || got["S-b"] != 10 {
		t.Errorf("%d answers to credit, deliveries %v", answers, got)
	}
}

func TestSecondMetadataReplacesTheFirst(t *testing.T) { // rulings A09
	r := newRig(t, nil)
	c, pub := r.dial(), r.dial()
	c.metadata(wire.AllFeatures, "S-a")
	c.must(wire.OpSubscribe, binding(wire.Fanout, "T", "", "S-a"), nil)
	c.metadata(0, "S-b", "S-a") // a set, and no feature any more
	c.refused(wire.OpCredit, nil, nil, wire.StatusNoOpcode)
	pub.metadata(0, "P-test")
	pub.send(1, "T", "x", "plain again, without credit")
	if h, _, opaque := c.delivery(); string(h.TargetGroup) != "S-a" {
		t.Errorf("delivery for %s", h.TargetGroup)
	} else {
		c.ack(opaque, wire.NoError)
	}
	c.metadata(0, "S-b")
	if text := c.refused(wire.OpSubscribe, binding(wire.Fanout, "T", "", "S-a"), nil, wire.StatusError); !strings.Contains(text, "not in the metadata") {
		t.Errorf("a group of the first metadata: %q", text)
	}
}

func TestFirstDeliveryFollowsTheAnswerToMetadata(t *testing.T) {
	r := newRig(t, nil)
	first := r.dial()
	first.metadata(0, "S-a")
	first.must(wire.OpSubscribe, binding(wire.Fanout, "T", "", "S-a"), nil)
	first.nc.Close()
	r.fill("T", 200)
	for range 20 {
		c := r.dial()
		c.metadata(wire.FeatureBatch, "S-a") // fails on anything but the answer
		if f := c.read(); f.Opcode != wire.OpDeliverBatch {
			t.Fatalf("after agreeing on batches: %+v", f.Head)
		}
		c.nc.Close()
		for r.svc.Stats().Members > 0 { // else what it had goes to the next one as to a second machine
			time.Sleep(time.Millisecond)
		}
	}
}

func TestRequestsBeforeMetadataAndUnknownOpcodes(t *testing.T) {
	r := newRig(t, nil)
	c := r.dial()
	c.must(wire.OpHeartbeat, nil, nil)
	if f := c.call(wire.OpDummy, []byte("hello"), nil); f.Status != wire.NoError || string(f.Header) != "hello" {
		t.Errorf("DUMMY answered %v %q", f.Status, f.Header)
	}
	for _, op := range []wire.Opcode{wire.OpSend, wire.OpSubscribe, wire.OpSendList, 0x77} {
		if text := c.refused(op, nil, nil, wire.StatusError); text != "send metadata first" {
			t.Errorf("%v before metadata: %q", op, text)
		}
	}
	c.refused(wire.OpMetadata, nil, nil, wire.StatusError) // no group
	c.metadata(0, "S-a")
	for _, op := range []wire.Opcode{wire.OpSendList, wire.OpCommitRollback, wire.OpOpenSubscription, wire.OpDeliver, wire.OpCheck,
		wire.OpUnsubscribe, wire.OpCredit, wire.OpAckBatch, wire.OpDeliverBatch, 0x77} {
		c.refused(op, nil, nil, wire.StatusNoOpcode)
	}
	if text := c.refused(wire.OpSubscribe, binding(wire.Fanout, "T", "", "S-other"), nil, wire.StatusError); !strings.Contains(text, "not in the metadata") {
		t.Errorf("foreign group: %q", text)
	}
	c.refused(wire.OpSend, []byte{0xff}, []byte("x"), wire.StatusError)
	c.must(wire.OpHeartbeat, nil, nil) // the connection has survived all of it
	if n := r.st.Stats().Appends; n != 0 {
		t.Errorf("%d records stored", n)
	}
}

func TestFramesCutAnywhereAreUnderstood(t *testing.T) {
	r := newRig(t, nil)
	c := r.dial()
	c.metadata(0, "P-test")
	var all []byte
	for i := range 3 {
		all, _ = wire.AppendRequest(all, wire.OpSend, uint32(100+i), header(uint64(i), "T", "x"), []byte("cut"))
		all, _ = wire.AppendRequest(all, wire.OpHeartbeat, uint32(200+i), nil, nil)
	}
	for cut := 1; cut < len(all); cut += 7 {
		c.write(all[:cut])
		time.Sleep(200 * time.Microsecond) // most of the time the two parts come apart
		c.write(all[cut:])
		for range 6 {
			if f := c.read(); f.Status != wire.NoError {
				t.Fatalf("cut at %d: %+v", cut, f.Head)
			}
		}
	}
}

func TestLaw6PeerThatDoesNotReadIsCutOffAndCostsTheOthersNothing(t *testing.T) { // faults PSH-10
	var clk clock // stands while the good one is served: the machine may be slow, and it is not to be cut off for that
	r := newRig(t, func(_ *notify.Options, o *Options) { clk.set(o) })
	stuck, good := r.dial(), r.dial()
	for c, g := range map[*client]string{stuck: "S-stuck", good: "S-good"} {
		c.metadata(wire.FeatureBatch, g)
		c.must(wire.OpSubscribe, binding(wire.Fanout, "T", "", g), nil)
	}
	var got atomic.Int64
	const n = 20_000
	done := make(chan struct{})
	var once sync.Once
	go drain(good, &got, n, func() { once.Do(func() { close(done) }) })
	r.fill("T", n)
	select {
	case <-done:
	case <-time.After(60 * time.Second):
		t.Fatalf("the good subscriber has %d of %d", got.Load(), n)
	}
	if r.srv.Stats().Slow != 0 {
		t.Error("one was cut off before its time")
	}
	until(t, "the stuck one to be cut off", func() bool {
		clk.pass(time.Second)
		return r.srv.Stats().Slow == 1
	})
}

func TestIdleAndHalfSentConnectionsAreClosed(t *testing.T) {
	var clk clock
	r := newRig(t, func(_ *notify.Options, o *Options) {
		o.IdleTimeout, o.PartialTimeout = 400*time.Millisecond, 100*time.Millisecond
		clk.set(o)
	})
	// swept returns when every connection has been looked at at the clock's time.
	swept := func() {
		t.Helper()
		for range 3 { // the second is taken when the sweep of the first has ended, and the third waits for that
			r.srv.crowded <- struct{}{}
		}
		if want := time.Duration(clk.moved.Load()).Milliseconds(); r.srv.now() != want {
			t.Fatalf("the sweeper's time is %d, want %d", r.srv.now(), want)
		}
	}
	idle, half, alive := r.dial(), r.dial(), r.dial()
	until(t, "the connections", func() bool { return r.srv.Stats().Connections == 3 })
	half.write([]byte{wire.MagicRequest, byte(wire.OpHeartbeat), 0})
	until(t, "half a frame", func() bool {
		return slices.ContainsFunc(r.srv.every(), func(c *conn) bool { return c.partialSince.Load() != 0 })
	})
	ended := func(c *client) {
		t.Helper()
		if f, err := c.tryRead(patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%+v, %v, want the end of the connection", f, err)
		}
	}
	stats := func(connections int, closedIdle, malformed uint64) {
		t.Helper()
		if s := r.srv.Stats(); s.Connections != connections || s.Idle != closedIdle || s.Malformed != malformed {
			t.Errorf("stats %+v, want %d connections, %d closed as idle and %d as malformed", s, connections, closedIdle, malformed)
		}
	}
	clk.pass(100 * time.Millisecond)
	swept()
	stats(3, 0, 0)
	clk.pass(2 * time.Millisecond)
	swept() // more than once before it is gone, or soon after
	ended(half)
	until(t, "it to be gone", func() bool { return r.srv.Stats().Connections == 2 })
	clk.pass(298 * time.Millisecond)
	swept()
	stats(2, 0, 1)
	alive.must(wire.OpHeartbeat, nil, nil)
	clk.pass(2 * time.Millisecond)
	swept()
	ended(idle)
	until(t, "it to be gone", func() bool { return r.srv.Stats().Connections == 1 })
	clk.pass(398 * time.Millisecond)
	swept()
	stats(1, 1, 1)
	alive.must(wire.OpHeartbeat, nil, nil)
}

func TestTooManyConnectionsAreRefused(t *testing.T) {
	r := newRig(t, func(_ *notify.Options, o *Options) { o.MaxConnections = 2 })
	a, b := r.dial(), r.dial()
	a.must(wire.OpHeartbeat, nil, nil)
	b.must(wire.OpHeartbeat, nil, nil)
	c := r.dial()
	if _, err := c.tryRead(patience); err == nil {
		t.Error("a third connection was served")
	}
	a.must(wire.OpHeartbeat, nil, nil)
}

func TestRestartGoesOnWhereItWas(t *testing.T) {
	r := newRig(t, nil)
	sub, pub := r.dial(), r.dial()
	sub.metadata(0, "S-a")
	sub.must(wire.OpSubscribe, binding(wire.Fanout, "T", "", "S-a"), nil)
	pub.metadata(0, "P-test")
	pub.send(1, "T", "x", "one")
	_, _, opaque := sub.delivery()
	sub.ack(opaque, wire.NoError)
	until(t, "the acknowledgement", func() bool { return r.svc.Stats().Unanswered == 0 })
	pub.send(2, "T", "x", "two")
	sub.delivery() // not acknowledged
	r.stop()
	r.start(nil)
	sub = r.dial()
	sub.metadata(0, "S-a") // the subscription was kept
	if h, body, _ := sub.delivery(); body != "two" || h.DeliveryCount != 1 {
		t.Errorf("after the restart came %q, attempt %d", body, h.DeliveryCount)
	}
}

// What a subscriber that waits costs the broker; the figure has the test's own end of the connection in it.
func TestIdleConnectionStaysUnder12KiB(t *testing.T) {
	r := newRig(t, nil)
	const n = 1000
	first := r.dial()
	first.metadata(0, "S-idle")
	first.must(wire.OpSubscribe, binding(wire.Fanout, "T", "", "S-idle"), nil)
	runtime.GC()
	debug.FreeOSMemory()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	goroutines := runtime.NumGoroutine()
	conns := make([]*client, n)
	for i := range conns {
		nc, err := net.Dial("tcp", r.srv.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		conns[i] = &client{t: t, nc: nc}
		conns[i].metadata(0, "S-idle")
		conns[i].must(wire.OpHeartbeat, nil, nil)
		conns[i].buf = nil
	}
	runtime.GC()
	debug.FreeOSMemory()
	runtime.ReadMemStats(&after)
	per := (int64(after.HeapInuse+after.StackInuse) - int64(before.HeapInuse+before.StackInuse)) / n
	t.Logf("%d bytes of heap and stack a connection, both ends; %d goroutines for %d connections", per, runtime.NumGoroutine()-goroutines, n)
	if per > 12<<10 {
		t.Errorf("%d bytes a connection, want at most 12 KiB", per)
	}
	if g := runtime.NumGoroutine() - goroutines; g > 20 {
		t.Errorf("%d goroutines more for %d idle connections", g, n)
	}
}
