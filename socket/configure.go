package socket

import (
	"context"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/cloudwego/netpoll"
)

// readBuffer is the read buffer that a connection begins with, in bytes. netpoll keeps one for each connection, also while it is
// idle, and takes 8 KiB unless it is told otherwise; it doubles the buffer of a connection that fills it.
const readBuffer = 4 << 10

// Configure sets up what a process has once for all its connections: small first buffers, workers that are kept for a moment, and
// netpoll's own log lines, about connections that end at an odd moment, as debug events of slog's default logger. Whoever
// composes the process calls it, before the first Serve and not beside one: netpoll's poller reads these settings without
// a lock. A process that does not call it works, on netpoll's own settings.
func Configure() {
	_ = netpoll.Configure(netpoll.Config{ // fails only for numbers of pollers, which this leaves alone
		BufferSize:   readBuffer,
		Runner:       run,
		LoggerOutput: logLines{},
	})
}

type logLines struct{}

func (logLines) Write(line []byte) (int, error) {
	slog.Debug("netpoll", "text", strings.TrimSpace(string(line)))
	return len(line), nil
}

// netpoll hands every readable connection to a task runner. Its own starts a goroutine whenever none is at work, which without
// pipelining is every request, and a fresh goroutine grows its stack again each time. Ours keeps workers for a moment. Echo of
// 1 KiB, three runs in turn: one connection 72, 67, 67 us a request with netpoll's runner, 52, 45, 40 with ours; 16 connections
// 25, 12.7, 11.3 and 20.6, 11.3, 10.4; one allocation less.

// workerIdle is how long a worker waits for its next task. Long enough to be there for the next request of a busy client, short
// enough to be gone when nothing is going on.
const workerIdle = 100 * time.Millisecond

var tasks = make(chan func())

func run(_ context.Context, task func()) {
	select {
	case tasks <- task: // a worker is waiting
	default:
		go work(task)
	}
}

func work(task func()) {
	defer func() {
		// Handlers contain their own panics; tasks of other netpoll users come here too.
		if v := recover(); v != nil {
			slog.Error("netpoll task panicked", "panic", v, "stack", string(debug.Stack()))
		}
	}()
	idle := time.NewTimer(workerIdle)
	defer idle.Stop()
	for {
		task()
		idle.Reset(workerIdle)
		select {
		case task = <-tasks:
		case <-idle.C:
			return
		}
	}
}
