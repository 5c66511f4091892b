package check

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// segmentFile is a file of the log.
type segmentFile struct {
	name string
	base int64
}

// segments lists the files of the log and reports what lies beside them.
func (c *checker) segments() ([]segmentFile, error) {
	names, err := c.FS.List(c.at.Log)
	if errors.Is(err, fs.ErrNotExist) {
		c.report.Kind = Empty
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []segmentFile
	for i, name := range names {
		path := filepath.Join(c.at.Log, name)
		if strings.HasSuffix(name, "/") || strings.HasPrefix(name, log.MarkerName) {
			continue
		}
		digits := name[:min(20, len(name))]
		base, err := strconv.ParseInt(digits, 10, 64)
		rest := name[len(digits):]
		switch {
		case err != nil || len(digits) != 20 || rest != "" && rest != ".tmp" && !strings.HasPrefix(rest, ".cut-"):
			c.find(Damage, "log", path, -1, "its name is not a log position of 20 digits, and a store refuses to open", "Move it elsewhere.")
			continue
		case rest == ".tmp":
			c.find(Note, "log", path, base, "a segment that was being made", todoNothing)
			continue
		case rest != "":
			c.find(Note, "log", path, base, "records that an earlier start has set aside and does not serve", "Look at what was lost; then move it elsewhere.")
			continue
		}
		st, err := c.FS.Stat(path)
		if err != nil {
			return nil, err
		}
		if st.Size == 0 && i == len(names)-1 {
			c.find(Note, "log", path, base, "a segment that was being made", todoNothing)
			continue
		}
		if c.report.SegmentBytes == 0 {
			c.report.SegmentBytes = st.Size
		}
		if st.Size != c.report.SegmentBytes {
			c.find(Damage, "log", path, base, fmt.Sprintf("has %d bytes, segments here have %d", st.Size, c.report.SegmentBytes), todoRestore)
			if st.Size < c.report.SegmentBytes {
				continue
			}
		}
		if n := len(all); n > 0 && all[n-1].base+c.report.SegmentBytes != base {
			c.find(Damage, "log", path, base, fmt.Sprintf("the segment before it ends at %d", all[n-1].base+c.report.SegmentBytes), todoRestore)
		}
		all = append(all, segmentFile{path, base})
	}
	c.report.Segments = len(all)
	if len(all) == 0 && c.report.Kind == RocketMQ {
		c.report.Kind = Empty
	}
	if len(all) > 0 {
		c.report.LogBegin = all[0].base
		c.report.LogEnd = c.report.LogBegin
	}
	return all, nil
}

// logScan reads the log from its first to its last byte.
type logScan struct {
	c        *checker
	segments []segmentFile
	visit    func(v record.View) // told of each valid record in order; nil: nobody is told

	f    vfs.File
	base int64 // of the segment f
	size int64
	buf  []byte
	from int64 // offset in the file of buf[0]

	damaged bool
	hole    struct {
		open    bool // the last bytes read were no record
		at      int64
		file    string
		reason  error
		written int64 // position behind the last byte in it that is not zero; 0 when all are
	}
}

const scanWindow = 1 << 20

func (l *logScan) run() error {
	for _, s := range l.segments {
		if err := l.progress(s.base); err != nil {
			return err
		}
		if err := l.segment(s); err != nil {
			return err
		}
	}
	l.tail()
	return nil
}

func (l *logScan) progress(pos int64) error {
	return l.c.progress("log", pos-l.segments[0].base, int64(len(l.segments))*l.c.report.SegmentBytes)
}

func (l *logScan) segment(s segmentFile) (err error) {
	if l.f, err = l.c.FS.OpenRead(s.name); err != nil {
		return err
	}
	defer l.f.Close()
	l.base, l.size, l.buf, l.from = s.base, l.c.report.SegmentBytes, l.buf[:0], 0
	for off := int64(0); off < l.size; {
		v, blank, bad, err := l.parse(off)
		if err != nil {
			return err
		}
		pos := s.base + off
		switch {
		case blank:
			l.valid(pos, s.base+l.size)
			return nil
		case bad == nil:
			l.valid(pos, pos+int64(v.Size()))
			if l.visit != nil {
				l.visit(v)
			}
			off += int64(v.Size())
			if l.c.report.Records++; l.c.report.Records%(1<<16) == 0 {
				if err := l.progress(pos); err != nil {
					return err
				}
			}
		default:
			if !l.hole.open {
				l.hole.open, l.hole.at, l.hole.file, l.hole.reason, l.hole.written = true, pos, s.name, bad, 0
			}
			if off, err = l.skip(off); err != nil {
				return err
			}
		}
	}
	return nil
}

// valid notes that the log is good from one position to another. What is before it and was not is damage.
func (l *logScan) valid(from, to int64) {
	if l.hole.open {
		l.hole.open, l.damaged = false, true
		l.c.find(Damage, "log", l.hole.file, l.hole.at, fmt.Sprintf("%d bytes are damaged (%v), and the log goes on at %d", from-l.hole.at, l.hole.reason, from), todoRestore)
	}
	l.c.report.LogEnd = to
}

// tail looks at what is behind the last record.
func (l *logScan) tail() {
	if !l.hole.open || l.hole.written == 0 {
		return // zeros, as it should be
	}
	what := fmt.Sprintf("the log ends here (%v), with bytes that are not zero up to %d", l.hole.reason, l.hole.written)
	if l.c.report.Clean {
		l.c.find(Damage, "log", l.hole.file, l.hole.at, what+" although the last stop was clean", todoRestore)
		return
	}
	l.c.find(Note, "log", l.hole.file, l.hole.at, what+": a record that was being written, which nobody was promised", todoNothing)
}

// parse looks for a record or the padding at an offset; bad says why there is neither.
func (l *logScan) parse(off int64) (v record.View, blank bool, bad, err error) {
	b, err := l.window(off, 128)
	if err != nil {
		return v, false, nil, err
	}
	v, bad = record.Parse(b)
	if errors.Is(bad, record.ErrShort) && len(b) >= 8 {
		if n := int64(binary.BigEndian.Uint32(b)); n > int64(len(b)) && n <= l.size-off {
			if b, err = l.window(off, int(n)); err != nil {
				return v, false, nil, err
			}
			v, bad = record.Parse(b)
		}
	}
	switch {
	case errors.Is(bad, record.ErrBlank):
		left := int64(binary.BigEndian.Uint32(b))
		if left == l.size-off {
			return v, true, nil, nil
		}
		bad = fmt.Errorf("padding of %d bytes where %d are left", left, l.size-off)
	case bad == nil:
		bad = log.Valid(v, l.base+off)
	}
	return v, false, bad, nil
}

// window returns the bytes from an offset on, need of them or as many as the segment has, and mostly more.
func (l *logScan) window(off int64, need int) ([]byte, error) {
	need = int(min(int64(need), l.size-off))
	if have := l.from + int64(len(l.buf)) - off; off < l.from || have < int64(need) {
		n := int(min(int64(max(need, scanWindow)), l.size-off))
		if cap(l.buf) < n {
			l.buf = make([]byte, n)
		}
		l.buf = l.buf[:n]
		if m, err := l.f.ReadAt(l.buf, off); m < n {
			l.buf = l.buf[:0]
			return nil, fmt.Errorf("read segment %020d at %d: %w", l.base, off, err)
		}
		l.from = off
	}
	return l.buf[off-l.from:], nil
}

var magics = [][]byte{
	binary.BigEndian.AppendUint32(nil, record.MagicV1), binary.BigEndian.AppendUint32(nil, record.MagicV2), binary.BigEndian.AppendUint32(nil, record.MagicBlank),
}

// skip looks for the next place behind an offset where a record or the padding is, the end of the segment when there is none. It
// passes over holes of the file, and notes what is not zero.
func (l *logScan) skip(off int64) (int64, error) {
	first := off + 1
	for at := off; at < l.size; {
		from, to, err := l.f.NextData(at)
		if err != nil {
			return 0, err
		}
		to = min(to, l.size)
		for at = max(from, at); at < to; {
			b, err := l.window(at, int(min(scanWindow, l.size-at)))
			if err != nil {
				return 0, err
			}
			b = b[:min(int64(len(b)), scanWindow)]
			next := at + int64(len(b))
			if len(bytes.TrimRight(b, "\x00")) == 0 {
				at = next
				continue
			}
			for _, p := range candidates(b) {
				if at+p < first {
					continue
				}
				_, blank, bad, err := l.parse(at + p)
				if err != nil {
					return 0, err
				}
				if blank || bad == nil {
					l.written(at, b[:p])
					return at + p, nil
				}
				if b, err = l.window(at, len(b)); err != nil { // parse may have moved the window
					return 0, err
				}
				b = b[:next-at]
			}
			l.written(at, b)
			if next < l.size {
				next -= min(7, next-at-1) // a head may lie across two windows
			}
			at = next
		}
		if at >= l.size || from >= l.size {
			break
		}
	}
	return l.size, nil
}

func (l *logScan) written(at int64, b []byte) {
	if n := len(bytes.TrimRight(b, "\x00")); n > 0 {
		l.hole.written = max(l.hole.written, l.base+at+int64(n))
	}
}

// candidates are the places in b where a record or a padding could begin: four bytes before a magic number.
func candidates(b []byte) []int64 {
	var all []int64
	for _, m := range magics {
		for i := 4; ; {
			k := bytes.Index(b[min(i, len(b)):], m)
			if k < 0 {
				break
			}
			all = append(all, int64(i+k-4))
			i += k + 1
		}
	}
	slices.Sort(all)
	return all
}
