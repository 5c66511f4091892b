package store_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

func TestDelayedMessagesComeInTheOrderOfTheirTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := store.Options{FS: vfs.NewMem(), Dir: "/s"}
		s, err := tryOpen(t, o)
		if err != nil {
			t.Fatal(err)
		}
		addTopic(t, s, "T", meta.Async)
		now := time.Now()
		at := func(d time.Duration, body string) {
			r := sendWaiting(t, s, store.Message{Topic: "T", Body: []byte(body), DeliverAt: now.Add(d).UnixMilli()})
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		at(20*24*time.Hour, "20 days")
		at(90*time.Second, "90 s")
		at(30*time.Second, "30 s")
		at(-time.Second, "now")
		sendWaiting(t, s, store.Message{Topic: "T", Body: []byte("level 5"), DelayLevel: 5})   // 1 minute
		sendWaiting(t, s, store.Message{Topic: "T", Body: []byte("level 99"), DelayLevel: 99}) // as 18: 2 hours
		for i := range 600 {
			at(40*time.Second, fmt.Sprint("many ", i))
		}
		var want []string
		see := func(more ...string) {
			t.Helper()
			synctest.Wait()
			want = append(want, more...)
			if got := bodies(t, s, "T", 0); !slices.Equal(got, want) {
				t.Fatalf("after %s the queue has %d messages, at the end %q, want %d with %q", time.Since(now), len(got), got[max(0, len(got)-5):], len(want), want[max(0, len(want)-5):])
			}
		}
		see("now")
		time.Sleep(29 * time.Second)
		see()
		time.Sleep(time.Second)
		see("30 s")
		time.Sleep(9999 * time.Millisecond)
		see()
		time.Sleep(time.Millisecond)
		for i := range 600 {
			want = append(want, fmt.Sprint("many ", i))
		}
		see()
		time.Sleep(10 * time.Second)
		if err := s.Close(); err != nil { // due while it is closed
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if s, err = tryOpen(t, o); err != nil {
			t.Fatal(err)
		}
		see("level 5", "90 s")
		time.Sleep(time.Hour)
		see("level 99")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20*24*time.Hour - 3*time.Hour)
		if s, err = tryOpen(t, o); err != nil {
			t.Fatal(err)
		}
		see()
		time.Sleep(time.Hour)
		see("20 days")
		if d := s.StateStats().Delays; d != 0 {
			t.Errorf("%d delays are left", d)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDelayLimitsAndCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := store.Options{FS: vfs.NewMem(), Dir: "/s"}
		s, err := tryOpen(t, o)
		if err != nil {
			t.Fatal(err)
		}
		addTopic(t, s, "T", meta.Async)
		var rs [1]store.Result
		now := time.Now().UnixMilli()
		s.Append([]store.Message{{Topic: "T", Body: []byte("x"), DeliverAt: now + store.MaxDelay + 1}}, rs[:])
		var f *store.FieldError
		if !errors.As(rs[0].Err, &f) || !errors.Is(rs[0].Err, store.ErrBadMessage) {
			t.Errorf("delay above the limit: %v", rs[0].Err)
		}
		props := make([]byte, store.MaxPropertiesBytes-10)
		for i := range props {
			props[i] = 'x'
		}
		props[1] = 1
		s.Append([]store.Message{{Topic: "T", Body: []byte("x"), DelayLevel: 1, Properties: props}}, rs[:])
		if !errors.As(rs[0].Err, &f) {
			t.Errorf("no room for the properties of a delay: %v", rs[0].Err)
		}
		for _, topic := range []string{store.HalfTopic, store.ScheduleTopic, store.TimerTopic} {
			s.Append([]store.Message{{Topic: topic, Body: []byte("x")}}, rs[:])
			if !errors.Is(rs[0].Err, store.ErrSystemTopic) {
				t.Errorf("send to %s: %v", topic, rs[0].Err)
			}
		}
		a := sendWaiting(t, s, store.Message{Topic: "T", Body: []byte("a"), DeliverAt: now + store.MaxDelay})
		b := sendWaiting(t, s, store.Message{Topic: "T", Body: []byte("b"), DelayLevel: 1})
		if _, err := s.SendBack(t.Context(), store.SendBack{Group: "g", Address: b.Address, Most: 3}); !errors.Is(err, store.ErrNotAddress) {
			t.Errorf("sent back while it waits: %v", err)
		}
		if err := s.CancelDelay(t.Context(), a.Address); err != nil {
			t.Error(err)
		}
		if err := s.CancelDelay(t.Context(), a.Address); !errors.Is(err, store.ErrNoDelay) {
			t.Errorf("cancelled twice: %v", err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if err := s.CancelDelay(t.Context(), b.Address); !errors.Is(err, store.ErrNoDelay) {
			t.Errorf("cancelled after its time: %v", err)
		}
		if got := bodies(t, s, "T", 0); !slices.Equal(got, []string{"b"}) || s.StateStats().Delays != 0 {
			t.Errorf("queue has %q, %d delays are left", got, s.StateStats().Delays)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestSentBackMessagesReturnWithTheirAttemptsAndThenAreDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := store.Options{FS: vfs.NewMem(), Dir: "/s"}
		s, err := tryOpen(t, o)
		if err != nil {
			t.Fatal(err)
		}
		addTopic(t, s, "T", meta.Async)
		first := send(t, s, "T", 3, "body")
		address := first.Address
		ladder := []time.Duration{10 * time.Second, 30 * time.Second, time.Minute}
		for attempt, delay := range ladder {
			due := time.Now().Add(delay) // each call may wait a moment for others
			for range 2 {                // a second time by another consumer: still one
				if dead, err := s.SendBack(t.Context(), store.SendBack{Group: "g", Address: address, Most: 3}); dead || err != nil {
					t.Fatalf("attempt %d: dead %v, %v", attempt, dead, err)
				}
			}
			if attempt == 1 {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				dropViews(t, o.FS, o.Dir)
				if s, err = tryOpen(t, o); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Until(due) - time.Millisecond)
			synctest.Wait()
			q := s.Queue("%RETRY%g", 0, true)
			if q != nil {
				if _, high := q.Range(); high != int64(attempt) {
					t.Fatalf("attempt %d came too early", attempt)
				}
			}
			time.Sleep(10 * time.Millisecond) // what is due is shown in batches, a few milliseconds apart
			synctest.Wait()
			var es [8]store.TopicEntry
			if n := s.ReadTopic("%RETRY%g", 0, es[:]); n != attempt+1 {
				t.Fatalf("attempt %d: %d entries", attempt, n)
			}
			address = es[attempt].Address
			raw, release, err := s.RecordAt(address)
			if err != nil {
				t.Fatal(err)
			}
			v, err := record.Parse(raw)
			if err != nil || v.ReconsumeTimes() != int32(attempt+1) || string(v.Body()) != "body" {
				t.Fatalf("attempt %d: %v reconsumed %d times, %v", attempt, v, v.ReconsumeTimes(), err)
			}
			if id, _ := v.Property("ORIGIN_MESSAGE_ID"); string(id) != record.OffsetID(v.StoreHost(), first.Address) {
				t.Errorf("attempt %d: origin %s", attempt, id)
			}
			release()
		}
		dead, err := s.SendBack(t.Context(), store.SendBack{Group: "g", Address: address, Most: 3})
		if !dead || err != nil {
			t.Fatalf("after the last attempt: dead %v, %v", dead, err)
		}
		if dead, err = s.SendBack(t.Context(), store.SendBack{Group: "other", Address: first.Address, Level: -1, Most: 3}); !dead || err != nil {
			t.Fatalf("at once: dead %v, %v", dead, err)
		}
		for _, group := range []string{"g", "other"} {
			if got := bodies(t, s, "%DLQ%"+group, 0); !slices.Equal(got, []string{"body"}) {
				t.Errorf("dead letters of %s are %q", group, got)
			}
		}
		if _, err := s.SendBack(t.Context(), store.SendBack{Group: "g", Address: address + 1, Most: 3}); !errors.Is(err, store.ErrNotAddress) {
			t.Errorf("sent back from no address: %v", err)
		}
		settle(t, s)
		if st := s.StateStats(); st.Returns != 0 {
			t.Errorf("state is %+v", st)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A push group's dead letter ends its retry.
func TestDeadLettersOfPushGroupsAreViews(t *testing.T) {
	s := open(t, store.Options{FS: vfs.NewMem(), Dir: "/s", Exchange: newFanout(), Observer: newLedger()})
	addTopic(t, s, "T", meta.Async)
	operate(t, s, bindOps("T", "g")...)
	r := send(t, s, "T", 0, "body")
	operate(t, s, state.Op{Kind: state.OpUpdate, Topic: "T", First: r.Address, Failed: []state.Failed{{Group: "g", Attempt: 16, Due: 1}}})
	if n := s.RetryCount("g"); n != 1 {
		t.Fatalf("%d retries", n)
	}
	operate(t, s, state.Op{Kind: state.OpPublish, Topic: "T", Group: "g", First: r.Address, View: &state.View{
		Kind: state.ViewDead, Topic: "%DLQ%g", Position: r.Address, Size: r.Size, Reconsume: 16, TagsCode: 2598919, Level: 1,
	}})
	if n := s.RetryCount("g"); n != 0 {
		t.Errorf("%d retries behind the dead letter", n)
	}
	if got := bodies(t, s, "%DLQ%g", 0); !slices.Equal(got, []string{"body"}) {
		t.Errorf("dead letters are %q", got)
	}
	var es [1]store.TopicEntry
	s.ReadTopic("%DLQ%g", 0, es[:])
	raw, _, err := s.Record(es[0].Entry)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := record.Parse(raw); err != nil {
		t.Fatal(err)
	} else if why, _ := v.Property("__reason"); string(why) != "attempts" {
		t.Errorf("reason is %q", why)
	}
}

// A cancel that comes when the message is due: either it is taken back or it is published.
func TestLaw5CancelledOrPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := tryOpen(t, store.Options{FS: vfs.NewMem(), Dir: "/s"})
		if err != nil {
			t.Fatal(err)
		}
		addTopic(t, s, "T", meta.Async)
		const n = 2000
		due := time.Now().Add(time.Second)
		var rs [n]store.Result
		for i := range rs {
			rs[i] = sendWaiting(t, s, store.Message{Topic: "T", Body: fmt.Append(nil, i), DeliverAt: due.UnixMilli()})
		}
		var cancelled [n]bool
		var wg sync.WaitGroup
		for k := range 4 {
			wg.Go(func() {
				time.Sleep(time.Until(due))
				for i := n - 1 - k; i >= 0; i -= 4 {
					err := s.CancelDelay(t.Context(), rs[i].Address)
					if err != nil && !errors.Is(err, store.ErrNoDelay) {
						t.Error(err)
					}
					cancelled[i] = err == nil
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		got := map[string]int{}
		for _, b := range bodies(t, s, "T", 0) {
			got[b]++
		}
		taken := 0
		for i := range rs {
			want := 1
			if cancelled[i] {
				want, taken = 0, taken+1
			}
			if got[fmt.Sprint(i)] != want {
				t.Errorf("message %d, cancelled %v, is in the queue %d times", i, cancelled[i], got[fmt.Sprint(i)])
			}
		}
		t.Logf("%d of %d cancelled", taken, n)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A time that is centuries away is waited for like any other.
func TestPublisherRestsBeforeATimeThatIsFarAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		over := make(chan struct{})
		s := open(t, store.Options{Dir: "/s", FS: vfs.NewMem(), Now: func() time.Time {
			if asked.Add(1) > 10_000 {
				<-over // who asks without a rest keeps the bubble's clock from moving
			}
			return time.Now()
		}})
		addTopic(t, s, "T", meta.Async)
		es := []store.HalfEnd{{Address: half(t, s, "T", 0, "half").Address, Commit: true, Due: 12_000_000_000_000}} // in 2350
		if s.EndHalves(t.Context(), es); es[0].Err != nil {
			t.Fatal(es[0].Err)
		}
		settle(t, s)
		send(t, s, "T", 0, "another")
		begin := asked.Load()
		time.Sleep(50 * time.Millisecond)
		if n := asked.Load() - begin; n > 100 {
			t.Errorf("the time was asked for %d times in 50 ms", n)
		}
		close(over)
	})
}
