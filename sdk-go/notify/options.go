package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"time"

	"github.com/fusionmq/fusionmq/notify/wire"
)

// Option changes a Publisher or a Subscriber. Bad values fail in NewPublisher or NewSubscriber, naming the option.
type Option func(*config) error

type config struct {
	servers []string
	group   string
	host    string
	name    string
	app     string

	log    *slog.Logger
	dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	plain  bool
	redial time.Duration
	idle   time.Duration
	call   time.Duration // how long a server may take to answer
	bind   time.Duration // and when it changes bindings first

	timeout     time.Duration
	inFlight    int
	compressMin int
	level       int

	workers     int
	window      int // messages of credit
	queue       int // room for messages a server; as much as a plain server pushes by its default water mark
	windowBytes uint64
	maxBody     int64
	rawBodies   bool
}

func newConfig(group string, servers []string, opts []Option) (*config, error) {
	c := &config{
		servers: append([]string(nil), servers...), group: group,
		log: slog.New(slog.DiscardHandler), dial: (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		redial: 2 * time.Second, idle: 10 * time.Second, call: time.Second, bind: wire.BindTimeout + time.Second,
		timeout: 3 * time.Second, inFlight: 4096,
		workers: 4 * runtime.GOMAXPROCS(0), window: 1000, queue: 10_000, windowBytes: 64 << 20, maxBody: 32 << 20,
	}
	c.host, _ = os.Hostname() // tracing only
	if len(servers) == 0 {
		return nil, errors.New("notify: no servers given")
	}
	for i, s := range servers {
		if _, _, err := net.SplitHostPort(s); err != nil {
			return nil, fmt.Errorf("notify: server %q: %w", s, err)
		}
		for _, other := range servers[:i] {
			if other == s {
				return nil, fmt.Errorf("notify: server %q is given twice", s)
			}
		}
	}
	if err := wire.CheckGroup("group", group); err != nil {
		return nil, fmt.Errorf("notify: %w", err)
	}
	for _, o := range opts {
		if err := o(c); err != nil {
			return nil, fmt.Errorf("notify: %w", err)
		}
	}
	return c, nil
}

func between[T int | int64 | uint64 | time.Duration](option string, v, low, high T) error {
	if v < low || v > high {
		return fmt.Errorf("%s: %v is outside %v..%v", option, v, low, high)
	}
	return nil
}

// WithLogger gets connections made and lost, and refusals, overriding the default of no log. Bodies are never logged.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) error {
		if l == nil {
			return errors.New("WithLogger: nil")
		}
		c.log = l
		return nil
	}
}

// WithDialer makes the connections, for TLS or tests, overriding the default of TCP with a limit of 5 s.
func WithDialer(dial func(ctx context.Context, network, addr string) (net.Conn, error)) Option {
	return func(c *config) error {
		if dial == nil {
			return errors.New("WithDialer: nil")
		}
		c.dial = dial
		return nil
	}
}

// WithName describes the client to operators, overriding the default of no name and no application.
func WithName(name, application string) Option {
	return func(c *config) error {
		c.name, c.app = name, application
		return nil
	}
}

// WithHostName is sent with metadata and messages, overriding the default of the machine's host name.
func WithHostName(host string) Option {
	return func(c *config) error {
		c.host = host
		return nil
	}
}

// WithPlainProtocol speaks NOTIFY_V1 only, overriding the default of offering batches, credit and the rest.
func WithPlainProtocol() Option {
	return func(c *config) error {
		c.plain = true
		return nil
	}
}

// WithReconnect is the pause between attempts to connect, overriding the default of 2 s. 10 ms to 1 h.
func WithReconnect(every time.Duration) Option {
	return func(c *config) error {
		c.redial = every
		return between("WithReconnect", every, 10*time.Millisecond, time.Hour)
	}
}

// WithHeartbeat is how long a connection is silent before it is tried with a heartbeat, overriding the default of 10 s.
// After three in a row without an answer it is given up. 100 ms to 4 min; servers close what is silent for 5 min.
func WithHeartbeat(idle time.Duration) Option {
	return func(c *config) error {
		c.idle = idle
		return between("WithHeartbeat", idle, 100*time.Millisecond, 4*time.Minute)
	}
}

// WithTimeout bounds a send with all its attempts, overriding the default of 3 s; a context that ends earlier wins. 1 ms to 1 h.
// Publisher only.
func WithTimeout(d time.Duration) Option {
	return func(c *config) error {
		c.timeout = d
		return between("WithTimeout", d, time.Millisecond, time.Hour)
	}
}

// WithMaxInFlight bounds the unanswered sends of a Publisher, overriding the default of 4,096; further ones wait. 1 to
// 100,000.
func WithMaxInFlight(n int) Option {
	return func(c *config) error {
		c.inFlight = n
		return between("WithMaxInFlight", n, 1, 100_000)
	}
}

// WithCompression compresses bodies of at least min bytes with zlib at level 1 (fast) to 9 (small), overriding the
// default of none. A body that does not get smaller is sent as it is. Receivers without this SDK must know how to
// inflate; RocketMQ's clients do. Publisher only.
func WithCompression(min, level int) Option {
	return func(c *config) error {
		c.compressMin, c.level = min, level
		if err := between("WithCompression: level", level, 1, 9); err != nil {
			return err
		}
		return between("WithCompression: min", min, 1, wire.MaxBody)
	}
}

// WithWorkers is how many handlers run at once, overriding the default of 4 x GOMAXPROCS. 1 to 100,000. Subscriber only.
func WithWorkers(n int) Option {
	return func(c *config) error {
		c.workers = n
		return between("WithWorkers", n, 1, 100_000)
	}
}

// WithWindow is the room for messages that were pushed and not handled yet, per server: their number, and the bytes of
// their bodies. A server that agreed to it pushes no more, another one gets THREADPOOL_BUSY. It overrides the default of
// 64 MiB and 1,000 messages, or 10,000 from a server that speaks plain NOTIFY_V1. 1 to 1,000,000 messages; 1 byte to 1 TiB.
// Subscriber only.
func WithWindow(messages int, bytes uint64) Option {
	return func(c *config) error {
		c.window, c.queue, c.windowBytes = messages, messages, bytes
		if err := between("WithWindow: messages", messages, 1, 1_000_000); err != nil {
			return err
		}
		return between("WithWindow: bytes", bytes, 1, 1<<40)
	}
}

// WithMaxBody bounds what a compressed body may grow to, overriding the default of 32 MiB. A message that passes it is
// refused and ends in dead letter. 1 byte to 1 GiB. Subscriber only.
func WithMaxBody(bytes int64) Option {
	return func(c *config) error {
		c.maxBody = bytes
		return between("WithMaxBody", bytes, 1, 1<<30)
	}
}

// WithRawBodies hands compressed bodies over as they are, overriding the default of decompressing them.
// Message.Delivery.Compressed tells which they are. Subscriber only.
func WithRawBodies() Option {
	return func(c *config) error {
		c.rawBodies = true
		return nil
	}
}
