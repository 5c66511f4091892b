package log

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// view is a segment open for reading: mapped where the file system can, else a file. Only segments that are read have one.
type view struct {
	name    string
	data    []byte // the whole file, mapped; nil when the file system cannot
	unmap   func() error
	f       vfs.File     // instead of data
	refs    atomic.Int64 // one for the segment and one per reader; the last one closes
	release func()       // unref as a value made once, so that handing it out does not allocate
	used    atomic.Int64 // tick of the last read
}

func (v *view) ref() bool {
	for {
		n := v.refs.Load()
		if n == 0 {
			return false
		}
		if v.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (v *view) unref() {
	if v.refs.Add(-1) != 0 {
		return
	}
	if v.unmap != nil {
		_ = v.unmap() // fails only for addresses that are not mapped
	}
	if v.f != nil {
		_ = v.f.Close() // nothing was written through it
	}
}

// read returns n bytes from off; the caller holds a reference while it uses them. Mapped bytes are there when it returns.
func (v *view) read(off int64, n int) ([]byte, error) {
	if v.data != nil {
		b := v.data[off : off+int64(n) : off+int64(n)]
		if err := vfs.Touch(b); err != nil {
			return nil, fmt.Errorf("%w: read segment %s at %d: %w", ErrDamaged, v.name, off, err)
		}
		return b, nil
	}
	b := make([]byte, n)
	if m, err := v.f.ReadAt(b, off); m < n {
		return nil, fmt.Errorf("read segment %s at %d: %w", v.name, off, err)
	}
	return b, nil
}

// views opens segments for reading when somebody reads them, and closes those that nobody has read for a while, or the one that was
// read longest ago when there are too many. So mappings and descriptors follow what is read and not the length of the log.
type views struct {
	fs    vfs.FS
	dir   string
	most  int
	tick  atomic.Int64 // grows every second
	bytes atomic.Int64 // mapped

	mu   sync.Mutex
	open []*segment
}

const (
	defaultMapped = 64  // segments that are mapped at a time
	idleTicks     = 300 // after which one that is not read is let go of
)

// acquire returns the segment's view with a reference for the caller.
func (s *segment) acquire() (*view, error) {
	v := s.view.Load()
	if v == nil || !v.ref() {
		var err error
		if v, err = s.views.openSegment(s); err != nil {
			return nil, err
		}
	}
	if now := s.views.tick.Load(); v.used.Load() != now {
		v.used.Store(now)
	}
	return v, nil
}

func (vs *views) openSegment(s *segment) (*view, error) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if s.gone {
		return nil, ErrClosed
	}
	if v := s.view.Load(); v != nil && v.ref() {
		return v, nil
	}
	name := segmentName(vs.dir, s.base)
	f, err := vs.fs.OpenRead(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	v := &view{name: name, f: f}
	v.refs.Store(2)
	v.release = v.unref
	if m, ok := f.(vfs.Mapper); ok {
		if data, unmap, err := m.Map(s.size); err == nil { // else too many mappings, say: read the file instead
			v.data, v.unmap, v.f = data, unmap, nil
			_ = f.Close() // a mapping needs no descriptor
			vs.bytes.Add(s.size)
		}
	}
	v.used.Store(vs.tick.Load())
	s.view.Store(v)
	vs.open = append(vs.open, s)
	for len(vs.open) > vs.most {
		oldest := -1
		for i, o := range vs.open {
			if o != s && (oldest < 0 || o.view.Load().used.Load() < vs.open[oldest].view.Load().used.Load()) {
				oldest = i
			}
		}
		if oldest < 0 {
			break
		}
		vs.closeLocked(oldest)
	}
	return v, nil
}

// closeLocked lets go of the view of open[i]; readers that hold it keep it.
func (vs *views) closeLocked(i int) {
	s := vs.open[i]
	vs.open = slices.Delete(vs.open, i, i+1)
	v := s.view.Swap(nil)
	if v.data != nil {
		vs.bytes.Add(-s.size)
	}
	v.unref()
}

// drop ends a segment: nobody opens it any more.
func (s *segment) drop() {
	vs := s.views
	vs.mu.Lock()
	defer vs.mu.Unlock()
	s.gone = true
	if i := slices.Index(vs.open, s); i >= 0 {
		vs.closeLocked(i)
	}
	if s.f != nil {
		_ = s.f.Close() // nothing unsynced is lost: whoever wanted it durable has synced
		s.f = nil
	}
}

// second is called every second.
func (vs *views) second() {
	now := vs.tick.Add(1)
	vs.mu.Lock()
	defer vs.mu.Unlock()
	for i := len(vs.open) - 1; i >= 0; i-- {
		if now-vs.open[i].view.Load().used.Load() > idleTicks {
			vs.closeLocked(i)
		}
	}
}

// Mapped is how many segments are open for reading at the moment, and how many bytes of them are mapped.
func (l *Log) Mapped() (segments int, bytes int64) {
	l.views.mu.Lock()
	defer l.views.mu.Unlock()
	return len(l.views.open), l.views.bytes.Load()
}

// guarded runs fn, which reads mapped memory piece by piece.
func guarded(fn func() error) (err error) {
	defer vfs.CatchFault(debug.SetPanicOnFault(true), &err)
	return fn()
}
