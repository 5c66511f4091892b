package main

import (
	"fmt"
	"os"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
)

// side is one of several cells whose budget is a ratio near 1. They are measured in turn, a window each, so that whatever else the machine
// does meets all of them; the brokers of the others are idle meanwhile.
type side struct {
	name  string
	t     *target
	start func() (stop func(), l *load, err error) // begins the load; stop ends it and waits for what is in flight
}

// rounds of windows for a ratio near 1, which needs more than the coarse ones.
func (b *bench) rounds() int { return 2*b.runs - 1 }

// alternate measures all sides in rounds, each round the other way round than the one before. The cells hold the medians over the rounds.
func (b *bench) alternate(sides []side) ([]cell, error) {
	pids := make([]int, len(sides))
	for i, s := range sides {
		pids[i] = s.t.pid
	}
	rates, cpus := make([][]float64, len(sides)), make([][]float64, len(sides))
	cells := make([]cell, len(sides))
	for r := range b.rounds() {
		for i := range sides {
			if r%2 == 1 {
				i = len(sides) - 1 - i
			}
			w, err := b.window1(sides[i], b.warmOf(r), pids)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", sides[i].name, err)
			}
			rates[i], cpus[i] = append(rates[i], w.rate), append(cpus[i], w.cpu)
			cells[i].foreign = max(cells[i].foreign, w.foreign)
		}
	}
	for i, s := range sides {
		cells[i].rate, cells[i].cpu = median(rates[i]), median(cpus[i])
		fmt.Printf("%s: %s, %.2f us of the broker a message; rates %.0f, CPU %.2f (others: %.2f cores)\n",
			s.name, quantity(cells[i].rate, "/s"), cells[i].cpu, rates[i], cpus[i], cells[i].foreign)
	}
	return cells, nil
}

// warmOf is the load before a window: in full in the first round, then only until the load is steady.
func (b *bench) warmOf(round int) time.Duration {
	if round == 0 {
		return b.warm
	}
	return b.warm / 4
}

// window1 runs the load of one side for one window. pids are the brokers of all sides, whose use is nobody else's.
func (b *bench) window1(s side, warm time.Duration, pids []int) (c cell, err error) {
	stop, l, err := s.start()
	if err != nil {
		return c, err
	}
	defer stop()
	time.Sleep(warm)
	others := b.foreign(pids...)
	n0, u0, t0 := l.n.Load(), cpuOf(s.t.pid), time.Now()
	time.Sleep(b.window)
	n, used, took := float64(l.n.Load()-n0), cpuOf(s.t.pid)-u0, time.Since(t0)
	c.foreign = others()
	if c.errs = l.errs.Load(); c.errs > 0 {
		return c, fmt.Errorf("%d sends were refused, the last: %w", c.errs, *l.last.Load())
	}
	if n == 0 {
		return c, fmt.Errorf("nothing was done in %s", b.window)
	}
	c.rate, c.cpu = n/took.Seconds(), used.Seconds()*1e6/n
	return c, nil
}

// discard ends a broker and removes what it stored: at these rates a section leaves many gigabytes.
func discard(s *proc.Server) {
	s.Kill()
	_ = os.RemoveAll(s.Dir)
}

// running is a load over connections of its own.
func running(t *target, begin func([]sender) *load) func() (func(), *load, error) {
	return func() (func(), *load, error) {
		senders, closeAll, err := t.senders()
		if err != nil {
			return nil, nil, err
		}
		l := begin(senders)
		return func() {
			l.stop()
			closeAll()
		}, l, nil
	}
}

// sending is 256 messages in flight over topics with as many queues each.
func sending(t *target, topics []string, queues int) func() (func(), *load, error) {
	return running(t, func(s []sender) *load { return pipelined(s, topics, queues, 256, 1024, 0) })
}
