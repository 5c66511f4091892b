package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// OS is the operating system's file system.
var OS FS = osFS{}

type osFS struct{}

// spaceError lets a full disk match ErrNoSpace and keeps the system's error.
type spaceError struct{ error }

func (e spaceError) Unwrap() error        { return e.error }
func (e spaceError) Is(target error) bool { return target == ErrNoSpace }

func sysErr(err error) error {
	if err != nil && (errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)) {
		return spaceError{err}
	}
	return err
}

func open(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o644)
	if err != nil {
		return nil, sysErr(err)
	}
	return osFile{f}, nil
}

func (osFS) Create(name string) (File, error)   { return open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC) }
func (osFS) Open(name string) (File, error)     { return open(name, os.O_RDWR) }
func (osFS) OpenRead(name string) (File, error) { return open(name, os.O_RDONLY) }
func (osFS) Remove(name string) error           { return os.Remove(name) }
func (osFS) Rename(o, n string) error           { return sysErr(os.Rename(o, n)) }

func (s osFS) MkdirAll(dir string) error {
	if st, err := os.Stat(dir); err == nil && st.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := s.MkdirAll(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return sysErr(err)
	}
	return s.SyncDir(parent)
}

func (osFS) List(dir string) ([]string, error) {
	es, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(es))
	for i, e := range es {
		names[i] = e.Name()
		if e.IsDir() {
			names[i] += "/"
		}
	}
	slices.Sort(names)
	return names, nil
}

func (osFS) Stat(name string) (Info, error) {
	st, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return Info{Size: st.Size(), ModTime: st.ModTime()}, nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if e := d.Close(); err == nil {
		err = e
	}
	return err
}

// Lock takes an fcntl lock on byte 0, as RocketMQ's broker does, so that either program keeps the other one out.
// An fcntl lock belongs to the process and goes with the first descriptor of the file that is closed, so a second Lock
// of the same file in one process is refused here and nothing else in the process may open it.
func (osFS) Lock(name string, holder []byte) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	locks.Lock()
	defer locks.Unlock()
	for _, l := range locks.held {
		if os.SameFile(l, st) {
			b := make([]byte, 1024)
			n, _ := f.ReadAt(b, 0)
			// f must stay open: closing it would drop the lock of the holder. One leaked descriptor per wrong second open.
			locks.parked = append(locks.parked, f)
			return nil, &HeldError{Name: name, Holder: string(bytes.TrimSpace(b[:n]))}
		}
	}
	lk := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: 0, Len: 1}
	if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lk); err != nil {
		b := make([]byte, 1024)
		n, _ := f.ReadAt(b, 0)
		f.Close()
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
			return nil, &HeldError{Name: name, Holder: string(bytes.TrimSpace(b[:n]))}
		}
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt(holder, 0)
	}
	if err != nil {
		f.Close()
		return nil, sysErr(err)
	}
	locks.held = append(locks.held, st)
	return &osLock{f: f, st: st}, nil
}

func (osFS) Space(dir string) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, fmt.Errorf("statfs %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, int64(st.Blocks-st.Bfree+st.Bavail) * st.Bsize, nil
}

type osFile struct{ f *os.File }

func (f osFile) ReadAt(p []byte, off int64) (int, error) { return f.f.ReadAt(p, off) }
func (f osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.f.WriteAt(p, off)
	return n, sysErr(err)
}
func (f osFile) Close() error              { return f.f.Close() }
func (f osFile) Truncate(size int64) error { return sysErr(f.f.Truncate(size)) }

func (f osFile) Allocate(size int64) error {
	for {
		err := unix.Fallocate(int(f.f.Fd()), 0, 0, size)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EOPNOTSUPP:
			// A file system without fallocate: the file becomes sparse, and a full disk shows at the write instead.
			st, err := f.f.Stat()
			if err != nil || st.Size() >= size {
				return err
			}
			return f.Truncate(size)
		case err != nil:
			return sysErr(fmt.Errorf("fallocate %s: %w", f.f.Name(), err))
		}
		return nil
	}
}

func (f osFile) Zero(off int64) error {
	size, err := f.Size()
	if err != nil || off >= size {
		return err
	}
	fd := int(f.f.Fd())
	for _, mode := range []uint32{unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE} {
		err := unix.Fallocate(fd, mode, off, size-off)
		for errors.Is(err, unix.EINTR) {
			err = unix.Fallocate(fd, mode, off, size-off)
		}
		switch {
		case err == nil && mode&unix.FALLOC_FL_PUNCH_HOLE != 0:
			return f.Allocate(size)
		case err == nil:
			return nil
		case !errors.Is(err, unix.EOPNOTSUPP):
			return sysErr(fmt.Errorf("zero %s from %d: %w", f.f.Name(), off, err))
		}
	}
	zeros := make([]byte, 1<<20)
	for off < size {
		n, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-off)], off)
		if err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

func (f osFile) NextData(off int64) (from, to int64, err error) {
	size, err := f.Size()
	if err != nil || off >= size {
		return size, size, err
	}
	fd := int(f.f.Fd())
	from, err = unix.Seek(fd, off, unix.SEEK_DATA)
	if err == nil {
		to, err = unix.Seek(fd, from, unix.SEEK_HOLE)
	}
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, size, nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return off, size, nil // cannot tell
	case err != nil:
		return 0, 0, fmt.Errorf("seek data in %s from %d: %w", f.f.Name(), off, err)
	}
	return from, to, nil
}

func (f osFile) Sync() error {
	for {
		err := unix.Fdatasync(int(f.f.Fd()))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return sysErr(fmt.Errorf("fdatasync %s: %w", f.f.Name(), err))
		}
		return nil
	}
}

// StartSync implements Starter.
func (f osFile) StartSync(off, n int64) {
	_ = unix.SyncFileRange(int(f.f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}

func (f osFile) Size() (int64, error) {
	st, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// Map implements Mapper.
func (f osFile) Map(size int64) ([]byte, func() error, error) {
	b, err := unix.Mmap(int(f.f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("mmap %s: %w", f.f.Name(), err)
	}
	return b, func() error { return unix.Munmap(b) }, nil
}
