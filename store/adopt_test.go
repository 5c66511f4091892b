package store_test

import (
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/internal/vectors"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/rocketmq"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// brokerDirectory unpacks a directory of a real broker at /s, without the timer wheel, which nobody needs and is nearly all a hole.
func brokerDirectory(t testing.TB, name string) (*vfs.Mem, *vectors.Expected) {
	t.Helper()
	files, want, err := vectors.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	m := vfs.NewMem()
	for n, b := range files {
		if n != rocketmq.WheelFile {
			put(t, m, path.Join("/s", n), b)
		}
	}
	return m, want
}

// waiting lists what waits, by address.
func waiting(s *store.Store) (halves, delays []string) {
	hs := make([]state.HalfState, 100)
	for _, h := range hs[:s.Halves(false, state.HalfState{}, hs)] {
		halves = append(halves, fmt.Sprintf("%d for %s", h.Address, h.Topic))
	}
	ds := make([]state.Due, 100)
	for _, d := range ds[:s.Delays(state.Due{}, ds)] {
		delays = append(delays, fmt.Sprintf("%d for %s due %d", d.Address, d.Topic, d.Due))
	}
	slices.Sort(halves)
	slices.Sort(delays)
	return halves, delays
}

// Undecided transactions and messages that wait for their time go on in a directory that is taken over; what the broker had decided or
// delivered does not. A restart, also without views, changes nothing of it.
func TestWhatWaitsInADirectoryOfRocketMQIsTakenOver(t *testing.T) {
	// Behind the oldest deadline of these directories and before the next: nothing is due yet.
	now := time.UnixMilli(1795950000000)
	for _, name := range vectors.Names {
		t.Run(name, func(t *testing.T) {
			m, want := brokerDirectory(t, name)
			var wantHalves, wantDelays []string
			for _, h := range want.Halves {
				if h.CommittedAt == nil {
					wantHalves = append(wantHalves, fmt.Sprintf("%d for %s", h.Position, h.RealTopic))
				}
			}
			for _, d := range want.Delays {
				i := slices.IndexFunc(want.Messages, func(m vectors.Message) bool { return m.Position == d.Position })
				due := want.Messages[i].TagsCode
				if want.Messages[i].Ext != nil {
					due = want.Messages[i].Ext.TagsCode
				}
				wantDelays = append(wantDelays, fmt.Sprintf("%d for %s due %d", d.Position, d.RealTopic, due))
			}
			if want.Timer != nil {
				last := int64(0)
				for _, u := range want.Timer.Log {
					if u.Magic&rocketmq.TimerDelete != 0 {
						continue
					}
					i := slices.IndexFunc(want.Messages, func(m vectors.Message) bool { return m.Position == u.Message })
					// Of two seconds and delivered, and of three hours and recalled.
					if last++; last == 1 || last == 4 {
						continue
					}
					wantDelays = append(wantDelays, fmt.Sprintf("%d for VecSTimer due %s", u.Message, want.Messages[i].Properties[rocketmq.PropTimerOut]))
				}
			}
			slices.Sort(wantHalves)
			slices.Sort(wantDelays)

			for _, when := range []string{"taken over", "opened again", "without views"} {
				s, err := tryOpen(t, store.Options{Dir: "/s", FS: m, Now: func() time.Time { return now }})
				if err != nil {
					t.Fatal(err)
				}
				halves, delays := waiting(s)
				if diff := cmp.Diff(wantHalves, halves); diff != "" {
					t.Errorf("%s: halves (-want +got):\n%s", when, diff)
				}
				if diff := cmp.Diff(wantDelays, delays); diff != "" {
					t.Errorf("%s: delays (-want +got):\n%s", when, diff)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if when == "opened again" {
					if err := m.Remove("/s/fusionmq/checkpoint"); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// A power cut at any operation of a take-over leaves a directory that is taken over at the next start, once: what waits is there, and no
// message comes twice.
func TestPowerCutsDuringATakeOverLoseAndRepeatNothing(t *testing.T) {
	now := time.UnixMilli(1795950000000)
	m, _ := brokerDirectory(t, "5.3.3-killed")
	for _, name := range []string{"commitlog", "config"} { // what was there before is on the disk
		if err := m.SyncDir("/s/" + name); err != nil {
			t.Fatal(err)
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	all := m.CrashClone(rng, 1)
	total := 0
	options := func(m *vfs.Mem, cut int, at **vfs.Mem) store.Options {
		var mu sync.Mutex
		n := 0
		return store.Options{Dir: "/s", Now: func() time.Time { return now }, FS: vfs.Intercept(m, func(vfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if n++; n == cut {
				*at = m.CrashClone(rand.New(rand.NewPCG(seed, uint64(cut))), 0.5)
			}
			total = max(total, n)
			return nil
		})}
	}
	answers := func(m *vfs.Mem) (halves, delays []string, ends map[string]int64) {
		s, err := tryOpen(t, store.Options{Dir: "/s", FS: m, Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		halves, delays = waiting(s)
		ends = map[string]int64{}
		s.Queues(func(q *queue.Queue) {
			if name := q.Topic().Name(); !strings.HasPrefix(name, store.SystemPrefix) {
				_, ends[fmt.Sprint(name, "/", q.ID())] = q.Range()
			}
		})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return halves, delays, ends
	}
	wantHalves, wantDelays, wantEnds := answers(all.CrashClone(rng, 1))
	if len(wantHalves) != 2 || len(wantDelays) != 7 {
		t.Fatalf("%v, %v", wantHalves, wantDelays)
	}
	for cut := 1; cut <= max(total, 1); cut += 1 + rng.IntN(3) {
		var left *vfs.Mem
		whole := all.CrashClone(rng, 1)
		s, err := store.Open(options(whole, cut, &left))
		if err != nil {
			t.Fatal(err)
		}
		stop(t, s)
		found(t, store.Options{Dir: "/s", FS: whole})
		if left == nil {
			continue
		}
		halves, delays, ends := answers(left)
		if diff := cmp.Diff([]any{wantHalves, wantDelays, wantEnds}, []any{halves, delays, ends}); diff != "" {
			t.Fatalf("power cut at operation %d of %d (-want +got):\n%s", cut, total, diff)
		}
	}
	t.Logf("%d operations", total)
}
