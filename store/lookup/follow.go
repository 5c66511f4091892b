package lookup

import (
	"errors"
	"slices"
	"time"
)

// The goroutine that follows the log.

func (x *Index) run() {
	defer x.done.Done()
	var again <-chan time.Time
	for {
		select {
		case <-x.stop:
			return
		case <-x.wake:
		case <-again:
		}
		again = nil
		if err := x.catchUp(); err != nil && !errors.Is(err, errStopped) {
			x.failed(err)
			if x.passes(err) {
				again = time.After(scanAgain)
			}
		}
	}
}

// scanAgain is how long it takes until a part of the log that could not be read is tried again when nothing is appended.
const scanAgain = time.Second

// passes says whether another try may succeed where a scan has failed.
func (x *Index) passes(err error) bool { return x.cfg.Passes != nil && x.cfg.Passes(err) }

// failed reports the first of several failures in a row.
func (x *Index) failed(err error) {
	if !x.failing.Swap(true) {
		x.cfg.Failed(err)
	}
}

func (x *Index) stopped() bool {
	select {
	case <-x.stop:
		return true
	default:
		return false
	}
}

// catchUp reads everything that Advance has told of, then what is missing.
func (x *Index) catchUp() error {
	for {
		if err := x.followAll(); err != nil {
			return err
		}
		x.mu.RLock()
		n := len(x.mu.gaps)
		x.mu.RUnlock()
		if n == 0 || x.stopped() || x.advanced.Load() < x.refill {
			return nil
		}
		if err := x.fillNewest(); err != nil {
			if !x.passes(err) {
				x.refill = x.advanced.Load() + x.cfg.SpanBytes // a part that cannot be read is not tried all the time
			}
			return err
		}
	}
}

// followAll brings the newest table up to what has been told.
func (x *Index) followAll() error {
	for {
		if err := x.writeFrozen(false); err != nil {
			return err
		}
		end := x.advanced.Load() // before the rest: what is below it is there
		p := &x.pending
		p.Lock()
		fresh, from, parts := p.fresh, p.from, slices.Clone(p.parts)
		p.fresh, p.spare, p.woken, p.parts, p.bytes = p.spare[:0], nil, false, p.parts[:0], 0
		p.Unlock()
		if len(fresh) > 0 {
			end = max(end, from)
		}
		err := x.take(fresh)
		if err != nil { // what is left of them is in the log
			parts = slices.Insert(parts, 0, part{x.pos.Load(), from})
		}
		for err == nil && len(parts) > 0 {
			if err = x.follow(parts[0]); err != nil {
				parts[0].from = max(parts[0].from, x.pos.Load())
				break
			}
			end = max(end, parts[0].end)
			parts = parts[1:]
		}
		p.Lock()
		p.spare = fresh[:0]
		if err != nil {
			// What has come meanwhile is behind it, and has to wait behind it.
			if len(p.fresh) > 0 {
				parts = append(parts, part{p.fresh[0].Address, p.from})
				p.fresh, p.woken = p.fresh[:0], false
			}
			p.parts = slices.Concat(parts, p.parts)
		}
		p.Unlock()
		if err != nil {
			return err
		}
		x.mu.Lock()
		x.pos.Store(end)
		x.wakeLocked()
		long := end-x.mu.mem.start >= x.spanLocked()
		x.mu.Unlock()
		if long {
			if err := x.freeze(end); err != nil {
				return err
			}
		}
		if x.advanced.Load() <= end {
			return nil
		}
		if x.stopped() {
			return errStopped
		}
	}
}

// spanLocked is how much log the newest table may speak for. One without entries costs nothing to make again but the reading.
func (x *Index) spanLocked() int64 {
	if len(x.mu.mem.entries) == 0 {
		return x.cfg.SpanBytes * 16
	}
	return x.cfg.SpanBytes
}

// follow reads a part behind everything that was read.
func (x *Index) follow(p part) error {
	from := max(p.from, x.pos.Load(), x.min.Load())
	if from >= p.end {
		return nil
	}
	err := x.cfg.Scan(from, p.end, func(address, time int64, hashes []uint64) error {
		if err := x.room(address, len(hashes)); err != nil {
			return err
		}
		for _, h := range hashes {
			x.mu.mem.add(Entry{h, address, time})
		}
		x.mu.Unlock()
		if x.stopped() {
			return errStopped
		}
		return nil
	})
	if err != nil {
		// Going on means reading the last record again.
		x.mu.Lock()
		x.mu.mem.cut(x.pos.Load())
		x.mu.Unlock()
	}
	return err
}

// room makes room for n entries of the record at an address in the newest table and, without an error, leaves mu locked.
func (x *Index) room(address int64, n int) error {
	x.mu.Lock()
	x.pos.Store(address)
	for len(x.mu.mem.entries) > 0 && len(x.mu.mem.entries)+n > x.cfg.Entries {
		x.mu.Unlock()
		if err := x.freeze(address); err != nil {
			return err
		}
		x.mu.Lock()
	}
	return nil
}

// takeAtOnce is how many entries are taken with the lock held.
const takeAtOnce = 256

