package runs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fusionmq/fusionmq/store/vfs"
)

const (
	magic      = "FMQRUN\x00\x01"
	headBytes  = 64
	rowBytes   = 1 + KeyBytes + ValueBytes
	pageRows   = 128
	pageBytes  = pageRows*rowBytes + 4
	maxRows    = 1 << 36
	suffix     = ".run"
	nameDigits = 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CorruptError says what is wrong with a file.
type CorruptError struct {
	File string
	What string
}

func (e *CorruptError) Error() string { return fmt.Sprintf("run %s: %s", e.File, e.What) }

// run is one sorted file.
type run struct {
	path  string
	id    uint64
	rows  int64
	sum   uint32 // of the checksums of all pages: what is in it
	file  vfs.File
	first []Key // of every page

	asked  atomic.Int64             // page that Get has read last, and 1
	recent atomic.Pointer[readRows] // page that Get has read twice in a row

	refs   int  // versions and pins that have it; guarded by Table.mu
	synced bool // guarded by Table.syncing
}

func runName(dir string, id uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%0*d%s", nameDigits, id, suffix))
}

// runID is the number in a name; false for other files.
func runID(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != nameDigits {
		return 0, false
	}
	id, err := strconv.ParseUint(digits, 10, 63)
	return id, err == nil
}

func (r *run) pages() int { return len(r.first) }

// pageLen is the number of rows of page n.
func (r *run) pageLen(n int) int { return int(min(pageRows, r.rows-int64(n)*pageRows)) }

// readPage reads page n into buf, which has pageBytes, and checks it.
func (r *run) readPage(n int, buf []byte) ([]byte, error) {
	size := r.pageLen(n) * rowBytes
	b := buf[:size+4]
	if m, err := r.file.ReadAt(b, headBytes+int64(n)*pageBytes); m < len(b) {
		return nil, fmt.Errorf("read run %s: %w", r.path, err)
	}
	if crc32.Checksum(b[:size], castagnoli) != binary.LittleEndian.Uint32(b[size:]) {
		return nil, &CorruptError{r.path, fmt.Sprintf("page %d has a wrong checksum", n)}
	}
	return b[:size], nil
}

// readRows are the rows of a page.
type readRows struct {
	page int
	rows []byte
}

// getPage is readPage for Get. Who looks for rows that are near each other, and so mostly in one page of each run, reads it twice and
// then has it. Of a run one page is kept.
func (r *run) getPage(n int, buf []byte) ([]byte, error) {
	if p := r.recent.Load(); p != nil && p.page == n {
		return p.rows, nil
	}
	b, err := r.readPage(n, buf)
	if err == nil && r.asked.Swap(int64(n)+1) == int64(n)+1 {
		r.recent.Store(&readRows{n, bytes.Clone(b)})
	}
	return b, err
}

// pageOf is the page in which key is or would be.
func (r *run) pageOf(key *Key) int {
	return max(sort.Search(len(r.first), func(i int) bool { return bytes.Compare(r.first[i][:], key[:]) > 0 })-1, 0)
}

func (w *row) decode(b []byte) {
	w.kind = kind(b[0])
	copy(w.key[:], b[1:])
	copy(w.value[:], b[1+KeyBytes:])
}

func (w *row) append(b []byte) []byte {
	k := w.kind
	if k == rowFresh {
		k = rowPut
	}
	b = append(b, byte(k))
	b = append(b, w.key[:]...)
	return append(b, w.value[:]...)
}

// searchPage is the place of the first row of a page at or above key.
func searchPage(b []byte, key *Key) int {
	return sort.Search(len(b)/rowBytes, func(i int) bool { return bytes.Compare(b[i*rowBytes+1:i*rowBytes+1+KeyBytes], key[:]) >= 0 })
}

var cursors = sync.Pool{New: func() any { return new(runCursor) }}

// newCursor takes a cursor from a pool; freeCursors puts those of runs back.
func newCursor(r *run) *runCursor {
	c := cursors.Get().(*runCursor)
	c.r, c.page, c.end = r, nil, true
	return c
}

func freeCursors(cs []cursor) {
	for _, c := range cs {
		if c, ok := c.(*runCursor); ok {
			c.r = nil
			cursors.Put(c)
		}
	}
}

// runCursor goes through a run.
type runCursor struct {
	r    *run
	page []byte // rows of page n
	n, i int
	cur  row
	end  bool
	buf  [pageBytes]byte
}

func (c *runCursor) seek(key *Key) error {
	c.end = c.r.rows == 0
	if c.end {
		return nil
	}
	c.n = c.r.pageOf(key)
	var err error
	if c.page, err = c.r.readPage(c.n, c.buf[:]); err != nil {
		return err
	}
	c.i = searchPage(c.page, key)
	return c.load()
}

// load makes cur the row at i, which may be the first of the next page.
func (c *runCursor) load() error {
	for c.i*rowBytes >= len(c.page) {
		if c.n++; c.n >= c.r.pages() {
			c.end = true
			return nil
		}
		var err error
		if c.page, err = c.r.readPage(c.n, c.buf[:]); err != nil {
			return err
		}
		c.i = 0
	}
	c.cur.decode(c.page[c.i*rowBytes:])
	return nil
}

func (c *runCursor) row() *row {
	if c.end {
		return nil
	}
	return &c.cur
}

func (c *runCursor) next() error {
	c.i++
	return c.load()
}

// writer writes one run.
type writer struct {
	r    *run
	buf  []byte // pages that are not written
	page int    // where the page that is being filled begins in buf
	off  int64
}

const writeBytes = 64 << 10

func newWriter(fsys vfs.FS, dir string, id uint64) (*writer, error) {
	path := runName(dir, id)
	f, err := fsys.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create run %s: %w", path, err)
	}
	return &writer{r: &run{path: path, id: id, file: f}, off: headBytes}, nil
}

