package lookup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// Config of an index. All fields without a default must be set.
type Config struct {
	FS     vfs.FS
	Dir    string // of the files; made when missing
	LogMin int64  // first position of the log
	LogEnd int64  // first position behind its last record. Files that reach further are removed

	// Entries is how many the index keeps in memory before it writes a run, and how large the smallest runs are. Default
	// 131,072 (5 MB, twice that while a run is written), from 1 to 1<<24.
	Entries int
	// SpanBytes is the most log, in bytes, that is read again after an unclean stop, but for what was not synced. Default 256 MiB.
	SpanBytes int64
	// MaxMerged is the most entries that a run of merged ones has, unless that is less than an eighth of all. Default 1<<24.
	MaxMerged int64

	// Scan calls fn for the records in [from, end) that may have keys, in the order of their addresses, with the hashes of their
	// keys, and passes its error on. from is where a record starts or a segment ends.
	Scan func(from, end int64, fn func(address, time int64, hashes []uint64) error) error
	// Passes says of an error of Scan whether another try may succeed soon; nil: never.
	Passes func(error) bool
	// Boundary is the newest position at or below pos where a record starts for sure: the beginning of pos's segment.
	Boundary func(pos int64) int64
	// Failed is told about files that could not be read or written, by the goroutine that noticed. Writing is tried again.
	// Default: nobody is told.
	Failed func(error)
}

// Defaults of Config.
const (
	DefaultEntries   = 128 << 10
	DefaultSpanBytes = 256 << 20
	DefaultMaxMerged = 1 << 24
)

// Index is the key index of one store directory.
//
// Put and Advance are called by one goroutine, and Synced by one, as the log grows. Everything else may be called by anybody. Callbacks
// of Config run without a lock.
type Index struct {
	cfg Config

	pos      atomic.Int64 // everything below it has been looked at, but for gaps
	synced   atomic.Int64 // the log below it is on the disk
	min      atomic.Int64
	waits    atomic.Bool  // somebody wants to hear of the next Synced
	advanced atomic.Int64 // end of the last Advance

	mu struct {
		sync.RWMutex
		runs    []*run // by position, disjoint; replaced, never changed
		gaps    []part // below mem.start, by position: what no run speaks for
		frozen  *table // full, being written; nil when there is none
		mem     *table // takes the newest entries
		waiters []chan struct{}
	}
	pending struct {
		sync.Mutex
		fresh []Entry // all below parts
		spare []Entry
		from  int64  // the log is in fresh up to here
		woken bool   // for fresh
		parts []part // of the log that may have keys and have not been read, ascending
		bytes int64
	}

	naming sync.Mutex // held while a file gets its name, and while a damaged one loses it; before mu

	wake, settle, merge chan struct{} // capacity 1
	stop                chan struct{}
	done                sync.WaitGroup
	failing             atomic.Bool
	sortBuf             []Entry // of the goroutine that follows
	refill              int64   // of the goroutine that follows: gaps are read when the log has come so far
}

// part is a part of the log: [from, end).
type part struct{ from, end int64 }

const (
	closeWait = 2 * time.Second

	maxFresh  = 32 << 10  // entries that may wait in memory
	maxParts  = 256       // of pending; beyond that the last one grows over what has no keys
	wakeBytes = 512 << 10 // of log that may have keys, from which on the index is woken without a query
)

// Open opens the files that speak for parts of the log and removes the others; what is missing is read in the background.
func Open(c Config) (*Index, error) {
	if c.Entries == 0 {
		c.Entries = DefaultEntries
	}
	if c.SpanBytes == 0 {
		c.SpanBytes = DefaultSpanBytes
	}
	if c.MaxMerged == 0 {
		c.MaxMerged = DefaultMaxMerged
	}
	if c.Entries < 1 || c.Entries > 1<<24 || c.SpanBytes < 1 || c.MaxMerged < 1 || c.LogMin < 0 || c.LogEnd < c.LogMin {
		return nil, fmt.Errorf("lookup: Entries %d, SpanBytes %d, MaxMerged %d, LogMin %d, LogEnd %d: want 1 to 16777216 entries, at least 1, at least 1, 0 <= LogMin <= LogEnd",
			c.Entries, c.SpanBytes, c.MaxMerged, c.LogMin, c.LogEnd)
	}
	if c.Failed == nil {
		c.Failed = func(error) {}
	}
	x := &Index{cfg: c, wake: make(chan struct{}, 1), settle: make(chan struct{}, 1), merge: make(chan struct{}, 1), stop: make(chan struct{})}
	x.min.Store(c.LogMin)
	x.synced.Store(c.LogEnd)
	x.advanced.Store(c.LogEnd)
	if err := x.load(); err != nil {
		for _, r := range x.mu.runs {
			r.release()
		}
		return nil, err
	}
	x.done.Add(2)
	go x.run()
	go x.merges()
	signal(x.wake)
	signal(x.merge)
	return x, nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it has been told and has not looked yet
	}
}

