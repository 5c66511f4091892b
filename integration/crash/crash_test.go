package crash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/raw"
)

const (
	messages    = 100_000 // acknowledged in a run, at least
	connections = 8
	inFlight    = 2048  // unanswered on each connection
	unanswered  = 1_000 // at the moment of the kill, at least
)

// sending is 8 pipelined connections that send a load's messages.
type sending struct {
	senders []*raw.Sender
	cut     atomic.Int64 // sends whose connection ended before an answer
	refused atomic.Pointer[error]
	wg      sync.WaitGroup
	stop    chan struct{}
}

// send starts to send until total messages are acknowledged, stop is closed or the server is gone; rate bounds the messages a second, 0 is no bound.
func (l *load) send(total, rate int) *sending {
	l.t.Helper()
	x := &sending{stop: make(chan struct{})}
	for range connections {
		sender, err := raw.NewSender(l.s.Addr["broker"], "crash")
		if err != nil {
			l.t.Fatalf("seed %d: %v", l.seed, err)
		}
		x.senders = append(x.senders, sender)
	}
	_, acked, _, _ := l.counts()
	var left atomic.Int64
	left.Store(int64(total - acked))
	for _, sender := range x.senders {
		x.wg.Go(func() {
			slots := make(chan struct{}, inFlight)
			defer func() {
				for range cap(slots) {
					slots <- struct{}{}
				}
			}()
			began := time.Now()
			for k := 1; left.Add(-1) >= 0; k++ {
				if rate > 0 {
					due := time.Duration(k) * time.Second * connections / time.Duration(rate)
					time.Sleep(due - time.Since(began))
				}
				select {
				case slots <- struct{}{}:
				case <-x.stop:
					return
				case <-sender.C.Gone():
					return
				}
				n, body := l.next()
				sender.Go(l.topic, n%l.queues, body, func(at raw.Sent, err error) {
					switch {
					case errors.Is(err, raw.ErrClosed):
						x.cut.Add(1)
					case err != nil && !errors.Is(err, raw.ErrNotSent):
						x.refused.Store(&err)
					}
					l.answered(n, at, err)
					<-slots
				})
			}
		})
	}
	return x
}

// waiting is how many sends have no answer now.
func (x *sending) waiting() (n int) {
	for _, s := range x.senders {
		n += s.C.Waiting()
	}
	return n
}

// end waits for the senders and fails the test when a send was refused.
func (x *sending) end(t *testing.T) {
	t.Helper()
	x.wg.Wait()
	for _, s := range x.senders {
		s.C.Close()
	}
	if e := x.refused.Load(); e != nil {
		t.Errorf("a send was refused: %v", *e)
	}
}

// Law 4 and law 5: what was acknowledged is kept over kill -9, where its answer said, and reaches the push group.
func TestLaws4And5AcknowledgedSurvivesKill9(t *testing.T) {
	for _, seed := range seeds(t) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { killOnce(t, seed) })
	}
}

func killOnce(t *testing.T, seed uint64) {
	t.Logf("seed %d (CRASH_SEED=%d repeats it)", seed, seed)
	r := rand.New(rand.NewPCG(seed, 0))
	queues := 1 + r.IntN(8)
	killAt := messages/5 + r.IntN(messages*3/5)
	l := newLoad(t, seed, "Crash", queues)
	l.serve()
	sub := l.subscribe()

	first := l.send(40*messages, 0) // the kill ends it
	// Answers that are on their way still arrive after the kill, so more than the least number must wait. Where the broker is so quick that so many
	// rarely do, fewer have to be enough.
	if !l.wait(quiet, func() bool {
		enough := 8 * unanswered
		if l.acked >= killAt+2*messages {
			enough = 4 * unanswered
		}
		return l.acked >= killAt && first.waiting() >= enough
	}) {
		_, acked, _, _ := l.counts()
		t.Fatalf("seed %d: no answer for %s, %d acknowledged, %d waiting", seed, quiet, acked, first.waiting())
	}
	l.s.Kill()
	first.end(t)
	sub.Close()
	_, acked, pushed, _ := l.counts()
	t.Logf("seed %d: killed after %d answers with %d sends unanswered, %d pushed, %d queues", seed, acked, first.cut.Load(), pushed, queues)
	if n := first.cut.Load(); n < unanswered {
		t.Errorf("seed %d: only %d sends were unanswered at the kill, want %d", seed, n, unanswered)
	}

	began := time.Now()
	l.serve()
	t.Logf("seed %d: serves again after %s", seed, time.Since(began).Round(time.Millisecond))
	l.kept()
	defer l.subscribe().Close()
	second := l.send(max(messages, acked+messages/10), 0) // the rest: the store goes on where it was
	second.end(t)
	l.kept()
	l.settled()
}
