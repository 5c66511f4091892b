package queue

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime/debug"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/fusionmq/fusionmq/store/vfs"
)

const (
	headerBytes    = 64
	queueBytes     = 40
	topicBytes     = 16
	pageEntries    = 128
	pageBytes      = pageEntries * entryBytes
	magic          = "FMQIDX\x00\x01"
	maxSpanEntries = 1 << 24 // 600 MB; larger than any configuration allows
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CorruptError is an index file whose content is not what was written.
type CorruptError struct {
	File string
	What string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("index file %s: %s; it is built again from the log at the next start", e.File, e.What)
}

// errGone is returned for an entry whose span was dropped while it was read.
var errGone = errors.New("queue: entry is gone")

// span is an open index file. It is immutable; refs keeps the mapping while somebody reads.
type span struct {
	name       string      // that it has when it is settled
	settled    atomic.Bool // it is durable and has its name
	removed    atomic.Bool // it turned out to be damaged
	start, end int64
	header     header
	file       vfs.File // nil when the file is mapped
	mapped     []byte   // nil when the file system cannot map
	unmap      func() error
	refs       atomic.Int64 // the index has one; 0 is closed for good

	dirOnce sync.Once
	dirErr  error
	dir     []byte // everything behind the entries

	good []atomic.Uint64 // one bit for each page whose checksum was right
}

type header struct {
	start, end                             int64
	entries, queues, topics, names, dirSum uint32
	size                                   int64
}

func (h *header) dirOffset() int64 { return headerBytes + int64(h.entries)*entryBytes }
func (h *header) pageCount() int   { return (int(h.entries) + pageEntries - 1) / pageEntries }
func (h *header) queueTable() int  { return 4 * h.pageCount() }
func (h *header) topicTable() int  { return h.queueTable() + queueBytes*int(h.queues) }
func (h *header) nameTable() int   { return h.topicTable() + topicBytes*int(h.topics) }
func (h *header) dirBytes() int64  { return int64(h.nameTable()) + int64(h.names) }

func (h *header) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, headerBytes)
	b = append(b, magic...)
	b = le.AppendUint64(b, uint64(h.start))
	b = le.AppendUint64(b, uint64(h.end))
	b = le.AppendUint32(b, h.entries)
	b = le.AppendUint32(b, h.queues)
	b = le.AppendUint32(b, h.topics)
	b = le.AppendUint32(b, h.names)
	b = le.AppendUint32(b, pageEntries)
	b = le.AppendUint64(b, uint64(h.size))
	b = le.AppendUint32(b, h.dirSum)
	b = le.AppendUint32(b, 0)
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeHeader(b []byte) (h header, what string) {
	le := binary.LittleEndian
	if len(b) < headerBytes || string(b[:6]) != magic[:6] {
		return h, "no index file"
	}
	if crc32.Checksum(b[:60], castagnoli) != le.Uint32(b[60:]) {
		return h, "wrong checksum of the header"
	}
	if string(b[:8]) != magic {
		return h, fmt.Sprintf("version %d is not known", b[7])
	}
	h = header{
		start: int64(le.Uint64(b[8:])), end: int64(le.Uint64(b[16:])),
		entries: le.Uint32(b[24:]), queues: le.Uint32(b[28:]), topics: le.Uint32(b[32:]), names: le.Uint32(b[36:]),
		size: int64(le.Uint64(b[44:])), dirSum: le.Uint32(b[52:]),
	}
	if h.start < 0 || h.end <= h.start || h.entries > maxSpanEntries || le.Uint32(b[40:]) != pageEntries ||
		h.size != h.dirOffset()+h.dirBytes() {
		return h, "header does not add up"
	}
	return h, ""
}

// openSpan checks the header and maps the file.
func openSpan(fsys vfs.FS, name string) (*span, error) {
	f, err := fsys.OpenRead(name)
	if err != nil {
		return nil, err
	}
	s, err := newSpan(f, name)
	if err != nil || s.file == nil {
		f.Close() // a mapping needs no descriptor; after an error there is nothing to lose
	}
	return s, err
}

