package log

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// startBytes is how much is written before its way to the disk begins, if no sync takes it there first. What gathers for a whole
// FlushInterval would go in one burst, in which sends wait: for the processor, for memory and for the device.
const startBytes = 4 << 20

// flushLoop syncs the log: at once when somebody waits for it, else every FlushInterval. It also writes what nobody
// else writes, and repairs the log after a failed write.
func (l *Log) flushLoop() {
	defer l.done.Done()
	tick := time.NewTicker(l.o.FlushInterval)
	defer tick.Stop()
	for {
		stopping := false
		select {
		case <-l.stop:
			stopping = true
		case <-l.start:
			l.startSync()
			continue
		case <-l.flush:
			l.retry()
		case <-tick.C:
			l.retry()
		}
		// Callers that the last round woke are runnable now and bring their next batch: let them come before the sync starts.
		// Otherwise two halves take turns, each waiting for the other's sync. This is no linger; with nobody there it costs a
		// scheduler round.
		for more := true; more; more = l.flushOnce() {
			runtime.Gosched()
		}
		if stopping {
			return
		}
	}
}

// writeLoop writes what callers leave behind who do not wait for the write.
func (l *Log) writeLoop() {
	defer l.done.Done()
	for {
		select {
		case <-l.stop:
			return // the flush loop writes the rest
		case <-l.write:
		}
		l.mu.Lock()
		if m := &l.mu; !m.writing && len(m.active.chunks) > 0 {
			l.leadLocked(nil)
		}
		l.mu.Unlock()
	}
}

// retry looks whether what made the log refuse appends is over.
func (l *Log) retry() {
	l.mu.Lock()
	repair := l.mu.failed != nil && !l.mu.broken && !l.mu.writing
	if l.mu.nextErr != nil {
		signal(l.prepare)
	}
	l.mu.Unlock()
	if repair {
		l.repair()
	}
}

// flushOnce writes what has gathered without a writer, syncs what is written and acknowledges what waited for that. It
// reports whether there is more to do at once.
func (l *Log) flushOnce() bool {
	l.mu.Lock()
	if m := &l.mu; !m.writing && len(m.active.chunks) > 0 {
		l.leadLocked(nil)
	}
	for l.mu.closed && l.mu.writing {
		l.room.Wait() // the last appends end before the last sync
	}
	broken := l.mu.broken
	// The last round may have synced what its writer had told but not yet put here.
	late := len(l.mu.syncing) > 0 && l.mu.syncing[0].end <= l.synced.Load()
	l.mu.Unlock()
	end := l.told.Load() // not written: Synced may count on Written
	if news := end != l.synced.Load(); broken || !news && !late {
		return false
	} else if news {
		if err := l.syncTo(end); err != nil {
			l.breakLog(err)
			return false
		}
		l.synced.Store(end)
		if l.o.Synced != nil {
			l.o.Synced(end)
		}
	}
	l.mu.Lock()
	m := &l.mu
	n := 0
	wakes := m.wakes[:0]
	for n < len(m.syncing) && m.syncing[n].end <= end {
		wakes = m.syncing[n].batch.partDoneLocked(wakes)
		n++
	}
	rest := copy(m.syncing, m.syncing[n:])
	clear(m.syncing[rest:])
	m.syncing = m.syncing[:rest]
	m.wakes = wakes
	if len(wakes) > 0 {
		l.mu.Unlock()
		wakeAll(wakes) // as in leadLocked
		clear(wakes)
		l.mu.Lock()
	}
	defer l.mu.Unlock()
	return rest > 0 || !m.writing && len(m.active.chunks) > 0
}

// startSync begins to bring to the disk what is written.
func (l *Log) startSync() {
	from, end := max(l.started.Load(), l.synced.Load()), l.written.Load()/pageSize*pageSize // the last page is still being filled
	for _, s := range *l.segs.Load() {
		lo, hi := max(from, s.base), min(end, s.base+s.size)
		if f, ok := s.f.(vfs.Starter); ok && lo < hi {
			f.StartSync(lo-s.base, hi-lo)
		}
	}
	l.started.Store(max(from, end))
}

