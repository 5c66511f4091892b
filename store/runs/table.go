package runs

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// Config of a table.
type Config struct {
	FS  vfs.FS
	Dir string // of the files; made when missing

	// TailRows is how many rows the tail may have before it is written. Default 32,768, which take about 2 MiB.
	TailRows int
	// Failed is told about a file that could not be read or written, from whatever goroutine noticed. Default: nobody is told.
	Failed func(error)
}

const (
	defaultTail = 32 << 10
	tailRetry   = 8 // a tail that could not be written is tried again when it has grown by this part
	maxRuns     = 40
)

// Table is the map. See the package's comment for what may overlap.
type Table struct {
	cfg   Config
	tail  tail
	flush int // rows of the tail at which it is written

	mu struct {
		sync.Mutex
		cur     *version
		next    uint64          // number of the next file
		broken  map[uint64]bool // reported
		merging bool
		failed  bool // the last merge did
		closed  bool
	}
	merged  sync.Cond  // on mu
	syncing sync.Mutex // held while files are synced
	wake    chan struct{}
	done    sync.WaitGroup
}

// version is a list of runs that belong together, oldest first. It does not change.
type version struct {
	runs []*run
	refs int // guarded by Table.mu; the table itself has one of the current
}

// Open makes an empty table. Files of before stay until Restore takes them or Clean removes them.
func Open(c Config) (*Table, error) {
	if c.TailRows == 0 {
		c.TailRows = defaultTail
	}
	if c.TailRows < 1 {
		return nil, fmt.Errorf("runs: TailRows is %d, want at least 1", c.TailRows)
	}
	if c.Failed == nil {
		c.Failed = func(error) {}
	}
	if err := c.FS.MkdirAll(c.Dir); err != nil {
		return nil, err
	}
	t := &Table{cfg: c, flush: c.TailRows, wake: make(chan struct{}, 1)}
	t.merged.L = &t.mu
	t.mu.cur = &version{refs: 1}
	t.mu.broken = map[uint64]bool{}
	ids, err := t.files()
	if err != nil {
		return nil, err
	}
	for id := range ids {
		t.mu.next = max(t.mu.next, id+1)
	}
	t.done.Add(1)
	go t.mergeLoop()
	return t, nil
}

// files lists the numbers of the files in the directory.
func (t *Table) files() (map[uint64]bool, error) {
	names, err := t.cfg.FS.List(t.cfg.Dir)
	if err != nil {
		return nil, err
	}
	ids := map[uint64]bool{}
	for _, n := range names {
		if id, ok := runID(n); ok {
			ids[id] = true
		}
	}
	return ids, nil
}

// Close ends the merging and closes the files, but for those of pins; they stay.
func (t *Table) Close() error {
	t.mu.Lock()
	if t.mu.closed {
		t.mu.Unlock()
		return nil
	}
	t.mu.closed = true
	t.mu.Unlock()
	close(t.wake)
	t.done.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.installLocked(nil)
	return nil
}

// Drop ends the table and removes its files, and all others of such names. No pin or view is in use any more.
func (t *Table) Drop() error {
	if err := t.Close(); err != nil {
		return err
	}
	ids, err := t.files()
	if err != nil {
		return err
	}
	for id := range ids {
		if err := t.cfg.FS.Remove(runName(t.cfg.Dir, id)); err != nil {
			return err
		}
	}
	return nil
}

// acquire returns the current version for a reader.
func (t *Table) acquire() *version {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.cur.refs++
	return t.mu.cur
}

func (t *Table) release(v *version) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.releaseLocked(v)
}

func (t *Table) releaseLocked(v *version) {
	if v.refs--; v.refs == 0 {
		for _, r := range v.runs {
			t.unrefLocked(r)
		}
	}
}

// unrefLocked lets go of a run; the last one to do so removes the file.
func (t *Table) unrefLocked(r *run) {
	if r.refs--; r.refs > 0 {
		return
	}
	_ = r.file.Close() // it was read only, or is not wanted any more
	if !t.mu.closed {
		_ = t.cfg.FS.Remove(r.path) // one that stays is removed by a later Clean
	}
}

// installLocked makes a list of runs the current version.
func (t *Table) installLocked(rs []*run) {
	for _, r := range rs {
		r.refs++
	}
	old := t.mu.cur
	t.mu.cur = &version{runs: rs, refs: 1}
	t.releaseLocked(old)
}

// Put adds or replaces a row. fresh is a promise that the table has no row of this key.
func (t *Table) Put(key *Key, value *Value, fresh bool) {
	t.tail.put(key, value, fresh)
	if t.tail.rows >= t.flush {
		t.writeTail()
	}
}

// Delete removes a row that is there.
func (t *Table) Delete(key *Key) {
	t.tail.delete(key)
	if t.tail.rows >= t.flush {
		t.writeTail()
	}
}

