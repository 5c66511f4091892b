package store_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/internal/vectors"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

// What a pop consumer of a 5.x broker was given and had not acknowledged comes again in the group's retry topic at its time, in a
// directory that is taken over, once each; what was acknowledged, or had come again, does not. Restarts, also without views, change nothing of it.
func TestWhatAPopConsumerHasNotAcknowledgedComesAgain(t *testing.T) {
	for _, name := range vectors.PopNames {
		t.Run(name, func(t *testing.T) {
			m, want := brokerDirectory(t, name)
			now := time.UnixMilli(1796031600000) // nothing is due yet
			var wait, come []string
			for _, p := range want.Popped {
				wait = append(wait, fmt.Sprintf("%s of %s due %d, attempt %d", p.Group, p.Topic, p.Due, p.ReconsumeTimes+1))
				come = append(come, fmt.Sprintf("%s %d", p.Body, p.ReconsumeTimes+1))
			}
			slices.Sort(wait)
			slices.Sort(come)
			open := func() *store.Store {
				s, err := tryOpen(t, store.Options{Dir: "/s", FS: m, Now: func() time.Time { return now }})
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			shut := func(s *store.Store) {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			for _, when := range []string{"taken over", "opened again", "without views"} {
				s := open()
				var got []string
				ds := make([]state.Due, 20)
				for _, d := range ds[:s.Returns(state.Due{}, ds)] {
					got = append(got, fmt.Sprintf("%s of %s due %d, attempt %d", d.Group, d.Topic, d.Due, d.Attempt))
				}
				slices.Sort(got)
				if diff := cmp.Diff(wait, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", when, diff)
				}
				if n := s.Delays(state.Due{}, ds); n > 0 {
					t.Errorf("%s: the broker's own records wait: %+v", when, ds[:n])
				}
				shut(s)
				if when == "opened again" {
					if err := m.Remove("/s/fusionmq/checkpoint"); err != nil {
						t.Fatal(err)
					}
				}
			}

			if t.Failed() {
				return // what follows would wait for ever
			}
			now = time.UnixMilli(want.Popped[0].Due + 24*3600_000)
			s := open()
			const retry = "%RETRY%G_PopT"
			q := s.Queue(retry, 0, false)
			done := make(chan struct{})
			stop := q.Watch(1+int64(len(want.Popped)), func() { close(done) })
			<-done
			stop()
			var got []string
			es := make([]store.TopicEntry, 20)
			es = es[:s.ReadTopic(retry, 0, es)]
			for _, e := range es[2:] { // two are the broker's own
				b, release, err := s.Record(e.Entry)
				if err != nil {
					t.Fatal(err)
				}
				v, err := record.Parse(b)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintf("%s %d", v.Body(), v.ReconsumeTimes()))
				i := slices.IndexFunc(want.Popped, func(p vectors.Popped) bool {
					return p.Body == string(v.Body())
				})
				pop, _ := v.Property("1ST_POP_TIME")
				if first := want.Popped[i].PopTime; want.Popped[i].ReconsumeTimes == 0 && string(pop) != strconv.FormatInt(first, 10) {
					t.Errorf("%s was popped at %s, want %d", v.Body(), pop, first)
				}
				if string(v.Topic()) != retry || v.Flag() != 7 || bytes.Count(v.Properties(), []byte("1ST_POP_TIME")) != 1 {
					t.Errorf("%s: topic %s, flag %d, properties %q", v.Body(), v.Topic(), v.Flag(), v.Properties())
				}
				release()
			}
			slices.Sort(got)
			if diff := cmp.Diff(come, got); diff != "" {
				t.Errorf("came again (-want +got):\n%s", diff)
			}
			if n, ok := s.Offsets().Get("G", retry, 0); !ok || n != 1 {
				t.Errorf("the group stands at %d, %v in its retry topic", n, ok)
			}
			shut(s)
		})
	}
}
