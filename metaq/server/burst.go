package server

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/socket"
)

// Request is one request of a burst. Header and Body alias memory that is used again after Serve returns.
type Request struct {
	remoting.Header
	Body []byte // nil when there is none

	handled bool // answered or held
}

// Burst is what a client had sent when we looked: one or more whole requests. Only the goroutine in Serve may use it.
type Burst struct {
	Conn     *Conn
	Requests []Request // in the order they came

	out   *Output
	bytes int      // of the frames
	end   *Request // answered last, for End
}

var bursts = sync.Pool{New: func() any { return new(Burst) }}

// maxBurstBytes ends a burst early, so that large messages are not held back for each other.
const maxBurstBytes = 1 << 20

const anyMuch = math.MaxInt

// Answers of one burst that are more than this are written before the next request is handled: bytes in our own memory, and
// bytes altogether.
const (
	maxAnswerBuffer = 1 << 20
	maxAnswerBytes  = 16 << 20
)

func newBurst(c *Conn) *Burst {
	b := bursts.Get().(*Burst)
	b.Conn, b.out = c, NewOutput()
	return b
}

func (b *Burst) free() {
	if b.out != nil {
		b.out.done()
	}
	for i := range b.Requests {
		b.Requests[i].Reset() // an idle burst must not keep frames alive
	}
	b.Requests, b.bytes = b.Requests[:0], 0
	b.Conn, b.out, b.end = nil, nil, nil
	bursts.Put(b)
}

// next returns the request to decode the next frame into, with the memory that its place had before.
func (b *Burst) next() *Request {
	if n := len(b.Requests); n < cap(b.Requests) {
		b.Requests = b.Requests[:n+1]
	} else {
		b.Requests = append(b.Requests, Request{})
	}
	r := &b.Requests[len(b.Requests)-1]
	r.Body, r.handled = nil, false
	return r
}

// Reply begins the answer to r. Add fields through the encoder, then call End or EndParts on b. All answers of a burst are
// written together after Serve.
func (b *Burst) Reply(r *Request, code int32, remark string) *remoting.Encoder {
	r.handled = true
	b.end = r
	return b.out.Response(r.ReplyTo(), code, remark)
}

// End finishes the answer with a copy of body, nil for none. A body that does not fit a frame becomes an answer with code 1.
func (b *Burst) End(body []byte) {
	if err := b.out.End(body); err != nil {
		b.tooLarge(err)
	}
}

// EndParts finishes the answer with a body made of parts that are not copied; see [Output.EndParts].
func (b *Burst) EndParts(parts [][]byte, release func()) {
	if err := b.out.EndParts(parts, release); err != nil {
		b.tooLarge(err)
	}
}

func (b *Burst) tooLarge(err error) {
	b.out.Response(b.end.ReplyTo(), remoting.RespSystemError, "the answer does not fit: "+err.Error())
	_ = b.out.End(nil) // a frame of this size always fits
}

// Fail answers r with a code and a remark.
func (b *Burst) Fail(r *Request, code int32, remark string) {
	b.Reply(r, code, remark)
	b.End(nil)
}

// Unsupported answers r with REQUEST_CODE_NOT_SUPPORTED and the name of its code.
func (b *Burst) Unsupported(r *Request) {
	b.Fail(r, remoting.RespRequestCodeNotSupported, remoting.NotSupported(r.Code))
}

// Continue reports whether to handle the next request of the burst; ask it between two requests whose answers may be large or
// whose handling takes long, and with no lock held. A few bytes of request can ask for megabytes, and a burst has hundreds:
// what has gathered is written here once it is much, at the pace at which the client reads. False: the connection is gone or
// the server cuts it off, and nobody wants the other answers.
func (b *Burst) Continue() bool {
	if b.out.enc.Len() > maxAnswerBuffer || b.out.Len() > maxAnswerBytes {
		out := b.out
		b.out = NewOutput()
		_ = b.Conn.send(out, true) // the reason is with the connection
	}
	return b.Conn.reason.Load() == nil
}

// Cut reports whether the server cuts the connection off, so that nothing more of the burst is to be handled. A client that is gone is
// not cut off, and what it sent before it went still counts.
func (b *Burst) Cut() bool { return b.Conn.cut.Load() }

// Hold takes r to be answered later through Conn.Send, or never. What it returns does not alias the frame.
func (b *Burst) Hold(r *Request) remoting.ReplyTo {
	r.handled = true
	return r.ReplyTo()
}

// serve runs the handler and writes the answers.
func (b *Burst) serve() {
	c := b.Conn
	s := c.srv
	s.count.requests.Add(int64(len(b.Requests)))
	s.count.bursts.Add(1)
	b.call(s.cfg.Handler)
	for i := range b.Requests {
		if r := &b.Requests[i]; !r.handled && c.reason.Load() == nil {
			b.Fail(r, remoting.RespSystemError, "no answer to "+remoting.RequestName(r.Code))
		}
	}
	out := b.out
	b.out = nil
	_ = c.send(out, true) // the reason is with the connection
}

// call contains a panic of the handler: what it answered so far goes out, the rest is answered with code 1.
func (b *Burst) call(h Handler) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		var codes []string
		for i := range b.Requests {
			if r := &b.Requests[i]; !r.handled {
				codes = append(codes, remoting.RequestName(r.Code))
				if len(codes) == 8 {
					break
				}
			}
		}
		b.Conn.srv.panicked("request handler", b.Conn, v, "unanswered", codes)
		if b.end != nil && b.out.inside() {
			b.out.enc.Cancel()
			b.end.handled = false
		}
		for i := range b.Requests {
			if r := &b.Requests[i]; !r.handled {
				b.Fail(r, remoting.RespSystemError, fmt.Sprintf("internal error while handling %s; the server's log has it", remoting.RequestName(r.Code)))
			}
		}
	}()
	h.Serve(b)
}