// syncTo syncs the segments that have bytes in [synced, end), and lets go of the files of those that are full.
func (l *Log) syncTo(end int64) error {
	from := l.synced.Load()
	for _, s := range *l.segs.Load() {
		if s.base+s.size <= from || s.base >= end {
			continue
		}
		l.stats.syncs.Add(1)
		if err := s.f.Sync(); err != nil {
			return fmt.Errorf("sync segment %020d: %w", s.base, err)
		}
		if s.base+s.size <= end {
			_ = s.f.Close() // synced just now
			s.f = nil
		}
	}
	return nil
}

// breakLog refuses everything from now on: after a failed sync nobody knows which pages are on the disk.
func (l *Log) breakLog(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &l.mu
	l.stats.failures.Add(1)
	m.broken = true
	m.failed = errors.Join(ErrFailed, err)
	l.event(levelError, "log sync failed, appends are refused until the store is opened again", "synced", l.synced.Load(), "written", l.written.Load(), "err", err)
	for _, p := range m.syncing {
		failItems(p.batch.Items[p.from:p.to], m.failed)
		wakeAll(p.batch.partDoneLocked(nil))
	}
	clear(m.syncing)
	m.syncing = m.syncing[:0]
	if !m.writing {
		l.takeBackLocked(m.active)
	}
	l.room.Broadcast()
}

// repair cuts off what a failed write may have left and makes the log writable again.
func (l *Log) repair() {
	l.mu.Lock()
	if l.mu.writing || l.mu.failed == nil || l.mu.broken {
		l.mu.Unlock()
		return
	}
	l.mu.writing = true // nobody else touches the files
	l.mu.Unlock()

	end := l.written.Load()
	segs := *l.segs.Load()
	keep := len(segs)
	for keep > 1 && segs[keep-1].base > end {
		keep--
	}
	cur := segs[keep-1]
	err := l.cut(cur, segs[keep:], end)

	l.mu.Lock()
	defer l.mu.Unlock()
	m := &l.mu
	m.writing = false
	defer l.room.Broadcast()
	if err != nil {
		l.stats.failures.Add(1)
		return // the next tick tries again; the first failure has been told
	}
	var kept []*segment
	for _, s := range *l.segs.Load() { // DeleteBelow may have taken some away meanwhile
		if s.base <= cur.base {
			kept = append(kept, s)
		}
	}
	l.segs.Store(&kept)
	for _, s := range segs[keep:] {
		s.drop()
	}
	if m.next != nil && m.next.base != cur.base+cur.size {
		m.next.drop()
		_ = l.o.FS.Remove(segmentName(l.o.Dir, m.next.base)) // an empty segment too many is removed at the next start
		m.next = nil
	}
	m.cur, m.end = cur, end
	if !m.broken {
		m.failed = nil
		l.event(levelInfo, "log is writable again", "position", end)
	}
}

// cut durably zeroes the segment from end on and removes the segments behind it, newest first.
func (l *Log) cut(s *segment, behind []*segment, end int64) error {
	for i := len(behind) - 1; i >= 0; i-- {
		if err := l.o.FS.Remove(segmentName(l.o.Dir, behind[i].base)); err != nil {
			return err
		}
	}
	if len(behind) > 0 {
		if err := l.o.FS.SyncDir(l.o.Dir); err != nil {
			return err
		}
	}
	if end < s.base+s.size {
		return s.zeroFrom(end - s.base)
	}
	return nil
}

