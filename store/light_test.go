package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// light lists what is in the light queues: queue, offset, address.
func light(t *testing.T, s *store.Store) []string {
	t.Helper()
	var all []string
	s.Queues(func(q *queue.Queue) {
		name := q.Topic().Name()
		if !strings.HasPrefix(name, "%LMQ%") {
			return
		}
		low, high := q.Range()
		es := make([]queue.Entry, 10)
		n, err := q.Read(low, es)
		if err != nil || int64(n) != high-low {
			t.Fatalf("%s: %d of [%d, %d), %v", name, n, low, high, err)
		}
		for i, e := range es[:n] {
			b, release, err := s.Record(e)
			if err != nil {
				t.Fatal(err)
			}
			v, err := record.Parse(b)
			if err != nil || v.PhysicalOffset() != e.Address {
				t.Fatalf("%s at %d: record of %d, want %d, %v", name, low+int64(i), v.PhysicalOffset(), e.Address, err)
			}
			release()
			all = append(all, fmt.Sprintf("%s %d %d", name, low+int64(i), e.Address))
		}
	})
	slices.Sort(all)
	return all
}

// The light queues of a directory that is taken over are there, with the broker's offsets, also when everything but the log is gone. No
// message of a client joins one, whatever its properties say.
func TestLaw1LightQueuesAreAFunctionOfTheLog(t *testing.T) {
	m, want := brokerDirectory(t, "5.3.3-lmq")
	put(t, m, "/s/config/lmqConsumerOffset.json", []byte(`{"lmqOffsetTable":{"%LMQ%vec1@g":2,"%LMQ%vec2@g":9,"%LMQ%none@g":1},"offsetTable":{"VecSLmq@g":{2:3,1:1}}}`))
	var entries []string
	for _, x := range want.Messages {
		if x.ReadFrom == nil {
			continue
		}
		var from struct {
			Topic  string `json:"topic"`
			Offset int64  `json:"queue_offset"`
		}
		if err := json.Unmarshal(x.ReadFrom, &from); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, fmt.Sprintf("%s %d %d", from.Topic, from.Offset, x.Position))
	}
	slices.Sort(entries)
	if len(entries) != 5 {
		t.Fatal(entries)
	}
	for _, when := range []string{"taken over", "opened again", "without views"} {
		s, err := tryOpen(t, store.Options{Dir: "/s", FS: m})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(entries, light(t, s)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
		c := s.Topics().Get("%LMQ%vec2")
		if c == nil || c.ReadQueues != 1 || c.Perm != meta.PermRead {
			t.Errorf("%s: topic %+v", when, c)
		}
		end := int64(0)
		if q := s.Queue("VecSLmq", 2, false); q != nil {
			_, end = q.Range()
		}
		for _, o := range []meta.Offset{{Group: "g", Topic: "%LMQ%vec1", Offset: 2}, {Group: "g", Topic: "%LMQ%vec2", Offset: 2}, {Group: "g", Topic: "VecSLmq", Queue: 2, Offset: min(3, end)}} {
			if n, ok := s.Offsets().Get(o.Group, o.Topic, o.Queue); !ok || n != o.Offset {
				t.Errorf("%s: offset of %s is %d, %v, want %d", when, o.Topic, n, ok, o.Offset)
			}
		}
		if when == "taken over" {
			props := record.AppendProperty(record.AppendProperty(nil, "INNER_MULTI_DISPATCH", "%LMQ%vec1"), "INNER_MULTI_QUEUE_OFFSET", "3")
			rs := make([]store.Result, 1)
			if s.Append([]store.Message{{Topic: "VecSLmq", Body: []byte("x"), Properties: props}}, rs); rs[0].Err != nil {
				t.Fatal(rs[0].Err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if when == "opened again" {
			if err := removeAll(m, "/s/fusionmq"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// removeAll removes every file below a directory.
func removeAll(m *vfs.Mem, dir string) error {
	names, err := m.List(dir)
	for _, name := range names {
		if d, ok := strings.CutSuffix(name, "/"); ok {
			err = errors.Join(err, removeAll(m, dir+"/"+d))
		} else {
			err = errors.Join(err, m.Remove(dir+"/"+name))
		}
	}
	return err
}
