package server_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/metaq/server"
	"github.com/fusionmq/fusionmq/socket"
)

func TestMain(m *testing.M) {
	socket.Configure()
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
	_ = c.SetDeadline(time.Now().Add(60 * time.Second)) // a hang fails the test instead of the run
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
	_ = c.SetDeadline(time.Now().Add(60 * time.Second)) // of this frame
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
	return !errors.Is(err, os.ErrDeadlineExceeded)
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

// clock is a clock and a tick that tests turn by hand.
type clock struct {
	now  atomic.Int64
	tick chan time.Time
}

func newClock() *clock {
	c := &clock{tick: make(chan time.Time)}
	c.now.Store(time.Now().UnixNano())
	return c
}

func (c *clock) set(cfg *server.Config) {
	cfg.Now = func() time.Time { return time.Unix(0, c.now.Load()) }
	cfg.Tick = func() (<-chan time.Time, func()) { return c.tick, func() {} }
}

// pass lets time pass and returns when the timeouts have been looked at.
func (c *clock) pass(d time.Duration) {
	c.now.Add(int64(d))
	c.tick <- time.Time{}
	c.tick <- time.Time{} // taken only after the sweep of the first
}

// until waits for something that happens without us.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 30 s for %s", what)
		}
	}
}

// only is the connection that s has, when it has been accepted.
func only(t testing.TB, s *server.Server) (conn *server.Conn) {
	t.Helper()
	until(t, "the connection", func() bool { s.Conns(func(c *server.Conn) { conn = c }); return conn != nil })
	return conn
}

func TestWhatArrivedTogetherIsHandledTogether(t *testing.T) {
	first, release := make(chan struct{}), make(chan struct{})
	var calls []int
	s := start(t, server.Config{Handler: server.HandlerFunc(func(b *server.Burst) {
		calls = append(calls, len(b.Requests))
		if len(calls) == 1 {
			close(first)
			<-release
		}
		echo(b)
	})})
	c := dial(t, s)
	c.send(request(10, 0, "", nil))
	<-first
	var all []byte
	for i := range int32(64) {
		all = append(all, request(10, i+1, "", nil)...)
	}
	c.send(all)
	s.Conns(func(c *server.Conn) {
		until(t, "the rest to be read", func() bool { return server.Buffered(c) == len(all) })
	})
	close(release)
	for i := range int32(65) {
		if h, _ := c.read(); h.Opaque != i {
			t.Fatalf("answer %d is for %d", i, h.Opaque)
		}
	}
	if err := s.Shutdown(context.Background()); err != nil { // after it the handler is done with calls
		t.Fatal(err)
	}
	if len(calls) != 2 || calls[1] != 64 {
		t.Errorf("bursts of %v, want 1 and 64", calls)
	}
}

func TestABodyOfManyPartsArrivesWhole(t *testing.T) { // faults REM-11: several writev calls, several packets
	var parts [][]byte
	var want []byte
	for i := range 5000 {
		p := bytes.Repeat([]byte{byte(i)}, 600+i%300)
		parts, want = append(parts, p), append(want, p...)
	}
	var released atomic.Int64
	s := start(t, server.Config{Handler: server.HandlerFunc(func(b *server.Burst) {
		for i := range b.Requests {
			b.Reply(&b.Requests[i], 0, "")
			b.EndParts(parts, func() { released.Add(1) })
		}
	})})
	c := dial(t, s)
	for i := range int32(3) {
		c.send(request(11, i, "", nil))
	}
	for range 3 {
		if _, body := c.read(); !bytes.Equal(body, want) {
			t.Fatalf("%d bytes, want %d", len(body), len(want))
		}
	}
	until(t, "the bodies to be released", func() bool { return released.Load() == 3 })
}

func TestHeldRequestsAreAnsweredLaterFromAnywhere(t *testing.T) {
	type held struct {
		c  *server.Conn
		to remoting.ReplyTo
	}
	holds := make(chan held, 100)
	s := start(t, server.Config{Handler: server.HandlerFunc(func(b *server.Burst) {
		for i := range b.Requests {
			holds <- held{b.Conn, b.Hold(&b.Requests[i])}
		}
	})})
	c := dial(t, s)
	for i := range int32(100) {
		c.send(request(11, i, "", nil))
	}
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			h := <-holds
			o := server.NewOutput()
			o.Response(h.to, remoting.RespPullNotFound, "nothing")
			if err := o.End(nil); err != nil {
				t.Error(err)
			}
			if err := h.c.Send(o); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	seen := map[int32]bool{}
	for range 100 {
		h, _ := c.read()
		if seen[h.Opaque] || h.Code != remoting.RespPullNotFound {
			t.Fatalf("got %+v", h)
		}
		seen[h.Opaque] = true
	}
}

