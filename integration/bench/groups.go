package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
	"github.com/fusionmq/fusionmq/integration/internal/rawpush"
)

const (
	bystanders = 50          // push groups that a write is to cost nothing
	hangs      = time.Second // notify.ack-timeout where the groups time out: several times within a window
)

// groupsBudgets measures what writes cost while groups are behind: offline, or attached and silent. Each of the three brokers gets the same
// load and, with -behind, first the same messages; only their groups differ.
func (b *bench) groupsBudgets() error {
	config := filepath.Join(b.dir, "groups.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "notify:\n  ack-timeout: %s\n", hangs), 0o644); err != nil {
		return err
	}
	var servers [3]*proc.Server
	var sides [3]side
	var topics [3]string
	for i, name := range []string{"no groups", fmt.Sprintf("%d groups offline", bystanders), fmt.Sprintf("%d groups that never acknowledge", bystanders)} {
		s, t, err := b.startServer(fmt.Sprint("groups-", i), "--config", config)
		if err != nil {
			return err
		}
		defer discard(s)
		if topics[i], err = t.newTopic(queues); err != nil {
			return err
		}
		servers[i], sides[i] = s, side{name, t, sending(t, []string{topics[i]}, queues)}
	}
	if err := bind(servers[1].Addr["notify"], topics[1]); err != nil {
		return err
	}
	if b.behind > 0 {
		for i, s := range sides {
			if err := s.t.fill(topics[i], queues, 128, b.behind); err != nil {
				return err
			}
		}
	}
	if err := bind(servers[2].Addr["notify"], topics[2]); err != nil { // from here on, so that they are not behind too
		return err
	}
	var pushed atomic.Int64
	sides[2].start = silent(sides[2].start, servers[2].Addr["notify"], topics[2], &pushed)
	c, err := b.alternate(sides[:])
	if err != nil {
		return err
	}
	// The groups must have been what the names of the cells say, or the figures are of something else.
	if err := owed(servers[1].Addr["notify"], topics[1]); err != nil {
		return err
	}
	late, err := metric(servers[2], "fusionmq_notify_timeouts_total")
	if err != nil {
		return err
	}
	if late < bystanders || pushed.Load() < bystanders {
		return fmt.Errorf("%.0f of %d pushes timed out: the silent groups were not attached", late, pushed.Load())
	}
	fmt.Printf("the silent groups were pushed %d messages; %.0f timed out\n", pushed.Load(), late)
	const writes = "writes while %d groups are %s, 1 KiB, 256 in flight, against none: %s"
	for i, g := range []struct {
		are   string
		share float64
	}{{fmt.Sprintf("offline, %d messages of 128 B behind", b.behind), 0.9}, {"attached and time out on everything", 0.8}} {
		b.table.atLeast(fmt.Sprintf(writes, bystanders, g.are, "throughput"), c[i+1].rate, c[0].rate, g.share, "/s")
		b.table.reported(fmt.Sprintf(writes, bystanders, g.are, "CPU of the broker a message"), quantity(c[i+1].cpu, "us"), quantity(c[0].cpu, "us"))
	}
	return nil
}

func group(i int, topic string) string { return fmt.Sprintf("S-%02d-%s", i, topic) }

// bind registers the groups for every message of topic and leaves them without a member.
func bind(addr, topic string) error {
	for i := range bystanders {
		c, err := rawpush.Connect(addr, group(i, topic), topic, "", 1)
		if err != nil {
			return err
		}
		c.Close()
	}
	return nil
}

// silent lets a load run beside groups that are connected as long as it runs and never acknowledge.
func silent(start func() (func(), *load, error), addr, topic string, pushed *atomic.Int64) func() (func(), *load, error) {
	return func() (func(), *load, error) {
		all := make([]closer, 0, bystanders)
		hangUp := func() {
			for _, c := range all {
				c.Close()
			}
		}
		for i := range bystanders {
			c, err := rawpush.Mute(addr, group(i, topic), topic, pushWindow, func([]byte) { pushed.Add(1) })
			if err != nil {
				hangUp()
				return nil, nil, err
			}
			all = append(all, c)
		}
		stop, l, err := start()
		if err != nil {
			hangUp()
			return nil, nil, err
		}
		return func() {
			stop()
			hangUp()
		}, l, nil
	}
}

// owed checks that an offline group gets what was written meanwhile.
func owed(addr, topic string) error {
	got := make(chan struct{}, pushWindow)
	c, err := rawpush.Subscribe(addr, group(0, topic), topic, pushWindow, func([]byte) {
		select {
		case got <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	defer c.Close()
	timer := time.NewTimer(20 * time.Second)
	defer timer.Stop()
	for range pushWindow {
		select {
		case <-got:
		case <-timer.C:
			return fmt.Errorf("an offline group has nothing to catch up")
		}
	}
	return nil
}
