package vfs

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// sector is what a disk writes in one piece. A power cut keeps or loses each unsynced sector on its own.
const sector = 512

// Mem is a file system in memory that knows what has been synced and what has not.
//
// It keeps three promises of a disk and no more: the content of a file is durable up to its last Sync, a name up to the
// last SyncDir of its directory, a directory itself when MkdirAll returns. CrashClone is what a machine could find after
// a power cut.
//
// Locks: world, then a node's mu, then mu.
type Mem struct {
	world sync.RWMutex // held for reading by everything that changes something, so that a power cut falls between two operations

	mu    sync.Mutex
	dirs  map[string]bool
	names map[string]*node // as programs see them
	disk  map[string]*node // as SyncDir left them
	locks map[string]bool
	free  int64 // bytes that may still be stored; negative: no limit
	total int64 // what Space says, with a limit
}

// node is the content of a file.
type node struct {
	mu     sync.Mutex
	data   blocks
	size   int64
	synced blocks         // content when it was last synced; shares blocks that did not change since
	ssize  int64          // length at that time
	dirty  map[int64]bool // sectors that differ from synced, maybe
	spare  int64          // sectors that Allocate has set aside and nothing was written to
}

// blocks are the sectors that were ever written; the others are zero. A sector is replaced, never changed.
type blocks map[int64][]byte

// NewMem returns an empty file system with the root directory.
func NewMem() *Mem {
	return &Mem{dirs: map[string]bool{"/": true, ".": true}, names: map[string]*node{}, disk: map[string]*node{}, locks: map[string]bool{}, free: -1}
}

// SetFree limits how many bytes can still be stored in sectors that were never written; negative means no limit. The disk
// counts as empty at this moment.
func (m *Mem) SetFree(n int64) { m.SetDisk(n, n) }

// SetDisk is SetFree with the size of the disk.
func (m *Mem) SetDisk(free, total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free, m.total = free, total
}

// take accounts for n sectors that are new; give takes back.
func (m *Mem) take(n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.free < 0 || n <= 0 {
		return nil
	}
	if n*sector > m.free {
		return ErrNoSpace
	}
	m.free -= n * sector
	return nil
}

func (m *Mem) give(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.free >= 0 {
		m.free += n * sector
	}
}

// CrashClone returns what is left after a power cut at this moment: what was synced, and of everything else a random
// part. keep is the probability with which an unsynced sector, length or name survives.
func (m *Mem) CrashClone(rng *rand.Rand, keep float64) *Mem {
	m.world.Lock() // nobody else is in here now, so no other lock is needed
	defer m.world.Unlock()
	c := NewMem()
	for d := range m.dirs {
		c.dirs[d] = true
	}
	copies := map[*node]*node{}
	for _, name := range slices.Sorted(mapKeys(m.names, m.disk)) { // in order, so that a seed gives one outcome
		n := m.disk[name]
		if m.names[name] != n && rng.Float64() < keep {
			n = m.names[name]
		}
		if n == nil {
			continue
		}
		if copies[n] == nil {
			copies[n] = n.crash(rng, keep)
		}
		c.names[name], c.disk[name] = copies[n], copies[n]
	}
	return c
}

func mapKeys(ms ...map[string]*node) func(func(string) bool) {
	return func(yield func(string) bool) {
		seen := map[string]bool{}
		for _, m := range ms {
			for k := range m {
				if !seen[k] {
					seen[k] = true
					if !yield(k) {
						return
					}
				}
			}
		}
	}
}

func (n *node) crash(rng *rand.Rand, keep float64) *node {
	c := &node{data: blocks{}, size: n.ssize, synced: blocks{}, dirty: map[int64]bool{}}
	if n.size != n.ssize && rng.Float64() < keep {
		c.size = n.size
	}
	for i, b := range n.synced {
		c.data[i] = b
	}
	dirty := make([]int64, 0, len(n.dirty))
	for i := range n.dirty {
		dirty = append(dirty, i)
	}
	slices.Sort(dirty)
	for _, i := range dirty {
		if rng.Float64() < keep {
			c.set(i, n.data[i])
		}
	}
	for i := range c.data {
		if i*sector >= c.size {
			delete(c.data, i)
		}
	}
	c.zeroTail()
	for i, b := range c.data {
		c.synced[i] = b
	}
	c.ssize = c.size
	clear(c.dirty)
	return c
}

