package vfs

import (
	"io"
	"path/filepath"
	"strings"
)

// Guard keeps everybody from taking the process lock on name, without changing anything, until the closer is closed. A lock that is
// held gives *HeldError. A file system that knows no such lock, and a lock file that was never made, are guarded by nothing.
func Guard(fsys FS, name string) (io.Closer, error) {
	if g, ok := fsys.(interface {
		guard(name string) (io.Closer, error)
	}); ok {
		return g.guard(name)
	}
	return io.NopCloser(nil), nil
}

func (m *Mem) guard(name string) (io.Closer, error) {
	name = filepath.Clean(name)
	m.mu.Lock()
	held := m.locks[name]
	m.locks[name] = true
	m.mu.Unlock()
	if held {
		b, _ := ReadFile(m, name, 1<<20) // a holder that is not known is shown as such
		return nil, &HeldError{Name: name, Holder: strings.TrimSpace(string(b))}
	}
	return &memLock{m, name}, nil
}

func (x *intercepted) guard(name string) (io.Closer, error) { return Guard(x.fs, name) }
