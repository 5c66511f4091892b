package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// sender is a front end: it gives a message of number n what it is known by.
type sender struct {
	name string
	give func(m *store.Message, n int)
}

var senders = []sender{
	{"Notify", func(m *store.Message, n int) { m.Once, m.Properties = true, onceProps(n) }},
	{"RocketMQ", func(m *store.Message, n int) {
		m.Properties = record.AppendProperty([]byte("KEYS\x01k\x02"), "UNIQ_KEY", fmt.Sprintf("7F%030X", n))
	}},
}

// waits are the ways to wait. A time counts from now.
var waits = []struct {
	name string
	set  func(m *store.Message)
}{
	{"half", func(m *store.Message) { m.Half, m.SysFlag = true, record.FlagTxPrepared }},
	{"level", func(m *store.Message) { m.DelayLevel = 18 }}, // 2 h
	{"time", func(m *store.Message) { m.DeliverAt = time.Now().Add(2 * time.Hour).UnixMilli() }},
}

func onceWaiting(f sender, set func(*store.Message), queue int32, n int) store.Message {
	m := store.Message{Topic: "T", Queue: queue, Body: fmt.Appendf(nil, "body %d", n)}
	if f.give(&m, n); set != nil {
		set(&m)
	}
	return m
}

func appendOne(s *store.Store, m store.Message) store.Result {
	var rs [1]store.Result
	s.Append([]store.Message{m}, rs[:])
	return rs[0]
}

// repeated fails unless r is the result of a repeat of first, or, when that is no longer wanted, of a message of its own.
func repeated(t testing.TB, what string, first, r store.Result, want bool) {
	t.Helper()
	if r.Err != nil || r.Repeated != want || want && otherResult(first, r) != "" {
		t.Errorf("%s: %+v, want repeated %v of %+v", what, r, want, first)
	}
}

// Laws 1 and 5, ruling A22: what waits is stored once, however it is sent again: together with the first, at once by several, after a power
// cut, for days while it waits, and for ten minutes after it was sent.
func TestLaw5WhatWaitsIsStoredOnce(t *testing.T) {
	for _, f := range senders {
		for _, w := range waits {
			t.Run(f.name+" "+w.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { storedOnce(t, f, w.set, w.name == "half") })
			})
		}
	}
}

func storedOnce(t *testing.T, f sender, set func(*store.Message), half bool) {
	o := store.Options{FS: vfs.NewMem(), Dir: "/s", SegmentBytes: 64 << 10, CheckpointBytes: 64 << 10, Exchange: newFanout(), Retention: store.Retention{Interval: 24 * time.Hour}}
	s, err := tryOpen(t, o)
	if err != nil {
		t.Fatal(err)
	}
	c := meta.DefaultTopic("T")
	c.Attributes = map[string]string{meta.OnceAttribute: "true", meta.DurabilityAttribute: "sync"}
	if err := s.Topics().Put(c); err != nil {
		t.Fatal(err)
	}
	plain := appendOne(s, onceWaiting(f, nil, 0, 1000))

	ms := make([]store.Message, 3) // in one call
	rs := make([]store.Result, 3)
	for i := range ms {
		ms[i] = onceWaiting(f, set, int32(i), 1)
	}
	s.Append(ms, rs)
	first := rs[0]
	if first.Err != nil || first.Repeated {
		t.Fatalf("%+v", first)
	}
	repeated(t, "in one call", first, rs[1], true)
	repeated(t, "in one call", first, rs[2], true)

	var wg sync.WaitGroup // at once
	at := make([]store.Result, 6)
	for i := range at {
		wg.Go(func() { at[i] = appendOne(s, onceWaiting(f, set, int32(i), 2)) })
	}
	wg.Wait()
	stored := 0
	for _, r := range at {
		if !r.Repeated {
			stored++
		}
		if r.Err != nil || otherResult(at[0], r) != "" {
			t.Errorf("at once: %+v and %+v", at[0], r)
		}
	}
	if stored != 1 {
		t.Errorf("stored %d times", stored)
	}
	repeated(t, "a plain one with its id", first, appendOne(s, onceWaiting(f, nil, 0, 1)), true)
	repeated(t, "one that waits with the id of a plain one", plain, appendOne(s, onceWaiting(f, set, 0, 1000)), true)

	mem := o.FS.(*vfs.Mem).CrashClone(rand.New(rand.NewPCG(1, 1)), 0) // what was not synced is lost
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	o.FS = mem
	s = open(t, o)
	repeated(t, "after a power cut", first, appendOne(s, onceWaiting(f, set, 3, 1)), true)
	time.Sleep(time.Hour)
	repeated(t, "after an hour, its filter not made yet", first, appendOne(s, onceWaiting(f, set, 3, 1)), true)
	synctest.Wait()
	asked := s.OnceStats().Asked
	for n := range 200 {
		if r := appendOne(s, onceWaiting(f, nil, 0, 2000+n)); r.Err != nil || r.Repeated {
			t.Fatalf("a new one: %+v", r)
		}
	}
	if asked = s.OnceStats().Asked - asked; asked > 20 {
		t.Errorf("the key index was asked for %d of 200 new ids while something old waits", asked)
	}
	repeated(t, "after an hour", first, appendOne(s, onceWaiting(f, set, 3, 1)), true)
	repeated(t, "the plain one after an hour", plain, appendOne(s, onceWaiting(f, nil, 0, 1000)), false)

	if half {
		if err := endHalf(s, first.Address, true); err != nil {
			t.Fatal(err)
		}
	} else {
		time.Sleep(time.Hour + time.Second)
		synctest.Wait()
	}
	if got := bodies(t, s, "T", 0); !contains(got, "body 1") {
		t.Fatalf("not published: %q", got)
	}
	time.Sleep(10 * time.Minute)
	repeated(t, "published, and owed to nobody", first, appendOne(s, onceWaiting(f, set, 3, 1)), false)
	if !half {
		return
	}
	// Within ten minutes of its send the outcome changes nothing, but for a rolled back one of RocketMQ.
	yes, no := appendOne(s, onceWaiting(f, set, 1, 3)), appendOne(s, onceWaiting(f, set, 1, 4))
	if err := endHalf(s, yes.Address, true); err != nil {
		t.Fatal(err)
	}
	if err := endHalf(s, no.Address, false); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		repeated(t, "committed", yes, appendOne(s, onceWaiting(f, set, 0, 3)), true)
	}
	again := appendOne(s, onceWaiting(f, set, 0, 4))
	repeated(t, "rolled back", no, again, f.name == "Notify")
	repeated(t, "rolled back", again, appendOne(s, onceWaiting(f, set, 0, 4)), true)
}

