package lookup

import (
	"encoding/binary"
	"fmt"
	"path/filepath"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// FileInfo is what a key index file says of itself.
type FileInfo struct {
	Start, End int64 // the part of the log that it speaks for
	Entries    int64
}

// Verify reads a key index file from its first to its last byte and changes nothing: every checksum, the order of the entries,
// and that fence and filter have them all. What is wrong with the content is a *CorruptError.
func Verify(fsys vfs.FS, name string) (FileInfo, error) {
	p, ok := parseName(filepath.Base(name))
	if !ok {
		return FileInfo{}, &CorruptError{name, "its name should be two positions of 20 digits"}
	}
	r, err := openRun(fsys, name, p.from, p.end)
	if err != nil {
		return FileInfo{}, err
	}
	defer r.release()
	info := FileInfo{Start: r.start, End: r.end, Entries: r.entries}
	return info, r.verify()
}

func (r *run) verify() error {
	for i := range r.size() / pageBytes {
		var p page
		if err := r.read(&p, i); err != nil {
			return err
		}
	}
	wrong := func(i int64, what string) error {
		return &CorruptError{r.name, fmt.Sprintf("entry %d %s", i, what)}
	}
	var last Entry
	var fence, bloom page
	fencePage, bloomPage := int64(-1), int64(-1)
	s := scan{r: r}
	for i := int64(0); ; i++ {
		ok, err := s.next()
		if err != nil {
			return err
		}
		if !ok {
			return nil
		}
		e := s.e
		if i > 0 && !last.before(e) {
			return wrong(i, "is not behind the one before it")
		}
		last = e
		if e.Address >= r.end || e.Time < r.minTime || e.Time > r.maxTime {
			return wrong(i, fmt.Sprintf("is of address %d and time %d", e.Address, e.Time))
		}
		if i%pageEntries == 0 {
			k := i / pageEntries
			if k/pageFences != fencePage {
				fencePage = k / pageFences
				if err := r.read(&fence, r.firstFence()+fencePage); err != nil {
					return err
				}
			}
			if binary.LittleEndian.Uint64(fence[k%pageFences*8:]) != e.Hash {
				return wrong(i, "is not what the fence says")
			}
		}
		b := block(e.Hash, r.blocks)
		if b/pageBlocks != bloomPage {
			bloomPage = b / pageBlocks
			if err := r.read(&bloom, 1+bloomPage); err != nil {
				return err
			}
		}
		if !hasBits(bloom[b%pageBlocks*blockBytes:][:blockBytes], e.Hash) {
			return wrong(i, "is not in the filter")
		}
	}
}
