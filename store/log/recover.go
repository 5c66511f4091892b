package log

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// MarkerName is the file in the commitlog directory that says whose format this is. Its name is no number, so an Apache
// broker refuses to start on the directory instead of missing what it cannot see.
const MarkerName = "fusionmq"

// bases lists the segment files in a directory in ascending order, and the files that a crash left while they were made.
func bases(fsys vfs.FS, dir string) (bs []int64, unfinished []string, err error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "/") || name == MarkerName || name == MarkerName+tmpSuffix {
			continue
		}
		digits := name[:min(len(name), 20)]
		n, err := strconv.ParseUint(digits, 10, 63)
		rest := name[len(digits):]
		switch {
		case err != nil || len(digits) != 20 || rest != "" && rest != tmpSuffix && !strings.HasPrefix(rest, cutSuffix):
			return nil, nil, &CorruptError{File: filepath.Join(dir, name), Err: errors.New("its name is not a log position of 20 digits; move it elsewhere")}
		case rest == tmpSuffix:
			unfinished = append(unfinished, filepath.Join(dir, name))
		case rest == "":
			bs = append(bs, int64(n))
		}
	}
	return bs, unfinished, nil
}

// SegmentBytes returns the length of the segments in a directory, 0 when there are none.
func SegmentBytes(fsys vfs.FS, dir string) (int64, error) {
	bs, _, err := bases(fsys, dir)
	if err != nil {
		return 0, err
	}
	for _, b := range bs {
		st, err := fsys.Stat(segmentName(dir, b))
		if err != nil || st.Size > 0 {
			return st.Size, err
		}
	}
	return 0, nil
}

// Open looks at the segments of a directory and opens them. It changes nothing, except for what a crash can leave of the file
// that sorts last: an empty one, which was being made, is removed; after an unclean stop a short one, which was being cut, gets its length
// back. Recover comes next.
func Open(o Options) (*Log, error) {
	if o.FlushInterval == 0 {
		o.FlushInterval = 500 * time.Millisecond
	}
	if o.SyncTimeout == 0 {
		o.SyncTimeout = 5 * time.Second
	}
	l := &Log{o: o, prepare: make(chan struct{}, 1), flush: make(chan struct{}, 1), start: make(chan struct{}, 1), write: make(chan struct{}, 1), stop: make(chan struct{})}
	l.room.L = &l.mu
	if l.views.fs, l.views.dir, l.views.most = o.FS, o.Dir, o.Mapped; o.Mapped == 0 {
		l.views.most = defaultMapped
	}
	l.views.most = max(l.views.most, 2)
	l.mu.active, l.mu.spare = new(gather), new(gather)
	bs, unfinished, err := bases(o.FS, o.Dir)
	if err != nil {
		return nil, err
	}
	var segs []*segment
	fail := func(err error) (*Log, error) { return nil, err }
	for i, b := range bs {
		name := segmentName(o.Dir, b)
		st, err := o.FS.Stat(name)
		if err != nil {
			return fail(err)
		}
		if st.Size == 0 && i == len(bs)-1 {
			if err := o.FS.Remove(name); err != nil {
				return fail(err)
			}
			break
		}
		cutting := o.Unclean && i == len(bs)-1 && st.Size < o.SegmentBytes
		if st.Size != o.SegmentBytes && !cutting {
			return fail(&CorruptError{File: name, Err: fmt.Errorf("it has %d bytes, segments here have %d", st.Size, o.SegmentBytes)})
		}
		if n := len(segs); n > 0 && segs[n-1].base+o.SegmentBytes != b {
			return fail(&CorruptError{File: segmentName(o.Dir, segs[n-1].base+o.SegmentBytes), Err: errors.New("it is missing, while later ones are there")})
		}
		if cutting {
			if err := l.views.lengthen(b, o.SegmentBytes); err != nil {
				return fail(err)
			}
		}
		segs = append(segs, &segment{base: b, size: o.SegmentBytes, views: &l.views})
	}
	for _, name := range unfinished {
		if err := o.FS.Remove(name); err != nil {
			return fail(err)
		}
	}
	l.segs.Store(&segs)
	if len(segs) > 0 {
		l.min.Store(segs[0].base)
	}
	return l, nil
}

