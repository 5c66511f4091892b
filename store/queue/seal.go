package queue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// A finished generation becomes a span in two steps, so that memory does not wait for the disk. Sealing writes its file,
// into the page cache, and takes it out of memory. Settling, when the log of the span is on the disk, makes the file
// durable and gives it its name. A start finds only settled files and puts everything behind them again.

// background runs step whenever wake is told, until it finds nothing to do or fails.
func (x *Index) background(wake chan struct{}, step func() error) {
	defer x.done.Done()
	for {
		select {
		case <-x.stop:
			return
		case <-wake:
			for step() == nil {
			}
		}
	}
}

func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default: // it has been told and has not looked yet
	}
}

// Seal writes what is in memory below end to files, so that the next start resumes there. The writer calls it for a clean
// stop, when the log below end is synced and Synced has been told so; end is the end of the log.
func (x *Index) Seal(end int64) error {
	if x.cur.count > x.cur.loaded {
		x.finish(end)
	}
	return x.Drain()
}

// Drain writes every finished span that may be written now, instead of leaving it to the background. A long replay calls
// it, after Synced, to keep memory bounded.
func (x *Index) Drain() error {
	for _, step := range []func() error{x.sealOldest, x.settleOldest} {
		var err error
		for err == nil {
			err = step()
		}
		if !errors.Is(err, errNothing) {
			return err
		}
	}
	return nil
}

var errNothing = errors.New("queue: nothing to write")

// sealOldest writes the file of the oldest finished generation and drops it from memory. Held entries stay in memory
// until they are released, which happens there.
func (x *Index) sealOldest() error {
	x.sealing.Lock()
	defer x.sealing.Unlock()
	x.mu.Lock()
	if len(x.mu.gens) < 2 || x.mu.gens[0].end > x.mu.synced && x.holding.Load() > 0 {
		x.mu.Unlock()
		return errNothing
	}
	g := x.mu.gens[0]
	x.mu.Unlock()

	s, err := x.writeSpan(g)
	x.mu.Lock()
	first := x.mu.sealErr == nil
	x.mu.sealErr = err
	if err != nil {
		x.mu.Unlock()
		if first { // it is tried again with every Synced
			x.cfg.Failed(err)
		}
		return err
	}
	spans := append(slices.Clone(*x.spans.Load()), s)
	x.spans.Store(&spans) // before the runs go, so that a reader who misses one finds the other
	x.mu.gens = slices.Clone(x.mu.gens[1:])
	if g.end <= x.mu.synced {
		signal(x.settle)
	}
	x.mu.Unlock()

	for _, t := range x.sorted {
		t.drop(g)
	}
	return nil
}

// settleOldest makes the oldest file that is not durable yet so.
func (x *Index) settleOldest() error {
	x.settling.Lock()
	defer x.settling.Unlock()
	x.mu.Lock()
	var s *span
	for _, have := range slices.Backward(*x.spans.Load()) { // settled ones come first
		if have.settled.Load() {
			break
		}
		s = have
	}
	ready := s != nil && s.end <= x.mu.synced && !s.removed.Load()
	x.mu.Unlock()
	if !ready {
		return errNothing
	}
	err := x.settleSpan(s)
	if err == nil {
		s.settled.Store(true)
		x.sealed.Store(s.end)
	} else {
		err = fmt.Errorf("keep index file %s: %w", s.name, err)
	}
	x.mu.Lock()
	first := x.mu.settleErr == nil
	x.mu.settleErr = err
	x.mu.Unlock()
	if err != nil && first {
		x.cfg.Failed(err)
	}
	return err
}

func (x *Index) settleSpan(s *span) error {
	f, err := x.cfg.FS.Open(s.name + tempSuffix)
	if err != nil {
		return err
	}
	err = f.Sync()
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = x.cfg.FS.Rename(s.name+tempSuffix, s.name)
	}
	if err == nil {
		err = x.cfg.FS.SyncDir(x.cfg.Dir)
	}
	return err
}

// drop takes the runs of a sealed generation away.
func (t *Topic) drop(g *generation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Queues(func(q *Queue) {
		r := q.head.Load()
		if r == nil || r.gen != g {
			return
		}
		next := r.next.Load()
		end := q.next
		if next == nil {
			q.tail, q.gen, q.block, q.fill = nil, nil, nil, 0
		} else {
			end = next.base
		}
		q.last.Store(r.at(int(end - 1 - r.base)).address)
		q.head.Store(next)
	})
}

// sealed is what one queue gives to a span.
type sealed struct {
	part
	run *run // nil without entries
}

