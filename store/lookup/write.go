package lookup

import (
	"encoding/binary"
	"fmt"
	"path/filepath"

	"github.com/fusionmq/fusionmq/store/vfs"
)

const (
	suffix     = ".keys"
	tempSuffix = ".tmp"
	nameDigits = 20
)

func fileName(dir string, start, end int64) string {
	return filepath.Join(dir, fmt.Sprintf("%0*d-%0*d%s", nameDigits, start, nameDigits, end, suffix))
}

// writer writes a run. Entries come in their order, so pages of the filter and of entries are written one after the other; in
// memory are a buffer for each and the fence.
type writer struct {
	f      vfs.File
	h      header
	bloom  pageBuffer
	inPage int64 // the filter's page that is being filled
	body   pageBuffer
	inBody int // entries in the page that is being filled
	fence  []uint64
}

// pageBuffer gathers whole pages and writes them in larger pieces.
type pageBuffer struct {
	f   vfs.File
	off int64
	buf []byte // the last page is being filled
}

const bufferPages = 16

// fresh begins the next page, zero.
func (b *pageBuffer) fresh() (*page, error) {
	if len(b.buf) == bufferPages*pageBytes {
		if err := b.flush(); err != nil {
			return nil, err
		}
	}
	if b.buf == nil {
		b.buf = make([]byte, 0, bufferPages*pageBytes)
	}
	n := len(b.buf)
	b.buf = b.buf[:n+pageBytes]
	p := (*page)(b.buf[n:])
	clear(p[:])
	return p, nil
}

func (b *pageBuffer) last() *page {
	if len(b.buf) == 0 {
		return nil
	}
	return (*page)(b.buf[len(b.buf)-pageBytes:])
}

// flush seals the pages and writes them.
func (b *pageBuffer) flush() error {
	for at := 0; at < len(b.buf); at += pageBytes {
		sealPage((*page)(b.buf[at:]))
	}
	if len(b.buf) > 0 {
		if _, err := b.f.WriteAt(b.buf, b.off); err != nil {
			return err
		}
	}
	b.off += int64(len(b.buf))
	b.buf = b.buf[:0]
	return nil
}

// newWriter begins a run for [start, end) that gets at most `most` entries.
func newWriter(f vfs.File, start, end, most int64) *writer {
	w := &writer{f: f, h: header{start: start, end: end, blocks: blocksFor(most), minTime: max48, maxTime: 0}, inPage: -1}
	w.bloom = pageBuffer{f: f, off: pageBytes}
	w.body = pageBuffer{f: f, off: pageBytes * w.h.firstEntry()}
	return w
}

func (w *writer) add(e Entry) error {
	if w.h.entries%pageEntries == 0 {
		if _, err := w.body.fresh(); err != nil {
			return err
		}
		w.fence = append(w.fence, e.Hash)
		w.inBody = 0
	}
	putEntry(w.body.last()[w.inBody*entryBytes:], e, w.h.start)
	w.inBody++
	w.h.entries++
	t := clampTime(e.Time)
	w.h.minTime, w.h.maxTime = min(w.h.minTime, t), max(w.h.maxTime, t)
	b := block(e.Hash, w.h.blocks)
	if err := w.bloomTo(b / pageBlocks); err != nil {
		return err
	}
	setBits(w.bloom.last()[b%pageBlocks*blockBytes:][:blockBytes], e.Hash)
	return nil
}

// bloomTo begins pages of the filter up to page i.
func (w *writer) bloomTo(i int64) error {
	for ; w.inPage < i; w.inPage++ {
		if _, err := w.bloom.fresh(); err != nil {
			return err
		}
	}
	return nil
}

// finish writes what is left, the header last, and syncs the file.
func (w *writer) finish() error {
	if err := w.bloomTo(w.h.bloomPages() - 1); err != nil {
		return err
	}
	for _, b := range []*pageBuffer{&w.bloom, &w.body} {
		if err := b.flush(); err != nil {
			return err
		}
	}
	fence := pageBuffer{f: w.f, off: w.body.off}
	for i, first := range w.fence {
		if i%pageFences == 0 {
			if _, err := fence.fresh(); err != nil {
				return err
			}
		}
		binary.LittleEndian.PutUint64(fence.last()[i%pageFences*8:], first)
	}
	if err := fence.flush(); err != nil {
		return err
	}
	var p page
	w.h.encode(&p)
	if _, err := w.f.WriteAt(p[:], 0); err != nil {
		return err
	}
	return w.f.Sync()
}

// writeRun makes a run durable: fill adds its entries. It is opened under its name.
func (x *Index) writeRun(start, end, most int64, fill func(*writer) error) (r *run, err error) {
	name := fileName(x.cfg.Dir, start, end)
	temp := name + tempSuffix
	defer func() {
		if err != nil {
			_ = x.cfg.FS.Remove(temp) // best effort: the error that matters is err, and the next start removes it too
			err = fmt.Errorf("write key index file %s: %w", name, err)
		}
	}()
	f, err := x.cfg.FS.Create(temp)
	if err != nil {
		return nil, err
	}
	w := newWriter(f, start, end, most)
	if err = fill(w); err == nil {
		err = w.finish()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		x.naming.Lock()
		err = x.cfg.FS.Rename(temp, name)
		x.naming.Unlock()
	}
	if err == nil {
		err = x.cfg.FS.SyncDir(x.cfg.Dir)
	}
	if err != nil {
		return nil, err
	}
	return openRun(x.cfg.FS, name, start, end)
}
