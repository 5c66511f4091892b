// Command fusionctl administers FusionMQ brokers.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/fusionmq/fusionmq/ops/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, os.Args[1:], cli.IO{Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv})
	stop()
	os.Exit(code)
}
