package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// windowed are options of a store that keeps messages for an hour, a view window of a quarter, and looks only when it is told to.
func windowed(fsys vfs.FS) store.Options {
	return store.Options{
		Dir: "/s", FS: fsys, SegmentBytes: 64 << 10, CheckpointBytes: 64 << 10, FlushInterval: time.Hour, PersistInterval: time.Hour,
		DelayLevels: []time.Duration{time.Second, 20 * time.Minute}, Retention: store.Retention{Age: time.Hour, Interval: 1000 * time.Hour},
	}
}

// publishes are the ways to have a message published after a while. Each stores one with a body and returns what publishes it once
// the time has passed, and the topic and queue that it is seen in then.
var publishes = []struct {
	name  string
	topic string
	queue int32
	store func(t *testing.T, s *store.Store, body string, wait time.Duration) (publish func())
}{
	{"commit", "T", 1, func(t *testing.T, s *store.Store, body string, _ time.Duration) func() {
		h := half(t, s, "T", 1, body)
		return func() {
			if err := endHalf(s, h.Address, true); err != nil {
				t.Error(err)
			}
		}
	}},
	{"commit for later", "T", 1, func(t *testing.T, s *store.Store, body string, wait time.Duration) func() {
		es := []store.HalfEnd{{Address: half(t, s, "T", 1, body).Address, Commit: true, Due: time.Now().Add(wait - time.Second).UnixMilli()}}
		if s.EndHalves(context.Background(), es); es[0].Err != nil {
			t.Error(es[0].Err)
		}
		return func() {}
	}},
	{"time", "T", 1, func(t *testing.T, s *store.Store, body string, wait time.Duration) func() {
		sendWaiting(t, s, store.Message{Topic: "T", Queue: 1, Body: []byte(body), DeliverAt: time.Now().Add(wait - time.Second).UnixMilli()})
		return func() {}
	}},
	{"sent back", "%RETRY%g", 0, func(t *testing.T, s *store.Store, body string, wait time.Duration) func() {
		level := int32(1)
		if wait >= 20*time.Minute {
			level = 2
		}
		if _, err := s.SendBack(context.Background(), store.SendBack{Group: "g", Address: send(t, s, "T", 1, body).Address, Level: level, Most: 5}); err != nil {
			t.Error(err)
		}
		return func() {}
	}},
	{"dead letter", "%DLQ%g", 0, func(t *testing.T, s *store.Store, body string, _ time.Duration) func() {
		r := send(t, s, "T", 1, body)
		return func() {
			if dead, err := s.SendBack(context.Background(), store.SendBack{Group: "g", Address: r.Address, Level: -1}); err != nil || !dead {
				t.Error(dead, err)
			}
		}
	}},
	{"set aside", store.AsideTopic, 0, func(t *testing.T, s *store.Store, body string, _ time.Duration) func() {
		h := half(t, s, "T", 1, body)
		return func() {
			if err := s.SetHalvesAside([]int64{h.Address}); err != nil {
				t.Error(err)
			}
		}
	}},
}

// lastOf is the newest message of a queue: its entry and what a reader gets.
func lastOf(t *testing.T, s *store.Store, topic string, id int32) (store.TopicEntry, string) {
	t.Helper()
	q := s.Queue(topic, id, false)
	if q == nil {
		t.Fatalf("nothing was published to %s/%d", topic, id)
	}
	_, high := q.Range()
	var es [1]store.TopicEntry
	for from := int64(0); s.ReadTopic(topic, from, es[:]) == 1; from = es[0].Address + 1 {
		if es[0].Queue == id && es[0].QueueOffset == high-1 {
			break
		}
	}
	b, release, err := s.Record(es[0].Entry)
	if err != nil {
		t.Fatalf("%s/%d at %d: %v", topic, id, es[0].QueueOffset, err)
	}
	defer release()
	if at, done, err := s.RecordAt(es[0].Address); err != nil || string(at) != string(b) {
		t.Errorf("%s/%d: by its address %q (%v), by its entry %q", topic, id, at, err, b)
	} else {
		done()
	}
	return es[0], string(b)
}

