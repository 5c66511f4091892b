package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"

	"github.com/fusionmq/fusionmq/store/runs"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// checkpoint is a snapshot of what the log below a position has made of the push state. It only saves start-up time: the
// log below position is known to be durable and valid, so an open verifies and replays from there.
type checkpoint struct {
	position int64
	time     int64 // newest store time below position, milliseconds since 1970
	clean    bool  // the log ended at position when the store was closed
	state    []byte

	pin *runs.Pin // what state names in files; nil when it was read
}

// The file, little-endian (docs/store-format.md):
//
//	0 8 magic "FMQCKPT" 0x01   8 8 position   16 8 time   24 4 flags: 1 clean   28 4 length of state   32 .. state   .. 4 CRC-32C of all before
const (
	checkpointMagic = "FMQCKPT\x01"
	checkpointHead  = 32
	checkpointLimit = 1 << 30
	checkpointClean = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (c checkpoint) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, checkpointHead+len(c.state)+4)
	b = append(b, checkpointMagic...)
	b = le.AppendUint64(b, uint64(c.position))
	b = le.AppendUint64(b, uint64(c.time))
	flags := uint32(0)
	if c.clean {
		flags |= checkpointClean
	}
	b = le.AppendUint32(b, flags)
	b = le.AppendUint32(b, uint32(len(c.state)))
	b = append(b, c.state...)
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeCheckpoint(b []byte) (checkpoint, error) {
	le := binary.LittleEndian
	if len(b) < checkpointHead+4 {
		return checkpoint{}, fmt.Errorf("has %d bytes, at least %d are needed", len(b), checkpointHead+4)
	}
	if string(b[:8]) != checkpointMagic {
		return checkpoint{}, fmt.Errorf("starts with %q, want %q", b[:8], checkpointMagic)
	}
	body := b[:len(b)-4]
	if crc32.Checksum(body, castagnoli) != le.Uint32(b[len(body):]) {
		return checkpoint{}, errors.New("has a wrong checksum")
	}
	c := checkpoint{
		position: int64(le.Uint64(b[8:])), time: int64(le.Uint64(b[16:])),
		clean: le.Uint32(b[24:])&checkpointClean != 0, state: body[checkpointHead:],
	}
	if n := le.Uint32(b[28:]); int64(n) != int64(len(c.state)) || c.position < 0 {
		return checkpoint{}, fmt.Errorf("says %d bytes of state at position %d, has %d", n, c.position, len(c.state))
	}
	return c, nil
}

// loadCheckpoint returns the snapshot, ok false when there is none that can be used; that costs time, nothing else.
func (s *Store) loadCheckpoint() (c checkpoint, ok bool, err error) {
	name := s.path(ownDir, checkpointName)
	b, err := vfs.ReadFile(s.o.FS, name, checkpointLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return c, false, nil
	}
	if err != nil {
		return c, false, err
	}
	if c, err = decodeCheckpoint(b); err != nil {
		s.event(levelWarn, "checkpoint cannot be used, the whole log is read", "file", name, "err", err)
		return checkpoint{}, false, nil
	}
	return c, true, nil
}

// snapshot takes the state for a checkpoint at position, below which everything has been dispatched. The state may be ahead of it: it passes
// over what it has seen.
func (s *Store) snapshot(position int64, clean bool) checkpoint {
	s.machine.RLock()
	defer s.machine.RUnlock()
	c := checkpoint{position: position, time: s.log.LastTime(), clean: clean}
	c.state = s.machine.SaveWith(nil, func(dst []byte) []byte {
		dst, c.pin = s.rows.Snapshot(dst)
		return dst
	})
	return c
}

// checkpointNow has the checkpoint on the disk speak for all that has been dispatched. What is about to go with its segment must not be
// needed to read the log from an older one: a message that was published is owed to the groups that its body was for. Where there is no room
// for a file there is none afterwards, and a start finds what was restated.
func (s *Store) checkpointNow() error {
	position := s.dispatch.position() // before the state is taken
	if s.saveCheckpoint(s.snapshot(position, false)) == nil {
		return nil
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	err := s.o.FS.Remove(s.path(ownDir, checkpointName))
	if err == nil {
		err = s.o.FS.SyncDir(s.path(ownDir))
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err
}

// saveCheckpoint writes c once the log below it is durable, unless there is a newer one.
func (s *Store) saveCheckpoint(c checkpoint) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	if c.position < s.rows.saved {
		c.pin.Release()
		return nil
	}
	err := s.syncLog()
	if err == nil {
		err = s.writeCheckpoint(c)
	} else {
		c.pin.Release()
	}
	if err != nil && !s.closed.Load() {
		s.event(levelWarn, "checkpoint could not be written, a start after a crash reads more of the log", "position", c.position, "err", err)
	}
	return err
}

// writeCheckpoint writes c, whose log is durable, when the files that it names are. The files of the one before may go then.
func (s *Store) writeCheckpoint(c checkpoint) error {
	err := c.pin.Sync()
	if err == nil {
		err = vfs.WriteFile(s.o.FS, s.path(ownDir, checkpointName), c.encode(), "")
	}
	if err != nil {
		c.pin.Release() // the one that is there still counts
		return err
	}
	s.rows.pin.Release()
	s.rows.pin, s.rows.saved = c.pin, c.position
	return nil
}

// rows are what waits: the table of the state machine.
type rows struct {
	*runs.Table
	pin   *runs.Pin // what the checkpoint on the disk needs
	saved int64     // position of the one that was written last
}

// openRows makes an empty table, instead of the one that is there.
func (s *Store) openRows() error {
	if err := s.closeRows(); err != nil {
		return err
	}
	t, err := runs.Open(runs.Config{
		FS: s.o.FS, Dir: s.path(ownDir, stateDir), TailRows: s.o.tailRows,
		Failed: func(err error) { s.event(levelError, "file of what waits could not be used", "err", err) },
	})
	s.rows.Table = t
	return err
}

// stateTable is a table as the state machine wants it.
type stateTable struct{ *runs.Table }

func (t stateTable) Freeze() state.Rows { return t.View() }

func (r *rows) restore(b []byte) (err error) {
	r.pin, err = r.Restore(b)
	return err
}

func (s *Store) closeRows() error {
	if s.rows.Table == nil {
		return nil
	}
	err := s.rows.Close() // first: no file goes any more
	s.rows.pin.Release()
	s.rows.pin = nil
	return err
}
