package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
)

// What waits, as a snapshot has it when it has all of it: of each space, in order, its things by address, then a 0. A thing is the
// difference of its address to the one before it, + 1; the group, in the space of what was sent back; the difference of its due time to the one
// before it; position - address; size, attempts, the topic unless the space is a line's, and flags. The row by due time is made again.

const (
	saveBytes  = 64 << 10 // written at a time
	inputBytes = 64 << 10 // read at a time
	thingBytes = 8 * binary.MaxVarintLen64
)

var errCut = errors.New("it is cut off")

// things writes those of a space.
func (e *saver) things(rows Rows, s space) error {
	last := waiting{}
	from, to := keyOf(s, 0, 0, 0, 0), keyOf(s, 1, 0, 0, 0)
	var w waiting
	err := rows.Scan(&from, &to, func(k *[KeyBytes]byte, v *[ValueBytes]byte) bool {
		w.decode(k, v)
		e.b = binary.AppendUvarint(e.b, uint64(w.address-last.address)+1)
		if s == spaceReturn {
			e.b = binary.AppendUvarint(e.b, uint64(w.group))
		}
		e.b = binary.AppendVarint(e.b, w.due-last.due)
		e.b = binary.AppendVarint(e.b, w.position-w.address)
		e.b = binary.AppendUvarint(e.b, uint64(uint32(w.size)))
		e.b = binary.AppendUvarint(e.b, uint64(uint32(w.attempt)))
		if s < spaceLines {
			e.b = binary.AppendUvarint(e.b, uint64(w.topic))
		}
		e.b = binary.AppendUvarint(e.b, uint64(w.flags))
		last = w
		if len(e.b) >= saveBytes {
			e.flush()
		}
		return e.err == nil
	})
	e.b = append(e.b, 0)
	if e.err != nil {
		return e.err
	}
	return err
}

// flush writes what there is.
func (e *saver) flush() {
	e.sum = crc32.Update(e.sum, castagnoli, e.b)
	if e.err == nil {
		_, e.err = e.w.Write(e.b)
	}
	e.b = e.b[:0]
}

// things puts what waits into the table, and counts it.
func (l *loader) things() error {
	m := l.m
	counts := m.counts()
	m.stats.Retries = 0
	for s := range counts {
		n, err := l.space(space(s), nil)
		if err != nil {
			return err
		}
		*counts[s] = n
	}
	for _, line := range m.lines {
		n, err := l.space(line.space, line.topic)
		if err != nil {
			return err
		}
		line.count = n
		m.stats.Retries += n
	}
	return nil
}

// space reads the things of a space; t is the topic of a line.
func (l *loader) space(s space, t *topic) (n int, err error) {
	var w waiting
	for ; ; n++ {
		step := l.in.uvarint()
		if step == 0 {
			return n, l.in.failed()
		}
		address, group := w.address+int64(step-1), uint32(0)
		if s == spaceReturn {
			if group = l.in.uint32(); int64(group) >= int64(len(l.m.byID)) {
				return n, fmt.Errorf("what waits at %d is of group %d of %d", address, group, len(l.m.byID))
			}
		}
		if address < w.address || n > 0 && address == w.address && group <= w.group {
			return n, fmt.Errorf("what waits at %d is out of order", address)
		}
		w.address, w.group = address, group
		w.due += l.in.varint()
		w.position = address + l.in.varint()
		w.size, w.attempt = int32(l.in.uint32()), int32(l.in.uint32())
		if t != nil {
			w.topic = t.id
		} else if w.topic = l.in.uint32(); int64(w.topic) >= int64(len(l.m.byTopic)) {
			return n, fmt.Errorf("what waits at %d is of topic %d of %d", address, w.topic, len(l.m.byTopic))
		}
		w.flags = l.in.uint32()
		if err := l.in.failed(); err != nil {
			return n, err
		}
		l.m.put(s, &w, true)
	}
}

// input reads a stream with a checksum.
type input struct {
	r    io.Reader
	b    []byte // what was read and not taken
	buf  []byte
	crc  uint32 // of what was taken, up to from
	from []byte // taken since
	end  bool
	err  error // of r, but for its end
	bad  bool  // a number was cut off or too large
}

// fill reads until there are n bytes, at most inputBytes, or no more.
func (i *input) fill(n int) {
	if len(i.b) >= n || i.end {
		return
	}
	i.sum()
	if i.buf == nil {
		i.buf = make([]byte, inputBytes)
	}
	have := copy(i.buf, i.b)
	for have < n && !i.end {
		k, err := i.r.Read(i.buf[have:])
		if have += k; err != nil {
			i.end = true
			if !errors.Is(err, io.EOF) {
				i.err = err
			}
		}
	}
	i.b = i.buf[:have]
	i.from = i.b[:0]
}

// take takes n bytes that are there.
func (i *input) take(n int) []byte {
	b := i.b[:n:n]
	i.b = i.b[n:]
	i.from = i.from[:len(i.from)+n]
	return b
}

// sum is the checksum of all that was taken.
func (i *input) sum() uint32 {
	i.crc = crc32.Update(i.crc, castagnoli, i.from)
	i.from = i.from[len(i.from):]
	return i.crc
}

// next takes n bytes, at most inputBytes; fewer at the end. They are valid until more is read.
func (i *input) next(n int) []byte {
	i.fill(n)
	return i.take(min(n, len(i.b)))
}

// bytes takes n bytes, any number; a number that is a lie costs no more memory than there are bytes.
func (i *input) bytes(n int64) ([]byte, error) {
	var all []byte
	for n > 0 {
		b := i.next(int(min(n, inputBytes)))
		if len(b) == 0 {
			return nil, errCut
		}
		all = append(all, b...)
		n -= int64(len(b))
	}
	return all, nil
}

func (i *input) uvarint() uint64 {
	i.fill(thingBytes)
	v, n := binary.Uvarint(i.b)
	if n <= 0 {
		i.bad = true
		return 0
	}
	i.take(n)
	return v
}

func (i *input) varint() int64 {
	u := i.uvarint()
	v := int64(u >> 1)
	if u&1 != 0 {
		v = ^v
	}
	return v
}

func (i *input) uint32() uint32 {
	v := i.uvarint()
	if v > math.MaxUint32 {
		i.bad = true
	}
	return uint32(v)
}

// failed tells whether a number could not be read.
func (i *input) failed() error {
	if i.bad {
		return errCut
	}
	return nil
}
