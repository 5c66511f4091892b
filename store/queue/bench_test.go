package queue

import (
	"fmt"
	"testing"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// fill puts n entries of 1 KiB over topics x 4 queues in turn and says that they are synced now and then, as the log does.
func fill(b testing.TB, x *Index, qs []*Queue, n int, from int64) int64 {
	at := from
	for i := 0; i < n; i++ {
		q := qs[i%len(qs)]
		if err := q.Put(q.next, Entry{Address: at, Position: at, Size: 1024, Time: at >> 20}, true); err != nil {
			b.Fatal(err)
		}
		at += 1024
		if i%64 == 63 {
			x.Wake()
		}
		if i%65536 == 65535 {
			x.Synced(at)
		}
	}
	return at
}

func queuesOf(x *Index, topics int) []*Queue {
	qs := make([]*Queue, 0, 4*topics)
	for i := range topics {
		for id := range int32(4) {
			qs = append(qs, x.Queue(fmt.Sprintf("topic-%05d", i), id, true))
		}
	}
	return qs
}

func openOS(b testing.TB, dir string, end int64) *Index {
	x, err := Open(Config{FS: vfs.OS, Dir: dir, LogEnd: end, Failed: func(err error) { b.Error(err) }})
	if err != nil {
		b.Fatal(err)
	}
	return x
}

// BenchmarkPut is the index's share of an append, sealing in the background included.
func BenchmarkPut(b *testing.B) {
	for _, topics := range []int{1, 10000} {
		b.Run(fmt.Sprintf("topics=%d", topics), func(b *testing.B) {
			x := openOS(b, b.TempDir(), 0)
			defer x.Close()
			qs := queuesOf(x, topics)
			b.ReportAllocs()
			b.ResetTimer()
			fill(b, x, qs, b.N, 0)
		})
	}
}

// BenchmarkRead reads 32 entries a call, one after the other.
func BenchmarkRead(b *testing.B) {
	for _, where := range []string{"memory", "span"} {
		b.Run("from="+where+"/n=32", func(b *testing.B) {
			x := openOS(b, b.TempDir(), 0)
			defer x.Close()
			qs := queuesOf(x, 1)
			end := fill(b, x, qs, 100000, 0)
			if where == "span" {
				x.Synced(end)
				if err := x.Seal(end); err != nil {
					b.Fatal(err)
				}
			}
			var dst [32]Entry
			b.ReportAllocs()
			b.ResetTimer()
			at := int64(0)
			for b.Loop() {
				n, err := qs[0].Read(at, dst[:])
				if err != nil {
					b.Fatal(err)
				}
				if at += int64(n); n == 0 {
					at = 0
				}
			}
		})
	}
}

// BenchmarkTopicRead merges the queues of a topic, 64 entries a call.
func BenchmarkTopicRead(b *testing.B) {
	for _, queues := range []int{4, 64} {
		b.Run(fmt.Sprintf("queues=%d/n=64", queues), func(b *testing.B) {
			x := openOS(b, b.TempDir(), 0)
			defer x.Close()
			var qs []*Queue
			for id := range queues {
				qs = append(qs, x.Queue("T", int32(id), true))
			}
			fill(b, x, qs, 100000, 0)
			var dst [64]TopicEntry
			b.ReportAllocs()
			b.ResetTimer()
			from := int64(0)
			for b.Loop() {
				n, err := x.Topic("T", false).Read(from, dst[:])
				if err != nil {
					b.Fatal(err)
				}
				if from = 0; n > 0 {
					from = dst[n-1].Address + 1
				}
			}
		})
	}
}

// BenchmarkOpen starts on 10 GiB of log with records of 1 KiB after a clean stop; the page cache is warm.
func BenchmarkOpen(b *testing.B) {
	for _, topics := range []int{1, 10000} {
		b.Run(fmt.Sprintf("log=10GiB/topics=%d", topics), func(b *testing.B) {
			dir := b.TempDir()
			x := openOS(b, dir, 0)
			end := int64(0)
			qs := queuesOf(x, topics)
			for range 40 {
				end = fill(b, x, qs, 256<<10, end)
				x.Synced(end)
				if err := x.Drain(); err != nil {
					b.Fatal(err)
				}
			}
			if err := x.Seal(end); err != nil {
				b.Fatal(err)
			}
			if err := x.Close(); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				x := openOS(b, dir, end)
				if x.Resume() != end {
					b.Fatalf("resumes at %d, want %d", x.Resume(), end)
				}
				x.Close()
			}
		})
	}
}
