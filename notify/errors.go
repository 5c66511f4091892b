package notify

import (
	"errors"
	"fmt"

	"github.com/fusionmq/fusionmq/notify/wire"
	"github.com/fusionmq/fusionmq/store"
)

// Refusal is why a request was not done: the status that the client is answered, and a text that tells it what to
// change. Every error of a Session's methods is one, or wraps one.
type Refusal struct {
	Status wire.Status
	Text   string
}

func (r *Refusal) Error() string { return r.Text }

func refuse(format string, args ...any) *Refusal {
	return &Refusal{Status: wire.StatusError, Text: fmt.Sprintf(format, args...)}
}

// refusal makes a Refusal of any error: one of ours stays, bad input is ERROR with its own text, what the store could
// not do is EXCEPTION, which a client may try elsewhere.
func refusal(err error) *Refusal {
	var r *Refusal
	if errors.As(err, &r) {
		return r
	}
	var in *wire.InputError
	if errors.As(err, &in) {
		return &Refusal{wire.StatusError, in.Error()}
	}
	var h *wire.HeaderError
	if errors.As(err, &h) {
		return &Refusal{wire.StatusError, h.Error()}
	}
	switch {
	case errors.Is(err, ErrStopping), errors.Is(err, store.ErrClosed):
		return &Refusal{wire.StatusFailed, "the server is stopping"}
	case errors.Is(err, store.ErrFlushTimeout):
		return &Refusal{wire.StatusTimeout, err.Error()}
	case errors.Is(err, store.ErrBadMessage), errors.Is(err, store.ErrTooLarge), errors.Is(err, store.ErrUnknownTopic), errors.Is(err, store.ErrSystemTopic):
		return &Refusal{wire.StatusError, err.Error()}
	}
	return &Refusal{wire.StatusFailed, err.Error()}
}
