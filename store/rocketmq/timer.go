package rocketmq

import (
	"encoding/binary"

	"github.com/fusionmq/fusionmq/store/record"
)

// SlotBytes is the size of a slot of the timer wheel.
const SlotBytes = 32

// Slot is a second of the timer wheel.
type Slot struct {
	Time        int64 // in units of the timer's precision since 1970; a slot of another round of the wheel has another time
	First, Last int64 // positions in the timer log
	Count       int32 // entries less those that were cancelled
	Magic       int32
}

// DecodeSlot reads the slot that b starts with; ok is false for one that was never used.
func DecodeSlot(b []byte) (s Slot, ok bool) {
	if len(b) < SlotBytes {
		return Slot{}, false
	}
	be := binary.BigEndian
	s = Slot{Time: int64(be.Uint64(b)), First: int64(be.Uint64(b[8:])), Last: int64(be.Uint64(b[16:])), Count: int32(be.Uint32(b[24:])), Magic: int32(be.Uint32(b[28:]))}
	return s, s.Time > 0
}

// TimerUnitBytes is the size of a unit of the timer log.
const TimerUnitBytes = 52

// Bits of TimerUnit.Magic.
const (
	TimerDefault = 1
	TimerRoll    = 2 // the slot is not the last one: the message is put back then
	TimerDelete  = 4 // it cancels another message
)

// TimerUnit is one unit of the timer log.
type TimerUnit struct {
	Previous  int64 // position of the unit before it of the same slot, -1 at the first
	Magic     int32
	WriteTime int64 // milliseconds since 1970
	Delay     int32 // milliseconds from WriteTime to the slot
	Position  int64 // of the message in the log
	Size      int32
	TopicHash int32
}

// DecodeTimerUnit reads the unit that b, the rest of a file, starts with. ok is false where none is; end, where the file has no more.
func DecodeTimerUnit(b []byte) (u TimerUnit, ok, end bool) {
	be := binary.BigEndian
	if len(b) < TimerUnitBytes || be.Uint32(b) == uint32(len(b)) && be.Uint32(b[12:]) == record.MagicBlank {
		return TimerUnit{}, false, true
	}
	u = TimerUnit{
		Previous: int64(be.Uint64(b[4:])), Magic: int32(be.Uint32(b[12:])), WriteTime: int64(be.Uint64(b[16:])), Delay: int32(be.Uint32(b[24:])),
		Position: int64(be.Uint64(b[28:])), Size: int32(be.Uint32(b[36:])), TopicHash: int32(be.Uint32(b[40:])),
	}
	if be.Uint32(b) != TimerUnitBytes || u.Magic&^0xF != 0 || u.Magic == 0 || u.Position < 0 || u.Size <= 0 {
		return TimerUnit{}, false, false
	}
	return u, true, false
}
