// Package telemetry is how the process is seen from outside: its log, its metrics page, its profiles, and what memory it uses.
package telemetry

import (
	"context"
	"io"
	"log/slog"
	"os"
)

// Level is the log level of the process; it can change while it runs.
type Level = slog.LevelVar

// NewLogger writes one line an event to w, as key=value text or as JSON.
func NewLogger(w io.Writer, json bool, level *Level) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if json {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// SetLevel applies a level of the configuration: debug, info, warn or error.
func SetLevel(l *Level, name string) {
	var v slog.Level
	if err := v.UnmarshalText([]byte(name)); err != nil {
		panic("telemetry: " + err.Error()) // the configuration allows no other words
	}
	l.Set(v)
}

// Events gives a function that logs the events of a component which does not print by itself: a level, a constant
// text, and alternating keys and values.
func Events(log *slog.Logger, component string) func(level int, name string, attrs []any) {
	log = log.With("component", component)
	return func(level int, name string, attrs []any) {
		log.Log(context.Background(), slog.Level(level), name, attrs...)
	}
}

// IsTerminal says whether f shows its output to a person.
func IsTerminal(f *os.File) bool {
	fi, err := f.Stat()
	return err == nil && fi.Mode()&os.ModeCharDevice != 0 && f.Name() != os.DevNull
}
