package server

import (
	"encoding/binary"
	"errors"
	"sync"

	"github.com/fusionmq/fusionmq/notify"
	"github.com/fusionmq/fusionmq/notify/wire"
	"github.com/fusionmq/fusionmq/socket"
	"github.com/fusionmq/fusionmq/store/meta"
)

// burst is what one reading pass collects before it acts: sends, answers to deliveries, and the answers that go out.
type burst struct {
	out     []byte
	sends   []notify.Incoming
	results []notify.Sent
	headers []wire.MessageHeader // one for each of sends, used again
	opaques []uint32
	answers []notify.Answer
	groups  []string
	meta    wire.Metadata
	ack     wire.MessageAck
	data    [8]byte
	frames  uint64
}

var bursts = sync.Pool{New: func() any { return &burst{} }}

const (
	maxBurst = 512 // sends that become one append
)

// Readable implements socket.Handler.
func (c *conn) Readable(r socket.Reader, most int) (err error) {
	defer c.contain("reader")
	err = errPanicked // what is returned if it does
	b := bursts.Get().(*burst)
	defer b.put()
	for {
		n := min(r.Len(), readPiece)
		if n == 0 {
			return nil
		}
		if r.Len() > most {
			c.s.counts.paused.Add(1)
			return socket.ErrBehind
		}
		in, err := r.Next(n)
		if err != nil {
			return err
		}
		c.s.counts.bytesIn.Add(uint64(n))
		err = c.consume(b, in)
		c.finish(b)
		if b.frames > 0 {
			c.s.counts.framesIn.Add(b.frames)
			b.frames = 0
			c.active.Store(c.s.now())
		}
		finishing := c.s.finishing.Load()
		c.answer(b.out, err != nil || finishing)
		b.out = b.out[:0]
		_ = r.Release()
		if err != nil {
			c.refuse(err)
			// What is left is not for us, but has to be taken: the connection lives until the answers are written.
			for n := r.Len(); n > 0; n = r.Len() {
				_, _ = r.Next(n)
				_ = r.Release()
			}
			return nil
		}
		if finishing {
			return nil // what is left is dropped when the answers are written
		}
	}
}

// refuse counts and logs the end of a connection whose bytes are no frames.
func (c *conn) refuse(err error) {
	var f *wire.FrameError
	if errors.As(err, &f) && f.Action == wire.Close {
		c.s.counts.foreign.Add(1)
		c.s.quiet.warn("connection closed: not the Notify protocol", "remote", c.remote, "error", err)
		return
	}
	c.s.counts.malformed.Add(1)
	c.s.quiet.warn("connection closed: broken frame", "remote", c.remote, "error", err)
}

// consume handles the frames in b, and keeps the start of one that is not whole.
func (c *conn) consume(b *burst, in []byte) error {
	for len(in) > 0 {
		if len(c.partial) > 0 {
			n, err := c.complete(b, in)
			if err != nil {
				return err
			}
			in = in[n:]
			continue
		}
		f, n, err := wire.Parse(in)
		if errors.Is(err, wire.ErrShort) {
			c.keep(append(make([]byte, 0, max(len(in), 64)), in...))
			c.partialSince.Store(max(c.s.now(), 1))
			return nil
		}
		if err != nil {
			return c.broken1(b, err)
		}
		c.handle(b, &f)
		in = in[n:]
	}
	return nil
}

// complete adds to the half frame what it misses, and handles it when it is whole. It never makes room for bytes that
// have not come.
func (c *conn) complete(b *burst, in []byte) (taken int, err error) {
	for {
		h, err := wire.ParseHead(c.partial)
		need := wire.RequestFixed
		switch {
		case err == nil:
			need = h.Size()
		case !errors.Is(err, wire.ErrShort):
			return taken, c.broken1(b, err)
		case c.partial[0] == wire.MagicResponse:
			need = wire.ResponseFixed
		}
		n := min(need-len(c.partial), len(in))
		c.keep(append(c.partial, in[:n]...))
		in, taken = in[n:], taken+n
		if len(c.partial) < need {
			return taken, nil
		}
		if err != nil {
			continue // the head is whole now
		}
		f, err := wire.FrameOf(h, c.partial)
		if err != nil {
			return taken, err
		}
		c.handle(b, &f)
		if len(b.sends) > 0 {
			c.finish(b) // it lies in the half frame's memory
		}
		c.keep(nil)
		c.partialSince.Store(0)
		return taken, nil
	}
}

// keep sets the half frame.
func (c *conn) keep(partial []byte) {
	more := int64(cap(partial) - cap(c.partial))
	c.partial = partial
	c.held.Add(more)
	if more > 0 && c.s.held.Add(more) > c.s.o.MaxInput {
		poke(c.s.crowded)
	} else if more < 0 {
		c.s.held.Add(more)
	}
}

