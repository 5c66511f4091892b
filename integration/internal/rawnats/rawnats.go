// Package rawnats is a NATS client that costs next to nothing, for measuring a peer: many JetStream publishes in flight on one connection,
// one write for all that wait while another write runs, acknowledgements matched by the last part of their reply subject.
//
// The protocol is text: https://docs.nats.io/reference/reference-protocols/nats-protocol and, for the JSON requests of JetStream,
// https://docs.nats.io/reference/reference-protocols/nats_api_reference.
package rawnats

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/inflight"
)

const (
	answerLimit = 10 * time.Second
	buffer      = 256 << 10
	maxPayload  = 8 << 20
	deliveries  = "fusionmq.deliver." // subjects of messages for Consume begin so
)

// ErrClosed is what a request gets whose connection ended before its answer.
var ErrClosed = errors.New("rawnats: connection closed before an answer")

var names atomic.Int64 // of inboxes of this process

// Conn is one connection. Its methods may be called from any goroutine.
type Conn struct {
	*inflight.Conn[[]byte]
	inbox  string                            // replies come to inbox + number
	handle atomic.Pointer[func(body []byte)] // of deliveries
}

// Dial connects and subscribes to the replies.
func Dial(addr string) (*Conn, error) {
	nc, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	br := bufio.NewReaderSize(nc, buffer)
	_ = nc.SetReadDeadline(time.Now().Add(answerLimit))
	info, err := br.ReadString('\n')
	if err != nil || !strings.HasPrefix(info, "INFO ") {
		_ = nc.Close()
		return nil, fmt.Errorf("rawnats: greeting %q: %w", info, err)
	}
	_ = nc.SetReadDeadline(time.Time{})
	c := &Conn{Conn: inflight.New[[]byte](nc, ErrClosed), inbox: fmt.Sprintf("_INBOX.%x-%d.", time.Now().UnixNano(), names.Add(1))}
	c.Append(fmt.Appendf(nil, "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\"protocol\":1,\"lang\":\"go\",\"version\":\"0\"}\r\nSUB %s* 1\r\n", c.inbox))
	c.Start(func() { c.read(br) })
	return c, nil
}

// Publish sends one message to a subject of a stream. done runs once, on the connection's reader, with the sequence number in the stream.
func (c *Conn) Publish(subject string, body []byte, done func(seq int64, err error)) {
	c.request(subject, body, func(answer []byte, err error) {
		if err != nil {
			done(0, err)
			return
		}
		seq := number(answer, `"seq":`)
		if seq == 0 {
			done(0, fmt.Errorf("rawnats: publish: %s", answer))
			return
		}
		done(seq, nil)
	})
}

// CreateStream makes a stream with file storage and one copy that takes the messages of the subject of its name.
func (c *Conn) CreateStream(name string) error {
	return c.api("STREAM.CREATE."+name, map[string]any{"name": name, "subjects": []string{name}, "retention": "limits", "storage": "file", "num_replicas": 1,
		"max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "max_age": 0, "discard": "old"})
}

// Consume makes a push consumer that needs no acknowledgements and calls handle on the connection's reader with every message that comes to
// the stream from now on; handle must not keep the body. A connection has one consumer at most.
func (c *Conn) Consume(stream string, handle func(body []byte)) error {
	to := deliveries + stream
	c.handle.Store(&handle)
	c.Append(fmt.Appendf(nil, "SUB %s 2\r\n", to))
	return c.api("CONSUMER.CREATE."+stream, map[string]any{"stream_name": stream, "config": map[string]any{
		"deliver_subject": to, "deliver_policy": "new", "ack_policy": "none", "replay_policy": "instant"}})
}

// api makes a request of JetStream's JSON interface.
func (c *Conn) api(name string, request any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	answer := make(chan error, 1)
	c.request("$JS.API."+name, body, func(b []byte, err error) {
		var a struct {
			Error *struct{ Description string }
		}
		if err == nil {
			err = json.Unmarshal(b, &a)
		}
		if err == nil && a.Error != nil {
			err = errors.New(a.Error.Description)
		}
		answer <- err
	})
	timer := time.NewTimer(answerLimit)
	defer timer.Stop()
	select {
	case err := <-answer:
		if err != nil {
			return fmt.Errorf("rawnats: %s: %w", name, err)
		}
		return nil
	case <-timer.C:
		return fmt.Errorf("rawnats: no answer to %s in %s", name, answerLimit)
	}
}

func (c *Conn) request(subject string, body []byte, done func([]byte, error)) {
	o, id, ok := c.Begin(done)
	if !ok {
		done(nil, ErrClosed)
		return
	}
	o = append(append(append(o, "PUB "...), subject...), ' ')
	o = strconv.AppendUint(append(o, c.inbox...), uint64(id), 10)
	o = strconv.AppendInt(append(o, ' '), int64(len(body)), 10)
	c.End(append(append(append(o, "\r\n"...), body...), "\r\n"...))
}

func (c *Conn) read(br *bufio.Reader) {
	var buf []byte
	for {
		line, err := br.ReadSlice('\n')
		if err != nil {
			return
		}
		switch verb, rest, _ := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte{' '}); string(verb) {
		case "PING":
			c.Append([]byte("PONG\r\n"))
		case "MSG", "HMSG": // SUBJECT SID [REPLY] [HEADER-BYTES] BYTES
			reply, id, head, size, ok := c.parse(rest, len(verb) == len("HMSG"))
			if !ok {
				return
			}
			if cap(buf) < size+2 {
				buf = make([]byte, size+size/4+2)
			}
			if _, err := io.ReadFull(br, buf[:size+2]); err != nil {
				return
			}
			c.message(reply, id, buf[head:size], head > 0)
		case "-ERR":
			return
		}
	}
}

// parse takes the arguments of a message line apart. reply says whether it is an answer, id to which request.
func (c *Conn) parse(rest []byte, headers bool) (reply bool, id uint32, head, size int, ok bool) {
	subject, tail, _ := bytes.Cut(rest, []byte{' '})
	if n, is := bytes.CutPrefix(subject, []byte(c.inbox)); is {
		reply = true
		number, _ := strconv.ParseUint(string(n), 10, 32)
		id = uint32(number)
	}
	last := func() int {
		i := bytes.LastIndexByte(tail, ' ')
		n, err := strconv.Atoi(string(tail[i+1:]))
		if err != nil || n < 0 || n > maxPayload {
			return -1
		}
		tail = tail[:max(i, 0)]
		return n
	}
	if size = last(); headers {
		head = last()
	}
	return reply, id, head, size, head >= 0 && size >= head
}

func (c *Conn) message(reply bool, id uint32, body []byte, headers bool) {
	if !reply {
		if handle := c.handle.Load(); handle != nil && !headers {
			(*handle)(body)
		}
		return
	}
	switch done := c.Take(id); {
	case done == nil:
	case headers: // a status instead of an answer: no stream listens to the subject
		done(nil, errors.New("rawnats: nobody answers"))
	default:
		done(body, nil)
	}
}

// number is the whole number behind key in JSON without spaces, 0 when there is none.
func number(b []byte, key string) (n int64) {
	i := bytes.Index(b, []byte(key))
	if i < 0 {
		return 0
	}
	for _, ch := range b[i+len(key):] {
		if ch < '0' || ch > '9' {
			break
		}
		n = n*10 + int64(ch-'0')
	}
	return n
}