func (w *writer) add(r *row) error {
	if w.r.rows%pageRows == 0 {
		if err := w.endPage(); err != nil {
			return err
		}
		w.r.first = append(w.r.first, r.key)
	}
	w.buf = r.append(w.buf)
	w.r.rows++
	return nil
}

func (w *writer) endPage() error {
	if len(w.buf) > w.page {
		w.buf = binary.LittleEndian.AppendUint32(w.buf, crc32.Checksum(w.buf[w.page:], castagnoli))
		w.r.sum = crc32.Update(w.r.sum, castagnoli, w.buf[len(w.buf)-4:])
		w.page = len(w.buf)
	}
	if len(w.buf) >= writeBytes {
		return w.flush()
	}
	return nil
}

func (w *writer) flush() error {
	if _, err := w.r.file.WriteAt(w.buf, w.off); err != nil {
		return fmt.Errorf("write run %s: %w", w.r.path, err)
	}
	w.off += int64(len(w.buf))
	w.buf, w.page = w.buf[:0], 0
	return nil
}

// finish writes the rest and returns the run.
func (w *writer) finish() (*run, error) {
	if err := w.endPage(); err != nil {
		return nil, err
	}
	keys := len(w.buf)
	for i := range w.r.first {
		w.buf = append(w.buf, w.r.first[i][:]...)
	}
	sum := crc32.Checksum(w.buf[keys:], castagnoli)
	if err := w.flush(); err != nil {
		return nil, err
	}
	if _, err := w.r.file.WriteAt(w.r.header(sum), 0); err != nil {
		return nil, fmt.Errorf("write run %s: %w", w.r.path, err)
	}
	return w.r, nil
}

func (r *run) fileBytes() int64 {
	pages := (r.rows + pageRows - 1) / pageRows
	return headBytes + r.rows*rowBytes + pages*(4+KeyBytes)
}

