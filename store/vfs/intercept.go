package vfs

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// Op is an operation that is about to happen.
type Op struct {
	Kind string // create open openread remove rename mkdir list stat syncdir lock space read write truncate allocate zero sync close
	Name string
	To   string // new name of a rename
	Off  int64  // of a read, write or zero
	Len  int64  // bytes of a read or write, size of a truncate or allocate
}

// String is one line of a transcript, with the base names of files.
func (o Op) String() string {
	name := filepath.Base(o.Name)
	switch o.Kind {
	case "rename":
		return fmt.Sprintf("rename %s -> %s", name, filepath.Base(o.To))
	case "write", "read":
		return fmt.Sprintf("%s %s [%d, %d)", o.Kind, name, o.Off, o.Off+o.Len)
	case "zero":
		return fmt.Sprintf("zero %s from %d", name, o.Off)
	case "truncate", "allocate":
		return fmt.Sprintf("%s %s %d", o.Kind, name, o.Len)
	}
	return o.Kind + " " + name
}

// ErrSkip, returned by a hook, makes an operation that returns nothing but an error succeed without being done: a sync that the
// disk ignores.
var ErrSkip = errors.New("vfs: skipped")

// ShortWrite, returned by a hook, makes a write stop after N bytes with Err.
type ShortWrite struct {
	N   int
	Err error
}

func (e *ShortWrite) Error() string { return fmt.Sprintf("short write of %d bytes: %v", e.N, e.Err) }
func (e *ShortWrite) Unwrap() error { return e.Err }

// Intercept returns a file system that asks before for every operation: nil lets it happen, ErrSkip and *ShortWrite do what
// they say, any other error is its outcome. before must be safe for concurrent use. Files cannot be mapped, so that every
// read passes.
func Intercept(fsys FS, before func(Op) error) FS {
	return &intercepted{fs: fsys, before: before, names: map[string]*fileName{}}
}

type intercepted struct {
	fs     FS
	before func(Op) error

	mu    sync.Mutex
	names map[string]*fileName // of files that were opened, by their name now
}

// fileName is the name that a file has, also after it was renamed while it was open.
type fileName struct{ atomic.Pointer[string] }

func (x *intercepted) name(name string) *fileName {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.names[name]
	if n == nil {
		n = new(fileName)
		n.Store(&name)
		x.names[name] = n
	}
	return n
}

func (x *intercepted) renamed(o, n string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if f := x.names[o]; f != nil {
		f.Store(&n)
		x.names[n] = f
		delete(x.names, o)
	}
}

func (x *intercepted) do(o Op, f func() error) error {
	err := x.before(o)
	switch {
	case err == nil:
		return f()
	case errors.Is(err, ErrSkip):
		return nil
	}
	return err
}

func (x *intercepted) open(o Op, open func(string) (File, error)) (File, error) {
	if err := x.before(o); err != nil {
		return nil, err
	}
	f, err := open(o.Name)
	if err != nil {
		return nil, err
	}
	return &interceptedFile{x, f, x.name(o.Name)}, nil
}

func (x *intercepted) Create(name string) (File, error) {
	return x.open(Op{Kind: "create", Name: name}, x.fs.Create)
}

func (x *intercepted) Open(name string) (File, error) {
	return x.open(Op{Kind: "open", Name: name}, x.fs.Open)
}

func (x *intercepted) OpenRead(name string) (File, error) {
	return x.open(Op{Kind: "openread", Name: name}, x.fs.OpenRead)
}

func (x *intercepted) Remove(name string) error {
	return x.do(Op{Kind: "remove", Name: name}, func() error { return x.fs.Remove(name) })
}

func (x *intercepted) Rename(o, n string) error {
	return x.do(Op{Kind: "rename", Name: o, To: n}, func() error {
		err := x.fs.Rename(o, n)
		if err == nil {
			x.renamed(o, n)
		}
		return err
	})
}

func (x *intercepted) MkdirAll(dir string) error {
	return x.do(Op{Kind: "mkdir", Name: dir}, func() error { return x.fs.MkdirAll(dir) })
}

func (x *intercepted) SyncDir(dir string) error {
	return x.do(Op{Kind: "syncdir", Name: dir}, func() error { return x.fs.SyncDir(dir) })
}

func (x *intercepted) List(dir string) ([]string, error) {
	if err := x.before(Op{Kind: "list", Name: dir}); err != nil {
		return nil, err
	}
	return x.fs.List(dir)
}

func (x *intercepted) Stat(name string) (Info, error) {
	if err := x.before(Op{Kind: "stat", Name: name}); err != nil {
		return Info{}, err
	}
	return x.fs.Stat(name)
}

func (x *intercepted) Lock(name string, holder []byte) (io.Closer, error) {
	if err := x.before(Op{Kind: "lock", Name: name}); err != nil {
		return nil, err
	}
	return x.fs.Lock(name, holder)
}

func (x *intercepted) Space(dir string) (free, total int64, err error) {
	if err := x.before(Op{Kind: "space", Name: dir}); err != nil {
		return 0, 0, err
	}
	return x.fs.Space(dir)
}

type interceptedFile struct {
	x    *intercepted
	f    File
	name *fileName
}

func (f *interceptedFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.x.before(Op{Kind: "read", Name: *f.name.Load(), Off: off, Len: int64(len(p))}); err != nil {
		return 0, err
	}
	return f.f.ReadAt(p, off)
}

func (f *interceptedFile) WriteAt(p []byte, off int64) (int, error) {
	err := f.x.before(Op{Kind: "write", Name: *f.name.Load(), Off: off, Len: int64(len(p))})
	if err == nil {
		return f.f.WriteAt(p, off)
	}
	var s *ShortWrite
	if errors.As(err, &s) {
		n, e := f.f.WriteAt(p[:min(s.N, len(p))], off)
		if e != nil {
			err = e
		}
		return n, err
	}
	return 0, err
}

func (f *interceptedFile) Truncate(size int64) error {
	return f.x.do(Op{Kind: "truncate", Name: *f.name.Load(), Len: size}, func() error { return f.f.Truncate(size) })
}

func (f *interceptedFile) Allocate(size int64) error {
	return f.x.do(Op{Kind: "allocate", Name: *f.name.Load(), Len: size}, func() error { return f.f.Allocate(size) })
}

func (f *interceptedFile) Zero(off int64) error {
	return f.x.do(Op{Kind: "zero", Name: *f.name.Load(), Off: off}, func() error { return f.f.Zero(off) })
}

func (f *interceptedFile) NextData(off int64) (from, to int64, err error) { return f.f.NextData(off) }

func (f *interceptedFile) Sync() error {
	return f.x.do(Op{Kind: "sync", Name: *f.name.Load()}, f.f.Sync)
}

func (f *interceptedFile) Size() (int64, error) { return f.f.Size() }

func (f *interceptedFile) Close() error {
	return f.x.do(Op{Kind: "close", Name: *f.name.Load()}, f.f.Close)
}
