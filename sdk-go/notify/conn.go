package notify

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/notify/wire"
)

const (
	readBuffer   = 64 << 10
	keptBuffer   = 1 << 20   // larger buffers are given back when they are empty
	maxBuffered  = 256 << 10 // of unwritten requests: further ones wait
	maxUnread    = 8 << 20   // of unwritten answers and requests: nothing more is read before
	writeTimeout = 30 * time.Second
	sweepEvery   = 25 * time.Millisecond // how late a call's timeout may be noticed
	maxBeatsLost = 3
)

var (
	errFull    = errors.New("notify: too much is waiting to be written")
	errSilent  = errors.New("notify: server does not answer heartbeats")
	errTimeout = errors.New("notify: no answer in time")
)

// answer is how a call ended. header is valid during waiter.done only.
type answer struct {
	status wire.Status // when err is nil
	header []byte
	err    error // errTimeout, or why the connection is gone
}

// text is the server's explanation of a status that is not NoError.
func (a *answer) text() string {
	text, _, err := wire.ErrorText(a.header)
	if err != nil {
		return ""
	}
	return string(text)
}

// failure is the error of an answer that is not NoError.
func (a *answer) failure(server string) *Error {
	switch {
	case errors.Is(a.err, errTimeout):
		return &Error{Code: CodeTimeout, Server: server}
	case a.err != nil:
		return &Error{Code: CodeComm, Server: server, Err: a.err}
	}
	return &Error{Code: codeOf(a.status), Server: server, Text: a.text()}
}

// waiter gets the answer of a call: once, from a goroutine of the connection, with no lock held. It must not block.
type waiter interface{ done(c *conn, a *answer) } // a is valid during the call

type call struct {
	w        waiter
	op       wire.Opcode
	deadline time.Time
}

// ack is the verdict on one delivery of a batch.
type ack struct {
	tag    uint64
	status wire.Status
	text   string
}

// conn is one connection: calls go out with one write for all that came together, answers find their callers by
// opaque, and requests of the server go to the handler. It ends once and for all with fail.
//
// Two goroutines, started by newConn, run until fail: read and write. wait waits for them.
type conn struct {
	server   string
	nc       net.Conn
	cfg      *config
	handler  func(c *conn, f *wire.Frame) bool // serves a request in the reader's goroutine; false: NO_PROCESSOR. Must not block
	features wire.Feature                      // agreed; set once by the handshake, before anybody else has the conn

	wake    chan struct{} // cap 1: there is something to write, or a call to watch
	gone    chan struct{} // closed by fail
	lastIn  atomic.Int64  // when bytes came last, UnixNano
	binds   atomic.Int32  // changes of bindings in flight: the server answers nothing else before them
	answer  answer        // the reader's, for waiter.done
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		out     []byte
		spare   []byte // the buffer before, for the next swap
		acks    []ack
		calls   map[uint32]call
		next    uint32
		room    chan struct{} // closed when out was taken; nil while nobody waits
		writing bool          // what was taken is not yet written
		drained chan struct{} // closed when nothing is left to write; nil while nobody waits
		err     error         // why gone is closed
	}
	beats beats
}

// beats counts heartbeats; the reader and the writer share it.
type beats struct {
	open atomic.Bool
	lost atomic.Int32
}

func (b *beats) done(c *conn, a *answer) {
	b.open.Store(false)
	if a.err != nil {
		if b.lost.Add(1) >= maxBeatsLost {
			c.fail(errSilent)
		}
	}
}

func newConn(cfg *config, server string, nc net.Conn, handler func(*conn, *wire.Frame) bool) *conn {
	c := &conn{server: server, nc: nc, cfg: cfg, handler: handler, wake: make(chan struct{}, 1), gone: make(chan struct{})}
	c.mu.calls = make(map[uint32]call)
	c.lastIn.Store(time.Now().UnixNano())
	c.running.Go(c.read)
	c.running.Go(c.write)
	return c
}

// wait returns when both goroutines have ended.
func (c *conn) wait() { c.running.Wait() }

