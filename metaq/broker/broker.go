// Package broker is the RocketMQ broker: the request handlers of the remoting protocol over the embedded store.
//
// Start with [New], then [Broker.Start], and [Broker.Serve] for every listener. docs/compat.md lists the request codes that
// are served and how this broker differs from RocketMQ 5.3.3; the file of each handler says more.
//
// # Shape
//
// The server package hands over bursts of requests (work.go). All sends of a burst are one append to the store (send.go);
// pulls are answered from the queue index and the mapped log (pull.go), or held until a message comes (hold.go). What
// clients say about themselves lives in the membership package. Nothing here is durable but what the store keeps:
// membership is rebuilt by heartbeats within 30 seconds of a restart.
//
// # Goroutines
//
// Handlers run on the server's. The broker has three of its own, started by Start and ended by Stop: one answers held
// pulls, one keeps house (expiry of members, rebalance notices, registration at name servers, rates), one asks about undecided transactions.
//
// # Locks
//
// creating is held over the durable creation of topics and groups and is taken before the locks of the store. holds.mu,
// locks.mu, resets.mu and notices guard memory only and are never held over a call into the store or a connection.
package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/metaq/membership"
	"github.com/fusionmq/fusionmq/metaq/server"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/record"
)

// ErrStopped is returned by Serve once the broker stops.
var ErrStopped = errors.New("broker: stopped")

// errSilent is why a connection whose members all expired is closed.
var errSilent = errors.New("no heartbeat")

// Broker is a running broker. All methods may be called from any goroutine.
type Broker struct {
	cfg     Config
	store   *store.Store
	dir     string // of the store, for the figures of its disk
	added   []byte // property text that every stored message gets
	ids     *uniqueIDs
	members *membership.Registry
	holds   *holds
	sqls    expressions
	locks   locks
	resets  resets
	works   sync.Pool // of *work
	stats   counters
	traffic traffic
	rates   rates

	started   time.Time
	stopping  atomic.Bool
	lastPeer  atomic.Uint64
	nextAsked atomic.Uint64 // which member of a producer group is asked next
	peers     sync.Map      // membership.ConnID to *server.Conn, of connections that have sent a heartbeat
	creating  creations     // of topics and groups; one of a name at a time

	notices struct {
		sync.Mutex
		membership.Notices
		kick chan struct{} // room for one
	}
	told           atomic.Int64 // changes of topics told to name servers
	registerErrors limiter
	notKeptErrors  limiter

	quit chan struct{}
	done sync.WaitGroup

	mu struct {
		sync.Mutex
		servers []*server.Server
		started bool
	}
}

// New makes a broker over an open store, which stays the caller's. dir is where the store is, for the disk figures that
// tools ask for; it may be empty.
func New(cfg Config, s *store.Store, dir string) (*Broker, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	b := &Broker{
		cfg: cfg, store: s, dir: dir, members: membership.New(), started: time.Now(), quit: make(chan struct{}),
		ids: newUniqueIDs(cfg.StoreHost.Addr(), os.Getpid(), time.Now),
	}
	b.added = record.AppendProperty(b.added, "CLUSTER", cfg.Cluster)
	b.added = record.AppendProperty(b.added, "MSG_REGION", cfg.Region)
	b.added = record.AppendProperty(b.added, "TRACE_ON", "true")
	b.works.New = func() any { return &work{b: b} }
	b.holds = newHolds(b)
	b.notices.Gap = cfg.NoticeGap
	b.notices.kick = make(chan struct{}, 1)
	return b, nil
}

// Start makes the system topics that are missing, registers at the name servers and starts the broker's goroutines.
func (b *Broker) Start(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.started {
		return nil
	}
	if err := b.createInitialTopics(); err != nil {
		return fmt.Errorf("broker: create system topics: %w", err)
	}
	b.mu.started = true
	b.store.Topics().OnChange(func(t *meta.Topic) { b.registerTopic(t) })
	b.rates.add(b.sample(b.started))
	b.registerAll()
	b.holds.start()
	b.done.Add(2)
	go b.keepHouse()
	go b.checkLoop()
	return nil
}

// Serve serves a TCP listener until Stop, which closes it. It returns at once; a broker may serve several.
func (b *Broker) Serve(ln net.Listener) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopping.Load() {
		_ = ln.Close() // it was never used
		return ErrStopped
	}
	s, err := server.Serve(ln, server.Config{
		Name: "broker", Handler: server.HandlerFunc(b.serve), Opened: b.opened, Closed: b.closed, Log: b.cfg.Log,
		MaxConns: b.cfg.MaxConns, IdleTimeout: b.cfg.IdleTimeout,
	})
	if err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	b.mu.servers = append(b.mu.servers, s)
	return nil
}

func (b *Broker) listening() []*server.Server {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.mu.servers)
}

// Stop unregisters at the name servers, answers held pulls, lets bursts in work finish, closes all connections and ends
// the broker's goroutines. What is not over when ctx ends is cut off, and ctx's error returned.
func (b *Broker) Stop(ctx context.Context) error {
	b.mu.Lock()
	if b.stopping.Swap(true) {
		b.mu.Unlock()
		return nil
	}
	started, servers := b.mu.started, b.mu.servers
	b.mu.Unlock()
	var errs []error
	if started {
		close(b.quit)
		b.done.Wait()
		errs = b.unregister()
		b.holds.stop()
	}
	for _, s := range servers {
		if err := s.Shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("broker: %w", err))
		}
	}
	return errors.Join(errs...)
}

// keepHouse does what time brings.
func (b *Broker) keepHouse() {
	defer b.done.Done()
	scan := time.NewTicker(b.cfg.ScanInterval)
	register := time.NewTicker(b.cfg.RegisterInterval)
	rates := time.NewTicker(sampleEvery)
	notice := time.NewTimer(time.Hour)
	var conflicts []string
	defer func() {
		for _, t := range []*time.Ticker{scan, register, rates} {
			t.Stop()
		}
		notice.Stop()
	}()
	for {
		select {
		case <-b.quit:
			return
		case now := <-scan.C:
			b.expire(now)
			b.locks.expire(now)
			conflicts = b.reportConflicts(conflicts)
		case <-register.C:
			b.registerAll()
		case now := <-rates.C:
			b.rates.add(b.sample(now))
		case <-b.notices.kick:
		case <-notice.C:
		}
		if next, ok := b.announce(time.Now()); ok {
			notice.Reset(time.Until(next))
		}
	}
}

// limiter lets one log line through a second.
type limiter struct{ last atomic.Int64 }

func (l *limiter) allow(now time.Time) bool {
	last := l.last.Load()
	return now.UnixNano()-last >= int64(time.Second) && l.last.CompareAndSwap(last, now.UnixNano())
}