// assembler cuts a stream into frames. It never waits: what is less than a frame it copies aside, growing with what has
// arrived and not with what the length word promises.
type assembler struct {
	partial []byte
	taken   int64        // bytes taken from the source and not counted yet. Its length says nothing: more arrives meanwhile
	room    atomic.Int64 // cap(partial)
	since   atomic.Int64 // when the partial frame began, Now in nanoseconds; 0 when there is none
}

// readable serves all that has arrived on c. It stops with socket.ErrBehind when more than most bytes still wait after a burst; most
// may be anyMuch. Any other error is the end of the connection.
func (c *Conn) readable(src socket.Reader, most int) error {
	c.busy.Store(true)
	defer c.busy.Store(false)
	for src.Len() > 0 {
		c.active.Store(c.srv.cfg.Now().UnixNano()) // each time: what arrived during a burst is newer than what began it
		b := newBurst(c)
		err := c.fill(b, src)
		if len(b.Requests) > 0 {
			b.serve()
		}
		b.free()
		if rerr := src.Release(); err == nil {
			err = rerr
		}
		if err != nil {
			return err
		}
		if c.cut.Load() {
			return *c.reason.Load()
		}
		if c.srv.stopping.Load() {
			return ErrShutdown // what has been read and not handled is dropped
		}
		if src.Len() > most {
			return socket.ErrBehind
		}
	}
	if c.srv.stopping.Load() {
		return ErrShutdown
	}
	return nil
}

// fill takes frames from src until the burst is full or no whole frame is left.
func (c *Conn) fill(b *Burst, src socket.Reader) error {
	defer func() {
		c.srv.count.bytesIn.Add(c.in.taken)
		c.in.taken = 0
	}()
	for len(b.Requests) < c.srv.cfg.MaxBurst && b.bytes < maxBurstBytes && src.Len() > 0 {
		frame, err := c.in.next(src)
		if err != nil {
			return err
		}
		if frame == nil {
			c.in.since.CompareAndSwap(0, c.active.Load())
			return nil
		}
		c.in.since.Store(0)
		r := b.next()
		r.Body, err = r.Decode(frame)
		if err != nil {
			b.Requests = b.Requests[:len(b.Requests)-1]
			return err
		}
		b.bytes += len(frame)
		if r.Response() {
			c.answered(&r.Header, r.Body)
			b.Requests = b.Requests[:len(b.Requests)-1]
		}
	}
	return nil
}

// next returns the next whole frame, nil when src had less than that; src is then empty, but for what has arrived meanwhile.
// Its length is asked once: what arrives between two looks could make a whole frame, and more, of what is taken for a part of one.
func (a *assembler) next(src socket.Reader) ([]byte, error) {
	have := src.Len()
	if len(a.partial) == 0 {
		if have >= 4 {
			head, err := src.Peek(4)
			if err != nil {
				return nil, err
			}
			size, err := remoting.FrameSize(head)
			if err != nil {
				return nil, foreign(head, err)
			}
			if have >= size {
				a.taken += int64(size)
				return src.Next(size)
			}
		}
		return nil, a.take(src, have, 0)
	}
	if n := min(4-len(a.partial), have); n > 0 {
		have -= n
		if err := a.take(src, n, 0); err != nil || len(a.partial) < 4 {
			return nil, err
		}
	}
	size, err := remoting.FrameSize(a.partial)
	if err != nil {
		return nil, foreign(a.partial, err)
	}
	if err := a.take(src, min(size-len(a.partial), have), size); err != nil || len(a.partial) < size {
		return nil, err
	}
	frame := a.partial
	a.partial = nil
	a.room.Store(0)
	return frame, nil
}

// take moves n bytes of src to the partial frame, whose size is known to be size, or not yet (0).
func (a *assembler) take(src socket.Reader, n, size int) error {
	if n == 0 {
		return nil
	}
	p, err := src.Next(n)
	if err != nil {
		return err
	}
	a.taken += int64(n)
	if need := len(a.partial) + n; need > cap(a.partial) {
		room := max(need, 2*cap(a.partial))
		if size > 0 && (room > size || size <= 64<<10) {
			room = size
		}
		a.partial = append(make([]byte, 0, room), a.partial...)
		a.room.Store(int64(room))
	}
	a.partial = append(a.partial, p...)
	return nil
}

// foreign turns the error about an impossible length word into one that names the protocol it looks like.
func foreign(head []byte, err error) error {
	var what string
	switch s := string(head[:4]); {
	case head[0] == 0x16 && head[1] == 3:
		what = "TLS, which this port does not serve"
	case s == "PRI ":
		what = "HTTP/2 or gRPC"
	case s == "PROX":
		what = "the PROXY protocol"
	case s == "SSH-":
		what = "SSH"
	case s == "GET " || s == "POST" || s == "PUT " || s == "HEAD" || s == "OPTI" || s == "DELE" || s == "CONN" || s == "PATC" || s == "TRAC" || s == "HTTP":
		what = "HTTP"
	default:
		return err
	}
	return fmt.Errorf("%w: looks like %s", ErrForeign, what)
}
