package log

import (
	"fmt"
	"path/filepath"
	"sync/atomic"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// segment is one file of the log. Its bytes are read through a view, see acquire.
type segment struct {
	base, size int64
	f          vfs.File // for writing; nil while nothing has to be, and once everything is synced. The pipeline's: only its writer, flush and repair use it
	views      *views
	view       atomic.Pointer[view] // stored under views.mu
	gone       bool                 // guarded by views.mu
	reserved   bool                 // made from the space that is kept back, so for those only who may use that; guarded by Log.mu
	prepared   int64                // up to here zeros were written ahead of the records; of the writer alone
}

const (
	tmpSuffix = ".tmp"  // of a segment that is being made
	cutSuffix = ".cut-" // of what recovery has set aside; milliseconds since 1970 follow
)

func segmentName(dir string, base int64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d", base))
}

// lengthen gives a file its length.
func (vs *views) lengthen(base, size int64) error {
	f, err := vs.fs.Open(segmentName(vs.dir, base))
	if err != nil {
		return err
	}
	err = f.Allocate(size)
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// createSegment makes a file of full length, which has its name only when it is, durably.
// spare bytes of the disk are to stay free beside it.
func (vs *views) createSegment(base, size, spare int64) (*segment, error) {
	fsys, dir := vs.fs, vs.dir
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
	if err = f.Allocate(size); err == nil {
		if err = f.Sync(); err == nil {
			if err = fsys.Rename(tmp, name); err == nil {
				tmp = name
				err = fsys.SyncDir(dir)
			}
		}
	}
	if err != nil {
		f.Close()
		_ = fsys.Remove(tmp) // best effort: err is what matters, and Open removes what is left
		return nil, err
	}
	return &segment{base: base, size: size, f: f, views: vs}, nil
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

// read returns n bytes from off. It is for recovery, when nothing else lets go of what is mapped.
func (s *segment) read(off int64, n int) ([]byte, error) {
	v, err := s.acquire()
	if err != nil {
		return nil, err
	}
	defer v.unref()
	return v.read(off, n)
}

// zeroFrom durably replaces everything from off on by zeros.
func (s *segment) zeroFrom(off int64) error {
	if err := s.f.Zero(off); err != nil {
		return err
	}
	return s.f.Sync()
}
