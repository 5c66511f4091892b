package store

import (
	"errors"
	"fmt"

	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// Errors, tested with errors.Is.
var (
	ErrClosed = log.ErrClosed // any call after Close
	// ErrFailed is in a Result after a failed write or sync; see its definition.
	ErrFailed = log.ErrFailed
	// ErrNoSpace is in a Result while the disk is full; the text has the measured values (*log.NoSpaceError).
	ErrNoSpace = vfs.ErrNoSpace
	// ErrDamaged is returned for records in a part of the log that was on the disk once and is not valid any more (*log.DamageError).
	ErrDamaged = log.ErrDamaged
	// ErrUnavailable is returned for records that are there but cannot be read at the moment; another try may succeed.
	ErrUnavailable = log.ErrUnavailable
	// ErrTooLarge is in a Result for a record that fits no segment.
	ErrTooLarge = log.ErrTooLarge

	// ErrUnknownTopic is in a Result when the topic does not exist.
	ErrUnknownTopic = errors.New("store: topic does not exist")
	// ErrSystemTopic is in a Result when a message is for a topic that only the store writes.
	ErrSystemTopic = errors.New("store: topic is reserved for the store")
	// ErrBadMessage is in a Result for a field out of its range; the text names field, value and limit (*FieldError).
	ErrBadMessage = errors.New("store: message is not valid")
	// ErrFlushTimeout is in a Result when the sync took longer than 5 s: the other fields are set, the message is in the log
	// and becomes visible when the sync ends after all.
	ErrFlushTimeout = log.ErrFlushTimeout
	// ErrNotAddress is returned by RecordAt.
	ErrNotAddress = errors.New("store: no visible message has this address")
	// ErrNewerFormat is returned by Open for a directory that a later version of FusionMQ wrote (*FormatError).
	ErrNewerFormat = errors.New("store: directory has a newer format")
	// ErrNotLog is returned by Open for a directory whose commitlog holds files that are no segments of one.
	ErrNotLog = errors.New("store: no commit log")
	// ErrForeign is returned by Open for a directory of an Apache broker with something in a form that is not read here (*rocketmq.Obstacle says
	// what, and what can be done).
	ErrForeign = errors.New("store: directory cannot be taken over")
	// ErrConfigChanged is returned by Open when an option differs from what the directory was made with (*ConfigError).
	ErrConfigChanged = errors.New("store: option is fixed when the directory is made")
	// ErrLocked is returned by Open when another process, or another Store of this one, has the directory (*vfs.HeldError
	// says who).
	ErrLocked = errors.New("store: directory is in use")
)

// FieldError says which field of a message or an option is out of range.
type FieldError struct {
	Field string
	Value int64
	Limit string // in words: "1 to 4194304 bytes"
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("store: %s is %d, allowed: %s", e.Field, e.Value, e.Limit)
}

func (e *FieldError) Is(target error) bool { return target == ErrBadMessage }

// FormatError says what format a directory has.
type FormatError struct {
	File      string
	Have, Can int
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("store: %s says format %d, this program reads up to %d: start the version of FusionMQ that wrote this directory, or a newer one", e.File, e.Have, e.Can)
}

func (e *FormatError) Is(target error) bool { return target == ErrNewerFormat }

// ConfigError says which option cannot change.
type ConfigError struct {
	Option     string
	Have, Want int64
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("store: %s is %d, but this directory was made with %d; leave the option out to keep that", e.Option, e.Want, e.Have)
}

func (e *ConfigError) Is(target error) bool { return target == ErrConfigChanged }

// passing is err if another try may succeed, else nil: what was to be read is gone or damaged, and stays so.
func passing(err error) error {
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	return nil
}
