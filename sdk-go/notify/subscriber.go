package notify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/notify/wire"
)

// Handler gets a message that was pushed. nil acknowledges it; with an error, or a panic, the server pushes it again later, to this
// machine or another of the group. The handler may keep m. ctx ends when Close gives up waiting.
type Handler func(ctx context.Context, m *Message) error

// Subscriber is one machine of a subscribing group.
type Subscriber struct {
	cfg     *config
	handler Handler
	links   *links
	inflate inflater

	ctx     context.Context // of handlers
	stop    context.CancelFunc
	closed  chan struct{} // no new work
	work    chan task     // has room for the windows of all servers
	bytes   atomic.Int64  // bodies in work and in handlers
	workers sync.WaitGroup

	mu struct { // taken before no other lock
		sync.Mutex
		closing  bool
		bindings []Binding           // no two of one key
		conns    map[*conn]*registry // ready ones and those that are being set up
	}
}

// registry is what one connection has registered, so that nothing is registered twice on it when a Subscribe and the
// set-up of the connection meet. Its lock is held while the server is asked.
type registry struct {
	mu   sync.Mutex
	done map[wire.Binding]registered // by key
}

type registered struct {
	b   Binding
	err *Error // the server's refusal
}

// task is a message to be handled and how to answer for it.
type task struct {
	m     *Message
	c     *conn
	codec string // of a compressed body
	tag   uint64 // of a delivery in a batch; 0: answer opaque
	reply uint32
}

// NewSubscriber makes a Subscriber of the group (1 to 64 visible ASCII characters) and begins to connect to every server
// ("host:port"). Messages come after Subscribe, or at once when the group has bindings from before.
func NewSubscriber(group string, servers []string, handler Handler, opts ...Option) (*Subscriber, error) {
	cfg, err := newConfig(group, servers, opts)
	if err != nil {
		return nil, err
	}
	if handler == nil {
		return nil, errors.New("notify: no handler given")
	}
	s := &Subscriber{cfg: cfg, handler: handler, closed: make(chan struct{}), inflate: inflater{max: cfg.maxBody}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.work = make(chan task, cfg.queue*len(servers))
	s.mu.conns = make(map[*conn]*registry)
	for range cfg.workers {
		s.workers.Go(s.serve)
	}
	s.links = newLinks(cfg, s.request, s.setup, s.forget)
	s.links.start()
	return s, nil
}

// WaitReady returns when a server is connected and has all bindings.
func (s *Subscriber) WaitReady(ctx context.Context) error { return s.links.wait(ctx, s.closed) }

// Subscribe registers bindings and returns when every connected server has them; one that connects later gets them
// then. It waits for a server when none is connected. The error is an [*Error]; a binding that a server refuses is not
// kept, the others are.
func (s *Subscriber) Subscribe(ctx context.Context, bindings ...Binding) error {
	for i := range bindings {
		b := bindings[i].b
		b.Group = s.cfg.group
		if err := b.Validate(); err != nil {
			return formatError(MessageID{}, err)
		}
	}
	if err := s.change(func() {
		for _, b := range bindings {
			s.dropLocked(b)
			s.mu.bindings = append(s.mu.bindings, b)
		}
	}); err != nil {
		return err
	}
	for _, b := range bindings {
		if err := s.everywhere(ctx, func(c *conn, r *registry) *Error { return s.register(ctx, c, r, b) }); err != nil {
			if err.Code == CodeError {
				_ = s.change(func() { s.dropLocked(b) }) // closing forgets it as well
			}
			return err
		}
	}
	return nil
}

// Unsubscribe removes bindings of the group, on all its machines. A server that did not agree to it keeps them, and
// the error is CodeNoProcessor.
func (s *Subscriber) Unsubscribe(ctx context.Context, bindings ...Binding) error {
	if err := s.change(func() {
		for _, b := range bindings {
			s.dropLocked(b)
		}
	}); err != nil {
		return err
	}
	for _, b := range bindings {
		if err := s.everywhere(ctx, func(c *conn, r *registry) *Error { return s.unregister(ctx, c, r, b) }); err != nil {
			return err
		}
	}
	return nil
}

// Close stops taking messages, waits for running handlers until ctx ends, sends their verdicts and closes the
// connections. Messages that no handler had started go to another machine, or come again, without a counted attempt. It returns ctx's error when
// handlers had to be cancelled; it waits for them all the same, so a handler must not call it.
func (s *Subscriber) Close(ctx context.Context) error {
	s.mu.Lock()
	first := !s.mu.closing
	s.mu.closing = true
	conns := slices.Collect(maps.Keys(s.mu.conns))
	s.mu.Unlock()
	if first {
		for _, c := range conns {
			s.credit(c, 0) // not waited for: what still comes is left unanswered
		}
		close(s.closed)
	}
	idle := make(chan struct{})
	go func() {
		s.workers.Wait()
		close(idle)
	}()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = ctx.Err()
		s.stop()
		<-idle
	}
	s.stop()
	for _, c := range conns {
		c.drain()
	}
	s.links.close()
	return err
}

