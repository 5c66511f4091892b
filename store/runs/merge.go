package runs

import (
	"errors"
	"slices"
)

// mergeLoop merges runs until Close.
func (t *Table) mergeLoop() {
	defer t.done.Done()
	for range t.wake {
		for t.mergeSome() {
		}
		t.mu.Lock()
		t.mu.merging = len(t.wake) > 0
		t.mu.Unlock()
		t.merged.Broadcast()
	}
}

// due is where the runs begin that are to be merged into one; len(rs) when none are. A run is taken along when what is newer has as many
// rows: then a run has more rows than all newer ones together, there are about log2 of them, and each row is written about as often.
func due(rs []*run) int {
	n := len(rs)
	if n < 2 {
		return n
	}
	from, sum := n-1, rs[n-1].rows
	for i := n - 2; i >= 0; i-- {
		if rs[i].rows <= sum {
			from = i
		}
		sum += rs[i].rows
	}
	if from == n-1 {
		return n
	}
	return from
}

// mergeSome makes one run of several, and reports whether there may be more to do.
func (t *Table) mergeSome() bool {
	t.mu.Lock()
	rs := t.mu.cur.runs
	from := due(rs)
	if from == len(rs) || t.mu.closed {
		t.mu.Unlock()
		return false
	}
	v := t.mu.cur
	v.refs++
	id := t.mu.next
	t.mu.next++
	t.mu.Unlock()
	defer t.release(v)

	old := rs[from:]
	r, err := t.writeRun(id, func(w *writer) error { return t.merge(w, old, from == 0) })
	if err != nil && !errors.Is(err, errClosed) {
		t.cfg.Failed(err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.failed = err != nil; t.mu.failed {
		return false // the next tail that is written wakes us again
	}
	// Only newer ones can have come meanwhile.
	now := slices.Clone(t.mu.cur.runs[:from])
	if r.rows > 0 {
		now = append(now, r)
	}
	now = append(now, t.mu.cur.runs[from+len(old):]...)
	t.installLocked(now)
	if r.rows == 0 {
		r.refs++
		t.unrefLocked(r)
	}
	t.merged.Broadcast()
	return true
}

// merge writes the rows of old, the newest of each key; deleted ones go when nothing older can have them.
func (t *Table) merge(w *writer, old []*run, oldest bool) error {
	cs := make([]cursor, 0, len(old))
	for _, r := range slices.Backward(old) {
		cs = append(cs, newCursor(r))
	}
	defer freeCursors(cs)
	fail := func(i int, err error) error {
		t.damaged(old[len(old)-1-i], err)
		return err
	}
	for i, c := range cs {
		if err := c.seek(new(Key)); err != nil {
			return fail(i, err)
		}
	}
	for n := 0; ; n++ {
		i := least(cs)
		if i < 0 {
			return nil
		}
		r := *cs[i].row()
		if r.kind != rowDelete || !oldest {
			if err := w.add(&r); err != nil {
				return err
			}
		}
		for k := i; k < len(cs); k++ {
			if x := cs[k].row(); x != nil && x.key == r.key {
				if err := cs[k].next(); err != nil {
					return fail(k, err)
				}
			}
		}
		if n%(1<<16) == 0 && t.isClosed() {
			return errClosed
		}
	}
}

func (t *Table) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.closed
}
