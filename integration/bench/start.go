package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
)

// startBudgets measures the time from exec to the readiness line with a full data directory.
func (b *bench) startBudgets() error {
	const size = 4096
	dir := filepath.Join(b.dir, "start")
	s, ours, err := b.startServer("start")
	if err != nil {
		return err
	}
	defer func() { s.Kill() }()
	topic, err := ours.newTopic(queues)
	if err != nil {
		return err
	}
	if err := ours.fill(topic, queues, size, b.fill/size); err != nil {
		return err
	}
	if code, took, err := s.Stop(30 * time.Second); code != 0 || err != nil {
		return fmt.Errorf("stop: exit %d after %s, %w", code, took, err)
	}
	data := fmt.Sprintf("%.1f GB", float64(b.fill)/1e9)
	again := func() (time.Duration, error) {
		began := time.Now()
		if s, err = proc.Start(b.server, dir); err != nil {
			return 0, err
		}
		return time.Since(began), nil
	}
	clean, err := again()
	if err != nil {
		return err
	}
	b.table.below("start with "+data+" of clean data", clean.Seconds(), 1, "s")

	// A kill after more than a checkpoint's worth of new log: the time depends on checkpoint-bytes, not on all the data.
	ours.broker, ours.pid = s.Addr["broker"], s.Pid()
	const more = 384 * mib
	if err := ours.fill(topic, queues, size, more/size); err != nil {
		return err
	}
	s.Kill()
	killed, err := again()
	if err != nil {
		return err
	}
	// What bounds it: reading and checking 256 MiB at the pace at which one core takes the bytes of a record apart.
	scan, err := scanTime(filepath.Join(dir, "commitlog"), 256*mib)
	if err != nil {
		return err
	}
	b.table.atMost("start after kill -9 with "+data+", against reading and checksumming 256 MiB of it, plus the clean start", killed.Seconds(), scan.Seconds()+clean.Seconds(), 3, "s")
	return nil
}
