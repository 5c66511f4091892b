package system

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
	"github.com/fusionmq/fusionmq/integration/internal/rmq"
	"github.com/fusionmq/fusionmq/notify/wire"
)

// notifyConn sends single frames on the Notify wire and reads their answers; it can send what sdk-go refuses to.
type notifyConn struct {
	t *testing.T
	c net.Conn
}

func dialNotify(t *testing.T, s *proc.Server, group string) *notifyConn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr["notify"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	n := &notifyConn{t, c}
	if group != "" {
		m := wire.Metadata{Clients: []wire.ClientInfo{{Group: []byte(group)}}}
		if status, text := n.ask(wire.OpMetadata, nil, m.Append(nil)); status != wire.NoError {
			t.Fatalf("metadata: %s %s", status, text)
		}
	}
	return n
}

// ask sends one request and returns the status and the text of its answer.
func (n *notifyConn) ask(op wire.Opcode, header, body []byte) (wire.Status, string) {
	n.t.Helper()
	frame, err := wire.AppendRequest(nil, op, 7, header, body)
	if err != nil {
		n.t.Fatal(err)
	}
	return n.send(frame)
}

func (n *notifyConn) send(frame []byte) (wire.Status, string) {
	n.t.Helper()
	if err := n.c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.c.Write(frame); err != nil {
		n.t.Fatal(err)
	}
	var head [16]byte
	if _, err := io.ReadFull(n.c, head[:]); err != nil {
		n.t.Fatalf("no answer: %v", err)
	}
	h, err := wire.ParseHead(head[:])
	if err != nil {
		n.t.Fatal(err)
	}
	rest := make([]byte, h.TotalLen)
	if _, err := io.ReadFull(n.c, rest); err != nil {
		n.t.Fatal(err)
	}
	text, _, err := wire.ErrorText(rest[:h.HeaderLen])
	if err != nil {
		n.t.Fatal(err)
	}
	return h.Status, string(text)
}

func property(key, value string) wire.Property {
	return wire.Property{Key: []byte(key), Value: []byte(value), HasValue: true}
}

