package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// faulty is a file system whose segment files fail on demand.
type faulty struct {
	mu   sync.Mutex
	fail func(vfs.Op) error // asked for operations on segments; nil: nothing fails
}

func (f *faulty) set(fail func(vfs.Op) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

func (f *faulty) wrap(m *vfs.Mem) vfs.FS {
	return vfs.Intercept(m, func(o vfs.Op) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.fail == nil || filepath.Base(filepath.Dir(o.Name)) != "commitlog" {
			return nil
		}
		return f.fail(o)
	})
}

func try(s *store.Store, topic string, body string) store.Result {
	var rs [1]store.Result
	s.Append([]store.Message{{Topic: topic, Body: []byte(body)}}, rs[:])
	return rs[0]
}

var errDisk = errors.New("input/output error")

// A failed write leaves nothing a reader could see and takes no queue offset; the store refuses messages until it has cut
// off what the write may have left, and then goes on. A power cut in between brings nothing back.
func TestFailedWriteLeavesNothing(t *testing.T) {
	for _, written := range []int{0, 1, 90, 92} {
		t.Run(fmt.Sprint(written, " bytes written"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, f := vfs.NewMem(), new(faulty)
				o := store.Options{Dir: "/s", FS: f.wrap(m), SegmentBytes: 64 << 10, Events: func(store.Event) {}}
				s := open(t, o)
				addTopic(t, s, "A", meta.Async)
				addTopic(t, s, "S", meta.Sync)
				send(t, s, "A", 0, "one")
				end := s.Bounds().Max
				f.set(func(o vfs.Op) error {
					if o.Kind == "write" {
						return &vfs.ShortWrite{N: written, Err: errDisk}
					}
					if o.Kind == "zero" {
						return errDisk // the repair fails as well, at first
					}
					return nil
				})
				for _, topic := range []string{"A", "S"} {
					if r := try(s, topic, "two"); !errors.Is(r.Err, store.ErrFailed) || !strings.Contains(r.Err.Error(), "input/output error") || r.Address != 0 {
						t.Errorf("append while the disk fails: %+v", r)
					}
				}
				if !errors.Is(s.Err(), store.ErrFailed) {
					t.Errorf("Err = %v, want ErrFailed", s.Err())
				}
				time.Sleep(2 * time.Second)
				cut := open(t, store.Options{Dir: "/s", FS: m.CrashClone(rand.New(rand.NewPCG(1, 1)), 1), Events: func(store.Event) {}})
				same(t, bodies(t, cut, "A", 0), []string{"one"})
				same(t, bodies(t, cut, "S", 0), nil)
				same(t, bodies(t, s, "A", 0), []string{"one"})
				if b := s.Bounds(); b.Max != end {
					t.Errorf("log grew from %d to %d", end, b.Max)
				}
				f.set(nil)
				time.Sleep(2 * time.Second)
				if err := s.Err(); err != nil {
					t.Errorf("Err = %v after the disk is well again", err)
				}
				if r := try(s, "A", "three"); r.Err != nil || r.QueueOffset != 1 || r.Address != end {
					t.Errorf("append after the repair: %+v, want offset 1 at %d", r, end)
				}
				if r := try(s, "S", "four"); r.Err != nil || r.QueueOffset != 0 {
					t.Errorf("append after the repair: %+v, want offset 0", r)
				}
				same(t, bodies(t, s, "A", 0), []string{"one", "three"})
			})
		})
	}
}

// After a failed sync nobody knows what is on the disk: the store refuses messages until it is opened again. Reads go on.
func TestFailedSyncIsFinalUntilReopening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, f := vfs.NewMem(), new(faulty)
		o := store.Options{Dir: "/s", FS: f.wrap(m), SegmentBytes: 64 << 10, Events: func(store.Event) {}}
		s, err := tryOpen(t, o)
		if err != nil {
			t.Fatal(err)
		}
		addTopic(t, s, "A", meta.Async)
		addTopic(t, s, "S", meta.Sync)
		send(t, s, "A", 0, "one")
		send(t, s, "S", 0, "one")
		f.set(func(o vfs.Op) error {
			if o.Kind == "sync" {
				return errDisk
			}
			return nil
		})
		if r := try(s, "S", "two"); !errors.Is(r.Err, store.ErrFailed) {
			t.Errorf("append that cannot be synced: %+v", r)
		}
		f.set(nil)
		time.Sleep(5 * time.Second)
		for _, topic := range []string{"A", "S"} {
			if r := try(s, topic, "three"); !errors.Is(r.Err, store.ErrFailed) {
				t.Errorf("append after a failed sync: %+v", r)
			}
			same(t, bodies(t, s, topic, 0), []string{"one"})
		}
		if err := s.Flush(context.Background()); !errors.Is(err, store.ErrFailed) {
			t.Errorf("Flush = %v", err)
		}
		if err := s.Close(); !errors.Is(err, store.ErrFailed) {
			t.Errorf("Close = %v", err)
		}
		s = open(t, o)
		same(t, bodies(t, s, "A", 0), []string{"one"})
		if got := bodies(t, s, "S", 0); len(got) < 1 || len(got) > 2 { // the unanswered one may be there
			t.Errorf("%q", got)
		}
		send(t, s, "S", 0, "four")
	})
}

