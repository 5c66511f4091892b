package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/socket"
)

// Handler serves requests.
type Handler interface {
	// Serve answers, or takes with Hold, every request of b. Calls for one connection never overlap; calls for different
	// connections do. The burst, its requests and all they refer to are valid until Serve returns.
	Serve(b *Burst)
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(b *Burst)

func (f HandlerFunc) Serve(b *Burst) { f(b) }

// Config of a server. The zero value of a field means its default.
type Config struct {
	Name    string // of the listener, in log lines. Default "remoting"
	Handler Handler

	Opened func(*Conn)                       // before the first request of a connection. Must not block
	Closed func(*Conn, error)                // once, after the last burst of a connection; says why. Must not block
	Log    *slog.Logger                      // default slog.Default()
	Now    func() time.Time                  // default time.Now
	Tick   func() (<-chan time.Time, func()) // clock of the timeouts. Default a ticker of 250 ms

	MaxConns    int           // connections beyond are closed at once. Default 18,000: below the usual limit of 20,000 descriptors
	MaxBurst    int           // requests handed over in one call. Default 256
	MaxPending  int           // bytes queued for a client that does not read. Default 64 MiB
	IdleTimeout time.Duration // without a byte in either direction. Default 120 s

	// MaxInput is how many bytes of all connections together may have arrived and not been handled: half frames, and what was
	// read ahead of a burst in work. Beyond it the connections that hold most are closed. Default 512 MiB.
	MaxInput int64
	// PartialTimeout is how long half a frame waits for its next byte. Default 15 s. The whole frame has IdleTimeout.
	PartialTimeout time.Duration
	// WriteTimeout is how long 256 KiB may take to be written. Default 30 s.
	WriteTimeout time.Duration
}

func (c Config) withDefaults() Config {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	defTime := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	if c.Name == "" {
		c.Name = "remoting"
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Tick == nil {
		c.Tick = func() (<-chan time.Time, func()) {
			t := time.NewTicker(250 * time.Millisecond)
			return t.C, t.Stop
		}
	}
	def(&c.MaxConns, 18000)
	def(&c.MaxBurst, 256)
	def(&c.MaxPending, 64<<20)
	if c.MaxInput == 0 {
		c.MaxInput = 512 << 20
	}
	defTime(&c.IdleTimeout, 120*time.Second)
	defTime(&c.PartialTimeout, 15*time.Second)
	defTime(&c.WriteTimeout, 30*time.Second)
	return c
}

func (c Config) validate() error {
	if c.Handler == nil {
		return errors.New("server: Config.Handler is nil")
	}
	for _, f := range []struct {
		name string
		v    int64
	}{
		{"MaxConns", int64(c.MaxConns)}, {"MaxBurst", int64(c.MaxBurst)}, {"MaxPending", int64(c.MaxPending)}, {"MaxInput", c.MaxInput},
		{"IdleTimeout", int64(c.IdleTimeout)}, {"PartialTimeout", int64(c.PartialTimeout)}, {"WriteTimeout", int64(c.WriteTimeout)},
	} {
		if f.v < 0 {
			return fmt.Errorf("server: Config.%s is %d, want 0 (default) or more", f.name, f.v)
		}
	}
	return nil
}

// Stats counts since the server started, except Connections.
type Stats struct {
	Connections int64 // open now
	Accepted    int64
	Refused     int64 // over MaxConns
	Requests    int64
	Bursts      int64 // Requests / Bursts is how far clients pipeline
	BytesIn     int64
	BytesOut    int64
	Malformed   int64 // connections closed for a broken frame
	Foreign     int64 // connections closed for another protocol
	TimedOut    int64 // connections closed for silence, or for half a frame without progress
	Paused      int64 // times that reading from a connection stopped, because its handler did not keep up
	Slow        int64 // connections closed because the peer did not read, or sent faster than it was handled
	Panics      int64 // of the handler and the hooks, contained
	Strays      int64 // responses to no request of ours
}

type counters struct {
	connections, accepted, refused, requests, bursts, bytesIn, bytesOut atomic.Int64
	malformed, foreign, timedOut, slow, paused, panics, strays          atomic.Int64
}

// Server is a listening server. All methods may be called from any goroutine.
type Server struct {
	cfg   Config
	ln    net.Listener
	in    *socket.Acceptor
	count counters
	log   limiter

	stopping atomic.Bool
	stopped  chan struct{} // closed when the sweeper shall end
	workers  sync.WaitGroup
	nextID   atomic.Uint64

	mu struct {
		sync.Mutex
		conns map[*Conn]struct{}
		empty chan struct{} // not nil while Shutdown waits for the last connection; closed by it
	}
}

// Listen opens a TCP address, host:port with port 0 for any, and serves it until Shutdown.
func Listen(addr string, cfg Config) (*Server, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s, err := Serve(ln, cfg)
	if err != nil {
		_ = ln.Close()
		return nil, err
	}
	return s, nil
}

// Serve serves a TCP listener, which it owns from then on, until Shutdown. It returns at once.
func Serve(ln net.Listener, cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	remoting.Pretouch()
	s := &Server{cfg: cfg, ln: ln, stopped: make(chan struct{})}
	s.log.out = cfg.Log.With("listener", cfg.Name)
	s.mu.conns = map[*Conn]struct{}{}
	var err error
	s.in, err = socket.Serve(ln, socket.Options{Open: s.open, Failed: func(err error, retry time.Duration) {
		s.log.warn("cannot accept connections", "error", err, "retry_ms", retry.Milliseconds())
	}})
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s.workers.Add(1)
	go s.sweepLoop()
	return s, nil
}

// Addr is the listener's address, with the port that the system chose.
func (s *Server) Addr() netip.AddrPort {
	if a, ok := s.ln.Addr().(*net.TCPAddr); ok {
		p := a.AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	return netip.AddrPort{}
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	c := &s.count
	return Stats{
		Connections: c.connections.Load(), Accepted: c.accepted.Load(), Refused: c.refused.Load(), Requests: c.requests.Load(),
		Bursts: c.bursts.Load(), BytesIn: c.bytesIn.Load(), BytesOut: c.bytesOut.Load(), Malformed: c.malformed.Load(),
		Foreign: c.foreign.Load(), TimedOut: c.timedOut.Load(), Slow: c.slow.Load(), Paused: c.paused.Load(), Panics: c.panics.Load(), Strays: c.strays.Load(),
	}
}

// Shutdown stops accepting, closes connections as they become free of work, and returns when all are gone and their Closed
// hooks have run. When ctx ends first the rest are cut off, and ctx's error is returned once their handlers are back.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.stopping.Swap(true) {
		<-s.stopped
		return nil
	}
	s.in.Close()
	s.mu.Lock()
	empty := make(chan struct{})
	s.mu.empty = empty
	if len(s.mu.conns) == 0 {
		close(empty)
		s.mu.empty = nil
	}
	s.mu.Unlock()
	for _, c := range s.snapshot(nil) {
		c.closeWhenIdle()
	}
	err := s.ended(ctx, empty)
	close(s.stopped)
	s.workers.Wait()
	return err
}

// finishGrace is how long a client has to close a connection that we have finished with.
const finishGrace = time.Second

// ended waits until no connection is left, and cuts off those whose clients do not close their side.
func (s *Server) ended(ctx context.Context, empty <-chan struct{}) error {
	tick := time.NewTicker(finishGrace / 8)
	defer tick.Stop()
	for {
		select {
		case <-empty:
			return nil
		case <-tick.C:
			late := s.cfg.Now().Add(-finishGrace).UnixNano()
			for _, c := range s.snapshot(nil) {
				if at := c.finished.Load(); at != 0 && at <= late {
					c.Close(ErrShutdown)
				}
			}
		case <-ctx.Done():
			for _, c := range s.snapshot(nil) {
				c.Close(ErrShutdown)
			}
			<-empty
			return ctx.Err()
		}
	}
}

// snapshot appends the open connections to into.
func (s *Server) snapshot(into []*Conn) []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.mu.conns {
		into = append(into, c)
	}
	return into
}

