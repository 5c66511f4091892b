package notify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fusionmq/fusionmq/notify/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a Notify server in memory, one per address. It serves what a test does not take over with a hook. Its
// connections are pipes, so that tests can run in a synctest bubble.
type fake struct {
	features wire.Feature // accepted; 0: a plain NOTIFY_V1 server

	// send answers a SEND_MESSAGE; nil stores it. It runs in the connection's goroutine.
	send func(c *fakeConn, f wire.Frame, h *wire.MessageHeader)
	// other takes any other request; false leaves it to the fake.
	other func(c *fakeConn, f wire.Frame) bool

	mu       sync.Mutex
	conns    []*fakeConn // open ones, oldest first
	all      int         // connections ever made
	stored   []storedMessage
	bindings []string // registered, as text, in order
	removed  []string
	credits  []wire.Credit
	acks     []wire.AckRun // in the order in which they came
	replies  []reply1      // to DELIVER_MESSAGE and others
	beats    int
	refuse   error         // of dial
	changed  chan struct{} // closed and replaced at every change
}

type storedMessage struct {
	id     MessageID
	header *wire.MessageHeader // owns its bytes
	body   []byte
}

type reply1 struct {
	op     wire.Opcode
	opaque uint32
	status wire.Status
	text   string
	id     string
}

type fakeConn struct {
	f        *fake
	nc       net.Conn
	out      chan []byte   // to its writer, so that a client that is slow to read holds nothing up
	gone     chan struct{} // closed at the end
	features wire.Feature
	tag      uint64
}

func newFake(features wire.Feature) *fake {
	return &fake{features: features, changed: make(chan struct{})}
}

// dialer connects to the fakes by address.
func dialer(fakes map[string]*fake) Option {
	return WithDialer(func(_ context.Context, _, addr string) (net.Conn, error) {
		f := fakes[addr]
		if f == nil {
			return nil, fmt.Errorf("no server at %s", addr)
		}
		return f.dial()
	})
}

func (f *fake) dial() (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return nil, f.refuse
	}
	client, server := net.Pipe()
	c := &fakeConn{f: f, nc: server, out: make(chan []byte, 10_000), gone: make(chan struct{})}
	f.conns = append(f.conns, c)
	f.all++
	f.tellLocked()
	go c.serve()
	go func() {
		for {
			select {
			case b := <-c.out:
				_, _ = c.nc.Write(b) // a client that went away is part of some tests
			case <-c.gone:
				return
			}
		}
	}()
	return client, nil
}

func (f *fake) tellLocked() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// until waits for a state of the fake.
func (f *fake) until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	limit := time.NewTimer(time.Hour) // of the bubble's clock
	defer limit.Stop()
	for {
		f.mu.Lock()
		done, changed := ok(), f.changed
		f.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			t.Fatalf("an hour passed before %s", what)
		}
	}
}

// breakAll ends all connections.
func (f *fake) breakAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.nc.Close()
	}
}

func (c *fakeConn) serve() {
	defer func() {
		_ = c.nc.Close()
		c.f.mu.Lock()
		close(c.gone)
		c.f.conns = slices.DeleteFunc(c.f.conns, func(x *fakeConn) bool { return x == c })
		c.f.tellLocked()
		c.f.mu.Unlock()
	}()
	var buf []byte
	chunk := make([]byte, 32<<10)
	for {
		for {
			fr, n, err := wire.Parse(buf)
			if errors.Is(err, wire.ErrShort) {
				break
			}
			if err != nil {
				return
			}
			c.frame(fr)
			buf = buf[n:]
		}
		n, err := c.nc.Read(chunk)
		if err != nil {
			return
		}
		buf = append(buf, chunk[:n]...)
	}
}

func (c *fakeConn) put(b []byte, err error) {
	if err != nil {
		panic(err)
	}
	select {
	case c.out <- b:
	case <-c.gone:
	}
}

func (c *fakeConn) answer(f wire.Frame, status wire.Status, text string) {
	c.put(wire.AppendAnswer(nil, f.Opcode, status, f.Opaque, text), nil)
}

