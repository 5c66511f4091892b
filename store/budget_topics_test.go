package store_test

import (
	"fmt"
	"testing"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
)

// BenchmarkBudgetTopics writes every queue of the topics in turn, 32 records of 1 KiB a call, and then reads them all,
// queue after queue. Budget: 10,000 topics reach 90% of the throughput of 1. One operation is one record, written and
// read. Its cpu-ns/op hold on a busy machine.
func BenchmarkBudgetTopics(b *testing.B) {
	for _, topics := range []int{1, 10000} {
		b.Run(fmt.Sprintf("topics=%d", topics), func(b *testing.B) {
			const queues, batch = 4, 32
			s := benchStore(b, meta.Async)
			cs := make([]meta.Topic, topics)
			for i := range cs {
				cs[i] = meta.DefaultTopic(fmt.Sprintf("Topic-%05d", i))
			}
			if err := s.Topics().PutAll(cs); err != nil {
				b.Fatal(err)
			}
			ms, rs := benchMessages(batch), make([]store.Result, batch)
			es := make([]queue.Entry, batch)
			for i := range topics * queues { // the first record of a queue makes it, which is not what is measured
				ms[0].Topic, ms[0].Queue = cs[i/queues].Name, int32(i%queues)
				if s.Append(ms[:1], rs[:1]); rs[0].Err != nil {
					b.Fatal(rs[0].Err)
				}
			}
			b.SetBytes(benchBody)
			b.ReportAllocs()
			b.ResetTimer()
			stop := cpuPerOp(b)
			for n := 0; n < b.N; n += batch {
				for k := range ms {
					q := (n + k) % (topics * queues)
					ms[k].Topic, ms[k].Queue = cs[q/queues].Name, int32(q%queues)
				}
				s.Append(ms, rs)
				if rs[0].Err != nil {
					b.Fatal(rs[0].Err)
				}
			}
			read := 0
			for i := range topics * queues {
				q := s.Queue(cs[i/queues].Name, int32(i%queues), false)
				for at := int64(1); ; {
					n, err := q.Read(at, es)
					if err != nil {
						b.Fatal(err)
					}
					if n == 0 {
						break
					}
					for k := range n {
						rec, release, err := s.Record(es[k])
						if err != nil {
							b.Fatal(err)
						}
						v, err := record.Parse(rec)
						if err != nil || v.QueueOffset() != at+int64(k) {
							b.Fatalf("record %d of %s/%d: offset %d, %v", at+int64(k), cs[i/queues].Name, i%queues, v.QueueOffset(), err)
						}
						release()
					}
					at += int64(n)
					read += n
				}
			}
			stop()
			if want := (b.N + batch - 1) / batch * batch; read != want {
				b.Fatalf("read %d records, want %d", read, want)
			}
		})
	}
}
