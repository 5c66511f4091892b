package server_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/metaq/server"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/cloudwego/netpoll.(*defaultPoll).Wait"))
}

// echo answers every request with its body and the ext field n.
func echo(b *server.Burst) {
	for i := range b.Requests {
		r := &b.Requests[i]
		b.Reply(r, remoting.RespSuccess, "").String("n", r.Get("n"))
		b.End(r.Body)
	}
}

func start(t testing.TB, cfg server.Config) *server.Server {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s, err := server.Listen("127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return s
}

// client is a plain blocking client.
type client struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func dial(t testing.TB, s *server.Server) *client {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second)) // a hang fails the test instead of the run
	return &client{t, c, bufio.NewReader(c)}
}

func request(code, opaque int32, n string, body []byte) []byte {
	var e remoting.Encoder
	e.Begin(remoting.Head{Code: code, Opaque: opaque})
	e.String("n", n)
	if err := e.End(body); err != nil {
		panic(err)
	}
	return e.Bytes()
}

func (c *client) send(b []byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

func (c *client) read() (*remoting.Header, []byte) {
	c.t.Helper()
	frame, err := remoting.ReadFrame(c.r, nil)
	if err != nil {
		c.t.Fatalf("read: %v", err)
	}
	var h remoting.Header
	body, err := h.Decode(frame)
	if err != nil {
		c.t.Fatalf("decode: %v", err)
	}
	return &h, body
}

// gone reports that the server has closed the connection, possibly with a reset.
func (c *client) gone() bool {
	_, err := io.Copy(io.Discard, c.r)
	ne, ok := err.(net.Error)
	return !ok || !ne.Timeout()
}

func TestRequestsAreAnsweredWithTheirOpaqueAndBody(t *testing.T) {
	s := start(t, server.Config{Handler: server.HandlerFunc(echo)})
	c := dial(t, s)
	for i := range int32(3) {
		c.send(request(10, i, "x", []byte("hello")))
		h, body := c.read()
		if h.Code != 0 || h.Opaque != i || !h.Response() || h.Get("n") != "x" || string(body) != "hello" {
			t.Fatalf("got %+v %q", h, body)
		}
	}
}
