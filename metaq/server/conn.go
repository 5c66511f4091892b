package server

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/socket"
)

// Why a connection ended; Config.Closed gets one of these, or an error that wraps it.
var (
	ErrPeerClosed = errors.New("closed by the peer")
	ErrIdle       = errors.New("idle")                                 // IdleTimeout
	ErrPartial    = errors.New("half a frame without the rest")        // PartialTimeout
	ErrSlow       = errors.New("peer does not read its answers")       // MaxPending, WriteTimeout
	ErrFlood      = errors.New("peer sends faster than it is handled") // MaxInput, and this one had sent most
	ErrForeign    = errors.New("another protocol")
	ErrShutdown   = errors.New("server is shutting down")
)

// ErrClosed is returned for a connection that is gone.
var ErrClosed = errors.New("server: connection is closed")

// ErrTooManyCalls is returned by Call while maxCalls requests to that client are unanswered.
var ErrTooManyCalls = errors.New("server: too many unanswered requests to this client")

const maxCalls = 1024

// Conn is a client's connection. All methods may be called from any goroutine.
type Conn struct {
	srv    *Server
	link   link
	id     uint64
	remote netip.AddrPort
	local  netip.AddrPort
	value  atomic.Pointer[any]

	active   atomic.Int64 // Now in nanoseconds at the last byte in or out
	busy     atomic.Bool  // a burst is in work
	flushing atomic.Int64 // when the link began to wait for the peer's window, Now in nanoseconds; 0 when it does not
	finished atomic.Int64 // when finish was called, Now in nanoseconds; 0 when it was not
	reason   atomic.Pointer[error]
	// cut: the server ends it, and nothing of what has arrived is handled any more. reason is set before. A client that is gone is not
	// cut off: what it sent before still counts, like the offsets that a consumer stores as the last thing it does.
	cut atomic.Bool
	in  assembler // of the reading goroutine, except its atomics

	out struct {
		sync.Mutex
		queue   []*Output
		bytes   int  // of the queue and of what is being written
		writing bool // someone writes; he takes the queue when he is done
		closed  bool
		drained *sync.Cond // bytes came down to 0, or closed; made at first use
	}
	opaque atomic.Int32
	calls  struct {
		sync.Mutex
		closed  bool
		waiting map[int32]chan<- *Response // made at first use
	}
}

func newConn(s *Server, remote, local netip.AddrPort) *Conn {
	c := &Conn{srv: s, id: s.nextID.Add(1), remote: remote, local: local}
	c.active.Store(s.cfg.Now().UnixNano())
	return c
}

// ID is unique among the connections of a server since its start.
func (c *Conn) ID() uint64 { return c.id }

// Remote is the client's address.
func (c *Conn) Remote() netip.AddrPort { return c.remote }

// Local is the address at which the client reached us, which is what it can be told to come back to.
func (c *Conn) Local() netip.AddrPort { return c.local }

// SetValue keeps v with the connection; Value returns it, nil at first.
func (c *Conn) SetValue(v any) { c.value.Store(&v) }

// Value returns what SetValue kept.
func (c *Conn) Value() any {
	if p := c.value.Load(); p != nil {
		return *p
	}
	return nil
}

// LastActive is when the last byte came or went.
func (c *Conn) LastActive() time.Time { return time.Unix(0, c.active.Load()) }

// Close ends the connection now; what is queued is lost. why reaches Config.Closed unless another reason was first.
func (c *Conn) Close(why error) {
	c.fail(why)
}

// fail cuts the connection off: it records the first reason and shuts the socket down. It reports whether this call was the first.
func (c *Conn) fail(why error) bool {
	first := c.reason.CompareAndSwap(nil, &why)
	c.cut.Store(true)
	c.link.Shut()
	return first
}

// closeWhenIdle lets a burst in work be answered first.
func (c *Conn) closeWhenIdle() {
	if c.busy.Load() {
		return // its end sees that the server is stopping
	}
	c.out.Lock()
	idle := c.out.bytes == 0
	c.out.Unlock()
	if idle {
		c.finish()
	}
}

// finish ends the connection for a shutdown: the client gets what has been written, and is given finishGrace to close its side.
func (c *Conn) finish() {
	why := ErrShutdown
	c.reason.CompareAndSwap(nil, &why)
	c.finished.CompareAndSwap(0, c.srv.cfg.Now().UnixNano())
	c.link.Finish()
}

