package store_test

import (
	"errors"
	"testing"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
)

// Every queue of a topic numbers its own messages, the first ones and those far behind, in whatever order they are made,
// and goes on where it was after a start.
func TestEveryQueueCountsForItself(t *testing.T) {
	o := store.Options{Dir: t.TempDir(), SegmentBytes: 64 << 10}
	s, err := tryOpen(t, o)
	if err != nil {
		t.Fatal(err)
	}
	addTopic(t, s, "A", meta.Async)
	queues := []int32{9, 0, 7, 65535, 8, 1, 1000}
	for n := range int64(4) {
		if n == 2 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, o)
		}
		for _, id := range queues {
			if r := send(t, s, "A", id, "x"); r.QueueOffset != n {
				t.Errorf("queue %d, message %d: offset %d", id, n, r.QueueOffset)
			}
		}
	}
	for _, id := range queues {
		if low, high := s.Queue("A", id, false).Range(); low != 0 || high != 4 {
			t.Errorf("queue %d is [%d, %d), want [0, 4)", id, low, high)
		}
	}
}

// A topic that was found before goes on being the one that is meant, with its configuration as it is now.
func TestFoundTopics(t *testing.T) {
	s := open(t, store.Options{Dir: t.TempDir(), SegmentBytes: 64 << 10})
	if _, c := s.FindTopic("orders"); c != nil {
		t.Fatalf("found %+v before it was made", c)
	}
	addTopic(t, s, "orders", meta.Async)
	ref, c := s.FindTopic("orders")
	if c == nil || c.Durability(meta.Memory) != meta.Async {
		t.Fatalf("found %+v", c)
	}
	addTopic(t, s, "orders", meta.Sync)
	if _, c := s.FindTopic("orders"); c == nil || c.Durability(meta.Memory) != meta.Sync {
		t.Errorf("found %+v after the change", c)
	}
	ms := []store.Message{{Topic: "orders", Ref: ref, Body: []byte("x")}, {Topic: "none", Ref: ref, Body: []byte("x")}, {Topic: "orders", Body: []byte("x")}}
	rs := make([]store.Result, len(ms))
	s.Append(ms, rs)
	if rs[0].Err != nil || rs[0].Durability != meta.Sync || rs[2].QueueOffset != 1 {
		t.Errorf("appended as %+v", rs)
	}
	if !errors.Is(rs[1].Err, store.ErrUnknownTopic) {
		t.Errorf("a topic that is another one's: %v", rs[1].Err)
	}
}