// shape is a record without what is of its place and time.
func shape(t *testing.T, raw string) map[string]string {
	t.Helper()
	v, err := record.Parse([]byte(raw))
	if err != nil || v.CheckBody() != nil {
		t.Fatal(err, v.CheckBody())
	}
	m := map[string]string{"topic": string(v.Topic()), "sys": fmt.Sprint(v.SysFlag()), "reconsume": fmt.Sprint(v.ReconsumeTimes()), "prepared": fmt.Sprint(v.PreparedOffset() > 0), "queue": fmt.Sprint(v.QueueID())}
	for name, value := range record.Properties(v.Properties()) {
		switch string(name) {
		case "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "ORIGIN_MESSAGE_ID", "DELAY":
			value = nil
		}
		m[string(name)] = string(value)
	}
	return m
}

// Law 2 and its exception: what is published within the view window after its body was stored is a few bytes; what is published later gets
// its body again, reads the same but for place and time, and has its body for as long as the age limit, whatever segment the first one
// was in. Law 1: the same without views.
func TestLaw2BodyOlderThanTheViewWindowIsAppendedAgain(t *testing.T) {
	for _, p := range publishes {
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := vfs.NewMem()
				s, err := tryOpen(t, windowed(mem))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = s.Close() }()
				addTopic(t, s, "T", meta.Async)
				addTopic(t, s, "F", meta.Async)
				send(t, s, "F", 0, "so that no half is at 0")
				body := strings.Repeat("b", 4000)
				run := func(wait time.Duration) (again, log int64, raw string) {
					publish := p.store(t, s, body, wait)
					for range 100 { // its segment ends
						send(t, s, "F", 0, strings.Repeat("f", 1000))
					}
					before := s.Bounds().Max
					time.Sleep(wait)
					publish()
					synctest.Wait()
					time.Sleep(2 * time.Second)
					synctest.Wait()
					_, raw = lastOf(t, s, p.topic, p.queue)
					return s.Cleaned().Again, s.Bounds().Max - before, raw
				}
				again, log, young := run(14 * time.Minute)
				if again != 0 || log > 500 {
					t.Errorf("published within the window: %d bodies again, the log has grown by %d bytes", again, log)
				}
				again, log, old := run(20 * time.Minute)
				if again != 1 || log < 4000 {
					t.Errorf("published behind the window: %d bodies again, the log has grown by %d bytes", again, log)
				}
				if d := cmp.Diff(shape(t, young), shape(t, old)); d != "" {
					t.Errorf("what is seen (-body in its place +body again):\n%s", d)
				}
				time.Sleep(56 * time.Minute) // 76 after it was stored, 58 after it was published
				if clean(t, s) == 0 {
					t.Fatal("nothing was deleted")
				}
				e, kept := lastOf(t, s, p.topic, p.queue)
				if kept != old {
					t.Errorf("behind the deletion\n%q, before\n%q", kept, old)
				}
				if e.Position < s.Bounds().Min {
					t.Errorf("its body is at %d, the log begins at %d", e.Position, s.Bounds().Min)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				dropViews(t, mem, "/s")
				if s, err = tryOpen(t, windowed(mem)); err != nil {
					t.Fatal(err)
				}
				if _, again := lastOf(t, s, p.topic, p.queue); again != old {
					t.Errorf("without views\n%q, with them\n%q", again, old)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// What was moved is as old as the place that it was moved to.
func TestLaw2MovedBodyIsAsOldAsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := tryOpen(t, windowed(vfs.NewMem()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		addTopic(t, s, "T", meta.Async)
		var hs []store.Result
		for i := range 3 {
			hs = append(hs, half(t, s, "T", 0, fmt.Sprint("half ", i)))
		}
		for range 100 {
			send(t, s, "T", 1, strings.Repeat("f", 1000))
		}
		settle(t, s)
		time.Sleep(76 * time.Minute)
		if clean(t, s) == 0 || s.Cleaned().Moved != 3 {
			t.Fatalf("nothing was moved: %+v", s.Cleaned())
		}
		for i, later := range []time.Duration{0, 15 * time.Minute, time.Minute} {
			time.Sleep(later)
			if err := endHalf(s, hs[i].Address, true); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.Cleaned().Again; got != 1 {
			t.Errorf("%d bodies were appended again, want the one published 16 minutes after it was moved", got)
		}
		if got := bodies(t, s, "T", 0); !slices.Equal(got, []string{"half 0", "half 1", "half 2"}) {
			t.Errorf("published are %q", got)
		}
	})
}

// Between the look at a body and the operation that names it a deletion may begin, or end: the operation names a body that stays.
func TestLaw5OperationsNameNoBodyThatIsAboutToGo(t *testing.T) {
	c := newClock()
	s := open(t, retention(c))
	addTopic(t, s, "T", meta.Async)
	h := half(t, s, "T", 0, "half")
	rs := fillTopic(t, s, c, "T", 1, 100)
	settle(t, s)
	found := s.Half(h.Address)
	publish := []state.Op{{Kind: state.OpPublish, Topic: "T", First: h.Address, View: &state.View{Kind: state.ViewCommit, Topic: "T", Position: found.Position, Size: found.Size}}}
	back := []state.Op{{Kind: state.OpReturn, Topic: "T", Group: "g", First: rs[0].Address, Position: rs[0].Address, Size: rs[0].Size, Attempt: 1, Level: 1}}
	named := func(what string, ops []state.Op, want int64, body string) {
		t.Helper()
		ops, err := s.KeepBodies(ops)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		at, size := ops[0].Position, ops[0].Size
		if v := ops[0].View; v != nil {
			at, size = v.Position, v.Size
		}
		if want >= 0 && at != want || want < 0 && at < s.Bounds().Max-10000 {
			t.Errorf("%s: names the body at %d, want %d", what, at, want)
		}
		b, release, err := s.Record(queue.Entry{Address: at, Position: at, Size: size})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer release()
		if v, err := record.Parse(b); err != nil || !strings.HasPrefix(string(v.Body()), body) {
			t.Errorf("%s: names %q", what, b)
		}
	}
	named("before", publish, h.Address, "half")
	named("before, sent back", back, rs[0].Address, "T 0")
	s.BeginDeletion(64 << 10)
	named("begun", publish, -1, "half")
	named("begun, sent back", back, -1, "T 0")
	if publish[0].View.Position != h.Address || back[0].Position != rs[0].Address {
		t.Error("the caller's operations were changed")
	}
	c.pass(2 * time.Hour)
	if clean(t, s) == 0 {
		t.Fatal("nothing was deleted")
	}
	moved := s.Half(h.Address).Position
	named("ended", publish, moved, "half")
	if _, err := s.KeepBodies(back); !errors.Is(err, store.ErrNotAddress) {
		t.Errorf("what was sent back has gone: %v", err)
	}
}

// A deletion that has begun may end while the bodies of a long record are appended again, some at a time.
func TestLaw5OperationsNameNoBodyThatGoesWhileOthersAreCopied(t *testing.T) {
	c := newClock()
	s := open(t, retention(c))
	addTopic(t, s, "T", meta.Async)
	var publish []state.Op
	for _, body := range []string{"first", "second"} { // they do not go into one record
		h := half(t, s, "T", 0, body+strings.Repeat(".", 12<<10))
		publish = append(publish, state.Op{Kind: state.OpPublish, Topic: "T", First: h.Address, View: &state.View{Kind: state.ViewCommit, Topic: "T", Position: h.Address, Size: h.Size}})
	}
	r := send(t, s, "T", 0, strings.Repeat(".", 12<<10))
	back := state.Op{Kind: state.OpReturn, Topic: "T", Group: "g", First: r.Address, Position: r.Address, Size: r.Size, Attempt: 1, Level: 1}
	fillTopic(t, s, c, "T", 1, 100)
	settle(t, s)
	c.pass(24 * time.Hour)

	copied, deleted := make(chan bool, 9), make(chan bool)
	s.HookBodies(func() {
		copied <- true
		<-deleted
	})
	ops, refused := []state.Op(nil), error(nil)
	done := make(chan error, 1)
	s.HookRestated(func(_ int, last bool) {
		if !last {
			return
		}
		go func() {
			var err error
			ops, err = s.KeepBodies(publish)
			_, refused = s.KeepBodies([]state.Op{publish[0], back})
			done <- err
		}()
		<-copied
	})
	if clean(t, s) == 0 {
		t.Fatal("nothing was deleted")
	}
	close(deleted)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !errors.Is(refused, store.ErrNotAddress) {
		t.Errorf("what was sent back has gone: %v", refused)
	}
	for i, want := range []string{"first.", "second."} {
		v := ops[i].View
		b, release, err := s.Record(queue.Entry{Address: v.Position, Position: v.Position, Size: v.Size})
		if err != nil || v.Position < s.Bounds().Min {
			t.Fatalf("%s is named at %d, the log begins at %d: %v", want, v.Position, s.Bounds().Min, err)
		}
		if r, err := record.Parse(b); err != nil || !strings.HasPrefix(string(r.Body()), want) {
			t.Errorf("at %d is %.60q, want %s", v.Position, b, want)
		}
		release()
	}
}
