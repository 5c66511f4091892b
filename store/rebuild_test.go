package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// TestLostTopicsAreMadeAgainFromTheLog is STO-13 (c): topics.json and its backup are both garbage.
func TestLostTopicsAreMadeAgainFromTheLog(t *testing.T) {
	fsys := vfs.NewMem()
	var events []string
	o := store.Options{Dir: "/s", FS: fsys, SegmentBytes: 64 << 10, Events: func(e store.Event) { events = append(events, e.Name+" "+fmt.Sprint(e.Attrs...)) }}
	s, err := store.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	c := meta.DefaultTopic("Orders")
	if err := s.Topics().PutAll([]meta.Topic{c, meta.DefaultTopic("Empty")}); err != nil {
		t.Fatal(err)
	}
	rs := make([]store.Result, 2)
	s.Append([]store.Message{{Topic: "Orders", Queue: 5, Body: []byte("x")}, {Topic: "Orders", Queue: 0, Body: []byte("y")}}, rs)
	if rs[0].Err != nil || rs[1].Err != nil {
		t.Fatal(rs)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/s/config/topics.json", "/s/config/topics.json.bak"} {
		if err := vfs.WriteFile(fsys, name, []byte("\xff\xff"), ""); err != nil {
			t.Fatal(err)
		}
	}
	events = nil
	s, err = store.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got := s.Topics().Get("Orders")
	if got == nil || got.ReadQueues != 6 || got.WriteQueues != 6 || s.Topics().Len() != 1 {
		t.Errorf("Orders is %+v, %d topics", got, s.Topics().Len())
	}
	if q := s.Queue("Orders", 5, false); q == nil {
		t.Error("queue 5 is not there")
	} else if _, high := q.Range(); high != 1 {
		t.Errorf("queue 5 ends at %d", high)
	}
	if s.Append([]store.Message{{Topic: "Orders", Queue: 5, Body: []byte("z")}}, rs[:1]); rs[0].Err != nil || rs[0].QueueOffset != 1 {
		t.Errorf("the next message gives %+v", rs[0])
	}
	all := strings.Join(events, "\n")
	for _, want := range []string{"the table starts empty", "topics were lost and are made again"} {
		if !strings.Contains(all, want) {
			t.Errorf("no event says %q:\n%s", want, all)
		}
	}
}
