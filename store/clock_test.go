package store_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// A clock that is set back by 24 years holds nothing: what is delayed comes after its delay or at its stated time, messages go at their
// age, times and queues stay in order; in the same process, and after a restart (fault STO-15).
func TestClockThatIsSetBackHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64 // of the machine's clock
		o := store.Options{
			FS: vfs.NewMem(), Dir: "/s", SegmentBytes: 64 << 10, Retention: store.Retention{Age: time.Hour, Interval: 1000 * time.Hour},
			Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())).Round(0) },
		}
		ahead.Store(int64(24 * 365 * 24 * time.Hour))
		s, err := tryOpen(t, o)
		if err != nil {
			t.Fatal(err)
		}
		addTopic(t, s, "T", meta.Async)
		level := func(body string) { // level 3: 10 s
			sendWaiting(t, s, store.Message{Topic: "T", Body: []byte(body), DelayLevel: 3})
		}
		stated := func(body string, in time.Duration) {
			sendWaiting(t, s, store.Message{Topic: "T", Body: []byte(body), DeliverAt: o.Now().Add(in).UnixMilli()})
		}
		came := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			if got := bodies(t, s, "T", 0); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		send(t, s, "T", 0, "a")
		level("b")
		ahead.Store(0)
		settle(t, s)
		came("at once", "a")
		level("c")
		stated("d", 20*time.Second)
		time.Sleep(9 * time.Second)
		came("after 9 s", "a")
		time.Sleep(2 * time.Second)
		came("after 11 s", "a", "b", "c")
		level("e")
		time.Sleep(8 * time.Second)
		came("before its stated time", "a", "b", "c")
		time.Sleep(4 * time.Second)
		came("after it", "a", "b", "c", "d", "e")

		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = tryOpen(t, o); err != nil {
			t.Fatal(err)
		}
		level("f")
		stated("g", 30*time.Second)
		time.Sleep(11 * time.Second)
		came("after a restart", "a", "b", "c", "d", "e", "f")
		time.Sleep(20 * time.Second)
		came("after a restart", "a", "b", "c", "d", "e", "f", "g")

		last := int64(0)
		var es [16]store.TopicEntry
		for _, e := range es[:s.ReadTopic("T", 0, es[:])] {
			if e.Time < last {
				t.Errorf("publish times go back from %d to %d", last, e.Time)
			}
			last = e.Time
		}
		body := make([]byte, 30<<10)
		for range 6 {
			s.Append([]store.Message{{Topic: "T", Queue: 1, Body: body}}, make([]store.Result, 1))
		}
		settle(t, s)
		time.Sleep(3 * time.Hour / 2)
		if n := clean(t, s); n == 0 {
			t.Error("nothing of what is an hour and a half old was deleted, the limit is an hour and a quarter")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A clock that is a little behind is waited for, so that store times do not run away from it.
func TestClockThatIsALittleBehindIsWaitedFor(t *testing.T) {
	clock := newHandClock(1_700_000_000_000)
	s := open(t, store.Options{FS: vfs.NewMem(), Dir: "/s", SegmentBytes: 64 << 10, Now: clock.now})
	addTopic(t, s, "T", meta.Async)
	for _, step := range []struct{ set, want int64 }{
		{1_700_000_000_000, 1_700_000_000_000}, {1_699_999_999_500, 1_700_000_000_000}, {1_700_000_000_001, 1_700_000_000_001},
		{1_600_000_000_000, 1_700_000_000_001}, {1_600_000_001_000, 1_700_000_000_991}, {1_500_000_000_000, 1_700_000_000_991}, {1_500_000_000_100, 1_700_000_001_090},
		{1_800_000_000_000, 1_800_000_000_000}, {1_799_999_000_000, 1_800_000_000_000}, {1_799_999_000_100, 1_800_000_000_099},
	} {
		clock.ms.Store(step.set)
		r := send(t, s, "T", 0, "x")
		if r.StoreTime != step.want {
			t.Errorf("at %d: store time %d, want %d", step.set, r.StoreTime, step.want)
		}
	}
}
