package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Overlay is a file system over another one that is only read: what is changed is kept page by page, in memory or in files that have
// no name, and gone with the Overlay. So a program that writes can be tried on files that must not change.
//
// Locks are not taken from the file system below, the disk is never full, but for the one that the files without a name are on, and nothing is
// ever durable. Files cannot be mapped.
type Overlay struct {
	base    FS
	scratch func() (File, error) // makes a file without a name; nil: pages are in memory

	mu    sync.Mutex
	files map[string]*overlayNode // what differs from base, by name; nil: removed
	dirs  map[string]bool         // made here
}

// NewOverlay returns an Overlay over base in which nothing has changed yet. What changes is kept in memory.
func NewOverlay(base FS) *Overlay {
	return &Overlay{base: base, files: map[string]*overlayNode{}, dirs: map[string]bool{}}
}

// NewScratchOverlay is NewOverlay for changes that are more than memory should hold: they are written to files in dir, of the same file
// system, one for each file that changes. In memory is a bit for each page of 4 KiB. dir is made when it is needed; the files have no names in it, so that nothing is
// left of them after Close, or when the process ends.
func NewScratchOverlay(base FS, dir string) *Overlay {
	o := NewOverlay(base)
	var mu sync.Mutex
	n := 0 // files so far; guarded by mu
	o.scratch = func() (File, error) {
		mu.Lock()
		defer mu.Unlock()
		if n == 0 {
			if err := base.MkdirAll(dir); err != nil {
				return nil, err
			}
		}
		n++
		name := filepath.Join(dir, fmt.Sprintf("scratch-%d", n))
		f, err := base.Create(name)
		if err != nil {
			return nil, err
		}
		if err := base.Remove(name); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
	return o
}

// Close lets go of what has changed. No file of the Overlay may be used afterwards.
func (o *Overlay) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var err error
	for _, n := range o.files {
		if n != nil {
			err = errors.Join(err, n.drop())
		}
	}
	return err
}

// overlayNode is a file that was opened or changed. Bytes come from its pages, below limit from the file below, and are zero
// elsewhere.
type overlayNode struct {
	mu    sync.Mutex
	base  string // name of the file below; empty when there is none
	time  Info
	limit int64
	size  int64
	pages overlayPages
	open  int  // handles
	gone  bool // it has no name any more
}

// handle counts one more open file.
func (n *overlayNode) handle(below File) *overlayFile {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open++
	return &overlayFile{n: n, below: below}
}

// drop takes its name from a file; its pages go with the last handle.
func (n *overlayNode) drop() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone = true
	return n.releaseLocked()
}

func (n *overlayNode) releaseLocked() error {
	if !n.gone || n.open > 0 {
		return nil
	}
	return n.pages.close()
}

// node returns the file of a name, made from the file below at its first use; nil when there is none.
func (o *Overlay) node(name string) (*overlayNode, error) {
	name = filepath.Clean(name)
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.nodeLocked(name)
}

func (o *Overlay) nodeLocked(name string) (*overlayNode, error) {
	if n, ok := o.files[name]; ok {
		if n == nil {
			return nil, pathError("open", name, fs.ErrNotExist)
		}
		return n, nil
	}
	st, err := o.base.Stat(name)
	if err != nil {
		return nil, err
	}
	n := &overlayNode{base: name, time: st, limit: st.Size, size: st.Size, pages: o.newPages()}
	o.files[name] = n
	return n, nil
}

// Create implements FS.
func (o *Overlay) Create(name string) (File, error) {
	name = filepath.Clean(name)
	o.mu.Lock()
	defer o.mu.Unlock()
	if n, err := o.nodeLocked(name); err == nil {
		n.mu.Lock()
		n.limit, n.size = 0, 0
		err := n.pages.cut(0)
		n.mu.Unlock()
		if err != nil {
			return nil, err
		}
		return n.handle(nil), nil
	}
	n := &overlayNode{pages: o.newPages()}
	o.files[name] = n
	return n.handle(nil), nil
}

// Open implements FS.
func (o *Overlay) Open(name string) (File, error) {
	n, err := o.node(name)
	if err != nil {
		return nil, err
	}
	if n.base == "" {
		return n.handle(nil), nil
	}
	f, err := o.base.OpenRead(n.base)
	if err != nil {
		return nil, err
	}
	return n.handle(f), nil
}

// OpenRead implements FS.
func (o *Overlay) OpenRead(name string) (File, error) { return o.Open(name) }

// Remove implements FS.
func (o *Overlay) Remove(name string) error {
	name = filepath.Clean(name)
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.nodeLocked(name)
	if err != nil {
		return err
	}
	o.files[name] = nil
	return n.drop()
}