// Entry is a key of a message: the message at an address has one with a hash.
type Entry struct {
	Hash          uint64
	Address, Time int64
}

// Put says that the log has grown to a position, and which keys the new records have, in the order of their
// addresses. When the index is too far behind it forgets them and reads the log.
func (x *Index) Put(es []Entry, to int64) {
	if len(es) == 0 {
		x.Advance(to, to, to)
		return
	}
	x.pending.Lock()
	if len(x.pending.parts) > 0 || len(x.pending.fresh)+len(es) > maxFresh {
		x.pending.Unlock()
		x.Advance(es[0].Address, to, to)
		return
	}
	x.pending.fresh = append(x.pending.fresh, es...)
	x.pending.from = to
	wake := len(x.pending.fresh) > maxFresh/4 && !x.pending.woken
	x.pending.woken = x.pending.woken || wake
	x.pending.Unlock()
	x.advanced.Store(to)
	if wake {
		signal(x.wake)
	}
}

// Advance is Put for records whose keys the caller does not know: those in [from, end); from == end: there are none. The log has
// grown to at.
func (x *Index) Advance(from, end, at int64) {
	wake := at-x.pos.Load() >= x.cfg.SpanBytes/2
	if from < end {
		x.pending.Lock()
		n := len(x.pending.parts)
		if n > 0 && (x.pending.parts[n-1].end == from || n >= maxParts) {
			x.pending.parts[n-1].end = end
		} else {
			x.pending.parts = append(x.pending.parts, part{from, end})
		}
		if x.pending.bytes += end - from; x.pending.bytes >= wakeBytes {
			wake, x.pending.bytes = true, 0
		}
		x.pending.Unlock()
	}
	x.advanced.Store(at)
	if wake {
		signal(x.wake)
	}
}

// Synced says that the log below position is on the disk.
func (x *Index) Synced(position int64) {
	x.synced.Store(position)
	if x.waits.Load() {
		signal(x.settle)
		signal(x.wake)
	}
}

// Position is how far the index is: everything in [low, position) that was in the log is in it. low is above the beginning of
// the log while the index is built again.
func (x *Index) Position() (low, position int64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	low = x.min.Load()
	if n := len(x.mu.gaps); n > 0 {
		low = max(low, x.mu.gaps[n-1].end)
	}
	return low, x.pos.Load()
}

// Wait returns when the index has everything in [from, to), which must be in the log by now, or with the error of ctx.
func (x *Index) Wait(ctx context.Context, from, to int64) error {
	for {
		x.mu.Lock()
		if x.hasLocked(from, to) {
			x.mu.Unlock()
			return nil
		}
		w := make(chan struct{})
		x.mu.waiters = append(x.mu.waiters, w)
		x.mu.Unlock()
		signal(x.wake)
		select {
		case <-w:
		case <-x.stop:
			return errStopped
		case <-ctx.Done():
			x.mu.Lock()
			if i := slices.Index(x.mu.waiters, w); i >= 0 {
				x.mu.waiters = slices.Delete(x.mu.waiters, i, i+1)
			}
			x.mu.Unlock()
			return ctx.Err()
		}
	}
}

func (x *Index) hasLocked(from, to int64) bool {
	if x.pos.Load() < to {
		return false
	}
	return !slices.ContainsFunc(x.mu.gaps, func(g part) bool { return g.from < to && max(from, x.min.Load()) < g.end })
}

var errStopped = errors.New("lookup: index is closed")

