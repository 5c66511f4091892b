package lookup

import (
	"encoding/binary"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// CorruptError is a key index file whose content is not what was written.
type CorruptError struct {
	File string
	What string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("key index file %s: %s; its part is read again from the log", e.File, e.What)
}

// run is an open file. It is immutable; refs keeps it open while somebody reads.
type run struct {
	name string
	header
	file vfs.File
	refs atomic.Int64 // the index has one; 0 is closed for good

	topOnce sync.Once
	top     []uint64 // the first number of each fence page
	topErr  error
}

var pages = sync.Pool{New: func() any { return new(page) }}

// openRun checks the header against the name and the size of the file.
func openRun(fsys vfs.FS, name string, start, end int64) (*run, error) {
	f, err := fsys.OpenRead(name)
	if err != nil {
		return nil, err
	}
	r := &run{name: name, file: f}
	r.refs.Store(1)
	if err = r.open(start, end); err != nil {
		f.Close()
		return nil, err
	}
	return r, nil
}

func (r *run) open(start, end int64) error {
	size, err := r.file.Size()
	if err != nil {
		return err
	}
	if size < pageBytes {
		return &CorruptError{r.name, "shorter than a page"}
	}
	p := pages.Get().(*page)
	defer pages.Put(p)
	if n, err := r.file.ReadAt(p[:], 0); n < pageBytes {
		return fmt.Errorf("read %s: %w", r.name, err)
	}
	h, what := decodeHeader(p)
	switch {
	case what != "":
	case h.size() != size:
		what = fmt.Sprintf("has %d bytes, the header says %d", size, h.size())
	case h.start != start || h.end != end:
		what = fmt.Sprintf("the header says [%d, %d)", h.start, h.end)
	}
	if what != "" {
		return &CorruptError{r.name, what}
	}
	r.header = h
	return nil
}

func (r *run) acquire() bool {
	for {
		n := r.refs.Load()
		if n == 0 {
			return false
		}
		if r.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (r *run) release() {
	if r.refs.Add(-1) == 0 {
		r.file.Close()
	}
}

// read reads page i and checks it.
func (r *run) read(p *page, i int64) error {
	if n, err := r.file.ReadAt(p[:], i*pageBytes); n < pageBytes {
		return fmt.Errorf("read %s: %w", r.name, err)
	}
	if !checkPage(p) {
		return &CorruptError{r.name, fmt.Sprintf("wrong checksum of page %d", i)}
	}
	return nil
}

// may asks the filter.
func (r *run) may(p *page, hash uint64) (bool, error) {
	if r.entries == 0 {
		return false, nil
	}
	b := block(hash, r.blocks)
	if err := r.read(p, 1+b/pageBlocks); err != nil {
		return false, err
	}
	return hasBits(p[b%pageBlocks*blockBytes:][:blockBytes], hash), nil
}

// tops loads the first number of each fence page.
func (r *run) tops(p *page) ([]uint64, error) {
	r.topOnce.Do(func() {
		top := make([]uint64, 0, r.fencePages())
		for i := range r.fencePages() {
			if r.topErr = r.read(p, r.firstFence()+i); r.topErr != nil {
				return
			}
			top = append(top, binary.LittleEndian.Uint64(p[:]))
		}
		r.top = top
	})
	return r.top, r.topErr
}

// seek returns the first entry page that can have entries of the hash.
func (r *run) seek(p *page, hash uint64) (int64, error) {
	top, err := r.tops(p)
	if err != nil {
		return 0, err
	}
	f := int64(sort.Search(len(top), func(i int) bool { return top[i] >= hash }))
	if f > 0 { // the page before the first one that begins at the hash or behind it
		f--
	}
	if err := r.read(p, r.firstFence()+f); err != nil {
		return 0, err
	}
	n := int(min(pageFences, r.entryPages()-f*pageFences))
	i := int64(sort.Search(n, func(i int) bool { return binary.LittleEndian.Uint64(p[8*i:]) >= hash }))
	return max(0, f*pageFences+i-1), nil
}

// find calls fn for the entries of the hash, newest first, until it returns false.
func (r *run) find(hash uint64, fn func(address, time int64) bool) error {
	p := pages.Get().(*page)
	defer pages.Put(p)
	if ok, err := r.may(p, hash); !ok {
		return err
	}
	at, err := r.seek(p, hash)
	if err != nil {
		return err
	}
	for ; at < r.entryPages(); at++ {
		if err := r.read(p, r.firstEntry()+at); err != nil {
			return err
		}
		n := int(min(pageEntries, r.entries-at*pageEntries))
		i := sort.Search(n, func(i int) bool { return binary.LittleEndian.Uint64(p[i*entryBytes:]) >= hash })
		for ; i < n; i++ {
			e := getEntry(p[i*entryBytes:], r.start)
			if e.Hash != hash || !fn(e.Address, e.Time) {
				return nil
			}
		}
	}
	return nil
}

// scanPages is how much of a run a merge reads at once.
const scanPages = 16

// scan goes through the entries of a run in their order.
type scan struct {
	r    *run
	buf  []byte
	page int64 // next entry page to read
	n    int   // entries in buf
	at   int   // the next one
	e    Entry
}

// next moves to the next entry; ok is false behind the last.
func (s *scan) next() (ok bool, err error) {
	if s.at == s.n {
		left := s.r.entryPages() - s.page
		if left == 0 {
			return false, nil
		}
		k := min(left, scanPages)
		if s.buf == nil {
			s.buf = make([]byte, scanPages*pageBytes)
		}
		b := s.buf[:k*pageBytes]
		if n, err := s.r.file.ReadAt(b, (s.r.firstEntry()+s.page)*pageBytes); n < len(b) {
			return false, fmt.Errorf("read %s: %w", s.r.name, err)
		}
		for i := range k {
			if !checkPage((*page)(b[i*pageBytes:])) {
				return false, &CorruptError{s.r.name, fmt.Sprintf("wrong checksum of page %d", s.r.firstEntry()+s.page+i)}
			}
		}
		s.n, s.at = int(min(k*pageEntries, s.r.entries-s.page*pageEntries)), 0
		s.page += k
	}
	s.e = getEntry(s.buf[s.at/pageEntries*pageBytes+s.at%pageEntries*entryBytes:], s.r.start)
	s.at++
	return true, nil
}
