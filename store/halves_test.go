package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// sendWaiting appends a message that waits.
func sendWaiting(t testing.TB, s *store.Store, m store.Message) store.Result {
	t.Helper()
	if m.Properties == nil {
		m.Properties = []byte("TAGS\x01TagA\x02")
	}
	var rs [1]store.Result
	s.Append([]store.Message{m}, rs[:])
	if rs[0].Err != nil {
		t.Fatalf("append: %v", rs[0].Err)
	}
	return rs[0]
}

func half(t testing.TB, s *store.Store, topic string, id int32, body string) store.Result {
	t.Helper()
	return sendWaiting(t, s, store.Message{Topic: topic, Queue: id, Body: []byte(body), Half: true, SysFlag: record.FlagTxPrepared})
}

func endHalf(s *store.Store, address int64, commit bool) error {
	es := []store.HalfEnd{{Address: address, Commit: commit}}
	s.EndHalves(context.Background(), es)
	return es[0].Err
}

func TestHalvesAreSeenWhenTheyAreCommitted(t *testing.T) {
	for _, d := range []meta.Durability{meta.Async, meta.Sync, meta.Memory} {
		t.Run(d.String(), func(t *testing.T) {
			o := store.Options{FS: vfs.NewMem(), Dir: "/s"}
			s := open(t, o)
			addTopic(t, s, "T", d)
			a, b, c := half(t, s, "T", 2, "first"), half(t, s, "T", 2, "second"), half(t, s, "T", 2, "third")
			if a.QueueOffset != 0 || b.QueueOffset != 1 || c.QueueOffset != 2 {
				t.Errorf("state table offsets are %d, %d, %d", a.QueueOffset, b.QueueOffset, c.QueueOffset)
			}
			send(t, s, "T", 2, "plain")
			if err := endHalf(s, c.Address, true); err != nil {
				t.Fatal(err)
			}
			if err := endHalf(s, b.Address, false); err != nil {
				t.Fatal(err)
			}
			if err := endHalf(s, a.Address, true); err != nil {
				t.Fatal(err)
			}
			if got := bodies(t, s, "T", 2); !slices.Equal(got, []string{"plain", "third", "first"}) {
				t.Errorf("queue has %q", got)
			}
			var es [8]store.TopicEntry
			n := s.ReadTopic("T", 0, es[:])
			raw, _, err := s.Record(es[1].Entry)
			if err != nil || n != 3 {
				t.Fatalf("%d entries, %v", n, err)
			}
			v, err := record.Parse(raw)
			if err != nil || v.TxType() != record.FlagTxCommit || v.PreparedOffset() != c.Address {
				t.Errorf("committed record: type %d, prepared offset %d, %v; the half is at %d", v.TxType(), v.PreparedOffset(), err, c.Address)
			}
		})
	}
}

func TestLaw5OutcomeOfATransactionIsFinal(t *testing.T) {
	o := store.Options{FS: vfs.NewMem(), Dir: "/s"}
	s := open(t, o)
	addTopic(t, s, "T", meta.Async)
	yes, no, undecided := half(t, s, "T", 0, "yes"), half(t, s, "T", 0, "no"), half(t, s, "T", 0, "undecided")
	plain := send(t, s, "T", 0, "plain")
	for range 2 {
		if err := endHalf(s, yes.Address, true); err != nil {
			t.Fatal(err)
		}
		if err := endHalf(s, no.Address, false); err != nil {
			t.Fatal(err)
		}
	}
	for reopened := range 2 {
		var e *store.EndedError
		if err := endHalf(s, yes.Address, false); !errors.Is(err, store.ErrEnded) || !errors.As(err, &e) || e.Outcome != state.Committed {
			t.Errorf("rolled back after the commit, opened again %d times: %v", reopened, err)
		}
		if err := endHalf(s, no.Address, true); !errors.Is(err, store.ErrEnded) {
			t.Errorf("committed after the rollback: %v", err)
		}
		if err := endHalf(s, yes.Address, true); err != nil {
			t.Errorf("the same outcome again: %v", err)
		}
		for _, at := range []int64{plain.Address, yes.Address + 1, 1 << 50, -1} {
			if err := endHalf(s, at, true); !errors.Is(err, store.ErrNoHalf) {
				t.Errorf("commit of %d, where no half is: %v", at, err)
			}
		}
		if got := bodies(t, s, "T", 0); !slices.Equal(got, []string{"plain", "yes"}) {
			t.Errorf("queue has %q", got)
		}
		if h := s.Half(undecided.Address); h.Outcome != state.Undecided || h.Topic != "T" {
			t.Errorf("half that nobody ended is %+v", h)
		}
		stop(t, s)
		if reopened == 0 {
			dropViews(t, o.FS, o.Dir)
		}
		s = open(t, o)
	}
}

