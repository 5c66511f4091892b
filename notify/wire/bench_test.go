package wire

import (
	"fmt"
	"testing"
)

func BenchmarkMessageHeader(b *testing.B) {
	h := drawHeaderFixed()
	enc := h.Append(nil)
	b.Run("encode", func(b *testing.B) {
		buf := make([]byte, 0, 1024)
		b.ReportAllocs()
		b.SetBytes(int64(len(enc)))
		for b.Loop() {
			buf = h.Append(buf[:0])
		}
	})
	b.Run("decode", func(b *testing.B) {
		var got MessageHeader
		b.ReportAllocs()
		b.SetBytes(int64(len(enc)))
		for b.Loop() {
			if err := got.Decode(enc); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func benchBatch(buf []byte, h *MessageHeader, body []byte, n int) []byte {
	dst, b := BeginBatch(buf, 1)
	for range n {
		dst = h.Append(b.BeginEntry(dst))
		dst, _ = b.EndEntry(dst, len(body))
		dst = append(dst, body...)
	}
	dst, _ = b.End(dst, 0)
	return dst
}

// BenchmarkDeliverBatch has one operation a message.
func BenchmarkDeliverBatch(b *testing.B) {
	h, body := drawHeaderFixed(), make([]byte, 1024)
	for _, n := range []int{1, 32, 256} {
		buf := benchBatch(nil, h, body, n)
		b.Run(fmt.Sprintf("encode/size=1KiB/batch=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(1024)
			for i := 0; i < b.N; i += n {
				buf = benchBatch(buf[:0], h, body, n)
			}
		})
		b.Run(fmt.Sprintf("decode/size=1KiB/batch=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(1024)
			var got MessageHeader
			for i := 0; i < b.N; i += n {
				f, _, err := Parse(buf)
				if err != nil {
					b.Fatal(err)
				}
				d, err := Batch(f.Header, f.Body)
				if err != nil {
					b.Fatal(err)
				}
				for range n {
					_, header, _, _, err := d.Next()
					if err == nil {
						err = got.Decode(header)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkAckBatch has one operation a run.
func BenchmarkAckBatch(b *testing.B) {
	const n = 256
	for _, run := range []uint64{1, 100} {
		b.Run(fmt.Sprintf("run=%d", run), func(b *testing.B) {
			b.ReportAllocs()
			var buf []byte
			for i := 0; i < b.N; i += n {
				buf = buf[:0]
				var e AckEncoder
				for j := range uint64(n) {
					first := 1 + 2*j*run
					buf = e.Append(buf, AckRun{First: first, Last: first + run - 1})
				}
				a := ReadAcks(buf)
				for {
					_, ok, err := a.Next()
					if err != nil {
						b.Fatal(err)
					}
					if !ok {
						break
					}
				}
			}
		})
	}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	h, body := drawHeaderFixed(), make([]byte, 100)
	buf := benchBatch(nil, h, body, 8)
	var got MessageHeader
	if err := got.Decode(h.Append(nil)); err != nil {
		t.Fatal(err)
	}
	var ack MessageAck
	ackHeader := (&MessageAck{ServerData: []byte("12345678"), MessageID: h.ID, Durability: DurabilitySync}).Append(nil)
	if n := testing.AllocsPerRun(100, func() {
		buf = benchBatch(buf[:0], h, body, 8)
		f, _, _ := Parse(buf)
		d, _ := Batch(f.Header, f.Body)
		for range 8 {
			_, header, _, _, _ := d.Next()
			_ = got.Decode(header)
		}
		_ = ack.Decode(ackHeader)
		_ = got.Validate()
	}); n > 0 {
		t.Errorf("%v allocations for 8 messages", n)
	}
}