func TestBadNotifyFramesAreAnsweredAndTheConnectionSurvives(t *testing.T) {
	s := start(t, t.TempDir()) // where nobody else writes
	topic := rmq.Unique("BadN")
	createTopic(t, s, topic, 1)
	n := dialNotify(t, s, rmq.Unique("P"))
	header := func(change func(*wire.MessageHeader)) []byte {
		h := wire.MessageHeader{ID: bytes.Repeat([]byte{7}, 16), Topic: []byte(topic), Type: []byte("t"), Group: []byte("P"), Committed: true, BornTime: 1_700_000_000_000}
		if change != nil {
			change(&h)
		}
		return h.Append(nil)
	}
	before := logEnd(t, s)
	for _, tc := range []struct {
		name   string
		op     wire.Opcode
		header []byte
		body   []byte
		want   wire.Status
		says   string
	}{
		{"an opcode that nobody knows", 0x7e, nil, nil, wire.StatusNoOpcode, ""},
		{"a header that is no protobuf", wire.OpSend, []byte{0xff, 0xff, 0xff}, []byte("x"), wire.StatusError, ""},
		{"a header without its required fields", wire.OpSend, []byte{}, []byte("x"), wire.StatusError, "id"},
		{"an id of 3 bytes", wire.OpSend, header(func(h *wire.MessageHeader) { h.ID = []byte("abc") }), []byte("x"), wire.StatusError, "16"},
		{"no body", wire.OpSend, header(nil), nil, wire.StatusError, "body"},
		{"a body over 4 MiB", wire.OpSend, header(nil), make([]byte, 4<<20+1), wire.StatusError, "4194304"},
		{"a topic with a blank", wire.OpSend, header(func(h *wire.MessageHeader) { h.Topic = []byte("a b") }), []byte("x"), wire.StatusError, "topic"},
		{"a topic of the system", wire.OpSend, header(func(h *wire.MessageHeader) { h.Topic = []byte("rmq_sys_fusion_oq") }), []byte("x"), wire.StatusError, "rmq_sys_fusion_oq"},
		{"a type with a bar", wire.OpSend, header(func(h *wire.MessageHeader) { h.Type = []byte("a|b") }), []byte("x"), wire.StatusError, "a|b"},
		{"0x01 in a header value", wire.OpSend, header(func(h *wire.MessageHeader) { h.Properties = []wire.Property{property("k", "a\x01b")} }), []byte("x"), wire.StatusError, "k"},
		{"0x02 in a header name", wire.OpSend, header(func(h *wire.MessageHeader) { h.Properties = []wire.Property{property("k\x02", "v")} }), []byte("x"), wire.StatusError, ""},
		{"more than 16 KiB of header", wire.OpSend, header(func(h *wire.MessageHeader) {
			for range 5 {
				h.Properties = append(h.Properties, property(rmq.Unique("k"), strings.Repeat("v", 4000)))
			}
		}), []byte("x"), wire.StatusError, "16384"},
		{"a header name of the system", wire.OpSend, header(func(h *wire.MessageHeader) { h.Properties = []wire.Property{property("__secret", "v")} }), []byte("x"), wire.StatusError, "__secret"},
		{"a binding that is no JSON", wire.OpSubscribe, (&wire.Subscription{Binding: []byte("{")}).Append(nil), nil, wire.StatusError, ""},
		{"a binding with an unknown key", wire.OpSubscribe, (&wire.Subscription{Binding: []byte(`{"kind":"fanout","topic":"t","group":"P","colour":1}`)}).Append(nil), nil, wire.StatusError, "colour"},
		{"a binding of an unknown kind", wire.OpSubscribe, (&wire.Subscription{Binding: []byte(`{"kind":"some","topic":"t","group":"P"}`)}).Append(nil), nil, wire.StatusError, "kind"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n.t = t
			if status, text := n.ask(tc.op, tc.header, tc.body); status != tc.want || !strings.Contains(text, tc.says) {
				t.Errorf("%s %q, want %s and a text that names %q", status, text, tc.want, tc.says)
			}
		})
	}
	n.t = t
	if after := logEnd(t, s); after != before {
		t.Errorf("the log grew from %d to %d", before, after)
	}
	if status, text := n.ask(wire.OpSend, header(nil), []byte("good")); status != wire.NoError {
		t.Errorf("a good message on the same connection: %s %s", status, text)
	}
}

func TestNobodyIsServedBeforeTheMetadata(t *testing.T) {
	s := start(t, t.TempDir()) // where nobody else writes
	before := logEnd(t, s)
	n := dialNotify(t, s, "")
	h := wire.MessageHeader{ID: make([]byte, 16), Topic: []byte("t"), Type: []byte("t"), Group: []byte("P"), Committed: true, BornTime: 1}
	if status, text := n.ask(wire.OpSend, h.Append(nil), []byte("x")); status == wire.NoError {
		t.Errorf("a send without metadata: %s %s", status, text)
	}
	if status, _ := n.ask(wire.OpHeartbeat, nil, nil); status != wire.NoError {
		t.Errorf("a heartbeat without metadata: %s", status)
	}
	if after := logEnd(t, s); after != before {
		t.Errorf("the log grew from %d to %d", before, after)
	}
}

func TestALengthBeyondTheLimitEndsTheNotifyConnection(t *testing.T) {
	s := server(t)
	n := dialNotify(t, s, rmq.Unique("P"))
	frame := []byte{0x80, byte(wire.OpSend), 0, 0}
	frame = binary.BigEndian.AppendUint32(frame, 17<<20)
	frame = binary.BigEndian.AppendUint32(frame, 9)
	if status, text := n.send(frame); status != wire.StatusComm {
		t.Errorf("%s %q, want %s", status, text, wire.StatusComm)
	}
	if _, err := n.c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection goes on after a frame that nobody can follow")
	}
}
