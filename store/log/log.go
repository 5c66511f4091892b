package log

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// Options configure a Log. All fields without a default must be set.
type Options struct {
	FS           vfs.FS
	Dir          string // the commitlog directory; it exists
	SegmentBytes int64  // length of every segment file, in bytes
	Unclean      bool   // the last stop was not clean, or another program wrote the directory
	// Now is the store time in milliseconds since 1970. Store times never go back along the log, whatever Now does.
	Now func() int64
	// Durable is a position below which everything was synced once, as far as anybody wrote it down. A bad record below it does not end the log.
	Durable int64
	// Mapped is how many segments may be open for reading at a time, besides those whose bytes a reader holds. Default 64.
	Mapped int
	// Reserve is how many bytes of the disk stay free when a segment is made, for batches that may use them. Default 0.
	Reserve int64
	// FlushInterval is how often the log is synced when nobody waits for it. Default 500 ms.
	FlushInterval time.Duration
	// SyncTimeout is how long a batch waits for its sync before it gets ErrFlushTimeout. Default 5 s; looked at every second.
	SyncTimeout time.Duration
	// Written is told what is in the page cache now, in log order, by one goroutine at a time; the log ends at end so far.
	// A batch without Sync is acknowledged when it returns. The parts are valid during the call.
	Written func(parts []Part, end int64)
	// Synced is told that everything below end is durable, by the flush loop. A batch with Sync is acknowledged after it.
	Synced func(end int64)
	// Event reports what an operator may want to see. It must not block.
	Event func(level int, name string, attrs ...any)
}

// Levels of events, as in log/slog.
const (
	levelInfo  = 0
	levelWarn  = 4
	levelError = 8
)

const (
	maxGather   = 1 << 20  // bytes that may wait for the writer before callers have to
	goodCopy    = 16 << 10 // bytes of one batch from which a write of its own is cheaper than a copy
	goodWrite   = 64 << 10 // bytes from which a larger write is not cheaper a byte
	keepBuffer  = 2 << 20  // a gather buffer that grew beyond this is not kept
	leaderTurns = 8        // writes that one caller makes for others before it hands the pen to one of them
)

// Log is one commitlog directory. A position is a byte offset from the log's beginning and is never reused for another
// record that anybody was told of.
type Log struct {
	o Options

	written atomic.Int64 // first position that is not yet in the page cache; stored only by the writer. Readers stay below it
	told    atomic.Int64 // first position that Options.Written has not been told of; stored only by the writer. told <= written
	synced  atomic.Int64 // first position that is not yet durable; stored only by the flush loop. synced <= told
	started atomic.Int64 // what is below is at least on its way to the disk; stored only by the flush loop
	min     atomic.Int64
	segs    atomic.Pointer[[]*segment] // ascending without gaps; replaced, never changed. The last one takes the appends

	stats struct{ records, bytes, writes, syncs, failures, rolls, waits, unwritten atomic.Int64 }

	mu struct {
		sync.Mutex
		crowd     bool     // the last write carried more than one batch
		writing   bool     // somebody has the pen: writes, or is about to
		active    *gather  // what the next write takes
		spare     *gather  // nil while the writer has it
		cur       *segment // the segment that places are given in; last of segs, or ahead of it by what is not written yet
		end       int64    // next position to give; written <= end
		lastTime  int64    // newest store time given
		next      *segment // prepared, or nil
		nextErr   error    // why there is none; cleared by the next attempt
		urgent    bool     // a batch that may use the reserve waits for the next segment
		urgentErr error    // why there is none for it either
		failed    error    // wraps ErrFailed; nil: writable
		broken    bool     // failed for good: a sync failed
		closed    bool
		wakes     []*Batch   // scratch of the flush loop, which alone uses it
		syncing   []syncPart // written, waiting for the flush loop, in log order
		memory    int        // parts in the gathers whose callers have been answered
	}
	room sync.Cond // on mu: the writer took a gather, a segment was prepared (or not), the log failed or closed

	views   views
	damaged atomic.Pointer[[]Range] // ascending, apart; nil: none

	doomed []int64 // bases of files that DeleteBelow has still to remove, oldest first; of its caller alone

	batches sync.Pool     // of *Batch
	prepare chan struct{} // cap 1: make the next segment
	flush   chan struct{} // cap 1: somebody waits for a sync
	start   chan struct{} // cap 1: startBytes were written since started
	write   chan struct{} // cap 1: there is something to write that nobody waits for
	stop    chan struct{}
	done    sync.WaitGroup
}

// Stats count since Open.
type Stats struct {
	Records  int64 // records written
	Bytes    int64 // bytes of them
	Writes   int64 // writes to the log
	Syncs    int64
	Failures int64 // writes and syncs that failed
	Rolls    int64 // segments begun
	Waits    int64 // appends that had to wait for the next segment or for room in the buffer

	// Unwritten counts records that were acknowledged in memory and could not be written.
	Unwritten int64
}