// closed runs once, when no burst is in work and none will come.
func (c *Conn) closed() {
	why := ErrPeerClosed
	c.reason.CompareAndSwap(nil, &why)
	c.out.Lock()
	c.out.closed = true
	queue := c.out.queue
	c.out.queue = nil
	if c.out.drained != nil {
		c.out.drained.Broadcast()
	}
	c.out.Unlock()
	for _, o := range queue {
		o.done()
	}
	c.calls.Lock()
	c.calls.closed = true
	waiting := c.calls.waiting
	c.calls.waiting = nil
	c.calls.Unlock()
	for _, ch := range waiting {
		close(ch)
	}
	if c.srv.cfg.Closed != nil {
		c.srv.hook("closed hook", c, func() { c.srv.cfg.Closed(c, *c.reason.Load()) })
	}
	c.srv.remove(c)
}

// Send queues o and returns without blocking. ErrClosed: the connection is gone, ErrSlow: it is being closed because the client
// does not read. Either way o is taken care of.
func (c *Conn) Send(o *Output) error { return c.send(o, false) }

// send queues o and, if nobody writes, writes. wait: return only when all that is queued has been written.
func (c *Conn) send(o *Output, wait bool) error {
	n := o.Len()
	if n == 0 {
		o.done()
		if !wait {
			return nil
		}
	}
	c.out.Lock()
	if c.out.closed {
		c.out.Unlock()
		if n > 0 {
			o.done()
		}
		return ErrClosed
	}
	if c.out.bytes > c.srv.cfg.MaxPending {
		c.out.Unlock()
		if n > 0 {
			o.done()
		}
		c.slow(fmt.Errorf("%w: more than %d bytes wait", ErrSlow, c.srv.cfg.MaxPending))
		return ErrSlow
	}
	if n > 0 {
		c.out.queue = append(c.out.queue, o)
		c.out.bytes += n
	}
	if c.out.writing {
		if wait {
			c.waitLocked()
		}
		c.out.Unlock()
		return nil
	}
	c.out.writing = true
	c.out.Unlock()
	c.drain(wait)
	return nil
}

func (c *Conn) waitLocked() {
	if c.out.drained == nil {
		c.out.drained = sync.NewCond(&c.out.Mutex)
	}
	for c.out.bytes > 0 && !c.out.closed {
		c.out.drained.Wait()
	}
}

// drain writes the queue until it is empty; the caller has set writing. What the window does not take is written by this
// goroutine if it may block, else by a new one.
func (c *Conn) drain(block bool) {
	v := vectors.Get().(*vector)
	for {
		c.out.Lock()
		queue := c.out.queue
		if len(queue) == 0 || c.out.closed {
			c.out.writing = false
			c.out.Unlock()
			v.put()
			return
		}
		c.out.queue = v.spare[:0]
		c.out.Unlock()

		v.bufs = v.bufs[:0]
		size := 0
		for _, o := range queue {
			v.bufs = o.vectors(v.bufs)
			size += o.Len()
		}
		n, err := c.link.TryWrite(v.bufs)
		if err == nil && n < size {
			rest := socket.Skip(v.bufs, n)
			if !block {
				go func() {
					c.written(queue, size, c.flush(rest))
					v.spare = queue[:0]
					c.drain(true)
				}()
				return
			}
			err = c.flush(rest)
		}
		c.written(queue, size, err)
		v.spare = queue[:0]
	}
}

// written accounts for a batch and releases it.
func (c *Conn) written(queue []*Output, size int, err error) {
	if err != nil {
		why := fmt.Errorf("write: %w", err)
		c.reason.CompareAndSwap(nil, &why)
		c.link.Shut()
	} else {
		c.active.Store(c.srv.cfg.Now().UnixNano())
		c.srv.count.bytesOut.Add(int64(size))
	}
	for i, o := range queue {
		o.done()
		queue[i] = nil
	}
	c.out.Lock()
	c.out.bytes -= size
	if err != nil {
		c.out.closed = true
	}
	if c.out.drained != nil && (c.out.bytes == 0 || c.out.closed) {
		c.out.drained.Broadcast()
	}
	dead := c.out.closed
	var left []*Output
	if dead {
		left, c.out.queue = c.out.queue, nil
	}
	c.out.Unlock()
	for _, o := range left {
		o.done()
	}
	if !dead && c.srv.stopping.Load() {
		c.closeWhenIdle()
	}
}

func (c *Conn) slow(why error) {
	if c.fail(why) {
		c.srv.count.slow.Add(1)
		c.srv.log.warn("connection closed", "remote", c.remote, "reason", why)
	}
}

// vector is the scratch space of one drain.
type vector struct {
	bufs  [][]byte
	spare []*Output
}

