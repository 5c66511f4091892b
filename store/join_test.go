package store_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// joinStore opens a store with a topic T.
func joinStore(t *testing.T, d meta.Durability, now func() time.Time) *store.Store {
	t.Helper()
	s := open(t, store.Options{FS: vfs.NewMem(), Dir: "/s", Now: now})
	addTopic(t, s, "T", d)
	return s
}

// records is how many operate-queue records there are.
func records(s *store.Store) int64 {
	if q := s.Queue(store.OQTopic, 0, false); q != nil {
		return q.Next()
	}
	return 0
}

func TestEndsThatComeTogetherShareARecord(t *testing.T) {
	for _, d := range []meta.Durability{meta.Async, meta.Sync} {
		t.Run(d.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := joinStore(t, d, nil)
				const n = 200
				before := records(s)
				var wg sync.WaitGroup
				var late atomic.Int64
				for range n { // one in a millisecond, each from a caller of its own
					wg.Go(func() {
						r := half(t, s, "T", 0, "x")
						began := time.Now()
						if err := endHalf(s, r.Address, true); err != nil {
							t.Error(err)
						}
						late.Store(max(late.Load(), int64(time.Since(began))))
					})
					time.Sleep(time.Millisecond)
				}
				wg.Wait()
				if got := len(bodies(t, s, "T", 0)); got != n {
					t.Errorf("%d of %d are committed", got, n)
				}
				if got := records(s) - before; got > n*6/10 {
					t.Errorf("%d ends are in %d records", n, got)
				}
				if got := time.Duration(late.Load()); got > 2*time.Millisecond {
					t.Errorf("an end took %s", got)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

func TestEndsOfOneCallerDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := joinStore(t, meta.Async, nil)
		const n, work = 1000, 100 * time.Microsecond
		began := time.Now()
		for range n {
			r := half(t, s, "T", 0, "x")
			time.Sleep(work)
			if err := endHalf(s, r.Address, true); err != nil {
				t.Fatal(err)
			}
		}
		if got := time.Since(began) - n*work; got > n*work/20 {
			t.Errorf("%d transactions of %s waited %s for company", n, work, got)
		}
		// Where ends are far apart nobody waits at all.
		for range 10 {
			time.Sleep(time.Second)
			r := half(t, s, "T", 0, "x")
			began := time.Now()
			if err := endHalf(s, r.Address, true); err != nil || time.Since(began) > 0 {
				t.Errorf("an end that comes alone took %s, %v", time.Since(began), err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// What is wrong with one caller's operation is no concern of who shares a record with it.
func TestARefusedOperationIsRefusedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := joinStore(t, meta.Async, nil)
		a, b := half(t, s, "T", 0, "a"), half(t, s, "T", 0, "b")
		roll := func(address int64) state.Op {
			return state.Op{Kind: state.OpRollback, Topic: "T", First: address, Last: address}
		}
		if err := s.Join(roll(a.Address)); err != nil {
			t.Fatal(err)
		}
		var good, bad error
		var wg sync.WaitGroup
		wg.Go(func() { good = s.Join(roll(b.Address)) })
		synctest.Wait() // it waits for a second one
		wg.Go(func() { bad = s.Join(state.Op{Kind: state.OpRollback, Topic: "T", First: -1}) })
		wg.Wait()
		var refused *state.OpError
		if good != nil || !errors.As(bad, &refused) {
			t.Errorf("got %v and %v, want nil and an OpError", good, bad)
		}
		if got := records(s); got != 2 {
			t.Errorf("there are %d records, want 2", got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDelaysDueTogetherShareARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set atomic.Int64 // added to the clock
		s := joinStore(t, meta.Async, func() time.Time { return time.Now().Add(time.Duration(set.Load())) })
		now := func() time.Time { return time.Now().Add(time.Duration(set.Load())) }
		const n = 40
		due := now().Add(time.Second)
		for i := range n {
			sendWaiting(t, s, store.Message{Topic: "T", Body: fmt.Append(nil, i), DeliverAt: due.Add(time.Duration(i) * time.Millisecond).UnixMilli()})
		}
		before := records(s)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := bodies(t, s, "T", 0); len(got) != 1 {
			t.Errorf("when the first is due there are %d", len(got))
		}
		time.Sleep((n-1)*time.Millisecond + 4*time.Millisecond)
		synctest.Wait()
		if got := bodies(t, s, "T", 0); len(got) != n {
			t.Errorf("4 ms after the last is due there are %d, want %d", len(got), n)
		}
		if got := records(s) - before; got > n/3 {
			t.Errorf("%d are in %d records", n, got)
		}
		set.Store(-int64(time.Hour)) // the gap behind the last batch is not an hour now
		sendWaiting(t, s, store.Message{Topic: "T", Body: []byte("later"), DeliverAt: now().Add(10 * time.Millisecond).UnixMilli()})
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		if got := bodies(t, s, "T", 0); len(got) != n+1 {
			t.Errorf("after the clock was set back there are %d, want %d", len(got), n+1)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