func contains(all []string, one string) bool {
	for _, s := range all {
		if s == one {
			return true
		}
	}
	return false
}

// Ruling A22: an id is known while its message is pushed and unanswered, or waits for its next attempt, whichever way it came there.
func TestIDIsKnownWhileItsMessageIsOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, store.Options{FS: vfs.NewMem(), Dir: "/s", SegmentBytes: 1 << 20, Exchange: newFanout(), OnceBytes: 64 << 10, Retention: store.Retention{Interval: 24 * time.Hour}})
		addTopic(t, s, "T", meta.Async)
		addTopic(t, s, "Other", meta.Async)
		cursor := sendOnce(s, "T", 0, 1, "read by a cursor later")
		operate(t, s, bindOps("T", "g")...)
		operate(t, s, bindOps("T", "gone")...)
		window, detached := sendOnce(s, "T", 0, 2, "not answered"), sendOnce(s, "T", 0, 3, "in flight as the group goes")
		delayed := appendOne(s, store.Message{Topic: "T", Body: []byte("fails when it is due"), Properties: onceProps(4), Once: true, DelayLevel: 17}) // 1 h
		operate(t, s, state.Op{Kind: state.OpRetire, Topic: "T", Group: "g", First: detached.Address},
			state.Op{Kind: state.OpRetire, Topic: "T", Group: "gone", First: window.Address})
		round := func() { // a send, and what that makes the filter do
			sendOnce(s, "T", 1, rand.Int(), "x")
			settle(t, s)
			synctest.Wait()
			var ops []state.Op
			for _, p := range s.Pending("T", 0, 100) {
				if p.Address > delayed.Address && len(p.Targets) == 2 && !published(s, p.Address) {
					ops = append(ops, state.Op{Kind: state.OpDelete, Topic: "T", First: p.Address, Last: p.Address})
				}
			}
			operate(t, s, ops...)
		}
		all := func(when string, want ...bool) {
			t.Helper()
			for i, first := range []store.Result{cursor, window, detached, delayed} {
				if want[i] {
					repeated(t, fmt.Sprint(when, ", id ", i+1), first, sendOnce(s, "T", 3, i+1, "again"), true)
				}
			}
		}
		round()
		operate(t, s, state.Op{Kind: state.OpDetach, Topic: "T", Group: "gone"})
		for range 8 { // 20 minutes, in steps in which the filter follows
			time.Sleep(150 * time.Second)
			round()
		}
		for range 3000 { // more than is remembered one by one
			sendOnce(s, "Other", 1, rand.Int(), "x")
		}
		all("unanswered", false, true, true, true)
		operate(t, s, state.Op{Kind: state.OpUpdate, Topic: "T", First: cursor.Address, Failed: []state.Failed{{Group: "gone", Attempt: 1, Due: 1 << 50}}},
			state.Op{Kind: state.OpUpdate, Topic: "T", First: window.Address, Failed: []state.Failed{{Group: "g", Attempt: 1, Due: 1 << 50}}})
		all("in the retry line", true, true, true, true)
		time.Sleep(time.Hour)
		synctest.Wait()
		round()
		at := int64(-1)
		for _, p := range s.Pending("T", delayed.Address, 100) {
			if published(s, p.Address) {
				at = p.Address
			}
		}
		operate(t, s, state.Op{Kind: state.OpUpdate, Topic: "T", First: at, Failed: []state.Failed{{Group: "g", Attempt: 1, Due: 1 << 50}}})
		all("due and failed", true, true, true, true)
		for _, a := range []int64{cursor.Address, window.Address, detached.Address, at} {
			for _, g := range []string{"g", "gone"} {
				operate(t, s, state.Op{Kind: state.OpRetire, Topic: "T", Group: g, First: a})
			}
		}
		for i, first := range []store.Result{cursor, window, detached, delayed} {
			repeated(t, fmt.Sprint("answered, id ", i+1), first, sendOnce(s, "T", 3, i+1, "again"), false)
		}
	})
}

