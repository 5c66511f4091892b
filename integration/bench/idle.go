package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
	"github.com/fusionmq/fusionmq/notify/wire"
)

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
	per, err := idleCost(s.Pid(), n, func(i int) (net.Conn, error) { return subscribeIdle(s.Addr["notify"], fmt.Sprintf("S-idle-%d", i%100)) })
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
	return idleCost(s.cmd.Process.Pid, n, func(int) (net.Conn, error) { return net.Dial("tcp", s.addr) })
}

// idleCost opens n connections and returns by how many bytes of anonymous memory a process grew for each.
func idleCost(pid, n int, open func(i int) (net.Conn, error)) (float64, error) {
	before, err := proc.UsageOf(pid)
	if err != nil {
		return 0, err
	}
	all := make([]net.Conn, 0, n)
	defer func() {
		for _, c := range all {
			_ = c.Close()
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

// subscribeIdle is a client without goroutines: metadata, one binding, credit, and then silence.
func subscribeIdle(addr, group string) (c net.Conn, err error) {
	c, err = net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = c.Close()
		}
	}()
	features := wire.FeatureProperty(wire.AllFeatures)
	meta := wire.Metadata{Clients: []wire.ClientInfo{{Group: []byte(group)}}, Build: []wire.Property{features}}
	binding := wire.Binding{Kind: wire.Direct, Topic: "idle", Group: group, Expr: "none", WaterMark: wire.DefaultWaterMark, Persistent: true}
	sub := wire.Subscription{Binding: binding.Append(nil)}
	credit := wire.Credit{Group: []byte(group), Messages: 256}
	for i, f := range []struct {
		op           wire.Opcode
		header, body []byte
	}{
		{wire.OpMetadata, nil, meta.Append(nil)},
		{wire.OpSubscribe, sub.Append(nil), nil},
		{wire.OpCredit, credit.Append(nil), nil},
	} {
		frame, err := wire.AppendRequest(nil, f.op, uint32(i+1), f.header, f.body)
		if err != nil {
			return nil, err
		}
		if _, err := c.Write(frame); err != nil {
			return nil, err
		}
		if err := readAnswer(c, f.op); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// readAnswer takes one response off c and fails unless its status is NO_ERROR.
func readAnswer(c net.Conn, op wire.Opcode) error {
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	const fixed = 16 // of a response; see docs/notify-wire.md
	br := bufio.NewReaderSize(c, fixed)
	var head [fixed]byte
	if _, err := io.ReadFull(br, head[:]); err != nil {
		return fmt.Errorf("answer to %s: %w", op, err)
	}
	h, err := wire.ParseHead(head[:])
	if err != nil {
		return err
	}
	rest := make([]byte, binary.BigEndian.Uint32(head[8:]))
	if _, err := io.ReadFull(br, rest); err != nil {
		return err
	}
	if h.Status != wire.NoError {
		text, _, _ := wire.ErrorText(rest)
		return fmt.Errorf("answer to %s: %s %s", op, h.Status, text)
	}
	return nil
}
