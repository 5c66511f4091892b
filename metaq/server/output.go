package server

import (
	"sync"
	"unsafe"

	"github.com/fusionmq/fusionmq/metaq/remoting"
)

// Output collects frames for one connection: responses, and requests to the client. Take one with NewOutput, fill it, hand it
// to Conn.Send, and do not touch it again. One goroutine at a time.
type Output struct {
	enc      remoting.Encoder
	parts    []part
	bytes    int // of the parts; the encoder's own come on top
	releases []func()
	oneway   bool // the frame under construction answers a one-way request: it is dropped
}

// part is a stretch of a body outside the encoder's buffer.
type part struct {
	at   int // it follows this many bytes of the encoder
	body []byte
}

const (
	copyBelow  = 512       // smaller parts are copied: an iovec costs about as much
	keepBuffer = 256 << 10 // larger buffers go to the garbage collector instead of the pool
	keepParts  = 1024
)

var outputs = sync.Pool{New: func() any { return new(Output) }}

// NewOutput returns an empty Output.
func NewOutput() *Output { return outputs.Get().(*Output) }

// Response begins the response to a request. Add fields through the encoder that is returned, then call End or EndParts on o. A
// response to a one-way request is built and dropped.
func (o *Output) Response(to remoting.ReplyTo, code int32, remark string) *remoting.Encoder {
	o.enc.Response(to, code, remark)
	o.oneway = to.Oneway
	return &o.enc
}

// Request begins a request to the client; opaque is from Conn.NextOpaque.
func (o *Output) Request(code, opaque, flag int32) *remoting.Encoder {
	o.enc.Begin(remoting.Head{Code: code, Opaque: opaque, Flag: flag})
	o.oneway = false
	return &o.enc
}

// End finishes the frame with a copy of body, nil for none. ErrTooLarge: the frame was dropped.
func (o *Output) End(body []byte) error {
	if o.oneway {
		o.enc.Cancel()
		return nil
	}
	return o.enc.End(body)
}

// EndParts finishes the frame with a body that is the concatenation of parts. They are not copied, unless they are small, and
// must not change until release is called: exactly once, from any goroutine, also when EndParts fails. release may be nil.
func (o *Output) EndParts(parts [][]byte, release func()) error {
	if release == nil {
		release = func() {}
	}
	if o.oneway {
		o.enc.Cancel()
		release()
		return nil
	}
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	if err := o.enc.EndHeader(n); err != nil {
		release()
		return err
	}
	kept := false
	for _, p := range parts {
		if len(p) < copyBelow {
			o.enc.Append(p)
			continue
		}
		kept = true
		o.bytes += len(p)
		// Neighbours in the log are neighbours in memory: one iovec for a run of messages.
		if last := len(o.parts) - 1; last >= 0 && o.parts[last].at == o.enc.Len() {
			if q := o.parts[last].body; cap(q)-len(q) >= len(p) && &q[:len(q)+1][len(q)] == unsafe.SliceData(p) {
				o.parts[last].body = q[:len(q)+len(p)]
				continue
			}
		}
		o.parts = append(o.parts, part{o.enc.Len(), p})
	}
	if !kept {
		release()
		return nil
	}
	o.releases = append(o.releases, release)
	return nil
}

// Len is the number of bytes to be written.
func (o *Output) Len() int { return o.enc.Len() + o.bytes }

// vectors appends the bytes of o to vs in order.
func (o *Output) vectors(vs [][]byte) [][]byte {
	b, from := o.enc.Bytes(), 0
	for _, p := range o.parts {
		if p.at > from {
			vs = append(vs, b[from:p.at])
			from = p.at
		}
		vs = append(vs, p.body)
	}
	if from < len(b) {
		vs = append(vs, b[from:])
	}
	return vs
}

// done releases the parts and returns o to the pool.
func (o *Output) done() {
	for i, r := range o.releases {
		r()
		o.releases[i] = nil
	}
	if o.enc.Cap() > keepBuffer || cap(o.parts) > keepParts {
		return
	}
	clear(o.parts)
	o.parts, o.releases, o.bytes, o.oneway = o.parts[:0], o.releases[:0], 0, false
	o.enc.Reset(o.enc.Bytes())
	outputs.Put(o)
}

// inside reports whether a frame was begun and not ended.
func (o *Output) inside() bool { return o.enc.Open() }