// fail ends the connection; the first reason stays. Calls in flight are answered with it.
func (c *conn) fail(err error) {
	c.mu.Lock()
	if c.mu.err != nil {
		c.mu.Unlock()
		return
	}
	c.mu.err = err
	calls := c.mu.calls
	c.mu.calls = nil
	if c.mu.room != nil {
		close(c.mu.room)
		c.mu.room = nil
	}
	close(c.gone)
	c.mu.Unlock()
	_ = c.nc.Close() // its error adds nothing to err
	for _, w := range calls {
		w.w.done(c, &answer{err: err})
	}
}

// reason is why the connection ended, or nil.
func (c *conn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.err
}

// start sends a request. encode appends it with the opaque it is given. The answer, a timeout or the end of the
// connection goes to w. It returns errFull while too much waits to be written, and then roomFor says when it does not.
func (c *conn) start(op wire.Opcode, deadline time.Time, w waiter, encode func(dst []byte, opaque uint32) ([]byte, error)) (opaque uint32, err error) {
	c.mu.Lock()
	if err := c.mu.err; err != nil {
		c.mu.Unlock()
		return 0, err
	}
	if len(c.mu.out) > maxBuffered {
		c.mu.Unlock()
		return 0, errFull
	}
	for {
		c.mu.next++
		opaque = c.mu.next
		if _, taken := c.mu.calls[opaque]; !taken {
			break
		}
	}
	before := len(c.mu.out)
	out, err := encode(c.mu.out, opaque)
	c.mu.out = out
	if err != nil {
		c.mu.out = out[:before]
		c.mu.Unlock()
		return 0, err
	}
	c.mu.calls[opaque] = call{w, op, deadline}
	c.mu.Unlock()
	c.signal()
	return opaque, nil
}

// cancel forgets a call. It reports false when its waiter was or is about to be told.
func (c *conn) cancel(opaque uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.mu.calls[opaque]
	delete(c.mu.calls, opaque)
	return ok
}

// push appends bytes that expect no answer: responses, one-way requests. It never waits; what it carries is bounded by
// what the server has sent.
func (c *conn) push(encode func(dst []byte) []byte) {
	c.mu.Lock()
	if c.mu.err == nil {
		c.mu.out = encode(c.mu.out)
	}
	c.mu.Unlock()
	c.signal()
}

// acknowledge adds a verdict to the next ACK_BATCH.
func (c *conn) acknowledge(a ack) {
	c.mu.Lock()
	if c.mu.err == nil {
		c.mu.acks = append(c.mu.acks, a)
	}
	c.mu.Unlock()
	c.signal()
}

// roomFor returns a channel that is closed when the unwritten requests were taken or the connection is gone.
func (c *conn) roomFor() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.room == nil {
		c.mu.room = make(chan struct{})
	}
	if len(c.mu.out) <= maxBuffered || c.mu.err != nil {
		close(c.mu.room)
		room := c.mu.room
		c.mu.room = nil
		return room
	}
	return c.mu.room
}