// Conns calls fn for every open connection; fn must not block.
func (s *Server) Conns(fn func(*Conn)) {
	for _, c := range s.snapshot(nil) {
		fn(c)
	}
}

// add registers a connection; false when there is no room or the server is stopping.
func (s *Server) add(c *Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Load() || len(s.mu.conns) >= s.cfg.MaxConns {
		return false
	}
	s.mu.conns[c] = struct{}{}
	s.count.connections.Add(1)
	return true
}

func (s *Server) remove(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.conns, c)
	s.count.connections.Add(-1)
	if s.mu.empty != nil && len(s.mu.conns) == 0 {
		close(s.mu.empty)
		s.mu.empty = nil
	}
}

// hook runs a hook of the host. A panic in it must not take down the goroutine that all connections share.
func (s *Server) hook(name string, c *Conn, fn func()) {
	defer func() {
		if v := recover(); v != nil {
			s.panicked(name, c, v)
		}
	}()
	fn()
}

// panicked notes a panic that was contained; call it where it was recovered.
func (s *Server) panicked(where string, c *Conn, v any, args ...any) {
	s.count.panics.Add(1)
	s.log.log(slog.LevelError, where+" panicked", append(args, "panic", v, "remote", c.remote, "stack", string(debug.Stack()))...)
}

// sweepLoop runs the timeouts. One goroutine and no timer however many connections there are.
func (s *Server) sweepLoop() {
	defer s.workers.Done()
	tick, stop := s.cfg.Tick()
	defer stop()
	var conns []*Conn
	for {
		select {
		case <-s.stopped:
			return
		case <-tick:
		}
		s.log.refill()
		now := s.cfg.Now()
		conns = s.snapshot(conns[:0])
		waiting := int64(0)
		for _, c := range conns {
			c.sweep(now)
			waiting += c.waiting()
		}
		if waiting > s.cfg.MaxInput {
			socket.Largest(conns, waiting-s.cfg.MaxInput, (*Conn).waiting, func(c *Conn, bytes int64) {
				c.slow(fmt.Errorf("%w: %d of its bytes wait", ErrFlood, bytes))
			})
		}
		clear(conns) // do not keep a closed one until the next tick
	}
}

// limiter bounds the log lines that peers can cause.
type limiter struct {
	out     *slog.Logger
	used    atomic.Int32
	skipped atomic.Int64
}

const linesPerTick = 5

func (l *limiter) warn(msg string, args ...any) { l.log(slog.LevelWarn, msg, args...) }

func (l *limiter) log(level slog.Level, msg string, args ...any) {
	if l.used.Add(1) > linesPerTick {
		l.skipped.Add(1)
		return
	}
	l.out.Log(context.Background(), level, msg, args...)
}

func (l *limiter) refill() {
	if l.used.Load() == 0 {
		return
	}
	l.used.Store(0)
	if n := l.skipped.Swap(0); n > 0 {
		l.out.Warn("more lines about connections were left out", "lines", n)
	}
}
