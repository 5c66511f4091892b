package wire

import (
	"errors"
	"fmt"
)

var (
	// ErrShort says that more bytes are needed. ParseHead, Parse and FrameOf return it.
	ErrShort = errors.New("wire: need more bytes")
	// ErrTooLong says that a frame to be built passes a limit. Builder.End and the Append functions return it.
	ErrTooLong = errors.New("wire: frame too long")
)

// Action is what the receiver of bad input does about it.
type Action uint8

const (
	Answer      Action = 1 + iota // answer ERROR with the error's text; the connection stays
	AnswerClose                   // answer ERROR_COMM with the error's text, then close
	Close                         // close without an answer
)

// FrameError is a fixed part that cannot begin a frame. The stream behind it is lost.
type FrameError struct {
	Action Action // AnswerClose or Close
	Opcode Opcode // of the answer, with AnswerClose
	Opaque uint32 // of the answer, with AnswerClose
	Reason string
}

func (e *FrameError) Error() string { return "wire: " + e.Reason }

// HeaderError is a fault inside a sound frame: the header or body cannot be decoded as Message.
type HeaderError struct {
	Message string // the message's name in the protocol, such as MessageHeader
	Field   string // the field's name in the protocol; empty when it is unknown or the message as a whole
	Reason  string
}

func (e *HeaderError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("%s: %s", e.Message, e.Reason)
	}
	return fmt.Sprintf("%s.%s: %s", e.Message, e.Field, e.Reason)
}

// InputError is a value that decodes but breaks a rule: a name, a size, a property. Its text names the field, the
// value and the limit, so it can be sent to the peer as it is.
type InputError struct {
	Field string // such as topic, messageType, property key
	Value string // shortened and quoted
	Rule  string // what is allowed
}

func (e *InputError) Error() string {
	if e.Value == "" {
		return e.Field + " " + e.Rule
	}
	return fmt.Sprintf("%s %s %s", e.Field, e.Value, e.Rule)
}

// ActionFor says what a transport does with an error of this package.
func ActionFor(err error) Action {
	var f *FrameError
	if errors.As(err, &f) {
		return f.Action
	}
	return Answer
}
