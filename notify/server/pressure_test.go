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
	smallRest, mediumRest := small.half(100), medium.half(64<<10)
	until(t, "the half frames", func() bool { return r.srv.held.Load() >= 64<<10 })
	b, err := wire.AppendRequest(nil, wire.OpSend, 1, header(1, "T", "x"), make([]byte, 1200<<10)) // before metadata, as an attacker would
	if err != nil {
		t.Fatal(err)
	}
	_, _ = large.nc.Write(b[:len(b)-10]) // which fails if the end comes before all of it has gone
	if _, err := large.tryRead(patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the one that holds most: %v, want it closed", err)
	}
	for c, rest := range map[*client][]byte{small: smallRest, medium: mediumRest} {
		c.write(rest)
		if f := c.read(); f.Status != wire.NoError {
			t.Errorf("another one's send is answered %v", f.Status)
		}
	}
	until(t, "no bytes to be counted as held when all frames are whole", func() bool { return r.srv.held.Load() == 0 })
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

// A producer without a window over a slow disk, say: what it sends must stay on its side, and nobody is cut off. Here the handler
// is slow because the client reads none of the answers for a while.
func TestAClientThatSendsFasterThanItIsHandledIsSlowedDownAndLosesNothing(t *testing.T) {
	const frames = 1_000
	var clk clock // stands, so that nobody is cut off for not reading
	r := newRig(t, func(_ *notify.Options, o *Options) { clk.set(o) })
	c := r.dial()
	c.metadata(0, "P")
	text := make([]byte, 32_000)
	written := make(chan error, 1)
	go func() {
		for i := range uint32(frames) {
			b, err := wire.AppendRequest(nil, wire.OpDummy, 1000+i, text, nil)
			if err == nil {
				_, err = c.nc.Write(b)
			}
			if err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	// Until it is paused, or has sent all that is read ahead while the first answers wait.
	until(t, "much to be sent", func() bool { return r.srv.Stats().Paused > 0 || len(written) > 0 })
	for i := range uint32(frames) {
		if f := c.read(); f.Opaque != 1000+i || len(f.Header) != len(text) {
			t.Fatalf("answer %d is %+v", i, f.Head)
		}
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if r.srv.Stats().Paused == 0 {
		t.Error("reading was never paused")
	}
	c.must(wire.OpSubscribe, binding(wire.Fanout, "T", "", "P"), nil) // and it is served on
	c.send(1, "T", "x", "body")
}

func TestAClientThatSendsAndNeverReadsIsCutOff(t *testing.T) {
	r := newRig(t, func(_ *notify.Options, o *Options) { o.WriteTimeout = 300 * time.Millisecond })
	c := r.dial()
	c.metadata(0, "P")
	b, err := wire.AppendRequest(nil, wire.OpDummy, 1, make([]byte, 32_000), nil)
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	for err == nil {
		if sent > 1<<30 {
			t.Fatal("it has sent 1 GiB, and nobody stops it")
		}
		var n int
		n, err = c.nc.Write(b)
		sent += n
	}
	if r.srv.Stats().Slow == 0 {
		t.Errorf("cut off after %d bytes (%v), and not counted as slow", sent, err)
	}
}
