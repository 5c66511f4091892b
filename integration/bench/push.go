package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
	"github.com/fusionmq/fusionmq/integration/internal/push"
	"github.com/fusionmq/fusionmq/integration/internal/raw"
	"github.com/fusionmq/fusionmq/integration/internal/rawpush"
	"github.com/fusionmq/fusionmq/sdk-go/notify"
)

const (
	idleRate    = 200 // messages a second that leave a broker idle between two
	subscribers = 16
	backlog     = 400_000
)

// pushBudgets measures the push path: latency at rest and under load, and how fast a group catches up.
func (b *bench) pushBudgets() error {
	s, ours, err := b.startServer("push")
	if err != nil {
		return err
	}
	defer s.Kill()
	if err := b.latencyBudgets(s, ours); err != nil {
		return fmt.Errorf("latency: %w", err)
	}
	return b.catchUpBudget(s, ours)
}

// subscriber connects a member of a group to the address of a face.
type subscriber func(addr, group, topic string, handle func(body []byte)) (closer, error)

// bareClient reads frames and acknowledges them, nothing else: what it gets is what the broker can do.
func bareClient(addr, group, topic string, handle func([]byte)) (closer, error) {
	return rawpush.Subscribe(addr, group, topic, pushWindow, handle)
}

// sdkClient is the client that people use.
func sdkClient(addr, group, topic string, handle func([]byte)) (closer, error) {
	return push.Subscribe(addr, group, topic, func(m *notify.Message) { handle(m.Body) })
}

// live is one producer and one push subscriber on a topic of their own.
type live struct {
	topic  string
	sender sender
	hangUp func() // ends the sender's connection
	sub    closer
	got    atomic.Int64
	h      atomic.Pointer[histogram]
}

func (b *bench) live(addr string, t *target, subscribe subscriber) (*live, error) {
	topic, err := t.newTopic(queues)
	if err != nil {
		return nil, err
	}
	l := &live{topic: topic}
	l.h.Store(new(histogram))
	if l.sub, err = subscribe(addr, "S-"+topic, topic, func(body []byte) {
		l.h.Load().add(time.Duration(time.Now().UnixNano() - int64(binary.BigEndian.Uint64(body))))
		l.got.Add(1)
	}); err != nil {
		return nil, err
	}
	if l.sender, l.hangUp, err = t.speaks.sender(t.broker); err != nil {
		l.sub.Close()
		return nil, err
	}
	return l, nil
}

func (l *live) close() {
	l.hangUp()
	l.sub.Close()
}

