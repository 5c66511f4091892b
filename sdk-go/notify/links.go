package notify

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fusionmq/fusionmq/notify/wire"
)

// links keeps a connection to every server: one goroutine a server connects, introduces the client, waits for the end
// and begins again. close ends them all.
type links struct {
	cfg     *config
	handler func(*conn, *wire.Frame) bool
	setup   func(context.Context, *conn) error // after the metadata, before the connection is ready
	ended   func(*conn)                        // after the end of every connection

	stop    context.CancelFunc
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		ready   []*conn
		changed chan struct{} // closed and replaced when ready changes
		last    error         // why the last attempt to connect failed
		turn    int
	}
}

func newLinks(cfg *config, handler func(*conn, *wire.Frame) bool, setup func(context.Context, *conn) error, ended func(*conn)) *links {
	l := &links{cfg: cfg, handler: handler, setup: setup, ended: ended}
	l.mu.changed = make(chan struct{})
	return l
}

func (l *links) start() {
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	for _, server := range l.cfg.servers {
		l.running.Go(func() { l.keep(ctx, server) })
	}
}

// close ends every connection and waits for their goroutines.
func (l *links) close() {
	l.stop()
	l.running.Wait()
}

// keep holds the connection to one server.
func (l *links) keep(ctx context.Context, server string) {
	for ctx.Err() == nil {
		if err := l.once(ctx, server); ctx.Err() == nil {
			l.cfg.log.Warn("connection to notify server lost", "server", server, "err", err)
		}
		// A little earlier or later than the others, so that clients do not come back all at once.
		pause := time.NewTimer(l.cfg.redial - l.cfg.redial/8 + rand.N(l.cfg.redial/4+1))
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// once makes a connection and returns why it ended.
func (l *links) once(ctx context.Context, server string) error {
	nc, err := l.cfg.dial(ctx, "tcp", server)
	if err != nil {
		l.note(err)
		return err
	}
	c := newConn(l.cfg, server, nc, l.handler)
	if l.ended != nil {
		defer l.ended(c)
	}
	defer c.wait()
	defer c.fail(ErrClosed)
	if err := l.introduce(ctx, c); err != nil {
		l.note(err)
		return err
	}
	l.cfg.log.Info("connected to notify server", "server", server, "features", c.features.String())
	l.add(c)
	defer l.remove(c)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.gone:
		return c.reason()
	}
}

// introduce sends the metadata and runs the client's setup.
func (l *links) introduce(ctx context.Context, c *conn) error {
	info := wire.ClientInfo{Group: []byte(l.cfg.group), HostName: optional(l.cfg.host), Name: optional(l.cfg.name), AppName: optional(l.cfg.app)}
	md := wire.Metadata{Clients: []wire.ClientInfo{info}}
	if !l.cfg.plain {
		md.Build = []wire.Property{
			wire.FeatureProperty(wire.AllFeatures),
			{Key: []byte(wire.KeySoftware), Value: []byte("sdk-go"), HasValue: true},
		}
	}
	body := md.Append(nil)
	header, failed := c.call(ctx, l.cfg.call, wire.OpMetadata, func(dst []byte, opaque uint32) ([]byte, error) {
		return wire.AppendRequest(dst, wire.OpMetadata, opaque, nil, body)
	})
	if failed != nil {
		return failed
	}
	var ans wire.MetadataAnswer
	if err := ans.Decode(header); err != nil {
		return &Error{Code: CodeComm, Server: c.server, Text: err.Error()}
	}
	if !l.cfg.plain {
		c.features = ans.Features() & wire.AllFeatures
	}
	if l.setup == nil {
		return nil
	}
	return l.setup(ctx, c)
}

func optional(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

func (l *links) note(err error) {
	l.mu.Lock()
	l.mu.last = err
	l.mu.Unlock()
}

func (l *links) add(c *conn) {
	l.mu.Lock()
	l.mu.ready = append(l.mu.ready, c)
	l.mu.last = nil
	l.tellLocked()
	l.mu.Unlock()
}

func (l *links) remove(c *conn) {
	l.mu.Lock()
	l.mu.ready = slices.DeleteFunc(l.mu.ready, func(x *conn) bool { return x == c })
	l.tellLocked()
	l.mu.Unlock()
}

func (l *links) tellLocked() {
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
}

// pick takes the next ready connection in turn, one to a server not in tried if there is one. changed is closed when
// another look is worth it.
func (l *links) pick(tried []string) (c *conn, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.mu.ready)
	for i := range n {
		x := l.mu.ready[(l.mu.turn+i)%n]
		if !slices.Contains(tried, x.server) {
			c = x
			break
		}
	}
	if c == nil && n > 0 {
		c = l.mu.ready[l.mu.turn%n]
	}
	l.mu.turn++
	return c, l.mu.changed
}

// all is every ready connection.
func (l *links) all() (ready []*conn, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.mu.ready), l.mu.changed
}

// wait returns when a connection is ready.
func (l *links) wait(ctx context.Context, closed <-chan struct{}) error {
	for {
		ready, changed := l.all()
		if len(ready) > 0 {
			return nil
		}
		select {
		case <-changed:
		case <-closed:
			return ErrClosed
		case <-ctx.Done():
			return l.unreachable(ctx.Err())
		}
	}
}

// unreachable is the error of having no connection.
func (l *links) unreachable(cause error) *Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &Error{Code: CodeNoConnection, Err: cause}
	if l.mu.last != nil {
		e.Err = errors.Join(cause, l.mu.last)
	}
	return e
}
