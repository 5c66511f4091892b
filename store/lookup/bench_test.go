package lookup

import (
	"context"
	"flag"
	"fmt"
	"testing"

	"github.com/fusionmq/fusionmq/store/vfs"
)

var benchKeys = flag.Int("bench.keys", 2_000_000, "keys in the index of BenchmarkQuery")

// BenchmarkQuery asks an index on real files for keys that are there, newest and oldest alike, and for keys that are not.
func BenchmarkQuery(b *testing.B) {
	n := *benchKeys
	l := &countingLog{n: int64(n)}
	x, err := Open(Config{
		FS: vfs.OS, Dir: b.TempDir(), LogEnd: int64(n), Scan: l.scan, SpanBytes: 1 << 40,
		Boundary: func(int64) int64 { return 0 }, Failed: func(err error) { b.Error(err) },
	})
	if err != nil {
		b.Fatal(err)
	}
	defer x.Close()
	if err := x.Wait(context.Background(), 0, int64(n)); err != nil {
		b.Fatal(err)
	}
	for _, there := range []bool{true, false} {
		b.Run(fmt.Sprintf("keys=%d/there=%v", n, there), func(b *testing.B) {
			b.ReportAllocs()
			found := 0
			for i := range b.N {
				k := uint64(i) * 7919 % uint64(n)
				if !there {
					k += uint64(n)
				}
				if err := x.Query(spread(k), 0, 1<<40, func(int64) bool { found++; return true }); err != nil {
					b.Fatal(err)
				}
			}
			if there && found < b.N || !there && found > 0 {
				b.Fatalf("found %d of %d", found, b.N)
			}
			s := x.Stats()
			b.ReportMetric(float64(s.Runs), "runs")
			b.ReportMetric(float64(s.Bytes)/float64(max(1, s.Entries)), "B/key")
		})
	}
}

// countingLog has a record of a byte with one key at each position.
type countingLog struct{ n int64 }

func (l *countingLog) scan(from, end int64, fn func(address, time int64, hashes []uint64) error) error {
	var h [1]uint64
	for at := from; at < end; at++ {
		h[0] = spread(uint64(at))
		if err := fn(at, at, h[:]); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkKeys is what the index does with a record of a Java client.
func BenchmarkKeys(b *testing.B) {
	props := []byte("KEYS\x01order-4711 user-42\x02UNIQ_KEY\x017F0000010DD418B4AAC27F4C8AB90000\x02CLUSTER\x01DefaultCluster\x02WAIT\x01true\x02TAGS\x01TagA\x02")
	topic := TopicOf("Orders")
	var hs [8]uint64
	b.ReportAllocs()
	for b.Loop() {
		if len(topic.Keys(hs[:0], props)) != 3 {
			b.Fatal("keys are missing")
		}
	}
}

func BenchmarkMayHaveKeys(b *testing.B) {
	props := []byte("CLUSTER\x01DefaultCluster\x02WAIT\x01true\x02TAGS\x01TagA\x02MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02")
	b.ReportAllocs()
	for b.Loop() {
		if MayHaveKeys(props) {
			b.Fatal("it has none")
		}
	}
}
