package server

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/fusionmq/fusionmq/notify"
)

// Options configure Listen. The zero value of a field means its default.
type Options struct {
	Addr    string          // host:port; port 0 picks one
	Service *notify.Service // started

	// IdleTimeout is how long a connection may be without a whole frame in either direction. Default 5 minutes.
	IdleTimeout time.Duration
	// PartialTimeout is how long half a frame may wait for the rest. Default 30 s.
	PartialTimeout time.Duration
	// WriteTimeout is how long a peer may take none of 256 KiB that wait for it. Default 10 s.
	WriteTimeout time.Duration
	// MaxConnections is the most connections at a time; more are closed at once. Default 20,000.
	MaxConnections int
	// MaxInput is how many bytes of all connections together may have come and not been handled: half frames, and what
	// was read ahead of a handler. Beyond it the connections that hold most are closed. Default 512 MiB.
	MaxInput int64
	// MaxPending is how many bytes of messages may wait for one connection, and how many bytes of answers. Default 1 MiB.
	MaxPending int
	// Software is told to clients that negotiate, for people. Default "fusionmq".
	Software string

	Log *slog.Logger     // default slog.Default
	Now func() time.Time // clock of the timeouts. Default time.Now
}

func (o Options) withDefaults() Options {
	if o.IdleTimeout == 0 {
		o.IdleTimeout = 5 * time.Minute
	}
	if o.PartialTimeout == 0 {
		o.PartialTimeout = 30 * time.Second
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = 10 * time.Second
	}
	if o.MaxConnections == 0 {
		o.MaxConnections = 20_000
	}
	if o.MaxInput == 0 {
		o.MaxInput = 512 << 20
	}
	if o.MaxPending == 0 {
		o.MaxPending = 1 << 20
	}
	if o.Software == "" {
		o.Software = "fusionmq"
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

func (o Options) validate() error {
	for _, d := range []struct {
		name string
		v    time.Duration
	}{{"IdleTimeout", o.IdleTimeout}, {"PartialTimeout", o.PartialTimeout}, {"WriteTimeout", o.WriteTimeout}} {
		if d.v < 0 || d.v > 24*time.Hour {
			return fmt.Errorf("server: %s is %v, allowed: 0 to 24h", d.name, d.v)
		}
	}
	if o.Service == nil {
		return fmt.Errorf("server: Service is missing")
	}
	if o.MaxConnections < 0 || o.MaxPending < 0 || o.MaxInput < 0 {
		return fmt.Errorf("server: MaxConnections is %d, MaxPending %d and MaxInput %d, allowed: 0 or more", o.MaxConnections, o.MaxPending, o.MaxInput)
	}
	return nil
}
