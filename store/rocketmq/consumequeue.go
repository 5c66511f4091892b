package rocketmq

import (
	"encoding/binary"
	"math"
)

// EntryBytes is the size of an entry of a consume queue.
const EntryBytes = 20

// blankSize is the size that entries in front of a queue's first one have.
const blankSize = math.MaxInt32

// Entry is one entry of a consume queue.
type Entry struct {
	Position int64 // of the record in the log
	Size     int32 // of the record in bytes
	Tags     int64 // hash of the tag, due time in a schedule queue, or the address of an extension unit
}

// DecodeEntry reads the entry that b starts with; ok is false for one that was never written.
func DecodeEntry(b []byte) (e Entry, ok bool) {
	if len(b) < EntryBytes {
		return Entry{}, false
	}
	be := binary.BigEndian
	e = Entry{Position: int64(be.Uint64(b)), Size: int32(be.Uint32(b[8:])), Tags: int64(be.Uint64(b[12:]))}
	return e, e.Position >= 0 && e.Size > 0
}

// Blank tells whether the entry stands for an offset in front of the queue's first message.
func (e Entry) Blank() bool { return e.Position == 0 && e.Size == blankSize }

// BlankEntry is such an entry.
func BlankEntry() Entry { return Entry{Size: blankSize} }

// Append appends the 20 bytes of the entry.
func (e Entry) Append(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint64(b, uint64(e.Position))
	b = be.AppendUint32(b, uint32(e.Size))
	return be.AppendUint64(b, uint64(e.Tags))
}

// Extension is the address of the entry's extension unit, ok false when Tags is no address.
func (e Entry) Extension() (address int64, ok bool) {
	if e.Tags > math.MinInt32-1 {
		return 0, false
	}
	return e.Tags - math.MinInt64, true
}

// BatchEntryBytes is the size of an entry of a batch consume queue.
const BatchEntryBytes = 46

// BatchEntry is one entry of a batch consume queue, or of one of a compacted topic.
type BatchEntry struct {
	Entry
	StoreTime int64 // milliseconds since 1970
	First     int64 // queue offset of its first message
	Count     int16 // messages in it
}

// DecodeBatchEntry reads the entry that b starts with; ok is false for one that was never written.
func DecodeBatchEntry(b []byte) (e BatchEntry, ok bool) {
	if len(b) < BatchEntryBytes {
		return BatchEntry{}, false
	}
	be := binary.BigEndian
	if e.Entry, ok = DecodeEntry(b); !ok {
		return BatchEntry{}, false
	}
	e.StoreTime, e.First, e.Count = int64(be.Uint64(b[20:])), int64(be.Uint64(b[28:])), int16(be.Uint16(b[36:]))
	return e, e.First >= 0 && e.Count > 0
}

// minUnit is the size of an extension unit without a bitmap.
const minUnit = 20

// Unit is one unit of a consume queue extension.
type Unit struct {
	Tags      int64  // what the queue entry would have
	StoreTime int64  // milliseconds since 1970
	Bitmap    []byte // which filters the message passes; aliases the bytes that it was read from
}

// DecodeUnit reads the unit that b starts with and returns its size in bytes. ok is false where none is; end, where the file has no more.
func DecodeUnit(b []byte) (u Unit, size int, ok, end bool) {
	if len(b) < 2 {
		return Unit{}, 0, false, true
	}
	be := binary.BigEndian
	n := int(int16(be.Uint16(b)))
	if n == -1 {
		return Unit{}, 0, false, true
	}
	if n < minUnit || n > len(b) {
		return Unit{}, 0, false, false
	}
	bits := int(int16(be.Uint16(b[18:])))
	if bits != n-minUnit {
		return Unit{}, 0, false, false
	}
	return Unit{Tags: int64(be.Uint64(b[2:])), StoreTime: int64(be.Uint64(b[10:])), Bitmap: b[minUnit:n:n]}, n, true, false
}

// Append appends the bytes of the unit, whose bitmap has at most 32,747 bytes.
func (u Unit) Append(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint16(b, uint16(minUnit+len(u.Bitmap)))
	b = be.AppendUint64(b, uint64(u.Tags))
	b = be.AppendUint64(b, uint64(u.StoreTime))
	b = be.AppendUint16(b, uint16(len(u.Bitmap)))
	return append(b, u.Bitmap...)
}
