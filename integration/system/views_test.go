package system

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
	"github.com/fusionmq/fusionmq/integration/internal/raw"
	"github.com/fusionmq/fusionmq/integration/internal/rmq"
	"github.com/fusionmq/fusionmq/sdk-go/notify"
)

// contents lists everything that can be pulled from a topic, one line a message.
func contents(t *testing.T, s *proc.Server, topic string, queues int) (out []string) {
	t.Helper()
	c := dial(t, s, "broker")
	for q := range queues {
		for next := int64(0); ; {
			before := next
			var err error
			next, err = raw.Pull(c, "contents", topic, q, next, 0, func(m raw.Message) {
				out = append(out, fmt.Sprintf("queue %d offset %d address %d time %d %s %q", m.Queue, m.QueueOffset, m.Address, m.StoreTime, m.Body, m.Properties))
			})
			if err != nil {
				t.Fatal(err)
			}
			if next == before {
				break
			}
		}
	}
	return out
}

// Law 1 from outside: the log and config/*.json are all there is to know. Whatever else lies in the data directory may go.
func TestLaw1EverythingButTheLogMayBeDeleted(t *testing.T) {
	for _, end := range []string{"a stop", "a kill"} {
		t.Run("after "+end, func(t *testing.T) {
			dir := t.TempDir()
			s := start(t, dir)
			topic, group := rmq.Unique("Views"), rmq.Unique("S")
			const queues = 3
			createTopic(t, s, topic, queues)
			var before inbox
			leave := subscribe(t, s, group, &before, []notify.Binding{notify.Direct(topic, "a")})
			send := newProducer(t, s)
			for i := range 300 {
				send(message(topic, []string{"a", "b"}[i%2], fmt.Sprintf("pushed %d", i)))
			}
			before.wait(t, 150)
			leave()
			for i := range 300 {
				send(message(topic, []string{"a", "b"}[i%2], fmt.Sprintf("waiting %d", i)))
			}
			want := contents(t, s, topic, queues)
			if len(want) != 600 {
				t.Fatalf("%d messages can be pulled, want 600", len(want))
			}
			if end == "a kill" {
				s.Kill()
			} else if code, _, err := s.Stop(10 * time.Second); code != 0 || err != nil {
				t.Fatalf("stop: exit %d, %v", code, err)
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			removed := 0
			for _, e := range entries {
				if e.Name() == "commitlog" || e.Name() == "config" {
					continue
				}
				if end == "a kill" && e.Name() == "abort" {
					continue // it says that there was no stop
				}
				if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
					t.Fatal(err)
				}
				removed++
			}
			if removed == 0 {
				t.Fatal("there was nothing to delete, so this shows nothing")
			}

			s = start(t, dir)
			got := contents(t, s, topic, queues)
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || got[i] != want[i] {
					t.Fatalf("message %d differs of %d, before there were %d:\n got %v\nwant %v", i, len(got), len(want), at(got, i), at(want, i))
				}
			}
			var after inbox
			subscribe(t, s, group, &after, nil)
			after.wait(t, 150)
			for body, n := range after.bodies() {
				if repeat := before.bodies()[body]; n != 1 || repeat != 0 && end == "a stop" {
					t.Errorf("%q was pushed %d times after the start and %d times before", body, n, repeat)
				}
			}
		})
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "nothing"
}
