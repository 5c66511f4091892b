package lookup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// fakeLog is what the index reads: records of 100 bytes.
type fakeLog struct {
	mu      sync.Mutex
	records []fakeRecord
	min     int64
	synced  int64
	failAt  int64 // reading this address fails; 0: none
}

type fakeRecord struct {
	address, time int64
	hashes        []uint64
}

const (
	recordBytes  = 100
	segmentBytes = 1600
)

func (l *fakeLog) end() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.records)) * recordBytes
}

func (l *fakeLog) add(time int64, hashes ...uint64) (from, end, at int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from = int64(len(l.records)) * recordBytes
	l.records = append(l.records, fakeRecord{from, time, hashes})
	return from, from + recordBytes, from + recordBytes
}

func (l *fakeLog) scan(from, end int64, fn func(address, time int64, hashes []uint64) error) error {
	if from%recordBytes != 0 {
		return fmt.Errorf("scan from %d, where no record starts", from)
	}
	l.mu.Lock()
	rs := l.records[from/recordBytes:]
	failAt := l.failAt
	l.mu.Unlock()
	for _, r := range rs {
		if r.address >= end {
			break
		}
		if failAt > 0 && r.address == failAt {
			return errors.New("bad sector")
		}
		if len(r.hashes) > 0 {
			if err := fn(r.address, r.time, r.hashes); err != nil {
				return err
			}
		}
	}
	return nil
}

// find is the answer by looking at every record.
func (l *fakeLog) find(hash uint64, begin, end int64, most int) []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var got []int64
	for _, r := range slices.Backward(l.records) {
		if r.address >= l.min && r.time >= begin && r.time <= end && slices.Contains(r.hashes, hash) && len(got) < most {
			got = append(got, r.address)
		}
	}
	return got
}

func openIndex(t testing.TB, l *fakeLog, fsys vfs.FS, change func(*Config)) *Index {
	t.Helper()
	c := Config{
		FS: fsys, Dir: "/keys", LogMin: l.min, LogEnd: l.end(), Entries: 20, SpanBytes: 2000, MaxMerged: 1 << 20,
		Scan: l.scan, Boundary: func(pos int64) int64 { return pos / segmentBytes * segmentBytes },
	}
	if change != nil {
		change(&c)
	}
	x, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func query(t testing.TB, x *Index, hash uint64, begin, end int64, most int) []int64 {
	t.Helper()
	var got []int64
	err := x.Query(hash, begin, end, func(address int64) bool {
		if len(got) < most {
			got = append(got, address)
		}
		return len(got) < most
	})
	if err != nil {
		t.Fatalf("query of %x: %v", hash, err)
	}
	return got
}

func await(t testing.TB, x *Index, l *fakeLog) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := x.Wait(ctx, l.min, l.end()); err != nil {
		t.Fatalf("wait: %v, %+v", err, x.Stats())
	}
}

func verifyAll(t testing.TB, fsys vfs.FS) {
	t.Helper()
	names, err := fsys.List("/keys")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if _, err := Verify(fsys, filepath.Join("/keys", name)); err != nil {
			t.Error(err)
		}
	}
}

// spread makes small numbers hashes that lie anywhere.
func spread(n uint64) uint64 { return mix(n+1, hashC) }

