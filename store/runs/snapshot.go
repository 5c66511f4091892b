package runs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

var (
	errClosed = errors.New("runs: closed")
	errRows   = errors.New("rows are cut off or out of order")
)

// Pin keeps the runs of a snapshot.
type Pin struct {
	t    *Table
	runs []*run
}

// Snapshot appends the numbers of the runs and the rows of the tail, which Restore takes back, and keeps those runs until the pin is
// released.
func (t *Table) Snapshot(dst []byte) ([]byte, *Pin) {
	t.mu.Lock()
	p := &Pin{t: t, runs: t.mu.cur.runs}
	for _, r := range p.runs {
		r.refs++
	}
	t.mu.Unlock()
	dst = binary.AppendUvarint(dst, uint64(len(p.runs)))
	for _, r := range p.runs {
		dst = binary.AppendUvarint(dst, r.id)
		dst = binary.AppendUvarint(dst, uint64(r.rows))
		dst = binary.AppendUvarint(dst, uint64(r.sum))
	}
	dst = binary.AppendUvarint(dst, uint64(t.tail.rows))
	for _, piece := range t.tail.pieces {
		for i := range piece {
			dst = append(dst, byte(piece[i].kind))
			dst = append(dst, piece[i].key[:]...)
			dst = append(dst, piece[i].value[:]...)
		}
	}
	return dst, p
}

// Sync makes the files of the pin durable.
func (p *Pin) Sync() error {
	p.t.syncing.Lock()
	defer p.t.syncing.Unlock()
	news := false
	for _, r := range p.runs {
		if r.synced {
			continue
		}
		if err := r.file.Sync(); err != nil {
			return fmt.Errorf("sync run %s: %w", r.path, err)
		}
		r.synced, news = true, true
	}
	if news {
		return p.t.cfg.FS.SyncDir(p.t.cfg.Dir)
	}
	return nil
}

// Release lets go of the runs.
func (p *Pin) Release() {
	if p == nil {
		return
	}
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	for _, r := range p.runs {
		p.t.unrefLocked(r)
	}
	p.runs = nil
}

// Restore fills an empty table with what Snapshot has appended. The pin keeps what the snapshot needs until a newer one is durable.
func (t *Table) Restore(b []byte) (*Pin, error) {
	number := func() uint64 {
		n, k := binary.Uvarint(b)
		if k <= 0 {
			b = nil
			return 1 << 62
		}
		b = b[k:]
		return n
	}
	n := number()
	if n > uint64(len(b)) {
		return nil, errRows
	}
	var rs []*run
	closeAll := func() {
		for _, r := range rs {
			_ = r.file.Close()
		}
	}
	for range n {
		id, rows, sum := number(), number(), number()
		r, err := openRun(t.cfg.FS, runName(t.cfg.Dir, id), id)
		if err == nil && (uint64(r.rows) != rows || uint64(r.sum) != sum) {
			_ = r.file.Close()
			err = &CorruptError{r.path, fmt.Sprintf("has %d rows with checksum %#x, want %d with %#x", r.rows, r.sum, rows, sum)}
		}
		if err != nil {
			closeAll()
			return nil, err
		}
		rs = append(rs, r)
	}
	rows := number()
	if uint64(len(b))/rowBytes != rows || uint64(len(b))%rowBytes != 0 {
		closeAll()
		return nil, errRows
	}
	var fill tail
	var last []byte
	for ; len(b) > 0; b = b[rowBytes:] {
		r := row{kind: kind(b[0]), key: Key(b[1:]), value: Value(b[1+KeyBytes:])}
		if r.kind < rowPut || r.kind > rowFresh || last != nil && bytes.Compare(last, b[1:1+KeyBytes]) >= 0 {
			closeAll()
			return nil, errRows
		}
		last = b[1 : 1+KeyBytes]
		fill.set(r)
	}
	t.tail = fill
	t.mu.Lock()
	defer t.mu.Unlock()
	t.installLocked(rs)
	for _, r := range rs {
		r.refs++
	}
	return &Pin{t: t, runs: rs}, nil
}

// Clean removes the files that nobody needs: what a crash has left, or all of them when there was no snapshot.
func (t *Table) Clean() error {
	ids, err := t.files()
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.mu.cur.runs {
		delete(ids, r.id)
	}
	for id := range ids {
		if err := t.cfg.FS.Remove(runName(t.cfg.Dir, id)); err != nil {
			return err
		}
	}
	return nil
}

// Stats describe the table.
type Stats struct {
	Tail    int   // rows in memory
	Runs    int   // files
	Rows    int64 // rows in them, deleted ones too
	Bytes   int64 // of the files
	Indexed int64 // bytes of memory for the first keys of pages
}

// Stats counts what is there.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Stats{Tail: t.tail.rows, Runs: len(t.mu.cur.runs)}
	for _, r := range t.mu.cur.runs {
		s.Rows += r.rows
		s.Bytes += r.fileBytes()
		s.Indexed += int64(len(r.first)) * KeyBytes
	}
	return s
}