// Query calls fn with the messages whose key has the hash and whose publish time is in [begin, end], newest address first, until
// it returns false. They are candidates, see the package's comment.
func (x *Index) Query(hash uint64, begin, end int64, fn func(address int64) bool) error {
	begin, end = clampTime(begin), clampTime(end)
	low := x.min.Load()
	more := true
	each := func(address, time int64) bool {
		if address < low {
			more = false
		} else if t := clampTime(time); t >= begin && t <= end {
			more = fn(address)
		}
		return more
	}
	// Whatever leaves memory is in runs before, and whatever is in none of them is in a gap, so one look at all of them is enough.
	x.mu.RLock()
	mem, frozen := x.mu.mem, x.mu.frozen
	runs := make([]*run, 0, len(x.mu.runs))
	for _, r := range x.mu.runs {
		if r.maxTime >= begin && r.minTime <= end && r.end > low && r.acquire() {
			runs = append(runs, r)
		}
	}
	x.mu.RUnlock()
	defer func() {
		for _, r := range runs {
			r.release()
		}
	}()
	for _, t := range []*table{mem, frozen} {
		if t == nil {
			continue
		}
		var found [16]Entry
		for at := int32(-1); at != -2 && more; {
			x.mu.RLock()
			var n int
			n, at = t.find(hash, at, found[:])
			x.mu.RUnlock()
			for i := 0; i < n && more; i++ {
				each(found[i].Address, found[i].Time)
			}
		}
	}
	for _, r := range slices.Backward(runs) {
		if !more {
			return nil
		}
		if err := r.find(hash, each); err != nil {
			x.damaged(r, err)
			return err
		}
	}
	return nil
}

// damaged takes a run away that turned out not to be what was written; its part becomes a gap. Other errors may pass.
func (x *Index) damaged(r *run, err error) {
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) {
		return
	}
	x.naming.Lock() // or the file that fills the gap, which may have the same name, is what gets removed
	defer x.naming.Unlock()
	x.mu.Lock()
	i := slices.Index(x.mu.runs, r)
	if i >= 0 {
		x.mu.runs = slices.Delete(slices.Clone(x.mu.runs), i, i+1)
		x.addGapLocked(part{r.start, r.end})
	}
	x.mu.Unlock()
	if i < 0 {
		return
	}
	x.cfg.Failed(err)
	if err := x.remove(r); err != nil {
		x.cfg.Failed(err)
	}
	signal(x.wake)
}

func (x *Index) addGapLocked(g part) {
	x.mu.gaps = append(x.mu.gaps, g)
	slices.SortFunc(x.mu.gaps, func(a, b part) int { return compareInt(a.from, b.from) })
}

func (x *Index) remove(rs ...*run) error {
	var err error
	for _, r := range rs {
		err = errors.Join(err, x.cfg.FS.Remove(r.name))
		r.release()
	}
	return errors.Join(err, x.cfg.FS.SyncDir(x.cfg.Dir))
}

// DropBelow says that the log begins at position now. What is below it is found no more, and files that speak for nothing
// else are removed.
func (x *Index) DropBelow(position int64) error {
	if position <= x.min.Load() {
		return nil
	}
	x.min.Store(position)
	x.mu.Lock()
	var dropped []*run
	kept := make([]*run, 0, len(x.mu.runs))
	for _, r := range x.mu.runs {
		if r.end <= position {
			dropped = append(dropped, r)
		} else {
			kept = append(kept, r)
		}
	}
	x.mu.runs = kept
	gaps := x.mu.gaps[:0]
	for _, g := range x.mu.gaps {
		if g.end > position {
			gaps = append(gaps, part{max(g.from, position), g.end})
		}
	}
	x.mu.gaps = gaps
	x.wakeLocked()
	x.mu.Unlock()
	if len(dropped) == 0 {
		return nil
	}
	return x.remove(dropped...)
}

func (x *Index) wakeLocked() {
	for _, w := range x.mu.waiters {
		close(w)
	}
	x.mu.waiters = x.mu.waiters[:0]
}

// Stats describe the index as of now.
type Stats struct {
	Runs    int   // files
	Entries int64 // in files
	Memory  int   // entries in memory
	Bytes   int64 // of the files
	Behind  int64 // bytes of log that it has not looked at, without gaps
	Gaps    int64 // bytes of log that it has to read again
}

// Stats returns them.
func (x *Index) Stats() Stats {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s := Stats{Runs: len(x.mu.runs), Memory: len(x.mu.mem.entries), Behind: max(0, x.advanced.Load()-x.pos.Load())}
	if x.mu.frozen != nil {
		s.Memory += len(x.mu.frozen.entries)
	}
	for _, r := range x.mu.runs {
		s.Entries += r.entries
		s.Bytes += r.size()
	}
	for _, g := range x.mu.gaps {
		s.Gaps += g.end - g.from
	}
	return s
}

// Close writes what is in memory to a run and closes the files. The log must have been told durable to its end; what the
// index has not looked at by then it reads after the next Open.
func (x *Index) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	_ = x.Wait(ctx, x.advanced.Load(), x.advanced.Load()) // what is not read by then costs the next start a little
	cancel()
	close(x.stop)
	x.done.Wait()
	err := x.rest()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.wakeLocked()
	for _, r := range x.mu.runs {
		r.release()
	}
	x.mu.runs = nil
	return err
}