// A full disk refuses messages with the measured values, reads go on, no queue offset is lost, and the store goes on by
// itself when there is room again.
func TestFullDiskRefusesAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := vfs.NewMem()
		s := open(t, store.Options{Dir: "/s", FS: m, SegmentBytes: 64 << 10, Events: func(store.Event) {}})
		addTopic(t, s, "A", meta.Async)
		m.SetFree(160 << 10)
		stored := int64(0)
		var r store.Result
		for ; stored < 1000; stored++ {
			if r = try(s, "A", strings.Repeat("x", 1000)); r.Err != nil {
				break
			}
			if r.QueueOffset != stored {
				t.Fatalf("offset %d, want %d", r.QueueOffset, stored)
			}
		}
		var full *log.NoSpaceError
		if !errors.Is(r.Err, store.ErrNoSpace) || !errors.As(r.Err, &full) || full.Need != 64<<10 || full.Free >= full.Need+full.Keep || full.Free < 0 || !strings.Contains(r.Err.Error(), fmt.Sprint(full.Free, " of ")) {
			t.Fatalf("append to a full disk: %v", r.Err)
		}
		if !errors.Is(s.Err(), store.ErrNoSpace) {
			t.Errorf("Err = %v", s.Err())
		}
		for range 3 {
			time.Sleep(time.Second)
			if r := try(s, "A", "y"); !errors.Is(r.Err, store.ErrNoSpace) && r.Err != nil {
				t.Errorf("append to a full disk: %v", r.Err)
			} else if r.Err == nil {
				stored++ // what is small may still fit the current segment
			}
		}
		if got := len(bodies(t, s, "A", 0)); int64(got) != stored {
			t.Errorf("%d messages, want %d", got, stored)
		}
		m.SetFree(-1)
		time.Sleep(time.Second)
		if err := s.Err(); err != nil {
			t.Errorf("Err = %v with room again", err)
		}
		if r := try(s, "A", strings.Repeat("z", 1000)); r.Err != nil || r.QueueOffset != stored {
			t.Errorf("append with room again: %+v, want offset %d", r, stored)
		}
	})
}

// A store whose segments cannot even be begun does not open, and says why.
func TestOpenOnAFullDisk(t *testing.T) {
	m := vfs.NewMem()
	m.SetFree(20 << 10)
	_, err := tryOpen(t, store.Options{Dir: "/s", FS: m, SegmentBytes: 64 << 10})
	if !errors.Is(err, store.ErrNoSpace) || !strings.Contains(err.Error(), "65536") {
		t.Errorf("Open = %v", err)
	}
}

func TestClosedStoreRefuses(t *testing.T) {
	s, err := tryOpen(t, store.Options{SegmentBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	addTopic(t, s, "A", meta.Async)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if r := try(s, "A", "x"); !errors.Is(r.Err, store.ErrClosed) {
		t.Errorf("append after Close: %v", r.Err)
	}
	if !errors.Is(s.Err(), store.ErrClosed) {
		t.Errorf("Err = %v", s.Err())
	}
}

// With no writes going on, the background sync makes what was written durable within its interval.
func TestBackgroundSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, store.Options{Dir: "/s", FS: vfs.NewMem(), SegmentBytes: 64 << 10, FlushInterval: 200 * time.Millisecond})
		addTopic(t, s, "A", meta.Async)
		r := send(t, s, "A", 0, "x")
		if b := s.Bounds(); b.Synced > r.Address {
			t.Fatalf("an async message was synced at once: %+v", b)
		}
		time.Sleep(201 * time.Millisecond)
		synctest.Wait()
		if b := s.Bounds(); b.Synced != b.Max {
			t.Errorf("after the interval: %+v", b)
		}
	})
}

// A sync record never delays an async topic, and one whose sync hangs is told so after a while; it becomes visible when the
// sync ends after all.
func TestHangingSyncDelaysNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, f := vfs.NewMem(), new(faulty)
		s := open(t, store.Options{Dir: "/s", FS: f.wrap(m), SegmentBytes: 64 << 10, Events: func(store.Event) {}})
		addTopic(t, s, "A", meta.Async)
		addTopic(t, s, "S", meta.Sync)
		disk := make(chan struct{})
		f.set(func(o vfs.Op) error {
			if o.Kind == "sync" {
				f.mu.Unlock() // others go on
				<-disk
				f.mu.Lock()
			}
			return nil
		})
		results := make(chan store.Result, 2)
		for range 2 {
			go func() { results <- try(s, "S", "slow") }()
			synctest.Wait() // the second one waits for the sync behind the one that hangs
		}
		for i := range int64(3) {
			if r := try(s, "A", "fast"); r.Err != nil || r.QueueOffset != i {
				t.Errorf("append to an async topic: %+v", r)
			}
		}
		began := time.Now()
		for range 2 {
			r := <-results
			if !errors.Is(r.Err, store.ErrFlushTimeout) || r.StoreTime == 0 || r.Durability != meta.Async {
				t.Errorf("append whose sync hangs: %+v", r)
			}
		}
		if took := time.Since(began); took < 4*time.Second || took > 7*time.Second {
			t.Errorf("told after %v, want about 5 s", took)
		}
		same(t, bodies(t, s, "S", 0), nil)
		close(disk)
		synctest.Wait()
		time.Sleep(time.Second)
		same(t, bodies(t, s, "S", 0), []string{"slow", "slow"})
	})
}
