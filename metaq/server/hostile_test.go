package server_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/metaq/server"
)

func TestHostileClientsAreCutOffAndOthersServed(t *testing.T) { // faults REM-01, REM-03
	var logs syncBuffer
	clk := newClock()
	cfg := server.Config{Handler: server.HandlerFunc(echo), Log: slog.New(slog.NewTextHandler(&logs, nil))}
	clk.set(&cfg)
	s := start(t, cfg)
	good := dial(t, s)
	for i, tc := range []struct{ name, give, log string }{
		{"HTTP", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "looks like HTTP"},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "looks like HTTP/2"},
		{"TLS hello", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "looks like TLS"},
		{"PROXY", "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n", "PROXY protocol"},
		{"SSH", "SSH-2.0-x\r\n", "SSH"},
		{"16 MiB and one byte", "\x00\xff\xff\xfd\x00\x00\x00\x00", "larger than"},
		{"length 2", "\x00\x00\x00\x02\x00\x00", "length word 2"},
		{"length 4, no header", "\x00\x00\x00\x04\x00\x00\x00\x00", "JSON header"},
		{"unknown serialize type", "\x00\x00\x00\x08\x7f\x00\x00\x04null", "serialize type 127"},
		{"header longer than the frame", "\x00\x00\x00\x08\x00\x00\x00\x09null", "header length 9"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := dial(t, s)
			c.send([]byte(tc.give))
			if !c.gone() {
				t.Fatal("the connection is still open")
			}
			until(t, "the log line", func() bool { return strings.Contains(logs.String(), tc.log) })
			if n := strings.Count(logs.String(), c.LocalAddr().String()); n != 1 {
				t.Errorf("%d log lines about the connection, want 1:\n%s", n, logs.String())
			}
			good.send(request(10, int32(i), "x", nil))
			if h, _ := good.read(); h.Opaque != int32(i) {
				t.Error("the good client got another's answer")
			}
			clk.pass(0) // refills the log's allowance
		})
	}
	st := s.Stats()
	if st.Foreign != 5 || st.Malformed != 5 {
		t.Errorf("%d foreign and %d malformed, want 5 and 5", st.Foreign, st.Malformed)
	}
}

func TestManyBadConnectionsDoNotFloodTheLog(t *testing.T) {
	var logs syncBuffer
	clk := newClock()
	cfg := server.Config{Handler: server.HandlerFunc(echo), Log: slog.New(slog.NewTextHandler(&logs, nil))}
	clk.set(&cfg)
	s := start(t, cfg)
	for range 50 {
		c := dial(t, s)
		c.send([]byte("GET / HTTP/1.1\r\n\r\n"))
		c.gone()
		c.Close()
	}
	// A connection is counted, then logged, then gone.
	until(t, "all to be counted and gone", func() bool { return s.Stats().Foreign == 50 && s.Stats().Connections == 0 })
	clk.pass(0)
	if n := strings.Count(logs.String(), "\n"); n != 6 || !strings.Contains(logs.String(), "lines=45") {
		t.Errorf("%d lines, want 5 and one that counts the rest:\n%s", n, logs.String())
	}
}

func TestSilentClientsAreClosedInTime(t *testing.T) {
	for _, tc := range []struct {
		name string
		give string
		wait time.Duration
		want error
	}{
		{"half a length word", "\x00\x00", 15 * time.Second, server.ErrPartial},
		{"half a frame", string(request(10, 1, "x", nil)[:20]), 15 * time.Second, server.ErrPartial},
		{"nothing", "", 120 * time.Second, server.ErrIdle},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clk := newClock()
			closed := make(chan error, 1)
			cfg := server.Config{Handler: server.HandlerFunc(echo), Closed: func(_ *server.Conn, why error) { closed <- why }}
			clk.set(&cfg)
			s := start(t, cfg)
			c := dial(t, s)
			c.send(request(10, 0, "", nil)) // so that the connection is there
			c.read()
			c.send([]byte(tc.give))
			// What it has sent last must have been dealt with, or it counts for later than the clock is moved to.
			conn := only(t, s)
			until(t, "the bytes", func() bool {
				return s.Stats().BytesIn == int64(len(request(10, 0, "", nil))+len(tc.give)) && server.Idle(conn)
			})
			clk.pass(tc.wait - time.Second)
			select {
			case why := <-closed:
				t.Fatalf("closed early: %v", why)
			default:
			}
			clk.pass(2 * time.Second)
			if why := <-closed; !errors.Is(why, tc.want) {
				t.Errorf("closed because %v, want %v", why, tc.want)
			}
			if !c.gone() {
				t.Error("still open")
			}
			until(t, "it to be counted", func() bool { return s.Stats().TimedOut == 1 })
		})
	}
}

