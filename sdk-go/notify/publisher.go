package notify

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fusionmq/fusionmq/notify/wire"
)

// maxAttempts is how often a send is put on the wire, the first time included.
const maxAttempts = 3

// Receipt is what the server says about a stored message.
type Receipt struct {
	ID         MessageID
	Server     string
	Durability Durability // unstated by a server that speaks plain NOTIFY_V1
	Attempts   int        // how often it was sent, the successful time included
}

// Publisher sends messages. It may be used from many goroutines; sends share connections and go out together.
type Publisher struct {
	cfg     *config
	links   *links
	deflate deflater
	slots   chan struct{} // one for each unanswered send
	ops     sync.Pool     // of *sending
	pending sync.WaitGroup
	closed  chan struct{} // no new sends
	abort   chan struct{} // pending ones give up

	mu struct {
		sync.Mutex
		closing bool // set once; pending.Add happens under the lock and before it
		aborted bool
	}
}

// NewPublisher makes a Publisher of the group (1 to 64 visible ASCII characters) and begins to connect to every server
// ("host:port").
func NewPublisher(group string, servers []string, opts ...Option) (*Publisher, error) {
	cfg, err := newConfig(group, servers, opts)
	if err != nil {
		return nil, err
	}
	p := &Publisher{cfg: cfg, slots: make(chan struct{}, cfg.inFlight), closed: make(chan struct{}), abort: make(chan struct{})}
	p.deflate = deflater{min: cfg.compressMin, level: cfg.level}
	p.links = newLinks(cfg, nil, nil, nil)
	p.links.start()
	return p, nil
}

// WaitReady returns when a server is connected. A Send before that waits by itself, but within its timeout.
func (p *Publisher) WaitReady(ctx context.Context) error { return p.links.wait(ctx, p.closed) }

// Close refuses new sends, waits for those in flight until ctx ends, and closes the connections. It returns ctx's error when sends had to be given up.
// A function given to SendAsync must not call it, because it waits for that too.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	if !p.mu.closing {
		p.mu.closing = true
		close(p.closed)
	}
	p.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		p.pending.Wait()
		close(idle)
	}()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = ctx.Err()
		p.mu.Lock()
		if !p.mu.aborted {
			p.mu.aborted = true
			close(p.abort)
		}
		p.mu.Unlock()
	}
	p.links.close()
	<-idle
	return err
}

// Send sends m and returns when the server has stored it. It is tried again as [Code] says, with the same id, within the
// time of WithTimeout and ctx. The error is an [*Error], or ErrClosed.
func (p *Publisher) Send(ctx context.Context, m *Message) (Receipt, error) {
	s, err := p.begin(ctx, m)
	if err != nil {
		return Receipt{}, err
	}
	r, err := p.finish(ctx, s)
	p.release(s)
	p.pending.Done()
	return r, err
}

// SendAsync sends m and calls fn with what Send would have returned, once, from another goroutine. fn must not block; it
// may call SendAsync only if it can tell that fewer than WithMaxInFlight sends are open. SendAsync waits while that many
// are. When it returns an error, which is about the message or ctx, fn is not called. The end of ctx ends the send, so
// ctx must live, and m stay unchanged, until fn was called.
func (p *Publisher) SendAsync(ctx context.Context, m *Message, fn func(Receipt, error)) error {
	if fn == nil {
		return formatError(MessageID{}, errors.New("function is nil; Send waits for the answer itself"))
	}
	s, err := p.begin(ctx, m)
	if err != nil {
		return err
	}
	s.fn = fn
	for {
		c, _ := p.links.pick(s.tried)
		if c == nil {
			break
		}
		err := p.put(s, c)
		if err == nil {
			return nil // done takes it from here
		}
		if !errors.Is(err, errFull) || !p.room(ctx, s, c) {
			break
		}
	}
	go p.complete(ctx, s)
	return nil
}

// room waits until c takes further requests, and reports false when the send's time is over first.
func (p *Publisher) room(ctx context.Context, s *sending, c *conn) bool {
	late := time.NewTimer(time.Until(s.deadline))
	defer late.Stop()
	select {
	case <-c.roomFor():
		return true
	case <-late.C:
	case <-ctx.Done():
	case <-p.abort:
	}
	return false
}

