package server

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cloudwego/netpoll"
	"golang.org/x/sys/unix"

	"github.com/fusionmq/fusionmq/notify"
	"github.com/fusionmq/fusionmq/notify/wire"
)

// writer is what a connection needs while it writes.
type writer struct {
	buf      []byte
	loaded   notify.Loaded
	handles  []uint32
	timeouts []ownTimeout
}

type ownTimeout struct {
	handle uint32
	after  time.Duration
}

var writers = sync.Pool{New: func() any { return &writer{} }}

// write writes until nothing is left. The caller has set out.writing.
func (c *conn) write() {
	defer c.contain("writer")
	w := writers.Get().(*writer)
	for {
		c.out.Lock()
		if c.out.closed || len(c.out.answers) == 0 && (c.out.deliveries == nil || c.out.held) {
			c.out.writing = false
			closing := c.out.closing && !c.out.closed
			c.out.Unlock()
			if closing {
				c.shut(errBroken)
			}
			if cap(w.buf) <= 4*writePiece {
				writers.Put(w)
			}
			return
		}
		w.buf = append(w.buf[:0], c.out.answers...)
		c.out.answers = c.out.answers[:0]
		if cap(c.out.answers) > keepAnswers {
			c.out.answers = nil
		}
		var taken *[]notify.Delivery
		var ds []notify.Delivery
		if !c.out.held && c.out.deliveries != nil {
			taken, c.out.deliveries = c.out.deliveries, nil
			ds = *taken
			w.loaded.Fresh()
		}
		if c.out.drained != nil {
			c.out.drained.Broadcast()
		}
		c.out.Unlock()

		err := c.writeAll(w, ds)
		if taken != nil {
			clear(ds)
			*taken = ds[:0]
			deliveries.Put(taken)
		}
		if err != nil {
			// The poller may still hold views of w.buf: it is not used again.
			c.broken(err)
			return
		}
	}
}

const keepAnswers = 1024 // bytes that an idle connection may keep

// broken ends a connection that cannot be written to. out.writing stays set: nobody writes any more.
func (c *conn) broken(err error) {
	if errors.Is(err, errSlow) {
		c.s.counts.slow.Add(1)
		c.s.quiet.warn("connection closed: "+errSlow.Error(), "remote", c.remote, "error", err)
	}
	c.out.Lock()
	c.out.closed = true
	c.out.answers, c.out.deliveries = nil, nil
	if c.out.drained != nil {
		c.out.drained.Broadcast()
	}
	c.out.Unlock()
	c.shut(err)
}

// writeAll encodes deliveries behind what is in w.buf and writes everything.
func (c *conn) writeAll(w *writer, ds []notify.Delivery) error {
	for len(ds) > 0 || len(w.buf) > 0 {
		var done int64
		n := 0
		if len(ds) > 0 {
			if c.has(wire.FeatureBatch) {
				n = c.encodeBatch(w, ds)
			} else {
				n = c.encodePlain(w, ds)
			}
			for i := range ds[:n] {
				done += int64(ds[i].Message.Size)
			}
			ds = ds[n:]
		}
		if err := c.send(w.buf); err != nil {
			return err
		}
		w.buf = w.buf[:0]
		for _, t := range w.timeouts {
			c.session.SetTimeout(t.handle, t.after)
		}
		w.timeouts = w.timeouts[:0]
		c.active.Store(c.s.now())
		if done > 0 && c.pending.Add(-done) <= int64(c.s.o.MaxPending)/2 && c.starved.Swap(false) {
			c.session.Drained()
		}
	}
	return nil
}

// encodePlain appends DELIVER_MESSAGE frames and returns how many deliveries it took.
func (c *conn) encodePlain(w *writer, ds []notify.Delivery) int {
	frames := 0
	for i := range ds {
		if i > 0 && len(w.buf) >= writePiece {
			c.s.counts.framesOut.Add(uint64(frames))
			return i
		}
		d := &ds[i]
		if c.session.Load(d, &w.loaded) != nil {
			continue
		}
		var b wire.Builder
		w.buf, b = wire.Begin(w.buf, wire.OpDeliver, d.Handle)
		w.buf = w.loaded.AppendHeader(w.buf)
		b.EndHeader(w.buf)
		w.buf = append(w.buf, w.loaded.Body...)
		var err error
		if w.buf, err = b.End(w.buf, 0); err != nil {
			c.tooLong(w, d, err)
		} else {
			frames++
			w.note(d)
		}
		w.loaded.Release()
	}
	c.s.counts.framesOut.Add(uint64(frames))
	return len(ds)
}

