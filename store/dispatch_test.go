package store_test

import (
	"testing"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// Records that no group waits for need no dispatch, and nobody is woken for them: they are not behind.
func TestNothingIsBehindOnATopicWithoutGroups(t *testing.T) {
	s := open(t, store.Options{Dir: "/s", FS: vfs.NewMem(), Exchange: newFanout()})
	addTopic(t, s, "P", meta.Async)
	for range 100 {
		send(t, s, "P", 0, "body")
	}
	if err := s.WaitApplied(t.Context(), 0); err != nil { // what made the topic is dispatched
		t.Fatal(err)
	}
	send(t, s, "P", 0, "body")
	if b := s.Bounds(); b.Dispatched != b.Max {
		t.Errorf("%+v: the views are behind", b)
	}
	operate(t, s, bindOps("P", "g")...)
	r := send(t, s, "P", 0, "body")
	if err := s.WaitApplied(t.Context(), r.Address); err != nil {
		t.Fatal(err)
	}
	settle(t, s)
	if b := s.Bounds(); b.Dispatched != b.Max {
		t.Errorf("%+v: the views are behind", b)
	}
}
