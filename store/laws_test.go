package store_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

// shownKind is one way in which a message comes to be seen.
type shownKind struct {
	name  string
	kind  state.ViewKind // 0: as it is stored
	topic string         // where it is seen
	queue int32
	send  func(m *store.Message) // what the producer asks for
	then  func(s *store.Store, r store.Result) error
}

// shownKinds are all of them, for messages of topic T, queue 2.
var shownKinds = []shownKind{
	{name: "plain", topic: "T", queue: 2},
	{name: "commit", kind: state.ViewCommit, topic: "T", queue: 2, send: func(m *store.Message) { m.Half = true },
		then: func(s *store.Store, r store.Result) error { return endHalf(s, r.Address, true) }},
	{name: "commit for later", kind: state.ViewCommit, topic: "T", queue: 2, send: func(m *store.Message) { m.Half = true },
		then: func(s *store.Store, r store.Result) error {
			es := []store.HalfEnd{{Address: r.Address, Commit: true, Due: time.Now().Add(time.Second).UnixMilli()}}
			s.EndHalves(context.Background(), es)
			return es[0].Err
		}},
	{name: "delay", kind: state.ViewDelay, topic: "T", queue: 2, send: func(m *store.Message) { m.DelayLevel = 1 }},
	{name: "timer", kind: state.ViewTimer, topic: "T", queue: 2, send: func(m *store.Message) { m.DeliverAt = time.Now().Add(time.Second).UnixMilli() }},
	{name: "retry", kind: state.ViewRetry, topic: "%RETRY%g",
		then: func(s *store.Store, r store.Result) error {
			_, err := s.SendBack(context.Background(), store.SendBack{Group: "g", Address: r.Address, Level: 1, Most: 9})
			return err
		}},
	{name: "dead letter", kind: state.ViewDead, topic: "%DLQ%g",
		then: func(s *store.Store, r store.Result) error {
			_, err := s.SendBack(context.Background(), store.SendBack{Group: "g", Address: r.Address, Level: -1})
			return err
		}},
	{name: "aside", kind: state.ViewAside, topic: store.AsideTopic, send: func(m *store.Message) { m.Half = true },
		then: func(s *store.Store, r store.Result) error {
			if err := s.WaitApplied(context.Background(), r.Address); err != nil {
				return err
			}
			return s.SetHalvesAside([]int64{r.Address})
		}},
}

// shownBody is a body that no other record contains; no compression made it, whatever the flags say.
func shownBody(i int) []byte {
	rng := rand.New(rand.NewPCG(9, uint64(i)))
	b := make([]byte, 3000+i)
	for k := range b {
		b[k] = byte(rng.Uint32())
	}
	return b
}

var shownFlags = []int32{
	record.FlagCompressed, record.FlagCompressed | record.FlagCompressorLZ4, record.FlagCompressed | record.FlagCompressorZSTD,
	record.FlagCompressed | record.FlagCompressorZLIB, record.FlagMultiTags,
}

const shownBits = record.FlagCompressed | record.FlagCompressorMask | record.FlagMultiTags

// sendShown sends a message of each kind, has it come to where it is seen, and returns what the sends were answered. It is to be
// called in a bubble.
func sendShown(t testing.TB, s *store.Store) []store.Result {
	t.Helper()
	addTopic(t, s, "T", meta.Async)
	rs := make([]store.Result, len(shownKinds))
	for i, k := range shownKinds {
		m := store.Message{
			Topic: "T", Queue: 2, Body: shownBody(i), Properties: []byte("TAGS\x01TagA\x02KEYS\x01" + fmt.Sprint("shown-", i) + "\x02"), SysFlag: shownFlags[i%len(shownFlags)],
			Flag: int32(100 + i), BornTime: 1_600_000_000_000 + int64(i), BornHost: netip.MustParseAddrPort("10.1.2.3:4567"),
		}
		if k.send != nil {
			k.send(&m)
		}
		rs[i] = sendWaiting(t, s, m)
		if k.then != nil {
			if err := k.then(s, rs[i]); err != nil {
				t.Fatalf("%s: %v", k.name, err)
			}
		}
	}
	time.Sleep(2 * time.Second)
	synctest.Wait()
	return rs
}

