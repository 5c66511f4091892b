package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Overlay is a file system over another one that is only read: what is changed is kept in memory, page by page, and gone with
// the Overlay. So a program that writes can be tried on files that must not change.
//
// Locks are not taken from the file system below, the disk is never full, and nothing is ever durable. Files cannot be mapped.
type Overlay struct {
	base FS

	mu    sync.Mutex
	files map[string]*overlayNode // what differs from base, by name; nil: removed
	dirs  map[string]bool         // made here
}

// NewOverlay returns an Overlay over base in which nothing has changed yet.
func NewOverlay(base FS) *Overlay {
	return &Overlay{base: base, files: map[string]*overlayNode{}, dirs: map[string]bool{}}
}

const overlayPage = 4096

// overlayNode is a file that was opened or changed. Bytes come from its pages, below limit from the file below, and are zero
// elsewhere.
type overlayNode struct {
	mu    sync.Mutex
	base  string // name of the file below; empty when there is none
	time  Info
	limit int64
	size  int64
	pages map[int64][]byte // by number
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
	n := &overlayNode{base: name, time: st, limit: st.Size, size: st.Size, pages: map[int64][]byte{}}
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
		defer n.mu.Unlock()
		n.limit, n.size = 0, 0
		clear(n.pages)
		return &overlayFile{n: n}, nil
	}
	n := &overlayNode{pages: map[int64][]byte{}}
	o.files[name] = n
	return &overlayFile{n: n}, nil
}

// Open implements FS.
func (o *Overlay) Open(name string) (File, error) {
	n, err := o.node(name)
	if err != nil {
		return nil, err
	}
	if n.base == "" {
		return &overlayFile{n: n}, nil
	}
	f, err := o.base.OpenRead(n.base)
	if err != nil {
		return nil, err
	}
	return &overlayFile{n: n, below: f}, nil
}

// OpenRead implements FS.
func (o *Overlay) OpenRead(name string) (File, error) { return o.Open(name) }

// Remove implements FS.
func (o *Overlay) Remove(name string) error {
	name = filepath.Clean(name)
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := o.nodeLocked(name); err != nil {
		return err
	}
	o.files[name] = nil
	return nil
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
	o.files[oldName], o.files[newName] = nil, n
	return nil
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
	n     *overlayNode
	below File // nil when there is no file below
}

func (f *overlayFile) Close() error {
	if f.below == nil {
		return nil
	}
	return f.below.Close()
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
	if len(n.pages) > 0 {
		for at := off; at < off+int64(len(p)); at = at/overlayPage*overlayPage + overlayPage {
			if b := n.pages[at/overlayPage]; b != nil {
				copy(p[at-off:], b[at%overlayPage:])
			}
		}
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
	for done := 0; done < len(p); {
		at := off + int64(done)
		i, k := at/overlayPage, at%overlayPage
		b := n.pages[i]
		if b == nil {
			b = make([]byte, overlayPage)
			if _, err := f.readLocked(b, i*overlayPage); err != nil && !errors.Is(err, io.EOF) {
				return done, err
			}
			n.pages[i] = b
		}
		done += copy(b[k:], p[done:])
		n.size = max(n.size, off+int64(done))
	}
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
	for i, b := range n.pages {
		switch start := i * overlayPage; {
		case start >= off:
			delete(n.pages, i)
		case start+overlayPage > off:
			clear(b[off-start:])
		}
	}
	return nil
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
	first := int64(math.MaxInt64)
	for i := range n.pages {
		if (i+1)*overlayPage > off {
			first = min(first, max(off, i*overlayPage))
		}
	}
	if first < from {
		from, to = first, (first/overlayPage+1)*overlayPage
	}
	return min(from, n.size), min(to, n.size), nil
}

func (f *overlayFile) Sync() error { return nil }
