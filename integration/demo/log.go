package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// The paths of a message.
const (
	byPush = "push"
	byPull = "pull"
)

// sent is a message as its producer knows it; what arrives must be the same.
type sent struct {
	id         string // 32 lower-case hex digits; RocketMQ's clients write either case
	from       string // "rocketmq" or "notify"
	tag        string
	keys       map[string]string // by path: a Notify message has none of its own, and its id becomes its key for RocketMQ
	colour     string
	body       [32]byte // hash
	size       int
	compressed bool // by the producer
	at         time.Time
}

// arrival is a delivery as a consumer sees it, body decompressed.
type arrival struct {
	id, tag, keys, colour string
	body                  []byte
	at                    time.Time
}

// log keeps what was sent and what arrived by each path; arrivals may come before the producer knows the id.
type log struct {
	mu      sync.Mutex
	sent    []sent
	arrived map[string]map[string][]arrival // path, id
	moved   chan struct{}
}

func newLog() *log {
	return &log{arrived: map[string]map[string][]arrival{byPush: {}, byPull: {}}, moved: make(chan struct{})}
}

func (l *log) addSent(s sent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = append(l.sent, s)
}

func (l *log) add(path string, a arrival) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.body = slices.Clone(a.body)
	l.arrived[path][a.id] = append(l.arrived[path][a.id], a)
	close(l.moved)
	l.moved = make(chan struct{})
}

// missingLocked counts messages that have not arrived by some path.
func (l *log) missingLocked() (n int) {
	for _, s := range l.sent {
		for _, path := range []string{byPush, byPull} {
			if len(l.arrived[path][s.id]) == 0 {
				n++
			}
		}
	}
	return n
}

// wait returns when everything sent has arrived by both paths.
func (l *log) wait(ctx context.Context) error {
	for {
		l.mu.Lock()
		n, moved := l.missingLocked(), l.moved
		l.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("%d deliveries are missing: %w", n, ctx.Err())
		}
	}
}

// check compares an arrival with what was sent.
func (s *sent) check(path string, a arrival) error {
	switch {
	case sha256.Sum256(a.body) != s.body:
		return fmt.Errorf("its body of %d bytes is not the one of %d bytes that was sent", len(a.body), s.size)
	case a.tag != s.tag:
		return fmt.Errorf("its tag is %q, sent was %q", a.tag, s.tag)
	case a.keys != s.keys[path]:
		return fmt.Errorf("its keys are %q, sent were %q", a.keys, s.keys[path])
	case a.colour != s.colour:
		return fmt.Errorf("its property colour is %q, sent was %q", a.colour, s.colour)
	}
	return nil
}

// report prints a line for each message and path, then the summary. The error says what is missing or changed.
func (l *log) report(out io.Writer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	tw := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "id\tpath\tbytes\tlatency\t")
	missing, changed, repeats, deliveries := 0, 0, 0, 0
	for i := range l.sent {
		s := &l.sent[i]
		size := fmt.Sprint(s.size)
		if s.compressed {
			size += " compressed"
		}
		for _, path := range []string{byPush, byPull} {
			got := l.arrived[path][s.id]
			how := s.from + " to " + path
			if len(got) == 0 {
				missing++
				fmt.Fprintf(tw, "%s\t%s\t%s\tMISSING\t\n", s.id, how, size)
				continue
			}
			deliveries++
			repeats += len(got) - 1
			note := ""
			if len(got) > 1 {
				note = fmt.Sprintf("%d times", len(got))
			}
			if err := s.check(path, got[0]); err != nil {
				changed++
				note = "CHANGED: " + err.Error()
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t%.1f ms\t%s\n", s.id, how, size, float64(got[0].at.Sub(s.at).Microseconds())/1000, note)
		}
	}
	_ = tw.Flush()
	fmt.Fprintf(out, "\n%d messages, %d deliveries, %d missing, %d changed, %d repeats\n", len(l.sent), deliveries, missing, changed, repeats)
	if missing+changed > 0 || len(l.sent) == 0 {
		return fmt.Errorf("%d deliveries missing, %d changed of %d messages", missing, changed, len(l.sent))
	}
	return nil
}
