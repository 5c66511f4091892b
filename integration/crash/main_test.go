package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
)

var programs proc.Programs

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fusionmq-crash-")
	if err == nil {
		defer os.RemoveAll(dir)
		programs, err = proc.Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// seeds of this run, from the environment.
func seeds(t *testing.T) (out []uint64) {
	t.Helper()
	if s := os.Getenv("CRASH_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("CRASH_SEED=%s: %v", s, err)
		}
		return []uint64{n}
	}
	count := 1
	if s := os.Getenv("CRASH_SEEDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("CRASH_SEEDS=%s: want a number from 1 on", s)
		}
		count = n
	}
	for range count {
		out = append(out, rand.Uint64N(1_000_000))
	}
	return out
}

// soakDuration of this run, from the environment.
func soakDuration(t *testing.T) time.Duration {
	t.Helper()
	s := os.Getenv("SOAK_DURATION")
	if s == "" {
		return 10 * time.Second
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		t.Fatalf("SOAK_DURATION=%s: want a duration such as 10m", s)
	}
	return d
}
