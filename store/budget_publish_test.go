package store_test

import (
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
)

// BenchmarkBudgetPublish is what one message of 1 KiB takes of the log, in bytes: sent plainly; in a transaction, each committed alone, which
// shares no record with another commit; and delayed, 1,000 due in a second. The budget is 200 bytes more than a plain one, and 1.15 times.
func BenchmarkBudgetPublish(b *testing.B) {
	append1 := func(b *testing.B, s *store.Store, m store.Message) store.Result {
		var rs [1]store.Result
		s.Append([]store.Message{m}, rs[:])
		if rs[0].Err != nil {
			b.Fatal(rs[0].Err)
		}
		return rs[0]
	}
	for _, kind := range []string{"plain", "transaction", "delayed"} {
		b.Run("kind="+kind, func(b *testing.B) {
			s := benchStore(b, meta.Async)
			m := benchMessages(1)[0]
			append1(b, s, m) // the queue is there
			before := s.Bounds().Max
			due := time.Now().Add(100 * time.Millisecond).UnixMilli()
			for i := range b.N {
				switch kind {
				case "plain":
					append1(b, s, m)
				case "transaction":
					m.Half = true
					ends := []store.HalfEnd{{Address: append1(b, s, m).Address, Commit: true}}
					if s.EndHalves(b.Context(), ends); ends[0].Err != nil {
						b.Fatal(ends[0].Err)
					}
				case "delayed":
					m.DeliverAt = due + int64(i)
					append1(b, s, m)
				}
			}
			visible := make(chan struct{})
			s.Queue(m.Topic, m.Queue, true).Watch(int64(b.N), func() { close(visible) })
			select {
			case <-visible:
			case <-b.Context().Done():
			}
			b.ReportMetric(float64(s.Bounds().Max-before)/float64(b.N), "log-B/op")
		})
	}
}