// writeTail makes a run of the tail. When that fails the tail goes on growing, and it is tried again.
func (t *Table) writeTail() {
	t.mu.Lock()
	for len(t.mu.cur.runs) >= maxRuns && t.mu.merging && !t.mu.failed {
		t.merged.Wait() // the merging is behind
	}
	id := t.mu.next
	t.mu.next++
	t.mu.Unlock()
	r, err := t.writeRun(id, func(w *writer) error {
		for _, p := range t.tail.pieces {
			for i := range p {
				if err := w.add(&p[i]); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.cfg.Failed(err)
		t.flush = t.tail.rows + max(t.tail.rows/tailRetry, 1)
		return
	}
	t.tail, t.flush = tail{}, t.cfg.TailRows
	t.mu.Lock()
	defer t.mu.Unlock()
	t.installLocked(append(slices.Clone(t.mu.cur.runs), r))
	t.wakeLocked()
}

func (t *Table) wakeLocked() {
	if t.mu.closed {
		return
	}
	t.mu.merging = true
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// writeRun writes one file; nothing is left of one that fails.
func (t *Table) writeRun(id uint64, fill func(*writer) error) (*run, error) {
	w, err := newWriter(t.cfg.FS, t.cfg.Dir, id)
	if err != nil {
		return nil, err
	}
	if err = fill(w); err == nil {
		var r *run
		if r, err = w.finish(); err == nil {
			return r, nil
		}
	}
	_ = w.r.file.Close()
	_ = t.cfg.FS.Remove(w.r.path)
	return nil, err
}

// damaged reports a run that cannot be read, once, and removes it, so that the next start makes it again from the log.
func (t *Table) damaged(r *run, err error) {
	t.mu.Lock()
	told := t.mu.broken[r.id]
	t.mu.broken[r.id] = true
	t.mu.Unlock()
	if told {
		return
	}
	var c *CorruptError
	if errors.As(err, &c) {
		if e := t.cfg.FS.Remove(r.path); e == nil {
			err = errors.Join(err, t.cfg.FS.SyncDir(t.cfg.Dir))
		}
	}
	t.cfg.Failed(err)
}

var pages = sync.Pool{New: func() any { return new([pageBytes]byte) }}

// Get finds a row.
func (t *Table) Get(key *Key, value *Value) bool {
	if r := t.tail.find(key); r != nil {
		*value = r.value
		return r.kind != rowDelete
	}
	v := t.acquire()
	defer t.release(v)
	if len(v.runs) == 0 {
		return false
	}
	buf := pages.Get().(*[pageBytes]byte)
	defer pages.Put(buf)
	for _, r := range slices.Backward(v.runs) {
		b, err := r.getPage(r.pageOf(key), buf[:])
		if err != nil {
			t.damaged(r, err)
			continue
		}
		if i := searchPage(b, key) * rowBytes; i < len(b) && bytes.Equal(b[i+1:i+1+KeyBytes], key[:]) {
			copy(value[:], b[i+1+KeyBytes:])
			return kind(b[i]) != rowDelete
		}
	}
	return false
}

// cursor is a sequence of rows in order.
type cursor interface {
	seek(*Key) error // to the first row at or above
	row() *row       // nil at the end; valid until next
	next() error
}

// Scan calls fn for the rows with from <= key < to in order until it returns false. What fn is given is valid during the call. What of a
// run cannot be read is left out.
func (t *Table) Scan(from, to *Key, fn func(*Key, *Value) bool) {
	v := t.acquire()
	defer t.release(v)
	_ = t.scan(&t.tail, v, from, to, false, fn) // it has told
}

// scan is Scan of a tail and the runs below it. With strict set it ends at the first part of a run that cannot be read.
func (t *Table) scan(top *tail, v *version, from, to *Key, strict bool, fn func(*Key, *Value) bool) error {
	cs := make([]cursor, 0, len(v.runs)+1)
	cs = append(cs, &tailCursor{t: top})
	for _, r := range slices.Backward(v.runs) { // newest first: of equal keys the first one counts
		cs = append(cs, newCursor(r))
	}
	defer freeCursors(cs)
	at := func(i int, err error) error {
		if err == nil {
			return nil
		}
		t.damaged(v.runs[len(v.runs)-i], err)
		if strict {
			return err
		}
		cs[i] = &tailCursor{t: new(tail)}
		return nil
	}
	for i, c := range cs {
		if err := at(i, c.seek(from)); err != nil {
			return err
		}
	}
	for {
		i := least(cs)
		if i < 0 {
			return nil
		}
		r := cs[i].row()
		key := r.key
		if bytes.Compare(key[:], to[:]) >= 0 {
			return nil
		}
		if r.kind != rowDelete && !fn(&r.key, &r.value) {
			return nil
		}
		for k := i; k < len(cs); k++ {
			if r := cs[k].row(); r != nil && r.key == key {
				if err := at(k, cs[k].next()); err != nil {
					return err
				}
			}
		}
	}
}

// least is the cursor with the least key, the first of those with equal ones; -1 when all are at their ends.
func least(cs []cursor) int {
	best := -1
	var key *Key
	for i, c := range cs {
		if r := c.row(); r != nil && (best < 0 || bytes.Compare(r.key[:], key[:]) < 0) {
			best, key = i, &r.key
		}
	}
	return best
}
