package server

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/socket"
)

// Server is one listening port.
type Server struct {
	o  Options
	ln net.Listener
	in *socket.Acceptor

	clock  atomic.Int64 // milliseconds since start, moved by the sweeper: exact enough for idle times
	begun  time.Time
	counts counters
	quiet  quiet

	held    atomic.Int64  // bytes of half frames, of all connections
	crowded chan struct{} // held went over MaxInput

	stopping  atomic.Bool
	finishing atomic.Bool // stopping, and nobody waits for acknowledgements any more
	quit      chan struct{}
	done      sync.WaitGroup // sweeper
	work      sync.WaitGroup // connections until their session has ended, and their writers; only a connection adds to it

	mu struct {
		sync.Mutex
		conns map[*conn]struct{}
	}
}

type counters struct {
	accepted, refused, foreign, malformed, idle, slow, paused, panics atomic.Uint64
	framesIn, framesOut, bytesIn, bytesOut, writes                    atomic.Uint64
}

// Stats is what the transport has done since it began, and how many connections it has.
type Stats struct {
	Connections                            int
	Accepted, Refused                      uint64 // connections; refused: over MaxConnections or stopping
	Foreign, Malformed, Idle, Slow, Panics uint64 // connections closed for it
	Paused                                 uint64 // times that reading from a connection stopped, because the handler did not keep up
	FramesIn, FramesOut                    uint64
	BytesIn, BytesOut                      uint64
	Writes                                 uint64 // system calls that wrote
}

// Listen opens the port and serves it until Shutdown.
func Listen(o Options) (*Server, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen for the Notify wire: %w", err)
	}
	s, err := Serve(ln, o)
	if err != nil {
		_ = ln.Close() // the other error matters
	}
	return s, err
}

// Serve serves a listener that is open already, a *net.TCPListener, and owns it from then on.
func Serve(ln net.Listener, o Options) (*Server, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Server{o: o, ln: ln, quit: make(chan struct{}), crowded: make(chan struct{}, 1), begun: o.Now()}
	s.mu.conns = make(map[*conn]struct{})
	s.quiet.log = o.Log
	var err error
	s.in, err = socket.Serve(ln, socket.Options{Open: s.open, Writes: &s.counts.writes, Failed: func(err error, retry time.Duration) {
		s.quiet.warn("cannot accept connections", "error", err, "retry_ms", retry.Milliseconds())
	}})
	if err != nil {
		return nil, fmt.Errorf("listen for the Notify wire: %w", err)
	}
	s.done.Add(1)
	go s.sweep()
	return s, nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Stats returns a snapshot.
func (s *Server) Stats() Stats {
	c := &s.counts
	s.mu.Lock()
	n := len(s.mu.conns)
	s.mu.Unlock()
	return Stats{
		Connections: n, Accepted: c.accepted.Load(), Refused: c.refused.Load(),
		Foreign: c.foreign.Load(), Malformed: c.malformed.Load(), Idle: c.idle.Load(), Slow: c.slow.Load(), Paused: c.paused.Load(), Panics: c.panics.Load(),
		FramesIn: c.framesIn.Load(), FramesOut: c.framesOut.Load(), BytesIn: c.bytesIn.Load(), BytesOut: c.bytesOut.Load(), Writes: c.writes.Load(),
	}
}

// drainShare is how much of the time for a shutdown may go into waiting for acknowledgements.
const drainShare = 3

// Shutdown stops accepting, lets what is delivered be acknowledged for a while, closes every connection, and returns when
// the goroutines have ended or ctx has.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.stopping.Swap(true) {
		return nil
	}
	wait := time.Second
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end)/drainShare)
	}
	drain, cancel := context.WithTimeout(ctx, wait)
	s.o.Service.Drain(drain)
	cancel()
	s.in.Close()
	s.finishing.Store(true)
	for _, c := range s.every() {
		c.finishSoon()
	}
	s.ended(ctx)
	for _, c := range s.every() {
		c.sock.Shut()
	}
	close(s.quit)
	ended := make(chan struct{})
	go func() {
		s.done.Wait()
		s.work.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// finishGrace is how long a client has to close a connection that we have finished with.
const finishGrace = time.Second

// ended waits a while until no connection is left.
func (s *Server) ended(ctx context.Context) {
	begun := s.o.Now()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		s.mu.Lock()
		n := len(s.mu.conns)
		s.mu.Unlock()
		if n == 0 || s.o.Now().Sub(begun) >= finishGrace {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

func (s *Server) every() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	cs := make([]*conn, 0, len(s.mu.conns))
	for c := range s.mu.conns {
		cs = append(cs, c)
	}
	return cs
}

// now is milliseconds since the server began, as of the last sweep.
func (s *Server) now() int64 { return s.clock.Load() }

// sweep closes connections that are idle, that leave half a frame waiting, or that send faster than is handled.
func (s *Server) sweep() {
	defer s.done.Done()
	every := min(time.Second, max(s.o.IdleTimeout/8, 10*time.Millisecond), max(s.o.PartialTimeout/8, 10*time.Millisecond))
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-t.C:
		case <-s.crowded:
		}
		now := s.o.Now().Sub(s.begun).Milliseconds()
		s.clock.Store(now)
		conns, waiting := s.every(), int64(0)
		for _, c := range conns {
			waiting += c.waiting()
			if c.shut {
				continue
			}
			if f := c.finished.Load(); f != 0 { // closed for a reason already, once
				if now-f > finishGrace.Milliseconds() {
					c.sock.Shut()
				}
				continue
			}
			if c.shut = s.overdue(c, now); c.shut {
				c.sock.Shut()
			}
		}
		if waiting > s.o.MaxInput {
			socket.Largest(conns, waiting-s.o.MaxInput, (*conn).waiting, s.shutFlood)
		}
	}
}

