package brokerdir

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/rocketmq"
	"github.com/fusionmq/fusionmq/store/vfs"
)

const buffer = 256 << 10

// stream writes a sequence of files of equal length.
type stream struct {
	fs   vfs.FS
	dir  string
	size int64 // of a file
	end  int64 // position of the next byte

	f    vfs.File
	from int64 // position of buf[0]
	buf  []byte
}

// left is how many bytes the file has room for.
func (s *stream) left() int64 { return s.size - s.end%s.size }

// write appends bytes, which the file has room for.
func (s *stream) write(b []byte) error {
	if s.f == nil {
		if err := s.create(); err != nil {
			return err
		}
	}
	if s.buf = append(s.buf, b...); len(s.buf) >= buffer {
		if err := s.flush(); err != nil {
			return err
		}
	}
	if s.end += int64(len(b)); s.end%s.size == 0 {
		return s.close()
	}
	return nil
}

// roll goes on with the next file, whatever room this one has left.
func (s *stream) roll() error {
	err := s.close()
	s.end = (s.end + s.size - 1) / s.size * s.size
	return err
}

func (s *stream) create() (err error) {
	if err = s.fs.MkdirAll(s.dir); err != nil {
		return err
	}
	s.from = s.end
	if s.f, err = s.fs.Create(filepath.Join(s.dir, fmt.Sprintf("%020d", s.end))); err == nil {
		err = s.f.Truncate(s.size)
	}
	return err
}

func (s *stream) flush() error {
	_, err := s.f.WriteAt(s.buf, s.from%s.size)
	s.from += int64(len(s.buf))
	s.buf = s.buf[:0]
	return err
}

func (s *stream) close() error {
	if s.f == nil {
		return nil
	}
	err := s.flush()
	if e := s.f.Close(); err == nil {
		err = e
	}
	s.f = nil
	return err
}

const (
	timerLogFile = 100 << 20
	wheelSlots   = 7 * 86400 * 2
	timerEnd     = 16 // bytes that end a file of the timer log
)

// timer is the timer wheel and the timer log.
type timer struct {
	o     *Options
	log   stream
	slots map[int64]*rocketmq.Slot // by second
}

func (t *timer) init(o *Options) {
	t.o, t.slots = o, map[int64]*rocketmq.Slot{}
	t.log = stream{fs: o.FS, dir: filepath.Join(o.Dir, rocketmq.TimerLogDir), size: timerLogFile}
}

// add puts a message into the slot of a time.
func (t *timer) add(out, position int64, size, hash int32) error {
	if left := t.log.left(); left < rocketmq.TimerUnitBytes+timerEnd {
		var end [timerEnd]byte
		binary.BigEndian.PutUint32(end[:], uint32(left))
		binary.BigEndian.PutUint32(end[12:], record.MagicBlank)
		if err := t.log.write(end[:]); err != nil {
			return err
		}
		if err := t.log.roll(); err != nil {
			return err
		}
	}
	at := t.log.end
	s := t.slots[out/1000]
	if s == nil {
		s = &rocketmq.Slot{Time: out / 1000, First: at, Last: -1}
		t.slots[out/1000] = s
	}
	be := binary.BigEndian
	var u [rocketmq.TimerUnitBytes]byte
	be.PutUint32(u[:], rocketmq.TimerUnitBytes)
	be.PutUint64(u[4:], uint64(s.Last))
	be.PutUint32(u[12:], rocketmq.TimerDefault)
	be.PutUint64(u[16:], uint64(t.o.Now))
	be.PutUint32(u[24:], uint32(out-t.o.Now))
	be.PutUint64(u[28:], uint64(position))
	be.PutUint32(u[36:], uint32(size))
	be.PutUint32(u[40:], uint32(hash))
	s.Last = at
	s.Count++
	return t.log.write(u[:])
}

func (t *timer) close() error {
	if err := t.log.close(); err != nil || len(t.slots) == 0 {
		return err
	}
	f, err := t.o.FS.Create(filepath.Join(t.o.Dir, rocketmq.WheelFile))
	if err != nil {
		return err
	}
	err = f.Truncate(wheelSlots * rocketmq.SlotBytes)
	be := binary.BigEndian
	for second, s := range t.slots {
		var b [rocketmq.SlotBytes]byte
		be.PutUint64(b[:], uint64(s.Time))
		be.PutUint64(b[8:], uint64(s.First))
		be.PutUint64(b[16:], uint64(s.Last))
		be.PutUint32(b[24:], uint32(s.Count))
		if err == nil {
			_, err = f.WriteAt(b[:], second%wheelSlots*rocketmq.SlotBytes)
		}
	}
	return errors.Join(err, f.Close())
}
