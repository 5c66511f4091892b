package socket

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/cloudwego/netpoll"
	"golang.org/x/sys/unix"
)

// Handler is what the host does with one connection.
type Handler interface {
	// Readable takes what r holds. It returns nil when r is empty, ErrBehind when more than most bytes are left, ErrFinish for
	// Conn.Finish, and any other error to end the connection at once; whatever is left, it is not called again then. Its panics are
	// not contained.
	Readable(r Reader, most int) error
	// Closed says that the connection is gone: nothing can be written, and Readable does not come again. It must not block: it
	// may run on the goroutine that all connections share.
	Closed()
}

// Reader is what has been read from a connection and was not taken. Of the goroutine in Readable.
type Reader interface {
	Len() int                   // grows beside the caller
	Peek(n int) ([]byte, error) // n <= Len; valid until Release
	Next(n int) ([]byte, error) // n <= Len; valid until Release
	Release() error             // gives back what Next took
}

var (
	// ErrBehind is what Readable returns to have reading paused.
	ErrBehind = errors.New("socket: more has arrived than is handled")
	// ErrFinish is what Readable returns to have the connection finished: see Conn.Finish.
	ErrFinish = errors.New("socket: the host has finished with the connection")
	// ErrClosed is returned for a connection that is gone.
	ErrClosed = errors.New("socket: connection is closed")
)

// pauseAbove is how many bytes netpoll may have read ahead of the handler before it is paused.
const pauseAbove = 4 << 20

// Conn is a connection. All methods may be called from any goroutine, from Options.Open on.
type Conn struct {
	host          Handler
	remote, local netip.AddrPort
	writes        *atomic.Uint64
	ended         bool // Readable is not called any more. Of the goroutine that reads
	state         atomic.Int32

	writing sync.Mutex // held by Write. Taken before mu

	mu struct { // held over system calls on fd, which do not block: netpoll closes it only when it is -1
		sync.Mutex
		fd int // -1 when it is about to be closed
		np netpoll.Connection
		// paused: netpoll has let go of fd, or will when onRequest returns.
		paused bool
	}
}

// Bits of Conn.state.
const (
	inWork    = 1 // Readable is
	finishing = 2 // Finish was called
)

// Remote is the peer's address.
func (c *Conn) Remote() netip.AddrPort { return c.remote }

// Local is the address at which the peer reached us.
func (c *Conn) Local() netip.AddrPort { return c.local }

// Buffered is how many bytes have been read and wait for the handler.
func (c *Conn) Buffered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.np == nil || c.mu.fd < 0 {
		return 0
	}
	return c.mu.np.Reader().Len()
}

// Shut makes the kernel end both directions. netpoll sees that as a hang-up and closes, so Closed comes soon after; unlike netpoll's
// own Close, which lets the poller go on reading while a handler is at work, this stops the peer at once.
func (c *Conn) Shut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.fd >= 0 {
		_ = unix.Shutdown(c.mu.fd, unix.SHUT_RDWR)
	}
}

// Finish ends the connection in order: a Readable in work returns first, what has been written reaches the peer, and behind it the
// peer sees the end. What comes from then on is dropped. Closed comes when the peer ends its side too; a peer that does not is for Shut.
// Shut alone would have the kernel answer what still comes with a reset, and throw away what the peer had not got yet.
func (c *Conn) Finish() {
	if c.state.Or(finishing)&inWork == 0 {
		c.endWrites()
	}
}

func (c *Conn) endWrites() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.fd >= 0 {
		_ = unix.Shutdown(c.mu.fd, unix.SHUT_WR)
	}
}

// detacher is a netpoll connection that can be taken out of netpoll with its descriptor left open.
type detacher interface {
	netpoll.Connection
	Detach() error
}

// register gives the descriptor to netpoll, at first and again after a pause.
func (c *Conn) register(fd int) {
	c.mu.Lock()
	conn, err := netpoll.NewFDConnection(fd)
	if err != nil { // epoll refused it, and netpoll has closed the descriptor
		c.mu.fd = -1
		c.mu.Unlock()
		c.gone()
		return
	}
	np := conn.(detacher) // all of netpoll's are, and TestAPeerThatSendsTooFastIsPausedAndLosesNothing needs it
	c.mu.np, c.mu.paused = np, false
	c.mu.Unlock()
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

// onRequest runs on netpoll's workers while np has unread bytes. It must leave none, or be called again for ever.
func (c *Conn) onRequest(np detacher) {
	if !c.read(np.Reader(), pauseAbove) {
		return
	}
	c.mu.Lock()
	c.mu.paused = true
	c.mu.Unlock()
	_ = np.Detach() // only marks it while onRequest runs; then netpoll lets go of the descriptor and calls released
}

// read hands what has come to the host, and drops what comes after the host has ended the connection. Such a connection is not
// closed here but by the poller, which sees its hang-up like any other: a descriptor that is closed while the poller holds an
// event of it may have another connection by the time it looks.
func (c *Conn) read(r Reader, most int) (behind bool) {
	if !c.ended {
		var err error
		if c.state.Or(inWork)&finishing == 0 {
			err = c.host.Readable(r, most)
		}
		finish := c.state.And(^inWork)&finishing != 0 || errors.Is(err, ErrFinish)
		switch {
		case finish:
			c.endWrites()
		case err == nil, errors.Is(err, ErrBehind):
			return err != nil
		default:
			c.Shut()
		}
		c.ended = true
	}
	for n := r.Len(); n > 0; n = r.Len() {
		if _, err := r.Next(n); err != nil {
			return false
		}
		if r.Release() != nil {
			return false
		}
	}
	return false
}

// released is netpoll's close callback: what it knows of np is about to go. The poller may be in the middle of a read of a detached one.
func (c *Conn) released(np netpoll.Connection) {
	c.mu.Lock()
	paused, fd := c.mu.paused, c.mu.fd
	c.mu.Unlock()
	if !paused { // netpoll closes the descriptor
		c.gone()
		return
	}
	letGo(np)
	c.read(np.Reader(), math.MaxInt)
	c.register(fd) // one that has ended meanwhile hangs up at once
}

// gone is the end of c, before the descriptor and netpoll's buffers go. A Write that waits has a duplicate of the descriptor; the
// shutdown wakes it, or its next check, so this does not wait long for it.
func (c *Conn) gone() {
	c.mu.Lock()
	if c.mu.fd >= 0 {
		_ = unix.Shutdown(c.mu.fd, unix.SHUT_RDWR)
	}
	c.mu.fd = -1
	c.mu.Unlock()
	c.writing.Lock()
	c.writing.Unlock() //nolint:staticcheck // SA2001: only waits for the holder
	c.host.Closed()
}