// broken1 answers what can be answered of a stream that cannot be followed any more.
func (c *conn) broken1(b *burst, err error) error {
	var f *wire.FrameError
	if errors.As(err, &f) && f.Action == wire.AnswerClose {
		c.finish(b)
		b.out = wire.AppendAnswer(b.out, f.Opcode, wire.StatusComm, f.Opaque, f.Reason)
	}
	return err
}

// handle acts on one frame, or puts it into the burst.
func (c *conn) handle(b *burst, f *wire.Frame) {
	b.frames++
	if f.Response {
		c.answered(b, f)
		return
	}
	switch f.Opcode {
	case wire.OpHeartbeat:
		b.reply(f, wire.NoError, "")
		return
	case wire.OpDummy:
		b.out, _ = wire.AppendResponse(b.out, f.Opcode, wire.NoError, f.Opaque, f.Header, nil)
		return
	case wire.OpMetadata:
		c.finish(b)
		c.metadata(b, f)
		return
	}
	if !c.session.Ready() {
		b.reply(f, wire.StatusError, "send metadata first")
		return
	}
	switch {
	case f.Opcode == wire.OpSend:
		c.collect(b, f)
	case f.Opcode == wire.OpAckBatch && c.has(wire.FeatureBatch):
		c.ackBatch(b, f)
	case f.Opcode == wire.OpSubscribe, f.Opcode == wire.OpUnsubscribe && c.has(wire.FeatureUnsubscribe):
		c.finish(b)
		c.subscription(b, f)
	case f.Opcode == wire.OpCredit && c.has(wire.FeatureCredit):
		c.finish(b)
		var cr wire.Credit
		err := cr.Decode(f.Header)
		if err == nil {
			err = c.session.Credit(string(cr.Group), cr.Messages, cr.Bytes)
		}
		b.result(f, err)
	default:
		b.reply(f, wire.StatusNoOpcode, f.Opcode.String()+" is not served")
	}
}

// answered takes a client's response to a delivery. Other responses are of no interest.
func (c *conn) answered(b *burst, f *wire.Frame) {
	if f.Opcode != wire.OpDeliver {
		return
	}
	a := notify.Answer{Handle: f.Opaque, Status: f.Status}
	if f.Status == wire.NoError && len(f.Header) > 0 && b.ack.Decode(f.Header) == nil && len(b.ack.MessageID) >= 8 {
		a.ID = binary.BigEndian.Uint64(b.ack.MessageID)
	}
	b.answers = append(b.answers, a)
}

func (c *conn) ackBatch(b *burst, f *wire.Frame) {
	runs := wire.ReadAcks(f.Body)
	stale := 0 // tags that the runs named although they were answered before
	for {
		run, ok, err := runs.Next()
		if err != nil {
			b.result(f, err)
			return
		}
		if !ok {
			return
		}
		// A run of four bytes can name every open tag. Once is enough: a client that goes on is told so, or one frame could
		// keep this connection busy for hours.
		if stale > maxTags {
			b.reply(f, wire.StatusError, "AckBatch: runs name deliveries again and again that were answered before")
			return
		}
		before := len(b.answers)
		named := c.openTags(run.First, run.Last)
		b.answers = c.handlesOf(b.answers, run.First, run.Last, run.Status)
		stale += named - (len(b.answers) - before)
	}
}

// openTags is how many tags from first to last are neither older than all that wait for an answer nor newer.
func (c *conn) openTags(first, last uint64) int {
	c.tags.Lock()
	defer c.tags.Unlock()
	first, last = max(first, c.tags.base), min(last, c.tags.next-1)
	if first > last {
		return 0
	}
	return int(last - first + 1)
}

func (c *conn) metadata(b *burst, f *wire.Frame) {
	part := f.Body
	if len(part) == 0 {
		part = f.Header
	}
	if err := b.meta.Decode(part); err != nil {
		b.result(f, err)
		return
	}
	offered := b.meta.Features()
	agreed := offered & wire.AllFeatures
	b.groups = b.groups[:0]
	for i := range b.meta.Clients {
		b.groups = append(b.groups, string(b.meta.Clients[i].Group))
	}
	// From here on the service may push. The client is to see our answer, and so what was agreed, before a delivery in
	// the form that was agreed.
	c.hold()
	before := c.features.Swap(uint32(agreed))
	if err := c.session.Metadata(b.groups, agreed.Has(wire.FeatureCredit)); err != nil {
		c.features.Store(before)
		b.result(f, err)
	} else if offered == 0 {
		b.reply(f, wire.NoError, "")
	} else {
		a := wire.MetadataAnswer{Info: []wire.Property{
			wire.FeatureProperty(agreed),
			{Key: []byte(wire.KeySoftware), Value: []byte(c.s.o.Software), HasValue: true},
		}}
		b.out, _ = wire.AppendResponse(b.out, f.Opcode, wire.NoError, f.Opaque, a.Append(nil), nil)
	}
	c.release(b.out)
	c.answer(nil, false)
	b.out = b.out[:0]
}

