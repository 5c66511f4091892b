package bits

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"sort"
	"sync/atomic"
)

// covered says for which addresses of a chunk the bits answer for a filter: from <= address < to.
type covered struct {
	id       ID
	from, to int64
}

const forever = math.MaxInt64

// data is the entries of a chunk, by address. Slots below the count that a reader has loaded do not change.
type data struct {
	addresses []int64
	masks     []Mask
}

// chunk is a run of messages of one topic. One writer adds to it until it is full; then it becomes a file, and its entries
// are read from there when they are asked for.
//
// A reader loads count first and everything else after it: the writer stores it last, so what a reader finds covered was
// covered when the entries it sees were put.
type chunk struct {
	start   int64        // address of the first entry
	end     atomic.Int64 // one more than the address of the newest entry
	count   atomic.Int32
	filters atomic.Pointer[[]covered]
	data    atomic.Pointer[data] // nil when the entries are in the file only
	full    atomic.Bool          // it takes no more entries
	written atomic.Bool          // it has a file
	used    atomic.Int64         // when it was last asked for, by Table.clock
	file    string               // guarded by Table.mu
	damaged bool                 // or of another topic, or gone: guarded by Table.mu
}

func (c *chunk) put(address int64, m Mask) {
	n := int(c.count.Load())
	d := c.data.Load()
	if d == nil || n == len(d.addresses) {
		size := max(64, 2*n)
		g := &data{make([]int64, size), make([]Mask, size)}
		if d != nil {
			copy(g.addresses, d.addresses)
			copy(g.masks, d.masks)
		}
		d = g
		c.data.Store(d)
	}
	d.addresses[n], d.masks[n] = address, m
	c.end.Store(address + 1)
	c.count.Store(int32(n + 1))
}

const (
	magic       = "FMQBITS\x01"
	headerBytes = 40
	filterBytes = 32
	entryBytes  = 8 + maskBytes
	fileLimit   = headerBytes + 1<<16 + maxFilters*2*filterBytes + chunkEntries*entryBytes + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode makes the content of a chunk's file.
func (c *chunk) encode(topic string) []byte {
	le := binary.LittleEndian
	n, d, filters := int(c.count.Load()), c.data.Load(), *c.filters.Load()
	b := make([]byte, 0, headerBytes+len(topic)+filterBytes*len(filters)+entryBytes*n+4)
	b = append(b, magic...)
	b = le.AppendUint64(b, uint64(c.start))
	b = le.AppendUint64(b, uint64(c.end.Load()))
	b = le.AppendUint32(b, uint32(n))
	b = le.AppendUint32(b, uint32(len(filters)))
	b = le.AppendUint32(b, uint32(len(topic)))
	b = le.AppendUint32(b, 0)
	b = append(b, topic...)
	for _, f := range filters {
		b = append(b, f.id[:]...)
		b = le.AppendUint64(b, uint64(f.from))
		b = le.AppendUint64(b, uint64(f.to))
	}
	for i := range n {
		b = le.AppendUint64(b, uint64(d.addresses[i]))
		b = d.masks[i].append(b)
	}
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// content is what a file says.
type content struct {
	topic      string
	start, end int64
	filters    []covered
	data       data
}

// decode reads a file. Everything in it is checked, so that what it answers is what was written.
func decode(b []byte) (c content, what string) {
	le := binary.LittleEndian
	if len(b) < headerBytes+4 || string(b[:7]) != magic[:7] {
		return c, "no file of filter bits"
	}
	if string(b[:8]) != magic {
		return c, fmt.Sprintf("version %d is not known", b[7])
	}
	body := b[:len(b)-4]
	if crc32.Checksum(body, castagnoli) != le.Uint32(b[len(body):]) {
		return c, "wrong checksum"
	}
	c.start, c.end = int64(le.Uint64(b[8:])), int64(le.Uint64(b[16:]))
	entries, filters, name := uint64(le.Uint32(b[24:])), uint64(le.Uint32(b[28:])), uint64(le.Uint32(b[32:]))
	if le.Uint32(b[36:]) != 0 || uint64(len(body)) != headerBytes+name+filterBytes*filters+entryBytes*entries {
		return c, "header does not add up"
	}
	body = body[headerBytes:]
	c.topic, body = string(body[:name]), body[name:]
	c.filters = make([]covered, filters)
	for i := range c.filters {
		c.filters[i] = covered{ID(body[:16]), int64(le.Uint64(body[16:])), int64(le.Uint64(body[24:]))}
		body = body[filterBytes:]
	}
	c.data = data{make([]int64, entries), make([]Mask, entries)}
	for i := range c.data.addresses {
		c.data.addresses[i], c.data.masks[i] = int64(le.Uint64(body)), decodeMask(body[8:])
		body = body[entryBytes:]
	}
	if entries == 0 || !slices.IsSorted(c.data.addresses) || c.data.addresses[0] != c.start || c.data.addresses[entries-1]+1 != c.end {
		return c, "addresses are not in order"
	}
	return c, ""
}

// find is the place of an address among the first n, or of the first above it, looked for from hint on.
func (d *data) find(address int64, hint, n int) int {
	if hint >= n || d.addresses[hint] > address {
		hint = 0
	}
	step := 1
	for hint+step < n && d.addresses[hint+step] <= address {
		hint += step
		step *= 2
	}
	high := min(n, hint+step)
	return hint + sort.Search(high-hint, func(i int) bool { return d.addresses[hint+i] >= address })
}
