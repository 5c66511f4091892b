package server_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/metaq/server"
)

func TestLargeAnswersOfABurstWaitForTheClientToRead(t *testing.T) {
	const requests = 64
	var handled atomic.Int32
	body := make([]byte, 2<<20)
	closed := make(chan error, 1)
	s := start(t, server.Config{
		Closed: func(_ *server.Conn, why error) { closed <- why },
		Handler: server.HandlerFunc(func(b *server.Burst) {
			for i := range b.Requests {
				if !b.Continue() {
					return
				}
				handled.Add(1)
				b.Reply(&b.Requests[i], remoting.RespSuccess, "")
				b.End(body)
			}
		}),
	})
	var all []byte
	for i := range int32(requests) {
		all = append(all, request(10, i, "", nil)...)
	}

	reads := dial(t, s)
	reads.send(all)
	for i := range int32(requests) {
		if h, b := reads.read(); h.Opaque != i || len(b) != len(body) {
			t.Fatalf("answer %d has opaque %d and %d bytes", i, h.Opaque, len(b))
		}
	}
	reads.Close()
	<-closed
	handled.Store(0)

	// One that does not read takes no more than the kernel holds, and what it asked for is dropped with it.
	deaf := dial(t, s)
	deaf.send(all)
	until(t, "the first answers", func() bool { return handled.Load() > 1 })
	deaf.Close()
	<-closed
	if n := handled.Load(); n >= requests {
		t.Errorf("%d requests were handled for a client that never read, want a few", n)
	}
}

func TestWhoHoldsMostInputIsClosedWhenAllHoldTooMuch(t *testing.T) {
	clk := newClock()
	closed := make(chan error, 3)
	cfg := server.Config{Handler: server.HandlerFunc(echo), MaxInput: 1 << 20, Closed: func(_ *server.Conn, why error) { closed <- why }}
	clk.set(&cfg)
	s := start(t, cfg)
	sent := 0
	half := func(n int) (*client, []byte) { // a client that has sent all but the last 10 bytes of a frame
		c, frame := dial(t, s), request(10, 1, "x", make([]byte, n))
		c.send(frame[:len(frame)-10])
		sent += len(frame) - 10
		return c, frame[len(frame)-10:]
	}
	small, smallRest := half(100)
	medium, mediumRest := half(500 << 10)
	until(t, "the halves to arrive", func() bool { return s.Stats().BytesIn == int64(sent) })
	clk.pass(0)
	if n := s.Stats().Slow; n != 0 {
		t.Fatalf("%d connections closed below the limit", n)
	}
	large, _ := half(700 << 10)
	until(t, "the large one to arrive", func() bool { return s.Stats().BytesIn == int64(sent) })
	clk.pass(0)
	until(t, "one to be cut off", func() bool { return s.Stats().Slow == 1 })
	if why := <-closed; !errors.Is(why, server.ErrFlood) {
		t.Errorf("closed because %v, want ErrFlood", why)
	}
	if !large.gone() {
		t.Error("the connection with the largest half frame is open")
	}
	for _, c := range []struct {
		*client
		rest []byte
	}{{small, smallRest}, {medium, mediumRest}} {
		c.send(c.rest)
		if h, _ := c.read(); h.Opaque != 1 {
			t.Errorf("answer to %d, want 1", h.Opaque)
		}
	}
}

func TestAClientThatSendsFasterThanItIsHandledIsSlowedDownAndLosesNothing(t *testing.T) { // a producer without a window over a slow disk
	const frames, size = 600, 64 << 10
	var burst atomic.Int32
	entered, release := make(chan struct{}), make(chan struct{})
	s := start(t, server.Config{Handler: server.HandlerFunc(func(b *server.Burst) {
		if burst.Add(1) == 1 {
			close(entered)
			<-release
		}
		echo(b)
	})})
	c := dial(t, s)
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	done := make(chan error, 1)
	go func() {
		for i := range int32(frames) {
			if _, err := c.Write(request(10, i, "x", make([]byte, size))); err != nil {
				done <- err
				return
			}
			if i == 0 {
				<-entered // all the others wait behind the first
			}
		}
		done <- nil
	}()
	conn := only(t, s)
	until(t, "much to be read ahead of the first burst", func() bool { return server.Buffered(conn) > 6<<20 })
	close(release)
	for i := range int32(frames) {
		h, body := c.read()
		if h.Opaque != i || len(body) != size {
			t.Fatalf("answer %d has opaque %d and %d bytes", i, h.Opaque, len(body))
		}
	}
	if err := <-done; err != nil {
		t.Errorf("write: %v", err)
	}
	if n := s.Stats().Paused; n == 0 {
		t.Error("reading never paused")
	}
	// And it works as before, in both directions.
	c.send(request(10, frames, "x", nil))
	if h, _ := c.read(); h.Opaque != frames {
		t.Errorf("answer to %d after the pause, want %d", h.Opaque, frames)
	}
	if err := conn.Oneway(40, nil, nil); err != nil {
		t.Error(err)
	}
	if h, _ := c.read(); h.Code != 40 {
		t.Errorf("got %v, want the server's request", h)
	}
	c.Close()
	until(t, "the connection to go", func() bool { return s.Stats().Connections == 0 })
}

func TestAPausedClientThatDoesNotReadOrGoesIsForgotten(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(c *client, conn *server.Conn)
	}{
		{"the client goes", func(c *client, _ *server.Conn) { c.Close() }},
		{"the server cuts it off", func(_ *client, conn *server.Conn) { conn.Close(server.ErrSlow) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			closed := make(chan error, 1)
			entered, release := make(chan struct{}), make(chan struct{})
			var once atomic.Bool
			s := start(t, server.Config{
				Closed: func(_ *server.Conn, why error) { closed <- why },
				Handler: server.HandlerFunc(func(b *server.Burst) {
					if !once.Swap(true) {
						close(entered)
						<-release
					}
					echo(b)
				}),
			})
			c := dial(t, s)
			go func() { // never reads: the answers fill the window, in the pause too
				frame := request(10, 1, "x", make([]byte, 64<<10))
				for i := 0; ; i++ {
					if _, err := c.Write(frame); err != nil {
						return
					}
					if i == 0 {
						<-entered // all the others wait behind the first, whose answer is not too much for the window
					}
				}
			}()
			conn := only(t, s)
			until(t, "much to be read ahead", func() bool { return server.Buffered(conn) > 16<<20 })
			close(release)
			until(t, "a pause", func() bool { return s.Stats().Paused > 0 })
			tc.end(c, conn)
			<-closed
			until(t, "it to be forgotten", func() bool { return s.Stats().Connections == 0 })
		})
	}
}