func (n *node) set(i int64, b []byte) {
	if b == nil {
		delete(n.data, i)
	} else {
		n.data[i] = b
	}
	n.dirty[i] = true
}

// zeroTail zeroes what the last sector has behind the end of the file.
func (n *node) zeroTail() {
	i, k := n.size/sector, n.size%sector
	if b := n.data[i]; b != nil && k > 0 && bytes.ContainsFunc(b[k:], func(r rune) bool { return r != 0 }) {
		c := make([]byte, sector)
		copy(c, b[:k])
		n.set(i, c)
	}
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func (m *Mem) lookup(op, name string) (*node, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.names[filepath.Clean(name)]
	if n == nil {
		return nil, pathError(op, name, fs.ErrNotExist)
	}
	return n, nil
}

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	f, err := m.entry(filepath.Clean(name))
	if err != nil {
		return nil, err
	}
	return f, f.Truncate(0)
}

func (m *Mem) entry(name string) (*memFile, error) {
	m.world.RLock()
	defer m.world.RUnlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.dirs[filepath.Dir(name)] {
		return nil, pathError("create", name, fs.ErrNotExist)
	}
	n := m.names[name]
	if n == nil {
		n = &node{data: blocks{}, synced: blocks{}, dirty: map[int64]bool{}}
		m.names[name] = n
	}
	return &memFile{m, n}, nil
}

// Open implements FS.
func (m *Mem) Open(name string) (File, error) {
	n, err := m.lookup("open", name)
	if err != nil {
		return nil, err
	}
	return &memFile{m, n}, nil
}

// OpenRead implements FS.
func (m *Mem) OpenRead(name string) (File, error) { return m.Open(name) }

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.world.RLock()
	defer m.world.RUnlock()
	n, err := m.lookup("remove", name)
	if err != nil {
		return err
	}
	n.mu.Lock()
	m.give(int64(len(n.data)) + n.spare)
	n.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.names, filepath.Clean(name))
	return nil
}

// Rename implements FS.
func (m *Mem) Rename(oldName, newName string) error {
	m.world.RLock()
	defer m.world.RUnlock()
	n, err := m.lookup("rename", oldName)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.names, filepath.Clean(oldName))
	m.names[filepath.Clean(newName)] = n
	return nil
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(dir string) error {
	m.world.RLock()
	defer m.world.RUnlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	for d := filepath.Clean(dir); !m.dirs[d]; d = filepath.Dir(d) {
		if m.names[d] != nil {
			return pathError("mkdir", d, fs.ErrExist)
		}
		m.dirs[d] = true
	}
	return nil
}

// List implements FS.
func (m *Mem) List(dir string) ([]string, error) {
	dir = filepath.Clean(dir)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.dirs[dir] {
		return nil, pathError("list", dir, fs.ErrNotExist)
	}
	var names []string
	for name := range m.names {
		if filepath.Dir(name) == dir {
			names = append(names, filepath.Base(name))
		}
	}
	for d := range m.dirs {
		if d != dir && filepath.Dir(d) == dir {
			names = append(names, filepath.Base(d)+"/")
		}
	}
	slices.Sort(names)
	return names, nil
}

