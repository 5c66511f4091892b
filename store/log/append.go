package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sort"

	"github.com/fusionmq/fusionmq/store/record"
)

// Sequence numbers the records of one queue. The log alone advances it, under its lock, and takes numbers back when
// their records could not be written.
type Sequence struct {
	Owner any // for Options.Written; the log does not look at it
	next  int64
}

// Reset sets the next number. Only before Start.
func (s *Sequence) Reset(next int64) { s.next = next }

// Next is the next number. Only before Start.
func (s *Sequence) Next() int64 { return s.next }

// Item is one record of a batch. The caller sets Seq, Size, Tags and Sync; the log sets the rest.
type Item struct {
	Seq  *Sequence // nil: the record takes no queue offset
	Tags int64     // carried through to Options.Written
	Size int32     // bytes in the batch's buffer
	Sync bool      // to be acknowledged when durable

	// Memory asks for no more than a place: a batch of nothing else is acknowledged before it is written. When the write fails after
	// all, the log tells with an event and counts it, and the place goes to another record.
	Memory bool

	Position    int64
	QueueOffset int64
	Time        int64 // store time
	Err         error // nil: written, and synced when Sync was set
}

// View is an entry of a queue that a record of a batch makes beside its own: it takes a queue offset when the record gets its place.
// The caller sets Item, Seq and At; the log sets QueueOffset, writes it into the record and corrects the checksum of the body.
type View struct {
	Item        int // index into Batch.Items; views are in the order of their items
	Seq         *Sequence
	At          int // of the 6 bytes for the queue offset, little-endian, from the start of the record; in its body
	QueueOffset int64

	// Carried through to Options.Written.
	Start          int // of the view, from the start of the record
	Position, Tags int64
	Size           int32
	Hold           bool
}

// Batch is what one caller appends in one go: records encoded back to back in Buf, one Item each. It is made by
// Log.NewBatch, belongs to the caller again when Append returns, and can be used for the next one after Reset.
type Batch struct {
	Buf   []byte
	Items []Item
	Views []View               // of items, mostly none
	Note  interface{ Reset() } // for Options.Written; the log only resets it with the batch

	// Reserved batches may use the space that Options.Reserve keeps back from the others; Own ones what is left of a segment that was begun
	// with it.
	Reserved, Own bool

	pending int       // parts that are not acknowledged; guarded by Log.mu
	memory  bool      // the copy of a batch whose caller has been answered; freed with its last part
	waiting bool      // the caller sleeps on wake; whoever wakes it sets this to false; guarded by Log.mu
	wake    chan bool // cap 1: true, take the pen; false, all parts are acknowledged
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	b.Buf, b.memory, b.Reserved, b.Own = b.Buf[:0], false, false, false
	clear(b.Items)
	clear(b.Views)
	b.Items, b.Views = b.Items[:0], b.Views[:0]
	if b.Note != nil {
		b.Note.Reset()
	}
}

// ViewsOf are the views of item i.
func (b *Batch) ViewsOf(i int) []View {
	lo := sort.Search(len(b.Views), func(k int) bool { return b.Views[k].Item >= i })
	hi := lo
	for hi < len(b.Views) && b.Views[hi].Item == i {
		hi++
	}
	return b.Views[lo:hi]
}

// placeViews numbers the views of item i, whose record rec begins with.
func (b *Batch) placeViews(i int, rec []byte) {
	vs := b.ViewsOf(i)
	for k := range vs {
		v := &vs[k]
		v.QueueOffset = v.Seq.next
		v.Seq.next++
		binary.LittleEndian.PutUint32(rec[v.At:], uint32(v.QueueOffset))
		binary.LittleEndian.PutUint16(rec[v.At+4:], uint16(v.QueueOffset>>32))
	}
	if len(vs) > 0 {
		record.UpdateBodyCRC(rec)
	}
}

