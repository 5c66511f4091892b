package store_test

import (
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