// published tells whether a view is at an address.
func published(s *store.Store, at int64) bool {
	e, _, release, err := s.EntryAt(at)
	if err != nil {
		return false
	}
	release()
	return e.Address != e.Position
}

// Retention moves what is owed; its id stays known, with the first result.
func TestLaw1IDOfAMovedMessageIsKnown(t *testing.T) {
	for _, f := range senders {
		t.Run(f.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := vfs.NewMem()
				o := store.Options{FS: mem, Dir: "/s", SegmentBytes: 64 << 10, CheckpointBytes: 64 << 10, Exchange: newFanout(), Retention: store.Retention{Age: time.Hour, Interval: 1000 * time.Hour}}
				s, err := tryOpen(t, o)
				if err != nil {
					t.Fatal(err)
				}
				addOnceTopic(t, s, "T", "true")
				addTopic(t, s, "Other", meta.Async)
				var first []store.Result
				for i, w := range waits {
					m := onceWaiting(f, w.set, 2, i)
					if w.name != "half" {
						m.DelayLevel, m.DeliverAt = 0, time.Now().Add(30*24*time.Hour).UnixMilli()
					}
					first = append(first, appendOne(s, m))
				}
				for turn := range 3 { // moved, and moved again
					for range 10 {
						time.Sleep(20 * time.Minute)
						for range 10 {
							send(t, s, "Other", 0, strings.Repeat(".", 3000))
						}
					}
					if n := clean(t, s); n == 0 || s.Bounds().Min <= first[2].Address {
						t.Fatalf("turn %d: %d segments deleted", turn, n)
					}
					ask := func(when string) {
						for i := range waits {
							repeated(t, fmt.Sprint(when, ", turn ", turn, ", ", waits[i].name), first[i], appendOne(s, onceWaiting(f, waits[i].set, 0, i)), true)
						}
					}
					ask("as it is")
					for i := range waits { // what waits is not visible, wherever it is
						v := record.Properties(onceWaiting(f, nil, 0, i).Properties)
						for name, id := range v {
							if string(name) != "UNIQ_KEY" {
								continue
							}
							if got := byKey(t, s, store.KeyQuery{Topic: "T", Key: string(id), Unique: true}); len(got) != 0 {
								t.Errorf("turn %d: %s is found at %v", turn, id, got)
							}
						}
					}
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					dropViews(t, mem, "/s")
					if s, err = tryOpen(t, o); err != nil {
						t.Fatal(err)
					}
					ask("without views")
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// Random sends of what waits and what does not, their ends, time, restarts and lost views against a plain map.
func TestOnceWaitingModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) { onceWaitingModel(rt) })
	})
}

