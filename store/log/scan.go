package log

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

const scanWindow = 1 << 20

// scanner reads the records of one segment one after the other, from the mapping or in windows.
type scanner struct {
	s    *segment
	v    *view
	off  int64 // of the next record in the segment
	buf  []byte
	from int64 // offset of buf[0]
}

// next returns the record at off and steps over it. It returns record.ErrBlank at a padding record of the right length and
// at the end of the segment, another record error where no record is, and read errors.
func (c *scanner) next() (record.View, error) {
	if c.off == c.s.size {
		return record.View{}, record.ErrBlank
	}
	b, err := c.window(0)
	if err != nil {
		return record.View{}, err
	}
	v, err := record.Parse(b)
	if errors.Is(err, record.ErrShort) && len(b) >= 4 {
		n := int(b[0])<<24 | int(b[1])<<16 | int(b[2])<<8 | int(b[3])
		if int64(n) <= c.s.size-c.off && n > len(b) {
			if b, err = c.window(n); err != nil {
				return record.View{}, err
			}
			v, err = record.Parse(b)
		}
	}
	if errors.Is(err, record.ErrBlank) {
		if left := int64(b[0])<<24 | int64(b[1])<<16 | int64(b[2])<<8 | int64(b[3]); left != c.s.size-c.off {
			return record.View{}, fmt.Errorf("%w: padding of %d bytes, %d are left", record.ErrSize, left, c.s.size-c.off)
		}
		return record.View{}, record.ErrBlank
	}
	if err != nil {
		return record.View{}, err
	}
	c.off += int64(v.Size())
	return v, nil
}

// window returns the bytes from off on, at least need of them and at least a head when the segment has them.
func (c *scanner) window(need int) ([]byte, error) {
	if c.v.data != nil {
		return c.v.data[c.off:], nil
	}
	need = int(min(int64(max(need, 128)), c.s.size-c.off))
	if have := c.from + int64(len(c.buf)) - c.off; c.off < c.from || have < int64(need) {
		n := int(min(int64(max(need, scanWindow)), c.s.size-c.off))
		if cap(c.buf) < n {
			c.buf = make([]byte, n)
		}
		c.buf = c.buf[:n]
		if m, err := c.v.f.ReadAt(c.buf, c.off); m < n {
			return nil, fmt.Errorf("read segment %020d at %d: %w", c.s.base, c.off, err)
		}
		c.from = c.off
	}
	return c.buf[c.off-c.from:], nil
}

// UnreadableError is returned by Scan where no valid record is and damage is not known of.
type UnreadableError struct {
	Position int64
	Err      error
}

func (e *UnreadableError) Error() string { return fmt.Sprintf("record at %d: %v", e.Position, e.Err) }
func (e *UnreadableError) Unwrap() error { return e.Err }

// Scan calls fn for the records from position from, which must be where one starts, up to end, which is at most Written.
// A view is valid during the call. It stops at the first error of fn. It may run beside everything else.
func (l *Log) Scan(from, end int64, fn func(v record.View) error) error {
	if end > l.written.Load() || from < l.min.Load() {
		return fmt.Errorf("%w: scan of [%d, %d), the log is [%d, %d)", ErrRange, from, end, l.min.Load(), l.written.Load())
	}
	for _, s := range *l.segs.Load() {
		if s.base+s.size <= from {
			continue
		}
		if s.base >= end {
			break
		}
		if err := l.scanSegment(s, from, end, fn); err != nil {
			return err
		}
		from = s.base + s.size
	}
	return nil
}

func (l *Log) scanSegment(s *segment, from, end int64, fn func(v record.View) error) (err error) {
	w, err := s.acquire()
	if err != nil {
		return err
	}
	defer w.unref()
	defer vfs.CatchFault(debug.SetPanicOnFault(true), &err)
	c := scanner{s: s, v: w, off: from - s.base}
	for s.base+c.off < end {
		pos := s.base + c.off
		if l.damaged.Load() != nil {
			if bad, ok := l.DamageIn(pos, pos+1); ok {
				if c.off = bad.To - s.base; c.off >= s.size {
					return nil
				}
				continue
			}
		}
		v, err := c.next()
		if errors.Is(err, record.ErrBlank) {
			return nil
		}
		if err != nil {
			return &UnreadableError{pos, err}
		}
		if err := fn(v); err != nil {
			return err
		}
	}
	return nil
}
