package queue

import "encoding/binary"

// Entry is one view in the queue index: where a queue's message lies and what a reader needs to decide about it
// without touching the log.
type Entry struct {
	Address  int64 // what clients see as PHYSICALOFFSET; grows along a queue
	Position int64 // where the record with the body starts in the log; equals Address unless the view was published or relocated
	Size     int32 // bytes of that record
	TagsCode int64 // Java String.hashCode of the TAGS value, sign-extended; 0 without a tag
	Time     int64 // publish time, milliseconds since 1970
}

// TopicEntry is an entry with its place.
type TopicEntry struct {
	Entry
	Queue       int32
	QueueOffset int64
}

const entryBytes = 36

func appendEntry(b []byte, e *Entry) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, uint64(e.Address))
	b = le.AppendUint64(b, uint64(e.Position))
	b = le.AppendUint32(b, uint32(e.Size))
	b = le.AppendUint64(b, uint64(e.TagsCode))
	return le.AppendUint64(b, uint64(e.Time))
}

func decodeEntry(b []byte) Entry {
	le := binary.LittleEndian
	_ = b[entryBytes-1]
	return Entry{
		Address:  int64(le.Uint64(b)),
		Position: int64(le.Uint64(b[8:])),
		Size:     int32(le.Uint32(b[16:])),
		TagsCode: int64(le.Uint64(b[20:])),
		Time:     int64(le.Uint64(b[28:])),
	}
}
