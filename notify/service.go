package notify

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/notify/delivery"
	"github.com/fusionmq/fusionmq/notify/exchange"
	"github.com/fusionmq/fusionmq/notify/wire"
	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/state"
)

// ErrStopping is returned by Open and Drain's callers once the service stops.
var ErrStopping = errors.New("notify: the server is stopping")

// Service is the push front end of one broker. Make it with New, give its Exchange and Observer to store.Open, then
// Start it. All methods may be called from any goroutine.
type Service struct {
	o        Options
	log      *limitedLog
	exchange *exchange.Exchange
	ledger   *delivery.Ledger
	store    Store // set once by Start, before started is
	maxBody  int   // bytes; set before Start

	started  atomic.Bool
	draining atomic.Bool // nothing new is posted
	sending  atomic.Int64
	making   atomic.Int64 // topics that are being made
	waiting  atomic.Int64 // window messages that wait in attached groups
	attached atomic.Int64 // streams served from the window
	queue    atomic.Uint32
	counters counters

	// commit orders operate-queue records: what is collected first is written first.
	commit struct {
		sync.Mutex
		pending []state.Op // collected, and not written because the store refused it
		last    int64      // address of the newest record
	}

	mu struct { // before any group.mu
		sync.RWMutex
		groups   map[string]*group
		sessions map[*Session]struct{}
		stopping bool
	}

	observer  observer
	tickEvery time.Duration // tickEvery, shorter in tests
	flushNow  chan struct{} // something to write
	tickNow   chan struct{} // something will be due
	quit      chan struct{}
	done      sync.WaitGroup // the two loops
	work      sync.WaitGroup // readers, attaches and detaches, retry loaders
}

// LimitBody lowers the largest body that Send takes from wire.MaxBody to so many bytes, at least 1. Call it before Start.
func (s *Service) LimitBody(bytes int) { s.maxBody = bytes }

// New makes a service without starting anything.
func New(o Options) *Service {
	s := &Service{
		o:         o.withDefaults(),
		exchange:  exchange.New(),
		maxBody:   wire.MaxBody,
		tickEvery: tickEvery,
		flushNow:  make(chan struct{}, 1),
		tickNow:   make(chan struct{}, 1),
		quit:      make(chan struct{}),
	}
	s.log = &limitedLog{log: s.o.Log, now: s.o.Now}
	s.ledger = delivery.NewLedger(s.o.Delivery.Linger, func() { poke(s.flushNow) })
	s.mu.groups = make(map[string]*group)
	s.mu.sessions = make(map[*Session]struct{})
	s.observer.s = s
	return s
}

// Exchange is what the store asks for the targets of messages.
func (s *Service) Exchange() state.Exchange { return s.exchange }

// Observer is what the store tells about messages that are owed and operations that have taken effect.
func (s *Service) Observer() store.Observer { return &s.observer }

// Start takes the opened store and begins to work. Groups that the log calls attached, because the process ended
// without saying otherwise, are detached first; it returns when that has taken effect.
func (s *Service) Start(st Store) error {
	s.store = st
	var ops []state.Op
	type key struct{ topic, group string }
	volatile := make(map[key][]state.Binding)
	for _, b := range st.Bindings() {
		if b.Binding.Volatile {
			k := key{b.Topic, b.Group}
			volatile[k] = append(volatile[k], b.Binding)
			ops = append(ops, state.Op{Kind: state.OpUnbind, Topic: b.Topic, Group: b.Group, Binding: b.Binding})
		}
	}
	for _, g := range st.PushGroups() { // also those whose bindings have ended
		for _, topic := range g.Topics {
			if pos, ok := st.Cursor(topic, g.Name); ok && pos.Attached {
				ops = append(ops, state.Op{Kind: state.OpDetach, Topic: topic, Group: g.Name})
			}
		}
	}
	spans := make(map[key][]exchange.Span)
	for k, bs := range volatile {
		spans[k] = s.exchange.History(k.topic, k.group).Volatile()
		g := s.group(k.group, true)
		g.keepName() // while its bindings wait for a member
		g.mu.Lock()
		for _, b := range bs {
			g.parked = append(g.parked, parked{k.topic, b})
		}
		g.mu.Unlock()
	}
	if len(ops) > 0 {
		at, err := st.Operate(ops)
		if err != nil {
			return fmt.Errorf("detach the groups of the last run: %w", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := st.WaitApplied(ctx, at); err != nil {
			return fmt.Errorf("wait for the detach of the groups of the last run: %w", err)
		}
	}
	s.started.Store(true)
	for k, vs := range spans {
		s.dropVolatile(s.group(k.group, true), k.topic, vs)
	}
	s.done.Add(2)
	go s.flushLoop()
	go s.tickLoop()
	return nil
}

// Drain stops posting and waits until every delivery is answered or out of time, or ctx ends. Transports call it before
// they close their connections.
func (s *Service) Drain(ctx context.Context) {
	s.draining.Store(true)
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for s.unanswered() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// Stop closes what sessions are left, detaches every group, writes every outcome and cursor, and ends the service's
// goroutines. The store may be closed afterwards.
func (s *Service) Stop(ctx context.Context) error {
	if !s.started.Load() {
		return nil
	}
	s.draining.Store(true)
	s.mu.Lock()
	if s.mu.stopping {
		s.mu.Unlock()
		return nil
	}
	s.mu.stopping = true
	left := make([]*Session, 0, len(s.mu.sessions))
	for se := range s.mu.sessions {
		left = append(left, se)
	}
	s.mu.Unlock()
	for _, se := range left {
		se.Close()
	}
	idle := make(chan struct{})
	go func() { // ends with the detaches, each of which is one append
		s.work.Wait()
		close(idle)
	}()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = fmt.Errorf("notify: groups not detached in time: %w", ctx.Err())
	}
	close(s.quit)
	s.done.Wait()
	<-idle
	if flushErr := s.flush(true); flushErr != nil {
		err = errors.Join(err, flushErr)
	}
	return err
}

// group returns the group of this name; made when it is missing and create is set.
func (s *Service) group(name string, create bool) *group {
	s.mu.RLock()
	g := s.mu.groups[name]
	s.mu.RUnlock()
	if g != nil || !create {
		return g
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g = s.mu.groups[name]; g == nil {
		g = newGroup(s, name)
		s.mu.groups[name] = g
	}
	return g
}

// everyGroup returns the groups as they are now.
func (s *Service) everyGroup() []*group {
	s.mu.RLock()
	defer s.mu.RUnlock()
	gs := make([]*group, 0, len(s.mu.groups))
	for _, g := range s.mu.groups {
		gs = append(gs, g)
	}
	return gs
}

func (s *Service) unanswered() int {
	n := 0
	for _, g := range s.everyGroup() {
		g.mu.Lock()
		n += g.d.Unanswered()
		g.mu.Unlock()
	}
	return n
}

// now is the service's clock in milliseconds since 1970.
func (s *Service) now() int64 { return s.o.Now().UnixMilli() }

// poke wakes the one reader of a channel of capacity one; a second poke before it looks is the same one.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