// Stat implements FS. Times are zero.
func (m *Mem) Stat(name string) (Info, error) {
	n, err := m.lookup("stat", name)
	if err != nil {
		return Info{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return Info{Size: n.size, ModTime: time.Time{}}, nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	m.world.RLock()
	defer m.world.RUnlock()
	dir = filepath.Clean(dir)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.dirs[dir] {
		return pathError("sync", dir, fs.ErrNotExist)
	}
	for name := range m.disk {
		if filepath.Dir(name) == dir && m.names[name] == nil {
			delete(m.disk, name)
		}
	}
	for name, n := range m.names {
		if filepath.Dir(name) == dir {
			m.disk[name] = n
		}
	}
	return nil
}

// Lock implements FS.
func (m *Mem) Lock(name string, holder []byte) (io.Closer, error) {
	l, err := m.hold(name)
	if err != nil {
		return nil, err
	}
	f, err := m.Create(l.name)
	if err == nil {
		_, err = f.WriteAt(holder, 0)
	}
	if err != nil {
		_ = l.Close() // it was taken just now, and err is what matters
		return nil, err
	}
	return l, nil
}

// hold takes a lock and touches no file.
func (m *Mem) hold(name string) (*memLock, error) {
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

type memLock struct {
	m    *Mem
	name string
}

func (l *memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	delete(l.m.locks, l.name)
	return nil
}

// Space implements FS. Without a limit it is 1 TiB.
func (m *Mem) Space(string) (free, total int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.free < 0 {
		return 1 << 40, 1 << 40, nil
	}
	return m.free, m.total, nil
}

// memFile is an open file; it has no state of its own, so closing it does nothing.
type memFile struct {
	m *Mem
	n *node
}

func (f *memFile) Close() error { return nil }

func (f *memFile) Size() (int64, error) {
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	return f.n.size, nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	n := f.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if off < 0 {
		return 0, fmt.Errorf("vfs: read at %d", off)
	}
	done := 0
	for done < len(p) && off < n.size {
		i, k := off/sector, off%sector
		c := int(min(sector-k, n.size-off, int64(len(p)-done)))
		if b := n.data[i]; b != nil {
			copy(p[done:done+c], b[k:])
		} else {
			clear(p[done : done+c])
		}
		done += c
		off += int64(c)
	}
	if done < len(p) {
		return done, io.EOF
	}
	return done, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.m.world.RLock()
	defer f.m.world.RUnlock()
	n := f.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if off < 0 {
		return 0, fmt.Errorf("vfs: write at %d", off)
	}
	done := 0
	for done < len(p) {
		i, k := off/sector, off%sector
		c := int(min(sector-k, int64(len(p)-done)))
		old := n.data[i]
		if old == nil {
			if n.spare > 0 {
				n.spare--
			} else if err := f.m.take(1); err != nil {
				return done, err
			}
		}
		b := make([]byte, sector)
		copy(b, old)
		copy(b[k:], p[done:done+c])
		n.set(i, b)
		done += c
		off += int64(c)
		n.size = max(n.size, off)
	}
	return done, nil
}

func (f *memFile) Truncate(size int64) error {
	f.m.world.RLock()
	defer f.m.world.RUnlock()
	n := f.n
	n.mu.Lock()
	defer n.mu.Unlock()
	n.size = size
	freed := int64(0)
	for i := range n.data {
		if i*sector >= size {
			n.set(i, nil)
			freed++
		}
	}
	n.zeroTail()
	if left := max(0, (size+sector-1)/sector-int64(len(n.data))); n.spare > left {
		freed += n.spare - left
		n.spare = left
	}
	f.m.give(freed)
	return nil
}
func (f *memFile) Allocate(size int64) error {
	f.m.world.RLock()
	defer f.m.world.RUnlock()
	n := f.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if need := (size+sector-1)/sector - int64(len(n.data)) - n.spare; need > 0 {
		if err := f.m.take(need); err != nil {
			return err
		}
		n.spare += need
	}
	n.size = max(n.size, size)
	return nil
}

func (f *memFile) Zero(off int64) error {
	f.m.world.RLock()
	defer f.m.world.RUnlock()
	n := f.n
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, b := range n.data {
		switch start := i * sector; {
		case start >= off:
			n.set(i, nil)
			n.spare++
		case start+sector > off:
			c := make([]byte, sector)
			copy(c, b[:off-start])
			n.set(i, c)
		}
	}
	return nil
}

func (f *memFile) NextData(off int64) (from, to int64, err error) {
	n := f.n
	n.mu.Lock()
	defer n.mu.Unlock()
	from = n.size
	for i := range n.data {
		if start := i * sector; start+sector > off {
			from = min(from, max(off, start))
		}
	}
	i := from / sector
	for n.data[i] != nil {
		i++
	}
	return from, max(from, min(i*sector, n.size)), nil
}

func (f *memFile) Sync() error {
	f.m.world.RLock()
	defer f.m.world.RUnlock()
	n := f.n
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.dirty {
		if b := n.data[i]; b != nil {
			n.synced[i] = b
		} else {
			delete(n.synced, i)
		}
	}
	clear(n.dirty)
	n.ssize = n.size
	return nil
}
