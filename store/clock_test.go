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

// While the clock is behind, what waits for a time that was stated costs no look at what is due more than the first one after a start, and
// everything comes at its time.
func TestWhatWaitsBehindASetClockIsNotReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 2000
		var ahead atomic.Int64 // of the machine's clock
		o := store.Options{
			FS: vfs.NewMem(), Dir: "/s", Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())).Round(0) },
		}
		ahead.Store(int64(12 * time.Hour))
		s, err := tryOpen(t, o)
		if err != nil {
			t.Fatal(err)
		}
		addTopic(t, s, "T", meta.Async)
		send(t, s, "T", 0, "first")
		ahead.Store(0)
		begin := time.Now()
		for i := range many {
			sendWaiting(t, s, store.Message{Topic: "T", Queue: 1, Body: []byte("stated"), DeliverAt: begin.Add(time.Hour + time.Duration(i)*time.Second).UnixMilli()})
			if i%10 == 0 {
				settle(t, s)
			}
		}
		levels := 0
		run := func(seconds int) {
			for range seconds {
				sendWaiting(t, s, store.Message{Topic: "T", Queue: 2, Body: []byte("level"), DelayLevel: 1 + int32(levels%2)}) // 1 s and 5 s
				levels++
				time.Sleep(time.Second)
			}
		}
		look := func(what string, seconds int, most int64) {
			t.Helper()
			before := s.RowsRead()
			run(seconds)
			if n := s.RowsRead() - before; n > most {
				t.Errorf("%s: %d rows of what waits were read in %d s, want at most %d", what, n, seconds, most)
			}
		}
		if n := s.RowsRead(); n > many {
			t.Errorf("%d rows were read while %d messages came", n, many)
		}
		look("running", 100, 500)
		ahead.Store(-int64(time.Hour)) // once more
		look("set back again", 100, 500)
		ahead.Store(0)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = tryOpen(t, o); err != nil {
			t.Fatal(err)
		}
		look("after a start", 100, many+500)
		look("later", 100, 500)
		came := func(what string, stated int) {
			t.Helper()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if got := len(bodies(t, s, "T", 2)); got != levels {
				t.Errorf("%s: %d messages with a level came, want %d", what, got, levels)
			}
			if got := len(bodies(t, s, "T", 1)); got != stated {
				t.Errorf("%s: %d messages with a time came, want %d", what, got, stated)
			}
		}
		came("before the first time", 0)
		time.Sleep(time.Until(begin.Add(time.Hour + 89*time.Second + 500*time.Millisecond)))
		came("in the middle", 100)
		before := s.RowsRead()
		time.Sleep(many * time.Second)
		came("in the end", many)
		if n := s.RowsRead() - before; n > 2*many {
			t.Errorf("%d rows were read for %d messages", n, many)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