// change changes what mu guards, unless the Subscriber is closed.
func (s *Subscriber) change(f func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closing {
		return ErrClosed
	}
	f()
	return nil
}

// everywhere does f on every connection, those being set up included. A connection that breaks meanwhile gets its
// bindings when it is made again; one connection at least must have taken it.
func (s *Subscriber) everywhere(ctx context.Context, f func(*conn, *registry) *Error) *Error {
	for {
		_, changed := s.links.all()
		s.mu.Lock()
		conns := maps.Clone(s.mu.conns)
		s.mu.Unlock()
		taken := 0
		for c, r := range conns {
			switch err := f(c, r); {
			case err == nil:
				taken++
			case err.Code == CodeComm && c.reason() != nil:
			default:
				return err
			}
		}
		if taken > 0 {
			return nil
		}
		select {
		case <-changed:
		case <-s.closed:
			return &Error{Code: CodeNoConnection, Err: ErrClosed}
		case <-ctx.Done():
			return s.links.unreachable(ctx.Err())
		}
	}
}

// register sends a binding, unless the connection has it. A refusal is told to Subscribe once more when set-up met it first.
func (s *Subscriber) register(ctx context.Context, c *conn, r *registry, b Binding) *Error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if was, ok := r.done[b.key()]; ok && was.b == b {
		if was.err != nil {
			delete(r.done, b.key())
		}
		return was.err
	}
	err := s.send(ctx, c, wire.OpSubscribe, b)
	if err == nil {
		r.done[b.key()] = registered{b: b}
	}
	return err
}

// unregister removes a binding.
func (s *Subscriber) unregister(ctx context.Context, c *conn, r *registry, b Binding) *Error {
	if !c.features.Has(wire.FeatureUnsubscribe) {
		return &Error{Code: CodeNoProcessor, Server: c.server, Text: "the server speaks plain NOTIFY_V1, which cannot unsubscribe"}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.done, b.key())
	return s.send(ctx, c, wire.OpUnsubscribe, b)
}

// send sends one binding.
func (s *Subscriber) send(ctx context.Context, c *conn, op wire.Opcode, b Binding) *Error {
	b.b.Group = s.cfg.group
	sub := wire.Subscription{Binding: b.b.Append(nil)}
	header := sub.Append(nil)
	c.binds.Add(1)
	defer c.binds.Add(-1)
	_, err := c.call(ctx, s.cfg.bind, op, func(dst []byte, opaque uint32) ([]byte, error) {
		return wire.AppendRequest(dst, op, opaque, header, nil)
	})
	return err
}

// setup gives a new connection its credit and the bindings.
func (s *Subscriber) setup(ctx context.Context, c *conn) error {
	r := &registry{done: make(map[wire.Binding]registered)}
	if err := s.change(func() { s.mu.conns[c] = r }); err != nil {
		return err
	}
	for _, b := range s.snapshot() {
		switch err := s.register(ctx, c, r, b); {
		case err == nil:
		case err.Code == CodeComm || err.Code == CodeTimeout:
			return err
		default:
			s.cfg.log.Warn("notify server refuses a binding", "server", c.server, "binding", b.String(), "err", err)
			r.mu.Lock()
			r.done[b.key()] = registered{b, err}
			r.mu.Unlock()
		}
		if !slices.Contains(s.snapshot(), b) { // an Unsubscribe came between; it may have been first
			_ = s.unregister(ctx, c, r, b) // the error is the Unsubscribe's
		}
	}
	s.credit(c, s.cfg.window)
	return nil
}

// forget drops a connection that ended.
func (s *Subscriber) forget(c *conn) {
	s.mu.Lock()
	delete(s.mu.conns, c)
	s.mu.Unlock()
}

func (s *Subscriber) dropLocked(b Binding) {
	s.mu.bindings = slices.DeleteFunc(s.mu.bindings, func(x Binding) bool { return x.key() == b.key() })
}

func (s *Subscriber) snapshot() []Binding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.bindings)
}

// credit tells the server how much room there is.
func (s *Subscriber) credit(c *conn, messages int) {
	if !c.features.Has(wire.FeatureCredit) {
		return
	}
	m := wire.Credit{Group: []byte(s.cfg.group), Messages: uint32(messages), Bytes: s.cfg.windowBytes}
	header := m.Append(nil)
	r := &granted{}
	_, _ = c.start(wire.OpCredit, time.Now().Add(s.cfg.bind), r, func(dst []byte, opaque uint32) ([]byte, error) {
		return wire.AppendRequest(dst, wire.OpCredit, opaque, header, nil)
	}) // when it does not go out the connection is gone, and the next one gets its own; it may wait behind a Subscribe
}

