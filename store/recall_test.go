package store_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// A delayed message is taken back by its id, also after a restart, and who comes too late or twice is told so.
func TestRecallDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := store.Options{FS: vfs.NewMem(), Dir: "/s"}
		s, err := tryOpen(t, o)
		if err != nil {
			t.Fatal(err)
		}
		addTopic(t, s, "T", meta.Async)
		addTopic(t, s, "U", meta.Async)
		now := time.Now()
		uniq := func(id string) []byte { return []byte("UNIQ_KEY\x01" + id + "\x02") }
		send := func(topic, id string, after time.Duration) {
			sendWaiting(t, s, store.Message{Topic: topic, Body: []byte(topic + id), Properties: uniq(id), DeliverAt: now.Add(after).UnixMilli()})
		}
		send("T", "one", time.Minute)
		send("T", "twice", time.Minute)
		send("T", "twice", 39*24*time.Hour)
		send("U", "one", time.Minute) // of another topic
		send("T", "soon", time.Second)
		send("T", "now", -time.Second)
		sendWaiting(t, s, store.Message{Topic: "T", Body: []byte("level"), Properties: uniq("level"), DelayLevel: 18})
		sendWaiting(t, s, store.Message{Topic: "T", Body: []byte("half"), Properties: uniq("half"), Half: true})
		time.Sleep(2 * time.Second)
		recall := func(id string, want store.Recall) {
			t.Helper()
			if got, err := s.RecallDelay(t.Context(), "T", id); got != want || err != nil {
				t.Errorf("recall of %s: %d, %v, want %d", id, got, err, want)
			}
		}
		recall("one", store.RecallTaken)
		recall("one", store.RecallBefore)
		recall("twice", store.RecallTaken)
		recall("soon", store.RecallPublished)
		recall("now", store.RecallPublished)
		recall("half", store.RecallUnknown)
		recall("other", store.RecallUnknown)
		if n := s.StateStats().Delays; n != 2 {
			t.Errorf("%d delays are left, want U's and the one of a level", n)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = tryOpen(t, o); err != nil {
			t.Fatal(err)
		}
		recall("twice", store.RecallBefore)
		recall("level", store.RecallTaken)
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if got := bodies(t, s, "T", 0); !slices.Equal(got, []string{"Tnow", "Tsoon"}) {
			t.Errorf("T has %q", got)
		}
		if got := bodies(t, s, "U", 0); !slices.Equal(got, []string{"Uone"}) {
			t.Errorf("U has %q", got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
