package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
)

// startServer starts the binary on a new directory below the scratch folder.
func (b *bench) startServer(name string, args ...string) (*proc.Server, *target, error) {
	s, err := proc.Start(b.server, filepath.Join(b.dir, name), args...)
	if err != nil {
		return nil, nil, err
	}
	return s, &target{name: "FusionMQ", broker: s.Addr["broker"], pid: s.Pid(), server: s, speaks: remoting{}}, nil
}

// loads are the cells that both brokers do.
var loads = []struct {
	name string
	cpu  float64 // bar: CPU a message, theirs / ours
	rate float64 // bar: messages a second, ours / theirs; 0 reports only
	run  func(b *bench, t *target, warm time.Duration) (cell, error)
}{
	{"256 in flight, 1 KiB", 6, 3.5, func(b *bench, t *target, warm time.Duration) (cell, error) {
		return b.pipelinedCell(t, 256, 1024, warm)
	}},
	{"64 waiting senders, 1 KiB", 6, 3.5, func(b *bench, t *target, warm time.Duration) (cell, error) { return b.waitingCell(t, 64, 1024, warm) }},
	{"one sender, 1 KiB", 3, 0, func(b *bench, t *target, warm time.Duration) (cell, error) { return b.waitingCell(t, 1, 1024, warm) }},
	{"catching up by pull, 128 B", 5, 0, func(b *bench, t *target, _ time.Duration) (cell, error) { return b.catchUpCell(t, 128, 400_000) }},
}

// sendBudgets measures the CPU that the broker spends on a message, and its rate, beside Apache RocketMQ when there is one.
func (b *bench) sendBudgets() error {
	s, ours, err := b.startServer("send")
	if err != nil {
		return err
	}
	mine := make([]cell, len(loads))
	for i, l := range loads {
		if mine[i], err = l.run(b, ours, b.warm); err != nil {
			s.Kill()
			return fmt.Errorf("%s: %w", l.name, err)
		}
		if mine[i].errs > 0 {
			s.Kill()
			return fmt.Errorf("%s: %d sends were refused", l.name, mine[i].errs)
		}
		fmt.Printf("%s: %s, %.2f us of the broker, %.2f allocations a message (others: %.2f cores)\n", l.name, quantity(mine[i].rate, "/s"), mine[i].cpu, mine[i].allocs, mine[i].foreign)
	}
	s.Kill()
	b.table.below("send path, allocations a message", mine[0].allocs, 1, "")
	b.table.below("pull path, allocations a message", mine[3].allocs, 1, "")

	theirs, err := b.peerCells("ASYNC_FLUSH", func(t *target) ([]cell, error) {
		var out []cell
		for _, l := range loads {
			c, err := l.run(b, t, b.warm)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", l.name, err)
			}
			fmt.Printf("RocketMQ, %s: %s, %.2f us of the broker a message (others: %.2f cores)\n", l.name, quantity(c.rate, "/s"), c.cpu, c.foreign)
			out = append(out, c)
		}
		return out, nil
	})
	for i, l := range loads {
		cpu := "CPU a message beside RocketMQ, theirs / ours: " + l.name
		rate := "throughput beside RocketMQ: " + l.name
		if err != nil {
			b.table.add(row{cpu, quantity(mine[i].cpu, "us"), "not measured: " + err.Error(), "", "not measured"})
			b.table.reported(rate, quantity(mine[i].rate, "/s"), "not measured")
			continue
		}
		ratio := theirs[i].cpu / mine[i].cpu
		b.table.add(row{cpu, quantity(mine[i].cpu, "us"), quantity(theirs[i].cpu, "us"), fmt.Sprintf("%.2f (>= %.2f)", ratio, l.cpu), verdict(ratio >= l.cpu)})
		if l.rate == 0 {
			b.table.reported(rate, quantity(mine[i].rate, "/s"), quantity(theirs[i].rate, "/s"))
			continue
		}
		b.table.atLeast(rate, mine[i].rate, theirs[i].rate, l.rate, "/s")
	}
	return b.syncBudget()
}

// syncBudget compares synchronous flush with 64 waiting senders.
func (b *bench) syncBudget() error {
	const name = "throughput beside RocketMQ: sync flush, 64 senders, 1 KiB"
	s, ours, err := b.startServer("sync", "--store-flush", "sync")
	if err != nil {
		return err
	}
	mine, err := b.waitingCell(ours, 64, 1024, b.warm)
	s.Kill()
	if err != nil {
		return err
	}
	disk, err := syncRate(b.dir, 1024, b.window)
	if err != nil {
		return err
	}
	b.table.atLeast("sync flush, 64 senders, against one write and fdatasync after the other", mine.rate, disk, 10, "/s")
	theirs, err := b.peerCells("SYNC_FLUSH", func(t *target) ([]cell, error) {
		c, err := b.waitingCell(t, 64, 1024, b.warm)
		return []cell{c}, err
	})
	if err != nil {
		b.table.add(row{name, quantity(mine.rate, "/s"), "not measured: " + err.Error(), "", "not measured"})
		return nil
	}
	b.table.atLeast(name, mine.rate, theirs[0].rate, 4, "/s")
	return nil
}

// peerCells runs f on a peer, if there is one; a failure of the peer is a reason, not the end of the run.
func (b *bench) peerCells(flush string, f func(*target) ([]cell, error)) ([]cell, error) {
	if b.peers == nil {
		return nil, errNoPeer("rocketmq")
	}
	t, stop, err := b.peers.start(flush)
	if err != nil {
		return nil, err
	}
	defer stop()
	if err := b.warmJVM(t); err != nil {
		return nil, err
	}
	return f(t)
}
