package store_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
)

// BenchmarkBudgetPublish is what one message of 1 KiB takes of the log, in bytes. The budget is 200 bytes more than a plain one, and 1.15 times at
// 1,000 a second.
//
// Alone means that a message shares no operate-queue record with another: one transaction at a time, ended before the next begins, and one delay at a
// time. At 1,000 a second there are 8 senders at random times, each of which commits as soon as it is answered.
func BenchmarkBudgetPublish(b *testing.B) {
	const senders, rate = 8, 1000
	send := func(b *testing.B, s *store.Store, m store.Message) store.Result {
		var rs [1]store.Result
		s.Append([]store.Message{m}, rs[:])
		if rs[0].Err != nil {
			b.Error(rs[0].Err)
		}
		return rs[0]
	}
	transaction := func(b *testing.B, s *store.Store, m store.Message) {
		m.Half = true
		ends := []store.HalfEnd{{Address: send(b, s, m).Address, Commit: true}}
		if s.EndHalves(b.Context(), ends); ends[0].Err != nil {
			b.Error(ends[0].Err)
		}
	}
	// visible waits until a queue has an offset.
	visible := func(b *testing.B, s *store.Store, m store.Message, offset int64) {
		there := make(chan struct{})
		s.Queue(m.Topic, m.Queue, true).Watch(offset, func() { close(there) })
		select {
		case <-there:
		case <-b.Context().Done():
		}
	}
	// paced calls fn n times from all senders, at times that no sender knows of another.
	paced := func(n int, fn func()) {
		var wg sync.WaitGroup
		for k := range senders {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(1, uint64(k)))
				next := time.Now()
				for range n / senders {
					next = next.Add(time.Duration(r.ExpFloat64() * senders / rate * float64(time.Second)))
					<-time.After(time.Until(next))
					fn()
				}
			})
		}
		wg.Wait()
	}
	for _, c := range []struct {
		name string
		most int // messages; these take a time each that does not get shorter
		run  func(b *testing.B, s *store.Store, m store.Message, n int)
	}{
		{"kind=plain", 1 << 30, func(b *testing.B, s *store.Store, m store.Message, n int) {
			for range n {
				send(b, s, m)
			}
		}},
		{"kind=transaction/ends=alone", 1 << 30, func(b *testing.B, s *store.Store, m store.Message, n int) {
			for range n {
				transaction(b, s, m)
			}
		}},
		{"kind=transaction/rate=1000", 4 * rate, func(b *testing.B, s *store.Store, m store.Message, n int) {
			paced(n, func() { transaction(b, s, m) })
		}},
		{"kind=delayed/ends=alone", 200, func(b *testing.B, s *store.Store, m store.Message, n int) {
			for i := range n {
				m.DeliverAt = time.Now().Add(5 * time.Millisecond).UnixMilli()
				send(b, s, m)
				visible(b, s, m, int64(i+1))
			}
		}},
		{"kind=delayed/rate=1000", 4 * rate, func(b *testing.B, s *store.Store, m store.Message, n int) {
			paced(n, func() {
				m := m
				m.DeliverAt = time.Now().Add(100 * time.Millisecond).UnixMilli()
				send(b, s, m)
			})
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := benchStore(b, meta.Async)
			m := benchMessages(1)[0]
			send(b, s, m) // the queue is there
			before := s.Bounds().Max
			n := max(min(b.N, c.most)/senders, 1) * senders
			c.run(b, s, m, n)
			if b.Failed() {
				return
			}
			visible(b, s, m, int64(n))
			b.ReportMetric(float64(s.Bounds().Max-before)/float64(n), "log-B/op")
		})
	}
}
