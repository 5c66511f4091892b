package store_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// views lists the entries of a queue whose address is not that of their body.
func views(t testing.TB, s *store.Store, topic string) (vs []store.TopicEntry) {
	t.Helper()
	var es [1]store.TopicEntry
	for from := int64(0); s.ReadTopic(topic, from, es[:]) == 1; from = es[0].Address + 1 {
		if es[0].Address != es[0].Position {
			vs = append(vs, es[0])
		}
	}
	return vs
}

// Law 5: a view that is retained although its body went early is named in an expiry record of each group that has not read it, once; what
// is owed by name keeps its body, and what is beside it stays readable.
func TestLaw5ViewsWhoseBodyWentEarlyAreNamed(t *testing.T) {
	for _, restart := range []bool{false, true} {
		name := "running"
		if restart {
			name = "after a start"
		}
		t.Run(name, func(t *testing.T) {
			c, mem := newClock(), vfs.NewMem()
			o := retentionOn(c, mem)
			o.Retention.ViewWindow = time.Hour
			s, err := tryOpen(t, o)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			addTopic(t, s, "T", meta.Async)
			addTopic(t, s, "F", meta.Async)
			operate(t, s, bindOps("T", "now")...)
			operate(t, s, bindOps("T", "off")...)
			operate(t, s, state.Op{Kind: state.OpDetach, Topic: "T", Group: "off"})
			operate(t, s, bindOps("T", "read")...)
			operate(t, s, state.Op{Kind: state.OpDetach, Topic: "T", Group: "read"})
			hs := []store.Result{half(t, s, "T", 0, "first"), half(t, s, "T", 0, "second"), half(t, s, "T", 0, "third")}
			for range 3 {
				fillTopic(t, s, c, "F", 1, 80)
				send(t, s, "T", 0, "plain")
			}
			for _, h := range hs {
				send(t, s, "T", 0, "plain")
				if err := endHalf(s, h.Address, true); err != nil {
					t.Fatal(err)
				}
			}
			settle(t, s)
			vs := views(t, s, "T") // at 4, 6 and 8
			operate(t, s, state.Op{Kind: state.OpRetire, Topic: "T", Group: "now", First: 0, Last: vs[1].Address}, opCursor("T", "read", vs[2].Address+1))
			s.Offsets().Commit("p", "T", 0, 3)
			s.Offsets().Commit("q", "T", 0, 7)
			s.Offsets().Commit("r", "T", 0, 9)
			settle(t, s)
			if restart {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				o.Exchange = newFanout()
				if s, err = tryOpen(t, o); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // the first takes the bodies, the second none
				mem.SetDisk(diskTotal*15/100-1, diskTotal)
				if n := look(t, s); n != 1 {
					t.Fatalf("%d segments deleted, want 1", n)
				}
			}
			if s.Bounds().Min > vs[0].Address {
				t.Fatal("the views have gone, too")
			}
			all, err := s.Expiries(100)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]store.Expiry{}
			for _, e := range all {
				if e.Reason != "body" {
					continue
				}
				key := e.Face + " " + e.Group
				if _, twice := got[key]; twice {
					t.Errorf("named twice: %+v", e)
				}
				e.Time, e.Below, e.Reason, e.Face, e.Group = 0, 0, "", "", ""
				got[key] = e
			}
			if d := cmp.Diff(map[string]store.Expiry{
				"pull p": {Topic: "T", First: 4, Last: 8, Count: 3}, "pull q": {Topic: "T", First: 8, Last: 8, Count: 1}, "push off": {Topic: "T", First: 4, Last: 8, Count: 3},
			}, got); d != "" {
				t.Errorf("views in expiry records (-want +got):\n%s", d)
			}
			if low, high := s.Queue("T", 0, false).Range(); low != 1 && low != 2 || high != 9 {
				t.Errorf("the queue is [%d, %d)", low, high)
			}
			for i, v := range vs {
				b, release, err := s.Record(v.Entry)
				if i < 2 {
					if !errors.Is(err, log.ErrRange) {
						t.Errorf("view %d: %q, %v", i, b, err)
					}
					if _, _, err := s.RecordAt(v.Address); err == nil {
						t.Errorf("view %d is found by its address", i)
					}
					continue
				}
				if err != nil || !strings.Contains(string(b), "third") { // owed to the attached group by name
					t.Errorf("view %d: %q, %v", i, b, err)
					continue
				}
				release()
				if at, done, err := s.RecordAt(v.Address); err != nil || string(at) != string(b) {
					t.Errorf("view %d by its address: %q, %v", i, at, err)
				} else {
					done()
				}
			}
		})
	}
}

// A topic that is kept until it is consumed keeps the bodies of its views, too.
func TestBodiesOfViewsAreKeptUntilConsumed(t *testing.T) {
	c := newClock()
	s := open(t, retention(c))
	cfg := meta.DefaultTopic("K")
	cfg.Attributes = map[string]string{"fusion.until-consumed": "true"}
	if err := s.Topics().Put(cfg); err != nil {
		t.Fatal(err)
	}
	addTopic(t, s, "F", meta.Async)
	operate(t, s, bindOps("K", "off")...)
	operate(t, s, state.Op{Kind: state.OpDetach, Topic: "K", Group: "off"})
	h := half(t, s, "K", 0, "body")
	fillTopic(t, s, c, "F", 1, 80)
	if err := endHalf(s, h.Address, true); err != nil {
		t.Fatal(err)
	}
	fillTopic(t, s, c, "F", 1, 80)
	settle(t, s)
	c.pass(10 * time.Hour)
	if n := look(t, s); n != 0 {
		t.Fatalf("%d segments deleted, the first has a body that a group has not read", n)
	}
	operate(t, s, opCursor("K", "off", s.Bounds().Max))
	settle(t, s)
	if n := look(t, s); n == 0 {
		t.Error("nothing deleted although everything was read")
	}
}

