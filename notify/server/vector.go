package server

import (
	"errors"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fusionmq/fusionmq/notify"
)

// copyBelow is the size below which a body is copied: two pieces of a vectored write cost about as much (measured: no difference at
// 1 KiB, a tenth of all CPU at 8 KiB).
const copyBelow = 2048

// splice is a body that goes out from where it lies, between two bytes of the writer's buffer.
type splice struct {
	at      int // where in the buffer
	body    []byte
	release func()
}

// waiting is how many bytes are to be written.
func (w *writer) waiting() int { return len(w.buf) + w.spliced }

// body puts the body of l behind what is in the buffer, and gives its record back when it was copied.
func (w *writer) body(l *notify.Loaded) {
	if len(l.Body) < copyBelow {
		w.buf = append(w.buf, l.Body...)
		l.Release()
		return
	}
	w.splices = append(w.splices, splice{len(w.buf), l.Body, l.Keep()})
	w.spliced += len(l.Body)
}

// reset empties the writer. Nobody may look at its bodies any more.
func (w *writer) reset() {
	for i := range w.splices {
		w.splices[i].release()
	}
	clear(w.splices)
	clear(w.pieces)
	w.buf, w.splices, w.pieces, w.spliced = w.buf[:0], w.splices[:0], w.pieces[:0], 0
}

// cut lists the pieces of what is to be written, none of them empty.
func (w *writer) cut() [][]byte {
	vs, from := w.pieces[:0], 0
	for i := range w.splices {
		s := &w.splices[i]
		if s.at > from {
			vs = append(vs, w.buf[from:s.at])
		}
		vs, from = append(vs, s.body), s.at
	}
	if from < len(w.buf) {
		vs = append(vs, w.buf[from:])
	}
	w.pieces = vs
	return vs
}

// send writes what w holds. While it waits for the peer the goroutine is the connection's own writer, or the one that reads
// this connection.
func (c *conn) send(w *writer) error {
	vs := w.cut()
	for len(vs) > 0 {
		n, full, err := c.tryWrite(vs)
		if err != nil {
			return err
		}
		c.s.counts.bytesOut.Add(uint64(n))
		if vs = skip(vs, n); !full {
			continue
		}
		if vs, err = c.wait(vs); err != nil {
			return err
		}
	}
	return nil
}

// skip takes the first n bytes away.
func skip(vs [][]byte, n int) [][]byte {
	for len(vs) > 0 && n >= len(vs[0]) {
		n -= len(vs[0])
		vs = vs[1:]
	}
	if n > 0 {
		vs[0] = vs[0][n:]
	}
	return vs
}

// tryWrite writes what the socket takes without blocking; full says that it takes no more now. The lock keeps netpoll from
// closing the descriptor meanwhile.
func (c *conn) tryWrite(vs [][]byte) (n int, full bool, err error) {
	c.io.Lock()
	defer c.io.Unlock()
	for {
		if c.io.fd < 0 {
			return 0, false, errClosed
		}
		n, err := writev(c.io.fd, vs[:min(len(vs), maxVectors)])
		c.s.counts.writes.Add(1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return 0, true, nil
		case err != nil:
			return 0, false, err
		}
		return n, false, nil
	}
}

// maxVectors is the kernel's limit for one writev.
const maxVectors = 1024

// vectors are scratch space for writev, which unix.Writev would allocate anew for more than eight pieces.
var vectors = sync.Pool{New: func() any { return new([maxVectors]unix.Iovec) }}

// writev is one system call for up to maxVectors pieces, none of them empty.
func writev(fd int, vs [][]byte) (int, error) {
	if len(vs) == 1 {
		return unix.Write(fd, vs[0])
	}
	iov := vectors.Get().(*[maxVectors]unix.Iovec)
	for i, v := range vs {
		iov[i].Base = unsafe.SliceData(v)
		iov[i].SetLen(len(v))
	}
	n, _, errno := unix.Syscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(iov)), uintptr(len(vs)))
	clear(iov[:len(vs)]) // the pool must not keep the bodies
	vectors.Put(iov)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
