// Package inflight is a connection with many requests in flight: one write for all that wait while another write runs, and answers that find
// their request by its number. What the bytes mean is its users': a client of RocketMQ (raw) and one of NATS (rawnats).
package inflight

import (
	"net"
	"sync"
)

// numbers of requests are below this, so that they fit a positive int32.
const numbers = 1 << 31

// Conn is one connection whose answers are of type A. Its methods may be called from any goroutine, except where they say otherwise.
type Conn[A any] struct {
	c      net.Conn
	closed error         // what a request gets whose connection ended before its answer
	wake   chan struct{} // one waiting token: there is something to write
	gone   chan struct{} // closed when the reader has ended

	mu struct {
		sync.Mutex
		out  []byte // not yet handed to a write
		next uint32
		wait map[uint32]func(A, error)
		dead bool
	}
}

// New makes a Conn. Start starts it; what is appended before that waits. closed is what requests get whose connection ends.
func New[A any](c net.Conn, closed error) *Conn[A] {
	n := &Conn[A]{c: c, closed: closed, wake: make(chan struct{}, 1), gone: make(chan struct{})}
	n.mu.wait = map[uint32]func(A, error){}
	return n
}

// Start begins to write and runs read, which hands answers over with Take and returns at the end of the connection.
func (c *Conn[A]) Start(read func()) {
	go c.write()
	go func() {
		defer close(c.gone)
		defer c.fail()
		read()
	}()
}

// Close ends the connection; callbacks that still wait get the error of New. Only after Start.
func (c *Conn[A]) Close() {
	c.fail()
	<-c.gone
}

// Gone is closed when the connection has ended and every callback has run.
func (c *Conn[A]) Gone() <-chan struct{} { return c.gone }

// Waiting is how many requests have no answer yet.
func (c *Conn[A]) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.wait)
}

// Begin gives a request its number and the buffer to append it to. With true the connection is the caller's until End. False: it has
// ended, and done will not run.
func (c *Conn[A]) Begin(done func(A, error)) (out []byte, id uint32, ok bool) {
	c.mu.Lock()
	if c.mu.dead {
		c.mu.Unlock()
		return nil, 0, false
	}
	c.mu.next = (c.mu.next + 1) % numbers
	c.mu.wait[c.mu.next] = done
	return c.mu.out, c.mu.next, true
}

// End takes the buffer of Begin back and has it written.
func (c *Conn[A]) End(out []byte) {
	c.mu.out = out
	c.mu.Unlock()
	c.signal()
}

// Append has bytes written that expect no answer.
func (c *Conn[A]) Append(b []byte) {
	c.mu.Lock()
	c.mu.out = append(c.mu.out, b...)
	c.mu.Unlock()
	c.signal()
}

// Take gives what a request waits with, and nil when none of this number does.
func (c *Conn[A]) Take(id uint32) func(A, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := c.mu.wait[id]
	delete(c.mu.wait, id)
	return done
}

func (c *Conn[A]) signal() {
	select {
	case c.wake <- struct{}{}:
	default: // the writer has a token already
	}
}

func (c *Conn[A]) write() {
	var buf []byte
	for {
		select {
		case <-c.wake:
		case <-c.gone:
			return
		}
		c.mu.Lock()
		buf, c.mu.out = c.mu.out, buf[:0]
		c.mu.Unlock()
		if len(buf) == 0 {
			continue
		}
		if _, err := c.c.Write(buf); err != nil {
			_ = c.c.Close() // the reader sees it and tells the waiters
			return
		}
	}
}

func (c *Conn[A]) fail() {
	_ = c.c.Close()
	c.mu.Lock()
	wait := c.mu.wait
	c.mu.wait, c.mu.dead = map[uint32]func(A, error){}, true
	c.mu.Unlock()
	var none A
	for _, done := range wait {
		done(none, c.closed)
	}
}