// Recovery is what Recover found.
type Recovery struct {
	End     int64 // the log ends here
	Records int64 // read and verified
	Reason  error // why the log ends where it does: what was wrong with the bytes there
	Cut     bool  // bytes behind End were not zero
	// Behind counts valid records behind End: something before them was damaged. They are not served, but kept in the
	// files Aside.
	Behind int
	Aside  []string
	// Damaged counts bad records that were found below Options.Durable and stepped over; see Log.Damaged.
	Damaged int
	// Older says that the position that was to be trusted is older than the log.
	Older bool
}

// Limit is the highest position that a record could be at: where the last segment ends.
func (l *Log) Limit() int64 {
	segs := *l.segs.Load()
	if len(segs) == 0 {
		return 0
	}
	return segs[len(segs)-1].base + l.o.SegmentBytes
}

// Recover verifies the records from position from on, which is where one starts or the log ends, calls visit for each,
// and finds the end of the log: the first position where no valid record is. With trusted set the log is known to end at from,
// durably, and nothing behind it is cut, unless a valid record begins there: what the caller believes is older than the log then. Otherwise everything behind the end is cut durably before Recover returns, so
// that bytes of a torn or forgotten record can never be read again, and the rest is synced.
//
// A record is valid when its magic number, the sum of its lengths and its body checksum are right and it says that it is
// where it is.
func (l *Log) Recover(from int64, trusted bool, visit func(v record.View) error) (Recovery, error) {
	segs := *l.segs.Load()
	if len(segs) == 0 {
		s, err := l.views.createSegment(from-from%l.o.SegmentBytes, l.o.SegmentBytes, l.o.SegmentBytes/8)
		if err != nil {
			return Recovery{}, l.spaceError(err)
		}
		segs = []*segment{s}
		l.segs.Store(&segs)
		l.min.Store(s.base)
	}
	if from < segs[0].base || from > l.Limit() {
		return Recovery{}, fmt.Errorf("%w: recovery from %d, the segments are [%d, %d)", ErrRange, from, segs[0].base, l.Limit())
	}
	l.synced.Store(from)
	r := Recovery{End: from}
	last := 0
	for last < len(segs)-1 && segs[last+1].base <= from {
		last++
	}
	if trusted {
		older, err := continues(segs[last], from)
		if err != nil {
			return r, err
		}
		r.Older, trusted = older, !older
	}
	if !trusted {
		for i := last; i < len(segs); i++ {
			last = i
			full, more, err := false, true, error(nil)
			for more && err == nil {
				if full, err = l.verify(segs[i], &r, visit); err == nil && !full {
					full, more, err = l.stepOver(segs, i, &r)
				} else {
					more = false
				}
			}
			if err != nil {
				return r, err
			}
			if !full {
				break
			}
		}
		if last < len(segs)-1 && r.End == segs[last].base+l.o.SegmentBytes {
			last++
		}
	}
	cur := segs[last]
	if err := l.reopen(cur); err != nil {
		return r, err
	}
	if !trusted {
		if err := l.settle(segs, last, &r); err != nil {
			return r, fmt.Errorf("cut the log at %d: %w", r.End, err)
		}
	}
	kept := append([]*segment(nil), segs[:last+1]...)
	l.segs.Store(&kept)
	for _, s := range segs[last+1:] {
		s.drop()
	}
	l.written.Store(r.End)
	l.told.Store(r.End)
	l.synced.Store(r.End)
	l.mu.cur, l.mu.end = cur, r.End
	return r, nil
}

// continues tells whether a valid record, or what fills the end of a segment, begins at a position.
func continues(s *segment, from int64) (yes bool, err error) {
	if from >= s.base+s.size {
		return false, nil
	}
	w, err := s.acquire()
	if err != nil {
		return false, err
	}
	defer w.unref()
	defer vfs.CatchFault(debug.SetPanicOnFault(true), &err)
	v, err := (&scanner{s: s, v: w, off: from - s.base}).next()
	switch {
	case errors.Is(err, record.ErrBlank):
		return true, nil
	case errors.Is(err, record.ErrShort), errors.Is(err, record.ErrMagic), errors.Is(err, record.ErrSize):
		return false, nil
	case err != nil:
		return false, err
	}
	return v.PhysicalOffset() == from && v.CheckBody() == nil, nil
}

