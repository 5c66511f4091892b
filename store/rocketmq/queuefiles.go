package rocketmq

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// Names of a broker's directories below the store directory.
const (
	QueueDir     = "consumequeue"
	ExtensionDir = "consumequeue_ext"
	IndexDir     = "index"
	TimerLogDir  = "timerlog"
	WheelFile    = "timerwheel"
	ConfigDir    = "config"
)

// Sequence is a row of files of equal length that continue each other, each named for the position that it begins at.
type Sequence struct {
	fs    vfs.FS
	dir   string
	Size  int64   // of a file, in bytes
	Bases []int64 // where the files begin
}

// OpenSequence looks at the files in a directory; one that is missing has none. A file of another length than the first, a gap, or a
// name that is no position is an error.
func OpenSequence(fsys vfs.FS, dir string) (*Sequence, error) {
	q := &Sequence{fs: fsys, dir: dir}
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return q, nil
	}
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		if strings.HasSuffix(name, "/") {
			continue
		}
		base, err := strconv.ParseInt(name, 10, 64)
		if err != nil || base < 0 || len(name) != 20 {
			return nil, &FileError{filepath.Join(dir, name), "its name is no position of 20 digits"}
		}
		st, err := fsys.Stat(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		switch n := len(q.Bases); {
		case st.Size == 0 && i == len(names)-1:
			continue
		case n > 0 && st.Size != q.Size:
			return nil, &FileError{filepath.Join(dir, name), fmt.Sprintf("has %d bytes, files here have %d", st.Size, q.Size)}
		case n > 0 && base != q.Bases[n-1]+q.Size:
			return nil, &FileError{filepath.Join(dir, name), fmt.Sprintf("begins at %d, the file before it ends at %d", base, q.Bases[n-1]+q.Size)}
		}
		q.Size = st.Size
		q.Bases = append(q.Bases, base)
	}
	return q, nil
}

// FileError is a file that is not what a broker leaves.
type FileError struct {
	File string
	What string
}

func (e *FileError) Error() string { return e.File + ": " + e.What }

// Begin and End are the bounds of the files.
func (q *Sequence) Begin() int64 {
	if len(q.Bases) == 0 {
		return 0
	}
	return q.Bases[0]
}

// End is where the last file ends.
func (q *Sequence) End() int64 { return q.Begin() + int64(len(q.Bases))*q.Size }

// Name is the path of the file that holds a position.
func (q *Sequence) Name(position int64) string {
	if q.Size > 0 {
		position -= (position - q.Begin()) % q.Size
	}
	return filepath.Join(q.dir, fmt.Sprintf("%020d", position))
}

// ReadAt reads bytes from a position, up to the end of the file that holds it: io.EOF at or behind the last one's, and in front of the first.
func (q *Sequence) ReadAt(b []byte, position int64) (int, error) {
	if position < q.Begin() || position >= q.End() {
		return 0, io.EOF
	}
	f, err := q.fs.OpenRead(q.Name(position))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	off := (position - q.Begin()) % q.Size
	b = b[:min(int64(len(b)), q.Size-off)]
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		err = nil
	}
	return n, err
}

// Queue reads the files of one consume queue.
//
// It keeps no file open; Entry reads some entries at once. One caller at a time.
type Queue struct {
	Entries, Units *Sequence

	buf  []byte
	from int64 // position of buf[0] in Entries
}

// OpenQueue looks at the files of a queue in the store directory dir.
func OpenQueue(fsys vfs.FS, dir, topic string, id int32) (*Queue, error) {
	entries, err := OpenSequence(fsys, filepath.Join(dir, QueueDir, topic, strconv.Itoa(int(id))))
	if err != nil {
		return nil, err
	}
	units, err := OpenSequence(fsys, filepath.Join(dir, ExtensionDir, topic, strconv.Itoa(int(id))))
	if err != nil {
		return nil, err
	}
	if entries.Size%EntryBytes != 0 {
		return nil, &FileError{entries.Name(entries.Begin()), fmt.Sprintf("has %d bytes, no multiple of %d", entries.Size, EntryBytes)}
	}
	return &Queue{Entries: entries, Units: units}, nil
}

const entryWindow = 128 * EntryBytes

// Entry reads the entry of an offset; ok is false where none was written.
func (q *Queue) Entry(offset int64) (e Entry, ok bool, err error) {
	if offset < 0 || offset > q.Entries.End()/EntryBytes {
		return Entry{}, false, nil
	}
	at := offset * EntryBytes
	if at < q.from || at+EntryBytes > q.from+int64(len(q.buf)) {
		if q.buf == nil {
			q.buf = make([]byte, entryWindow)
		}
		n, err := q.Entries.ReadAt(q.buf[:entryWindow], at)
		q.buf, q.from = q.buf[:n], at
		if errors.Is(err, io.EOF) {
			return Entry{}, false, nil
		}
		if err != nil {
			q.buf = q.buf[:0]
			return Entry{}, false, err
		}
	}
	e, ok = DecodeEntry(q.buf[at-q.from:])
	return e, ok, nil
}

// Unit reads an extension unit.
func (q *Queue) Unit(address int64) (u Unit, ok bool, err error) {
	b := make([]byte, 1<<15)
	n, err := q.Units.ReadAt(b, address)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return Unit{}, false, err
	}
	u, _, ok, _ = DecodeUnit(b[:n])
	return u, ok, nil
}

// Tags is what the entry says of the tag, or in a schedule queue of the due time, also when that is in its extension unit.
func (q *Queue) Tags(e Entry) (tags int64, ok bool, err error) {
	address, ext := e.Extension()
	if !ext {
		return e.Tags, true, nil
	}
	u, ok, err := q.Unit(address)
	return u.Tags, ok, err
}

// Range is the queue's first offset that is no blank and the one behind its last. It reads the first and the last file.
func (q *Queue) Range() (low, high int64, err error) {
	s := q.Entries
	if len(s.Bases) == 0 {
		return 0, 0, nil
	}
	low = s.Begin() / EntryBytes
	for ; ; low++ {
		e, ok, err := q.Entry(low)
		if err != nil {
			return 0, 0, err
		}
		if !ok || !e.Blank() {
			break
		}
	}
	high = max(low, s.Bases[len(s.Bases)-1]/EntryBytes)
	for ; ; high++ {
		_, ok, err := q.Entry(high)
		if err != nil {
			return 0, 0, err
		}
		if !ok {
			return low, high, nil
		}
	}
}