// take adds entries. After an error those of records at or above pos are not in.
func (x *Index) take(es []Entry) error {
	for len(es) > 0 {
		n := min(len(es), takeAtOnce, max(1, x.cfg.Entries/8))
		for n < len(es) && es[n].Address == es[n-1].Address { // all of a record in one table
			n++
		}
		if err := x.room(es[0].Address, n); err != nil {
			return err
		}
		for _, e := range es[:n] {
			x.mu.mem.add(e)
		}
		x.mu.Unlock()
		es = es[n:]
	}
	return nil
}

// freeze ends the newest table at a position. It is written when the log below it is on the disk; meanwhile the next one takes
// entries. With both full nothing goes on: the log is where entries wait.
func (x *Index) freeze(at int64) error {
	if err := x.writeFrozen(true); err != nil {
		return err
	}
	x.mu.Lock()
	if x.mu.mem.start >= at {
		x.mu.Unlock()
		return nil
	}
	x.mu.frozen, x.mu.mem = x.mu.mem, newTable(at, len(x.mu.mem.entries))
	x.mu.Unlock()
	return x.writeFrozen(false)
}

// writeFrozen writes the frozen table, if there is one and, unless wait is set, if that can be done now.
func (x *Index) writeFrozen(wait bool) error {
	x.mu.RLock()
	t, end := x.mu.frozen, x.mu.mem.start
	x.mu.RUnlock()
	if t == nil {
		return nil
	}
	x.waits.Store(true) // Synced wakes this goroutine
	if x.synced.Load() < end && !wait {
		return nil
	}
	if err := x.awaitSync(end); err != nil {
		return err
	}
	r, err := x.writeTable(t, end)
	if err != nil {
		return err
	}
	x.waits.Store(false)
	x.mu.Lock()
	x.insertLocked(r)
	x.mu.frozen = nil
	x.mu.Unlock()
	signal(x.merge)
	return nil
}

func (x *Index) awaitSync(end int64) error {
	for x.synced.Load() < end {
		x.waits.Store(true)
		if x.synced.Load() >= end {
			break
		}
		select {
		case <-x.settle:
		case <-x.stop:
			return errStopped
		}
	}
	return nil
}

func (x *Index) writeTable(t *table, end int64) (*run, error) {
	x.sortBuf = t.sorted(x.sortBuf)
	es := x.sortBuf
	r, err := x.writeRun(t.start, end, int64(len(es)), func(w *writer) error {
		for _, e := range es {
			if err := w.add(e); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		x.failing.Store(false)
	}
	return r, err
}

func (x *Index) insertLocked(r *run) {
	i, _ := slices.BinarySearchFunc(x.mu.runs, r.start, func(have *run, start int64) int { return compareInt(have.start, start) })
	x.mu.runs = slices.Insert(slices.Clone(x.mu.runs), i, r)
}

// fillNewest reads the last segment of the newest gap, and writes its runs.
func (x *Index) fillNewest() error {
	x.mu.RLock()
	if len(x.mu.gaps) == 0 {
		x.mu.RUnlock()
		return nil
	}
	g := x.mu.gaps[len(x.mu.gaps)-1]
	x.mu.RUnlock()
	whole := part{max(g.from, x.cfg.Boundary(g.end-1)), g.end}
	t := newTable(whole.from, 0)
	var rs []*run
	piece := func(at int64) error {
		if t.start >= at {
			return nil
		}
		if err := x.awaitSync(at); err != nil {
			return err
		}
		r, err := x.writeTable(t, at)
		if err == nil {
			rs = append(rs, r)
			t = newTable(at, len(t.entries))
		}
		return err
	}
	err := x.cfg.Scan(max(whole.from, x.min.Load()), whole.end, func(address, time int64, hashes []uint64) error {
		if x.stopped() {
			return errStopped
		}
		if len(t.entries) > 0 && len(t.entries)+len(hashes) > x.cfg.Entries {
			if err := piece(address); err != nil {
				return err
			}
		}
		for _, h := range hashes {
			t.add(Entry{h, address, time})
		}
		return nil
	})
	if err == nil {
		err = piece(whole.end)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	// What was written stays in any case. The gap may have been cut from below meanwhile, and got a neighbour, but its end is
	// where it was: only this goroutine fills.
	done := whole.from
	for _, r := range rs {
		x.insertLocked(r)
		done = r.end
	}
	var gaps []part
	for _, have := range x.mu.gaps {
		if have.end != g.end {
			gaps = append(gaps, have)
			continue
		}
		if have.from < whole.from {
			gaps = append(gaps, part{have.from, whole.from})
		}
		if from := max(done, have.from); from < have.end {
			gaps = append(gaps, part{from, have.end})
		}
	}
	x.mu.gaps = gaps
	x.wakeLocked()
	signal(x.merge)
	return err
}

// rest writes what is in memory when the index is closed and its goroutines have ended.
func (x *Index) rest() error {
	at := x.pos.Load()
	if x.mu.frozen != nil {
		if x.synced.Load() < x.mu.mem.start {
			return nil // read again after the next Open, as after a crash
		}
		if err := x.writeFrozen(true); err != nil {
			return err
		}
	}
	if long := at-x.mu.mem.start > x.cfg.SpanBytes/16; len(x.mu.mem.entries) == 0 && !long || x.synced.Load() < at {
		return nil
	}
	return x.freeze(at)
}