// shownRecord finds the record of message i where kind k is seen.
func shownRecord(t testing.TB, s *store.Store, k shownKind, i int) (v record.View, e queue.Entry) {
	t.Helper()
	es := make([]store.TopicEntry, 100)
	for _, e := range es[:s.ReadTopic(k.topic, 0, es)] {
		b, release, err := s.Record(e.Entry)
		if err != nil {
			t.Fatalf("%s: %v", k.name, err)
		}
		v, err := record.Parse(slices.Clone(b))
		release()
		if err != nil {
			t.Fatalf("%s: %v", k.name, err)
		}
		if key, _ := v.Property("KEYS"); e.Queue == k.queue && string(key) == fmt.Sprint("shown-", i) {
			return v, e.Entry
		}
	}
	t.Fatalf("%s: message %d is not in %s", k.name, i, k.topic)
	return v, e
}

// logBytes are all bytes of the log.
func logBytes(t testing.TB, fsys vfs.FS, dir string) []byte {
	t.Helper()
	var b []byte
	files := contents(t, fsys, filepath.Join(dir, "commitlog"))
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range files {
			if !yield(name) {
				return
			}
		}
	}) {
		if strings.HasPrefix(filepath.Base(name), "0") {
			b = append(b, files[name]...)
		}
	}
	return b
}

// Law 2 for all that makes a message seen: its body is in the log once, and what the view takes beside it is small.
func TestLaw2AViewAddsNoBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		s := open(t, store.Options{FS: fsys, Dir: "/s", SegmentBytes: 1 << 20})
		rs := sendShown(t, s)
		stored := int64(0)
		for i, k := range shownKinds {
			v, e := shownRecord(t, s, k, i)
			if !bytes.Equal(v.Body(), shownBody(i)) {
				t.Errorf("%s: another body", k.name)
			}
			if want := rs[i].Address; e.Position != want || (e.Address == want) != (k.kind == 0) {
				t.Errorf("%s: entry %+v, the record is at %d", k.name, e, want)
			}
			stored += int64(rs[i].Size)
		}
		all := logBytes(t, fsys, "/s")
		for i, k := range shownKinds {
			if n := bytes.Count(all, shownBody(i)); n != 1 {
				t.Errorf("%s: the body is in the log %d times", k.name, n)
			}
		}
		if more := s.Bounds().Max - stored; more > int64(len(shownKinds))*400 {
			t.Errorf("records of %d bytes took %d more", stored, more)
		}
	})
}