var vectors = sync.Pool{New: func() any { return new(vector) }}

func (v *vector) put() {
	if cap(v.bufs) > 4096 || cap(v.spare) > 4096 {
		return
	}
	clear(v.bufs[:cap(v.bufs)])
	v.bufs = v.bufs[:0]
	vectors.Put(v)
}

// Response is a client's answer to a request of ours. It owns its memory.
type Response struct {
	*remoting.Header
	Body []byte
}

// NextOpaque returns an id for a request to this client. Ids are per connection and have nothing to do with the client's.
func (c *Conn) NextOpaque() int32 { return c.opaque.Add(1) & 0x7FFFFFFF }

// Oneway sends a request that wants no answer; fields adds its ext fields and may be nil. It does not block.
func (c *Conn) Oneway(code int32, fields func(*remoting.Encoder), body []byte) error {
	return c.request(code, c.NextOpaque(), remoting.FlagOneway, fields, body)
}

// Call sends a request and waits for its answer, until ctx ends or the connection does (ErrClosed).
func (c *Conn) Call(ctx context.Context, code int32, fields func(*remoting.Encoder), body []byte) (*Response, error) {
	opaque, ch := c.NextOpaque(), make(chan *Response, 1)
	c.calls.Lock()
	if c.calls.closed {
		c.calls.Unlock()
		return nil, ErrClosed
	}
	if len(c.calls.waiting) >= maxCalls {
		c.calls.Unlock()
		return nil, ErrTooManyCalls
	}
	if c.calls.waiting == nil {
		c.calls.waiting = map[int32]chan<- *Response{}
	}
	c.calls.waiting[opaque] = ch
	c.calls.Unlock()
	defer func() {
		c.calls.Lock()
		delete(c.calls.waiting, opaque)
		c.calls.Unlock()
	}()
	if err := c.request(code, opaque, 0, fields, body); err != nil {
		return nil, err
	}
	select {
	case r, ok := <-ch:
		if !ok {
			return nil, ErrClosed
		}
		return r, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *Conn) request(code, opaque, flag int32, fields func(*remoting.Encoder), body []byte) error {
	o := NewOutput()
	e := o.Request(code, opaque, flag)
	if fields != nil {
		fields(e)
	}
	if err := o.End(body); err != nil {
		o.done()
		return err
	}
	return c.Send(o)
}

// answered hands a client's response to its Call.
func (c *Conn) answered(h *remoting.Header, body []byte) {
	c.calls.Lock()
	ch := c.calls.waiting[h.Opaque]
	delete(c.calls.waiting, h.Opaque)
	c.calls.Unlock()
	if ch == nil { // late, or never asked: the protocol says to ignore it
		c.srv.count.strays.Add(1)
		return
	}
	ch <- &Response{h.Clone(), append([]byte(nil), body...)}
}

// waiting is how much memory holds what c has sent and nobody has handled: half a frame, and what was read ahead.
func (c *Conn) waiting() int64 {
	n := c.in.room.Load()
	if c.busy.Load() {
		n += int64(c.link.Buffered())
	}
	return n
}

// sweep applies the timeouts.
func (c *Conn) sweep(now time.Time) {
	cfg := &c.srv.cfg
	if since := c.flushing.Load(); since != 0 && now.Sub(time.Unix(0, since)) > cfg.WriteTimeout {
		c.slow(fmt.Errorf("%w: %d bytes did not go within %v", ErrSlow, flushBytes, cfg.WriteTimeout))
		return
	}
	if c.busy.Load() {
		return // the budget for input bounds it
	}
	if c.srv.stopping.Load() {
		c.closeWhenIdle()
		return
	}
	last := time.Unix(0, c.active.Load())
	var why error
	if start := c.in.since.Load(); start != 0 {
		switch {
		case now.Sub(last) > cfg.PartialTimeout:
			why = fmt.Errorf("%w for %v", ErrPartial, cfg.PartialTimeout)
		case now.Sub(time.Unix(0, start)) > cfg.IdleTimeout:
			why = fmt.Errorf("%w after %v", ErrPartial, cfg.IdleTimeout)
		}
	}
	if why == nil && now.Sub(last) > cfg.IdleTimeout {
		why = fmt.Errorf("%w for %v", ErrIdle, cfg.IdleTimeout)
	}
	if why != nil && c.fail(why) {
		c.srv.count.timedOut.Add(1)
		c.srv.log.out.Debug("connection closed", "remote", c.remote, "reason", why)
	}
}
