package store_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// Law 5: whoever reads a record of a segment that cannot be opened for a while is told so, and nobody takes the record for gone or damaged: what is
// due is published later and in its place, an end of a transaction can be written again, a repeated message is not stored again, a
// deletion moves what is owed when it can, and nothing is missing from an answer.
func TestLaw5WhatCannotBeReadForAWhileIsNeitherGoneNorDamaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const segment = 64 << 10
		var shut atomic.Int64 // where the segment begins that cannot be opened; below 0: none
		shut.Store(-1)
		mem := vfs.NewMem()
		o := store.Options{
			Dir: "/s", SegmentBytes: segment, CheckpointBytes: 1 << 30, Exchange: newFanout(), OnceWindow: time.Minute, Events: func(store.Event) {},
			Retention: store.Retention{Age: 1000 * time.Hour, ViewWindow: 100 * time.Hour, Interval: 1000 * time.Hour},
			FS: vfs.Intercept(mem, func(op vfs.Op) error {
				if op.Kind == "openread" && path.Base(op.Name) == fmt.Sprintf("%020d", shut.Load()) {
					return syscall.EMFILE
				}
				return nil
			}),
		}
		s, err := tryOpen(t, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, topic := range []string{"T", "F", "W"} {
			addTopic(t, s, topic, meta.Async)
		}
		unavailable := func(position int64) {
			time.Sleep(10 * time.Minute) // no segment is open for reading any more
			shut.Store(position / segment * segment)
		}
		available := func() {
			shut.Store(-1)
			time.Sleep(5 * time.Second)
			synctest.Wait()
		}
		told := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: %v, want ErrUnavailable", what, err)
			}
		}
		ends := func(address int64) error { return endHalf(s, address, true) }
		tags := func(topic string, id int32) (codes []int64) {
			var es [16]queue.Entry
			if q := s.Queue(topic, id, false); q != nil {
				low, _ := q.Range()
				n, err := q.Read(low, es[:])
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range es[:n] {
					codes = append(codes, e.TagsCode)
				}
			}
			return codes
		}

		// All of this is in the first segment.
		older := sendWaiting(t, s, store.Message{Topic: "T", Body: []byte("older")})
		operate(t, s, bindOps("W", "now")...)
		operate(t, s, bindOps("W", "fails")...)
		window := send(t, s, "W", 2, "in a window")
		if err := ends(half(t, s, "T", 4, "young").Address); err != nil { // bodies from here on are known to be within the view window
			t.Fatal(err)
		}
		tagA := tags("T", 4)[0]
		sendWaiting(t, s, store.Message{Topic: "T", Queue: 3, Body: []byte("timer"), DeliverAt: time.Now().Add(5 * time.Hour).UnixMilli()})
		sendWaiting(t, s, store.Message{Topic: "T", Queue: 9, Body: []byte("recalled"), Properties: []byte("UNIQ_KEY\x01recalled\x02"), DeliverAt: time.Now().Add(5 * time.Hour).UnixMilli()})
		commit, aside, moved := half(t, s, "T", 1, "commit"), half(t, s, "T", 1, "aside"), half(t, s, "T", 5, "moved")
		keyed := sendWaiting(t, s, store.Message{
			Topic: "T", Queue: 6, Half: true, SysFlag: record.FlagTxPrepared, Body: []byte("keyed"), Properties: []byte("KEYS\x01published\x02UNIQ_KEY\x01" + strings.Repeat("7", 32) + "\x02"),
		})
		found := sendWaiting(t, s, store.Message{Topic: "T", Queue: 7, Body: []byte("found"), Properties: []byte("KEYS\x01found\x02")})
		once := onceWaiting(senders[0], waits[0].set, 8, 1)
		first := appendOne(s, once)
		returned := send(t, s, "T", 2, "returned")
		if _, err := s.SendBack(t.Context(), store.SendBack{Group: "g", Address: returned.Address, Level: 1, Most: 9}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		var es [1]store.TopicEntry
		if n := s.ReadTopic("%RETRY%g", 0, es[:]); n != 1 || es[0].Address >= segment {
			t.Fatalf("%d messages came back, at %d", n, es[0].Address)
		}
		again := es[0].Address
		s.ReadTopic("W", 0, es[:])
		inWindow := es[0].Entry
		for i := range 80 {
			send(t, s, "F", 0, fmt.Sprint(i, strings.Repeat(".", 1000)))
		}
		s.Offsets().Commit("p", "F", 0, 0)
		settle(t, s)
		byKey := func(key string) (store.KeyAnswer, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return s.ByKey(ctx, store.KeyQuery{Topic: "T", Key: key, End: time.Now().UnixMilli(), Max: 10})
		}

		if a, err := byKey("found"); err != nil || len(a.Matches) != 1 { // the key index has all of this
			t.Fatal(a, err)
		} else {
			a.Release()
		}

		unavailable(0)
		told("commit", ends(commit.Address))
		told("aside", s.SetHalvesAside([]int64{aside.Address}))
		for _, h := range []store.Result{commit, aside} {
			if got := s.Half(h.Address).Outcome; got != state.Undecided {
				t.Errorf("the outcome of the half at %d is %v", h.Address, got)
			}
		}
		_, _, err = s.RecordAt(again)
		told("view at an address", err)
		_, err = s.SendBack(t.Context(), store.SendBack{Group: "g", Address: again, Level: 18, Most: 9})
		told("send back", err)
		_, err = byKey("found")
		told("query by key", err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err = s.RecallDelay(ctx, "T", "recalled")
		cancel()
		told("recall", err)
		old := []state.Op{{Kind: state.OpPublish, Topic: "T", Group: "g", First: older.Address, View: &state.View{Kind: state.ViewDead, Topic: "%DLQ%g", Position: older.Address, Size: older.Size}}}
		_, err = s.KeepBodies(old)
		told("body that may be old", err)
		s.BeginDeletion(segment)
		_, err = s.KeepBodies(old)
		told("body that is to go", err)
		s.BeginDeletion(0)
		for i, step := range []func(){
			func() {}, // the window is over: what is owed by name is known until its end
			func() { // something becomes owed where the ids are known
				operate(t, s, state.Op{Kind: state.OpUpdate, Topic: "W", First: window.Address, Failed: []state.Failed{{Group: "fails", Attempt: 1, Due: time.Now().Add(99 * time.Hour).UnixMilli()}}})
			},
		} {
			step()
			for k := range 3 { // another one has the ids looked for again
				told("repeated message", appendOne(s, once).Err)
				if r := appendOne(s, onceWaiting(senders[0], nil, 8, 100+3*i+k)); r.Err != nil || r.Repeated {
					t.Errorf("a message of its own: %+v", r)
				}
				time.Sleep(time.Second)
			}
		}
		operate(t, s, state.Op{Kind: state.OpPublish, Topic: "T", First: keyed.Address, View: &state.View{Kind: state.ViewCommit, Topic: "T", Queue: 6, Position: keyed.Address, Size: keyed.Size}})
		if a, err := byKey("published"); err != nil || len(a.Matches) != 0 || a.Complete {
			t.Errorf("by a key that nobody can know: %+v, %v", a, err)
		}
		mem.SetDisk(diskTotal*15/100-1, diskTotal)
		_, err = s.Look()
		told("deletion", err)
		if got := s.Cleaned(); got.Lost != 0 || got.Segments != 0 {
			t.Errorf("deletion: %+v", got)
		}
		mem.SetDisk(diskTotal, diskTotal)
		s.BeginDeletion(0) // else what is due would need a copy
		time.Sleep(6 * time.Hour)
		if got := tags("T", 3); len(got) != 0 {
			t.Errorf("%d messages that cannot be read were published", len(got))
		}
		if got := tags("T", 0); len(got) != 1 {
			t.Errorf("%d messages in queue 0, want the one that was sent there", len(got))
		}

		available()
		if got := tags("T", 9); len(got) != 1 {
			t.Errorf("%d messages that could not be taken back came, want 1", len(got))
		}
		repeated(t, "when it can be read", first, appendOne(s, once), true)
		if got := tags("T", 3); len(got) != 1 || got[0] != tagA {
			t.Errorf("tags of what was due are %v, want %d", got, tagA)
		}
		if err := ends(commit.Address); err != nil {
			t.Error(err)
		}
		if err := s.SetHalvesAside([]int64{aside.Address}); err != nil {
			t.Error(err)
		}
		if got := tags(store.AsideTopic, 0); len(got) != 1 || got[0] != tagA {
			t.Errorf("tags of what was moved aside are %v, want %d", got, tagA)
		}
		for key, want := range map[string]int64{"found": found.Address, "published": -1} {
			a, err := byKey(key)
			if err != nil || len(a.Matches) != 1 || !a.Complete || want >= 0 && a.Matches[0].Address != want {
				t.Errorf("by key %s: %+v, %v", key, a, err)
			}
			a.Release()
		}
		if _, err := s.SendBack(t.Context(), store.SendBack{Group: "g", Address: again, Level: 18, Most: 9}); err != nil {
			t.Error(err)
		}
		settle(t, s)
		var ds [4]state.Due
		if n := s.Returns(state.Due{}, ds[:]); n != 1 || ds[0].Address != returned.Address {
			t.Errorf("%d messages come back, of %d, want that of %d", n, ds[0].Address, returned.Address)
		}
		mem.SetDisk(diskTotal*15/100-1, diskTotal)
		if n := look(t, s); n != 1 || s.Cleaned().Lost != 0 {
			t.Fatalf("%d segments deleted, %+v", n, s.Cleaned())
		}
		mem.SetDisk(diskTotal, diskTotal)
		p := s.Bounds().Max
		for i := range 80 {
			send(t, s, "F", 0, fmt.Sprint(i, strings.Repeat(".", 1000)))
		}
		settle(t, s)
		if p/segment == s.Bounds().Max/segment || p%segment < 8<<10 {
			t.Fatalf("what was moved ends at %d, the log at %d", p, s.Bounds().Max)
		}

		unavailable(p)
		_, _, err = s.Record(inWindow)
		told("moved message", err)
		_, err = s.Expiries(10)
		told("expiry records", err)
		told("commit of a moved half", ends(moved.Address))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		o.Exchange, o.Observer = newFanout(), newLedger()
		if s, err = tryOpen(t, o); err == nil {
			t.Error("a start does without what is owed")
			_ = s.Close()
		} else {
			told("start", err)
		}
		shut.Store(-1)
		l := newLedger()
		o.Exchange, o.Observer = newFanout(), l
		if s, err = tryOpen(t, o); err != nil {
			t.Fatal(err)
		}
		if got := l.owedOf("W", 1); len(got) != 1 || got[0] != window.Address {
			t.Errorf("owed are %v, want the message at %d", got, window.Address)
		}
		l.mu.Lock()
		if l.owed[0].Queue != 2 || l.owed[0].Time != window.StoreTime {
			t.Errorf("owed is %+v, want queue 2", l.owed[0])
		}
		l.mu.Unlock()
		if err := ends(moved.Address); err != nil {
			t.Error(err)
		}
		if all, err := s.Expiries(10); err != nil || len(all) == 0 {
			t.Errorf("%d expiry records, %v", len(all), err)
		}
		b, release, err := s.Record(inWindow)
		if err != nil || !strings.Contains(string(b), "in a window") {
			t.Errorf("moved message: %q, %v", b, err)
		} else {
			release()
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