// Part is a run of items of one batch that were written together.
type Part struct {
	Batch    *Batch
	From, To int // indexes into Batch.Items
	sync     bool
	end      int64
	since    int64 // when its batch came, as Options.Now has it
}

// Items are the records of the part.
func (p *Part) Items() []Item { return p.Batch.Items[p.From:p.To] }

type syncPart struct {
	batch    *Batch
	from, to int
	end      int64
	since    int64
}

// chunk is a run of bytes of a gather that goes to one place of one segment.
type chunk struct {
	seg    *segment
	off    int64
	lo, hi int    // in gather.buf
	own    []byte // instead of lo and hi: the buffer of a batch, whose caller waits at least until it is written
}

// gather is what has been given places but is not written: bytes for the log and the batches they came from.
type gather struct {
	buf      []byte
	chunks   []chunk
	parts    []Part
	wakes    []*Batch // scratch of acknowledge
	bytes    int      // of all chunks
	start    int64
	end      int64
	syncOnly bool // nobody in it waits for less than a sync
}

func (g *gather) reset() {
	if cap(g.buf) > keepBuffer {
		g.buf = nil
	}
	g.buf, g.bytes = g.buf[:0], 0
	clear(g.chunks)
	clear(g.parts)
	clear(g.wakes)
	g.chunks, g.parts, g.wakes = g.chunks[:0], g.parts[:0], g.wakes[:0]
}

// Append gives the batch's records their places and returns when each is acknowledged or has its Err set. Items that
// fail leave no trace.
//
// The pipeline. A caller takes mu, gets places and copies its bytes into the active gather. If nobody has the pen it
// takes it: swap the gathers, unlock, write, tell Written, lock, note who is done, unlock, wake them, and again while bytes
// have gathered meanwhile, at most leaderTurns times before the pen goes to a caller that waits. So one write carries all that
// arrived during the write before it, and nobody is switched to for a record of their own. A batch that wants a sync
// leaves the pen alone and rings the flush loop, which writes and syncs in one go: with 256 such callers a pen of
// their own would cost a write a record. A version with a writer goroutine and a channel was not tried: it adds two
// switches to an append that meets no other.
func (l *Log) Append(b *Batch) {
	if len(b.Items) == 0 {
		return
	}
	now := l.o.Now()
	wantSync, memory := false, true
	for i := range b.Items {
		wantSync = wantSync || b.Items[i].Sync
		memory = memory && b.Items[i].Memory
	}
	if memory && !wantSync {
		l.appendMemory(b, now)
		return
	}
	l.mu.Lock()
	l.placeLocked(b, now, wantSync)
	if b.pending == 0 {
		l.mu.Unlock()
		return
	}
	if wantSync && (len(l.mu.active.parts) == 1 || b.pending > 1) {
		signal(l.flush) // whoever came first to a gather has rung for all that followed
	}
	if !l.mu.writing && (!wantSync || l.mu.active.bytes >= maxGather/4) && len(l.mu.active.parts) > 0 {
		l.leadLocked(b)
		if b.pending == 0 {
			l.mu.Unlock()
			return
		}
	}
	for b.pending > 0 {
		b.waiting = true
		l.mu.Unlock()
		if lead := <-b.wake; !lead {
			return // done; whoever said so has set waiting to false
		}
		l.mu.Lock()
		l.leadLocked(b)
	}
	l.mu.Unlock()
}

// appendMemory gives places to a copy of the batch, which somebody else will write. It waits only when the buffer is full.
func (l *Log) appendMemory(b *Batch, now int64) {
	c := l.NewBatch()
	c.Buf, c.Items, c.memory = append(c.Buf, b.Buf...), append(c.Items, b.Items...), true
	c.Views, c.Note, b.Note = append(c.Views, b.Views...), b.Note, c.Note
	l.mu.Lock()
	defer l.mu.Unlock()
	c.pending = 1 // ours: parts can be written while others still wait for a place
	l.placeLocked(c, now, false)
	copy(b.Items, c.Items)
	l.doneLocked(c)
	if !l.mu.writing && len(l.mu.active.chunks) > 0 {
		signal(l.write)
	}
}