func (c *conn) subscription(b *burst, f *wire.Frame) {
	part := f.Header
	if len(part) == 0 {
		part = f.Body
	}
	var sub wire.Subscription
	if err := sub.Decode(part); err != nil {
		b.result(f, err)
		return
	}
	binding, err := wire.ParseBinding(sub.Binding)
	if err == nil {
		if f.Opcode == wire.OpSubscribe {
			err = c.session.Subscribe(&binding)
		} else {
			err = c.session.Unsubscribe(&binding)
		}
	}
	b.result(f, err)
}

// collect puts a send into the burst.
func (c *conn) collect(b *burst, f *wire.Frame) {
	n := len(b.sends)
	if n == cap(b.headers) || n == maxBurst {
		c.finish(b)
		if n = 0; cap(b.headers) < maxBurst {
			b.headers = make([]wire.MessageHeader, 0, min(max(16, 2*cap(b.headers)), maxBurst))
		}
	}
	b.headers = b.headers[:n+1]
	h := &b.headers[n]
	if err := h.Decode(f.Header); err != nil {
		b.headers = b.headers[:n]
		b.result(f, err)
		return
	}
	b.sends = append(b.sends, notify.Incoming{Header: h, Body: f.Body})
	b.opaques = append(b.opaques, f.Opaque)
}

// finish carries out what the burst has collected.
func (c *conn) finish(b *burst) {
	if len(b.answers) > 0 {
		c.session.Answers(b.answers)
		b.answers = b.answers[:0]
	}
	if len(b.sends) == 0 {
		return
	}
	for len(b.results) < len(b.sends) {
		b.results = append(b.results, notify.Sent{})
	}
	c.session.Send(b.sends, b.results[:len(b.sends)])
	for i := range b.sends {
		r := &b.results[i]
		if r.Err != nil {
			b.out = wire.AppendAnswer(b.out, wire.OpSend, r.Err.Status, b.opaques[i], r.Err.Text)
			*r = notify.Sent{}
			continue
		}
		b.ack = wire.MessageAck{ServerData: r.ServerData(b.data[:0]), MessageID: b.sends[i].Header.ID}
		if c.has(wire.FeatureDurability) {
			b.ack.Durability = durability(r.Durability)
		}
		var f wire.Builder
		b.out, f = wire.BeginResponse(b.out, wire.OpSend, wire.NoError, b.opaques[i])
		b.out = b.ack.Append(b.out)
		f.EndHeader(b.out)
		b.out, _ = f.End(b.out, 0) // a few bytes
	}
	clear(b.sends)
	b.sends, b.opaques, b.headers = b.sends[:0], b.opaques[:0], b.headers[:0]
}

func durability(d meta.Durability) wire.Durability {
	switch d {
	case meta.Memory:
		return wire.DurabilityMemory
	case meta.Async:
		return wire.DurabilityAsync
	case meta.Sync:
		return wire.DurabilitySync
	}
	return wire.DurabilityUnstated
}

func (b *burst) reply(f *wire.Frame, status wire.Status, text string) {
	b.out = wire.AppendAnswer(b.out, f.Opcode, status, f.Opaque, text)
}

// result answers with the outcome of a request that carries nothing on success.
func (b *burst) result(f *wire.Frame, err error) {
	var r *notify.Refusal
	switch {
	case err == nil:
		b.reply(f, wire.NoError, "")
	case errors.As(err, &r):
		b.reply(f, r.Status, r.Text)
	default:
		b.reply(f, wire.StatusError, err.Error())
	}
}

// put gives the burst back; what it aliased is forgotten, and what grew large is left to the collector.
func (b *burst) put() {
	clear(b.sends[:cap(b.sends)])
	b.sends, b.opaques, b.answers, b.out = b.sends[:0], b.opaques[:0], b.answers[:0], b.out[:0]
	hs := b.headers[:cap(b.headers)]
	for i := range hs {
		if hs[i].ID != nil || len(hs[i].Properties) > 0 {
			ps := hs[i].Properties[:cap(hs[i].Properties)]
			clear(ps)
			hs[i] = wire.MessageHeader{Properties: ps[:0]}
		}
	}
	b.headers = b.headers[:0]
	b.ack, b.meta, b.frames = wire.MessageAck{}, wire.Metadata{}, 0
	if cap(b.out) > 1<<20 || cap(b.answers) > 1<<16 {
		return
	}
	bursts.Put(b)
}