func TestAByteNowAndThenDoesNotHoldAFrameOpenForEver(t *testing.T) {
	clk := newClock()
	closed := make(chan error, 1)
	cfg := server.Config{Handler: server.HandlerFunc(echo), Closed: func(_ *server.Conn, why error) { closed <- why }}
	clk.set(&cfg)
	s := start(t, cfg)
	c := dial(t, s)
	conn := only(t, s)
	frame := request(10, 1, "x", make([]byte, 100))
	for i := range 20 {
		n := s.Stats().BytesIn
		if _, err := c.Write(frame[i : i+1]); err != nil {
			break
		}
		select {
		case why := <-closed:
			if i < 10 || !errors.Is(why, server.ErrPartial) {
				t.Fatalf("closed after %d bytes because %v", i, why)
			}
			return
		default:
		}
		until(t, "the byte", func() bool { return s.Stats().BytesIn == n+1 && server.Idle(conn) || s.Stats().TimedOut == 1 })
		clk.pass(10 * time.Second)
	}
	if why := <-closed; !errors.Is(why, server.ErrPartial) {
		t.Errorf("closed because %v", why)
	}
}

func TestAClientThatDoesNotReadIsClosedAndItsBodiesReleased(t *testing.T) {
	body := make([]byte, 1<<20)
	var released, asked atomic.Int64
	closed := make(chan error, 1)
	s := start(t, server.Config{
		WriteTimeout: 200 * time.Millisecond,
		Closed:       func(_ *server.Conn, why error) { closed <- why },
		Handler: server.HandlerFunc(func(b *server.Burst) {
			for i := range b.Requests {
				asked.Add(1)
				b.Reply(&b.Requests[i], 0, "")
				b.EndParts([][]byte{body}, func() { released.Add(1) })
			}
		}),
	})
	c := dial(t, s)
	for i := range int32(64) {
		if _, err := c.Write(request(11, i, "", nil)); err != nil {
			break
		}
	}
	if why := <-closed; !errors.Is(why, server.ErrSlow) {
		t.Errorf("closed because %v, want ErrSlow", why)
	}
	until(t, "all bodies to be released", func() bool { return released.Load() == asked.Load() })
	until(t, "it to be counted", func() bool { return s.Stats().Slow == 1 })
}

func TestASenderIsNotBlockedByAClientThatDoesNotRead(t *testing.T) {
	conns := make(chan *server.Conn, 1)
	closed := make(chan error, 1)
	s := start(t, server.Config{
		MaxPending: 1 << 20,
		Opened:     func(c *server.Conn) { conns <- c },
		Closed:     func(_ *server.Conn, why error) { closed <- why },
		Handler:    server.HandlerFunc(echo),
	})
	dial(t, s)
	c := <-conns
	body, sent := make([]byte, 64<<10), 0
	for ; sent < 1000; sent++ { // far more than sockets hold
		if err := c.Oneway(remoting.ReqNotifyConsumerIDsChanged, nil, body); err != nil {
			break
		}
	}
	if sent == 1000 {
		t.Fatal("64 MiB were accepted for a client that reads nothing")
	}
	if why := <-closed; !errors.Is(why, server.ErrSlow) {
		t.Errorf("closed because %v, want ErrSlow", why)
	}
}

func TestAClientThatSendsFasterThanItIsHandledIsCutOff(t *testing.T) {
	clk := newClock()
	var once sync.Once
	entered, release := make(chan struct{}), make(chan struct{})
	closed := make(chan error, 1)
	cfg := server.Config{
		MaxInput: 1 << 20,
		Closed:   func(_ *server.Conn, why error) { closed <- why },
		Handler:  server.HandlerFunc(func(b *server.Burst) { once.Do(func() { close(entered) }); <-release; echo(b) }),
	}
	clk.set(&cfg)
	s := start(t, cfg)
	c := dial(t, s)
	frame := request(10, 1, "", make([]byte, 64<<10))
	c.send(frame)
	<-entered // the rest waits behind this one
	for range 32 {
		c.send(frame)
	}
	conn := only(t, s)
	until(t, "more than MaxInput to wait", func() bool { return server.Buffered(conn) > 1<<20 })
	clk.pass(0)
	// The peer cannot send any more, although the handler is still at work.
	until(t, "the peer to be cut off", func() bool { _, err := c.Write(frame); return err != nil })
	close(release)
	if why := <-closed; !errors.Is(why, server.ErrFlood) {
		t.Errorf("closed because %v, want ErrFlood", why)
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
