package server

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/fusionmq/fusionmq/notify"
	"github.com/fusionmq/fusionmq/notify/wire"
	"github.com/fusionmq/fusionmq/socket"
)

// Why a connection ended.
var (
	errSlow     = errors.New("does not read")
	errPanicked = errors.New("panicked")
)

const (
	maxInput   = 64 << 20  // bytes read from the socket that wait for the handler
	readPiece  = 256 << 10 // bytes handled at a time
	writePiece = 256 << 10 // bytes encoded before they are written
)

// conn is one connection. It is the [notify.Outlet] of its session, and the [socket.Handler] of its socket.
type conn struct {
	s       *Server
	sock    *socket.Conn
	session *notify.Session
	remote  netip.AddrPort

	active       atomic.Int64 // Server.now of the last whole frame
	finished     atomic.Int64 // Server.now when we had said all; 0: not yet
	shut         bool         // the sweeper has counted it and shut its socket; it is gone soon after. Of the sweeper
	partialSince atomic.Int64 // Server.now when a half frame began to wait; 0: none does
	partial      []byte       // the half frame; of the reading goroutine. Set by keep
	held         atomic.Int64 // bytes that partial takes

	features atomic.Uint32 // wire.Feature

	pending atomic.Int64 // bytes of deliveries that wait to be written
	starved atomic.Bool  // Room said no, and nobody has been told that there is room again

	out struct {
		sync.Mutex
		answers    []byte
		deliveries *[]notify.Delivery // nil: none; from the pool
		writing    bool               // somebody writes; he takes what comes meanwhile
		held       bool               // the answer to the metadata is not queued yet: deliveries wait
		closing    bool               // close when everything is written
		closed     bool
		drained    *sync.Cond // answers were taken, or closed; made at first use
	}

	tags struct { // of the deliveries in batches
		sync.Mutex
		handles []uint32 // ring; its length is a power of two
		base    uint64   // tag of the oldest one kept
		next    uint64   // tag that is given next
	}
}

func newConn(s *Server, sock *socket.Conn) *conn {
	c := &conn{s: s, sock: sock, remote: sock.Remote()}
	c.active.Store(s.now())
	c.tags.base, c.tags.next = 1, 1
	return c
}

func (c *conn) has(f wire.Feature) bool { return wire.Feature(c.features.Load()).Has(f) }

// Closed implements socket.Handler.
func (c *conn) Closed() {
	c.endOutput()
	c.s.remove(c)
	c.s.held.Add(-c.held.Swap(0)) // the reader is not called any more
	go func() {                   // not on the goroutine that all connections share: it takes the locks of the session's groups
		defer c.s.work.Done()
		c.session.Close()
	}()
}

// waiting is how many bytes have come and were not handled.
func (c *conn) waiting() int64 { return c.held.Load() + int64(c.sock.Buffered()) }

// contain turns a panic into the end of this connection.
func (c *conn) contain(where string) {
	if v := recover(); v != nil {
		c.s.counts.panics.Add(1)
		c.s.o.Log.Error("notify connection panicked", "in", where, "panic", fmt.Sprint(v), "remote", c.remote, "stack", string(debug.Stack()))
		c.sock.Shut()
	}
}

// deliveries are slices for what waits to be written, so that an idle connection holds none.
var deliveries = sync.Pool{New: func() any { return new([]notify.Delivery) }}

// Room implements notify.Outlet.
func (c *conn) Room() bool {
	limit := int64(c.s.o.MaxPending)
	if c.pending.Load() < limit {
		return true
	}
	c.starved.Store(true)
	// It may have drained between the two.
	return c.pending.Load() < limit
}

// Push implements notify.Outlet.
func (c *conn) Push(d notify.Delivery) {
	c.pending.Add(int64(d.Message.Size))
	c.out.Lock()
	if !c.out.closed {
		if c.out.deliveries == nil {
			c.out.deliveries = deliveries.Get().(*[]notify.Delivery)
		}
		*c.out.deliveries = append(*c.out.deliveries, d)
	}
	c.out.Unlock()
}

// Kick implements notify.Outlet.
func (c *conn) Kick() {
	c.out.Lock()
	start := !c.out.writing && !c.out.closed && !c.out.held && c.out.deliveries != nil
	c.out.writing = c.out.writing || start
	c.out.Unlock()
	if start {
		c.s.work.Add(1)
		go func() {
			defer c.s.work.Done()
			c.write()
		}()
	}
}

// hold keeps deliveries back, and what is queued before release(answers) goes out before any of them.
func (c *conn) hold() {
	c.out.Lock()
	c.out.held = true
	c.out.Unlock()
}

func (c *conn) release(answers []byte) {
	c.out.Lock()
	c.out.held = false
	if !c.out.closed {
		c.out.answers = append(c.out.answers, answers...)
	}
	c.out.Unlock()
	c.Kick()
}

// answer queues answers and writes them, or leaves that to the writer there is. With closing the connection ends
// afterwards. When too many answers wait because the client does not read them, it waits: that is the reading goroutine,
// so the client is not read either.
func (c *conn) answer(b []byte, closing bool) {
	c.out.Lock()
	if len(b)+len(c.out.answers) == 0 && !closing {
		c.out.Unlock()
		return
	}
	for len(c.out.answers) > c.s.o.MaxPending && !c.out.closed {
		if c.out.drained == nil {
			c.out.drained = sync.NewCond(&c.out.Mutex)
		}
		c.out.drained.Wait()
	}
	if c.out.closed {
		c.out.Unlock()
		return
	}
	c.out.answers = append(c.out.answers, b...)
	c.out.closing = c.out.closing || closing
	start := !c.out.writing
	c.out.writing = true
	c.out.Unlock()
	if start {
		c.write()
	}
}

// finishSoon ends the connection behind what waits to be written. It does not wait.
func (c *conn) finishSoon() {
	c.out.Lock()
	c.out.closing = true
	start := !c.out.writing && !c.out.closed
	c.out.writing = c.out.writing || start
	idle := len(c.out.answers) == 0 && c.out.deliveries == nil
	c.out.Unlock()
	switch {
	case !start: // whoever writes finishes
	case idle:
		c.write() // which writes nothing
	default:
		c.s.work.Go(c.write)
	}
}
