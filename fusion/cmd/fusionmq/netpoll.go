package main

import (
	"log/slog"
	"strings"

	"github.com/cloudwego/netpoll"
)

// netpoll prints lines of its own about connections that end at an odd moment. They become debug events of the process's log. It
// has to be told before any connection is there, hence init; by this older function, because Configure would also set
// again what metaq/server has configured.
func init() {
	netpoll.SetLoggerOutput(netpollLog{})
}

type netpollLog struct{}

func (netpollLog) Write(line []byte) (int, error) {
	slog.Debug("netpoll", "text", strings.TrimSpace(string(line)))
	return len(line), nil
}
