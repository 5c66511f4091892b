package vfs

import (
	"os"
	"slices"
	"sync"
)

// locks are the lock files this process holds; fcntl itself never refuses the owner.
var locks struct {
	sync.Mutex
	held   []os.FileInfo
	parked []*os.File // see Lock
}

type osLock struct {
	f  *os.File
	st os.FileInfo
}

func (l *osLock) Close() error { return l.release(true) }

// release gives the lock back, with clear after the name of its holder was taken out of the file.
func (l *osLock) release(clear bool) error {
	locks.Lock()
	defer locks.Unlock()
	locks.held = slices.DeleteFunc(locks.held, func(st os.FileInfo) bool { return os.SameFile(st, l.st) })
	var err error
	if clear {
		err = l.f.Truncate(0)
	}
	if e := l.f.Close(); err == nil {
		err = e
	}
	// With the lock gone the parked descriptors of this file protect nothing.
	locks.parked = slices.DeleteFunc(locks.parked, func(f *os.File) bool {
		st, err := f.Stat()
		if err == nil && !os.SameFile(st, l.st) {
			return false
		}
		f.Close()
		return true
	})
	return err
}
