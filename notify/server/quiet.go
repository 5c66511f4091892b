package server

import (
	"log/slog"
	"sync"
	"time"
)

// quiet prints a warning at most once a second for each message and says how many it kept back, so that a port scan
// does not become a log flood.
type quiet struct {
	log *slog.Logger

	mu   sync.Mutex
	last map[string]kept
}

type kept struct {
	at time.Time
	n  int
}

func (q *quiet) warn(msg string, args ...any) {
	now := time.Now()
	q.mu.Lock()
	k := q.last[msg]
	if now.Sub(k.at) < time.Second {
		k.n++
		q.last[msg] = k
		q.mu.Unlock()
		return
	}
	if q.last == nil {
		q.last = make(map[string]kept)
	}
	q.last[msg] = kept{at: now}
	q.mu.Unlock()
	if k.n > 0 {
		args = append(args, "repeats", k.n)
	}
	q.log.Warn(msg, args...)
}
