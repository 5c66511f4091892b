package log

import (
	"fmt"
	"path/filepath"
	"sync/atomic"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// segment is one file of the log. Its bytes are read through a mapping where the file system has one.
type segment struct {
	base, size int64
	f          vfs.File // nil once everything is synced and data is mapped; guarded by the pipeline: only its writer, flush and repair use it
	data       []byte   // the whole file, mapped; nil when the file system cannot
	unmap      func() error
	refs       atomic.Int64 // one for the log and one per reader; the last one unmaps
	release    func()       // unref as a value made once, so that handing it out does not allocate
	reserved   bool         // made from the space that is kept back, so for those only who may use that; guarded by Log.mu
	prepared   int64        // up to here zeros were written ahead of the records; of the writer alone
}

const (
	tmpSuffix = ".tmp"  // of a segment that is being made
	cutSuffix = ".cut-" // of what recovery has set aside; milliseconds since 1970 follow
)

func segmentName(dir string, base int64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d", base))
}

func newSegment(base, size int64, f vfs.File) (*segment, error) {
	s := &segment{base: base, size: size, f: f}
	s.refs.Store(1)
	s.release = s.unref
	if m, ok := f.(vfs.Mapper); ok {
		var err error
		if s.data, s.unmap, err = m.Map(size); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// openSegment opens an existing file; a short one gets its length first.
func openSegment(fsys vfs.FS, dir string, base, size int64, short bool) (*segment, error) {
	f, err := fsys.Open(segmentName(dir, base))
	if err != nil {
		return nil, err
	}
	if short {
		err = f.Allocate(size)
	}
	var s *segment
	if err == nil {
		s, err = newSegment(base, size, f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return s, nil
}

// createSegment makes a file of full length, which has its name only when it is, durably.
// spare bytes of the disk are to stay free beside it.
func createSegment(fsys vfs.FS, dir string, base, size, spare int64) (*segment, error) {
	// fallocate takes what there is before it finds that it is not enough, and everybody else on the disk finds it full
	// meanwhile. So look first, and leave room for the small files that a clean stop has to write.
	if free, _, err := fsys.Space(dir); err == nil && free < size+spare {
		return nil, fmt.Errorf("%w: a segment and a reserve of %d bytes are needed", vfs.ErrNoSpace, spare)
	}
	name := segmentName(dir, base)
	tmp := name + tmpSuffix
	f, err := fsys.Create(tmp)
	if err != nil {
		return nil, err
	}
	var s *segment
	if err = f.Allocate(size); err == nil {
		if err = f.Sync(); err == nil {
			if err = fsys.Rename(tmp, name); err == nil {
				tmp = name
				if err = fsys.SyncDir(dir); err == nil {
					s, err = newSegment(base, size, f)
				}
			}
		}
	}
	if err != nil {
		f.Close()
		_ = fsys.Remove(tmp) // best effort: err is what matters, and Open removes what is left
		return nil, err
	}
	return s, nil
}

// Zeros are written ahead of the records, in large pieces that begin where a page does. A page that a record is the first to
// touch costs the kernel more than copying the record, and a small or unaligned write gets it small ones; and a block that
// was reserved and never written costs the sync that first covers it a change of the file's metadata, which takes as long
// again as the sync itself. Only a log that is written slowly pays for it, with zeros that reach the disk before the records do.
const (
	prepareChunk = 512 << 10
	prepareLow   = 256 << 10 // less than this ahead of the records: the next chunk
	pageSize     = 4096
)

var blanks [prepareChunk]byte

// prepare writes zeros ahead of end, where the records in the segment end, when less than prepareLow are. Only the writer
// may call it, and with nothing written behind end. A failure is not told: nothing depends on the zeros, and the next record will meet it.
func (s *segment) prepare(end int64) {
	if end+prepareLow <= s.prepared || s.prepared == s.size {
		return
	}
	from := max(s.prepared, (end+pageSize-1)/pageSize*pageSize)
	to := min(from+prepareChunk, s.size)
	if from < to {
		_, _ = s.f.WriteAt(blanks[:to-from], from)
	}
	s.prepared = to
}

func (s *segment) ref() bool {
	for {
		n := s.refs.Load()
		if n == 0 {
			return false
		}
		if s.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (s *segment) unref() {
	if s.refs.Add(-1) != 0 {
		return
	}
	if s.unmap != nil {
		_ = s.unmap() // fails only for addresses that are not mapped
	}
	if s.f != nil {
		_ = s.f.Close() // nothing unsynced is lost: whoever wanted it durable has synced
	}
}

// read returns n bytes from off; the caller holds a reference while it uses them.
func (s *segment) read(off int64, n int) ([]byte, error) {
	if s.data != nil {
		return s.data[off : off+int64(n) : off+int64(n)], nil
	}
	b := make([]byte, n)
	if m, err := s.f.ReadAt(b, off); m < n {
		return nil, fmt.Errorf("read segment %020d at %d: %w", s.base, off, err)
	}
	return b, nil
}

// zeroFrom durably replaces everything from off on by zeros.
func (s *segment) zeroFrom(off int64) error {
	if err := s.f.Zero(off); err != nil {
		return err
	}
	return s.f.Sync()
}
