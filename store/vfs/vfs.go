// Package vfs is the file system seam of the store.
//
// [OS] is the operating system. [NewMem] makes an in-memory twin that forgets what was not synced, for crash tests.
// [Intercept] wraps either one to inject errors, drop syncs, or write a transcript of what the store does.
//
// What the store may count on after a power cut is what the methods promise and no more: data reaches the disk with
// Sync, names with SyncDir, and MkdirAll is durable when it returns. Between two syncs any subset of the written
// sectors and of the changed names may survive.
//
// All methods may be called from any goroutine. Names are paths in the form of the host.
package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"
)

// FS is what the store needs of a file system. Errors satisfy errors.Is with io/fs.ErrNotExist and io/fs.ErrExist where
// they mean that, and with ErrNoSpace when the disk is full.
type FS interface {
	// Create makes an empty file open for reading and writing; an existing one is emptied. The name is durable after SyncDir.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// OpenRead opens an existing file for reading.
	OpenRead(name string) (File, error)
	// Remove deletes a file. Open handles stay usable.
	Remove(name string) error
	// Rename replaces newName by oldName in one step; both are in one directory.
	Rename(oldName, newName string) error
	// MkdirAll makes a directory and its parents, durably.
	MkdirAll(dir string) error
	// List returns the names in a directory, sorted, directories with a trailing slash.
	List(dir string) ([]string, error)
	// Stat describes a file.
	Stat(name string) (Info, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
	// Lock takes the process lock on name and writes holder into the file. A lock that is held by someone else gives *HeldError.
	Lock(name string, holder []byte) (io.Closer, error)
	// Space is the free number of bytes on the disk that holds dir, and what it has in total, without what is kept for the system's
	// own use; so total - free is what is used.
	Space(dir string) (free, total int64, err error)
}

// File is an open file. ReadAt, WriteAt and Sync may overlap.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Truncate sets the length; a longer file reads as zeros there.
	Truncate(size int64) error
	// Allocate reserves disk space for the first size bytes and makes the file at least that long, zero where nothing was written.
	Allocate(size int64) error
	// Zero makes the bytes from off to the end of the file zero, without a moment at which the file is shorter, and keeps their
	// space reserved.
	Zero(off int64) error
	// NextData returns the first range [from, to) from off on where something may have been written; from is the size of the
	// file when there is none. What it passes over reads as zeros. Reading can make the system take a hole for data, so who
	// wants to know the ranges of a file asks for all of them before reading any.
	NextData(off int64) (from, to int64, err error)
	// Sync makes the content and the length durable.
	Sync() error
	// Size is the length of the file.
	Size() (int64, error)
}

// Mapper is implemented by files that can be mapped into memory for reading.
type Mapper interface {
	// Map maps the first size bytes, shared with later writes to the file. The slice is valid until unmap is called; it
	// stays valid after Close and Remove.
	Map(size int64) (b []byte, unmap func() error, err error)
}

// Starter is implemented by files that can begin to bring bytes to the disk before anybody waits for that.
type Starter interface {
	// StartSync begins to write n bytes from off to the disk, so that the next Sync has less to do. It promises nothing, waits for nothing
	// and tells of no failure, which is the next Sync's to find.
	StartSync(off, n int64)
}

// Info describes a file.
type Info struct {
	Size    int64
	ModTime time.Time
}

// ErrNoSpace is matched by errors of a full disk.
var ErrNoSpace = errors.New("vfs: no space left on device")

// HeldError says who holds a lock.
type HeldError struct {
	Name   string
	Holder string // content of the lock file, written by the holder; may be empty
}

func (e *HeldError) Error() string {
	if e.Holder == "" {
		return fmt.Sprintf("lock %s is held by another process", e.Name)
	}
	return fmt.Sprintf("lock %s is held by %s", e.Name, e.Holder)
}

// ReadFile returns the content of a file, which must not be longer than limit bytes.
func ReadFile(fsys FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.OpenRead(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, fmt.Errorf("read %s: file has %d bytes, limit is %d", name, n, limit)
	}
	b := make([]byte, n)
	if m, err := f.ReadAt(b, 0); m < len(b) && err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}

// WriteFile replaces name by a file with content b so that after a crash at any point either the old or the new content
// is there: temp file, sync, rename, directory sync. With a backup name the old content is kept under it, written the
// same way first, so that a main file that turns out unreadable has a predecessor.
func WriteFile(fsys FS, name string, b []byte, backup string) error {
	if backup != "" {
		old, err := ReadFile(fsys, name, 1<<30)
		switch {
		case err == nil:
			if err := replace(fsys, backup, old); err != nil {
				return err
			}
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	if err := replace(fsys, name, b); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(name))
}

func replace(fsys FS, name string, b []byte) error {
	tmp := name + ".tmp"
	f, err := fsys.Create(tmp)
	if err != nil {
		return fmt.Errorf("create %s: %w", tmp, err)
	}
	if _, err = f.WriteAt(b, 0); err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = fsys.Rename(tmp, name)
	}
	if err != nil {
		_ = fsys.Remove(tmp) // best effort: the error that matters is err
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
