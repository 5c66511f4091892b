package export_test

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/check"
	"github.com/fusionmq/fusionmq/store/export"
	"github.com/fusionmq/fusionmq/store/internal/vectors"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/rocketmq"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// A directory of a real broker that was taken over goes back: light queues under their offsets, and what a pop consumer had not
// acknowledged for its retry topic, once: the check points of before are not open any more.
func TestWhatWasTakenOverGoesBack(t *testing.T) {
	now := func() time.Time { return time.UnixMilli(1796031600000) } // nothing is due
	for _, name := range append([]string{"5.3.3-lmq"}, vectors.PopNames...) {
		t.Run(name, func(t *testing.T) {
			all, want, err := vectors.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			m := vfs.NewMem()
			for n, b := range all {
				if n == rocketmq.WheelFile {
					continue
				}
				n = path.Join("/s", n)
				if err := m.MkdirAll(path.Dir(n)); err != nil {
					t.Fatal(err)
				}
				if err := vfs.WriteFile(m, n, b, ""); err != nil {
					t.Fatal(err)
				}
			}
			if name == "5.3.3-lmq" {
				if err := vfs.WriteFile(m, "/s/config/lmqConsumerOffset.json", []byte(`{"lmqOffsetTable":{"%LMQ%vec1@g":2},"offsetTable":{"VecSLmq@g":{2:1}}}`), ""); err != nil {
					t.Fatal(err)
				}
			}
			seen := func(dir string) (light []string, returns, delays []state.Due) {
				s, err := store.Open(store.Options{Dir: dir, FS: m, Now: now})
				if err != nil {
					t.Fatal(err)
				}
				s.Queues(func(q *queue.Queue) {
					if low, high := q.Range(); strings.HasPrefix(q.Topic().Name(), rocketmq.LightPrefix) {
						light = append(light, fmt.Sprint(q.Topic().Name(), low, high))
					}
				})
				slices.Sort(light)
				returns, delays = make([]state.Due, 20), make([]state.Due, 20)
				returns, delays = returns[:s.Returns(state.Due{}, returns)], delays[:s.Delays(state.Due{}, delays)]
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				return light, returns, delays
			}
			light, returns, _ := seen("/s")
			if len(returns) != len(want.Popped) || len(light)+len(returns) == 0 {
				t.Fatalf("light queues %v, %d messages come again, want %d", light, len(returns), len(want.Popped))
			}
			if _, err := export.Run(context.Background(), export.Options{Src: "/s", Dst: "/x", FS: m, Now: now}); err != nil {
				t.Fatal(err)
			}
			if r, err := check.Run(context.Background(), check.Options{Dir: "/x", FS: m}); err != nil || r.Err() != nil || r.Kind != check.RocketMQ {
				t.Fatalf("%+v, %v", r, err)
			}
			lightBack, returnsBack, delays := seen("/x")
			if diff := cmp.Diff(light, lightBack); diff != "" {
				t.Errorf("light queues (-want +got):\n%s", diff)
			}
			p, err := rocketmq.ReadProgress(m, "/x")
			if err != nil || name == "5.3.3-lmq" && (p.Light["%LMQ%vec1@g"] != 2 || p.Offsets["VecSLmq@g"][2] != 1) {
				t.Errorf("offsets %v and %v, %v", p.Light, p.Offsets, err)
			}
			if len(returnsBack) > 0 {
				t.Errorf("still open as a pop: %+v", returnsBack)
			}
			var due, back []int64
			for _, d := range returns {
				due = append(due, d.Due)
			}
			for _, d := range delays {
				if back = append(back, d.Due); d.Topic != "%RETRY%G_PopT" {
					t.Errorf("waits for %s", d.Topic)
				}
			}
			slices.Sort(due)
			slices.Sort(back)
			if diff := cmp.Diff(due, back); diff != "" {
				t.Errorf("due (-want +got):\n%s", diff)
			}
		})
	}
}
