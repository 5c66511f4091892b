// Package fusion is the process: it opens the store, puts both front ends and the administration port on it, and ends
// them in the opposite order. It composes and decides nothing; policy lives in the parts.
//
// An [App] is one such process without its main function, so tests run several side by side. Its parts, in the order of their
// start:
//
//	store       the log and its views; recovery happens here
//	push        the Notify service on the store
//	nameserver  its listener
//	pull        the RocketMQ broker on the store: registered with the name servers, then its listeners
//	notify      the Notify listener
//	http        the administration listener
//
// Stop goes from http to store: no listener accepts any more when the first service ends, and the store syncs and closes last.
package fusion

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/fusion/config"
	"github.com/fusionmq/fusionmq/fusion/lifecycle"
	"github.com/fusionmq/fusionmq/fusion/telemetry"
)

// Options are what an App uses of its process.
type Options struct {
	Log   *slog.Logger     // required
	Level *telemetry.Level // of Log, for changes while it runs; may be nil
	Limit int64            // size at which the garbage collector works harder, in bytes; only told to others
}

// App is one process. Start and Stop once each; the other methods may be called from any goroutine after Start.
type App struct {
	cfg    *config.Loaded                // of the start
	live   atomic.Pointer[config.Loaded] // for the keys that may change
	opts   Options
	log    *slog.Logger
	parts  *lifecycle.Group
	phase  atomic.Pointer[string] // why it does not serve; nil while it does
	since  time.Time              // of the start
	data   string                 // absolute path
	listen map[string]net.Listener
	adv    advertised

	services
}

// New makes an App for a valid configuration. Nothing is opened yet.
func New(cfg *config.Loaded, o Options) *App {
	a := &App{cfg: cfg, opts: o, log: o.Log, listen: map[string]net.Listener{}}
	a.live.Store(cfg)
	a.setPhase("starting")
	a.parts = lifecycle.New(
		a.part("ports", a.choosePort, a.closePorts),
		a.part("store", a.startStore, a.stopStore),
		a.part("push", a.startPush, a.stopPush),
		a.part("nameserver", a.startNameserver, a.stopNameserver),
		a.part("pull", a.startPull, a.stopPull),
		a.part("notify", a.startNotify, a.stopNotify),
		a.part("profiles", a.startProfiles, a.stopProfiles),
		a.part("http", a.startHTTP, a.stopHTTP),
	)
	return a
}

// part makes a part that tells the log how long it took; at info when that is longer than a person expects.
func (a *App) part(name string, start, stop func(context.Context) error) lifecycle.Part {
	timed := func(what string, do func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			begin := time.Now()
			err := do(ctx)
			level, took := slog.LevelDebug, time.Since(begin)
			if took > time.Second {
				level = slog.LevelInfo
			}
			a.log.Log(ctx, level, what, "part", name, "took_ms", took.Milliseconds())
			return err
		}
	}
	return lifecycle.Part{Name: name, Start: timed("part started", start), Stop: timed("part stopped", stop)}
}

// Start starts every part. When it fails, nothing of the process is left running.
func (a *App) Start(ctx context.Context) error {
	var err error
	if a.data, err = filepath.Abs(a.cfg.Data); err != nil {
		return fmt.Errorf("data is %q: %w", a.cfg.Data, err)
	}
	a.since = time.Now()
	if err := a.parts.Start(ctx); err != nil {
		return explain(err)
	}
	a.phase.Store(nil)
	a.verifyAdvertised()
	a.log.Info("ready", "took_ms", time.Since(a.since).Milliseconds())
	return nil
}

// Stop ends every part in the opposite order. Requests in work have until ctx ends; what was acknowledged is kept in any case.
func (a *App) Stop(ctx context.Context) error {
	a.setPhase("stopping")
	t := time.Now()
	err := a.parts.Stop(ctx)
	a.background.Wait()
	a.log.Info("stopped", "took_ms", time.Since(t).Milliseconds())
	return err
}