// granted waits for the answer to a CREDIT. Without credit nothing would ever come, so a refusal ends the connection.
type granted struct{}

func (granted) done(c *conn, a *answer) {
	if a.err != nil || a.status != wire.NoError {
		c.fail(a.failure(c.server))
	}
}

// request serves a request of the server, in the reader's goroutine.
func (s *Subscriber) request(c *conn, f *wire.Frame) bool {
	switch f.Opcode {
	case wire.OpDeliver:
		if status, text := s.take(c, f.Header, f.Body, 0, f.Opaque); status != wire.NoError {
			c.respond(f.Opcode, status, f.Opaque, text)
		}
	case wire.OpDeliverBatch:
		d, err := wire.Batch(f.Header, f.Body)
		for err == nil {
			var tag uint64
			var header, body []byte
			var ok bool
			if tag, header, body, ok, err = d.Next(); err != nil || !ok {
				break
			}
			if status, text := s.take(c, header, body, tag, 0); status != wire.NoError {
				c.acknowledge(ack{tag, status, text})
			}
		}
		if err != nil {
			s.cfg.log.Error("notify server sent a broken batch", "server", c.server, "err", err)
			c.respond(f.Opcode, wire.StatusError, f.Opaque, err.Error())
		}
	case wire.OpCheck:
		c.respond(f.Opcode, wire.StatusUnknown, f.Opaque, "a subscriber has no transactions")
	default:
		return false
	}
	return true
}

// take queues a delivery. Any status but NoError is to be answered at once.
func (s *Subscriber) take(c *conn, header, body []byte, tag uint64, opaque uint32) (wire.Status, string) {
	select {
	case <-s.closed:
		return wire.NoError, "" // left unanswered: the end of the connection gives it back
	default:
	}
	// The message owns one copy of both; its strings are views of it.
	own := make([]byte, len(header)+len(body))
	copy(own, header)
	copy(own[len(header):], body)
	d := decoders.Get().(*wire.MessageHeader)
	defer decoders.Put(d)
	if err := d.Decode(own[:len(header):len(header)]); err != nil {
		return wire.StatusError, err.Error()
	}
	if d.Set.Has(wire.FieldTargetGroup) && string(d.TargetGroup) != s.cfg.group {
		return wire.StatusUnknown, "no listener for group " + wire.Quote(string(d.TargetGroup))
	}
	t := task{m: new(Message), c: c, tag: tag, reply: opaque}
	decodeMessage(t.m, d, own[len(header):])
	t.m.Delivery.Server = c.server
	if t.m.Delivery.Compressed {
		t.codec, _ = t.m.Header.Value(wire.KeyCompression)
	}
	limit := int64(s.cfg.windowBytes) * int64(len(s.cfg.servers))
	if s.bytes.Load() >= limit {
		return wire.StatusBusy, "the window of this machine is full"
	}
	select {
	case s.work <- t:
		s.bytes.Add(int64(len(body)))
		return wire.NoError, ""
	default:
		return wire.StatusBusy, "the window of this machine is full"
	}
}

// decoders are shared by all connections: a reader needs one for a moment.
var decoders = sync.Pool{New: func() any { return new(wire.MessageHeader) }}

// serve is a worker.
func (s *Subscriber) serve() {
	for {
		select {
		case <-s.closed:
			return
		case t := <-s.work:
			select {
			case <-s.closed: // both were ready
				return
			default:
			}
			status, text := s.handle(&t)
			if t.tag != 0 {
				t.c.acknowledge(ack{t.tag, status, text})
			} else {
				t.c.delivered(&t, status, text)
			}
		}
	}
}

// handle gives a message to the handler.
func (s *Subscriber) handle(t *task) (status wire.Status, text string) {
	size := int64(len(t.m.Body))
	defer s.bytes.Add(-size)
	defer func() {
		if r := recover(); r != nil {
			s.cfg.log.Error("notify handler panicked", "id", t.m.ID.String(), "panic", r)
			status, text = wire.StatusFailed, fmt.Sprintf("handler panicked: %v", r)
		}
	}()
	if t.m.Delivery.Compressed && !s.cfg.rawBodies {
		body, err := s.inflate.decompress(t.m.Body, t.codec)
		if err != nil {
			return wire.StatusError, err.Error()
		}
		t.m.Body = body
		t.m.Header.Delete(wire.KeyCompression)
	}
	if err := s.handler(s.ctx, t.m); err != nil {
		return wire.StatusFailed, err.Error()
	}
	return wire.NoError, ""
}