func (c *fakeConn) frame(fr wire.Frame) {
	f := c.f
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.tellLocked()
	if !fr.Response && fr.Opcode != wire.OpSend && f.other != nil && f.other(c, fr) {
		return
	}
	switch {
	case fr.Response:
		r := reply1{op: fr.Opcode, opaque: fr.Opaque, status: fr.Status}
		if fr.Status != wire.NoError {
			text, _, _ := wire.ErrorText(fr.Header)
			r.text = string(text)
		} else if fr.Opcode == wire.OpDeliver {
			var a wire.MessageAck
			if err := a.Decode(fr.Header); err != nil {
				panic(err)
			}
			r.id = string(a.MessageID)
		}
		f.replies = append(f.replies, r)
	case fr.Opcode == wire.OpMetadata:
		var md wire.Metadata
		if err := md.Decode(fr.Body); err != nil || len(md.Clients) != 1 {
			panic(fmt.Sprint("metadata: ", err))
		}
		c.features = md.Features() & f.features
		var header []byte
		if c.features != 0 {
			header = (&wire.MetadataAnswer{Info: []wire.Property{wire.FeatureProperty(c.features)}}).Append(nil)
		}
		c.put(wire.AppendResponse(nil, fr.Opcode, wire.NoError, fr.Opaque, header, nil))
	case fr.Opcode == wire.OpSend:
		h := new(wire.MessageHeader)
		if err := h.Decode(slices.Clone(fr.Header)); err != nil {
			c.answer(fr, wire.StatusError, err.Error())
			return
		}
		if err := h.Validate(); err != nil {
			panic(err) // the SDK checks before
		}
		if f.send != nil {
			f.send(c, fr, h)
			return
		}
		c.store(fr, h)
	case fr.Opcode == wire.OpSubscribe || fr.Opcode == wire.OpUnsubscribe:
		var s wire.Subscription
		if err := s.Decode(fr.Header); err != nil {
			panic(err)
		}
		if _, err := wire.ParseBinding(s.Binding); err != nil {
			panic(err)
		}
		if fr.Opcode == wire.OpSubscribe {
			f.bindings = append(f.bindings, string(s.Binding))
		} else {
			f.removed = append(f.removed, string(s.Binding))
		}
		c.answer(fr, wire.NoError, "")
	case fr.Opcode == wire.OpCredit:
		var m wire.Credit
		if err := m.Decode(slices.Clone(fr.Header)); err != nil {
			panic(err)
		}
		f.credits = append(f.credits, m)
		c.answer(fr, wire.NoError, "")
	case fr.Opcode == wire.OpAckBatch:
		a := wire.ReadAcks(slices.Clone(fr.Body))
		for {
			r, ok, err := a.Next()
			if err != nil {
				panic(err)
			}
			if !ok {
				break
			}
			f.acks = append(f.acks, r)
		}
	case fr.Opcode == wire.OpHeartbeat:
		f.beats++
		c.answer(fr, wire.NoError, "")
	default:
		c.answer(fr, wire.StatusNoOpcode, "")
	}
}

// store keeps a message and answers; f.mu is held.
func (c *fakeConn) store(fr wire.Frame, h *wire.MessageHeader) {
	c.f.stored = append(c.f.stored, storedMessage{MessageID(h.ID), h, slices.Clone(fr.Body)})
	ack := wire.MessageAck{MessageID: h.ID, ServerData: []byte("at")}
	if c.features.Has(wire.FeatureDurability) {
		ack.Durability = wire.DurabilityAsync
	}
	c.put(wire.AppendResponse(nil, fr.Opcode, wire.NoError, fr.Opaque, ack.Append(nil), nil))
}

// pushed makes the header of a delivery.
func pushed(n byte, group string, change func(*wire.MessageHeader)) *wire.MessageHeader {
	h := &wire.MessageHeader{
		ID: make([]byte, 16), Topic: []byte("TRADE"), Type: []byte("created"), Group: []byte("P-trade"), Committed: true, BornTime: 1511337600000, Priority: 4,
		DeliveryCount: 1, TargetGroup: []byte(group), Created: 1511337600001,
		Set: wire.FieldSet(0).With(wire.FieldDeliveryCount).With(wire.FieldTargetGroup).With(wire.FieldCreated),
	}
	h.ID[15] = n
	if change != nil {
		change(h)
	}
	return h
}

// batch pushes messages in one DELIVER_BATCH frame.
func (c *fakeConn) batch(hs []*wire.MessageHeader, body []byte) {
	dst, b := wire.BeginBatch(nil, c.tag+1)
	var err error
	for _, h := range hs {
		dst = h.Append(b.BeginEntry(dst))
		if dst, err = b.EndEntry(dst, len(body)); err != nil {
			panic(err)
		}
		dst = append(dst, body...)
		c.tag++
	}
	c.put(b.End(dst, 0))
}

// deliver pushes a message in a frame of its own.
func (c *fakeConn) deliver(h *wire.MessageHeader, opaque uint32, body []byte) {
	c.put(wire.AppendRequest(nil, wire.OpDeliver, opaque, h.Append(nil), body))
}

// conn is the newest open connection.
func (f *fake) conn(t testing.TB) *fakeConn {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.conns) == 0 {
		t.Fatal("no connection")
	}
	return f.conns[len(f.conns)-1]
}
