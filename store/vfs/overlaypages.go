package vfs

import (
	"errors"
	"io"
	"math/bits"
)

const overlayPage = 4096

// overlayPages are the pages of a file that differ from the file below. A page is there or not; what is read of one that is not stays as it
// was.
type overlayPages interface {
	has(page int64) bool
	next(page int64) int64 // the first that is there from page on; -1 without one
	read(p []byte, off int64) error
	write(p []byte, off int64) error // the pages that p touches are there then: one in part only if it is
	cut(off int64) error             // bytes from off on are zero, and pages behind it are not there
	close() error
}

func (o *Overlay) newPages() overlayPages {
	if o.scratch == nil {
		return memPages{}
	}
	return &filePages{create: o.scratch}
}

// eachPage calls fn for the parts of a range that are in one page each.
func eachPage(off, end int64, fn func(page, from, to int64) error) error {
	for at := off; at < end; {
		to := min(end, (at/overlayPage+1)*overlayPage)
		if err := fn(at/overlayPage, at, to); err != nil {
			return err
		}
		at = to
	}
	return nil
}

// memPages have their pages in memory, by number.
type memPages map[int64][]byte

func (m memPages) has(page int64) bool { return m[page] != nil }

func (m memPages) next(page int64) int64 {
	first := int64(-1)
	for i := range m {
		if i >= page && (first < 0 || i < first) {
			first = i
		}
	}
	return first
}

func (m memPages) read(p []byte, off int64) error {
	if len(m) == 0 {
		return nil
	}
	return eachPage(off, off+int64(len(p)), func(page, from, to int64) error {
		if b := m[page]; b != nil {
			copy(p[from-off:to-off], b[from%overlayPage:])
		}
		return nil
	})
}

func (m memPages) write(p []byte, off int64) error {
	return eachPage(off, off+int64(len(p)), func(page, from, to int64) error {
		b := m[page]
		if b == nil {
			b = make([]byte, overlayPage)
			m[page] = b
		}
		copy(b[from%overlayPage:], p[from-off:to-off])
		return nil
	})
}

func (m memPages) cut(off int64) error {
	for i, b := range m {
		switch start := i * overlayPage; {
		case start >= off:
			delete(m, i)
		case start+overlayPage > off:
			clear(b[off-start:])
		}
	}
	return nil
}

func (m memPages) close() error {
	clear(m)
	return nil
}

// filePages have them in a file, each in its place.
type filePages struct {
	create func() (File, error)
	f      File     // nil before the first page
	there  []uint64 // a bit for each page
}

func (m *filePages) has(page int64) bool {
	return page/64 < int64(len(m.there)) && m.there[page/64]&(1<<(page%64)) != 0
}

func (m *filePages) next(page int64) int64 {
	for w := page / 64; w < int64(len(m.there)); w++ {
		b := m.there[w]
		if w == page/64 {
			b &= ^uint64(0) << (page % 64)
		}
		if b != 0 {
			return w*64 + int64(bits.TrailingZeros64(b))
		}
	}
	return -1
}

// run is the end of the pages that are there, or not there, as the one at off is; at most end.
func (m *filePages) run(off, end int64) (to int64, there bool) {
	page := off / overlayPage
	there = m.has(page)
	for page++; page*overlayPage < end && m.has(page) == there; page++ {
	}
	return min(end, page*overlayPage), there
}

func (m *filePages) read(p []byte, off int64) error {
	end := min(off+int64(len(p)), int64(len(m.there))*64*overlayPage)
	for at := off; at < end; {
		to, there := m.run(at, end)
		if there {
			if n, err := m.f.ReadAt(p[at-off:to-off], at); int64(n) < to-at {
				if errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF // a page is written whole
				}
				return err
			}
		}
		at = to
	}
	return nil
}

func (m *filePages) write(p []byte, off int64) error {
	if m.f == nil {
		f, err := m.create()
		if err != nil {
			return err
		}
		m.f = f
	}
	if _, err := m.f.WriteAt(p, off); err != nil {
		return err
	}
	end := off + int64(len(p))
	for page := off / overlayPage; page*overlayPage < end; page++ {
		for page/64 >= int64(len(m.there)) {
			m.there = append(m.there, 0)
		}
		m.there[page/64] |= 1 << (page % 64)
	}
	return nil
}

func (m *filePages) cut(off int64) error {
	if m.f == nil {
		return nil
	}
	keep := (off + overlayPage - 1) / overlayPage // pages that stay
	if off%overlayPage != 0 && m.has(keep-1) {
		if _, err := m.f.WriteAt(make([]byte, keep*overlayPage-off), off); err != nil {
			return err
		}
	}
	if keep/64 < int64(len(m.there)) {
		m.there[keep/64] &= 1<<(keep%64) - 1
		m.there = m.there[:keep/64+1]
	}
	size, err := m.f.Size()
	if err != nil || size <= keep*overlayPage {
		return err
	}
	return m.f.Truncate(keep * overlayPage) // its room is free
}

func (m *filePages) close() error {
	f := m.f
	m.f, m.there = nil, nil
	if f == nil {
		return nil
	}
	return f.Close()
}
