package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// guard takes a shared fcntl lock, for which the file is only opened for reading.
func (osFS) guard(name string) (io.Closer, error) {
	st, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return io.NopCloser(nil), nil
	}
	if err != nil {
		return nil, err
	}
	locks.Lock()
	defer locks.Unlock()
	for _, l := range locks.held {
		if os.SameFile(l, st) { // opening and closing it would drop the lock; see Lock
			return nil, &HeldError{Name: name, Holder: "this process"}
		}
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	lk := unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart, Start: 0, Len: 1}
	if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lk); err != nil {
		b := make([]byte, 1024)
		n, _ := f.ReadAt(b, 0) // a holder that is not known is shown as such
		_ = f.Close()          // it was only read
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
			return nil, &HeldError{Name: name, Holder: string(bytes.TrimSpace(b[:n]))}
		}
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	locks.held = append(locks.held, st)
	return &osGuard{osLock{f: f, st: st}}, nil
}

// osGuard is an osLock whose file is not written to.
type osGuard struct{ osLock }

func (g *osGuard) Close() error { return g.release(false) }
