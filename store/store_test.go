package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// open opens a store for a test: small segments, events in the test's log, closed and checked at the end.
func open(t testing.TB, o store.Options) *store.Store {
	t.Helper()
	s, err := tryOpen(t, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// tryOpen opens a store that the test closes. What it leaves is checked at the end of the test.
func tryOpen(t testing.TB, o store.Options) (*store.Store, error) {
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	checkAtEnd(t, o)
	if o.Events == nil {
		o.Events = func(e store.Event) {
			if e.Level > 0 {
				t.Logf("event: %s %v", e.Name, e.Attrs)
			}
		}
	}
	return store.Open(o)
}

func addTopic(t testing.TB, s *store.Store, name string, d meta.Durability) {
	t.Helper()
	c := meta.DefaultTopic(name)
	c.Attributes = map[string]string{meta.DurabilityAttribute: d.String()}
	if err := s.Topics().Put(c); err != nil {
		t.Fatal(err)
	}
}

// send appends one message and fails the test when it is refused.
func send(t testing.TB, s *store.Store, topic string, id int32, body string) store.Result {
	t.Helper()
	var rs [1]store.Result
	s.Append([]store.Message{{Topic: topic, Queue: id, Body: []byte(body), Properties: []byte("TAGS\x01TagA\x02")}}, rs[:])
	if rs[0].Err != nil {
		t.Fatalf("append to %s/%d: %v", topic, id, rs[0].Err)
	}
	return rs[0]
}

// bodies reads a queue from its beginning.
func bodies(t testing.TB, s *store.Store, topic string, id int32) []string {
	t.Helper()
	q := s.Queue(topic, id, false)
	if q == nil {
		return nil
	}
	low, high := q.Range()
	var got []string
	es := make([]queue.Entry, 7)
	for o := low; o < high; {
		n, err := q.Read(o, es)
		if err != nil || n == 0 {
			t.Fatalf("read %s/%d at %d of [%d, %d): %d, %v", topic, id, o, low, high, n, err)
		}
		for i, e := range es[:n] {
			b, release, err := s.Record(e)
			if err != nil {
				t.Fatal(err)
			}
			v, err := record.Parse(b)
			if err == nil {
				err = v.CheckBody()
			}
			if err != nil {
				t.Fatalf("record at %d: %v", e.Position, err)
			}
			if string(v.Topic()) != topic || v.QueueID() != id || v.QueueOffset() != o+int64(i) || v.PhysicalOffset() != e.Address || v.StoreTime() != e.Time || v.TagsCode() != e.TagsCode {
				t.Fatalf("record at %d is of %s/%d offset %d, entry %+v of %s/%d offset %d", v.PhysicalOffset(), v.Topic(), v.QueueID(), v.QueueOffset(), e, topic, id, o+int64(i))
			}
			got = append(got, string(v.Body()))
			release()
		}
		o += int64(n)
	}
	return got
}

func TestAppendIsVisibleWhenItReturnsAndSurvivesReopening(t *testing.T) {
	for _, d := range []meta.Durability{meta.Memory, meta.Async, meta.Sync} {
		t.Run(d.String(), func(t *testing.T) {
			dir := t.TempDir()
			o := store.Options{Dir: dir, SegmentBytes: 64 << 10}
			s, err := tryOpen(t, o)
			if err != nil {
				t.Fatal(err)
			}
			addTopic(t, s, "A", d)
			var want []string
			for i := range 300 {
				body := fmt.Sprint("message ", i, strings.Repeat(".", i*3))
				r := send(t, s, "A", 2, body)
				if r.Durability != d {
					t.Fatalf("reached %v, want %v", r.Durability, d)
				}
				if d == meta.Memory { // answered before it can be read
					if err := s.Flush(context.Background()); err != nil {
						t.Fatal(err)
					}
				}
				if r.QueueOffset != int64(i) {
					t.Fatalf("queue offset %d, want %d", r.QueueOffset, i)
				}
				want = append(want, body)
				if _, high := s.Queue("A", 2, false).Range(); high != int64(i+1) {
					t.Fatalf("visible to %d, want %d", high, i+1)
				}
				b, release, err := s.RecordAt(r.Address)
				if err != nil {
					t.Fatal(err)
				}
				if v, _ := record.Parse(b); string(v.Body()) != body {
					t.Fatalf("body %q", v.Body())
				}
				release()
			}
			same(t, bodies(t, s, "A", 2), want)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, o)
			same(t, bodies(t, s, "A", 2), want)
			want = append(want, "after")
			if r := send(t, s, "A", 2, "after"); r.QueueOffset != 300 {
				t.Errorf("queue offset after reopening %d, want 300", r.QueueOffset)
			}
			if err := s.Flush(context.Background()); err != nil {
				t.Fatal(err)
			}
			same(t, bodies(t, s, "A", 2), want)
		})
	}
}

func same(t testing.TB, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d messages, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("message %d is %.40q, want %.40q", i, got[i], want[i])
		}
	}
}

