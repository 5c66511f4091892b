//go:build !race

package broker

import (
	"testing"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store"
)

// A send and a pulled message cost the broker at most one allocation each (design 7). The client allocates nothing, so all
// of the process is counted. The race detector allocates for itself, so this file is not in its build.
func TestAllocationsPerMessage(t *testing.T) {
	e := start(t, func(_ *Config, o *store.Options) { o.SegmentBytes = 256 << 20 })
	e.topic("T", 4)
	c := e.raw()
	const burst, rounds = 128, 100
	send := e.burstOf(burst, 256, false)
	for range 20 {
		c.exchange(t, send, burst)
	}
	n := allocations(func() {
		for range rounds {
			c.exchange(t, send, burst)
		}
	})
	if per := float64(n) / (rounds * burst); per > 1 {
		t.Errorf("a send costs %.2f allocations, want at most 1", per)
	} else {
		t.Logf("a send costs %.2f allocations", per)
	}
	var enc remoting.Encoder
	for i := range 8 {
		enc.Begin(remoting.Head{Code: remoting.ReqPullMessage, Opaque: int32(i + 1)})
		f := pullReq{group: "G", topic: "T", queue: i % 4, sub: "*"}.fields()
		for j := 0; j < len(f); j += 2 {
			enc.String(f[j], f[j+1])
		}
		if err := enc.End(nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		c.exchange(t, enc.Bytes(), 8)
	}
	n = allocations(func() {
		for range rounds {
			c.exchange(t, enc.Bytes(), 8)
		}
	})
	if per := float64(n) / (rounds * 8 * 32); per > 1 {
		t.Errorf("a pulled message costs %.2f allocations, want at most 1", per)
	} else {
		t.Logf("a pulled message costs %.2f allocations", per)
	}
}
