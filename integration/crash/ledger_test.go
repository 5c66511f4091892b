package crash

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/raw"
	"github.com/fusionmq/fusionmq/sdk-go/notify"
)

// ledger remembers every message of a run: what was sent, what was acknowledged and where, and how often it was pushed.
// The number of a message is the first 8 bytes of its body.
type ledger struct {
	seed uint64

	mu     sync.Mutex
	sent   []entry       // by number
	acked  int           // entries with an answer
	pushed int           // entries with at least one delivery
	again  int           // deliveries beyond the first of an entry
	wrong  []string      // what must never be seen, the first few
	moved  chan struct{} // closed and replaced at every change that a waiter may wait for
}

type entry struct {
	hash    [32]byte
	at      raw.Sent
	acked   bool
	pushes  int
	unknown bool // the connection ended before an answer: it may be there or not
}

func newLedger(seed uint64) *ledger { return &ledger{seed: seed, moved: make(chan struct{})} }

// next makes a message of 16 to 2,000 bytes that depends on seed and number only.
func (l *ledger) next() (n int, body []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = len(l.sent)
	body = l.body(n)
	l.sent = append(l.sent, entry{hash: sha256.Sum256(body)})
	return n, body
}

func (l *ledger) body(n int) []byte {
	r := rand.New(rand.NewPCG(l.seed, uint64(n)))
	body := make([]byte, 16+r.IntN(1985))
	binary.BigEndian.PutUint64(body, uint64(n))
	for i := 8; i < len(body); i++ {
		body[i] = byte(r.Uint32())
	}
	return body
}

// answered notes the outcome of a send.
func (l *ledger) answered(n int, at raw.Sent, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.sent[n].unknown = true
		return
	}
	l.sent[n].acked, l.sent[n].at = true, at
	l.acked++
	l.wakeLocked()
}

func (l *ledger) wakeLocked() {
	close(l.moved)
	l.moved = make(chan struct{})
}

// handle notes a push.
func (l *ledger) handle(m *notify.Message) {
	body := m.Body
	l.mu.Lock()
	defer l.mu.Unlock()
	n, ok := l.checkLocked(body)
	if !ok {
		l.wrongLocked("pushed: a body that was never sent, %d bytes", len(body))
		return
	}
	if l.sent[n].pushes++; l.sent[n].pushes == 1 {
		l.pushed++
		l.wakeLocked()
	} else {
		l.again++
	}
}

// checkLocked finds the number of a body and whether it is the one that was sent under it.
func (l *ledger) checkLocked(body []byte) (n int, ok bool) {
	if len(body) < 16 {
		return 0, false
	}
	num := binary.BigEndian.Uint64(body)
	if num >= uint64(len(l.sent)) {
		return 0, false
	}
	return int(num), sha256.Sum256(body) == l.sent[num].hash
}

func (l *ledger) wrongLocked(format string, args ...any) {
	if len(l.wrong) < 10 {
		l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
	}
}

// complain notes what must never be seen.
func (l *ledger) complain(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrongLocked(format, args...)
}

// wait returns when done says so, or false after limit without any change.
func (l *ledger) wait(limit time.Duration, done func() bool) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		l.mu.Lock()
		ok, moved := done(), l.moved
		l.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-moved:
			timer.Reset(limit)
		case <-timer.C:
			return false
		}
	}
}

func (l *ledger) counts() (sent, acked, pushed, again int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.sent), l.acked, l.pushed, l.again
}

// allPushed waits until every acknowledged message has reached the push group.
func (l *ledger) allPushed(t *testing.T, limit time.Duration) {
	t.Helper()
	missing := func() (n, first int) {
		first = -1
		for i := range l.sent {
			if e := &l.sent[i]; e.acked && e.pushes == 0 {
				if n++; first < 0 {
					first = i
				}
			}
		}
		return n, first
	}
	if !l.wait(limit, func() bool { n, _ := missing(); return n == 0 }) {
		l.mu.Lock()
		defer l.mu.Unlock()
		n, first := missing()
		t.Errorf("seed %d: %d acknowledged messages never reached the push group, the first is number %d at queue %d offset %d; no new one came for %s",
			l.seed, n, first, l.sent[first].at.Queue, l.sent[first].at.Offset, limit)
	}
}

// verify pulls every queue from its start and compares it with the ledger.
func (l *ledger) verify(t *testing.T, broker, topic string, queues int) {
	t.Helper()
	c, err := raw.Dial(broker)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	type place struct {
		queue  int32
		offset int64
	}
	found := map[place]int{} // number of the message
	extra := 0
	for q := range queues {
		var next, want int64
		for {
			before := next
			next, err = raw.Pull(c, "verify", topic, q, next, 0, func(m raw.Message) {
				l.mu.Lock()
				defer l.mu.Unlock()
				if m.QueueOffset != want || m.Queue != int32(q) {
					l.wrongLocked("queue %d: a record says queue %d offset %d where offset %d belongs", q, m.Queue, m.QueueOffset, want)
				}
				want = m.QueueOffset + 1
				n, ok := l.checkLocked(m.Body)
				if !ok {
					l.wrongLocked("queue %d offset %d: a body that was never sent, %d bytes", q, m.QueueOffset, len(m.Body))
					return
				}
				found[place{m.Queue, m.QueueOffset}] = n
				if !l.sent[n].acked {
					extra++
				}
			})
			if err != nil {
				t.Fatalf("seed %d: pull queue %d from %d: %v", l.seed, q, before, err)
			}
			if next == before {
				break
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := 0
	for n := range l.sent {
		e := &l.sent[n]
		if !e.acked {
			continue
		}
		at, ok := found[place{e.at.Queue, e.at.Offset}]
		if ok && at == n {
			continue
		}
		if lost++; lost <= 5 {
			t.Errorf("seed %d: number %d was acknowledged at queue %d offset %d, which holds %v", l.seed, n, e.at.Queue, e.at.Offset, map[bool]any{true: at, false: "nothing"}[ok])
		}
	}
	if lost > 0 {
		t.Errorf("seed %d: %d of %d acknowledged messages are not where their answer said", l.seed, lost, l.acked)
	}
	t.Logf("seed %d: %d acknowledged and in place, %d stored without an answer", l.seed, l.acked-lost, extra)
}

// noneWrong fails the test for everything that must never be seen.
func (l *ledger) noneWrong(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.wrong {
		t.Errorf("seed %d: %s", l.seed, w)
	}
}
