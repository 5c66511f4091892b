package log_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// readAhead is a file system that takes what was read, and as much behind it, for data from then on, as ext4 does with a
// hole whose pages are in memory.
type readAhead struct {
	vfs.FS
	read atomic.Int64 // bytes
}

func (x *readAhead) Create(name string) (vfs.File, error) { return x.wrap(x.FS.Create(name)) }
func (x *readAhead) Open(name string) (vfs.File, error)   { return x.wrap(x.FS.Open(name)) }

func (x *readAhead) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &aheadFile{File: f, x: x}, nil
}

type aheadFile struct {
	vfs.File
	x    *readAhead
	seen int64
}

func (f *aheadFile) ReadAt(p []byte, off int64) (int, error) {
	f.seen = max(f.seen, off+2*int64(len(p)))
	f.x.read.Add(int64(len(p)))
	return f.File.ReadAt(p, off)
}

func (f *aheadFile) NextData(off int64) (from, to int64, err error) {
	size, err := f.Size()
	if err == nil && off < f.seen {
		return off, min(f.seen, size), nil
	}
	return f.File.NextData(off)
}

// A start reads what a segment has and not the space behind it: with 1 GiB of it the difference is seconds.
func TestStartDoesNotReadTheSpaceBehindTheLog(t *testing.T) {
	const size = 64 << 20
	x := &readAhead{FS: vfs.NewMem()}
	if err := x.MkdirAll("/log"); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"new", "after a crash"} {
		l, err := log.Open(log.Options{FS: x, Dir: "/log", SegmentBytes: size, Unclean: true, Now: func() int64 { return time.Now().UnixMilli() }})
		if err != nil {
			t.Fatal(err)
		}
		x.read.Store(0)
		if _, err := l.Recover(0, false, func(record.View) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if n := x.read.Load(); n > size/8 {
			t.Errorf("%s: %d bytes were read of a segment of %d that is empty", when, n, size)
		}
		l.Start()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