// Stats returns the counters.
func (l *Log) Stats() Stats {
	s := &l.stats
	return Stats{s.records.Load(), s.bytes.Load(), s.writes.Load(), s.syncs.Load(), s.failures.Load(), s.rolls.Load(), s.waits.Load(), s.unwritten.Load()}
}

// Min is the first position of the log, Written the first one not in the page cache, Told the first one that
// Options.Written has not returned for, Synced the first one not durable.
func (l *Log) Min() int64     { return l.min.Load() }
func (l *Log) Told() int64    { return l.told.Load() }
func (l *Log) Written() int64 { return l.written.Load() }
func (l *Log) Synced() int64  { return l.synced.Load() }

// SegmentBytes is the length of a segment.
func (l *Log) SegmentBytes() int64 { return l.o.SegmentBytes }

// Failed returns why the log takes no appends at the moment, or nil.
func (l *Log) Failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := &l.mu; m.failed == nil && m.nextErr != nil && (m.next == nil || m.next.reserved || m.cur.reserved) {
		return m.nextErr
	}
	return l.mu.failed
}

// Read returns n bytes from pos on, which must lie in one segment and below Written. They are valid until release is
// called and must not be written to.
func (l *Log) Read(pos int64, n int) (b []byte, release func(), err error) {
	if n < 0 || pos < l.min.Load() || pos+int64(n) > l.written.Load() {
		return nil, nil, fmt.Errorf("%w: %d bytes at %d, the log is [%d, %d)", ErrRange, n, pos, l.min.Load(), l.written.Load())
	}
	if l.damaged.Load() != nil {
		if r, bad := l.DamageIn(pos, pos+int64(n)); bad {
			return nil, nil, &DamageError{r}
		}
	}
	segs := *l.segs.Load()
	if len(segs) == 0 {
		return nil, nil, ErrClosed
	}
	i := (pos - segs[0].base) / l.o.SegmentBytes
	if pos < segs[0].base || i >= int64(len(segs)) {
		return nil, nil, fmt.Errorf("%w: %d", ErrRange, pos)
	}
	s := segs[i]
	off := pos - s.base
	if off+int64(n) > s.size {
		return nil, nil, fmt.Errorf("%w: %d bytes at %d cross the end of a segment", ErrRange, n, pos)
	}
	v, err := s.acquire()
	if err != nil {
		if pos < l.min.Load() { // deleted meanwhile
			err = fmt.Errorf("%w: %d", ErrRange, pos)
		}
		return nil, nil, err
	}
	if b, err = v.read(off, n); err != nil {
		v.unref()
		return nil, nil, err
	}
	return b, v.release, nil
}

func (l *Log) event(level int, name string, attrs ...any) {
	if l.o.Event != nil {
		l.o.Event(level, name, attrs...)
	}
}

// Sync returns when everything that Written was told of before the call, or that was acknowledged in memory, is durable.
func (l *Log) Sync() error {
	l.mu.Lock()
	for l.mu.memory > 0 && l.mu.failed == nil && !l.mu.closed {
		if l.mu.writing {
			l.room.Wait()
		} else {
			l.leadLocked(nil)
		}
	}
	end := l.written.Load() // not told: who has heard of a record while Written still runs counts on it
	if l.mu.broken || l.mu.closed || l.synced.Load() >= end {
		defer l.mu.Unlock()
		if l.synced.Load() >= end {
			return nil
		}
		if l.mu.failed != nil {
			return l.mu.failed
		}
		return ErrClosed
	}
	b := &Batch{pending: 1, waiting: true, wake: make(chan bool, 1)}
	l.mu.syncing = append(l.mu.syncing, syncPart{batch: b, end: end})
	if l.told.Load() >= end { // else whoever has the pen rings when Written returns
		signal(l.flush)
	}
	l.mu.Unlock()
	<-b.wake
	if l.synced.Load() >= end {
		return nil
	}
	return l.Failed()
}

// Stop refuses appends from now on, writes and syncs what is pending and ends the goroutines. Reads go on. It returns why
// the log is not durable to its end, if it is not.
func (l *Log) Stop() error {
	l.mu.Lock()
	stopped := l.mu.closed
	l.mu.closed = true
	l.room.Broadcast()
	l.mu.Unlock()
	if !stopped {
		close(l.stop)
	}
	l.done.Wait() // the flush loop writes and syncs the rest before it ends
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.failed
}

// Close stops the log, removes a prepared segment that nothing is in, and closes the files. Readers that still hold bytes
// keep them until they release them.
func (l *Log) Close() error {
	err := l.Stop()
	l.mu.Lock()
	next := l.mu.next
	l.mu.next = nil
	l.mu.Unlock()
	if next != nil {
		next.drop()
		e := l.o.FS.Remove(segmentName(l.o.Dir, next.base))
		if e == nil {
			e = l.o.FS.SyncDir(l.o.Dir)
		}
		err = errors.Join(err, e)
	}
	for _, s := range *l.segs.Swap(new([]*segment)) {
		s.drop()
	}
	return err
}