// TestLaw1KeyIndexIsAFunctionOfTheLog: whatever becomes of the files, of the process and of the beginning of the log, the index
// answers what looking at every record does.
func TestLaw1KeyIndexIsAFunctionOfTheLog(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l, mem := &fakeLog{}, vfs.NewMem()
		x := openIndex(t, l, mem, nil)
		defer func() { _ = x.Close() }()
		clock := int64(1000)
		sync := func() {
			l.synced = l.end()
			x.Synced(l.synced)
		}
		ask := func() {
			await(t, x, l)
			for range 4 {
				h := spread(rapid.Uint64Range(0, 12).Draw(rt, "key"))
				begin := rapid.Int64Range(900, clock+10).Draw(rt, "begin")
				end := rapid.Int64Range(begin, clock+20).Draw(rt, "end")
				most := rapid.IntRange(1, 40).Draw(rt, "most")
				if diff := cmp.Diff(l.find(h, begin, end, most), query(t, x, h, begin, end, most)); diff != "" {
					rt.Fatalf("key %x in [%d, %d], at most %d (-want +got):\n%s\n%+v", h, begin, end, most, diff, x.Stats())
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				for range rapid.IntRange(1, 60).Draw(rt, "records") {
					clock += rapid.Int64Range(-1, 3).Draw(rt, "time")
					var hashes []uint64
					for range rapid.IntRange(0, 3).Draw(rt, "keys") {
						if h := spread(rapid.Uint64Range(0, 12).Draw(rt, "key")); !slices.Contains(hashes, h) {
							hashes = append(hashes, h)
						}
					}
					from, end, at := l.add(clock, hashes...)
					if rapid.Bool().Draw(rt, "keys are known") {
						es := make([]Entry, len(hashes))
						for i, h := range hashes {
							es[i] = Entry{h, from, clock}
						}
						x.Put(es, at)
						continue
					}
					if len(hashes) == 0 {
						from = end
					}
					x.Advance(from, end, at)
				}
				if rapid.Bool().Draw(rt, "sync") {
					sync()
				}
			},
			"query": func(*rapid.T) { sync(); ask() },
			"reopen": func(*rapid.T) {
				sync()
				if err := x.Close(); err != nil {
					rt.Fatal(err)
				}
				x = openIndex(t, l, mem, nil)
				ask()
			},
			"crash": func(rt *rapid.T) {
				mem = mem.CrashClone(rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0)), rapid.Float64Range(0, 1).Draw(rt, "keep"))
				kept := rapid.Int64Range(l.synced/recordBytes, l.end()/recordBytes).Draw(rt, "records kept")
				x.Synced(l.end()) // of the process that is no more
				_ = x.Close()
				l.records = l.records[:kept]
				l.synced = l.end()
				x = openIndex(t, l, mem, nil)
				ask()
			},
			"lose files": func(rt *rapid.T) {
				sync()
				_ = x.Close()
				names, _ := mem.List("/keys")
				for _, name := range names {
					if rapid.Bool().Draw(rt, "lose "+name) {
						if err := mem.Remove(filepath.Join("/keys", name)); err != nil {
							rt.Fatal(err)
						}
					}
				}
				x = openIndex(t, l, mem, nil)
				ask()
			},
			"retention": func(rt *rapid.T) {
				if end := l.synced / segmentBytes * segmentBytes; end > l.min {
					l.mu.Lock()
					l.min = rapid.Int64Range(l.min/segmentBytes, end/segmentBytes).Draw(rt, "segments") * segmentBytes
					l.mu.Unlock()
					if err := x.DropBelow(l.min); err != nil {
						rt.Fatal(err)
					}
				}
			},
		})
		sync()
		ask()
		if err := x.Close(); err != nil {
			rt.Fatal(err)
		}
		verifyAll(t, mem)
		x = openIndex(t, l, mem, nil)
	})
}

