package server

import (
	"errors"
	"fmt"

	"github.com/fusionmq/fusionmq/socket"
)

// link is what a Conn needs of the socket below it: a socket.Conn, or package net below crypto/tls.
type link interface {
	// TryWrite writes as much of vs as goes without blocking. A full window is n < len, nil.
	TryWrite(vs [][]byte) (n int, err error)
	// Write writes all of vs, waiting for the peer, and asks check meanwhile.
	Write(vs [][]byte, check func(sent int) error) (n int, err error)
	// Buffered is how many bytes have been read from the socket and wait for the handler.
	Buffered() int
	// Finish ends the connection when the burst in work has been answered and the peer has got everything that was written. Idempotent.
	Finish()
	// Shut ends both directions at once. The connection's closed method runs soon after. Idempotent.
	Shut()
}

// open makes a Conn of an accepted connection; nil when there is no room.
func (s *Server) open(l *socket.Conn) socket.Handler {
	c := newConn(s, l.Remote(), l.Local())
	c.link = l
	room := s.add(c)
	s.count.accepted.Add(1) // last, so that who sees it counted sees it among the connections
	if !room {
		s.count.refused.Add(1)
		if !s.stopping.Load() {
			s.log.warn("connection refused", "remote", c.remote, "limit", s.cfg.MaxConns)
		}
		return nil
	}
	if s.cfg.Opened != nil {
		s.hook("opened hook", c, func() { s.cfg.Opened(c) })
	}
	return (*linked)(c)
}

// linked is a Conn as the handler of its link.
type linked Conn

func (l *linked) Closed() { (*Conn)(l).closed() }

// Readable serves what has arrived. An error other than ErrBehind has been noted as the end of the connection.
func (l *linked) Readable(r socket.Reader, most int) (err error) {
	c := (*Conn)(l)
	s := c.srv
	defer func() {
		// The handler's panics are contained in Burst.call; this one would be ours, and the workers would swallow it.
		if v := recover(); v != nil {
			s.panicked("connection handler", c, v)
			err = fmt.Errorf("internal error: %v", v)
			c.fail(err)
		}
	}()
	err = c.readable(r, most)
	switch {
	case err == nil:
	case errors.Is(err, ErrShutdown):
		c.finish()
		return socket.ErrFinish
	case errors.Is(err, socket.ErrBehind):
		s.count.paused.Add(1)
	case !c.fail(err):
	case errors.Is(err, ErrForeign):
		s.count.foreign.Add(1)
		s.log.warn("connection closed: "+err.Error(), "remote", c.remote)
	default:
		s.count.malformed.Add(1)
		s.log.warn("connection closed", "remote", c.remote, "reason", err)
	}
	return err
}

// flushBytes is how much must go within one write timeout.
const flushBytes = 256 << 10

// flush writes vs to a peer whose window is full. The time at which the flushBytes in work were begun is in c.flushing, for the
// sweeper.
func (c *Conn) flush(vs [][]byte) error {
	defer c.flushing.Store(0)
	next := 0
	_, err := c.link.Write(vs, func(sent int) error {
		if sent >= next {
			c.flushing.Store(c.srv.cfg.Now().UnixNano())
			next = sent + flushBytes
		}
		return nil
	})
	return err
}
