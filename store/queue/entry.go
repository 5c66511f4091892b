package queue

import "encoding/binary"

// Entry is one view in the queue index: where a queue's message lies and what a reader needs to decide about it
// without touching the log.
type Entry struct {
	Address  int64 // what clients see as PHYSICALOFFSET; grows along a queue
	Position int64 // where the record with the body starts in the log; equals Address unless the view was published or relocated
	Size     int32 // bytes of that record
	TagsCode int64 // Java String.hashCode of the TAGS value, sign-extended from 32 bits; 0 without a tag
	Time     int64 // publish time, milliseconds since 1970
}

// TopicEntry is an entry with its place.
type TopicEntry struct {
	Entry
	Queue       int32
	QueueOffset int64
}

// slotEntry is an Entry in memory: two in a cache line. Tags codes are 32 bits wide before they are sign-extended.
type slotEntry struct {
	address, position, time int64
	size, tags              int32
}

func (e *Entry) slot() slotEntry {
	return slotEntry{address: e.Address, position: e.Position, time: e.Time, size: e.Size, tags: int32(e.TagsCode)}
}

func (s *slotEntry) entry() Entry {
	return Entry{Address: s.address, Position: s.position, Size: s.size, TagsCode: int64(s.tags), Time: s.time}
}

const entryBytes = 32

func (s *slotEntry) append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, uint64(s.address))
	b = le.AppendUint64(b, uint64(s.position))
	b = le.AppendUint64(b, uint64(s.time))
	b = le.AppendUint32(b, uint32(s.size))
	return le.AppendUint32(b, uint32(s.tags))
}

func decodeSlot(b []byte) slotEntry {
	le := binary.LittleEndian
	_ = b[entryBytes-1]
	return slotEntry{
		address:  int64(le.Uint64(b)),
		position: int64(le.Uint64(b[8:])),
		time:     int64(le.Uint64(b[16:])),
		size:     int32(le.Uint32(b[24:])),
		tags:     int32(le.Uint32(b[28:])),
	}
}
