package lookup

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"
)

const (
	pageBytes    = 4096
	payloadBytes = pageBytes - 4
	entryBytes   = 20
	pageEntries  = payloadBytes / entryBytes // 204
	pageFences   = payloadBytes / 8          // 511
	blockBytes   = 64
	pageBlocks   = payloadBytes / blockBytes // 63
	bloomBits    = 10                        // of the filter, for each entry
	bloomProbes  = 6
	magic        = "FMQKEY\x00\x01"
	max48        = 1<<48 - 1
	maxEntries   = 1 << 40 // more than any disk holds
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type page = [pageBytes]byte

func sealPage(p *page) {
	binary.LittleEndian.PutUint32(p[payloadBytes:], crc32.Checksum(p[:payloadBytes], castagnoli))
}

func checkPage(p *page) bool {
	return crc32.Checksum(p[:payloadBytes], castagnoli) == binary.LittleEndian.Uint32(p[payloadBytes:])
}

// header is page 0 of a run.
type header struct {
	start, end       int64
	entries, blocks  int64
	minTime, maxTime int64
}

func (h *header) bloomPages() int64 { return (h.blocks + pageBlocks - 1) / pageBlocks }
func (h *header) entryPages() int64 { return (h.entries + pageEntries - 1) / pageEntries }
func (h *header) fencePages() int64 { return (h.entryPages() + pageFences - 1) / pageFences }
func (h *header) firstEntry() int64 { return 1 + h.bloomPages() }
func (h *header) firstFence() int64 { return h.firstEntry() + h.entryPages() }
func (h *header) size() int64       { return (h.firstFence() + h.fencePages()) * pageBytes }

// blocksFor is how many blocks the filter of a run of n entries has.
func blocksFor(n int64) int64 { return max(1, (n*bloomBits+8*blockBytes-1)/(8*blockBytes)) }

func (h *header) encode(p *page) {
	clear(p[:])
	le := binary.LittleEndian
	copy(p[:], magic)
	for i, v := range []int64{h.start, h.end, h.entries, h.blocks, h.minTime, h.maxTime} {
		le.PutUint64(p[8+8*i:], uint64(v))
	}
	sealPage(p)
}

// decodeHeader returns what is wrong with page 0, or "".
func decodeHeader(p *page) (h header, what string) {
	if string(p[:6]) != magic[:6] {
		return h, "no key index file"
	}
	if !checkPage(p) {
		return h, "wrong checksum of the header"
	}
	if string(p[:8]) != magic {
		return h, fmt.Sprintf("version %d is not known", p[7])
	}
	for i, v := range []*int64{&h.start, &h.end, &h.entries, &h.blocks, &h.minTime, &h.maxTime} {
		*v = int64(binary.LittleEndian.Uint64(p[8+8*i:]))
	}
	if h.start < 0 || h.end <= h.start || h.end-h.start > max48 || h.entries < 0 || h.entries > maxEntries || h.blocks < 1 || h.blocks > maxEntries {
		return h, "header does not add up"
	}
	return h, ""
}

// clampTime is what fits into an entry; it keeps the order.
func clampTime(ms int64) int64 { return max(0, min(ms, max48)) }

func putEntry(b []byte, e Entry, start int64) {
	binary.LittleEndian.PutUint64(b, e.Hash)
	put48(b[8:], e.Address-start)
	put48(b[14:], clampTime(e.Time))
}

func getEntry(b []byte, start int64) Entry {
	_ = b[entryBytes-1]
	return Entry{Hash: binary.LittleEndian.Uint64(b), Address: start + get48(b[8:]), Time: get48(b[14:])}
}

func put48(b []byte, v int64) {
	binary.LittleEndian.PutUint32(b, uint32(v))
	binary.LittleEndian.PutUint16(b[4:], uint16(v>>32))
}

func get48(b []byte) int64 {
	return int64(binary.LittleEndian.Uint32(b)) | int64(binary.LittleEndian.Uint16(b[4:]))<<32
}

// block is the block of the filter that a hash belongs to. It grows with the hash, so that a run that is written in order of
// the hash writes its filter in order, too.
func block(hash uint64, blocks int64) int64 {
	hi, _ := bits.Mul64(hash, uint64(blocks))
	return int64(hi)
}

// Bits of a hash in its block: six groups of 9 bits.
func setBits(b []byte, hash uint64) {
	x := hash * 0x9E3779B97F4A7C15
	for range bloomProbes {
		b[x>>3&63] |= 1 << (x & 7)
		x >>= 9
	}
}

func hasBits(b []byte, hash uint64) bool {
	x := hash * 0x9E3779B97F4A7C15
	for range bloomProbes {
		if b[x>>3&63]&(1<<(x&7)) == 0 {
			return false
		}
		x >>= 9
	}
	return true
}
