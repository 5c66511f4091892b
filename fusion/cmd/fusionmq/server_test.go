package main

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestStop(t *testing.T) {
	boom := errors.New("disk failed")
	waits := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	hangs := func(context.Context) error { time.Sleep(time.Hour); return nil }
	for _, tc := range []struct {
		name     string
		parts    func(context.Context) error
		signals  map[time.Duration]os.Signal // by the time after the first
		want     string                      // of the error; "" is none
		wantTook time.Duration
	}{
		{"clean", func(context.Context) error { return nil }, nil, "", 0},
		{"a part failed", func(context.Context) error { return boom }, nil, "disk failed", 0},
		{"requests in work are cut off, and the end is clean even so", waits, nil, "", 8 * time.Second},
		{"a part that does not come back", hangs, nil, "not stopped 10s after the signal", 10 * time.Second},
		{"a second signal", hangs, map[time.Duration]os.Signal{2 * time.Second: syscall.SIGTERM}, "second signal", 2 * time.Second},
		{"the same signal to the process and to its group", waits, map[time.Duration]os.Signal{time.Millisecond: syscall.SIGTERM}, "", 8 * time.Second},
		{"a reload is no second signal", waits, map[time.Duration]os.Signal{2 * time.Second: syscall.SIGHUP}, "", 8 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				signals := make(chan os.Signal, 1)
				for after, s := range tc.signals {
					time.AfterFunc(after, func() { signals <- s })
				}
				begin := time.Now()
				err := stop(tc.parts, 8*time.Second, signals, slog.New(slog.DiscardHandler))
				if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
					t.Errorf("stop = %v, want %q", err, tc.want)
				}
				if took := time.Since(begin); took != tc.wantTook {
					t.Errorf("stop took %v, want %v", took, tc.wantTook)
				}
				time.Sleep(2 * time.Hour) // lets the part that hangs end
			})
		})
	}
}

// A server whose output goes to a pipe that nobody reads any more serves on, and its end is a clean one.
func TestOutputThatNobodyReadsDoesNotEndTheServer(t *testing.T) {
	bin, err := exec.LookPath("fusionmq") // see cmdServer
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "server", "--data", t.TempDir(), "--nameserver-addr", "off", "--broker-addr", "off", "--notify-addr", "off", "--http-addr", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "FUSIONMQ_STORE_SEGMENT_SIZE=16MiB")
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended by then, unless the test failed
	_ = w.Close()
	lines := bufio.NewScanner(r)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "ready ") {
	}
	if !strings.HasPrefix(lines.Text(), "ready ") {
		t.Fatalf("the server did not get ready: %v", cmd.Wait())
	}
	_ = r.Close()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil { // of which the log tells
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}
