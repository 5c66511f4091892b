package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/cloudwego/netpoll"
	"golang.org/x/sys/unix"
)

// pauseAbove is how many bytes netpoll may have read ahead of the handler.
const pauseAbove = 4 << 20

// onRequest runs on netpoll's pool while np has unread bytes. It must leave none, or be called again for ever.
func (c *conn) onRequest(np netpoll.Connection) {
	if c.readable(np, pauseAbove) {
		c.pause(np)
	}
}

// pause makes netpoll stop reading, for a client that sends faster than it is handled: its bytes then wait in the kernel, and
// soon on the client's side. netpoll knows no pause, so the connection is detached from it, and registered anew when all that
// had been read is handled. Called from onRequest, which has to return then; netpoll lets go of the descriptor and calls
// released.
func (c *conn) pause(np netpoll.Connection) {
	d, ok := np.(interface{ Detach() error })
	c.io.Lock()
	if ok = ok && c.io.fd >= 0; ok {
		c.io.paused = true
	}
	c.io.Unlock()
	if !ok {
		c.readable(np, math.MaxInt)
		return
	}
	c.s.counts.paused.Add(1)
	_ = d.Detach() // only marks it while onRequest runs
}

// released is netpoll's close callback: it does not use the descriptor any more, nor reads.
func (c *conn) released(np netpoll.Connection) {
	c.io.Lock()
	paused, fd := c.io.paused, c.io.fd
	c.io.Unlock()
	if !paused { // netpoll closes the descriptor
		c.closed()
		return
	}
	c.readable(np, math.MaxInt)
	c.register(fd)
}

// register gives the descriptor to netpoll again after a pause. A connection that has ended meanwhile hangs up at once.
func (c *conn) register(fd int) {
	np, err := netpoll.NewFDConnection(fd)
	if err != nil { // epoll refused it, and netpoll has closed the descriptor
		c.closed()
		return
	}
	c.io.Lock()
	c.io.np, c.io.paused = np, false
	c.io.Unlock()
	// The close callback first: netpoll runs what it knows when the peer closes, and until there is an OnRequest it leaves
	// closing to us.
	_ = np.AddCloseCallback(func(netpoll.Connection) error {
		c.released(np)
		return nil
	})
	_ = np.SetOnRequest(func(context.Context, netpoll.Connection) error {
		c.onRequest(np)
		return nil
	})
	if !np.IsActive() {
		_ = np.Close()
	}
}

// waitSlice is how long a writer waits before it looks at what else became of its connection.
const waitSlice = 100 * time.Millisecond

// wait writes vs, as far as writePiece, to a peer whose window is full. Go's own poller waits for the window, on a
// duplicate of the descriptor that is ours to close.
func (c *conn) wait(vs [][]byte) ([][]byte, error) {
	c.io.Lock()
	fd := c.io.fd
	err := errClosed
	if fd >= 0 {
		fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	c.io.Unlock()
	if err != nil {
		return vs, err
	}
	f := os.NewFile(uintptr(fd), "connection")
	defer f.Close()
	begun := time.Now()
	for left := writePiece; left > 0 && len(vs) > 0; {
		if err := f.SetWriteDeadline(time.Now().Add(min(waitSlice, c.s.o.WriteTimeout))); err != nil {
			return vs, err
		}
		n, err := f.Write(vs[0][:min(left, len(vs[0]))])
		c.s.counts.writes.Add(1)
		c.s.counts.bytesOut.Add(uint64(n))
		vs, left = skip(vs, n), left-n
		switch {
		case err == nil && len(vs) > 0: // there is room again: many pieces at a time while it lasts
			if n, _, err = c.tryWrite(vs); err != nil {
				return vs, err
			}
			c.s.counts.bytesOut.Add(uint64(n))
			vs, left = skip(vs, n), left-n
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return vs, err
		case c.buffered() > maxInput: // it sends and does not read: what it sent is handled by nobody meanwhile
			return vs, fmt.Errorf("%w, and sends on", errSlow)
		case time.Since(begun) >= c.s.o.WriteTimeout:
			return vs, fmt.Errorf("%w: %d bytes of a piece did not go within %v", errSlow, left, c.s.o.WriteTimeout)
		}
	}
	return vs, nil
}
