package log

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// setAside takes what lies behind the end of the log out of the way: segs[0] holds the end, the others are behind it.
//
// After a crash that is unsynced bytes, which nobody was promised. But when a byte of the log has gone bad and recovery
// read it, because the views had to be built anew, say, everything behind it is sound and was acknowledged; the log cannot go
// on across the gap, so those records are kept in files that an operator can find: whole segments under another name, the rest of the
// segment with the end as a copy.
func (l *Log) setAside(segs []*segment, r *Recovery) error {
	suffix := fmt.Sprint(cutSuffix, l.o.Now())
	first := segs[0]
	from := r.End - first.base
	n, end, err := count(first, from)
	if err != nil {
		return err
	}
	r.Cut = end > from
	if n > 0 {
		name := segmentName(l.o.Dir, r.End) + suffix
		if err := copyOut(l.o.FS, first, from, end, name); err != nil {
			return fmt.Errorf("set aside what is behind %d: %w", r.End, err)
		}
		r.Behind += n
		r.Aside = append(r.Aside, name)
	}
	for i := len(segs) - 1; i > 0; i-- { // newest first: there is never a gap with more behind it
		s := segs[i]
		name := segmentName(l.o.Dir, s.base)
		if err := l.reopen(s); err != nil {
			return err
		}
		n, end, err := count(s, 0)
		if err != nil {
			return err
		}
		r.Cut = r.Cut || end > 0
		if n == 0 {
			if err := l.o.FS.Remove(name); err != nil {
				return err
			}
			continue
		}
		if err := l.o.FS.Rename(name, name+suffix); err != nil {
			return err
		}
		r.Behind += n
		r.Aside = append(r.Aside, name+suffix)
	}
	if len(segs) > 1 || len(r.Aside) > 0 {
		return l.o.FS.SyncDir(l.o.Dir)
	}
	return nil
}

var magics = [][]byte{
	binary.BigEndian.AppendUint32(nil, record.MagicV1), binary.BigEndian.AppendUint32(nil, record.MagicV2), binary.BigEndian.AppendUint32(nil, record.MagicBlank),
}

// count returns how many valid records there are from off on, wherever they begin, and where the last byte that is not
// zero is behind off, plus one; off when there is none. Behind a log that ends as it should this reads next to nothing of the
// segment.
func count(s *segment, off int64) (n int, end int64, err error) {
	type span struct{ from, to int64 }
	var spans []span
	for at := off; at < s.size; { // all of them first: see vfs.File
		from, to, err := s.f.NextData(at)
		if err != nil {
			return 0, off, err
		}
		if from < s.size {
			spans = append(spans, span{from, min(to, s.size)})
		}
		at = max(to, at+1)
	}
	end = off
	for _, sp := range spans {
		for at := max(sp.from, end); at < sp.to; { // a record that has been counted may reach into it
			b, err := s.read(at, int(min(sp.to-at, scanWindow)))
			if err != nil {
				return n, end, err
			}
			used := len(b) - zeros(b)
			if used > 0 {
				end = max(end, at+int64(used))
			}
			next := at + int64(len(b))
			for i := 0; i < used; {
				p := candidate(b[i:used])
				if p < 0 {
					break
				}
				start := at + int64(i+p)
				size, err := s.valid(start)
				if err != nil {
					return n, end, err
				}
				if size == 0 {
					i += p + 1
					continue
				}
				n++
				end = max(end, start+size)
				i += p + int(size)
				next = max(next, start+size)
			}
			if next < sp.to && next == at+int64(len(b)) && len(b) > 8 {
				next -= 7 // the head of a record may lie across the windows
			}
			at = next
		}
	}
	return n, end, nil
}

var zeroBlock [4096]byte

// zeros is how many zeros b ends with.
func zeros(b []byte) int {
	n := len(b)
	for n >= len(zeroBlock) && bytes.Equal(b[n-len(zeroBlock):n], zeroBlock[:]) {
		n -= len(zeroBlock)
	}
	return len(b) - len(bytes.TrimRight(b[:n], "\x00"))
}

// candidate is where the first record or padding in b could start: four bytes before a magic number. -1 when there is none.
func candidate(b []byte) int {
	first := -1
	if len(b) < 8 {
		return first
	}
	for _, m := range magics {
		if i := bytes.Index(b[4:], m); i >= 0 && (first < 0 || i < first) {
			first = i
		}
	}
	return first
}

// valid returns the size of the valid record at off that says it is there, 0 when there is none.
func (s *segment) valid(off int64) (int64, error) {
	head, err := s.read(off, int(min(8, s.size-off)))
	if err != nil || len(head) < 8 {
		return 0, err
	}
	size := int64(binary.BigEndian.Uint32(head))
	if size < record.MinSize || size > s.size-off {
		return 0, nil
	}
	b, err := s.read(off, int(size))
	if err != nil {
		return 0, err
	}
	if v, err := record.Parse(b); err == nil && v.PhysicalOffset() == s.base+off && v.CheckBody() == nil {
		return size, nil
	}
	return 0, nil
}

// copyOut durably writes a part of a segment to a file of its own.
func copyOut(fsys vfs.FS, s *segment, from, end int64, name string) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	for at := from; at < end && err == nil; {
		var b []byte
		if b, err = s.read(at, int(min(end-at, scanWindow))); err == nil {
			_, err = f.WriteAt(b, at-from)
		}
		at += int64(len(b))
	}
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}
