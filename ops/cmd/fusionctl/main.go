// Command fusionctl administers FusionMQ brokers.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/fusionmq/fusionmq/ops/cli"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return cli.Run(ctx, os.Args[1:], cli.IO{Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv})
}
