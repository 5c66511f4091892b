package store_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/check"
	"github.com/fusionmq/fusionmq/store/internal/brokerdir"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

var takenOverFlag = flag.Int("taken-over", 100_000, "things of each kind that wait in TestLaw7ATakeOverTakesTheMemoryThatItIsGiven")

// takenOver are kinds of what waits in a directory of an Apache broker, and how many of n there wait by name afterwards.
var takenOver = []struct {
	name  string
	write func(w *brokerdir.Writer, n int)
	want  func(n int) state.Stats
}{
	{"delays", func(w *brokerdir.Writer, n int) {
		w.Levels(n / 2)
		w.Timers(n - n/2)
	}, func(n int) state.Stats { return state.Stats{Delays: n} }},
	{"halves", func(w *brokerdir.Writer, n int) { w.Halves(n) }, func(n int) state.Stats { return state.Stats{Halves: n} }},
	{"retries", func(w *brokerdir.Writer, n int) { w.Retries(n) }, func(n int) state.Stats { return state.Stats{Delays: n / 2} }},
	{"pops", func(w *brokerdir.Writer, n int) { w.Pops(n, 7) }, func(n int) state.Stats { return state.Stats{Returns: n} }},
}

// Law 7: what a take-over needs of memory does not grow with what waits in the directory of an Apache broker: delays of levels and of the
// timer wheel, undecided transactions, messages that were sent back, and messages that pop consumers have not acknowledged. With
// -taken-over=10000000 it takes over ten million of each.
func TestLaw7ATakeOverTakesTheMemoryThatItIsGiven(t *testing.T) {
	for _, kind := range takenOver {
		t.Run(kind.name, func(t *testing.T) {
			n, c := *takenOverFlag/2*2, newClock()
			dir := filepath.Join(t.TempDir(), "s")
			h := &heapWatch{every: 300 + n/1000}
			o := store.Options{Dir: dir, FS: vfs.Intercept(vfs.OS, h.see), Now: c.now, CheckpointBytes: 64 << 20}
			open, base := store.Open, 32.0 // MiB: tails, buffers, and the queue index of 64 MiB of log
			if n < 1_000_000 {
				open = func(o store.Options) (*store.Store, error) { return tryOpen(t, o) }
				o.CheckpointBytes, base = 4<<20, 20
				o.TailRows(2000)
			}
			began, used := time.Now(), cpuTime(t)
			w := brokerdir.Create(brokerdir.Options{FS: vfs.OS, Dir: dir, SegmentBytes: 256 << 20, Now: c.now().UnixMilli()})
			kind.write(w, n)
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d %s written in %.1f s, %.1f s of CPU", n, kind.name, time.Since(began).Seconds(), float64(cpuTime(t)-used)/1e9)
			w = nil
			empty, most := liveHeap(), watchAnonymous(t)
			for _, when := range []string{"taken over", "opened again"} {
				began, used = time.Now(), cpuTime(t)
				s, err := open(o)
				if err != nil {
					t.Fatal(err)
				}
				st := s.StateStats()
				if got := (state.Stats{Halves: st.Halves, Delays: st.Delays, Returns: st.Returns}); got != kind.want(n) {
					t.Errorf("%s: %+v wait, want %+v", when, got, kind.want(n))
				}
				grown := float64(int64(h.take())-int64(empty)) / (1 << 20)
				t.Logf("%d %s, %s: %.1f MiB of heap more than empty, at most %.1f MiB anonymous, %.1f s, %.1f s of CPU",
					n, kind.name, when, grown, float64(most())/(1<<20), time.Since(began).Seconds(), float64(cpuTime(t)-used)/1e9)
				if bound := base + 3*float64(n)/(1<<20); grown > bound { // first keys of the pages of files: less than a byte for each thing
					t.Errorf("%s: %.1f MiB of heap more than empty with %d %s, want at most %.1f", when, grown, n, kind.name, bound)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// A directory that the tests above make is one that a check of an Apache broker's directories finds nothing wrong with.
func TestADirectoryOfManyThatWaitIsAsABrokerLeavesIt(t *testing.T) {
	m, c := vfs.NewMem(), newClock()
	w := brokerdir.Create(brokerdir.Options{FS: m, Dir: "/s", SegmentBytes: 128 << 10, Now: c.now().UnixMilli()})
	for _, kind := range takenOver {
		kind.write(w, 1000)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := check.Run(context.Background(), check.Options{Dir: "/s", FS: m})
	if err != nil || len(r.Findings) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	s, err := tryOpen(t, store.Options{Dir: "/s", FS: m, Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	if st := s.StateStats(); st.Halves != 1000 || st.Delays != 1500 || st.Returns != 1000 {
		t.Errorf("%+v", st)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// watchAnonymous samples the resident memory of this process that no file backs, until the test ends; what it returns is the most of it in
// bytes since the last call.
func watchAnonymous(t *testing.T) func() int64 {
	t.Helper()
	var most atomic.Int64
	see := func() {
		b, err := os.ReadFile("/proc/self/status")
		if err != nil {
			return
		}
		_, rest, _ := strings.Cut(string(b), "RssAnon:")
		kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest[:max(strings.IndexByte(rest, '\n'), 0)]), " kB"), 10, 64)
		most.Store(max(most.Load(), kib<<10))
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				see()
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
	})
	return func() int64 {
		see()
		return most.Swap(0)
	}
}