func (c *conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// call sends a request and waits at most that long for its answer.
func (c *conn) call(ctx context.Context, most time.Duration, op wire.Opcode, encode func(dst []byte, opaque uint32) ([]byte, error)) ([]byte, *Error) {
	r := &reply{ch: make(chan struct{})}
	opaque, err := c.start(op, time.Now().Add(most), r, encode)
	if err != nil {
		return nil, &Error{Code: CodeComm, Server: c.server, Err: err}
	}
	select {
	case <-r.ch:
	case <-ctx.Done():
		if c.cancel(opaque) {
			return nil, &Error{Code: CodeTimeout, Server: c.server, Err: ctx.Err()}
		}
		<-r.ch
	}
	return r.header, r.err
}

// reply is the waiter of call.
type reply struct {
	ch     chan struct{}
	header []byte
	err    *Error
}

func (r *reply) done(c *conn, a *answer) {
	if a.err != nil || a.status != wire.NoError {
		r.err = a.failure(c.server)
	} else {
		r.header = append([]byte(nil), a.header...)
	}
	close(r.ch)
}

// write is the goroutine that writes: all that came together in one call. Between bursts it watches timeouts and
// silence.
func (c *conn) write() {
	timer := time.NewTimer(c.cfg.idle)
	defer timer.Stop()
	next := time.Now().Add(c.cfg.idle)
	for {
		select {
		case <-c.gone:
			return
		case <-c.wake:
		case <-timer.C:
			next = time.Time{}
		}
		watch, err := c.flush()
		if err != nil {
			c.fail(err)
			return
		}
		now := time.Now()
		if next.IsZero() {
			c.sweep(now)
			c.beat(now)
			if !watch { // idle connections hold no buffers
				c.mu.Lock()
				c.mu.spare = nil
				c.mu.Unlock()
			}
		}
		want := now.Add(c.cfg.idle)
		if quiet := time.Unix(0, c.lastIn.Load()).Add(c.cfg.idle); quiet.After(now) {
			want = quiet
		}
		if watch || c.beats.open.Load() {
			want = now.Add(sweepEvery)
		}
		if next.IsZero() || want.Before(next) {
			next = want
			timer.Reset(want.Sub(now))
		}
	}
}

// flush writes until nothing is left, and tells whether calls are open.
func (c *conn) flush() (open bool, err error) {
	for {
		c.mu.Lock()
		if n := len(c.mu.acks); n > 0 {
			c.mu.out = appendAcks(c.mu.out, c.mu.acks)
			clear(c.mu.acks) // lets go of the texts
			c.mu.acks = c.mu.acks[:0]
		}
		out := c.mu.out
		c.mu.writing = len(out) > 0
		if len(out) == 0 {
			open = len(c.mu.calls) > 0
			if c.mu.drained != nil {
				close(c.mu.drained)
				c.mu.drained = nil
			}
			c.mu.Unlock()
			return open, nil
		}
		c.mu.out, c.mu.spare = c.mu.spare[:0], nil
		if c.mu.room != nil {
			close(c.mu.room)
			c.mu.room = nil
		}
		c.mu.Unlock()

		if err := c.nc.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return false, err
		}
		if _, err := c.nc.Write(out); err != nil {
			return false, err
		}
		if cap(out) <= keptBuffer {
			c.mu.Lock()
			c.mu.spare = out[:0]
			c.mu.Unlock()
		}
	}
}

// acksPerFrame keeps an ACK_BATCH far below the frame limit even when each ack is a run with the longest text.
const acksPerFrame = 8192

// appendAcks appends ACK_BATCH frames. Tags that follow each other with the same verdict make one run.
func appendAcks(dst []byte, acks []ack) []byte {
	slices.SortFunc(acks, func(a, b ack) int { return cmp.Compare(a.tag, b.tag) })
	for part := range slices.Chunk(acks, acksPerFrame) {
		var b wire.Builder
		dst, b = wire.Begin(dst, wire.OpAckBatch, 0)
		b.EndHeader(dst)
		var e wire.AckEncoder
		for i := 0; i < len(part); {
			first, j := part[i], i+1
			for j < len(part) && part[j].tag == part[j-1].tag+1 && part[j].status == first.status && part[j].text == first.text {
				j++
			}
			dst = e.Append(dst, wire.AckRun{First: first.tag, Last: part[j-1].tag, Status: first.status, Text: bytesOf(first.text)})
			i = j
		}
		dst, _ = b.End(dst, 0)
	}
	return dst
}

// sweep times calls out.
func (c *conn) sweep(now time.Time) {
	var late []call
	c.mu.Lock()
	for opaque, w := range c.mu.calls {
		if !now.Before(w.deadline) {
			late = append(late, w)
			delete(c.mu.calls, opaque)
		}
	}
	c.mu.Unlock()
	for _, w := range late {
		w.w.done(c, &answer{err: errTimeout})
	}
}

// beat sends a heartbeat when the connection has been silent.
func (c *conn) beat(now time.Time) {
	if now.Sub(time.Unix(0, c.lastIn.Load())) < c.cfg.idle || c.binds.Load() > 0 || c.beats.open.Swap(true) {
		return
	}
	_, err := c.start(wire.OpHeartbeat, now.Add(c.cfg.call), &c.beats, func(dst []byte, opaque uint32) ([]byte, error) {
		return wire.AppendRequest(dst, wire.OpHeartbeat, opaque, nil, nil)
	})
	if err != nil {
		c.beats.done(c, &answer{err: err})
	}
}

