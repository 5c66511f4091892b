package server

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/notify/wire"
)

// TestBodiesOfEverySizeArriveWhole: copied ones and ones that go out from where they lie, in batches and plain frames, to a client
// whose small window makes the server wait in the middle of a write.
func TestBodiesOfEverySizeArriveWhole(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, c := range []struct {
		name     string
		features wire.Feature
	}{{"batch", wire.FeatureBatch}, {"plain", 0}} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, nil)
			first := r.dial()
			first.metadata(0, "S-a")
			first.must(wire.OpSubscribe, binding(wire.Fanout, "T", "", "S-a"), nil)
			first.nc.Close()
			for r.svc.Stats().Members > 0 {
				time.Sleep(time.Millisecond)
			}
			pub := r.dial()
			pub.metadata(0, "P-test")
			rnd := rand.New(rand.NewPCG(seed, 2))
			bodies := make([][]byte, 200)
			for i := range bodies {
				size := []int{1, 100, copyBelow - 1, copyBelow, copyBelow + 1, 9000, 70_000, 300_000}[rnd.IntN(8)]
				b := make([]byte, size)
				for j := range b {
					b[j] = byte(rnd.Uint32())
				}
				bodies[i] = b
				pub.send(uint64(i), "T", "x", string(b))
			}

			sub := r.dial()
			if err := sub.nc.(*net.TCPConn).SetReadBuffer(256 << 10); err != nil {
				t.Fatal(err)
			}
			sub.metadata(c.features, "S-a")
			got := map[uint64]bool{}
			take := func(header, body []byte) {
				var h wire.MessageHeader
				if err := h.Decode(header); err != nil {
					t.Fatal(err)
				}
				i := binary.BigEndian.Uint64(h.ID[8:])
				if i >= uint64(len(bodies)) || got[i] || !bytes.Equal(body, bodies[i]) {
					t.Fatalf("message %d with %d bytes is not the one that was sent, or came again", i, len(body))
				}
				got[i] = true
			}
			for len(got) < len(bodies) {
				f := sub.read()
				if f.Opcode == wire.OpDeliver {
					take(f.Header, f.Body)
					sub.ack(f.Opaque, wire.NoError)
					continue
				}
				ds, err := wire.Batch(f.Header, f.Body)
				if err != nil {
					t.Fatal(err)
				}
				run := wire.AckRun{}
				for ds.Len() > 0 {
					tag, header, body, _, err := ds.Next()
					if err != nil {
						t.Fatal(err)
					}
					take(header, body)
					if run.First == 0 {
						run.First = tag
					}
					run.Last = tag
				}
				var e wire.AckEncoder
				b, err := wire.AppendRequest(nil, wire.OpAckBatch, 0, nil, e.Append(nil, run))
				if err != nil {
					t.Fatal(err)
				}
				sub.write(b)
			}
		})
	}
}
