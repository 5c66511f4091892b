package crash

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
	"github.com/fusionmq/fusionmq/integration/internal/raw"
)

// soakRate bounds what a soak stores: messages a second, about 1 KiB each.
const soakRate = 5_000

// pulling reads every queue of a topic beside everything else, over restarts: what a reader has seen once must stay where it was.
type pulling struct {
	l    *ledger
	next []int64 // by queue: the offset that must come next
	got  atomic.Int64
}

// start reads until end is called or the server is gone; end waits for the readers.
func (p *pulling) start(s *proc.Server, topic string) (end func(), err error) {
	c, err := raw.Dial(s.Addr["broker"])
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	for q := range p.next {
		wg.Go(func() {
			for {
				next, err := raw.Pull(c, "soak", topic, q, p.next[q], 500*time.Millisecond, func(m raw.Message) { p.see(q, m) })
				switch {
				case errors.Is(err, raw.ErrClosed) || errors.Is(err, raw.ErrNotSent):
					return
				case err != nil: // a server that stops refuses
				case next < p.next[q]:
					p.l.complain("queue %d: a reader at offset %d is sent back to %d", q, p.next[q], next)
					return
				default:
					p.next[q] = next
				}
			}
		})
	}
	return func() {
		c.Close()
		wg.Wait()
	}, nil
}

func (p *pulling) see(q int, m raw.Message) {
	p.got.Add(1)
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if _, ok := p.l.checkLocked(m.Body); !ok {
		p.l.wrongLocked("pulled: queue %d offset %d holds a body that was never sent", q, m.QueueOffset)
	}
}

// TestSoakMixedLoadWithRestarts produces, pushes and pulls while the server is stopped and killed in turns, and checks everything at the end.
func TestSoakMixedLoadWithRestarts(t *testing.T) {
	seed := rand.Uint64N(1_000_000)
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	const queues = 4
	l := newLoad(t, seed, "Soak", queues)
	end := time.Now().Add(soakDuration(t))
	pull := &pulling{l: l.ledger, next: make([]int64, queues)}
	for round := 0; time.Now().Before(end); round++ {
		l.serve()
		sub := l.subscribe()
		span := min(time.Duration(1+r.IntN(8))*time.Second, max(time.Until(end), time.Second))
		sent, _, _, _ := l.counts()
		endPull, err := pull.start(l.s, l.topic)
		if err != nil {
			t.Fatalf("seed %d round %d: %v", seed, round, err)
		}
		x := l.send(100*messages, soakRate)
		timer := time.NewTimer(span)
		<-timer.C
		usage, err := l.s.Usage()
		if err != nil {
			t.Fatalf("seed %d round %d: the server is gone: %v\n%s", seed, round, err, l.s.Output())
		}
		if r.IntN(2) == 0 {
			l.s.Kill() // under the sends
		}
		close(x.stop)
		if code, took, err := l.s.Stop(10 * time.Second); code > 0 || err != nil { // -1: killed
			t.Fatalf("seed %d round %d: SIGTERM: exit %d after %s, %v", seed, round, code, took, err)
		}
		x.end(t)
		sub.Close()
		endPull()
		now, acked, pushed, again := l.counts()
		t.Logf("round %d: %s, %d sent, in all %d acknowledged, %d pushed, %d repeats, %d pulled, %d MiB anonymous memory",
			round, span.Round(time.Second), now-sent, acked, pushed, again, pull.got.Load(), usage.Anonymous>>20)
	}
	l.serve()
	l.kept()
	endPull, err := pull.start(l.s, l.topic)
	if err != nil {
		t.Fatal(err)
	}
	defer l.subscribe().Close()
	_, acked, _, _ := l.counts()
	for limit := time.Now().Add(quiet); pull.got.Load() < int64(acked); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Errorf("seed %d: %d acknowledged, but the reader of the queues saw only %d", seed, acked, pull.got.Load())
			break
		}
	}
	endPull()
	l.settled()
}