func onceWaitingModel(rt *rapid.T) {
	m := vfs.NewMem()
	o := store.Options{FS: m, Dir: "/s", SegmentBytes: 64 << 10, CheckpointBytes: 64 << 10, OnceWindow: 10 * time.Second, OnceBytes: 64 << 10, Retention: store.Retention{Interval: 24 * time.Hour}}
	s, err := store.Open(o)
	if err != nil {
		rt.Fatal(err)
	}
	defer func() {
		_ = s.Close()
		for _, f := range findings(o) {
			rt.Errorf("check: %s", f)
		}
	}()
	c := meta.DefaultTopic("T")
	c.Attributes = map[string]string{meta.OnceAttribute: "true"}
	if err := s.Topics().Put(c); err != nil {
		rt.Fatal(err)
	}
	type stored struct {
		r     store.Result
		until time.Time // it waits until then; zero: not at all
		half  bool      // undecided
		back  bool      // rolled back
	}
	first := map[string]*stored{}
	forever := time.Now().Add(1000 * time.Hour)
	rt.Repeat(map[string]func(*rapid.T){
		"send": func(rt *rapid.T) {
			for range rapid.IntRange(1, 5).Draw(rt, "messages") {
				f, n := rapid.SampledFrom(senders).Draw(rt, "sender"), rapid.IntRange(0, 9).Draw(rt, "id")
				msg, until := onceWaiting(f, nil, rapid.Int32Range(0, 3).Draw(rt, "queue"), n), time.Time{}
				switch rapid.SampledFrom([]string{"plain", "half", "delay"}).Draw(rt, "kind") {
				case "half":
					msg.Half, until = true, forever
				case "delay":
					until = time.Now().Add(time.Duration(rapid.IntRange(1, 60).Draw(rt, "delay")) * time.Second)
					msg.DeliverAt = until.UnixMilli()
				}
				got := appendOne(s, msg)
				key := fmt.Sprint(f.name, n)
				was := first[key]
				want := was != nil && (time.Now().UnixMilli()-was.r.StoreTime <= o.OnceWindow.Milliseconds() || time.Now().Before(was.until))
				if want && was.back && f.name == "RocketMQ" {
					want = false
				}
				if got.Err != nil || got.Repeated != want || want && otherResult(was.r, got) != "" {
					rt.Fatalf("%s, kind %v: %+v, want repeated %v, first %+v", key, msg.Half, got, want, was)
				}
				if !want {
					first[key] = &stored{r: got, until: until, half: msg.Half}
				}
			}
		},
		"end": func(rt *rapid.T) {
			commit := rapid.Bool().Draw(rt, "commit")
			for _, f := range senders {
				if w := first[fmt.Sprint(f.name, rapid.IntRange(0, 9).Draw(rt, "id"))]; w != nil && w.half {
					if err := endHalf(s, w.r.Address, commit); err != nil {
						rt.Fatal(err)
					}
					w.half, w.back, w.until = false, !commit, time.Time{}
				}
			}
			if err := s.WaitApplied(context.Background(), s.Bounds().Max-1); err != nil {
				rt.Fatal(err)
			}
		},
		"time": func(rt *rapid.T) {
			time.Sleep(time.Duration(rapid.IntRange(0, 8000).Draw(rt, "ms"))*time.Millisecond + time.Microsecond)
			synctest.Wait()
		},
		"reopen": func(rt *rapid.T) {
			if err := s.Close(); err != nil {
				rt.Fatal(err)
			}
			names, _ := m.List("/s/fusionmq/keys")
			for _, name := range names {
				if rapid.Bool().Draw(rt, "lose "+name) {
					if err := m.Remove("/s/fusionmq/keys/" + name); err != nil {
						rt.Fatal(err)
					}
				}
			}
			if s, err = store.Open(o); err != nil {
				rt.Fatal(err)
			}
			synctest.Wait()
		},
	})
}

// Ruling A16: the outcome of a transaction is remembered for as long as its id is, and ten minutes at least, also over a restart.
func TestOutcomesAreRememberedForTheWindow(t *testing.T) {
	for window, want := range map[time.Duration]time.Duration{time.Second: 15 * time.Minute, 3 * time.Hour: 3*time.Hour + 5*time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			o := store.Options{FS: vfs.NewMem(), Dir: "/s", SegmentBytes: 64 << 10, OnceWindow: window, Retention: store.Retention{Interval: 24 * time.Hour}}
			s, err := tryOpen(t, o)
			if err != nil {
				t.Fatal(err)
			}
			addTopic(t, s, "T", meta.Async)
			first := half(t, s, "T", 0, "x")
			if err := endHalf(s, first.Address, true); err != nil {
				t.Fatal(err)
			}
			for _, at := range []time.Duration{want - time.Minute, want + time.Minute} {
				time.Sleep(at - time.Since(time.UnixMilli(first.StoreTime)))
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if s, err = tryOpen(t, o); err != nil {
					t.Fatal(err)
				}
				other := half(t, s, "T", 0, "of another one") // outcomes are forgotten as operations come
				if err := endHalf(s, other.Address, false); err != nil {
					t.Fatal(err)
				}
				settle(t, s)
				if got, known := s.Half(first.Address).Outcome, at < want; known != (got == state.Committed) {
					t.Errorf("window %v: outcome %d after %v, want it to be known until %v", window, got, at, want)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
