package httpapi

import (
	"container/list"
	"errors"
	"io"
	"net"
	"sync"
)

// limited is a listener with at most so many open connections. At the limit the next one takes the place of the connection that has been
// without a whole request for the longest, be it half a header, half a body, or nothing since the last answer, so clients that ask for
// nothing keep nobody out. Only when every connection has a request in work does the next one wait.
type limited struct {
	net.Listener
	most int
	room chan struct{} // one element when Accept may look for a place again
	shut chan struct{} // closed by Close
	once sync.Once

	mu      sync.Mutex
	open    int
	waiting list.List // of *counted: those without a whole request, the longest first
}

func limit(l net.Listener, most int) *limited {
	return &limited{Listener: l, most: most, room: make(chan struct{}, 1), shut: make(chan struct{})}
}

// Accept implements net.Listener. Not for several goroutines at a time.
func (l *limited) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &counted{Conn: nc, l: l, silent: true}
	for !l.admit(c) {
		select {
		case <-l.room:
		case <-l.shut:
			_ = nc.Close() // it has got nothing
			return nil, net.ErrClosed
		}
	}
	return c, nil
}

// admit gives c a place, somebody else's if need be; false when all are in work.
func (l *limited) admit(c *counted) bool {
	l.mu.Lock()
	var out *counted
	if l.open >= l.most {
		longest := l.waiting.Front()
		if longest == nil {
			l.mu.Unlock()
			return false
		}
		out = longest.Value.(*counted)
		out.leaveLocked()
	}
	l.open++
	c.member = true
	c.place = l.waiting.PushBack(c)
	l.mu.Unlock()
	if out != nil {
		_ = out.Conn.Close() // its reader ends with an error and closes it once more
	}
	return true
}

// closeSilent closes the connections that have never sent a request.
func (l *limited) closeSilent() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := l.waiting.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*counted); c.silent {
			_ = c.Conn.Close() // nobody is there to tell
		}
	}
}

func (l *limited) wake() {
	select {
	case l.room <- struct{}{}:
	default:
	}
}

// Close implements net.Listener.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.shut) })
	return l.Listener.Close()
}

// counted is a connection of a limited listener. Its fields belong to l.mu.
type counted struct {
	net.Conn
	l      *limited
	member bool          // it has a place
	silent bool          // it has never sent a request
	place  *list.Element // in l.waiting; nil while a whole request is in work
}

// works notes that a whole request is there.
func (c *counted) works() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.silent = false
	if c.place != nil {
		c.l.waiting.Remove(c.place)
		c.place = nil
	}
}

// waits notes that the next request, or the rest of one, is yet to come.
func (c *counted) waits() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	switch {
	case !c.member:
	case c.place != nil: // an answer has gone out before the body had come
		c.l.waiting.MoveToBack(c.place)
	default:
		c.place = c.l.waiting.PushBack(c)
		c.l.wake()
	}
}

func (c *counted) leaveLocked() {
	if !c.member {
		return
	}
	c.member = false
	c.l.open--
	if c.place != nil {
		c.l.waiting.Remove(c.place)
		c.place = nil
	}
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.l.mu.Lock()
	c.leaveLocked()
	c.l.wake()
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// body is the body of a request; the request is whole when it ends.
type body struct {
	io.ReadCloser
	conn *counted
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.conn.works()
	}
	return n, err
}
