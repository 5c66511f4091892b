package export

import (
	"fmt"
	"path/filepath"

	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

const writeBuffer = 1 << 20

// logWriter writes the files of a log.
type logWriter struct {
	fs      vfs.FS
	dir     string
	size    int64 // of a file
	end     int64 // position of the next record
	f       vfs.File
	base    int64
	buf     []byte
	from    int64 // position of buf[0]
	records int64
	newest  int64 // store time
}

// append writes a record, which gets its position, and returns that.
func (l *logWriter) append(b []byte) (int64, error) {
	if int64(len(b))+record.BlankSize > l.size {
		return 0, fmt.Errorf("record of %d bytes does not fit a log file of %d", len(b), l.size)
	}
	if l.f == nil {
		if err := l.create(); err != nil {
			return 0, err
		}
	}
	if left := l.base + l.size - l.end; int64(len(b))+record.BlankSize > left {
		l.buf = record.AppendBlank(l.buf, left)
		if err := l.finish(); err != nil {
			return 0, err
		}
		l.end = l.base + l.size
		if err := l.create(); err != nil {
			return 0, err
		}
	}
	at := l.end
	record.SetPhysicalOffset(b, at)
	l.buf = append(l.buf, b...)
	l.end += int64(len(b))
	l.records++
	v, err := record.Parse(b)
	if err != nil {
		return 0, err
	}
	l.newest = max(l.newest, v.StoreTime())
	if len(l.buf) >= writeBuffer {
		return at, l.flush()
	}
	return at, nil
}

func (l *logWriter) create() (err error) {
	l.base, l.from = l.end, l.end
	if l.f, err = l.fs.Create(filepath.Join(l.dir, fmt.Sprintf("%020d", l.base))); err == nil {
		err = l.f.Truncate(l.size)
	}
	return err
}

func (l *logWriter) flush() error {
	_, err := l.f.WriteAt(l.buf, l.from-l.base)
	l.from += int64(len(l.buf))
	l.buf = l.buf[:0]
	return err
}

// finish makes the file durable.
func (l *logWriter) finish() error {
	if l.f == nil {
		return nil
	}
	err := l.flush()
	if err == nil {
		err = l.f.Sync()
	}
	if e := l.f.Close(); err == nil {
		err = e
	}
	l.f = nil
	return err
}
