package log_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const segmentBytes = 4096

// journal is what a log has told, in order.
type journal struct {
	mu      sync.Mutex
	items   []log.Item
	end     int64
	synced  int64
	unsaid  int64 // position that Synced told before Written had
	overlap bool
	busy    bool
}

func (j *journal) written(parts []log.Part, end int64) {
	j.mu.Lock()
	j.overlap = j.overlap || j.busy
	j.busy = true
	j.mu.Unlock()
	for i := range parts {
		j.mu.Lock()
		j.items = append(j.items, parts[i].Items()...)
		j.mu.Unlock()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.busy = false
	j.end = end
}

func (j *journal) syncedTo(end int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if end > j.end {
		j.unsaid = end
	}
	j.synced = end
}

func start(t *testing.T, fsys vfs.FS, j *journal) *log.Log {
	t.Helper()
	l := load(t, fsys, j)
	if _, err := l.Recover(l.Min(), false, func(record.View) error { return nil }); err != nil {
		t.Fatal(err)
	}
	l.Start()
	return l
}

func load(t *testing.T, fsys vfs.FS, j *journal) *log.Log {
	t.Helper()
	if err := fsys.MkdirAll("/log"); err != nil {
		t.Fatal(err)
	}
	o := log.Options{FS: fsys, Dir: "/log", SegmentBytes: segmentBytes, Now: func() int64 { return time.Now().UnixMilli() }}
	if j != nil {
		o.Written, o.Synced = j.written, j.syncedTo
	}
	l, err := log.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// add puts a record with a body of n bytes into the batch.
func add(b *log.Batch, seq *log.Sequence, n int, sync bool) {
	body := []byte(strings.Repeat("x", n))
	f := record.Fields{Topic: "T", Body: body, BodyCRC: record.CRC(body)}
	b.Buf = record.Append(b.Buf, &f)
	b.Items = append(b.Items, log.Item{Seq: seq, Size: int32(record.Size(&f)), Sync: sync})
}

func TestBatchOverManySegments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, j := vfs.NewMem(), new(journal)
		l := start(t, m, j)
		var seq log.Sequence
		b := l.NewBatch()
		sizes := []int{1, 1000, 1500, 1200, 3800, 5000, 3000, 10, segmentBytes - record.BlankSize - record.MinSize - 1, 7}
		for _, n := range sizes {
			add(b, &seq, n, false)
		}
		l.Append(b)
		next, offset := int64(0), int64(0)
		for i, it := range b.Items {
			if sizes[i] == 5000 {
				if !errors.Is(it.Err, log.ErrTooLarge) {
					t.Errorf("record of 5000 bytes: %v", it.Err)
				}
				continue
			}
			if it.Err != nil || it.QueueOffset != offset {
				t.Errorf("item %d: %+v, want offset %d", i, it, offset)
			}
			if left := segmentBytes - next%segmentBytes; int64(it.Size)+record.BlankSize > left {
				next += left
			}
			if it.Position != next {
				t.Errorf("item %d at %d, want %d", i, it.Position, next)
			}
			next += int64(it.Size)
			offset++
		}
		if len(j.items) != len(sizes)-1 || j.end != next {
			t.Errorf("told of %d items to %d, want %d to %d", len(j.items), j.end, len(sizes)-1, next)
		}
		var seen []int64
		if err := l.Scan(0, l.Written(), func(v record.View) error {
			seen = append(seen, v.PhysicalOffset())
			return v.CheckBody()
		}); err != nil || len(seen) != len(sizes)-1 {
			t.Errorf("scan: %v, %v", seen, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		names, err := m.List("/log")
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%020d", (next-1)/segmentBytes*segmentBytes); names[len(names)-1] != want {
			t.Errorf("after Close the last segment is %s, want %s: the prepared one is removed", names[len(names)-1], want)
		}
		l = load(t, m, nil)
		n := 0
		r, err := l.Recover(0, false, func(record.View) error { n++; return nil })
		if err != nil || r.End != next || n != len(sizes)-1 || r.Cut {
			t.Errorf("recovery: %+v, %d records, %v, want end %d", r, n, err, next)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// Whatever callers do at once, Written is told of every record once, in log order, by one goroutine at a time, before
// Synced passes it; numbers are consecutive.
func TestManyCallers(t *testing.T) {
	j := new(journal)
	l := start(t, vfs.NewMem(), j)
	const callers, each = 24, 80
	seqs := make([]log.Sequence, 3)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				b := l.NewBatch()
				for range 1 + (c+i)%3 {
					add(b, &seqs[c%3], (c*31+i*7)%900, c%4 == 0)
				}
				l.Append(b)
				end := int64(0)
				for _, it := range b.Items {
					if it.Err != nil {
						t.Errorf("append: %v", it.Err)
					}
					end = max(end, it.Position+int64(it.Size))
				}
				if l.Told() < end || c%4 == 0 && l.Synced() < end {
					t.Errorf("answered at %d, told %d, synced %d", end, l.Told(), l.Synced())
				}
				l.Free(b)
			}
		})
	}
	wg.Wait()
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	if j.overlap || j.unsaid != 0 || j.synced != j.end || j.end != l.Written() {
		t.Errorf("overlapping calls %v, synced %d before told, synced %d, told %d, written %d", j.overlap, j.unsaid, j.synced, j.end, l.Written())
	}
	next := map[*log.Sequence]int64{}
	last := int64(-1)
	for _, it := range j.items {
		if it.Position <= last || it.QueueOffset != next[it.Seq] {
			t.Fatalf("position %d after %d, number %d, want %d", it.Position, last, it.QueueOffset, next[it.Seq])
		}
		last = it.Position
		next[it.Seq]++
	}
	if st := l.Stats(); st.Records != int64(len(j.items)) || st.Writes == 0 || st.Writes > st.Records {
		t.Errorf("stats %+v, %d items", st, len(j.items))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// A caller that writes for others is let go: its append ends although others keep coming.
func TestPenIsHandedOn(t *testing.T) {
	l := start(t, vfs.NewMem(), nil)
	released := make(chan struct{})
	var wg sync.WaitGroup
	var seq log.Sequence
	for range 6 {
		wg.Go(func() {
			for {
				select {
				case <-released:
					return
				default:
				}
				b := l.NewBatch()
				add(b, &seq, 10, false)
				l.Append(b)
			}
		})
	}
	for range 300 {
		b := l.NewBatch()
		add(b, &seq, 10, false)
		l.Append(b) // would never return one day if the pen stayed
		if b.Items[0].Err != nil {
			t.Fatal(b.Items[0].Err)
		}
	}
	close(released)
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestReadRefusesWhatIsNotThere(t *testing.T) {
	l := start(t, vfs.NewMem(), nil)
	var seq log.Sequence
	b := l.NewBatch()
	for range 5 {
		add(b, &seq, 1500, false)
	}
	l.Append(b)
	for _, r := range []struct {
		pos int64
		n   int
	}{{-1, 1}, {0, -1}, {l.Written(), 1}, {l.Written() - 1, 2}, {segmentBytes - 4, 8}, {1 << 50, 1}} {
		if _, _, err := l.Read(r.pos, r.n); !errors.Is(err, log.ErrRange) {
			t.Errorf("Read(%d, %d) = %v, want %v", r.pos, r.n, err, log.ErrRange)
		}
	}
	if _, release, err := l.Read(b.Items[4].Position, int(b.Items[4].Size)); err != nil {
		t.Error(err)
	} else {
		release()
	}
	if err := l.Scan(0, l.Written()+1, nil); !errors.Is(err, log.ErrRange) {
		t.Errorf("scan over the end = %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Read(0, 1); !errors.Is(err, log.ErrClosed) {
		t.Errorf("read after Close = %v", err)
	}
	l.Append(b)
	if err := b.Items[0].Err; !errors.Is(err, log.ErrClosed) {
		t.Errorf("append after Close = %v", err)
	}
}

// Store times never go back, whatever the clock does.
func TestStoreTimesDoNotGoBack(t *testing.T) {
	m := vfs.NewMem()
	if err := m.MkdirAll("/log"); err != nil {
		t.Fatal(err)
	}
	now := int64(1000)
	l, err := log.Open(log.Options{FS: m, Dir: "/log", SegmentBytes: segmentBytes, Now: func() int64 { now -= 10; return now }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Recover(0, false, nil); err != nil {
		t.Fatal(err)
	}
	l.SetTime(995)
	l.Start()
	var seq log.Sequence
	for range 3 {
		b := l.NewBatch()
		add(b, &seq, 1, false)
		l.Append(b)
		if got := b.Items[0].Time; got != 995 {
			t.Errorf("store time %d, want 995", got)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSyncCoversWhatWrittenIsBeingToldOf: a checkpoint is made by somebody who learns of the records while Written still
// runs. The Sync before it must not return because of what was told earlier.
func TestSyncCoversWhatWrittenIsBeingToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		if err := fsys.MkdirAll("/log"); err != nil {
			t.Fatal(err)
		}
		type outcome struct {
			end, synced int64
			err         error
		}
		done := make(chan outcome, 1)
		var l *log.Log
		o := log.Options{FS: fsys, Dir: "/log", SegmentBytes: segmentBytes, FlushInterval: time.Hour, Now: func() int64 { return time.Now().UnixMilli() }}
		o.Written = func(_ []log.Part, end int64) {
			go func() {
				err := l.Sync()
				done <- outcome{end, l.Synced(), err}
			}()
			synctest.Wait() // Sync waits, or has returned too early
		}
		var err error
		if l, err = log.Open(o); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Recover(l.Min(), false, func(record.View) error { return nil }); err != nil {
			t.Fatal(err)
		}
		l.Start()
		began := time.Now()
		var seq log.Sequence
		b := l.NewBatch()
		add(b, &seq, 100, false)
		l.Append(b)
		if got := <-done; got.err != nil || got.synced < got.end {
			t.Errorf("Sync returned %v with the log synced to %d, want at least %d", got.err, got.synced, got.end)
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("waited %v for the flush interval, nobody rang the flush loop", waited)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSyncAnsweredWhoeverWrites: the record of a caller that wants a sync is written by another caller, and synced before
// that one has noted who waits for it. Nobody else comes, so an answer that is forgotten then is missed.
func TestSyncAnsweredWhoeverWrites(t *testing.T) {
	l := start(t, vfs.NewMem(), nil)
	seqs := make([]log.Sequence, 4)
	for round := range 5000 {
		var wg sync.WaitGroup
		for c := range seqs {
			wg.Go(func() {
				b := l.NewBatch()
				defer l.Free(b)
				add(b, &seqs[c], 1, c%2 == 0)
				l.Append(b)
				if err := b.Items[0].Err; err != nil {
					t.Errorf("round %d, caller %d: %v", round, c, err)
				}
			})
		}
		if wg.Wait(); t.Failed() {
			break
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
