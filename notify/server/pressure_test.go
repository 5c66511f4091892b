package server

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/notify"
	"github.com/fusionmq/fusionmq/notify/wire"
)

// half sends all but the last ten bytes of a send with a body of n bytes, and returns those.
func (c *client) half(n int) (rest []byte) {
	c.t.Helper()
	b, err := wire.AppendRequest(nil, wire.OpSend, 1, header(1, "T", "x"), make([]byte, n))
	if err != nil {
		c.t.Fatal(err)
	}
	c.write(b[:len(b)-10])
	return b[len(b)-10:]
}

func TestWhoHoldsMostInputIsClosedWhenAllHoldTooMuch(t *testing.T) {
	r := newRig(t, func(_ *notify.Options, o *Options) { o.MaxInput = 1 << 20 })
	small, medium, large := r.dial(), r.dial(), r.dial()
	small.metadata(0, "P")
	medium.metadata(0, "P")
	smallRest, mediumRest := small.half(100), medium.half(400<<10)
	for end := time.Now().Add(10 * time.Second); r.srv.held.Load() < 400<<10; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the half frames did not come")
		}
	}
	large.half(900 << 10) // before metadata, as an attacker would
	if _, err := large.tryRead(10 * time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the one that holds most: %v, want it closed", err)
	}
	for c, rest := range map[*client][]byte{small: smallRest, medium: mediumRest} {
		c.write(rest)
		if f := c.read(); f.Status != wire.NoError {
			t.Errorf("another one's send is answered %v", f.Status)
		}
	}
	for end := time.Now().Add(10 * time.Second); r.srv.held.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes are counted as held when all frames are whole", r.srv.held.Load())
		}
	}
}

// A frame of 16 MiB has room for four million runs; each may name all open tags.
func TestAcksOfTheSameDeliveriesOverAndOverAreRefused(t *testing.T) {
	const n = 2_000
	r := newRig(t, nil)
	sub := r.dial()
	sub.metadata(wire.FeatureBatch, "S-a")
	sub.must(wire.OpSubscribe, binding(wire.Fanout, "T", "", "S-a"), nil)
	r.fill("T", n)
	for got := 0; got < n; {
		switch f := sub.read(); f.Opcode {
		case wire.OpDeliverBatch:
			d, err := wire.Batch(f.Header, f.Body)
			if err != nil {
				t.Fatal(err)
			}
			got += d.Len()
		default:
			got++
		}
	}
	var enc wire.AckEncoder
	var runs []byte
	for range 1 << 19 {
		runs = enc.Append(runs, wire.AckRun{First: 2, Last: 1 << 50})
	}
	if text := sub.refused(wire.OpAckBatch, nil, runs, wire.StatusError); !strings.Contains(text, "answered before") {
		t.Errorf("the refusal says %q", text)
	}
	sub.must(wire.OpHeartbeat, nil, nil)
}