func (a *App) setPhase(s string) { a.phase.Store(&s) }

// Ready says why the process does not serve; nil when it does.
func (a *App) Ready() error {
	if p := a.phase.Load(); p != nil {
		return errors.New(*p)
	}
	return nil
}

// Names of listeners, in the order in which they are shown.
var listenerNames = []string{"nameserver", "broker", "fast", "notify", "http"}

// Listeners gives host:port of every open listener by its name.
func (a *App) Listeners() map[string]string {
	out := make(map[string]string, len(a.listen))
	for name, l := range a.listen {
		out[name] = l.Addr().String()
	}
	return out
}

// address is what the configuration says for a listener.
func (a *App) address(name string) string {
	c := &a.cfg.Config
	switch name {
	case "nameserver":
		return c.Nameserver.Addr
	case "broker":
		return c.Broker.Addr
	case "fast":
		return fastAddr(c.Fast.Addr, c.Broker.Addr)
	case "notify":
		return c.Notify.Addr
	case "http":
		return c.HTTP.Addr
	}
	panic("fusion: no listener " + name)
}

// fastAddr is the address of the fast port: two below a broker port that is known beforehand.
func fastAddr(fast, broker string) string {
	if fast != config.Auto {
		return fast
	}
	host, port, err := net.SplitHostPort(broker)
	if err != nil {
		return config.Off // the broker is off
	}
	var n int
	if _, err := fmt.Sscanf(port, "%d", &n); err != nil || n <= 2 {
		return config.Off
	}
	return net.JoinHostPort(host, fmt.Sprint(n-2))
}

// open opens a listener unless it is open; nil when the configuration has it off.
func (a *App) open(ctx context.Context, name string) (net.Listener, error) {
	if l := a.listen[name]; l != nil {
		return l, nil
	}
	addr := a.address(name)
	if addr == config.Off {
		return nil, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, &listenError{name: name, addr: addr, err: err}
	}
	a.listen[name] = l
	return l, nil
}

// choosePort finds what clients are told before the store opens, because it is part of every offset id. A port that the system
// chooses is taken for that; a known one is opened later, so that a second start on the same data fails at the data.
func (a *App) choosePort(ctx context.Context) error {
	addr := a.address("broker")
	if addr == config.Off {
		return nil
	}
	at, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return &listenError{name: "broker", addr: addr, err: err}
	}
	if at.Port == 0 {
		l, err := a.open(ctx, "broker")
		if err != nil {
			return err
		}
		at = l.Addr().(*net.TCPAddr)
	}
	ap := at.AddrPort()
	if !ap.Addr().IsValid() {
		ap = netip.AddrPortFrom(netip.IPv6Unspecified(), ap.Port())
	}
	var note string
	a.adv, note = machine().advertise(ctx, a.cfg.AdvertiseHost, netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()))
	// A name server elsewhere has no connection of the client to this machine, so it needs a host.
	a.adv.follow = a.adv.follow && len(a.cfg.Broker.Nameservers) == 0
	if note != "" {
		a.log.Warn(note, "advertise_host", a.cfg.AdvertiseHost)
	}
	return nil
}

// closePorts closes what no part took over, after a start that failed.
func (a *App) closePorts(context.Context) error {
	for _, l := range a.listen {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
	}
	return nil
}

// verifyAdvertised connects to what clients are told, and warns when that fails. A network may forbid the way back
// although others can come, so it is no error.
func (a *App) verifyAdvertised() {
	if a.listen["broker"] == nil || a.adv.follow {
		return
	}
	a.background.Go(func() {
		c, err := net.DialTimeout("tcp", a.adv.addr(), 2*time.Second)
		if err != nil {
			a.log.Warn("clients may not reach the broker: the address that they are told does not answer from here", "advertised", a.adv.addr(),
				"error", err, "see", "advertise-host")
			return
		}
		_ = c.Close()
	})
}
