package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fusionmq/fusionmq/fusion"
	"github.com/fusionmq/fusionmq/fusion/config"
	"github.com/fusionmq/fusionmq/fusion/telemetry"
	"github.com/fusionmq/fusionmq/socket"
)

func serverCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run the name server, the broker, the Notify wire and HTTP in one process",
		Long: "Run the name server, the broker, the Notify wire and HTTP in one process, until SIGTERM or SIGINT. Every setting is a key of the YAML file and an " +
			"environment variable, the main ones are flags too; `fusionmq config docs` explains all of them. SIGHUP reads the file again.\n\n" +
			"What a person wants to know goes to standard output, and its last line, \"ready name=host:port ...\", when everything serves; the log goes to standard error.",
		Example: "  fusionmq server --data ./data\n  fusionmq server --config /etc/fusionmq.yaml --advertise-host mq-1.example.com",
		Args:    noArgs,
	}
	sources := configFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return serve(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), sources())
	}
	return cmd
}

// grace is what the process takes for itself after shutdown.timeout before it ends without having closed everything.
const grace = 2 * time.Second

// serve runs the process until a signal.
func serve(ctx context.Context, out, errOut io.Writer, sources config.Sources) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	// A log that nobody reads any more (a pager, a tee that ended) costs its lines, not the server.
	signal.Ignore(syscall.SIGPIPE)

	cfg, err := config.Load(sources)
	if err != nil {
		return err
	}
	var level telemetry.Level
	telemetry.SetLevel(&level, cfg.Log.Level)
	log := telemetry.NewLogger(errOut, cfg.Log.Format == "json", &level)
	slog.SetDefault(log) // what libraries log has the same form
	socket.Configure()

	app := fusion.New(cfg, fusion.Options{Log: log, Level: &level, Limit: telemetry.LimitMemory(cfg.Memory.Limit)})
	starting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	started := make(chan error, 1)
	go func() { started <- app.Start(starting) }()
	for {
		select {
		case err := <-started:
			if err != nil {
				return err
			}
			fmt.Fprint(out, app.Summary(), app.ReadyLine(), "\n")
			started = nil
		case s := <-signals:
			switch {
			case s == syscall.SIGHUP && started == nil:
				reload(app, sources, log)
			case s == syscall.SIGHUP: // nothing runs yet that could change
			case started != nil:
				cancel(fmt.Errorf("stopped by %s while starting", s))
				return <-started
			default:
				log.Info("stopping", "signal", s.String(), "timeout_s", cfg.Shutdown.Timeout.Seconds())
				return stop(app.Stop, cfg.Shutdown.Timeout, signals, log)
			}
		}
	}
}

// reload applies what has changed in the configuration and can change.
func reload(app *fusion.App, sources config.Sources, log *slog.Logger) {
	cfg, err := config.Load(sources)
	if err != nil {
		log.Error("configuration not reloaded: nothing has changed", "error", err)
		return
	}
	app.Reload(cfg)
}

var errSecondSignal = errors.New("stopped at once by a second signal: requests in work were cut off")

// echo is how long after the first signal another one is taken for the same: a process manager that signals a process and then its
// whole group (timeout, a shell that passes on ^C) means it once.
const echo = time.Second

// stop ends the process in order. A second signal, or a part that does not come back, ends it at once: what was acknowledged
// is kept even so.
func stop(parts func(context.Context) error, timeout time.Duration, signals <-chan os.Signal, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- parts(ctx) }()
	begin := time.Now()
	late := time.NewTimer(timeout + grace)
	defer late.Stop()
	for {
		select {
		case err := <-done:
			if errors.Is(err, context.DeadlineExceeded) {
				log.Warn("requests in work were cut off", "error", err) // the data is closed in order, so the end is a clean one
				return nil
			}
			return err
		case s := <-signals:
			if s != syscall.SIGHUP && time.Since(begin) >= echo {
				return errSecondSignal
			}
		case <-late.C:
			return fmt.Errorf("not stopped %s after the signal; the next start recovers the data", timeout+grace)
		}
	}
}
