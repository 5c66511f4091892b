package main

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
	"github.com/fusionmq/fusionmq/integration/internal/raw"
)

// target is a broker, ours or a peer.
type target struct {
	name   string
	broker string // address
	pid    int
	server *proc.Server // nil for a peer, which does not say what it allocates
	speaks protocol
}

// protocol is how a load reaches a target.
type protocol interface {
	create(addr, topic string, queues int) error
	sender(addr string) (s sender, stop func(), err error)
}

// sender sends over one connection without waiting; done runs on the connection's reader.
type sender interface {
	Go(topic string, queue int, body []byte, done func(raw.Sent, error))
}

// remoting is RocketMQ's protocol.
type remoting struct{}

func (remoting) create(addr, topic string, queues int) error {
	c, err := raw.Dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	return raw.CreateTopic(c, topic, queues)
}

func (remoting) sender(addr string) (sender, func(), error) {
	s, err := raw.NewSender(addr, "bench")
	if err != nil {
		return nil, nil, err
	}
	return s, s.C.Close, nil
}

// mallocs is how many objects the broker has allocated since its start; 0 for a peer.
func (t *target) mallocs() (float64, error) {
	if t.server == nil {
		return 0, nil
	}
	return metric(t.server, "go_memstats_mallocs_total")
}

// cell is what one load on one target gave: the medians over the windows.
type cell struct {
	rate    float64 // messages a second
	cpu     float64 // microseconds of the broker a message
	allocs  float64 // objects that the broker allocated for a message
	foreign float64 // cores that other processes used in the loudest window
	errs    int64   // sends that were refused, such as RocketMQ's "broker busy"; they are in no rate
}

const connections = 4 // of every load, as the peers' comparison has it

// load is a running load that counts what it has done.
type load struct {
	n    atomic.Int64
	errs atomic.Int64
	last atomic.Pointer[error]
	quit atomic.Bool
	wg   sync.WaitGroup
}

func (l *load) done(err error) {
	if err != nil {
		l.errs.Add(1)
		l.last.Store(&err)
		return
	}
	l.n.Add(1)
}

// stop ends the load and waits for what is in flight.
func (l *load) stop() {
	l.quit.Store(true)
	l.wg.Wait()
}

// windows measures a running load.
func (b *bench) windows(l *load, t *target, warm time.Duration) (cell, error) {
	time.Sleep(warm)
	var rates, cpus []float64
	foreign := 0.0
	first := l.n.Load()
	before, err := t.mallocs()
	if err != nil {
		return cell{}, err
	}
	for range b.runs {
		others := b.foreign(t.pid)
		n0, u0, t0 := l.n.Load(), cpuOf(t.pid), time.Now()
		time.Sleep(b.window)
		n, took := l.n.Load()-n0, time.Since(t0)
		if n == 0 {
			if e := l.last.Load(); e != nil {
				return cell{}, *e
			}
			return cell{}, fmt.Errorf("nothing was done in %s", b.window)
		}
		rates = append(rates, float64(n)/took.Seconds())
		cpus = append(cpus, (cpuOf(t.pid)-u0).Seconds()*1e6/float64(n))
		foreign = max(foreign, others())
	}
	after, err := t.mallocs()
	if err != nil {
		return cell{}, err
	}
	c := cell{rate: median(rates), cpu: median(cpus), allocs: (after - before) / float64(l.n.Load()-first), errs: l.errs.Load(), foreign: foreign}
	if c.errs > 0 {
		fmt.Printf("%d sends were refused, the last: %v\n", c.errs, *l.last.Load())
	}
	return c, nil
}

func cpuOf(pid int) time.Duration {
	u, err := proc.UsageOf(pid)
	if err != nil {
		return 0
	}
	return u.CPU
}

func median(v []float64) float64 {
	s := append([]float64(nil), v...)
	sort.Float64s(s)
	return s[len(s)/2]
}

var topics atomic.Int64

// newTopic makes a topic that no other cell uses.
func (t *target) newTopic(queues int) (string, error) {
	topic := fmt.Sprintf("bench-%x-%d", time.Now().UnixMilli()&0xffffffff, topics.Add(1))
	return topic, t.speaks.create(t.broker, topic, queues)
}