// Law 3: whatever way a message takes through the store, its body, its checksum, FLAG and the flags of compression are what the producer
// sent, also after a start from the log alone.
func TestLaw3BytesPassThroughTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		o := store.Options{FS: fsys, Dir: "/s", SegmentBytes: 1 << 20}
		s, err := tryOpen(t, o)
		if err != nil {
			t.Fatal(err)
		}
		sendShown(t, s)
		for _, when := range []string{"as sent", "from the log alone"} {
			for i, k := range shownKinds {
				v, _ := shownRecord(t, s, k, i)
				if !bytes.Equal(v.Body(), shownBody(i)) || v.BodyCRC() != record.CRC(shownBody(i)) || v.SysFlag()&shownBits != shownFlags[i%len(shownFlags)] || v.Flag() != int32(100+i) {
					t.Errorf("%s, %s: body of %d bytes with flags %#x and %d, sent were %d with %#x and %d", k.name, when, len(v.Body()), v.SysFlag(), v.Flag(), len(shownBody(i)), shownFlags[i%len(shownFlags)], 100+i)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			dropViews(t, fsys, "/s")
			if s, err = tryOpen(t, o); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// Law 4: a message of a sync topic is on the disk when it is answered, the first of a new segment as well: whenever the power goes, it is there.
func TestLaw4WhatIsAnsweredIsOnTheDisk(t *testing.T) {
	mem := vfs.NewMem()
	o := store.Options{Dir: "/s", FS: mem, SegmentBytes: 64 << 10, FlushInterval: time.Hour}
	s := open(t, o)
	addTopic(t, s, "S", meta.Sync)
	var want []string
	for i := range 30 {
		want = append(want, fmt.Sprint(i, strings.Repeat(".", 7000)))
		send(t, s, "S", 0, want[i])
		cut := o
		cut.FS = mem.CrashClone(rand.New(rand.NewPCG(1, uint64(i))), 0)
		after, err := store.Open(cut)
		if err != nil {
			t.Fatal(err)
		}
		same(t, bodies(t, after, "S", 0), want)
		if err := after.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Bounds().Max; n < 3*64<<10 {
		t.Errorf("the log has %d bytes: too few segments", n)
	}
}

// Law 4: nobody sees a message of a sync topic before it is on the disk, in whatever way he looks: in its queue, in the topic, by key, by address, by
// the entries that groups are owed. That holds for messages and for views, and an async topic beside it waits for nothing.
func TestLaw4NothingIsVisibleBeforeItsDurability(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, told := new(faulty), newLedger()
		s := open(t, store.Options{Dir: "/s", FS: f.wrap(vfs.NewMem()), SegmentBytes: 64 << 10, Exchange: newFanout(), Observer: told, Events: func(store.Event) {}})
		addTopic(t, s, "A", meta.Async)
		addTopic(t, s, "S", meta.Sync)
		addTopic(t, s, meta.RetryPrefix+"g", meta.Sync)
		operate(t, s, append(bindOps("S", "h"), bindOps("A", "h")...)...)
		origin := send(t, s, "A", 0, "origin")
		settle(t, s)
		disk := make(chan struct{})
		f.set(func(o vfs.Op) error {
			if o.Kind == "sync" {
				f.mu.Unlock()
				<-disk
				f.mu.Lock()
			}
			return nil
		})
		end := s.Bounds().Max
		var wg sync.WaitGroup
		answered := 0
		wg.Go(func() {
			if r := sendKeyed(t, s, "S", "u1", "held"); r.Durability != meta.Sync {
				t.Errorf("a message of a sync topic is %v", r.Durability)
			}
			answered++
		})
		synctest.Wait()
		wg.Go(func() {
			if _, err := s.Operate([]state.Op{retryOf(origin, "A", "g", 1)}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		calls := 0
		for _, topic := range []string{"S", meta.RetryPrefix + "g"} {
			s.WatchTopic(topic, 0, func() { calls++ })
		}
		fast := sendKeyed(t, s, "A", "u2", "fast") // answered while the disk stands still
		synctest.Wait()
		look := func() map[string]int {
			got := map[string]int{"watchers": calls, "answered": answered}
			es := make([]store.TopicEntry, 9)
			for _, topic := range []string{"S", meta.RetryPrefix + "g"} {
				_, high := s.Queue(topic, 0, true).Range()
				got[topic+" in its queue"] = int(high)
				got[topic+" in the topic"] = s.ReadTopic(topic, 0, es)
			}
			told.mu.Lock()
			for _, o := range told.owed {
				got["owed of "+o.Topic]++
			}
			told.mu.Unlock()
			got["by key"] = len(byKey(t, s, store.KeyQuery{Topic: "S", Key: "held"}))
			got["by key in A"] = len(byKey(t, s, store.KeyQuery{Topic: "A", Key: "fast"}))
			for at := end; at < fast.Address; at++ {
				if _, release, err := s.RecordAt(at); err == nil {
					got["addresses"]++
					release()
				}
			}
			return got
		}
		retry := meta.RetryPrefix + "g"
		want := map[string]int{"answered": 0, "watchers": 0, "S in its queue": 0, "S in the topic": 0, retry + " in its queue": 0, retry + " in the topic": 0, "by key": 0, "by key in A": 1, "owed of A": 2}
		if diff := cmp.Diff(want, look()); diff != "" {
			t.Errorf("while the disk stands still (-want +got):\n%s", diff)
		}
		close(disk)
		wg.Wait()
		synctest.Wait()
		want = map[string]int{
			"answered": 1, "watchers": 2, "S in its queue": 1, "S in the topic": 1, retry + " in its queue": 1, retry + " in the topic": 1, "by key": 1, "by key in A": 1, "owed of A": 2, "owed of S": 1, "addresses": 3, // that of the operation as well
		}
		if diff := cmp.Diff(want, look()); diff != "" {
			t.Errorf("after the sync (-want +got):\n%s", diff)
		}
	})
}

// Law 4: a checkpoint says that the log below it is on the disk, so it comes after the sync. Here nobody else asks for one.
func TestLaw4ACheckpointComesAfterTheSyncOfItsLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		o := store.Options{Dir: "/s", FS: mem, SegmentBytes: 256 << 10, CheckpointBytes: 64 << 10, FlushInterval: time.Hour, Exchange: newFanout()}
		s := open(t, o)
		addTopic(t, s, "A", meta.Async)
		operate(t, s, bindOps("A", "g")...) // so that there is something to dispatch
		var want []string
		for i := range 100 {
			want = append(want, fmt.Sprint(i, strings.Repeat(".", 1000)))
			send(t, s, "A", 0, want[i])
		}
		synctest.Wait()
		o.FS = mem.CrashClone(rand.New(rand.NewPCG(1, 1)), 0)
		info, err := store.ReadCheckpoint(o.FS, "/s")
		if err != nil || info.Position < 32<<10 {
			t.Fatalf("no checkpoint was written: %+v, %v", info, err)
		}
		o.Exchange = newFanout()
		cut := open(t, o)
		got := bodies(t, cut, "A", 0)
		if b := cut.Bounds(); b.Max < info.Position || len(got) < 30 || len(got) > len(want) {
			t.Errorf("the checkpoint is of %d, the log goes to %d with %d messages", info.Position, b.Max, len(got))
		}
		same(t, got, want[:min(len(got), len(want))])
	})
}

// Law 1, rules of views: the bodies of a queue are not in the order of the log, so a replay, an expiry and a reader who lags behind go by
// addresses. Here one queue has views, whose records are the oldest of the log, and another one messages.
func TestLaw1OrderIsThatOfAddressesAndNotOfBodies(t *testing.T) {
	for _, in := range []string{"memory", "index files"} {
		t.Run(in, func(t *testing.T) {
			c, fsys := newClock(), vfs.NewMem()
			o := retentionOn(c, fsys)
			o.Retention.MostAtOnce = 1
			if in == "memory" {
				o.CheckpointBytes = 64 << 20
			}
			o.Events = func(e store.Event) {
				if e.Level > 4 {
					t.Errorf("event: %s %v", e.Name, e.Attrs)
				}
			}
			s, err := tryOpen(t, o)
			if err != nil {
				t.Fatal(err)
			}
			for _, topic := range []string{"A", "T", "Other"} {
				addTopic(t, s, topic, meta.Async)
			}
			var old []store.Result
			for i := range 60 {
				old = append(old, send(t, s, "A", 0, fmt.Sprint("old ", i)))
			}
			fillTopic(t, s, c, "Other", 1, 70)
			operate(t, s, bindOps("T", "g")...)
			for i := range old {
				r := old[len(old)-1-i]
				operate(t, s, state.Op{Kind: state.OpPublish, Topic: "A", First: r.Address, View: &state.View{
					Kind: state.ViewCommit, Topic: "T", Position: r.Address, Size: r.Size, TagsCode: 2598919,
				}})
				send(t, s, "T", 1, fmt.Sprint("plain ", i))
				fillTopic(t, s, c, "Other", 1, 4)
			}
			fillTopic(t, s, c, "Other", 1, 70)
			settle(t, s)
			read := func(from int64) []store.TopicEntry {
				es := make([]store.TopicEntry, 200)
				return es[:s.ReadTopic("T", from, es)]
			}
			want := read(0)
			if len(want) != 2*len(old) {
				t.Fatalf("%d entries: %+v", len(want), want)
			}
			for i, e := range want {
				if i > 0 && e.Address <= want[i-1].Address {
					t.Errorf("entry %d is at %d, the one before at %d", i, e.Address, want[i-1].Address)
				}
				if got := read(e.Address); !slices.Equal(got, want[i:]) {
					t.Fatalf("a reader who has come to %d has %d messages before him, want %d", e.Address, len(got), len(want)-i)
				}
			}
			if owed := s.Pending("T", 0, 1000); len(owed) != len(want) {
				t.Errorf("%d of %d messages are owed", len(owed), len(want))
			}
			operate(t, s, state.Op{Kind: state.OpDelete, Topic: "T", First: 0, Last: 1 << 60})

			// The records that the views show go with the first segment; the entries go with theirs.
			c.pass(24 * time.Hour)
			first := want[0].Address
			for range 4 {
				clean(t, s)
				low := s.Bounds().Min
				want = slices.DeleteFunc(want, func(e store.TopicEntry) bool { return e.Address < low })
				if got := read(0); !slices.Equal(got, want) {
					t.Fatalf("the log begins at %d, %d entries, want %d", low, len(got), len(want))
				}
			}
			if low := s.Bounds().Min; low <= first || len(want) == 0 || len(want) == 2*len(old) {
				t.Fatalf("the log begins at %d, %d of %d entries are left: nothing tested", low, len(want), 2*len(old))
			}

			// And from the log alone.
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			dropViews(t, fsys, "/s")
			o.Exchange = newFanout()
			s = open(t, o)
			if got := read(0); !slices.Equal(got, want) {
				t.Errorf("%d entries from the log alone, want %d", len(got), len(want))
			}
		})
	}
}

// Law 1: what a start does not have to ask the log for, it must not take for new.
func TestLaw1AnIDFromBeforeAStartIsKnown(t *testing.T) {
	for _, killed := range []bool{false, true} {
		m := vfs.NewMem()
		o := store.Options{FS: m, Dir: "/s", SegmentBytes: 64 << 10}
		s, err := tryOpen(t, o)
		if err != nil {
			t.Fatal(err)
		}
		addTopic(t, s, "A", meta.Async)
		want := sendOnce(s, "A", 0, 1, "first")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if killed {
			put(t, m, "/s/abort", []byte("1"))
		}
		s = open(t, o)
		if got := sendOnce(s, "A", 1, 1, "again"); got.Err != nil || !got.Repeated || otherResult(want, got) != "" {
			t.Errorf("killed %v: %+v, first %+v", killed, got, want)
		}
		same(t, bodies(t, s, "A", 0), []string{"first"})
	}
}

// Law 1 after retention, with a push state of many pieces: a start takes all of them, and an unfinished one is none.
func TestLaw1RestatedStateIsTakenWhole(t *testing.T) {
	c, fsys := newClock(), vfs.NewMem()
	o := retentionOn(c, fsys)
	s, err := tryOpen(t, o)
	if err != nil {
		t.Fatal(err)
	}
	addTopic(t, s, "P", meta.Async)
	var groups []string
	var ops []state.Op
	for i := range 600 {
		g := fmt.Sprintf("group-%03d-%s", i, strings.Repeat("n", 60))
		groups = append(groups, g)
		ops = append(ops, bindOps("P", g)...)
	}
	operate(t, s, ops...)
	r := send(t, s, "P", 0, "owed to all")
	fillTopic(t, s, c, "P", 1, 1)
	operate(t, s, state.Op{Kind: state.OpDelete, Topic: "P", First: r.Address + 1, Last: 1 << 60})
	addTopic(t, s, "Other", meta.Async)
	fillTopic(t, s, c, "Other", 1, 200)
	c.pass(24 * time.Hour)
	settle(t, s)
	if clean(t, s) == 0 || s.Bounds().Min <= r.Address {
		t.Fatal("the first segment is still there")
	}
	settle(t, s)
	if n, _ := pieces(t, s); n < 2 {
		t.Fatalf("%d pieces of state", n)
	}
	want := ask(t, s, []string{"P"}, groups, 1)
	if len(want.Bindings) != len(groups) || len(want.Pending["P"]) != 1 || len(want.Pending["P"][0].Targets) != len(groups) {
		t.Fatalf("%d bindings, %+v", len(want.Bindings), want.Pending["P"])
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	dropViews(t, fsys, "/s")
	o.Exchange = newFanout()
	s = open(t, o)
	if diff := cmp.Diff(want, ask(t, s, []string{"P"}, groups, 1)); diff != "" {
		t.Errorf("answers from the log alone (-want +got):\n%.2000s", diff)
	}
}

// Law 5: who has been told that a delayed message is cancelled does not get it, though its time comes while the cancel is being written.
func TestLaw5ACancelIsNotOvertakenByThePublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(faulty)
		s := open(t, store.Options{Dir: "/s", FS: f.wrap(vfs.NewMem()), SegmentBytes: 64 << 10})
		addTopic(t, s, "T", meta.Async)
		r := sendWaiting(t, s, store.Message{Topic: "T", Body: []byte("cancelled"), DeliverAt: time.Now().Add(time.Second).UnixMilli()})
		sendWaiting(t, s, store.Message{Topic: "T", Body: []byte("due"), DeliverAt: time.Now().Add(2 * time.Second).UnixMilli()})
		synctest.Wait()
		disk := make(chan struct{})
		f.set(func(o vfs.Op) error {
			if o.Kind == "write" {
				f.mu.Unlock()
				<-disk
				f.mu.Lock()
			}
			return nil
		})
		done := make(chan error)
		go func() { done <- s.CancelDelay(context.Background(), r.Address) }()
		time.Sleep(3 * time.Second) // both are due by now
		close(disk)
		if err := <-done; err != nil {
			t.Errorf("cancel: %v", err)
		}
		time.Sleep(time.Minute)
		same(t, bodies(t, s, "T", 0), []string{"due"})
	})
}

