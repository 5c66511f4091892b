// Package lifecycle starts the parts of a process in order and stops them in the opposite order.
//
// A [Group] knows nothing of what its parts do. It promises that a part stops exactly once when its Start returned nil and
// never otherwise, that a failed start leaves nothing running, and that one part that cannot stop does not keep the others
// from stopping.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Part is one thing that runs between its Start and its Stop. Either may be nil.
type Part struct {
	Name string
	// Start returns when the part does its work, or with an error and nothing left behind. It may use what the parts before it have started.
	Start func(ctx context.Context) error
	// Stop ends the part. When ctx ends first it gives up what it still waits for and returns; what must be kept is kept all the same.
	Stop func(ctx context.Context) error
}

// Group is a sequence of parts. Start and Stop may be called from different goroutines; each runs alone.
type Group struct {
	mu struct {
		sync.Mutex
		parts   []Part
		started int // parts[:started] run
	}
}

// New makes a group that starts parts from first to last.
func New(parts ...Part) *Group {
	g := &Group{}
	g.mu.parts = parts
	return g
}

// failedStop is how long the parts of a start that failed may take to stop.
const failedStop = 5 * time.Second

// Start starts every part. At the first error, or when ctx has ended between two parts, it stops those that run and returns the error.
func (g *Group) Start(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.mu.parts[g.mu.started:] {
		err := context.Cause(ctx)
		if err == nil && p.Start != nil {
			err = p.Start(ctx)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", p.Name, err)
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), failedStop)
			defer cancel()
			return errors.Join(append([]error{err}, g.stopLocked(stop)...)...)
		}
		g.mu.started++
	}
	return nil
}

// Stop stops every part that runs, the last one first, and returns what went wrong. A second call finds nothing to stop.
func (g *Group) Stop(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return errors.Join(g.stopLocked(ctx)...)
}

func (g *Group) stopLocked(ctx context.Context) (errs []error) {
	for g.mu.started > 0 {
		g.mu.started--
		p := g.mu.parts[g.mu.started]
		if p.Stop == nil {
			continue
		}
		if err := p.Stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", p.Name, err))
		}
	}
	return errs
}
