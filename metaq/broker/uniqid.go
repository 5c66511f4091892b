package broker

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"
	"unsafe"
)

// uniqLen is the length of a generated unique key.
const uniqLen = 32

// uniqueIDs makes UNIQ_KEYs for messages that come without one, in the form of RocketMQ's clients: IPv4 address, two bytes
// of process and four of start, milliseconds since the start of the month, counter; as hex digits. Tools read the time
// out of it to know where to look. The four bytes in the middle are random here, so two brokers behind one address differ.
type uniqueIDs struct {
	prefix [10]byte
	month  atomic.Int64 // start of the month, milliseconds since 1970
	until  atomic.Int64 // start of the next one
	last   atomic.Uint64
	now    func() time.Time
}

func newUniqueIDs(host netip.Addr, pid int, now func() time.Time) *uniqueIDs {
	u := &uniqueIDs{now: now}
	ip := host.As16()
	copy(u.prefix[:4], ip[12:])
	binary.BigEndian.PutUint16(u.prefix[4:], uint16(pid))
	binary.BigEndian.PutUint32(u.prefix[6:], rand.Uint32())
	return u
}

// append adds a key that this process has not given before. Time and counter are one number that only grows: more than
// 65,536 keys in a millisecond borrow from the next.
func (u *uniqueIDs) append(b []byte) []byte {
	t := u.now()
	ms := t.UnixMilli()
	if ms >= u.until.Load() || ms < u.month.Load() {
		start := time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, t.Location())
		u.month.Store(start.UnixMilli())
		u.until.Store(start.AddDate(0, 1, 0).UnixMilli())
	}
	stamp := uint64(ms) << 16
	var n uint64
	for {
		last := u.last.Load()
		n = max(stamp, last+1)
		if u.last.CompareAndSwap(last, n) {
			break
		}
	}
	var raw [16]byte
	copy(raw[:], u.prefix[:])
	binary.BigEndian.PutUint32(raw[10:], uint32(int64(n>>16)-u.month.Load()))
	binary.BigEndian.PutUint16(raw[14:], uint16(n))
	const digits = "0123456789ABCDEF"
	for _, c := range raw {
		b = append(b, digits[c>>4], digits[c&15])
	}
	return b
}

// bytesString is a string over b, valid while b is not changed.
func bytesString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// stringBytes is the memory of s, which must not be written to.
func stringBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