// Law 1: a checkpoint is believed as far as the log goes. One from before the log lost its end, or from a stop that was clean when the last one was not, says
// nothing about what is there.
func TestLaw1ACheckpointDoesNotOutliveItsLog(t *testing.T) {
	for _, tc := range []struct {
		name string
		harm func(t *testing.T, m *vfs.Mem, before, after map[string]string)
		want []string
	}{
		{"a clean stop's, and more was appended since", func(t *testing.T, m *vfs.Mem, before, after map[string]string) {
			put(t, m, "/s/fusionmq/checkpoint", []byte(before["/s/fusionmq/checkpoint"]))
			put(t, m, "/s/abort", nil)
		}, []string{"one", "two", "three"}},
		{"of a log that is shorter now", func(t *testing.T, m *vfs.Mem, before, after map[string]string) {
			for name := range after {
				if strings.Contains(name, "/commitlog/0") || strings.Contains(name, ".idx") || strings.HasSuffix(name, ".synced") {
					if err := m.Remove(name); err != nil {
						t.Fatal(err)
					}
				}
			}
			put(t, m, "/s/commitlog/00000000000000000000", []byte(before["/s/commitlog/00000000000000000000"]))
		}, []string{"one"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := vfs.NewMem()
			o := store.Options{Dir: "/s", FS: m, SegmentBytes: 64 << 10, Exchange: newFanout(), Events: func(store.Event) {}}
			run := func(bodies ...string) map[string]string {
				s, err := tryOpen(t, o)
				if err != nil {
					t.Fatal(err)
				}
				addTopic(t, s, "T", meta.Async)
				for _, b := range bodies {
					send(t, s, "T", 0, b)
				}
				if len(bodies) > 1 {
					send(t, s, "T", 1, strings.Repeat("x", 40<<10))
					send(t, s, "T", 1, strings.Repeat("x", 40<<10))
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				return contents(t, m, "/s")
			}
			before := run("one")
			after := run("two", "three")
			tc.harm(t, m, before, after)
			o.Exchange = newFanout()
			s := open(t, o)
			same(t, bodies(t, s, "T", 0), tc.want)
			if r := send(t, s, "T", 0, "next"); r.QueueOffset != int64(len(tc.want)) {
				t.Errorf("the next message has offset %d, want %d", r.QueueOffset, len(tc.want))
			}
			same(t, bodies(t, s, "T", 0), append(tc.want, "next"))
		})
	}
}