// reopen makes a segment writable.
func (l *Log) reopen(s *segment) (err error) {
	if s.f == nil {
		s.f, err = l.o.FS.Open(segmentName(l.o.Dir, s.base))
	}
	return err
}

// verify reads a segment from r.End on and moves r.End over what is valid. It reports whether the segment is full.
func (l *Log) verify(s *segment, r *Recovery, visit func(v record.View) error) (full bool, err error) {
	if r.End >= s.base+s.size { // damage that is known reaches over it
		return true, nil
	}
	w, err := s.acquire()
	if err != nil {
		return false, err
	}
	defer w.unref()
	defer vfs.CatchFault(debug.SetPanicOnFault(true), &err)
	c := scanner{s: s, v: w, off: r.End - s.base}
	for {
		pos := s.base + c.off
		if bad, ok := l.DamageIn(pos, pos+1); ok { // known from earlier
			if r.End = bad.To; bad.To >= s.base+s.size {
				return true, nil
			}
			c.off = bad.To - s.base
			continue
		}
		v, err := c.next()
		switch {
		case errors.Is(err, record.ErrBlank):
			r.End = s.base + s.size
			return true, nil
		case errors.Is(err, record.ErrShort), errors.Is(err, record.ErrMagic), errors.Is(err, record.ErrSize):
			r.Reason = err
			return false, nil
		case err != nil:
			return false, err
		}
		if v.PhysicalOffset() != pos {
			r.Reason = fmt.Errorf("record: says it is at %d", v.PhysicalOffset())
			return false, nil
		}
		if err := v.CheckBody(); err != nil {
			r.Reason = err
			return false, nil
		}
		if torn(v, pos) {
			r.Reason = errors.New("record: its topic or properties were not all written")
			return false, nil
		}
		if err := visit(v); err != nil {
			return false, fmt.Errorf("record at %d: %w", pos, err)
		}
		r.Records++
		r.End = pos + int64(v.Size())
		l.mu.lastTime = max(l.mu.lastTime, v.StoreTime())
	}
}

// sector is the unit in which a disk may have kept or lost what was not synced.
const sector = 512

// torn says whether a power cut has taken a part of the topic or the properties, which no checksum protects: a record
// that is all right otherwise has zeros there, since nothing but zeros ever lies behind the end of the log. Such zeros
// begin or end where a sector does, or reach the end of the record. A zero byte that a producer sent would look the same if it happened to stand
// there; the store takes none in properties, and RocketMQ's clients send none.
func torn(v record.View, pos int64) bool {
	b := v.Bytes()
	if bytes.IndexByte(v.Topic(), 0) >= 0 {
		return true
	}
	for i := len(b) - len(v.Properties()); i < len(b); {
		k := bytes.IndexByte(b[i:], 0)
		if k < 0 {
			return false
		}
		i += k
		from := i
		for i < len(b) && b[i] == 0 {
			i++
		}
		if i == len(b) || (pos+int64(from))%sector == 0 || (pos+int64(i))%sector == 0 {
			return true
		}
	}
	return false
}

// settle makes durable what was found: everything up to r.End kept, everything behind it gone.
func (l *Log) settle(segs []*segment, last int, r *Recovery) error {
	for _, s := range segs[:last] {
		// What only the page cache holds after a kill must not get lost below what will be synced from now on.
		if s.base+s.size > l.synced.Load() {
			if err := l.reopen(s); err != nil {
				return err
			}
			if err := s.f.Sync(); err != nil {
				return err
			}
			_ = s.f.Close() // synced
			s.f = nil
		}
	}
	if err := l.setAside(segs[last:], r); err != nil {
		return err
	}
	return l.cut(segs[last], nil, r.End)
}

// SetTime raises the store time that the next record has at least.
func (l *Log) SetTime(ms int64) {
	l.mu.Lock()
	l.mu.lastTime = max(l.mu.lastTime, ms)
	l.mu.Unlock()
}

// Start begins the background work; appends are accepted from now on.
func (l *Log) Start() {
	l.done.Add(3)
	go l.writeLoop()
	go l.flushLoop()
	go l.prepareLoop()
}

// LastTime is the newest store time given.
func (l *Log) LastTime() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.lastTime
}