// doneLocked counts a part of a batch whose caller does not wait.
func (l *Log) doneLocked(b *Batch) {
	if b.pending--; b.pending == 0 {
		l.Free(b)
	}
}

// placeLocked gives places to the items in order. It may unlock while it waits.
func (l *Log) placeLocked(b *Batch, now int64, wantSync bool) {
	lo := 0 // of item i in b.Buf
	for i := 0; i < len(b.Items); {
		if err := l.admitLocked(b.Reserved || b.Own); err != nil {
			failItems(b.Items[i:], err)
			return
		}
		m := &l.mu
		m.lastTime = max(m.lastTime, now)
		left := m.cur.base + m.cur.size - m.end
		from, hi := i, lo
		for ; i < len(b.Items); i++ {
			it := &b.Items[i]
			size := int64(it.Size)
			if size+record.BlankSize > left {
				break
			}
			it.Position, it.Time = m.end+int64(hi-lo), m.lastTime
			if it.Seq != nil {
				it.QueueOffset = it.Seq.next
				it.Seq.next++
			}
			record.SetPlace(b.Buf[hi:], it.QueueOffset, it.Position, it.Time)
			if len(b.Views) > 0 {
				b.placeViews(i, b.Buf[hi:hi+int(it.Size)])
			}
			hi += int(it.Size)
			left -= size
		}
		if i > from {
			l.gatherLocked(b.Buf[lo:hi])
			g := m.active
			g.syncOnly = g.syncOnly && wantSync
			g.parts = append(g.parts, Part{Batch: b, From: from, To: i, sync: wantSync, end: m.end, since: now})
			if b.pending++; b.memory {
				m.memory++
			}
			lo = hi
		}
		if i == len(b.Items) {
			return
		}
		if size := int64(b.Items[i].Size); size+record.BlankSize > l.o.SegmentBytes {
			b.Items[i].Err = fmt.Errorf("%w: %d bytes, most is %d", ErrTooLarge, size, l.o.SegmentBytes-record.BlankSize)
			lo += int(size)
			i++
			continue
		}
		if err := l.rollLocked(b.Reserved); err != nil {
			failItems(b.Items[i:], err)
			return
		}
	}
}

func failItems(items []Item, err error) {
	for i := range items {
		items[i].Err = err
	}
}

// gatherLocked takes bytes for the place m.end of the current segment. Many of them at once are not copied.
func (l *Log) gatherLocked(b []byte) {
	m := &l.mu
	g := m.active
	if len(g.chunks) == 0 {
		g.start, g.syncOnly = m.end, true
	}
	if c := (chunk{seg: m.cur, off: m.end - m.cur.base}); len(b) >= goodCopy {
		c.own = b
		g.chunks = append(g.chunks, c)
	} else {
		c.lo = len(g.buf)
		g.buf = append(g.buf, b...)
		c.hi = len(g.buf)
		if n := len(g.chunks); n > 0 && g.chunks[n-1].seg == m.cur && g.chunks[n-1].own == nil {
			g.chunks[n-1].hi = c.hi
		} else {
			g.chunks = append(g.chunks, c)
		}
	}
	m.end += int64(len(b))
	g.bytes += len(b)
	g.end = m.end
	if m.next == nil && m.end-m.cur.base > m.cur.size/2 {
		signal(l.prepare)
	}
}

// admitLocked waits until there is room for more.
func (l *Log) admitLocked(reserved bool) error {
	m := &l.mu
	for {
		switch {
		case m.closed:
			return ErrClosed
		case m.failed != nil:
			return m.failed
		case m.cur.reserved && !reserved:
			return m.nextErr
		case m.active.bytes < maxGather:
			return nil
		case !m.writing:
			l.leadLocked(nil) // what fills the buffer waits for the flush loop
		default:
			l.stats.waits.Add(1)
			l.room.Wait()
		}
	}
}

