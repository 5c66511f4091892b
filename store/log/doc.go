// Package log is the CommitLog: segments of one size in a directory, records and padding as RocketMQ lays them out
// (store/.../CommitLog.java, MappedFileQueue.java), one append pipeline for all producers.
//
// Start at [Open], then [Log.Recover], then [Log.Start]. [Log.Append] may be called by any number of goroutines: callers
// encode outside any lock, take one short lock for their place, and whoever finds no writer writes what has gathered, so
// a burst costs one write and no record crosses a channel. Batches that wait for durability are left to the flush loop,
// whose fdatasync takes with it all that arrived during the one before.
//
// What it promises: a batch that was acknowledged in memory may be lost with the process, one without Sync survives the end of the process, one with Sync survives
// the end of the machine. Records become visible (Options.Written, Options.Synced) in log order. A write that fails
// leaves nothing behind that a reader or a later recovery could see, and consumes no queue offset. After a failed sync
// nothing is accepted until the log is opened again, since the kernel may have dropped the pages.
//
// What it does not do: it knows nothing of topics, and it deletes a segment only when told to ([Log.DeleteBelow]).
//
// Goroutines: prepare makes the next segment before the current one is full and watches the time of syncs; flush syncs; write
// writes what nobody waits for. All start in Start and end in Close. Lock order: Log.mu is taken last and never held during a callback or a system call on the write path.
package log

import (
	"errors"
	"fmt"
)

// Errors that Append sets on items; ErrClosed is also returned by Read.
var (
	ErrClosed = errors.New("log: closed")
	// ErrFailed is set after a failed sync until the log is opened again, and after a failed write until the background
	// repair has cut off what it left. The cause is wrapped beside it.
	ErrFailed = errors.New("log: not writable after a failed write")
	// ErrTooLarge is set on a record that fits no segment.
	ErrTooLarge = errors.New("log: record is larger than a segment")
	// ErrFlushTimeout is set on items that are written but were not synced within SyncTimeout. They are in the log and become
	// visible when the sync ends after all.
	ErrFlushTimeout = errors.New("log: not synced in time")
	// ErrRange is returned by reads outside the log.
	ErrRange = errors.New("log: position is outside the log")
	// ErrUnavailable is returned by reads of what is there but cannot be read now, because there are too many open files, say. The cause
	// is wrapped beside it.
	ErrUnavailable = errors.New("log: cannot be read at the moment")
)

// NoSpaceError is set on items when the next segment cannot be made. Appends are tried again when space is back.
type NoSpaceError struct {
	Dir         string
	Need        int64 // bytes of the segment that was to be made
	Keep        int64 // bytes that have to stay free beside it
	Free, Total int64 // bytes of the disk at that time; -1 when unknown
	Err         error
}

func (e *NoSpaceError) Error() string {
	return fmt.Sprintf("log: no room for the next segment in %s: it needs %d bytes and %d beside it, %d of %d are free: %v", e.Dir, e.Need, e.Keep, e.Free, e.Total, e.Err)
}

func (e *NoSpaceError) Unwrap() error { return e.Err }

// CorruptError says which file of a log directory cannot be used and why. Nothing was changed.
type CorruptError struct {
	File string
	Err  error
}

func (e *CorruptError) Error() string { return fmt.Sprintf("log: segment %s: %v", e.File, e.Err) }
func (e *CorruptError) Unwrap() error { return e.Err }
