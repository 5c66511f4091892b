package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
)

const mib = 1 << 20

// memoryBudgets measures anonymous resident memory: mapped files are page cache and do not count.
func (b *bench) memoryBudgets() error {
	s, ours, err := b.startServer("memory")
	if err != nil {
		return err
	}
	defer s.Kill()
	time.Sleep(2 * time.Second) // what starts late has started
	idle, err := s.Usage()
	if err != nil {
		return err
	}
	b.table.below("anonymous resident memory, idle", float64(idle.Anonymous)/mib, 32, "MiB")
	topic, err := ours.newTopic(queues)
	if err != nil {
		return err
	}
	const messages = 2_000_000
	if err := ours.fill(topic, queues, 128, messages); err != nil {
		return err
	}
	time.Sleep(2 * time.Second)
	full, err := s.Usage()
	if err != nil {
		return err
	}
	b.table.below("anonymous resident memory after 2 M messages of 128 B", float64(full.Anonymous)/mib, 96, "MiB")
	return b.waitingMemory()
}

// waitingMemory measures the memory of what waits, by a benchmark of the store, whose own process it is.
func (b *bench) waitingMemory() error {
	if b.waiting == 0 {
		return nil
	}
	got, err := b.goBench("store", "^BenchmarkWaitingMemory$", "1x", fmt.Sprint("FUSIONMQ_BENCH_WAITING=", b.waiting))
	if err != nil {
		return err
	}
	m := got["BenchmarkWaitingMemory"]
	b.table.below(fmt.Sprintf("anonymous resident memory of the store for %.0f halves, delays and retries that wait, a third each", m["waiting"]), m["anon-B"]/mib, 64, "MiB")
	return nil
}

// metric reads one sample of the server's /metrics.
func metric(s *proc.Server, name string) (float64, error) {
	r, err := http.Get("http://" + s.Addr["http"] + "/metrics")
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err
	}
	for l := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(l, name)
		if !ok {
			continue
		}
		if i := strings.LastIndexByte(rest, '}'); i >= 0 && rest[0] == '{' {
			rest = rest[i+1:]
		}
		if rest[0] == ' ' {
			return strconv.ParseFloat(strings.TrimSpace(rest), 64)
		}
	}
	return 0, fmt.Errorf("no metric %s", name)
}

// syncRate is how often one thread can append size bytes to a preallocated file and make them durable.
func syncRate(dir string, size int, d time.Duration) (float64, error) {
	f, err := os.Create(filepath.Join(dir, "fdatasync"))
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := syscall.Fallocate(int(f.Fd()), 0, 0, 256*mib); err != nil {
		return 0, err
	}
	body := randomBody(size)
	n, start := 0, time.Now()
	for time.Since(start) < d {
		if _, err := f.Write(body); err != nil {
			return 0, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return 0, err
		}
		n++
	}
	return float64(n) / time.Since(start).Seconds(), nil
}
