package socket

import (
	"errors"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TryWrite writes as much of vs as goes without blocking; less than all, and no error, when the peer's window is full. No piece may
// be empty.
func (c *Conn) TryWrite(vs [][]byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(vs) > 0 {
		if c.mu.fd < 0 {
			return n, ErrClosed
		}
		batch := vs[:min(len(vs), maxVectors)]
		size := 0
		for _, v := range batch {
			size += len(v)
		}
		k, err := c.writev(c.mu.fd, batch)
		n += k
		if errors.Is(err, unix.EAGAIN) {
			return n, nil
		}
		if err != nil || k < size {
			return n, err
		}
		vs = vs[len(batch):]
	}
	return n, nil
}

// checkEvery is how long a Write waits before it asks whether to go on.
const checkEvery = 100 * time.Millisecond

// Write writes all of vs, whose elements it changes, and waits for a peer whose window is full. Before it waits, and then each time
// when some bytes went or none did for 100 ms, it asks check, which gets the number of bytes that have gone so far; an error
// ends the write and is returned. A connection that is shut, by either side, ends it too. n is what went.
func (c *Conn) Write(vs [][]byte, check func(sent int) error) (n int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	n, err = c.TryWrite(vs)
	if vs = Skip(vs, n); err != nil || len(vs) == 0 {
		return n, err
	}
	// Go's own poller waits for the window, on a duplicate of the descriptor that is ours to close. netpoll's poller could wait as
	// well, but only on a buffer of its own, which it takes away when it closes the connection or lets it go for a pause.
	f, err := c.duplicate()
	if err != nil {
		return n, err
	}
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return n, err
	}
	for len(vs) > 0 {
		if c.closed() {
			return n, ErrClosed
		}
		if err := check(n); err != nil {
			return n, err
		}
		if err := f.SetWriteDeadline(time.Now().Add(checkEvery)); err != nil {
			return n, err
		}
		k, err := 0, error(nil)
		werr := raw.Write(func(fd uintptr) bool {
			k, err = c.writev(int(fd), vs[:min(len(vs), maxVectors)])
			return !errors.Is(err, unix.EAGAIN)
		})
		n += k
		vs = Skip(vs, k)
		switch {
		case errors.Is(werr, os.ErrDeadlineExceeded):
		case werr != nil:
			return n, werr
		case err != nil:
			return n, err
		}
	}
	return n, nil
}

func (c *Conn) closed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.fd < 0
}

func (c *Conn) duplicate() (*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.fd < 0 {
		return nil, ErrClosed
	}
	fd, err := unix.FcntlInt(uintptr(c.mu.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), "connection"), nil
}

// Skip drops the first n bytes of vs, in place.
func Skip(vs [][]byte, n int) [][]byte {
	for len(vs) > 0 && n >= len(vs[0]) {
		n -= len(vs[0])
		vs = vs[1:]
	}
	if n > 0 {
		vs[0] = vs[0][n:]
	}
	return vs
}

// maxVectors is the kernel's limit for one writev.
const maxVectors = 1024

// iovecs are scratch space for writev, which unix.Writev would allocate anew for more than eight pieces.
var iovecs = sync.Pool{New: func() any { return new([maxVectors]unix.Iovec) }}

// writev writes up to maxVectors pieces, none of them empty, with one system call.
func (c *Conn) writev(fd int, vs [][]byte) (n int, err error) {
	for {
		if c.writes != nil {
			c.writes.Add(1)
		}
		if len(vs) == 1 {
			n, err = unix.Write(fd, vs[0])
		} else {
			n, err = vector(fd, vs)
		}
		if !errors.Is(err, unix.EINTR) {
			return max(n, 0), err
		}
	}
}

func vector(fd int, vs [][]byte) (int, error) {
	iov := iovecs.Get().(*[maxVectors]unix.Iovec)
	for i, v := range vs {
		iov[i].Base = unsafe.SliceData(v)
		iov[i].SetLen(len(v))
	}
	n, _, errno := unix.Syscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(iov)), uintptr(len(vs)))
	clear(iov[:len(vs)]) // the pool must not keep the bodies
	iovecs.Put(iov)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