// Many ends of the same halves at once, for and against: each half gets one of them, and who asked for the other one is told.
func TestLaw5ConcurrentEndsOfATransactionAreOne(t *testing.T) {
	s := open(t, store.Options{FS: vfs.NewMem(), Dir: "/s"})
	addTopic(t, s, "T", meta.Async)
	const halves, askers = 200, 6
	var rs [halves]store.Result
	for i := range rs {
		rs[i] = half(t, s, "T", 0, fmt.Sprint(i))
	}
	var errs [askers][halves]error
	var wg sync.WaitGroup
	for k := range askers {
		wg.Go(func() {
			for i := range rs {
				errs[k][i] = endHalf(s, rs[i].Address, (k+i)%2 == 0)
			}
		})
	}
	wg.Wait()
	got := map[string]int{}
	for _, b := range bodies(t, s, "T", 0) {
		got[b]++
	}
	for i := range rs {
		committed := s.Half(rs[i].Address).Outcome
		for settled := false; !settled; settled = true {
			if err := s.WaitApplied(t.Context(), s.Bounds().Max-1); err != nil {
				t.Fatal(err)
			}
			committed = s.Half(rs[i].Address).Outcome
		}
		want := 0
		if committed == state.Committed {
			want = 1
		}
		if got[fmt.Sprint(i)] != want {
			t.Errorf("half %d has outcome %d and is in the queue %d times", i, committed, got[fmt.Sprint(i)])
		}
		for k := range askers {
			if ok := ((k+i)%2 == 0) == (committed == state.Committed); ok != (errs[k][i] == nil) {
				t.Errorf("half %d, outcome %d: asker %d for commit %v got %v", i, committed, k, (k+i)%2 == 0, errs[k][i])
			}
		}
	}
}

func TestHalvesAreDueForTheirChecksAndMovedAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := store.Options{FS: vfs.NewMem(), Dir: "/s"}
		s := open(t, o)
		addTopic(t, s, "T", meta.Async)
		began := time.Now().UnixMilli()
		a := half(t, s, "T", 1, "a")
		b := sendWaiting(t, s, store.Message{Topic: "T", Body: []byte("b"), Half: true, Properties: []byte("CHECK_IMMUNITY_TIME_IN_SECONDS\x0130\x02")})
		settle(t, s)
		var hs [4]state.HalfState
		if n := s.Halves(false, state.HalfState{}, hs[:]); n != 2 || hs[0].Address != a.Address || hs[0].Due != began+6000 || hs[1].Due != began+30000 {
			t.Fatalf("halves are %+v", hs[:n])
		}
		if err := s.CheckHalves([]store.HalfCheck{{a.Address, 1, began + 60000}}); err != nil {
			t.Fatal(err)
		}
		settle(t, s)
		if n := s.Halves(false, state.HalfState{}, hs[:]); n != 2 || hs[1].Address != a.Address || hs[1].Checks != 1 {
			t.Fatalf("after a check halves are %+v", hs[:n])
		}
		raw, err := s.HalfRecord(a.Address)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := record.Parse(raw); err != nil || string(v.Topic()) != "T" || v.QueueID() != 1 || v.PhysicalOffset() != a.Address || v.QueueOffset() != a.QueueOffset {
			t.Errorf("half as its producer sees it: %v, %v", v, err)
		}
		if err := s.SetHalvesAside([]int64{a.Address, b.Address}); err != nil {
			t.Fatal(err)
		}
		settle(t, s)
		for reopened := range 2 {
			if n := s.Halves(false, state.HalfState{}, hs[:]); n != 0 {
				t.Errorf("%d halves are still asked about", n)
			}
			if n := s.Halves(true, state.HalfState{}, hs[:]); n != 2 {
				t.Errorf("%d halves are aside", n)
			}
			if got := bodies(t, s, store.AsideTopic, 0); !slices.Equal(got, []string{"a", "b"}) {
				t.Errorf("aside topic has %q", got)
			}
			if reopened == 0 {
				stop(t, s)
				s = open(t, o)
			}
		}
		// An operator can still decide.
		if err := endHalf(s, a.Address, true); err != nil {
			t.Error(err)
		}
		if err := endHalf(s, b.Address, false); err != nil {
			t.Error(err)
		}
		if got := bodies(t, s, "T", 1); !slices.Equal(got, []string{"a"}) {
			t.Errorf("queue has %q", got)
		}
	})
}

func TestACommitMayBeForLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, store.Options{FS: vfs.NewMem(), Dir: "/s"})
		addTopic(t, s, "T", meta.Async)
		h := half(t, s, "T", 0, "later")
		due := time.Now().Add(time.Minute)
		es := []store.HalfEnd{{Address: h.Address, Commit: true, Due: due.UnixMilli()}}
		if s.EndHalves(t.Context(), es); es[0].Err != nil {
			t.Fatal(es[0].Err)
		}
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if got := bodies(t, s, "T", 0); got != nil {
			t.Errorf("published too early: %q", got)
		}
		if err := endHalf(s, h.Address, false); !errors.Is(err, store.ErrEnded) {
			t.Errorf("rolled back while it waits: %v", err)
		}
		time.Sleep(1001 * time.Millisecond)
		synctest.Wait()
		if got := bodies(t, s, "T", 0); !slices.Equal(got, []string{"later"}) {
			t.Errorf("when due the queue has %q", got)
		}
	})
}