// Rename implements FS.
func (o *Overlay) Rename(oldName, newName string) error {
	oldName, newName = filepath.Clean(oldName), filepath.Clean(newName)
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.nodeLocked(oldName)
	if err != nil {
		return err
	}
	old := o.files[newName]
	o.files[oldName], o.files[newName] = nil, n
	if old == nil {
		return nil
	}
	return old.drop()
}

// MkdirAll implements FS.
func (o *Overlay) MkdirAll(dir string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for d := filepath.Clean(dir); !o.dirs[d]; d = filepath.Dir(d) {
		o.dirs[d] = true
	}
	return nil
}

// List implements FS.
func (o *Overlay) List(dir string) ([]string, error) {
	dir = filepath.Clean(dir)
	o.mu.Lock()
	defer o.mu.Unlock()
	names, err := o.base.List(dir)
	if err != nil && !o.dirs[dir] {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		n, ok := o.files[filepath.Join(dir, name)]
		return ok && n == nil && !strings.HasSuffix(name, "/")
	})
	for name, n := range o.files {
		if n != nil && filepath.Dir(name) == dir {
			names = append(names, filepath.Base(name))
		}
	}
	for d := range o.dirs {
		if d != dir && filepath.Dir(d) == dir {
			names = append(names, filepath.Base(d)+"/")
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Stat implements FS.
func (o *Overlay) Stat(name string) (Info, error) {
	n, err := o.node(name)
	if err != nil {
		return Info{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return Info{Size: n.size, ModTime: n.time.ModTime}, nil
}

// SyncDir implements FS.
func (o *Overlay) SyncDir(string) error { return nil }

// Lock implements FS.
func (o *Overlay) Lock(name string, holder []byte) (io.Closer, error) {
	return io.NopCloser(bytes.NewReader(nil)), nil
}

// Space implements FS: there is always room.
func (o *Overlay) Space(string) (free, total int64, err error) { return 1 << 60, 1 << 60, nil }

type overlayFile struct {
	n      *overlayNode
	below  File // nil when there is no file below
	closed bool // guarded by n.mu
}

func (f *overlayFile) Close() error {
	f.n.mu.Lock()
	var err error
	if !f.closed {
		f.closed = true
		f.n.open--
		err = f.n.releaseLocked()
	}
	f.n.mu.Unlock()
	if f.below != nil {
		err = errors.Join(err, f.below.Close())
	}
	return err
}

func (f *overlayFile) Size() (int64, error) {
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	return f.n.size, nil
}

func (f *overlayFile) ReadAt(p []byte, off int64) (int, error) {
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	return f.readLocked(p, off)
}

func (f *overlayFile) readLocked(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("vfs: read at %d", off)
	}
	n := f.n
	want := len(p)
	p = p[:min(int64(want), max(0, n.size-off))]
	clear(p)
	if f.below != nil && off < n.limit {
		part := p[:min(int64(len(p)), n.limit-off)]
		if m, err := f.below.ReadAt(part, off); m < len(part) && err != nil {
			return m, err
		}
	}
	if err := n.pages.read(p, off); err != nil {
		return 0, err
	}
	if len(p) < want {
		return len(p), io.EOF
	}
	return want, nil
}

func (f *overlayFile) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("vfs: write at %d", off)
	}
	n := f.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	end := off + int64(len(p))
	for _, part := range [2]int64{off, end} { // a page that is written in part has the rest of what it shows
		i := part / overlayPage
		if part%overlayPage == 0 || n.pages.has(i) {
			continue
		}
		b := make([]byte, overlayPage)
		if _, err := f.readLocked(b, i*overlayPage); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if err := n.pages.write(b, i*overlayPage); err != nil {
			return 0, err
		}
	}
	if err := n.pages.write(p, off); err != nil {
		return 0, err
	}
	n.size = max(n.size, end)
	return len(p), nil
}

func (f *overlayFile) Truncate(size int64) error {
	if err := f.Zero(size); err != nil {
		return err
	}
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	f.n.size = size
	return nil
}

func (f *overlayFile) Allocate(size int64) error {
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	f.n.size = max(f.n.size, size)
	return nil
}

func (f *overlayFile) Zero(off int64) error {
	n := f.n
	n.mu.Lock()
	defer n.mu.Unlock()
	n.limit = min(n.limit, off)
	return n.pages.cut(off)
}

func (f *overlayFile) NextData(off int64) (from, to int64, err error) {
	n := f.n
	n.mu.Lock()
	defer n.mu.Unlock()
	from, to = n.size, n.size
	if f.below != nil && off < n.limit {
		a, b, err := f.below.NextData(off)
		if err != nil {
			return 0, 0, err
		}
		if a < n.limit {
			from, to = a, min(b, n.limit)
		}
	}
	if i := n.pages.next(off / overlayPage); i >= 0 && max(off, i*overlayPage) < from {
		from, to = max(off, i*overlayPage), (i+1)*overlayPage
	}
	return min(from, n.size), min(to, n.size), nil
}

func (f *overlayFile) Sync() error { return nil }