func randomBody(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

func (t *target) senders() ([]sender, func(), error) {
	var all []sender
	var stops []func()
	stop := func() {
		for _, f := range stops {
			f()
		}
	}
	for range connections {
		s, end, err := t.speaks.sender(t.broker)
		if err != nil {
			stop()
			return nil, nil, err
		}
		all, stops = append(all, s), append(stops, end)
	}
	return all, stop, nil
}

// pipelined keeps inflight messages unanswered over the connections, at most total of them when total is not zero.
func pipelined(senders []sender, topics []string, queues, inflight, size int, total int64) *load {
	l := &load{}
	var taken atomic.Int64
	for k, s := range senders {
		slots := make(chan struct{}, max(inflight/len(senders), 1))
		done := func(_ raw.Sent, err error) {
			l.done(err)
			<-slots
		}
		l.wg.Go(func() {
			body := randomBody(size)
			first := k * len(topics) / len(senders) // each begins in a part of its own, so that they do not walk the topics abreast
			for i := k; !l.quit.Load(); i++ {
				if total > 0 && taken.Add(1) > total {
					break
				}
				slots <- struct{}{}
				if size >= 8 {
					binary.BigEndian.PutUint64(body, uint64(time.Now().UnixNano()))
				}
				s.Go(topics[(first+i)%len(topics)], i%queues, body, done)
			}
			for range cap(slots) { // the answers of what is in flight
				slots <- struct{}{}
			}
		})
	}
	return l
}

// waiting runs n senders of which each waits for its answer.
func waiting(senders []sender, topic string, queues, n, size int) *load {
	l := &load{}
	for i := range n {
		s := senders[i%len(senders)]
		l.wg.Go(func() {
			body := randomBody(size)
			answer := make(chan error, 1)
			done := func(_ raw.Sent, err error) { answer <- err }
			for q := i; !l.quit.Load(); q++ {
				s.Go(topic, q%queues, body, done)
				l.done(<-answer)
			}
		})
	}
	return l
}

// fill sends count messages as fast as the broker takes them. What it refuses is sent again, up to as many times as there are messages.
func (t *target) fill(topic string, queues, size int, count int64) error {
	senders, stop, err := t.senders()
	if err != nil {
		return err
	}
	defer stop()
	for left, tries := count, 2*count; left > 0; {
		l := pipelined(senders, []string{topic}, queues, 256, size, left)
		l.wg.Wait()
		left -= l.n.Load()
		if tries -= l.n.Load() + l.errs.Load(); tries <= 0 {
			return fmt.Errorf("fill: %d of %d messages were refused, the last: %w", left, count, *l.last.Load())
		}
	}
	return nil
}

const queues = 4

func (b *bench) pipelinedCell(t *target, inflight, size int, warm time.Duration) (cell, error) {
	topic, err := t.newTopic(queues)
	if err != nil {
		return cell{}, err
	}
	senders, stop, err := t.senders()
	if err != nil {
		return cell{}, err
	}
	defer stop()
	l := pipelined(senders, []string{topic}, queues, inflight, size, 0)
	defer l.stop()
	return b.windows(l, t, warm)
}

func (b *bench) waitingCell(t *target, n, size int, warm time.Duration) (cell, error) {
	topic, err := t.newTopic(queues)
	if err != nil {
		return cell{}, err
	}
	senders, stop, err := t.senders()
	if err != nil {
		return cell{}, err
	}
	defer stop()
	l := waiting(senders, topic, queues, n, size)
	defer l.stop()
	return b.windows(l, t, warm)
}

// catchUpCell reads a backlog of count messages with one connection and one outstanding pull a queue.
func (b *bench) catchUpCell(t *target, size int, count int64) (cell, error) {
	topic, err := t.newTopic(queues)
	if err != nil {
		return cell{}, err
	}
	if err := t.fill(topic, queues, size, count); err != nil {
		return cell{}, err
	}
	before, err := t.mallocs()
	if err != nil {
		return cell{}, err
	}
	var rates, cpus []float64
	foreign := 0.0
	for range b.runs {
		c, err := raw.Dial(t.broker)
		if err != nil {
			return cell{}, err
		}
		others := b.foreign(t.pid)
		u0, t0 := cpuOf(t.pid), time.Now()
		n, err := drain(c, topic, count)
		took, used := time.Since(t0), cpuOf(t.pid)-u0
		foreign = max(foreign, others())
		c.Close()
		if err != nil {
			return cell{}, err
		}
		rates = append(rates, float64(n)/took.Seconds())
		cpus = append(cpus, used.Seconds()*1e6/float64(n))
	}
	after, err := t.mallocs()
	return cell{rate: median(rates), cpu: median(cpus), allocs: (after - before) / float64(count*int64(b.runs)), foreign: foreign}, err
}

// drain pulls all queues of topic until count messages came.
func drain(c *raw.Conn, topic string, count int64) (int64, error) {
	var got atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, queues)
	deadline := time.Now().Add(2 * time.Minute)
	for q := range queues {
		wg.Go(func() {
			var next int64
			for got.Load() < count && time.Now().Before(deadline) {
				before := next
				n, err := raw.Pull(c, "bench-"+topic, topic, q, next, 0, func(raw.Message) { got.Add(1) })
				if err != nil {
					errs <- err
					return
				}
				if next = n; next == before {
					return // the end of this queue
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return 0, err
	default:
	}
	if n := got.Load(); n < count {
		return n, fmt.Errorf("%d of %d messages in two minutes", n, count)
	}
	return got.Load(), nil
}