func TestARequestNobodyAnswersIsAnsweredByTheServer(t *testing.T) {
	s := start(t, server.Config{Handler: server.HandlerFunc(func(*server.Burst) {})})
	c := dial(t, s)
	c.send(request(10, 5, "", nil))
	if h, _ := c.read(); h.Code != remoting.RespSystemError || h.Opaque != 5 || h.Remark != "no answer to SEND_MESSAGE" {
		t.Errorf("got %+v", h)
	}
}

func TestPanicsOfHooksAreContained(t *testing.T) {
	s := start(t, server.Config{
		Handler: server.HandlerFunc(echo),
		Opened:  func(*server.Conn) { panic("opened") },
		Closed:  func(*server.Conn, error) { panic("closed") },
	})
	c := dial(t, s)
	c.send(request(10, 5, "", nil))
	if h, _ := c.read(); h.Opaque != 5 {
		t.Errorf("got %+v", h)
	}
	c.Close()
	until(t, "both panics and the end of the connection", func() bool { return s.Stats().Panics == 2 && s.Stats().Connections == 0 })
}

func TestRequestsToTheClient(t *testing.T) {
	conns := make(chan *server.Conn, 1)
	s := start(t, server.Config{Handler: server.HandlerFunc(echo), Opened: func(c *server.Conn) { c.SetValue("mine"); conns <- c }})
	c := dial(t, s)
	conn := <-conns
	if conn.Value() != "mine" || conn.Remote().String() != c.LocalAddr().String() || conn.Local() != s.Addr() {
		t.Errorf("value %v, remote %v, local %v", conn.Value(), conn.Remote(), conn.Local())
	}
	if err := conn.Oneway(remoting.ReqNotifyConsumerIDsChanged, func(e *remoting.Encoder) { e.String("consumerGroup", "G") }, nil); err != nil {
		t.Fatal(err)
	}
	if h, _ := c.read(); h.Code != 40 || !h.Oneway() || h.Response() || h.Get("consumerGroup") != "G" {
		t.Errorf("got %+v", h)
	}
	done := make(chan error, 1)
	go func() {
		r, err := conn.Call(context.Background(), remoting.ReqGetConsumerRunningInfo, nil, []byte("q"))
		if err == nil && string(r.Body) != "a" {
			err = errors.New("wrong body " + string(r.Body))
		}
		done <- err
	}()
	h, body := c.read()
	if h.Code != 307 || h.Oneway() || string(body) != "q" {
		t.Errorf("got %+v", h)
	}
	var e remoting.Encoder
	e.Response(h.ReplyTo(), 0, "")
	_ = e.End([]byte("a"))
	c.send(e.Bytes())
	if err := <-done; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := conn.Call(ctx, 307, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestConnectionsThatComeAndGoLeaveNothing(t *testing.T) {
	var opened, closed atomic.Int64
	s := start(t, server.Config{
		Handler: server.HandlerFunc(echo),
		Opened:  func(*server.Conn) { opened.Add(1) },
		Closed:  func(*server.Conn, error) { closed.Add(1) },
	})
	for i := range 1000 {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		switch i % 4 {
		case 1: // half a frame
			_, _ = c.Write([]byte{0, 0, 1})
		case 2: // a request whose answer is not read
			_, _ = c.Write(request(10, 1, "", nil))
		case 3: // a reset
			_ = c.(*net.TCPConn).SetLinger(0)
		}
		c.Close()
	}
	until(t, "all to be closed", func() bool { return closed.Load() == 1000 && s.Stats().Connections == 0 })
	if opened.Load() != 1000 {
		t.Errorf("%d opened", opened.Load())
	}
}

func TestConnectionsBeyondTheLimitAreRefused(t *testing.T) {
	s := start(t, server.Config{Handler: server.HandlerFunc(echo), MaxConns: 2})
	a, b := dial(t, s), dial(t, s)
	for _, c := range []*client{a, b} {
		c.send(request(10, 1, "", nil))
		c.read()
	}
	if over := dial(t, s); !over.gone() {
		t.Error("a third connection stays open")
	}
	a.Close()
	until(t, "room", func() bool { return s.Stats().Connections == 1 })
	c := dial(t, s)
	c.send(request(10, 1, "", nil))
	c.read()
	if n := s.Stats().Refused; n != 1 {
		t.Errorf("%d refused, want 1", n)
	}
}

func TestShutdownLetsWorkFinish(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	s, err := server.Listen("127.0.0.1:0", server.Config{Log: slog.New(slog.DiscardHandler), Handler: server.HandlerFunc(func(b *server.Burst) {
		close(entered)
		<-release
		echo(b)
	})})
	if err != nil {
		t.Fatal(err)
	}
	idle, working := dial(t, s), dial(t, s)
	working.send(request(10, 7, "", []byte("x")))
	<-entered
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(context.Background()) }()
	if !idle.gone() {
		t.Error("an idle connection is still open")
	}
	select {
	case <-done:
		t.Fatal("Shutdown did not wait for the burst in work")
	default:
	}
	close(release)
	if h, body := working.read(); h.Opaque != 7 || string(body) != "x" {
		t.Errorf("got %+v", h)
	}
	if !working.gone() {
		t.Error("still open")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", s.Addr().String()); err == nil {
		c.Close()
		t.Error("still accepting")
	}
	if err := s.Shutdown(context.Background()); err != nil {
		t.Errorf("second Shutdown: %v", err)
	}
}

// A client that sends on while the server stops gets an answer to everything that was handled, and then the end: nothing is done that
// it does not hear of.
func TestShutdownAnswersEverythingThatWasHandled(t *testing.T) {
	begun := time.Now()
	for range 10 {
		var handled atomic.Int64
		s, err := server.Listen("127.0.0.1:0", server.Config{
			Log: slog.New(slog.DiscardHandler),
			Now: func() time.Time { return begun }, // a client that takes long to read the end is not cut off
			Handler: server.HandlerFunc(func(b *server.Burst) {
				handled.Add(int64(len(b.Requests)))
				echo(b)
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		var answered atomic.Int64
		var wg sync.WaitGroup
		warm := make(chan struct{}, 4)
		for range cap(warm) {
			c := dial(t, s)
			body := bytes.Repeat([]byte("x"), 500)
			wg.Go(func() { // writes until the connection breaks
				for i := int32(0); ; i++ {
					if _, err := c.Write(request(10, i, "", body)); err != nil {
						return
					}
				}
			})
			wg.Go(func() {
				defer c.Close() // as a client does at the end of its input
				var once sync.Once
				isWarm := func() { once.Do(func() { warm <- struct{}{} }) }
				defer isWarm() // of one that fails
				for n := 0; ; n++ {
					if _, err := remoting.ReadFrame(c.r, nil); err != nil {
						if !errors.Is(err, io.EOF) {
							t.Errorf("after %d answers: %v, want the end of the connection between two answers", n, err)
						}
						return
					}
					answered.Add(1)
					if n == 100 {
						isWarm()
					}
				}
			})
		}
		for range cap(warm) {
			<-warm
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if h, a := handled.Load(), answered.Load(); h != a {
			t.Fatalf("%d requests were handled, %d answered", h, a)
		}
	}
}

func TestShutdownIsBounded(t *testing.T) {
	entered, gone := make(chan struct{}), make(chan struct{})
	s, err := server.Listen("127.0.0.1:0", server.Config{
		Log:     slog.New(slog.DiscardHandler),
		Handler: server.HandlerFunc(func(b *server.Burst) { close(entered); <-gone }),
	})
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, s)
	c.send(request(10, 7, "", nil))
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(ctx) }()
	cancel()
	if !c.gone() { // cut off although the handler is at work
		t.Error("still open")
	}
	close(gone)
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for want, cfg := range map[string]server.Config{
		"Handler":      {},
		"MaxConns":     {Handler: server.HandlerFunc(echo), MaxConns: -1},
		"WriteTimeout": {Handler: server.HandlerFunc(echo), WriteTimeout: -1},
	} {
		if _, err := server.Listen("127.0.0.1:0", cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want one about %s", err, want)
		}
	}
}