func TestManyProducersKeepQueuesConsecutive(t *testing.T) { // faults STO-22
	dir := t.TempDir()
	o := store.Options{Dir: dir, SegmentBytes: 256 << 10}
	s, err := tryOpen(t, o)
	if err != nil {
		t.Fatal(err)
	}
	addTopic(t, s, "A", meta.Async)
	addTopic(t, s, "S", meta.Sync)
	const producers, each = 16, 60
	var wg sync.WaitGroup
	for p := range producers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			topic := []string{"A", "S"}[p%2]
			rs := make([]store.Result, 3)
			for i := range each {
				ms := make([]store.Message, 1+i%3)
				for k := range ms {
					ms[k] = store.Message{Topic: topic, Queue: int32(p % 4), Body: []byte(fmt.Sprintf("%d/%d/%d", p, i, k) + strings.Repeat("x", i*20))}
				}
				s.Append(ms, rs[:len(ms)])
				for k := range ms {
					if rs[k].Err != nil {
						t.Errorf("append: %v", rs[k].Err)
						return
					}
					b, release, err := s.RecordAt(rs[k].Address)
					if err != nil {
						t.Errorf("RecordAt(%d): %v", rs[k].Address, err)
						return
					}
					if v, _ := record.Parse(b); !bytes.Equal(v.Body(), ms[k].Body) || v.QueueOffset() != rs[k].QueueOffset {
						t.Errorf("record at %d differs", rs[k].Address)
					}
					release()
				}
			}
		}()
	}
	wg.Wait()
	count := func() (n int) {
		for _, topic := range []string{"A", "S"} {
			for id := range int32(4) {
				n += len(bodies(t, s, topic, id))
			}
		}
		return n
	}
	if got, want := count(), producers*each*2; got != want {
		t.Errorf("%d messages, want %d", got, want)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, o)
	if got, want := count(), producers*each*2; got != want {
		t.Errorf("after reopening: %d messages, want %d", got, want)
	}
}

func TestReadTopicMergesQueuesByAddress(t *testing.T) {
	s := open(t, store.Options{SegmentBytes: 64 << 10})
	addTopic(t, s, "A", meta.Async)
	var want []int64
	for i := range 200 {
		want = append(want, send(t, s, "A", int32(i*7%5), fmt.Sprint(i)).Address)
	}
	var got []int64
	dst := make([]store.TopicEntry, 9)
	from := int64(0)
	for {
		n := s.ReadTopic("A", from, dst)
		if n == 0 {
			break
		}
		for _, e := range dst[:n] {
			got = append(got, e.Address)
			from = e.Address + 1
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("addresses %v, want %v", got, want)
	}
	if v := s.TopicVisible("A"); v <= want[len(want)-1] {
		t.Errorf("TopicVisible = %d, want above %d", v, want[len(want)-1])
	}
}

func TestWatchersAreCalled(t *testing.T) {
	for _, d := range []meta.Durability{meta.Async, meta.Sync} {
		s := open(t, store.Options{SegmentBytes: 64 << 10})
		addTopic(t, s, "A", d)
		q, topic, never := make(chan struct{}), make(chan struct{}), make(chan struct{})
		s.Queue("A", 1, true).Watch(0, func() { close(q) })
		s.WatchTopic("A", 0, func() { close(topic) })
		stop := s.Queue("A", 1, true).Watch(5, func() { close(never) })
		send(t, s, "A", 1, "hello")
		<-q
		<-topic
		if !stop() {
			t.Error("a watcher of offset 5 was called at offset 0")
		}
	}
}

func TestBadMessagesAreRefusedOneByOne(t *testing.T) { // faults STO-21
	s := open(t, store.Options{SegmentBytes: 64 << 10})
	addTopic(t, s, "A", meta.Async)
	ok := func() store.Message { return store.Message{Topic: "A", Body: []byte("x")} }
	tests := []struct {
		name string
		m    func(m *store.Message)
		want error
		text string
	}{
		{"good", func(m *store.Message) {}, nil, ""},
		{"no body", func(m *store.Message) { m.Body = nil }, store.ErrBadMessage, "length of body is 0, allowed: 1 to 4194304 bytes"},
		{"body too long", func(m *store.Message) { m.Body = make([]byte, 4<<20+1) }, store.ErrBadMessage, "length of body is 4194305"},
		{"properties too long", func(m *store.Message) { m.Properties = make([]byte, 32768) }, store.ErrBadMessage, "length of properties is 32768"},
		{"zero byte in properties", func(m *store.Message) { m.Properties = []byte("a\x01b\x00c\x02") }, store.ErrBadMessage, "zero byte in properties is 3"},
		{"negative queue", func(m *store.Message) { m.Queue = -1 }, store.ErrBadMessage, "queue id is -1"},
		{"queue out of range", func(m *store.Message) { m.Queue = 1 << 20 }, store.ErrBadMessage, "queue id is 1048576"},
		{"unknown topic", func(m *store.Message) { m.Topic = "B" }, store.ErrUnknownTopic, ""},
		{"larger than a segment", func(m *store.Message) { m.Body = make([]byte, 70<<10) }, store.ErrTooLarge, "65393"},
		{"good again", func(m *store.Message) {}, nil, ""},
	}
	ms, rs := make([]store.Message, len(tests)), make([]store.Result, len(tests))
	for i, tc := range tests {
		ms[i] = ok()
		tc.m(&ms[i])
	}
	s.Append(ms, rs)
	for i, tc := range tests {
		if err := rs[i].Err; !errors.Is(err, tc.want) || err != nil && !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: %v, want %v with %q", tc.name, err, tc.want, tc.text)
		}
	}
	same(t, bodies(t, s, "A", 0), []string{"x", "x"})
	if r := rs[len(rs)-1]; r.QueueOffset != 1 {
		t.Errorf("the last message has offset %d, want 1: the refused ones took none", r.QueueOffset)
	}
}

