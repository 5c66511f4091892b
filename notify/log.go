package notify

import (
	"log/slog"
	"sync"
	"time"
)

// limitedLog prints the same message at most once a second and says how many it kept back.
type limitedLog struct {
	log *slog.Logger
	now func() time.Time

	mu struct {
		sync.Mutex
		last map[string]*repeated
	}
}

type repeated struct {
	at   time.Time
	kept int
}

func (l *limitedLog) warn(msg string, args ...any) { l.print(slog.LevelWarn, msg, args) }
func (l *limitedLog) info(msg string, args ...any) { l.print(slog.LevelInfo, msg, args) }

func (l *limitedLog) print(level slog.Level, msg string, args []any) {
	now := l.now()
	l.mu.Lock()
	r := l.mu.last[msg]
	if r == nil {
		if l.mu.last == nil {
			l.mu.last = make(map[string]*repeated)
		}
		r = &repeated{}
		l.mu.last[msg] = r
	}
	if now.Sub(r.at) < time.Second {
		r.kept++
		l.mu.Unlock()
		return
	}
	kept := r.kept
	r.at, r.kept = now, 0
	l.mu.Unlock()
	if kept > 0 {
		args = append(args, "repeats", kept)
	}
	l.log.Log(nil, level, msg, args...) //nolint:staticcheck // slog takes no context here
}
