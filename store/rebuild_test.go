package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// TestLostTopicsAreMadeAgainFromTheLog is STO-13 (c): whatever happens to topics.json, no message is out of reach.
func TestLostTopicsAreMadeAgainFromTheLog(t *testing.T) {
	const name = "/s/config/topics.json"
	garbage := func(t *testing.T, fsys vfs.FS, names ...string) {
		for _, n := range names {
			if err := vfs.WriteFile(fsys, n, []byte("\xff\xff"), ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(t *testing.T, fsys vfs.FS, names ...string) {
		for _, n := range names {
			if err := fsys.Remove(n); err != nil {
				t.Fatal(err)
			}
		}
		if err := fsys.SyncDir("/s/config"); err != nil {
			t.Fatal(err)
		}
	}
	// The backup is from before Late was made and before Orders had 20 queues.
	tests := []struct {
		name         string
		damage       func(t *testing.T, fsys vfs.FS)
		ordersWrites int32
		topics       int
		events       []string
	}{
		{"both are garbage", func(t *testing.T, fsys vfs.FS) { garbage(t, fsys, name, name+".bak") }, 20, 2, []string{"the table starts empty", "topics were lost"}},
		{"both are gone", func(t *testing.T, fsys vfs.FS) { remove(t, fsys, name, name+".bak") }, 20, 2, []string{"topics were lost"}},
		{"garbage, with a backup", func(t *testing.T, fsys vfs.FS) { garbage(t, fsys, name) }, 16, 3, []string{"its backup is used", "topics were lost"}},
		{"gone, with a backup", func(t *testing.T, fsys vfs.FS) { remove(t, fsys, name) }, 16, 3, []string{"file does not exist", "its backup is used", "topics were lost"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			fsys := vfs.NewMem()
			var events []string
			o := store.Options{Dir: "/s", FS: fsys, SegmentBytes: 64 << 10, Events: func(e store.Event) { events = append(events, e.Name+" "+fmt.Sprint(e.Attrs...)) }}
			s, err := tryOpen(t, o)
			if err != nil {
				t.Fatal(err)
			}
			orders, late := meta.DefaultTopic("Orders"), meta.DefaultTopic("Late")
			if err := s.Topics().PutAll([]meta.Topic{orders, meta.DefaultTopic("Empty")}); err != nil {
				t.Fatal(err)
			}
			orders.ReadQueues, orders.WriteQueues = 20, 20
			if err := s.Topics().PutAll([]meta.Topic{orders, late}); err != nil {
				t.Fatal(err)
			}
			rs := make([]store.Result, 3)
			s.Append([]store.Message{{Topic: "Orders", Queue: 19, Body: []byte("x")}, {Topic: "Orders", Queue: 0, Body: []byte("y")}, {Topic: "Late", Queue: 2, Body: []byte("z")}}, rs)
			for _, r := range rs {
				if r.Err != nil {
					t.Fatal(r.Err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			tc.damage(t, fsys)
			events = nil
			s, err = tryOpen(t, o)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if c := s.Topics().Get("Orders"); c == nil || c.ReadQueues != 20 || c.WriteQueues != tc.ordersWrites {
				t.Errorf("Orders is %+v, want 20 queues to read and %d to write", c, tc.ordersWrites)
			}
			if c := s.Topics().Get("Late"); c == nil || c.ReadQueues != 3 || c.WriteQueues != 3 {
				t.Errorf("Late is %+v, want 3 queues", c)
			}
			if n := s.Topics().Len(); n != tc.topics {
				t.Errorf("%d topics, want %d", n, tc.topics)
			}
			if s.Append([]store.Message{{Topic: "Late", Queue: 2, Body: []byte("z")}}, rs[:1]); rs[0].Err != nil || rs[0].QueueOffset != 1 {
				t.Errorf("the next message gives %+v", rs[0])
			}
			all := strings.Join(events, "\n")
			for _, want := range tc.events {
				if !strings.Contains(all, want) {
					t.Errorf("no event says %q:\n%s", want, all)
				}
			}
		})
	}
}