// rollLocked ends the current segment with a padding record and goes to the prepared one, waiting for it if need be.
func (l *Log) rollLocked(reserved bool) error {
	m := &l.mu
	cur := m.cur
	if reserved {
		m.urgent, m.urgentErr = true, nil
	}
	for m.next == nil || m.next.reserved && !reserved {
		switch {
		case m.closed:
			return ErrClosed
		case m.failed != nil:
			return m.failed
		case reserved && m.urgentErr != nil:
			return m.urgentErr
		case !reserved && m.nextErr != nil:
			err := m.nextErr
			signal(l.prepare) // tried again in the background; whoever comes later finds the outcome
			return err
		}
		signal(l.prepare)
		l.stats.waits.Add(1)
		l.room.Wait()
		if m.cur != cur {
			return nil // somebody else rolled
		}
	}
	if left := cur.base + cur.size - m.end; left > 0 {
		var blank [record.BlankSize]byte
		l.gatherLocked(record.AppendBlank(blank[:0], left))
		m.end = cur.base + cur.size
		m.active.end = m.end
	}
	segs := append(append([]*segment(nil), *l.segs.Load()...), m.next)
	m.cur, m.next, m.urgent = m.next, nil, false
	l.segs.Store(&segs)
	l.stats.rolls.Add(1)
	signal(l.prepare)
	return nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// leadLocked writes what has gathered, and what gathers meanwhile. own is the caller's batch, or nil for the flush loop,
// which stops after one write. It returns locked.
func (l *Log) leadLocked(own *Batch) {
	m := &l.mu
	m.writing = true
	for turn := 0; len(m.active.parts) > 0 || len(m.active.chunks) > 0; turn++ {
		if m.failed != nil {
			l.takeBackLocked(m.active)
			break
		}
		if turn > 0 && (own == nil || m.active.syncOnly) {
			// Left to the flush loop, which was rung for those that want a sync, or to the one that writes what nobody waits for.
			if signal(l.flush); !m.active.syncOnly {
				signal(l.write)
			}
			break
		}
		if turn >= leaderTurns && own.pending == 0 {
			if heir := m.active.heir(); heir != nil {
				heir.waiting = false
				heir.wake <- true
				return // the pen is handed on, not put down
			}
		}
		if own != nil && m.crowd && m.active.bytes < goodWrite {
			// Callers that the last write woke are about to come back. Letting them run first makes one write of theirs
			// and this one; with one caller at a time nobody is waited for.
			l.mu.Unlock()
			runtime.Gosched()
			l.mu.Lock()
			if m.failed != nil {
				continue
			}
		}
		g := m.active
		m.active, m.spare = m.spare, nil
		m.crowd = len(g.parts) > 1
		l.room.Broadcast()
		l.mu.Unlock()

		err := g.write()
		if err == nil {
			l.stats.writes.Add(1)
			l.stats.bytes.Add(int64(g.bytes))
			l.written.Store(g.end)
			if l.o.Written != nil {
				l.o.Written(g.parts, g.end)
			}
			l.told.Store(g.end)
		}

		l.mu.Lock()
		if err != nil {
			l.failLocked(g, err)
		} else {
			l.acknowledgeLocked(g)
		}
		if len(g.wakes) > 0 {
			// Not with the lock held: whoever wakes on another processor would run into it.
			l.mu.Unlock()
			wakeAll(g.wakes)
			l.mu.Lock()
		}
		g.reset()
		m.spare = g
	}
	m.writing = false
	l.room.Broadcast()
}

// heir is a batch that sleeps and can take the pen.
func (g *gather) heir() *Batch {
	for i := range g.parts {
		if p := &g.parts[i]; !p.sync && p.Batch.waiting && p.Batch.pending == 1 {
			return p.Batch
		}
	}
	return nil
}

func (g *gather) write() error {
	for _, c := range g.chunks {
		b := c.own
		if b == nil {
			b = g.buf[c.lo:c.hi]
		}
		if _, err := c.seg.f.WriteAt(b, c.off); err != nil {
			return fmt.Errorf("write segment %020d at %d: %w", c.seg.base, c.off, err)
		}
	}
	if n := len(g.chunks); n > 0 {
		s := g.chunks[n-1].seg
		s.prepare(g.end - s.base)
	}
	return nil
}

// acknowledgeLocked notes the batches of a gather that is written in g.wakes; those that want a sync go on to the flush
// loop.
func (l *Log) acknowledgeLocked(g *gather) {
	m := &l.mu
	n := 0
	for i := range g.parts {
		p := &g.parts[i]
		n += p.To - p.From
		if p.sync {
			m.syncing = append(m.syncing, syncPart{p.Batch, p.From, p.To, p.end, p.since})
			continue
		}
		if p.Batch.memory {
			m.memory--
			l.doneLocked(p.Batch)
			continue
		}
		g.wakes = p.Batch.partDoneLocked(g.wakes)
	}
	l.stats.records.Add(int64(n))
	if len(m.syncing) > 0 {
		signal(l.flush)
	} else if g.end-l.started.Load() >= startBytes {
		signal(l.start)
	}
}

// partDoneLocked counts a part as done, and adds the batch to wakes when that was the last one and its caller sleeps. The
// caller stays asleep until wakeAll, so the batch is nobody else's until then.
func (b *Batch) partDoneLocked(wakes []*Batch) []*Batch {
	b.pending--
	if b.pending == 0 && b.waiting {
		b.waiting = false
		wakes = append(wakes, b)
	}
	return wakes
}

func wakeAll(bs []*Batch) {
	for _, b := range bs {
		b.wake <- false
	}
}

// failLocked takes back a gather that could not be written, and the one behind it, whose places depend on it.
func (l *Log) failLocked(g *gather, err error) {
	m := &l.mu
	l.stats.failures.Add(1)
	m.failed = errors.Join(ErrFailed, err)
	l.event(levelError, "log write failed, appends are refused until it is repaired", "position", g.start, "err", err)
	l.takeBackLocked(m.active) // newest first, so that the numbers end at the oldest
	l.takeBackLocked(g)
}

// takeBackLocked fails the parts of a gather that will not be written and takes back their places and numbers.
func (l *Log) takeBackLocked(g *gather) {
	for i := len(g.parts) - 1; i >= 0; i-- {
		p := &g.parts[i]
		items := p.Items()
		for k := len(items) - 1; k >= 0; k-- {
			vs := p.Batch.ViewsOf(p.From + k)
			for j := len(vs) - 1; j >= 0; j-- {
				vs[j].Seq.next = vs[j].QueueOffset
			}
			if s := items[k].Seq; s != nil {
				s.next = items[k].QueueOffset
			}
			items[k].Err = l.mu.failed
		}
		if p.Batch.memory {
			l.mu.memory--
			l.stats.unwritten.Add(int64(len(items)))
			l.doneLocked(p.Batch)
			continue
		}
		g.wakes = p.Batch.partDoneLocked(g.wakes)
	}
	wakeAll(g.wakes)
	g.reset()
	l.mu.end = l.written.Load()
}

// NewBatch takes an empty batch from a pool; Free puts it back.
func (l *Log) NewBatch() *Batch {
	if b, ok := l.batches.Get().(*Batch); ok {
		return b
	}
	return &Batch{wake: make(chan bool, 1)}
}

// Free puts a batch back after Append returned. Nothing of it may be used afterwards.
func (l *Log) Free(b *Batch) {
	if cap(b.Buf) > keepBuffer || cap(b.Items) > 1<<16 {
		return
	}
	b.Reset()
	l.batches.Put(b)
}