// paced sends at a rate for d and returns the quantiles from just before the send to the subscriber's handler.
func (l *live) paced(rate float64, d time.Duration) (p50, p99 time.Duration, err error) {
	l.h.Store(new(histogram))
	before := l.got.Load()
	var failed atomic.Pointer[error]
	slots := make(chan struct{}, 2048) // no producer leaves more unanswered
	done := func(_ raw.Sent, err error) {
		if err != nil {
			failed.Store(&err)
		}
		<-slots
	}
	body, q := randomBody(pushSize), 0
	n, err := paced(rate, d, func() error {
		slots <- struct{}{}
		binary.BigEndian.PutUint64(body, uint64(time.Now().UnixNano()))
		q++
		l.sender.Go(l.topic, q%queues, body, done)
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	if !l.arrived(before+n, 20*time.Second) {
		return 0, 0, fmt.Errorf("%d of %d messages arrived", l.got.Load()-before, n)
	}
	if e := failed.Load(); e != nil {
		return 0, 0, *e
	}
	h := l.h.Load()
	return h.quantile(0.5), h.quantile(0.99), nil
}

// arrived waits until the subscriber has got n messages in all.
func (l *live) arrived(n int64, limit time.Duration) bool {
	for end := time.Now().Add(limit); l.got.Load() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// most is how many messages a second go from the producer to the subscriber when the producer keeps 256 in flight and never runs more
// than 2,000 ahead of the subscriber.
func (l *live) most(d time.Duration) float64 {
	const ahead = 2000
	slots := make(chan struct{}, 256)
	done := func(raw.Sent, error) { <-slots }
	body := randomBody(pushSize)
	base := l.got.Load()
	start, sent := time.Now(), int64(0)
	for time.Since(start) < d {
		for sent-(l.got.Load()-base) > ahead && time.Since(start) < d {
			time.Sleep(100 * time.Microsecond)
		}
		slots <- struct{}{}
		binary.BigEndian.PutUint64(body, uint64(time.Now().UnixNano()))
		l.sender.Go(l.topic, int(sent%queues), body, done)
		sent++
	}
	rate := float64(l.got.Load()-base) / time.Since(start).Seconds()
	l.arrived(base+sent, 20*time.Second)
	return rate
}

func (b *bench) latencyBudgets(s *proc.Server, t *target) error {
	echo, err := startBare(bareEcho)
	if err != nil {
		return err
	}
	defer echo.stop()
	l, err := b.live(s.Addr["notify"], t, bareClient)
	if err != nil {
		return err
	}
	defer l.close()
	if _, _, err := l.paced(idleRate, b.warm); err != nil { // the subscriber is attached, the code warm
		return err
	}
	most := l.most(b.window)
	b.table.reported("push throughput, live beside a producer, 1 KiB, one connection each", quantity(most, "/s"), "")
	// Echo and push take turns, so that whatever else the machine does meets both; the median window counts.
	for _, c := range []struct {
		name string
		rate float64
		want float64
	}{
		{fmt.Sprintf("push p99 at rest (%d/s), against a bare framed echo at that rate", idleRate), idleRate, 5},
		{fmt.Sprintf("push p99 at 70%% load (%s), against a bare framed echo at that rate", quantity(0.7*most, "/s")), 0.7 * most, 10},
	} {
		var ours, bare, half []float64
		loud := 0.0
		for range b.runs {
			others := b.foreign(t.pid, echo.cmd.Process.Pid)
			_, e99, err := echoLatency(echo.addr, c.rate, pushSize, b.window)
			if err != nil {
				return err
			}
			p50, p99, err := l.paced(c.rate, b.window)
			if err != nil {
				return fmt.Errorf("at %s: %w", quantity(c.rate, "/s"), err)
			}
			loud = max(loud, others())
			ours, bare, half = append(ours, p99.Seconds()*1e3), append(bare, e99.Seconds()*1e3), append(half, p50.Seconds()*1e3)
		}
		fmt.Printf("push p50 %.3f ms, p99 %.3f ms, echo p99 %.3f ms (others: %.2f cores)\n", median(half), ours, bare, loud)
		b.table.atMost(c.name, median(ours), median(bare), c.want, "ms")
	}
	return nil
}

// catchUpBudget lets a group go away, stores a backlog and measures how fast its members get it when they come back.
func (b *bench) catchUpBudget(s *proc.Server, t *target) error {
	bare, err := startBare(barePush)
	if err != nil {
		return err
	}
	defer bare.stop()
	var ours, base, sdk []float64
	var last, library caught
	loud := 0.0
	for range b.runs {
		others := b.foreign(t.pid, bare.cmd.Process.Pid)
		r, err := barePushRate(bare.addr, subscribers, backlog)
		if err != nil {
			return err
		}
		if last, err = b.catchUp(s, t, bareClient); err != nil {
			return err
		}
		if library, err = b.catchUp(s, t, sdkClient); err != nil {
			return err
		}
		loud = max(loud, others())
		base, ours, sdk = append(base, r), append(ours, last.rate), append(sdk, library.rate)
	}
	fmt.Printf("catching up %.0f/s, bare %.0f/s, with sdk-go %.0f/s; broker %.2f us and client %.2f us a message, with sdk-go %.2f and %.2f (others: %.2f cores)\n",
		ours, base, sdk, last.broker, last.client, library.broker, library.client, loud)
	b.table.atLeast(fmt.Sprintf("push throughput catching up from the log, 1 KiB, %d connections, against bare framed push", subscribers), median(ours), median(base), 0.6, "/s")
	b.table.reported("the same with sdk-go's subscriber", quantity(median(sdk), "/s"), quantity(median(base), "/s"))
	b.table.below("push path, allocations a message (catching up)", last.allocs, 1, "")
	return nil
}

// caught is one catch-up: messages a second, allocations of the broker and microseconds of CPU a message.
type caught struct{ rate, allocs, broker, client float64 }

func (b *bench) catchUp(s *proc.Server, t *target, subscribe subscriber) (c caught, err error) {
	topic, err := t.newTopic(queues)
	if err != nil {
		return c, err
	}
	group := "S-" + topic
	sub, err := subscribe(s.Addr["notify"], group, topic, func([]byte) {})
	if err != nil {
		return c, err
	}
	sub.Close()
	if err := t.fill(topic, queues, pushSize, backlog); err != nil {
		return c, err
	}
	a0, err := t.mallocs()
	if err != nil {
		return c, err
	}
	var got, last atomic.Int64
	start, ours, mine := time.Now(), cpuOf(t.pid), cpuOf(os.Getpid())
	all := make([]closer, 0, subscribers)
	defer func() {
		for _, s := range all {
			s.Close()
		}
	}()
	for range subscribers {
		sub, err := subscribe(s.Addr["notify"], group, topic, func([]byte) {
			if got.Add(1) == backlog {
				last.Store(int64(time.Since(start)))
			}
		})
		if err != nil {
			return c, err
		}
		all = append(all, sub)
	}
	for end := time.Now().Add(time.Minute); last.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return c, fmt.Errorf("catching up: %d of %d messages in a minute", got.Load(), backlog)
		}
	}
	c.rate = backlog / time.Duration(last.Load()).Seconds()
	c.broker = float64((cpuOf(t.pid) - ours).Microseconds()) / backlog
	c.client = float64((cpuOf(os.Getpid()) - mine).Microseconds()) / backlog
	a1, err := t.mallocs()
	c.allocs = (a1 - a0) / backlog
	return c, err
}
