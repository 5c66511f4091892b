package notify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fusionmq/fusionmq/notify/wire"
)

// bareServer answers as cheaply as a server can, over TCP: one read, one write for all that was in it. on is called
// for every request and appends its answers.
func bareServer(b *testing.B, on func(dst []byte, f *wire.Frame) []byte) (addr string, conns <-chan net.Conn) {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	made := make(chan net.Conn, 10)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			made <- nc
			wg.Go(func() {
				defer nc.Close()
				bareServe(nc, on)
			})
		}
	})
	b.Cleanup(func() {
		_ = ln.Close()
		wg.Wait()
	})
	return ln.Addr().String(), made
}

func bareServe(nc net.Conn, on func(dst []byte, f *wire.Frame) []byte) {
	buf := make([]byte, 0, 1<<20)
	var out []byte
	f := new(wire.Frame)
	for {
		n, err := nc.Read(buf[len(buf):cap(buf)])
		if err != nil {
			return
		}
		buf = buf[:len(buf)+n]
		rest := buf
		out = out[:0]
		for {
			var n int
			var err error
			*f, n, err = wire.Parse(rest)
			if errors.Is(err, wire.ErrShort) {
				break
			}
			if err != nil {
				return
			}
			rest = rest[n:]
			switch f.Opcode {
			case wire.OpMetadata:
				ans := wire.MetadataAnswer{Info: []wire.Property{wire.FeatureProperty(wire.AllFeatures)}}
				out, _ = wire.AppendResponse(out, f.Opcode, wire.NoError, f.Opaque, ans.Append(nil), nil)
			case wire.OpCredit, wire.OpSubscribe:
				out = wire.AppendAnswer(out, f.Opcode, wire.NoError, f.Opaque, "")
			default:
				out = on(out, f)
			}
		}
		buf = buf[:copy(buf[:cap(buf)], rest)]
		if len(out) > 0 {
			if _, err := nc.Write(out); err != nil {
				return
			}
		}
	}
}

// BenchmarkSend measures the client and a bare server in one process.
func BenchmarkSend(b *testing.B) {
	h, ack := new(wire.MessageHeader), new(wire.MessageAck)
	answer := func(dst []byte, f *wire.Frame) []byte {
		if h.Decode(f.Header) != nil {
			return dst
		}
		dst, fb := wire.BeginResponse(dst, f.Opcode, wire.NoError, f.Opaque)
		ack.MessageID, ack.Durability = h.ID, wire.DurabilityAsync
		dst = ack.Append(dst)
		fb.EndHeader(dst)
		dst, _ = fb.End(dst, 0)
		return dst
	}
	body := make([]byte, 1024)
	fresh := func() *Message {
		m := &Message{Topic: "TRADE", Type: "created", Body: body}
		m.Header.Set("seller", "42")
		return m
	}
	start := func(b *testing.B) *Publisher {
		addr, _ := bareServer(b, answer)
		p, err := NewPublisher("P-bench", []string{addr})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = p.Close(context.Background()) })
		if err := p.WaitReady(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		b.SetBytes(int64(len(body)))
		b.ResetTimer()
		return p
	}
	for _, senders := range []int{1, 64} {
		b.Run(fmt.Sprintf("mode=wait/size=1KiB/senders=%d", senders), func(b *testing.B) {
			p := start(b)
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			for range senders {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						if _, err := p.Send(b.Context(), fresh()); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
	b.Run("mode=async/size=1KiB/inflight=4096", func(b *testing.B) {
		p := start(b)
		var wg sync.WaitGroup
		wg.Add(b.N)
		done := func(_ Receipt, err error) {
			if err != nil {
				b.Error(err)
			}
			wg.Done()
		}
		for range b.N {
			if err := p.SendAsync(b.Context(), fresh(), done); err != nil {
				b.Fatal(err)
			}
		}
		wg.Wait()
	})
}

// BenchmarkReceive has one operation a message, pushed in batches within the credit and acknowledged.
func BenchmarkReceive(b *testing.B) {
	const window = 1000
	for _, batch := range []int{1, 32, 256} {
		b.Run(fmt.Sprintf("size=1KiB/batch=%d", batch), func(b *testing.B) {
			var acked atomic.Int64
			more := make(chan struct{}, 1)
			addr, conns := bareServer(b, func(dst []byte, f *wire.Frame) []byte {
				if f.Opcode == wire.OpAckBatch {
					a := wire.ReadAcks(f.Body)
					for r, ok, _ := a.Next(); ok; r, ok, _ = a.Next() {
						acked.Add(int64(r.Last - r.First + 1))
					}
					select {
					case more <- struct{}{}:
					default:
					}
				}
				return dst
			})
			s, err := NewSubscriber("S-bench", []string{addr}, func(context.Context, *Message) error { return nil }, WithWindow(window, 1<<30))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = s.Close(context.Background()) })
			if err := s.WaitReady(b.Context()); err != nil {
				b.Fatal(err)
			}
			nc := <-conns
			h, body := pushed(1, "S-bench", func(h *wire.MessageHeader) {
				h.Properties = []wire.Property{{Key: []byte("seller"), Value: []byte("42"), HasValue: true}}
			}), make([]byte, 1024)
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			b.ResetTimer()
			var buf []byte
			for sent := int64(0); sent < int64(b.N); {
				if sent-acked.Load()+int64(batch) > window {
					<-more
					continue
				}
				var bb wire.BatchBuilder
				buf, bb = wire.BeginBatch(buf[:0], uint64(sent)+1)
				for range batch {
					buf = h.Append(bb.BeginEntry(buf))
					buf, _ = bb.EndEntry(buf, len(body))
					buf = append(buf, body...)
				}
				buf, _ = bb.End(buf, 0)
				if _, err := nc.Write(buf); err != nil {
					b.Fatal(err)
				}
				sent += int64(batch)
			}
			for acked.Load() < int64(b.N) {
				<-more
			}
		})
	}
}
