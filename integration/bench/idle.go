package main

import (
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
	"github.com/fusionmq/fusionmq/integration/internal/rawpush"
)

// closer is a connection, ours or bare.
type closer interface{ Close() }

type closing struct{ c net.Conn }

func (c closing) Close() { _ = c.c.Close() }

// spare descriptors that neither process may spend on connections.
const spare = 1000

// idleBudgets opens push connections that are registered, subscribed and silent, and measures what the broker keeps for each.
func (b *bench) idleBudgets() error {
	n := b.conns
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err == nil && uint64(n)+spare > limit.Cur {
		n = int(limit.Cur) - spare
		fmt.Printf("idle: the descriptor limit is %d, so %d connections\n", limit.Cur, n)
	}
	base, err := b.bareIdle(n)
	if err != nil {
		return err
	}
	s, _, err := b.startServer("idle")
	if err != nil {
		return err
	}
	defer s.Kill()
	per, err := idleCost(s.Pid(), n, func(i int) (closer, error) {
		return rawpush.Connect(s.Addr["notify"], fmt.Sprintf("S-idle-%d", i%100), "idle", "none", 256)
	})
	if err != nil {
		return err
	}
	b.table.add(row{fmt.Sprintf("idle push connection, memory of the broker, %d connections", n), quantity(per/1024, "KiB"), "limit 12.0 KiB; bare goroutine a connection: " + quantity(base/1024, "KiB"),
		fmt.Sprintf("%.2f (<= 1)", per/1024/12), verdict(per < 12*1024)})
	return nil
}

func (b *bench) bareIdle(n int) (float64, error) {
	s, err := startBare(bareIdle)
	if err != nil {
		return 0, err
	}
	defer s.stop()
	return idleCost(s.cmd.Process.Pid, n, func(int) (closer, error) {
		c, err := net.Dial("tcp", s.addr)
		return closing{c}, err
	})
}

// idleCost opens n connections and returns by how many bytes of anonymous memory a process grew for each.
func idleCost(pid, n int, open func(i int) (closer, error)) (float64, error) {
	before, err := proc.UsageOf(pid)
	if err != nil {
		return 0, err
	}
	all := make([]closer, 0, n)
	defer func() {
		for _, c := range all {
			c.Close()
		}
	}()
	for i := range n {
		c, err := open(i)
		if err != nil {
			return 0, fmt.Errorf("connection %d: %w", i, err)
		}
		all = append(all, c)
	}
	time.Sleep(3 * time.Second)
	after, err := proc.UsageOf(pid)
	if err != nil {
		return 0, err
	}
	return float64(after.Anonymous-before.Anonymous) / float64(n), nil
}
