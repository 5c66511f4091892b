// Command demo shows one topic with two faces: an unmodified RocketMQ client produces, a Notify subscriber gets the messages by push, an
// unmodified RocketMQ consumer gets the same ones by pull; a Notify producer's messages reach both as well. Some bodies are compressed by
// their producer and must come out whole on the other side.
//
// It uses the server at -connect, or one that serves on 127.0.0.1:8080, or starts bin/fusionmq on free ports and a temporary directory.
// Exit code 0 when every message arrived on every path with its tag, keys, property and body; 1 otherwise, within -timeout.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
	"github.com/fusionmq/fusionmq/sdk-go/admin"
)

type options struct {
	server   string        // binary to start when none serves
	connect  string        // administration address of a running server
	messages int           // of the RocketMQ producer
	notify   int           // of the Notify producer
	pause    time.Duration // between two sends
	timeout  time.Duration // of the whole demo
}

func main() {
	var o options
	flag.StringVar(&o.server, "server", "bin/fusionmq", "the binary to start when no server is running")
	flag.StringVar(&o.connect, "connect", "", "administration address (host:port) of a running server")
	flag.IntVar(&o.messages, "messages", 24, "messages from the RocketMQ producer")
	flag.IntVar(&o.notify, "notify", 8, "messages from the Notify producer")
	flag.DurationVar(&o.pause, "pause", 0, "wait between two sends")
	flag.DurationVar(&o.timeout, "timeout", time.Minute, "give up after this long")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// addresses of the listeners that the demo uses.
type addresses struct{ nameServer, notify, http string }

func run(ctx context.Context, o options, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	at, stop, err := find(ctx, o, out, cancel)
	if err != nil {
		return err
	}
	defer stop()
	d := &demo{options: o, at: at, out: out, log: newLog()}
	err = d.run(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", err, cause)
	}
	return err
}

// find gives the addresses of a running server, or starts one; lost is called when the one it started ends before stop.
func find(ctx context.Context, o options, out io.Writer, lost context.CancelCauseFunc) (at addresses, stop func(), err error) {
	connect := o.connect
	if connect == "" {
		const usual = "127.0.0.1:8080"
		if c, err := net.DialTimeout("tcp", usual, time.Second); err == nil {
			_ = c.Close()
			if at, err := ask(ctx, usual); err == nil {
				fmt.Fprintln(out, "using the server at", usual)
				return at, func() {}, nil
			}
		}
	} else {
		at, err := ask(ctx, connect)
		return at, func() {}, err
	}
	dir, err := os.MkdirTemp("", "fusionmq-demo-")
	if err != nil {
		return at, nil, err
	}
	s, err := proc.Start(o.server, dir)
	if err != nil {
		_ = os.RemoveAll(dir)
		return at, nil, err
	}
	fmt.Fprintf(out, "started %s on free ports, data in %s\n", o.server, dir)
	stopping := make(chan struct{})
	go func() {
		select {
		case <-s.Exited():
			lost(errors.New("the server ended"))
		case <-stopping:
		}
	}()
	stop = func() {
		close(stopping)
		if _, _, err := s.Stop(10 * time.Second); err != nil {
			fmt.Fprintln(out, "stop:", err)
		}
		_ = os.RemoveAll(dir)
	}
	return addresses{s.Addr["nameserver"], s.Addr["notify"], s.Addr["http"]}, stop, nil
}

// ask reads the addresses from the server's status.
func ask(ctx context.Context, http string) (addresses, error) {
	c, err := admin.New(http)
	if err != nil {
		return addresses{}, err
	}
	s, err := c.Status(ctx)
	if err != nil {
		return addresses{}, err
	}
	at := addresses{local(s.Listeners["nameserver"]), local(s.Listeners["notify"]), http}
	if at.nameServer == "" || at.notify == "" {
		return at, fmt.Errorf("the server at %s has no name server or Notify port open: %v", http, s.Listeners)
	}
	return at, nil
}

// local replaces an address of all interfaces by loopback, where this program is.
func local(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