// parts appends what the queues of a topic have in a finished generation.
func (t *Topic) parts(ps []sealed, g *generation) []sealed {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Queues(func(q *Queue) {
		if !q.known || q.born >= g.end {
			return
		}
		p := sealed{part: part{id: q.id, first: q.next, min: q.min.Load(), last: q.last.Load()}}
		r := q.head.Load()
		if r != nil {
			p.first = r.base
		}
		if r != nil && r.gen == g {
			end := q.next
			if n := r.next.Load(); n != nil {
				end = n.base
			}
			p.run, p.count = r, uint32(end-r.base)
			p.last = r.at(int(p.count) - 1).address
		}
		p.min = min(p.min, p.first+int64(p.count))
		ps = append(ps, p)
	})
	return ps
}

// writeSpan writes the file of a generation, under its temporary name, and opens it.
func (x *Index) writeSpan(g *generation) (s *span, err error) {
	name := x.fileName(g.start)
	defer func() {
		if err != nil {
			err = fmt.Errorf("write index file %s: %w", name, err)
		}
	}()
	f, err := x.cfg.FS.Create(name + tempSuffix)
	if err != nil {
		return nil, err
	}
	err = x.writeContent(f, g)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		s, err = openSpan(x.cfg.FS, name+tempSuffix)
	}
	if err != nil {
		_ = x.cfg.FS.Remove(name + tempSuffix) // best effort: the error that matters is err, and the next start removes it too
		return nil, err
	}
	s.name = name
	return s, nil
}

func (x *Index) writeContent(f vfs.File, g *generation) error {
	// Topics made from here on have nothing in this generation, as it is finished; topics are never removed.
	if x.topicCount() != len(x.sorted) {
		x.sorted = x.allTopics()
		slices.SortFunc(x.sorted, func(a, b *Topic) int { return strings.Compare(a.name, b.name) })
	}
	h := header{start: g.start, end: g.end}
	w := &pageWriter{f: f, off: headerBytes}
	tables := &x.tables
	tables.reset()
	le := binary.LittleEndian
	var ps []sealed
	for _, t := range x.sorted {
		ps = t.parts(ps[:0], g)
		if len(ps) == 0 {
			continue
		}
		b := tables.topics
		b = le.AppendUint32(b, uint32(len(tables.names)))
		b = le.AppendUint32(b, uint32(len(t.name)))
		b = le.AppendUint32(b, h.queues)
		tables.topics = le.AppendUint32(b, uint32(len(ps)))
		tables.names = append(tables.names, t.name...)
		h.topics++
		for _, p := range ps {
			b := tables.queues
			b = le.AppendUint32(b, uint32(p.id))
			b = le.AppendUint32(b, p.count)
			b = le.AppendUint64(b, uint64(p.first))
			b = le.AppendUint32(b, h.entries)
			b = le.AppendUint32(b, 0)
			b = le.AppendUint64(b, uint64(p.min))
			tables.queues = le.AppendUint64(b, uint64(p.last))
			h.queues++
			h.entries += p.count
			for i := range int(p.count) {
				if err := w.add(p.run.at(i)); err != nil {
					return err
				}
			}
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	off := w.off
	for _, part := range [][]byte{w.sums, tables.queues, tables.topics, tables.names} {
		h.dirSum = crc32.Update(h.dirSum, castagnoli, part)
		if _, err := f.WriteAt(part, off); err != nil {
			return err
		}
		off += int64(len(part))
	}
	h.names = uint32(len(tables.names))
	h.size = off
	_, err := f.WriteAt(h.encode(), 0)
	return err
}

// tables are those of the file that is being written. They are as large as the number of queues makes them, so they are
// kept from one file to the next.
type tables struct{ queues, topics, names []byte }

func (t *tables) reset() {
	t.queues, t.topics, t.names = t.queues[:0], t.topics[:0], t.names[:0]
}

// pageWriter writes entries in large pieces and collects the sums of their pages.
type pageWriter struct {
	f    vfs.File
	off  int64
	buf  []byte
	sums []byte
}

const writePages = 64 // 256 KiB a write

func (w *pageWriter) add(e *slotEntry) error {
	if w.buf == nil {
		w.buf = make([]byte, 0, writePages*pageBytes)
	}
	if w.buf = e.append(w.buf); len(w.buf) == cap(w.buf) {
		return w.flush()
	}
	return nil
}

func (w *pageWriter) flush() error {
	for p := range slices.Chunk(w.buf, pageBytes) {
		w.sums = binary.LittleEndian.AppendUint32(w.sums, crc32.Checksum(p, castagnoli))
	}
	if len(w.buf) > 0 {
		if _, err := w.f.WriteAt(w.buf, w.off); err != nil {
			return err
		}
	}
	w.off += int64(len(w.buf))
	w.buf = w.buf[:0]
	return nil
}
