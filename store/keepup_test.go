package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
)

// Segments may be smaller than the state that is appended before one goes. Deleting one at a time as it becomes old would then write more than it
// frees, and all of that again when it is old: several go at a time, so that the log stays as long as what waits and a retention's worth of traffic.
func TestDeletionKeepsUpWhenStateIsLargerThanASegment(t *testing.T) {
	for _, n := range []int{100, 15_000} {
		c := newClock()
		o := retention(c)
		s := open(t, o)
		addTopic(t, s, "T", meta.Async)
		ms, rs := make([]store.Message, 500), make([]store.Result, 500)
		for i := range ms {
			ms[i] = store.Message{Topic: "T", Half: true, Body: []byte("b")}
		}
		for done := 0; done < n; done += len(ms) {
			s.Append(ms[:min(len(ms), n-done)], rs)
		}
		settle(t, s)
		b := s.Bounds()
		waits := b.Max - b.Min
		body, written, most := strings.Repeat(".", 1000), int64(0), int64(0)
		const rounds = 45
		for i := range rounds {
			for range 10 { // nearly a segment in ten minutes, and a look in every one
				for range 6 {
					send(t, s, "T", 0, body)
				}
				settle(t, s)
				c.pass(time.Minute)
				clean(t, s)
			}
			if i == 0 {
				written = s.Bounds().Max - b.Max
			}
			b = s.Bounds()
			if most = max(most, b.Max-b.Min); most > 32<<20 {
				t.Fatalf("with %d that wait the log has %d bytes after %d rounds of %d, at first %d", n, most, i+1, written, waits)
			}
		}
		// An hour and a quarter of traffic, what waits twice, since it is moved while the old is there, and what is held until its deletion is worth what it writes.
		state := int64(n) * 11
		bound := 8*written + 2*waits + 8*state + 6*o.SegmentBytes
		t.Logf("%d wait in %d bytes, traffic is %d bytes a round: the log had at most %d, want at most %d", n, waits, written, most, bound)
		if most > bound {
			t.Errorf("the log had %d bytes, want at most %d", most, bound)
		}
		if got := s.StateStats().Halves; got != n {
			t.Errorf("%d wait, want %d", got, n)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
