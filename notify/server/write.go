package server

import (
	"errors"
	"sync"
	"time"

	"github.com/fusionmq/fusionmq/notify"
	"github.com/fusionmq/fusionmq/notify/wire"
)

// writer is what a connection needs while it writes.
type writer struct {
	buf      []byte
	splices  []splice // bodies between the bytes of buf, in their order
	spliced  int      // their bytes
	pieces   [][]byte // scratch of send
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
				c.finished.Store(max(c.s.now(), 1))
				c.sock.Finish()
			}
			if cap(w.buf) <= 4*writePiece && cap(w.splices) <= 4*wire.MaxBatchMessages {
				writers.Put(w)
			}
			return
		}
		w.buf = append(w.buf, c.out.answers...)
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
	c.endOutput()
	c.sock.Shut()
}

// endOutput drops what is still to be written, and lets who waits for it go on.
func (c *conn) endOutput() {
	c.out.Lock()
	defer c.out.Unlock()
	c.out.closed = true
	c.out.answers, c.out.deliveries = nil, nil
	if c.out.drained != nil {
		c.out.drained.Broadcast()
	}
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
		err := c.send(w)
		w.reset()
		if err != nil {
			return err
		}
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
		if i > 0 && w.waiting() >= writePiece {
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
		var err error
		if w.buf, err = b.End(w.buf, len(w.loaded.Body)); err != nil {
			w.loaded.Release()
			c.tooLong(w, d, err)
			continue
		}
		w.body(&w.loaded)
		frames++
		w.note(d)
	}
	c.s.counts.framesOut.Add(uint64(frames))
	return len(ds)
}

// encodeBatch appends one DELIVER_BATCH frame and returns how many deliveries it took.
func (c *conn) encodeBatch(w *writer, ds []notify.Delivery) int {
	c.tags.Lock()
	first := c.tags.next
	c.tags.Unlock()
	var b wire.BatchBuilder
	w.buf, b = wire.BeginBatch(w.buf, first)
	w.handles = w.handles[:0]
	n := 0
	for n < len(ds) && n < wire.MaxBatchMessages && (n == 0 || w.waiting() < writePiece) {
		d := &ds[n]
		if c.session.Load(d, &w.loaded) != nil {
			n++
			continue
		}
		if b.Count() > 0 && b.Len(w.buf)+w.spliced+len(w.loaded.Body) > wire.MaxFrame-wire.MaxBatchHeader {
			w.loaded.Release() // this one begins the next frame
			break
		}
		var err error
		w.buf = b.BeginEntry(w.buf)
		w.buf = w.loaded.AppendHeader(w.buf)
		if w.buf, err = b.EndEntry(w.buf, len(w.loaded.Body)); err != nil {
			w.loaded.Release()
			if b.Count() > 0 { // the frame is full: this one begins the next
				break
			}
			c.tooLong(w, d, err)
			n++
			continue
		}
		w.body(&w.loaded)
		w.note(d)
		w.handles = append(w.handles, d.Handle)
		n++
	}
	out, err := b.End(w.buf, w.spliced)
	w.buf = out
	if err != nil { // EndEntry keeps the limits, so this cannot be
		for _, h := range w.handles {
			c.session.Fail(h)
		}
		w.reset()
		return n
	}
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
