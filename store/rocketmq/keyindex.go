package rocketmq

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"strings"

	"github.com/fusionmq/fusionmq/store/record"
)

const (
	indexHeaderBytes = 40
	indexSlotBytes   = 4
	indexEntryBytes  = 20
)

// IndexHeader is the head of a key index file.
type IndexHeader struct {
	BeginTime, EndTime         int64 // store times of the first and the last entry
	BeginPosition, EndPosition int64
	SlotsUsed                  int32
	Count                      int32 // number of the next entry; entries are counted from 1
}

// DecodeIndexHeader reads the head of a file.
func DecodeIndexHeader(b []byte) (IndexHeader, bool) {
	if len(b) < indexHeaderBytes {
		return IndexHeader{}, false
	}
	be := binary.BigEndian
	h := IndexHeader{
		BeginTime: int64(be.Uint64(b)), EndTime: int64(be.Uint64(b[8:])), BeginPosition: int64(be.Uint64(b[16:])), EndPosition: int64(be.Uint64(b[24:])),
		SlotsUsed: int32(be.Uint32(b[32:])), Count: max(1, int32(be.Uint32(b[36:]))),
	}
	return h, true
}

// IndexEntry is one entry of a key index.
type IndexEntry struct {
	Hash     int32
	Position int64
	Time     int64 // store time in milliseconds since 1970, to the second
	Previous int32 // number of the entry before it in its slot, 0 at the first
}

// Index is a key index file in memory.
type Index struct {
	IndexHeader
	b     []byte
	slots int64
}

// OpenIndex looks at the bytes of a key index file whose table has so many slots, which the file does not say: the broker's
// maxHashSlotNum, 5,000,000 by default.
func OpenIndex(b []byte, slots int) (*Index, error) {
	h, ok := DecodeIndexHeader(b)
	if !ok {
		return nil, fmt.Errorf("key index: %d bytes are no header", len(b))
	}
	x := &Index{IndexHeader: h, b: b, slots: int64(slots)}
	if slots < 1 || x.entryAt(1) > int64(len(b)) || x.entryAt(int64(h.Count)) > int64(len(b)) {
		return nil, fmt.Errorf("key index: %d bytes do not hold %d slots and %d entries", len(b), slots, h.Count-1)
	}
	return x, nil
}

func (x *Index) entryAt(n int64) int64 {
	return indexHeaderBytes + x.slots*indexSlotBytes + n*indexEntryBytes
}

// Entries ranges over the entries in the order of their numbers, which are from 1.
func (x *Index) Entries() iter.Seq2[int32, IndexEntry] {
	return func(yield func(int32, IndexEntry) bool) {
		for n := int32(1); n < x.Count; n++ {
			if e, ok := x.Entry(n); !ok || !yield(n, e) {
				return
			}
		}
	}
}

// Entry returns the entry of a number.
func (x *Index) Entry(n int32) (IndexEntry, bool) {
	at := x.entryAt(int64(n))
	if n < 1 || at+indexEntryBytes > int64(len(x.b)) {
		return IndexEntry{}, false
	}
	be, b := binary.BigEndian, x.b[at:]
	return IndexEntry{
		Hash: int32(be.Uint32(b)), Position: int64(be.Uint64(b[4:])), Time: x.BeginTime + int64(int32(be.Uint32(b[12:])))*1000, Previous: int32(be.Uint32(b[16:])),
	}, true
}

// Find ranges over the entries of a hash, newest first.
func (x *Index) Find(hash int32) iter.Seq[IndexEntry] {
	return func(yield func(IndexEntry) bool) {
		if hash < 0 {
			return // no key has it
		}
		n := int32(binary.BigEndian.Uint32(x.b[indexHeaderBytes+int64(hash)%x.slots*indexSlotBytes:]))
		for n > 0 && n < x.Count {
			e, ok := x.Entry(n)
			if !ok || e.Hash == hash && !yield(e) || e.Previous >= n {
				return
			}
			n = e.Previous
		}
	}
}

// KeyHash is the hash under which a key of a topic is in the index.
func KeyHash(topic, key string) int32 {
	h := javaHash(topic + "#" + key)
	if h == math.MinInt32 {
		return 0
	}
	return max(h, -h)
}

// javaHash is Java's String.hashCode.
func javaHash(s string) int32 { return record.HashCode([]byte(s)) }

// Keys are the texts under which a record is in the key index, in the order in which they are put there.
func Keys(v record.View) []string {
	var keys []string
	if k, ok := v.Property(record.PropUniqKey); ok {
		keys = append(keys, string(k))
	}
	if k, ok := v.Property(record.PropKeys); ok {
		for _, s := range strings.Split(string(k), " ") {
			if s != "" {
				keys = append(keys, s)
			}
		}
	}
	return keys
}
