package vfs

import "io"

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
	l, err := m.hold(name)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (x *intercepted) guard(name string) (io.Closer, error) { return Guard(x.fs, name) }