// timeOut lets go of batches whose sync takes too long. The flush loop may be stuck in that sync, so it is not the one to look.
func (l *Log) timeOut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &l.mu
	late := l.o.Now() - l.o.SyncTimeout.Milliseconds()
	if g := m.active; !m.writing && m.failed == nil && len(g.parts) > 0 && g.parts[0].since <= late {
		l.leadLocked(nil) // they must be written before they can be let go
	}
	n := 0
	for n < len(m.syncing) && m.syncing[n].since <= late && m.syncing[n].to > 0 { // Sync itself waits on
		p := m.syncing[n]
		for i := range p.batch.Items[p.from:p.to] {
			if it := &p.batch.Items[p.from+i]; it.Sync {
				it.Err = ErrFlushTimeout
			}
		}
		wakeAll(p.batch.partDoneLocked(nil))
		n++
	}
	if n > 0 {
		l.event(levelError, "log sync takes too long, senders are told so", "batches", n, "timeout_ms", l.o.SyncTimeout.Milliseconds())
		m.syncing = append(m.syncing[:0], m.syncing[n:]...)
	}
}

// prepareLoop makes the next segment when it is asked to, and looks after the time of syncs.
func (l *Log) prepareLoop() {
	defer l.done.Done()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
			l.views.second()
			l.timeOut()
			continue
		case <-l.prepare:
		}
		l.releaseReserve()
		l.mu.Lock()
		if l.mu.next != nil || l.mu.closed {
			l.mu.Unlock()
			continue
		}
		base, urgent := l.mu.cur.base+l.mu.cur.size, l.mu.urgent
		l.mu.Unlock()
		s, err := l.views.createSegment(base, l.o.SegmentBytes, l.o.Reserve+l.o.SegmentBytes/8)
		reserved := false
		refused := err
		if errors.Is(err, vfs.ErrNoSpace) && urgent {
			s, err = l.views.createSegment(base, l.o.SegmentBytes, 0)
			reserved = err == nil
		}
		l.mu.Lock()
		if refused != nil {
			if l.mu.nextErr == nil {
				l.event(levelError, "next log segment cannot be made, appends will be refused when the current one is full", "base", base, "err", refused)
			}
			l.mu.nextErr = l.spaceError(refused)
			l.stats.failures.Add(1)
		}
		switch {
		case err != nil:
			if urgent {
				l.mu.urgentErr = l.spaceError(err)
			}
		case base != l.mu.cur.base+l.mu.cur.size:
			// A repair has taken the log back meanwhile.
			s.drop()
			_ = l.o.FS.Remove(segmentName(l.o.Dir, base))
			signal(l.prepare)
		default:
			if s.reserved = reserved; !reserved {
				if l.mu.nextErr != nil {
					l.event(levelInfo, "next log segment could be made again", "base", base)
				}
				l.mu.nextErr = nil
			}
			l.mu.next = s
		}
		l.room.Broadcast()
		l.mu.Unlock()
	}
}

// releaseReserve opens segments that were made from the reserve to everybody when there is as much space again.
func (l *Log) releaseReserve() {
	l.mu.Lock()
	held := l.mu.cur.reserved || l.mu.next != nil && l.mu.next.reserved
	l.mu.Unlock()
	if !held {
		return
	}
	free, _, err := l.o.FS.Space(l.o.Dir)
	if err != nil || free < l.o.Reserve+l.o.SegmentBytes/8 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.cur.reserved = false
	if l.mu.next != nil {
		l.mu.next.reserved = false
	}
	l.mu.nextErr = nil
	l.event(levelInfo, "there is space again for more than what is kept back", "free_bytes", free)
	l.room.Broadcast()
}

// spaceError adds the measured state of the disk. It is called with mu held, once per failed attempt.
func (l *Log) spaceError(err error) error {
	free, total, e := l.o.FS.Space(l.o.Dir)
	if e != nil {
		free, total = -1, -1
	}
	if !errors.Is(err, vfs.ErrNoSpace) {
		return errors.Join(ErrFailed, fmt.Errorf("make the next segment: %w", err))
	}
	return &NoSpaceError{Dir: l.o.Dir, Need: l.o.SegmentBytes, Keep: l.o.Reserve + l.o.SegmentBytes/8, Free: free, Total: total, Err: err}
}
