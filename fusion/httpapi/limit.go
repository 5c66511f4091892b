package httpapi

import (
	"net"
	"sync"
)

// limited is a listener with at most so many open connections; further ones wait in the system's queue. With the timeouts of
// the server none of them can be held for ever.
type limited struct {
	net.Listener
	room chan struct{} // one element for each open connection
	shut chan struct{} // closed by Close
	once sync.Once
}

func limit(l net.Listener, most int) *limited {
	return &limited{Listener: l, room: make(chan struct{}, most), shut: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.room <- struct{}{}:
	case <-l.shut:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.room
		return nil, err
	}
	return &counted{Conn: c, gone: sync.OnceFunc(func() { <-l.room })}, nil
}

// Close implements net.Listener.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.shut) })
	return l.Listener.Close()
}

type counted struct {
	net.Conn
	gone func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.gone()
	return c.Conn.Close()
}