// overdue says whether c is to be closed, which it counts.
func (s *Server) overdue(c *conn, now int64) bool {
	switch {
	case now-c.active.Load() > s.o.IdleTimeout.Milliseconds():
		s.counts.idle.Add(1)
	case c.partialSince.Load() != 0 && now-c.partialSince.Load() > s.o.PartialTimeout.Milliseconds():
		s.counts.malformed.Add(1)
		s.quiet.warn("connection closed: half a frame without the rest", "remote", c.remote)
	case c.sock.Buffered() > maxInput:
		s.counts.slow.Add(1)
		s.quiet.warn("connection closed: it sends faster than is handled", "remote", c.remote)
	default:
		return false
	}
	return true
}

// shutFlood closes a connection for the memory that its input takes.
func (s *Server) shutFlood(c *conn, bytes int64) {
	if c.shut { // what it holds goes with it
		return
	}
	c.shut = true
	s.counts.slow.Add(1)
	s.quiet.warn("connection closed: it holds the most input while all together hold too much", "remote", c.remote, "bytes", bytes, "limit", s.o.MaxInput)
	c.sock.Shut()
}

// poke wakes the one reader of a channel of capacity one.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// open makes a connection and its session; nil when there is no room, or no time.
func (s *Server) open(sock *socket.Conn) socket.Handler {
	s.counts.accepted.Add(1)
	c := newConn(s, sock)
	s.mu.Lock()
	full := len(s.mu.conns) >= s.o.MaxConnections || s.stopping.Load()
	if !full {
		s.mu.conns[c] = struct{}{}
		s.work.Add(1) // with s.mu held, and before stopping was seen: Shutdown takes s.mu before it waits
	}
	s.mu.Unlock()
	if !full {
		var err error
		if c.session, err = s.o.Service.Open(c, c.remote); err == nil {
			return c
		}
		s.remove(c)
		s.work.Done()
	}
	s.counts.refused.Add(1)
	if !s.stopping.Load() {
		s.quiet.warn("connection refused", "remote", c.remote, "limit", s.o.MaxConnections)
	}
	return nil
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	delete(s.mu.conns, c)
	s.mu.Unlock()
}
