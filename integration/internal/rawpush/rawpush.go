// Package rawpush is a Notify subscriber that costs next to nothing: one goroutine a connection reads frames, hands out the bodies where they
// lie and acknowledges every frame with one write. It is for measuring a broker; a client library's work (decoding headers, queues, workers)
// is not in its figures. The other package that measures with it says what the library adds.
package rawpush

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/fusionmq/fusionmq/notify/wire"
)

const (
	answerLimit = 10 * time.Second
	readBuffer  = 256 << 10
)

// Conn is one connection that has said who it is and what it wants.
type Conn struct {
	c    net.Conn
	br   *bufio.Reader // nil: nothing reads
	buf  []byte
	mute bool // no delivery is answered
	gone chan struct{}
}

// Connect registers group for every message of topic (or only of one type) and grants credit for as many unanswered messages; it reads nothing
// further. The answers to the three requests are awaited.
func Connect(addr, group, topic, messageType string, credit uint32) (*Conn, error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &Conn{c: nc, gone: make(chan struct{})}
	binding := wire.Binding{Kind: wire.Fanout, Topic: topic, Group: group, WaterMark: wire.DefaultWaterMark, Persistent: true}
	if messageType != "" {
		binding.Kind, binding.Expr = wire.Direct, messageType
	}
	meta := wire.Metadata{Clients: []wire.ClientInfo{{Group: []byte(group)}}, Build: []wire.Property{wire.FeatureProperty(wire.AllFeatures)}}
	sub := wire.Subscription{Binding: binding.Append(nil)}
	room := wire.Credit{Group: []byte(group), Messages: credit}
	for i, f := range []struct {
		op           wire.Opcode
		header, body []byte
	}{
		{wire.OpMetadata, nil, meta.Append(nil)},
		{wire.OpSubscribe, sub.Append(nil), nil},
		{wire.OpCredit, room.Append(nil), nil},
	} {
		if err := c.request(f.op, uint32(i+1), f.header, f.body); err != nil {
			_ = nc.Close()
			return nil, fmt.Errorf("rawpush: %s: %w", f.op, err)
		}
	}
	return c, nc.SetReadDeadline(time.Time{})
}

func (c *Conn) request(op wire.Opcode, opaque uint32, header, body []byte) error {
	frame, err := wire.AppendRequest(nil, op, opaque, header, body)
	if err != nil {
		return err
	}
	if op == wire.OpCredit {
		_, err := c.c.Write(frame)
		return err // deliveries may come before the answer, which serve reads
	}
	if err := c.c.SetReadDeadline(time.Now().Add(answerLimit)); err != nil {
		return err
	}
	if _, err := c.c.Write(frame); err != nil {
		return err
	}
	// Byte for byte, so that nothing behind the answer is taken: an idle connection keeps no buffer.
	var head [16]byte
	if _, err := io.ReadFull(c.c, head[:]); err != nil {
		return err
	}
	h, err := wire.ParseHead(head[:])
	if err != nil {
		return err
	}
	rest := make([]byte, h.TotalLen)
	if _, err := io.ReadFull(c.c, rest); err != nil {
		return err
	}
	if h.Status != wire.NoError {
		text, _, _ := wire.ErrorText(rest[:h.HeaderLen])
		return fmt.Errorf("%s: %s", h.Status, text)
	}
	return nil
}

// serve reads deliveries until the connection ends, calls handle with each body and acknowledges.
func (c *Conn) serve(handle func(body []byte)) {
	defer close(c.gone)
	var out []byte
	for {
		f, err := c.next()
		if err != nil {
			return
		}
		out = out[:0]
		switch {
		case f.Response: // to the credit
			continue
		case f.Opcode == wire.OpDeliverBatch:
			if out, err = batch(out, f, handle); err != nil {
				return
			}
		case f.Opcode == wire.OpDeliver:
			handle(f.Body)
			out = wire.AppendAnswer(out, f.Opcode, wire.NoError, f.Opaque, "")
		default:
			out = wire.AppendAnswer(out, f.Opcode, wire.NoError, f.Opaque, "")
		}
		if c.mute && (f.Opcode == wire.OpDeliver || f.Opcode == wire.OpDeliverBatch) {
			continue
		}
		if _, err := c.c.Write(out); err != nil {
			return
		}
	}
}

// batch hands out a DELIVER_BATCH and appends the ACK_BATCH for all of it.
func batch(out []byte, f wire.Frame, handle func([]byte)) ([]byte, error) {
	d, err := wire.Batch(f.Header, f.Body)
	if err != nil {
		return out, err
	}
	run := wire.AckRun{}
	for {
		tag, _, body, ok, err := d.Next()
		if err != nil {
			return out, err
		}
		if !ok {
			break
		}
		if run.First == 0 {
			run.First = tag
		}
		run.Last = tag
		handle(body)
	}
	var acks wire.AckEncoder
	var body [64]byte
	return wire.AppendRequest(out, wire.OpAckBatch, 0, nil, acks.Append(body[:0], run))
}

// next reads one whole frame; it is valid until the next call.
func (c *Conn) next() (wire.Frame, error) {
	head, err := c.br.Peek(12) // a request's fixed part, the shorter one
	if err != nil {
		return wire.Frame{}, err
	}
	h, err := wire.ParseHead(head)
	if err != nil { // a response needs four bytes more
		if head, err = c.br.Peek(16); err != nil {
			return wire.Frame{}, err
		}
		if h, err = wire.ParseHead(head); err != nil {
			return wire.Frame{}, err
		}
	}
	if n := h.Size(); cap(c.buf) < n {
		c.buf = make([]byte, n+n/4)
	}
	b := c.buf[:h.Size()]
	if _, err := io.ReadFull(c.br, b); err != nil {
		return wire.Frame{}, err
	}
	return wire.FrameOf(h, b)
}

// Subscribe is Connect, and a goroutine that calls handle with each body until Close. handle must not keep the body.
func Subscribe(addr, group, topic string, credit uint32, handle func(body []byte)) (*Conn, error) {
	return subscribe(addr, group, topic, credit, false, handle)
}

// Mute is Subscribe for a subscriber that hangs: it reads what comes and never acknowledges a message.
func Mute(addr, group, topic string, credit uint32, handle func(body []byte)) (*Conn, error) {
	return subscribe(addr, group, topic, credit, true, handle)
}

func subscribe(addr, group, topic string, credit uint32, mute bool, handle func(body []byte)) (*Conn, error) {
	c, err := Connect(addr, group, topic, "", credit)
	if err != nil {
		return nil, err
	}
	c.mute = mute
	c.br = bufio.NewReaderSize(c.c, readBuffer)
	go c.serve(handle)
	return c, nil
}

// Close ends the connection and, when it is served, waits for that.
func (c *Conn) Close() {
	_ = c.c.Close()
	if c.br != nil {
		<-c.gone
	}
}
