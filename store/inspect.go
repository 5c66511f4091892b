package store

import (
	"crypto/sha256"
	"fmt"
	"io"
	"path/filepath"

	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// Layout names the files of a directory, for tools that look at it while no store has it open.
type Layout struct {
	Log, Marker                               string // commitlog/ and the mark in it that makes a directory ours
	Config                                    string
	Own, Index, Keys, Bits, State, Checkpoint string // fusionmq/ and what is in it
	Abort, Lock                               string
}

// LayoutOf returns the names in a directory.
func LayoutOf(dir string) Layout {
	in := func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
	return Layout{
		Log: in(logDir), Marker: in(logDir, log.MarkerName), Config: in(configDir),
		Own: in(ownDir), Index: in(ownDir, indexDir), Keys: in(ownDir, keysDir), Bits: in(ownDir, bitsDir), State: in(ownDir, stateDir), Checkpoint: in(ownDir, checkpointName),
		Abort: in(abortName), Lock: in(lockName),
	}
}

// ReadFormat reads the mark of a directory: the format, which this program may be too old for, and the size of a segment in bytes.
// Without a mark it is an fs.ErrNotExist.
func ReadFormat(fsys vfs.FS, dir string) (version int, segmentBytes int64, err error) {
	name := LayoutOf(dir).Marker
	b, err := vfs.ReadFile(fsys, name, 1<<16)
	if err != nil {
		return 0, 0, err
	}
	f, err := decodeFormat(b)
	if err != nil {
		return 0, 0, fmt.Errorf("%s %w", name, err)
	}
	if f.version > formatVersion {
		return f.version, f.segmentBytes, &FormatError{File: name, Have: f.version, Can: formatVersion}
	}
	return f.version, f.segmentBytes, nil
}

// CheckpointInfo is what fusionmq/checkpoint says.
type CheckpointInfo struct {
	Position int64  // the log below it was durable and valid
	Clean    bool   // the log ended at Position when the store was closed
	State    []byte // for state.LoadWith
}

// ReadCheckpoint reads the checkpoint of a directory. Without one it is an fs.ErrNotExist.
func ReadCheckpoint(fsys vfs.FS, dir string) (CheckpointInfo, error) {
	name := LayoutOf(dir).Checkpoint
	b, err := vfs.ReadFile(fsys, name, checkpointLimit)
	if err != nil {
		return CheckpointInfo{}, err
	}
	c, err := decodeCheckpoint(b)
	if err != nil {
		return CheckpointInfo{}, fmt.Errorf("%s %w", name, err)
	}
	return CheckpointInfo{Position: c.position, Clean: c.clean, State: c.state}, nil
}

// StateSum is the checksum and the length in bytes of the state as of what has been dispatched. Equal states have equal ones.
func (s *Store) StateSum() (sum [sha256.Size]byte, bytes int64, err error) {
	s.machine.RLock()
	f := s.machine.Freeze()
	s.machine.RUnlock()
	defer f.Release()
	h := sha256.New()
	n := counter{h, 0}
	err = f.Save(&n)
	return [sha256.Size]byte(h.Sum(nil)), n.bytes, err
}

// counter counts what is written through it.
type counter struct {
	w     io.Writer
	bytes int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.bytes += int64(n)
	return n, err
}

// Queues calls fn for every queue that has or had a message.
func (s *Store) Queues(fn func(*queue.Queue)) {
	s.index.Topics(func(t *queue.Topic) { t.Queues(fn) })
}