// Bodies of a queue are in any order: a group has passed everything in the first segment, so its first unread message is in a later one, and
// still it has not read a view whose body is in the first. The segment stays until the view is read, or for as long as the topic says after the
// view was made; also after a start, when nobody has looked where the bodies of views are, and while the log cannot be read.
func TestBodiesBelowTheFirstUnreadMessageAreKeptUntilConsumed(t *testing.T) {
	for _, way := range []string{"read", "age", "a start", "unavailable"} {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClock()
				var full atomic.Bool
				o := retentionOn(c, vfs.Intercept(vfs.NewMem(), func(op vfs.Op) error {
					if op.Kind == "openread" && full.Load() {
						return syscall.EMFILE
					}
					return nil
				}))
				o.Retention.ViewWindow = 30 * time.Minute
				s, err := tryOpen(t, o)
				if err != nil {
					t.Fatal(err)
				}
				cfg := meta.DefaultTopic("K")
				cfg.Attributes = map[string]string{"fusion.until-consumed": "3h"}
				if err := s.Topics().Put(cfg); err != nil {
					t.Fatal(err)
				}
				addTopic(t, s, "F", meta.Async)
				operate(t, s, bindOps("K", "off")...)
				operate(t, s, state.Op{Kind: state.OpDetach, Topic: "K", Group: "off"})
				h := half(t, s, "K", 0, "body")
				fillTopic(t, s, c, "F", 1, 80)
				first := send(t, s, "K", 0, "the first unread message")
				fillTopic(t, s, c, "F", 1, 80)
				c.pass(11 * time.Minute)
				if err := endHalf(s, h.Address, true); err != nil {
					t.Fatal(err)
				}
				view := views(t, s, "K")[0]
				fillTopic(t, s, c, "F", 1, 80)
				operate(t, s, opCursor("K", "off", first.Address))
				settle(t, s)
				if segment := o.SegmentBytes; view.Position/segment >= first.Address/segment || first.Address/segment >= view.Address/segment {
					t.Fatalf("body at %d, first unread message at %d, view at %d", view.Position, first.Address, view.Address)
				}
				if way == "a start" || way == "unavailable" {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					o.Exchange = newFanout()
					if s, err = tryOpen(t, o); err != nil {
						t.Fatal(err)
					}
				}
				c.pass(90 * time.Minute)
				if way == "unavailable" {
					time.Sleep(time.Hour) // no segment is open for reading any more
					full.Store(true)
					if n, _ := s.Look(); n != 0 {
						t.Errorf("%d segments deleted while nobody can tell what is in them", n)
					}
					full.Store(false)
				}
				for range 2 {
					if n := look(t, s); n != 0 {
						t.Fatalf("%d segments deleted, the first has a body that a group has not read", n)
					}
				}
				if way == "age" {
					c.pass(80 * time.Minute) // more than three hours after the body was stored, less after the view was made
					if n := look(t, s); n != 0 {
						t.Fatalf("%d segments deleted, the first has a body that may be read for three hours", n)
					}
					c.pass(30 * time.Minute)
				} else {
					operate(t, s, opCursor("K", "off", view.Address+1))
					settle(t, s)
				}
				if n := look(t, s); n == 0 {
					t.Error("nothing deleted in the end")
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// What attached groups are owed of a view whose body has gone early is in the checkpoint that the deletion leaves: the replay of an older one
// would have to read the body to know who is owed it.
func TestLaw5WhatIsOwedOfAViewNeedsNoBodyThatHasGone(t *testing.T) {
	c, mem := newClock(), vfs.NewMem()
	o := retentionOn(c, mem)
	o.Retention.ViewWindow = time.Hour
	s, err := tryOpen(t, o)
	if err != nil {
		t.Fatal(err)
	}
	addTopic(t, s, "T", meta.Async)
	addTopic(t, s, "F", meta.Async)
	operate(t, s, bindOps("T", "g")...)
	h := half(t, s, "T", 0, "body")
	fillTopic(t, s, c, "F", 1, 70)
	settle(t, s)
	if err := s.Close(); err != nil { // a checkpoint in the second segment
		t.Fatal(err)
	}
	o.CheckpointBytes, o.Exchange = 1<<30, newFanout()
	if s, err = tryOpen(t, o); err != nil {
		t.Fatal(err)
	}
	if err := endHalf(s, h.Address, true); err != nil {
		t.Fatal(err)
	}
	settle(t, s)
	want := owedRecords(t, s, []string{"T"})
	mem.SetDisk(diskTotal*15/100-1, diskTotal)
	if n := look(t, s); n != 1 || len(want) != 1 {
		t.Fatalf("%d segments deleted, %d messages owed, want 1 of each", n, len(want))
	}
	after := mem.CrashClone(rand.New(rand.NewPCG(1, 1)), 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	o.FS, o.Exchange = after, newFanout()
	s = open(t, o)
	if d := cmp.Diff(want, owedRecords(t, s, []string{"T"})); d != "" {
		t.Errorf("owed after the power cut (-before +after):\n%s", d)
	}
}