// encodeBatch appends one DELIVER_BATCH frame and returns how many deliveries it took.
func (c *conn) encodeBatch(w *writer, ds []notify.Delivery) int {
	c.tags.Lock()
	first := c.tags.next
	c.tags.Unlock()
	buf, b := wire.BeginBatch(w.buf, first)
	w.handles = w.handles[:0]
	n := 0
	for n < len(ds) && n < wire.MaxBatchMessages && (n == 0 || len(buf) < writePiece) {
		d := &ds[n]
		if c.session.Load(d, &w.loaded) != nil {
			n++
			continue
		}
		var err error
		buf = b.BeginEntry(buf)
		buf = w.loaded.AppendHeader(buf)
		if buf, err = b.EndEntry(buf, len(w.loaded.Body)); err != nil {
			w.loaded.Release()
			if b.Count() > 0 { // the frame is full: this one begins the next
				break
			}
			c.tooLong(w, d, err)
			n++
			continue
		}
		buf = append(buf, w.loaded.Body...)
		w.note(d)
		w.handles = append(w.handles, d.Handle)
		w.loaded.Release()
		n++
	}
	out, err := b.End(buf, 0)
	if err != nil { // EndEntry keeps the limits, so this cannot be
		for _, h := range w.handles {
			c.session.Fail(h)
		}
		w.buf = out
		return n
	}
	w.buf = out
	c.tagged(w.handles)
	if len(w.handles) > 0 {
		c.s.counts.framesOut.Add(1)
	}
	return n
}

// note remembers a timeout that the message brought.
func (w *writer) note(d *notify.Delivery) {
	if w.loaded.Timeout > 0 {
		w.timeouts = append(w.timeouts, ownTimeout{d.Handle, w.loaded.Timeout})
	}
}

// tooLong fails a delivery that does not fit this connection's frames: a header over 32,767 bytes without batches.
func (c *conn) tooLong(w *writer, d *notify.Delivery, err error) {
	c.s.quiet.warn("message does not fit the client's frames", "group", d.Group, "topic", d.Message.Topic, "address", d.Message.Address, "error", err)
	c.session.Fail(d.Handle)
}

// maxTags bounds the deliveries in batches whose answers a connection can still give.
const maxTags = 1 << 17

// tagged gives the next tags to handles.
func (c *conn) tagged(handles []uint32) {
	c.tags.Lock()
	defer c.tags.Unlock()
	t := &c.tags
	for _, h := range handles {
		n := t.next - t.base
		if n == uint64(len(t.handles)) {
			if n >= maxTags { // never answered: its answer would say nothing new any more
				t.base++
			} else {
				grown := make([]uint32, max(16, 2*n))
				for i := range n {
					grown[(t.base+i)&uint64(len(grown)-1)] = t.handles[(t.base+i)&uint64(len(t.handles)-1)]
				}
				t.handles = grown
			}
		}
		t.handles[t.next&uint64(len(t.handles)-1)] = h
		t.next++
	}
}

// answeredTag marks a tag that was answered while older ones were not. It is no handle that a delivery ever has.
const answeredTag = ^uint32(0)

// handlesOf appends answers for the tags from first to last that are open, and closes them.
func (c *conn) handlesOf(dst []notify.Answer, first, last uint64, status wire.Status) []notify.Answer {
	c.tags.Lock()
	defer c.tags.Unlock()
	t := &c.tags
	if t.next == t.base {
		return dst
	}
	mask := uint64(len(t.handles) - 1)
	for tag := max(first, t.base); tag <= min(last, t.next-1); tag++ {
		if h := t.handles[tag&mask]; h != answeredTag {
			t.handles[tag&mask] = answeredTag
			dst = append(dst, notify.Answer{Handle: h, Status: status})
		}
	}
	for t.base < t.next && t.handles[t.base&mask] == answeredTag {
		t.base++
	}
	if t.base == t.next && len(t.handles) > 256 {
		t.handles = nil
	}
	return dst
}

// send writes b: as much as goes directly, the rest through netpoll, which waits for the peer. While it waits the
// goroutine is the connection's own writer, or the one that reads this connection.
func (c *conn) send(b []byte) error {
	for len(b) > 0 {
		n, err := c.tryWrite(b)
		if err != nil {
			return err
		}
		c.s.counts.bytesOut.Add(uint64(n))
		b = b[n:]
		if len(b) == 0 {
			return nil
		}
		piece := b[:min(len(b), writePiece)]
		if err := c.wait(piece); err != nil {
			return err
		}
		c.s.counts.bytesOut.Add(uint64(len(piece)))
		b = b[len(piece):]
	}
	return nil
}

// tryWrite writes what the socket takes without blocking. The lock keeps netpoll from closing the descriptor meanwhile.
func (c *conn) tryWrite(b []byte) (int, error) {
	c.io.Lock()
	defer c.io.Unlock()
	for {
		if c.io.fd < 0 {
			return 0, errClosed
		}
		n, err := unix.Write(c.io.fd, b)
		c.s.counts.writes.Add(1)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return 0, nil
		case err != nil:
			return 0, err
		}
		return n, nil
	}
}

// wait hands a piece to netpoll and returns when it is out.
func (c *conn) wait(piece []byte) error {
	c.flush.Lock()
	defer c.flush.Unlock()
	c.io.Lock()
	gone := c.io.fd < 0
	c.io.Unlock()
	if gone {
		return errClosed
	}
	w := c.np.Writer()
	if _, err := w.WriteBinary(piece); err != nil {
		return err
	}
	c.s.counts.writes.Add(1)
	err := w.Flush()
	if errors.Is(err, netpoll.ErrWriteTimeout) {
		return fmt.Errorf("%w: %d bytes did not go within %v", errSlow, len(piece), c.s.o.WriteTimeout)
	}
	return err
}