func (r *run) header(sum uint32) []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, headBytes)
	b = append(b, magic...)
	b = le.AppendUint64(b, r.id)
	b = le.AppendUint64(b, uint64(r.rows))
	b = le.AppendUint32(b, pageRows)
	b = le.AppendUint32(b, rowBytes)
	b = le.AppendUint64(b, uint64(r.fileBytes()))
	b = le.AppendUint32(b, sum)
	b = le.AppendUint32(b, r.sum)
	b = append(b, make([]byte, 12)...)
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// openRun opens a file and checks its header and its first keys.
func openRun(fsys vfs.FS, path string, id uint64) (*run, error) {
	f, err := fsys.OpenRead(path)
	if err != nil {
		return nil, fmt.Errorf("open run %s: %w", path, err)
	}
	r := &run{path: path, id: id, file: f, synced: true}
	if err := r.load(); err != nil {
		_ = f.Close()
		return nil, err
	}
	return r, nil
}

func (r *run) load() error {
	bad := func(format string, args ...any) error { return &CorruptError{r.path, fmt.Sprintf(format, args...)} }
	size, err := r.file.Size()
	if err != nil {
		return err
	}
	var h [headBytes]byte
	if n, err := r.file.ReadAt(h[:], 0); n < headBytes {
		return bad("has %d bytes: %v", size, err)
	}
	le := binary.LittleEndian
	rows := le.Uint64(h[16:])
	switch {
	case string(h[:8]) != magic:
		return bad("starts with %q, want %q", h[:8], magic)
	case le.Uint32(h[60:]) != crc32.Checksum(h[:60], castagnoli):
		return bad("header has a wrong checksum")
	case le.Uint64(h[8:]) != r.id:
		return bad("says that it is number %d", le.Uint64(h[8:]))
	case le.Uint32(h[24:]) != pageRows || le.Uint32(h[28:]) != rowBytes || rows > maxRows:
		return bad("has pages of %d rows, rows of %d bytes, %d rows", le.Uint32(h[24:]), le.Uint32(h[28:]), rows)
	}
	r.rows, r.sum = int64(rows), le.Uint32(h[44:])
	if want := r.fileBytes(); int64(le.Uint64(h[32:])) != want || size != want {
		return bad("has %d bytes, want %d", size, want)
	}
	pages := (r.rows + pageRows - 1) / pageRows
	keys := make([]byte, pages*KeyBytes)
	if n, err := r.file.ReadAt(keys, size-int64(len(keys))); n < len(keys) {
		return fmt.Errorf("read run %s: %w", r.path, err)
	}
	if crc32.Checksum(keys, castagnoli) != le.Uint32(h[40:]) {
		return bad("first keys have a wrong checksum")
	}
	r.first = make([]Key, pages)
	for i := range r.first {
		copy(r.first[i][:], keys[i*KeyBytes:])
	}
	return nil
}

// Verify checks a whole file, also the order of its rows.
func Verify(fsys vfs.FS, path string) error {
	id, ok := runID(filepath.Base(path))
	if !ok {
		return &CorruptError{path, "is no name of a run"}
	}
	r, err := openRun(fsys, path, id)
	if err != nil {
		return err
	}
	defer r.file.Close()
	var buf [pageBytes]byte
	var last Key
	sum := uint32(0)
	for n := range r.pages() {
		b, err := r.readPage(n, buf[:])
		if err != nil {
			return err
		}
		for i := 0; i < len(b); i += rowBytes {
			var w row
			w.decode(b[i:])
			if w.kind != rowPut && w.kind != rowDelete || i == 0 && w.key != r.first[n] || (n > 0 || i > 0) && bytes.Compare(last[:], w.key[:]) >= 0 {
				return &CorruptError{path, fmt.Sprintf("row %d of page %d is out of order or of no kind", i/rowBytes, n)}
			}
			last = w.key
		}
		sum = crc32.Update(sum, castagnoli, buf[len(b):len(b)+4])
	}
	if sum != r.sum {
		return &CorruptError{path, "pages have other checksums than the header says"}
	}
	return nil
}