func newSpan(f vfs.File, name string) (*span, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size < headerBytes {
		return nil, &CorruptError{name, "shorter than its header"}
	}
	var b [headerBytes]byte
	if n, err := f.ReadAt(b[:], 0); n < headerBytes {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	h, what := decodeHeader(b[:])
	if what == "" && h.size != size {
		what = fmt.Sprintf("has %d bytes, the header says %d", size, h.size)
	}
	if what != "" {
		return nil, &CorruptError{name, what}
	}
	s := &span{name: name, start: h.start, end: h.end, header: h, good: make([]atomic.Uint64, (h.pageCount()+63)/64)}
	s.refs.Store(1)
	if m, ok := f.(vfs.Mapper); ok {
		if s.mapped, s.unmap, err = m.Map(size); err == nil {
			return s, nil
		}
		s.mapped, s.unmap = nil, nil // too many mappings, say: read the file instead
	}
	s.file = f
	return s, nil
}

func (s *span) path() string {
	if s.settled.Load() {
		return s.name
	}
	return s.name + tempSuffix
}

func (s *span) acquire() bool {
	for {
		n := s.refs.Load()
		if n == 0 {
			return false
		}
		if s.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (s *span) release() {
	if s.refs.Add(-1) > 0 {
		return
	}
	if s.unmap != nil {
		_ = s.unmap() // of a mapping that is ours and whole it cannot fail
	}
	if s.file != nil {
		s.file.Close()
	}
}

func (s *span) bytes(off int64, n int) ([]byte, error) {
	if s.mapped != nil {
		return s.mapped[off : off+int64(n)], nil
	}
	b := make([]byte, n)
	if m, err := s.file.ReadAt(b, off); m < n {
		return nil, fmt.Errorf("read %s: %w", s.name, err)
	}
	return b, nil
}

// directory returns everything behind the entries, checked.
func (s *span) directory() ([]byte, error) {
	s.dirOnce.Do(func() {
		if s.dir, s.dirErr = s.bytes(s.header.dirOffset(), int(s.header.dirBytes())); s.dirErr != nil {
			return
		}
		if crc32.Checksum(s.dir, castagnoli) != s.header.dirSum {
			s.dirErr = &CorruptError{s.name, "wrong checksum of the directory"}
			return
		}
		if what := s.checkTables(); what != "" {
			s.dirErr = &CorruptError{s.name, what}
		}
	})
	return s.dir, s.dirErr
}

// checkTables makes every later access to the tables safe, whoever wrote the file.
func (s *span) checkTables() string {
	le := binary.LittleEndian
	h := &s.header
	for i := range int(h.topics) {
		b := s.dir[h.topicTable()+topicBytes*i:]
		if uint64(le.Uint32(b))+uint64(le.Uint32(b[4:])) > uint64(h.names) ||
			uint64(le.Uint32(b[8:]))+uint64(le.Uint32(b[12:])) > uint64(h.queues) {
			return fmt.Sprintf("topic %d is outside its table", i)
		}
	}
	for i := range int(h.queues) {
		q := s.queueAt(i)
		if uint64(q.at)+uint64(q.count) > uint64(h.entries) || q.first < 0 || q.min < 0 || q.min > q.first+int64(q.count) || q.id < 0 || q.id > MaxQueueID || q.last < 0 || q.last >= h.end {
			return fmt.Sprintf("queue %d is outside its table", i)
		}
	}
	return ""
}

// part is what a span has of a queue.
type part struct {
	s     *span
	id    int32
	count uint32 // entries; may be 0
	first int64  // offset of the first one, or of the next one to come
	at    uint32 // its index in the file
	min   int64  // first offset that could be read when the span was written
	last  int64  // address of the newest entry below the end of the span
}

func (s *span) queueAt(i int) part {
	le := binary.LittleEndian
	b := s.dir[s.header.queueTable()+queueBytes*i:][:queueBytes]
	return part{
		s: s, id: int32(le.Uint32(b)), count: le.Uint32(b[4:]), first: int64(le.Uint64(b[8:])),
		at: le.Uint32(b[16:]), min: int64(le.Uint64(b[24:])), last: int64(le.Uint64(b[32:])),
	}
}

// topicAt returns a name, which is part of the directory, and the range of its queues.
func (s *span) topicAt(i int) (name []byte, first, n int) {
	le := binary.LittleEndian
	b := s.dir[s.header.topicTable()+topicBytes*i:][:topicBytes]
	name = s.dir[s.header.nameTable():][le.Uint32(b):][:le.Uint32(b[4:])]
	return name, int(le.Uint32(b[8:])), int(le.Uint32(b[12:]))
}

// find returns the part of a queue, ok false when the queue did not exist yet. Neighbouring spans mostly name the same
// topics and queues, so guess, the number the topic had in the span that was last looked at, saves the searches. It is
// updated.
func (s *span) find(topic string, id int32, guess *atomic.Int32) (p part, ok bool, err error) {
	defer vfs.CatchFault(debug.SetPanicOnFault(true), &err)
	if _, err := s.directory(); err != nil {
		return part{}, false, err
	}
	first, n, ok := 0, 0, false
	if g := int(guess.Load()); g < int(s.header.topics) {
		var name []byte
		name, first, n = s.topicAt(g)
		ok = string(name) == topic
	}
	if !ok {
		var i int
		if i, first, n, ok = s.findTopic(topic); !ok {
			return part{}, false, nil
		}
		guess.Store(int32(i))
	}
	if int(id) < n { // the usual case: queues 0..n-1
		if p = s.queueAt(first + int(id)); p.id == id {
			return p, true, nil
		}
	}
	j := sort.Search(n, func(j int) bool { return s.queueAt(first+j).id >= id })
	if j == n {
		return part{}, false, nil
	}
	p = s.queueAt(first + j)
	return p, p.id == id, nil
}

func (s *span) findTopic(topic string) (i, first, n int, ok bool) {
	topics := int(s.header.topics)
	i = sort.Search(topics, func(i int) bool {
		name, _, _ := s.topicAt(i)
		return string(name) >= topic
	})
	if i == topics {
		return 0, 0, 0, false
	}
	name, first, n := s.topicAt(i)
	return i, first, n, string(name) == topic
}

// pages checks the pages of entries [at, at+n) and returns the bytes of these entries.
func (s *span) pages(at, n int) ([]byte, error) {
	dir, err := s.directory()
	if err != nil {
		return nil, err
	}
	firstPage, lastPage := at/pageEntries, (at+n-1)/pageEntries
	base := firstPage * pageEntries
	end := min((lastPage+1)*pageEntries, int(s.header.entries))
	b, err := s.bytes(headerBytes+int64(base)*entryBytes, (end-base)*entryBytes)
	if err != nil {
		return nil, err
	}
	for p := firstPage; p <= lastPage; p++ {
		bit := uint64(1) << (p % 64)
		if s.mapped != nil && s.good[p/64].Load()&bit != 0 {
			continue
		}
		page := b[(p-firstPage)*pageBytes:]
		page = page[:min(len(page), pageBytes)]
		if crc32.Checksum(page, castagnoli) != binary.LittleEndian.Uint32(dir[4*p:]) {
			return nil, &CorruptError{s.name, fmt.Sprintf("wrong checksum of entries %d to %d", p*pageEntries, p*pageEntries+len(page)/entryBytes-1)}
		}
		s.good[p/64].Or(bit)
	}
	return b[(at-base)*entryBytes:], nil
}

// read decodes entries from index at on.
func (s *span) read(at int, dst []Entry) (err error) {
	defer vfs.CatchFault(debug.SetPanicOnFault(true), &err)
	if len(dst) == 0 {
		return nil
	}
	b, err := s.pages(at, len(dst))
	if err != nil {
		return err
	}
	for i := range dst {
		e := decodeSlot(b[i*entryBytes:])
		dst[i] = e.entry()
	}
	return nil
}

// readSlots is read for a block in memory.
func (s *span) readSlots(at int, dst []slotEntry) (err error) {
	defer vfs.CatchFault(debug.SetPanicOnFault(true), &err)
	b, err := s.pages(at, len(dst))
	if err != nil {
		return err
	}
	for i := range dst {
		dst[i] = decodeSlot(b[i*entryBytes:])
	}
	return nil
}

func (s *span) address(at int) (int64, error) {
	b, err := s.pages(at, 1)
	if err != nil {
		return 0, err
	}
	return int64(binary.LittleEndian.Uint64(b)), nil
}

// search is the number of entries of a part with addresses below at.
func (s *span) search(p part, at int64) (n int, err error) {
	if at <= s.start {
		return 0, nil
	}
	defer vfs.CatchFault(debug.SetPanicOnFault(true), &err)
	var failed error
	n = sort.Search(int(p.count), func(i int) bool {
		a, err := s.address(int(p.at) + i)
		failed = cmp.Or(failed, err)
		return a >= at
	})
	return n, failed
}