// Law 10: topics that only the store writes cannot be sent to.
func TestLaw10SystemTopicsCannotBeSentTo(t *testing.T) {
	s := open(t, store.Options{SegmentBytes: 64 << 10})
	for _, name := range []string{store.OQTopic, store.SystemPrefix + "other"} {
		var rs [1]store.Result
		s.Append([]store.Message{{Topic: name, Body: []byte("x")}}, rs[:])
		if !errors.Is(rs[0].Err, store.ErrSystemTopic) {
			t.Errorf("append to %s: %v, want %v", name, rs[0].Err, store.ErrSystemTopic)
		}
	}
}

func TestRecordAtRefusesWhatIsNoAddress(t *testing.T) {
	s := open(t, store.Options{SegmentBytes: 64 << 10})
	addTopic(t, s, "A", meta.Async)
	real := send(t, s, "A", 0, "first")
	// A body that holds a record which claims to be where it is.
	fake := record.Append(nil, &record.Fields{Topic: "A", Body: []byte("fake")})
	next := real.Address + int64(real.Size)
	inside := next + 88
	record.SetPlace(fake, 1, inside, 1)
	r := send(t, s, "A", 0, string(fake))
	if r.Address != next {
		t.Fatalf("second record at %d, want %d", r.Address, next)
	}
	for _, at := range []int64{-1, 1, real.Address + 4, inside, next + int64(r.Size), 1 << 40} {
		if _, _, err := s.RecordAt(at); !errors.Is(err, store.ErrNotAddress) {
			t.Errorf("RecordAt(%d) = %v, want %v", at, err, store.ErrNotAddress)
		}
	}
}

func TestSecondOpenNamesTheHolder(t *testing.T) {
	dir := t.TempDir()
	open(t, store.Options{Dir: dir, SegmentBytes: 64 << 10})
	_, err := tryOpen(t, store.Options{Dir: dir})
	var held *vfs.HeldError
	if !errors.Is(err, store.ErrLocked) || !errors.As(err, &held) || !strings.Contains(err.Error(), "process ") || !strings.Contains(err.Error(), "since") {
		t.Errorf("second open: %v, want an error that names the holder", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []store.Options{
		{}, {Dir: "x", SegmentBytes: 1}, {Dir: "x", SegmentBytes: 2 << 30}, {Dir: "x", FlushInterval: time.Microsecond}, {Dir: "x", PersistInterval: -1}, {Dir: "x", CheckpointBytes: 5}, {Dir: "x", Durability: 9},
	} {
		var fe *store.FieldError
		if _, err := store.Open(o); !errors.As(err, &fe) {
			t.Errorf("Open(%+v) = %v, want a FieldError", o, err)
		}
		found(t, o, "error: .*no such file") // nothing was made
	}
}