// complete goes on with an asynchronous send that could not be put on the wire at once, or has to be tried again.
func (p *Publisher) complete(ctx context.Context, s *sending) {
	fn := s.fn
	s.fn = nil
	r, err := p.finish(ctx, s)
	p.release(s)
	fn(r, err)
	p.pending.Done()
}

// sending is one send with its attempts. It belongs to the goroutine that drives it, and while an attempt is on the
// wire to whoever answers it.
type sending struct {
	p        *Publisher
	ctx      context.Context
	fn       func(Receipt, error) // of SendAsync, until complete takes over
	id       MessageID
	h        wire.MessageHeader
	body     []byte
	packed   bytes.Buffer // room of a compressed body
	deadline time.Time
	attempts int
	tried    []string
	sent     bool  // on the wire at least once: it may have been stored
	conn     *conn // of the attempt on the wire, and
	opaque   uint32
	answered chan struct{} // cap 1: result is set

	result struct {
		failed     *Error
		durability Durability
		server     string
	}
}

// begin checks m, takes a slot and makes its sending.
func (p *Publisher) begin(ctx context.Context, m *Message) (*sending, error) {
	if m == nil {
		return nil, formatError(MessageID{}, errors.New("message is nil"))
	}
	s, _ := p.ops.Get().(*sending)
	if s == nil {
		s = &sending{p: p, answered: make(chan struct{}, 1)}
	}
	if err := p.prepare(s, m); err != nil {
		p.ops.Put(s)
		return nil, formatError(m.ID, err)
	}
	s.ctx = ctx
	s.deadline = time.Now().Add(p.cfg.timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(s.deadline) {
		s.deadline = d
	}
	p.mu.Lock()
	if p.mu.closing {
		p.mu.Unlock()
		p.ops.Put(s)
		return nil, ErrClosed
	}
	p.pending.Add(1)
	p.mu.Unlock()
	select {
	case p.slots <- struct{}{}:
		return s, nil
	default:
	}
	select {
	case p.slots <- struct{}{}:
		return s, nil
	case <-ctx.Done():
		p.pending.Done()
		p.ops.Put(s)
		return nil, &Error{Code: CodeTimeout, ID: m.ID, Text: "too many sends are in flight; nothing was sent", Err: ctx.Err()}
	case <-p.abort:
		p.pending.Done()
		p.ops.Put(s)
		return nil, ErrClosed
	}
}

// prepare fills s with what travels of m.
func (p *Publisher) prepare(s *sending, m *Message) error {
	if m.ID.IsZero() {
		m.ID = NewMessageID()
	}
	if m.Born.IsZero() {
		m.Born = time.Now()
	}
	s.id = m.ID
	if err := m.encode(&s.h, p.cfg.group, p.cfg.host); err != nil {
		return err
	}
	s.h.ID = s.id[:]
	if len(m.Body) == 0 {
		return wire.CheckBody(0)
	}
	body, compressed := p.deflate.compress(&s.packed, m.Body)
	if compressed {
		s.h.Flag |= wire.FlagCompressed
	}
	s.body = body
	if err := wire.CheckBody(len(body)); err != nil {
		return err
	}
	s.attempts, s.tried, s.sent = 0, s.tried[:0], false
	return s.h.Validate()
}

// release gives the slot and s back. pending.Done follows, after the callback, so that Close waits for that too.
func (p *Publisher) release(s *sending) {
	s.ctx, s.body, s.fn, s.conn, s.result.failed = nil, nil, nil, nil, nil
	if s.packed.Cap() > keptBuffer {
		s.packed = bytes.Buffer{}
	}
	<-p.slots
	p.ops.Put(s)
}

// put sends one attempt. On success done gets the answer.
func (p *Publisher) put(s *sending, c *conn) error {
	now := time.Now()
	left := s.deadline.Sub(now)
	if share := min(maxAttempts-s.attempts, len(p.cfg.servers)-len(s.tried)); share > 1 {
		left /= time.Duration(share) // keeps time for the other servers
	}
	sent, async := s.sent, s.fn != nil
	s.sent, s.conn = true, c
	s.attempts++
	s.tried = append(s.tried, c.server)
	opaque, err := c.start(wire.OpSend, now.Add(left), s, func(dst []byte, opaque uint32) ([]byte, error) {
		dst, b := wire.Begin(dst, wire.OpSend, opaque)
		dst = s.h.Append(dst)
		b.EndHeader(dst)
		dst = append(dst, s.body...)
		return b.End(dst, 0)
	})
	if err != nil { // nothing went out; nobody else has s
		s.sent = sent
		s.attempts--
		s.tried = s.tried[:len(s.tried)-1]
		return err
	}
	if !async {
		s.opaque = opaque // only a synchronous send cancels; an asynchronous one may be answered, and s reused, by now
	}
	return nil
}

// done takes the answer of an attempt, in a goroutine of the connection.
func (s *sending) done(c *conn, a *answer) {
	s.result.failed, s.result.durability, s.result.server = nil, DurabilityUnstated, c.server
	if a.err != nil || a.status != wire.NoError {
		s.result.failed = a.failure(c.server)
		s.result.failed.ID = s.id
	} else {
		var m wire.MessageAck
		if m.Decode(a.header) == nil { // stored, whatever else it says
			s.result.durability = m.Durability
		}
	}
	fn := s.fn
	if fn == nil {
		s.answered <- struct{}{}
		return
	}
	if s.result.failed != nil && s.result.failed.Code.retried() {
		s.answered <- struct{}{}
		go s.p.complete(s.ctx, s)
		return
	}
	r, err := s.outcome()
	p := s.p
	p.release(s)
	fn(r, err)
	p.pending.Done()
}

// outcome is the result of the last attempt.
func (s *sending) outcome() (Receipt, error) {
	if s.result.failed != nil {
		return Receipt{}, s.result.failed
	}
	return Receipt{ID: s.id, Server: s.result.server, Durability: s.result.durability, Attempts: s.attempts}, nil
}

// finish drives s to its end: it waits for the attempt on the wire, if there is one, and makes the next ones.
func (p *Publisher) finish(ctx context.Context, s *sending) (Receipt, error) {
	var timer *time.Timer
	defer func() {
		if timer != nil {
			timer.Stop()
		}
	}()
	until := func(d time.Time) <-chan time.Time {
		if timer == nil {
			timer = time.NewTimer(time.Until(d))
		} else {
			timer.Reset(time.Until(d))
		}
		return timer.C
	}
	onWire := s.attempts > 0 // of SendAsync: its first attempt is out, or was answered
	for {
		if !onWire {
			c, changed := p.links.pick(s.tried)
			var err error
			if c != nil {
				if err = p.put(s, c); errors.Is(err, wire.ErrTooLong) {
					return Receipt{}, formatError(s.id, err)
				}
				if errors.Is(err, errFull) {
					changed = c.roomFor()
				}
			}
			if c == nil || err != nil {
				select {
				case <-changed:
				case <-until(s.deadline):
					return Receipt{}, p.late(s, context.DeadlineExceeded)
				case <-ctx.Done():
					return Receipt{}, p.late(s, ctx.Err())
				case <-p.abort:
					return Receipt{}, p.late(s, ErrClosed)
				}
				continue
			}
		}
		// The connection times the attempt out, so no timer is needed here.
		select {
		case <-s.answered:
		case <-ctx.Done():
			return p.give(s, ctx.Err())
		case <-p.abort:
			return p.give(s, ErrClosed)
		}
		onWire = false
		failed := s.result.failed
		if failed == nil || !failed.Code.retried() || s.attempts >= maxAttempts || !time.Now().Before(s.deadline) {
			return s.outcome()
		}
		if failed.Code == CodeBusy || failed.Code == CodeException {
			pause := time.Duration(s.attempts) * (50*time.Millisecond + rand.N(50*time.Millisecond))
			select {
			case <-until(time.Now().Add(pause)):
			case <-ctx.Done():
				return s.outcome()
			case <-p.abort:
				return s.outcome()
			}
		}
	}
}

// give takes the attempt off the wire, or its answer if that has come.
func (p *Publisher) give(s *sending, cause error) (Receipt, error) {
	if !s.conn.cancel(s.opaque) {
		<-s.answered
		if s.result.failed == nil {
			return s.outcome()
		}
	}
	return Receipt{}, &Error{Code: CodeTimeout, ID: s.id, Server: s.conn.server, Err: cause}
}

// late is the error of a send that found no connection in time.
func (p *Publisher) late(s *sending, cause error) error {
	if s.sent && s.result.failed != nil {
		return s.result.failed // what the last attempt met says more
	}
	e := p.links.unreachable(cause)
	e.ID = s.id
	return e
}
