package notify

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"github.com/fusionmq/fusionmq/notify/wire"
)

// MessageID identifies a message everywhere: in the sender's log, the broker's and every receiver's.
type MessageID [wire.MessageIDLen]byte

// NewMessageID makes a random id.
func NewMessageID() (id MessageID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

// ParseMessageID reads the 32 hex digits of String, in either case.
func ParseMessageID(s string) (id MessageID, err error) {
	if len(s) != hex.EncodedLen(len(id)) {
		return id, fmt.Errorf("notify: message id %q is not %d hex digits", s, hex.EncodedLen(len(id)))
	}
	if _, err = hex.Decode(id[:], []byte(s)); err != nil {
		return MessageID{}, fmt.Errorf("notify: message id %q: %w", s, err)
	}
	return id, nil
}

// String is the id in 32 lower-case hex digits.
func (id MessageID) String() string { return hex.EncodeToString(id[:]) }

// IsZero tells whether no id was set.
func (id MessageID) IsZero() bool { return id == MessageID{} }