func TestDamagedRunIsReadAgainWhileTheIndexIsOpen(t *testing.T) {
	l, mem := &fakeLog{}, vfs.NewMem()
	x := openIndex(t, l, mem, nil)
	for i := range 500 {
		x.Advance(l.add(int64(i), spread(uint64(i%50)), spread(uint64(1000+i))))
	}
	x.Synced(l.end())
	await(t, x, l)
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	verifyAll(t, mem)
	var failures []error
	var mu sync.Mutex
	names, _ := mem.List("/keys")
	if len(names) < 2 {
		t.Fatalf("files %v, want several", names)
	}
	for _, name := range names { // a byte of every page but the first
		f, err := mem.Open(filepath.Join("/keys", name))
		if err != nil {
			t.Fatal(err)
		}
		size, _ := f.Size()
		for at := int64(pageBytes); at < size; at += pageBytes {
			var b [1]byte
			if _, err := f.ReadAt(b[:], at+7); err != nil {
				t.Fatal(err)
			}
			b[0] ^= 4
			if _, err := f.WriteAt(b[:], at+7); err != nil {
				t.Fatal(err)
			}
		}
		f.Close()
	}
	x = openIndex(t, l, mem, func(c *Config) {
		c.Failed = func(err error) { mu.Lock(); failures = append(failures, err); mu.Unlock() }
	})
	defer x.Close()
	for i := range uint64(500) {
		want := l.find(spread(1000+i), 0, 1000, 10)
		for try := 0; ; try++ {
			var got []int64
			err := x.Query(spread(1000+i), 0, 1000, func(a int64) bool { got = append(got, a); return true })
			if err == nil {
				await(t, x, l)
				if got = query(t, x, spread(1000+i), 0, 1000, 10); !slices.Equal(got, want) {
					t.Fatalf("key %d: %v, want %v", i, got, want)
				}
				break
			}
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) || try > len(names) {
				t.Fatalf("key %d, try %d: %v", i, try, err)
			}
			await(t, x, l)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(failures) == 0 {
		t.Error("nobody was told of the damage")
	}
}

// What does not fit into memory while the index waits is read from the log.
func TestKeysThatDoNotFitAreReadFromTheLog(t *testing.T) {
	const many = 3 * maxFresh // more than what waits and what has been taken from there
	l, mem := &fakeLog{}, vfs.NewMem()
	x := openIndex(t, l, mem, func(c *Config) { c.SpanBytes, c.Entries = 1<<40, 1000 })
	defer x.Close()
	for i := range many { // nothing is synced, so two tables are full and the rest waits
		from, end, _ := l.add(int64(i), spread(uint64(i)))
		x.Put([]Entry{{spread(uint64(i)), from, int64(i)}}, end)
	}
	if x.pending.Lock(); len(x.pending.parts) == 0 {
		t.Error("nothing is left to the log")
	}
	x.pending.Unlock()
	if s := x.Stats(); s.Memory > 2000 {
		t.Errorf("%d entries in tables", s.Memory)
	}
	x.Synced(l.end())
	await(t, x, l)
	for i := 0; i < many; i += 97 {
		if got := query(t, x, spread(uint64(i)), 0, 1<<40, 3); len(got) != 1 || got[0] != int64(i)*recordBytes {
			t.Fatalf("key %d: %v", i, got)
		}
	}
}

// TestRunsAreMergedToAFew and memory does not grow with what is in them (law 7).
func TestLaw7RunsAreMergedToAFewAndMemoryIsBounded(t *testing.T) {
	l, mem := &fakeLog{}, vfs.NewMem()
	x := openIndex(t, l, mem, nil)
	most := 0
	for i := range 20000 {
		x.Advance(l.add(int64(i), spread(uint64(i))))
		x.Synced(l.end())
		if i%500 == 499 {
			await(t, x, l)
			most = max(most, x.Stats().Memory)
		}
	}
	await(t, x, l)
	for range 1000 { // merges that are under way
		if s := x.Stats(); s.Runs <= 4*fan {
			break
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		<-ctx.Done()
		cancel()
	}
	s := x.Stats()
	if s.Runs > 4*fan || most > 2*20 {
		t.Errorf("%d runs of 20000 entries, at most %d in memory; want at most %d and %d", s.Runs, most, 4*fan, 2*20)
	}
	for i := range 20000 {
		if got := query(t, x, spread(uint64(i)), 0, 1<<40, 2); len(got) != 1 || got[0] != int64(i)*recordBytes {
			t.Fatalf("key %d: %v", i, got)
		}
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	names, _ := mem.List("/keys")
	for _, n := range names {
		if strings.HasSuffix(n, tempSuffix) {
			t.Errorf("%s is left", n)
		}
	}
}

func TestWriteFailuresAreToldOnceAndTriedAgain(t *testing.T) {
	l, mem := &fakeLog{}, vfs.NewMem()
	var mu sync.Mutex
	full, told := true, 0
	fsys := vfs.Intercept(mem, func(o vfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if full && o.Kind == "write" {
			return vfs.ErrNoSpace
		}
		return nil
	})
	x := openIndex(t, l, fsys, func(c *Config) { c.Failed = func(error) { mu.Lock(); told++; mu.Unlock() } })
	defer x.Close()
	for i := range 100 {
		x.Advance(l.add(int64(i), spread(uint64(i))))
		x.Synced(l.end())
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		_ = x.Wait(ctx, 0, l.end())
		cancel()
	}
	mu.Lock()
	n := told
	full = false
	mu.Unlock()
	if n != 1 {
		t.Errorf("told %d times of a disk that stays full, want once", n)
	}
	if m := x.Stats().Memory; m > 40 {
		t.Errorf("%d entries in memory while nothing can be written, want at most 40", m)
	}
	await(t, x, l)
	for i := range uint64(100) {
		if got := query(t, x, spread(i), 0, 1000, 5); len(got) != 1 {
			t.Fatalf("key %d: %v", i, got)
		}
	}
}

func TestPartThatCannotBeReadIsNotTriedAllTheTime(t *testing.T) {
	l, mem := &fakeLog{}, vfs.NewMem()
	for i := range 400 {
		l.add(int64(i), spread(uint64(i)))
	}
	l.failAt = 100 * recordBytes
	x := openIndex(t, l, mem, nil)
	defer x.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := x.Wait(ctx, 200*recordBytes, l.end()); err != nil { // what is newer is there
		t.Fatal(err)
	}
	if got := query(t, x, spread(399), 0, 1000, 5); len(got) != 1 {
		t.Errorf("newest key: %v", got)
	}
	if low, _ := x.Position(); low <= l.failAt {
		t.Errorf("index says that it has everything from %d on, %d cannot be read", low, l.failAt)
	}
}

// A log that ends before what its files speak for was damaged and cut: what is written there now is what counts.
func TestFilesBeyondTheEndOfTheLogAreNotBelieved(t *testing.T) {
	l, mem := &fakeLog{}, vfs.NewMem()
	x := openIndex(t, l, mem, nil)
	for i := range 100 {
		x.Advance(l.add(int64(i), spread(uint64(i))))
	}
	x.Synced(l.end())
	await(t, x, l)
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	l.records = l.records[:50]
	x = openIndex(t, l, mem, nil)
	defer x.Close()
	for i := range 50 {
		x.Advance(l.add(int64(i), spread(uint64(1000+i))))
	}
	x.Synced(l.end())
	await(t, x, l)
	for i := range 50 {
		if got := query(t, x, spread(uint64(50+i)), 0, 1000, 5); len(got) != 0 {
			t.Errorf("key %d was cut off with the log, and is found at %v", 50+i, got)
		}
		if got := query(t, x, spread(uint64(1000+i)), 0, 1000, 5); len(got) != 1 {
			t.Errorf("key %d: %v", 1000+i, got)
		}
	}
}

func TestReadErrorDoesNotDoubleEntries(t *testing.T) {
	l, mem := &fakeLog{}, vfs.NewMem()
	x := openIndex(t, l, mem, nil)
	defer x.Close()
	for i := range 10 {
		l.add(int64(i), spread(1))
	}
	l.failAt = 5 * recordBytes
	x.Advance(0, l.end(), l.end())
	for i := range 50 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		_ = x.Wait(ctx, 0, l.end())
		cancel()
		if i == 40 {
			l.mu.Lock()
			l.failAt = 0
			l.mu.Unlock()
		}
	}
	await(t, x, l)
	if diff := cmp.Diff(l.find(spread(1), 0, 100, 100), query(t, x, spread(1), 0, 100, 100)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
