package notify

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fusionmq/fusionmq/notify/wire"
)

var (
	// ErrClosed is returned by every call on a closed client.
	ErrClosed = errors.New("notify: client is closed")
	// ErrBodyTooLarge says that a compressed body grows past the limit. Handlers never see such a message.
	ErrBodyTooLarge = errors.New("notify: decompressed body is too large")
)

// Code is why a send or a subscription failed; test with errors.Is(err, notify.CodeTimeout).
type Code uint8

// The codes. A send is tried again, with the same id, on another server (or the same one, if there is only one) for
// those marked so, until its time is over.
const (
	CodeError        Code = 1 + iota // the server refused it
	CodeException                    // the server failed; tried again
	CodeUnknown                      // the server has no listener for it
	CodeBusy                         // the server is overloaded; tried again after a pause
	CodeComm                         // the connection broke, or the server could not read the frame; tried again. The message may have been stored
	CodeNoProcessor                  // the server does not know the command
	CodeTimeout                      // no answer in time; tried again. The message may have been stored
	CodeFormat                       // the message is invalid; nothing was sent
	CodeNoConnection                 // no server could be reached in time; nothing was sent
	CodeRollback                     // the transaction was rolled back by the callback
)

var codeNames = [...]string{
	CodeError: "ERROR", CodeException: "EXCEPTION", CodeUnknown: "UNKNOWN", CodeBusy: "THREADPOOL_BUSY", CodeComm: "ERROR_COMM",
	CodeNoProcessor: "NO_PROCESSOR", CodeTimeout: "TIMEOUT", CodeFormat: "FORMAT_ERROR", CodeNoConnection: "NO_CONNECTION", CodeRollback: "ROLLBACK",
}

// String is the name that Notify's users know.
func (c Code) String() string {
	if int(c) < len(codeNames) && codeNames[c] != "" {
		return codeNames[c]
	}
	return fmt.Sprintf("code %d", uint8(c))
}

func (c Code) Error() string { return "notify: " + c.String() }

// retried tells whether another server may do better.
func (c Code) retried() bool {
	return c == CodeException || c == CodeBusy || c == CodeComm || c == CodeTimeout || c == CodeNoConnection
}

// Error is the failure of a send or a subscription.
type Error struct {
	Code   Code
	ID     MessageID // of the message, when there is one
	Server string    // that answered, or was asked last; empty when none was
	Text   string    // what the server, or the check before sending, says
	Err    error     // the cause on this side, when there is one
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("notify: ")
	b.WriteString(e.Code.String())
	if !e.ID.IsZero() {
		b.WriteString(" message " + e.ID.String())
	}
	if e.Server != "" {
		b.WriteString(" server " + e.Server)
	}
	if e.Text != "" {
		b.WriteString(": " + e.Text)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap gives the code and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Code}
	}
	return []error{e.Code, e.Err}
}

// codeOf is the code of a status that is not NoError.
func codeOf(s wire.Status) Code {
	switch s {
	case wire.StatusFailed:
		return CodeException
	case wire.StatusUnknown:
		return CodeUnknown
	case wire.StatusBusy:
		return CodeBusy
	case wire.StatusComm:
		return CodeComm
	case wire.StatusNoOpcode:
		return CodeNoProcessor
	case wire.StatusTimeout:
		return CodeTimeout
	}
	return CodeError
}

func formatError(id MessageID, err error) error {
	return &Error{Code: CodeFormat, ID: id, Text: err.Error()}
}
