package state

import (
	"encoding/binary"
	"math"
)

// Everything that waits is two rows of the table: one by address, to find it, and one by due time, to take what is due in
// its order. Both have all that is known of it, so that a walk along either reads no other row.
//
//	key    0 4 space * 2, + 1 in the row by due time
//	       4 8 address, or due time   12 8 0, or address   20 4 number of the group; 0 where the space has no groups
//	value  0 8 position of the body    8 8 due time   16 4 size   20 4 attempts   24 4 number of the topic   28 4 flags
//
// Numbers are big-endian: the order of the bytes is that of the numbers.
type space uint32

const (
	spaceHalf    space = iota // undecided; due is the next check, attempts are the checks made
	spaceAside                // undecided and not asked about any more; due is when it was moved aside
	spaceDelay                // due is when it is to be published
	spaceReturn               // sent back by pull groups; due is when %RETRY% gets it, attempts are those made
	spaceOutcome              // outcomes of halves; due is when the outcome came
	spaceLines   = 16         // from here on a space for each retry line
)

// popped marks what waits in spaceReturn because a pop was not acknowledged.
const popped = 1 << 31

// waiting is one thing that waits.
type waiting struct {
	due      int64
	address  int64
	position int64
	topic    uint32
	group    uint32
	size     int32
	attempt  int32
	flags    uint32
}

// Flags of waiting: of a delay, how it is shown when it is published; of what was sent back, its delay level, or popped and milliseconds.
// Of an outcome: 1 committed, 2 rolled back.

func keyOf(s space, byDue uint32, a, b int64, group uint32) (k [KeyBytes]byte) {
	be := binary.BigEndian
	be.PutUint32(k[:], uint32(s)<<1|byDue)
	be.PutUint64(k[4:], uint64(a))
	be.PutUint64(k[12:], uint64(b))
	be.PutUint32(k[20:], group)
	return k
}

func (w *waiting) value() (v [ValueBytes]byte) {
	be := binary.BigEndian
	be.PutUint64(v[:], uint64(w.position))
	be.PutUint64(v[8:], uint64(w.due))
	be.PutUint32(v[16:], uint32(w.size))
	be.PutUint32(v[20:], uint32(w.attempt))
	be.PutUint32(v[24:], w.topic)
	be.PutUint32(v[28:], w.flags)
	return v
}

func (w *waiting) decode(k *[KeyBytes]byte, v *[ValueBytes]byte) {
	be := binary.BigEndian
	*w = waiting{
		position: int64(be.Uint64(v[:])), due: int64(be.Uint64(v[8:])), size: int32(be.Uint32(v[16:])), attempt: int32(be.Uint32(v[20:])),
		topic: be.Uint32(v[24:]), flags: be.Uint32(v[28:]), group: be.Uint32(k[20:]),
	}
	if k[3]&1 == 0 {
		w.address = int64(be.Uint64(k[4:]))
	} else {
		w.address = int64(be.Uint64(k[12:]))
	}
}

// get finds what waits in a space by its address.
func (m *Machine) get(s space, address int64, group uint32) (w waiting, ok bool) {
	var v [ValueBytes]byte
	k := keyOf(s, 0, address, 0, group)
	if ok = m.table.Get(&k, &v); ok {
		w.decode(&k, &v)
	}
	return w, ok
}

// add puts something in a space that has nothing of its address and group.
func (m *Machine) add(s space, w *waiting) {
	m.put(s, w, true)
	m.noteLate(s, w)
}

func (m *Machine) put(s space, w *waiting, fresh bool) {
	m.value = w.value()
	m.key = keyOf(s, 0, w.address, 0, w.group)
	m.table.Put(&m.key, &m.value, fresh)
	m.key = keyOf(s, 1, w.due, w.address, w.group)
	m.table.Put(&m.key, &m.value, fresh)
	m.lows.added(s, &m.key)
}

// remove takes out what get has found.
func (m *Machine) remove(s space, w *waiting) {
	m.key = keyOf(s, 0, w.address, 0, w.group)
	m.table.Delete(&m.key)
	m.removeDue(s, w)
}

func (m *Machine) removeDue(s space, w *waiting) {
	m.key = keyOf(s, 1, w.due, w.address, w.group)
	m.table.Delete(&m.key)
}

// replace changes what get has found as old; the address and the group stay.
func (m *Machine) replace(s space, old, w *waiting) {
	if old.due == w.due {
		m.put(s, w, false)
		return
	}
	m.removeDue(s, old)
	m.value = w.value()
	m.key = keyOf(s, 0, w.address, 0, w.group)
	m.table.Put(&m.key, &m.value, false)
	m.key = keyOf(s, 1, w.due, w.address, w.group)
	m.table.Put(&m.key, &m.value, true)
	m.lows.added(s, &m.key)
}

// byDue calls fn for what waits in a space behind (due, address, group) in the order of due time, until it returns false.
func (m *Machine) byDue(s space, due, address int64, group uint32, fn func(*waiting) bool) {
	end := keyOf(s+1, 0, 0, 0, 0)
	if due < 0 {
		first := end
		m.scan(m.lows.from(s), end, func(w *waiting) bool {
			if first == end {
				first = keyOf(s, 1, w.due, w.address, w.group)
			}
			return fn(w)
		})
		m.lows.found(s, first)
		return
	}
	var from [KeyBytes]byte
	switch {
	case group < math.MaxUint32:
		from = keyOf(s, 1, due, address, group+1)
	default:
		from = keyOf(s, 1, due, address+1, 0)
	}
	m.scan(from, end, fn)
}

// byAddress calls fn for what waits in a space from first on and up to last, in the order of addresses.
func (m *Machine) byAddress(s space, first, last int64, fn func(*waiting) bool) {
	to := keyOf(s, 1, 0, 0, 0)
	if last < math.MaxInt64 {
		to = keyOf(s, 0, last+1, 0, 0)
	}
	m.scan(keyOf(s, 0, first, 0, 0), to, fn)
}

func (m *Machine) scan(from, to [KeyBytes]byte, fn func(*waiting) bool) {
	var w waiting
	m.table.Scan(&from, &to, func(k *[KeyBytes]byte, v *[ValueBytes]byte) bool {
		w.decode(k, v)
		return fn(&w)
	})
}
