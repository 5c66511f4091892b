package server

import (
	"fmt"
	"time"

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
	p := pace{c: c}
	n, err := c.sock.Write(w.cut(), p.check)
	c.s.counts.bytesOut.Add(uint64(n))
	return err
}

// pace watches a write that waits for a peer whose window is full.
type pace struct {
	c     *conn
	begun time.Time // of the piece in work
	next  int       // where the next piece begins
}

func (p *pace) check(sent int) error {
	if sent >= p.next {
		p.begun, p.next = p.c.s.o.Now(), sent+writePiece
	}
	switch {
	case p.c.sock.Buffered() > maxInput: // it sends and does not read: what it sent is handled by nobody meanwhile
		return fmt.Errorf("%w, and sends on", errSlow)
	case p.c.s.o.Now().Sub(p.begun) >= p.c.s.o.WriteTimeout:
		return fmt.Errorf("%w: %d bytes of a piece did not go within %v", errSlow, p.next-sent, p.c.s.o.WriteTimeout)
	}
	return nil
}