// read is the goroutine that reads.
func (c *conn) read() {
	err := c.readFrames()
	var bad *wire.FrameError
	if errors.As(err, &bad) {
		err = &Error{Code: CodeComm, Server: c.server, Text: bad.Reason}
		if bad.Action == wire.AnswerClose {
			// The last word goes out past the writer, which may be busy: the stream is lost in any case.
			_ = c.nc.SetWriteDeadline(time.Now().Add(c.cfg.call))
			_, _ = c.nc.Write(wire.AppendAnswer(nil, bad.Opcode, wire.StatusComm, bad.Opaque, bad.Reason))
		}
	}
	c.fail(err)
}

func (c *conn) readFrames() error {
	buf := make([]byte, readBuffer)
	from, to := 0, 0
	f := new(wire.Frame) // handlers see it through a pointer: one for all
	for {
		need := 0
		for {
			var n int
			var err error
			*f, n, err = wire.Parse(buf[from:to])
			if errors.Is(err, wire.ErrShort) {
				if f.TotalLen > 0 {
					need = f.Size()
				}
				break
			}
			if err != nil {
				return err
			}
			from += n
			c.frame(f)
			c.throttle()
		}
		switch {
		case from == to:
			from, to = 0, 0
			if len(buf) > keptBuffer {
				buf = make([]byte, readBuffer)
			}
		case from > 0 && (from+need > len(buf) || to == len(buf)):
			to = copy(buf, buf[from:to])
			from = 0
		}
		if to == len(buf) { // doubling: what was announced is not yet there
			buf = append(buf, make([]byte, min(len(buf), max(need, readBuffer)))...)
		}
		n, err := c.nc.Read(buf[to:])
		to += n
		if n > 0 {
			c.lastIn.Store(time.Now().UnixNano())
			c.beats.lost.Store(0)
		}
		if err != nil && n == 0 {
			return err
		}
	}
}

// throttle stops reading while the answers to what was read fill the memory: the server must read them first.
func (c *conn) throttle() {
	c.mu.Lock()
	full := len(c.mu.out) > maxUnread
	c.mu.Unlock()
	if full {
		<-c.roomFor()
	}
}

// frame serves one frame.
func (c *conn) frame(f *wire.Frame) {
	if f.Response {
		c.mu.Lock()
		w, ok := c.mu.calls[f.Opaque]
		if ok = ok && w.op == f.Opcode; ok {
			delete(c.mu.calls, f.Opaque)
		}
		c.mu.Unlock()
		if ok { // else it is late
			c.answer = answer{status: f.Status, header: f.Header}
			w.w.done(c, &c.answer)
		}
		return
	}
	switch f.Opcode {
	case wire.OpHeartbeat:
		c.respond(f.Opcode, wire.NoError, f.Opaque, "")
	case wire.OpDummy:
		c.push(func(dst []byte) []byte {
			dst, _ = wire.AppendResponse(dst, f.Opcode, wire.NoError, f.Opaque, f.Header, nil)
			return dst
		})
	default:
		if c.handler == nil || !c.handler(c, f) {
			c.respond(f.Opcode, wire.StatusNoOpcode, f.Opaque, "")
		}
	}
}

// respond answers a request of the server.
func (c *conn) respond(op wire.Opcode, status wire.Status, opaque uint32, text string) {
	c.push(func(dst []byte) []byte { return wire.AppendAnswer(dst, op, status, opaque, text) })
}

// delivered answers a DELIVER_MESSAGE.
func (c *conn) delivered(t *task, status wire.Status, text string) {
	if status != wire.NoError {
		c.respond(wire.OpDeliver, status, t.reply, text)
		return
	}
	m := wire.MessageAck{MessageID: t.m.ID[:]}
	c.push(func(dst []byte) []byte {
		dst, b := wire.BeginResponse(dst, wire.OpDeliver, wire.NoError, t.reply)
		dst = m.Append(dst)
		b.EndHeader(dst)
		dst, _ = b.End(dst, 0) // 18 bytes of header
		return dst
	})
}

// drain returns when everything appended so far was written, or the connection is gone.
func (c *conn) drain() {
	for {
		c.mu.Lock()
		busy := c.mu.err == nil && (len(c.mu.out) > 0 || len(c.mu.acks) > 0 || c.mu.writing)
		drained := c.mu.drained
		if busy && drained == nil {
			drained = make(chan struct{})
			c.mu.drained = drained
		}
		c.mu.Unlock()
		if !busy {
			return
		}
		select {
		case <-drained:
		case <-c.gone:
			return
		}
	}
}
