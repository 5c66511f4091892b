package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/fusionmq/fusionmq/store/record"
)

// Range is a part of the log, in positions.
type Range struct{ From, To int64 }

// DamageError is returned by reads of bytes that are known to be bad. It is an ErrDamaged.
type DamageError struct{ Range }

// ErrDamaged is matched by reads of what is damaged.
var ErrDamaged = errors.New("log: damaged")

func (e *DamageError) Error() string {
	return fmt.Sprintf("log: the bytes from %d to %d are damaged", e.From, e.To)
}

func (e *DamageError) Is(target error) bool { return target == ErrDamaged }

// Damaged lists the parts of the log that hold no valid record although they were durable once, in order. Nothing of them is served,
// and nothing was done to them.
func (l *Log) Damaged() []Range {
	if d := l.damaged.Load(); d != nil {
		return *d
	}
	return nil
}

// SetDamaged says what is known of damage from earlier. Only before Recover.
func (l *Log) SetDamaged(rs []Range) {
	for _, r := range rs {
		if r.To > r.From && r.To > l.min.Load() {
			l.addDamaged(r)
		}
	}
}

// addDamaged adds a range, and joins it with those it touches. One call at a time, but for readers.
func (l *Log) addDamaged(r Range) {
	all := append([]Range{r}, l.Damaged()...)
	slices.SortFunc(all, func(a, b Range) int {
		switch {
		case a.From < b.From:
			return -1
		case a.From > b.From:
			return 1
		}
		return 0
	})
	joined := all[:1]
	for _, r := range all[1:] {
		if last := &joined[len(joined)-1]; r.From <= last.To {
			last.To = max(last.To, r.To)
		} else {
			joined = append(joined, r)
		}
	}
	l.damaged.Store(&joined)
}

// DamageIn returns the first damaged range that has something of [from, to).
func (l *Log) DamageIn(from, to int64) (Range, bool) {
	d := l.damaged.Load()
	if d == nil {
		return Range{}, false
	}
	i, _ := slices.BinarySearchFunc(*d, from, func(r Range, at int64) int {
		if r.To <= at {
			return -1
		}
		return 1
	})
	if i < len(*d) && (*d)[i].From < to {
		return (*d)[i], true
	}
	return Range{}, false
}

// behindDamage returns where the log goes on behind a bad record at pos in s: at the next valid record or padding of the segment. ok is false when
// there is none. The record's own length is believed first: what looks like a record inside a damaged one may be its content.
func (s *segment) behindDamage(pos int64) (next int64, ok bool, err error) {
	off := pos - s.base
	if head, err := s.read(off, int(min(8, s.size-off))); err != nil {
		return 0, false, err
	} else if len(head) == 8 {
		if size := int64(int32(binary.BigEndian.Uint32(head))); size >= record.MinSize && size <= s.size-off {
			if size == s.size-off {
				return s.base + s.size, true, nil
			}
			if ok, err := s.startsAt(off + size); ok || err != nil {
				return pos + size, ok, err
			}
		}
	}
	for at := off + 1; at < s.size; {
		b, err := s.read(at, int(min(s.size-at, scanWindow)))
		if err != nil {
			return 0, false, err
		}
		for i := 0; i+8 <= len(b); {
			p := candidate(b[i:])
			if p < 0 {
				break
			}
			if ok, err := s.startsAt(at + int64(i+p)); ok || err != nil {
				return s.base + at + int64(i+p), ok, err
			}
			i += p + 1
		}
		if int64(len(b)) == s.size-at {
			break
		}
		at += int64(len(b)) - 7 // a head may lie across the windows
	}
	return 0, false, nil
}

// startsAt says whether a valid record or the padding of the segment is at off.
func (s *segment) startsAt(off int64) (bool, error) {
	if size, err := s.valid(off); size > 0 || err != nil {
		return size > 0, err
	}
	head, err := s.read(off, int(min(8, s.size-off)))
	if err != nil || len(head) < 8 {
		return false, err
	}
	return binary.BigEndian.Uint32(head[4:]) == record.MagicBlank && int64(binary.BigEndian.Uint32(head)) == s.size-off, nil
}

// blank says whether a segment has only zeros from off up to end.
func (s *segment) blank(off, end int64) (bool, error) {
	for off < end {
		b, err := s.read(off, int(min(end-off, scanWindow)))
		if err != nil {
			return false, err
		}
		if zeros(b) < len(b) {
			return false, nil
		}
		off += int64(len(b))
	}
	return true, nil
}

// stepOver decides what a bad record at r.End in segment i means. Behind what was ever synced it ends the log. Below, it is damage: the log goes on at
// the next valid record, in this segment or a later one; only when nothing follows and nothing but zeros is left has the log lost its end.
func (l *Log) stepOver(segs []*segment, i int, r *Recovery) (full, more bool, err error) {
	s, pos := segs[i], r.End
	if pos >= l.o.Durable {
		return false, false, nil
	}
	end := s.base + s.size
	next, ok, err := s.behindDamage(pos)
	if err == nil && !ok && i < len(segs)-1 {
		next = end
		ok, err = goesOn(segs[i+1:])
	}
	if err == nil && !ok {
		next = min(end, l.o.Durable)
		var blank bool
		blank, err = s.blank(pos-s.base, next-s.base)
		ok = !blank
	}
	if err != nil || !ok {
		return false, false, err
	}
	l.addDamaged(Range{pos, next})
	r.Damaged++
	r.End = next
	return next == end, next < end, nil
}

// StepOver takes what is unreadable at a position for damage, up to where the log goes on in the segment, or to the end of the segment or of the
// log. Only between Recover and Start.
func (l *Log) StepOver(pos int64) (Range, error) {
	for _, s := range *l.segs.Load() {
		if pos < s.base || pos >= s.base+s.size {
			continue
		}
		next, ok, err := s.behindDamage(pos)
		if err != nil {
			return Range{}, err
		}
		if !ok {
			next = s.base + s.size
		}
		r := Range{pos, min(next, l.written.Load())}
		l.addDamaged(r)
		return r, nil
	}
	return Range{}, ErrRange
}

// goesOn says whether any of the segments holds a valid record.
func goesOn(segs []*segment) (bool, error) {
	for _, s := range segs {
		ok, err := s.startsAt(0)
		if !ok && err == nil {
			_, ok, err = s.behindDamage(s.base)
		}
		if ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// ReadDamaged is Read for the bytes from pos to end or to where their segment ends, whatever they are.
func (l *Log) ReadDamaged(pos, end int64) (b []byte, release func(), err error) {
	for _, s := range *l.segs.Load() {
		if pos < s.base || pos >= s.base+s.size {
			continue
		}
		v, err := s.acquire()
		if err != nil {
			return nil, nil, err
		}
		if b, err = v.read(pos-s.base, int(min(end, s.base+s.size)-pos)); err != nil {
			v.unref()
			return nil, nil, err
		}
		return b, v.release, nil
	}
	return nil, nil, ErrRange
}
