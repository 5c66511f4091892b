package server

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/notify"
	"github.com/fusionmq/fusionmq/notify/wire"
)

const benchBody = 1024

// filled numbers the messages whose ids nobody looks at, above those that tests choose.
var filled = func() *atomic.Uint64 {
	n := new(atomic.Uint64)
	n.Store(1 << 40)
	return n
}()

// fill stores n messages of 1 KiB.
func (r *rig) fill(topic string, n int) {
	r.t.Helper()
	se, err := r.svc.Open(nowhere{}, netip.MustParseAddrPort("127.0.0.1:1"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer se.Close()
	if err := se.Metadata([]string{"P-fill"}, false); err != nil {
		r.t.Fatal(err)
	}
	const batch = 256
	body := make([]byte, benchBody)
	ms, rs := make([]notify.Incoming, batch), make([]notify.Sent, batch)
	for i := range ms {
		var h wire.MessageHeader
		if err := h.Decode(header(uint64(i), topic, "x")); err != nil {
			r.t.Fatal(err)
		}
		ms[i] = notify.Incoming{Header: &h, Body: body}
	}
	for n > 0 {
		k := min(n, batch)
		for i := range ms[:k] {
			binary.BigEndian.PutUint64(ms[i].Header.ID[8:], filled.Add(1)) // a repeated id would not be stored
		}
		se.Send(ms[:k], rs[:k])
		for i := range rs[:k] {
			if rs[i].Err != nil {
				r.t.Fatal(rs[i].Err)
			}
		}
		n -= k
	}
}

// nowhere is an outlet that nothing is pushed to.
type nowhere struct{}

func (nowhere) Room() bool           { return false }
func (nowhere) Push(notify.Delivery) {}
func (nowhere) Kick()                {}

// drain is a subscriber: it reads DELIVER_BATCH frames, decodes every header, and acknowledges each frame with one
// ACK_BATCH, until want messages have come over all connections.
func drain(c *client, got *atomic.Int64, want int64, done func()) {
	br := bufio.NewReaderSize(c.nc, 256<<10)
	_ = c.nc.SetReadDeadline(time.Time{})
	var ack, body, buf []byte
	var mh wire.MessageHeader
	for {
		var head [wire.RequestFixed]byte
		if _, err := io.ReadFull(br, head[:]); err != nil {
			return
		}
		h, err := wire.ParseHead(head[:])
		if err != nil || h.Opcode != wire.OpDeliverBatch {
			return
		}
		if cap(buf) < h.TotalLen {
			buf = make([]byte, h.TotalLen)
		}
		buf = buf[:h.TotalLen]
		if _, err := io.ReadFull(br, buf); err != nil {
			return
		}
		ds, err := wire.Batch(buf[:h.HeaderLen], buf[h.HeaderLen:])
		if err != nil {
			return
		}
		var first, last uint64
		count := int64(ds.Len())
		for {
			tag, hdr, _, ok, err := ds.Next()
			if err != nil || ok && mh.Decode(hdr) != nil {
				return
			}
			if !ok {
				break
			}
			if first == 0 {
				first = tag
			}
			last = tag
		}
		var e wire.AckEncoder
		body = e.Append(body[:0], wire.AckRun{First: first, Last: last})
		ack, _ = wire.AppendRequest(ack[:0], wire.OpAckBatch, 0, nil, body)
		if _, err := c.nc.Write(ack); err != nil {
			return
		}
		if got.Add(count) >= want {
			done()
		}
	}
}

func cpuSeconds() float64 {
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	u, _ := strconv.ParseFloat(f[11], 64)
	s, _ := strconv.ParseFloat(f[12], 64)
	return (u + s) / 100
}

// BenchmarkBudgetPushCatchUp: 16 connections of one group take what waits in the log, in batches, against the same bytes
// pushed by a loop that only writes. One op is one message of 1 KiB.
func BenchmarkBudgetPushCatchUp(b *testing.B) {
	const conns = 16
	b.Run("side=ours", func(b *testing.B) {
		r := newRig(b, nil)
		first := r.dial()
		first.metadata(0, "S-bench")
		first.must(wire.OpSubscribe, binding(wire.Fanout, "T", "", "S-bench"), nil)
		first.nc.Close()
		for r.svc.Stats().Members > 0 {
			time.Sleep(time.Millisecond)
		}
		r.fill("T", b.N)
		var got atomic.Int64
		done := make(chan struct{})
		var once sync.Once
		b.SetBytes(benchBody)
		b.ReportAllocs()
		runtime.GC()
		b.ResetTimer()
		cpu := cpuSeconds()
		for range conns {
			c := r.dial()
			c.metadata(wire.FeatureBatch, "S-bench")
			go drain(c, &got, int64(b.N), func() { once.Do(func() { close(done) }) })
		}
		<-done
		b.StopTimer()
		b.ReportMetric((cpuSeconds()-cpu)*1e9/float64(b.N), "cpu-ns/op")
		b.ReportMetric(float64(b.N)/float64(r.srv.Stats().FramesOut), "msgs/frame")
	})
	b.Run("side=bare", func(b *testing.B) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer ln.Close() // the connections end when the clients close theirs
		// The bytes that the other side puts on the wire, in frames of 64 messages.
		var h wire.MessageHeader
		if err := h.Decode(header(7, "T", "x")); err != nil {
			b.Fatal(err)
		}
		h.TargetGroup, h.DeliveryCount, h.Created = []byte("S-bench"), 1, 1
		h.Set = h.Set.With(wire.FieldTargetGroup).With(wire.FieldDeliveryCount).With(wire.FieldCreated)
		const perFrame = 64
		frame, bb := wire.BeginBatch(nil, 1)
		for range perFrame {
			frame = bb.BeginEntry(frame)
			frame = h.Append(frame)
			frame, _ = bb.EndEntry(frame, benchBody)
			frame = append(frame, make([]byte, benchBody)...)
		}
		frame, _ = bb.End(frame, 0)
		var wg sync.WaitGroup
		go func() {
			for {
				nc, err := ln.Accept()
				if err != nil {
					return
				}
				wg.Add(2)
				go func() { defer wg.Done(); _, _ = io.Copy(io.Discard, nc) }()
				go func() {
					defer wg.Done()
					for left := b.N/conns + perFrame; left > 0; left -= perFrame {
						if _, err := nc.Write(frame); err != nil {
							return
						}
					}
				}()
			}
		}()
		b.SetBytes(benchBody)
		b.ReportAllocs()
		b.ResetTimer()
		cpu := cpuSeconds()
		var got atomic.Int64
		done := make(chan struct{})
		var once sync.Once
		for range conns {
			nc, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer nc.Close()
			go drain(&client{t: b, nc: nc}, &got, int64(b.N), func() { once.Do(func() { close(done) }) })
		}
		<-done
		b.StopTimer()
		b.ReportMetric((cpuSeconds()-cpu)*1e9/float64(b.N), "cpu-ns/op")
	})
}

// BenchmarkPushLive: one producer sends in bursts of 64 over its connection; 16 connections of each group take them.
// One op is one message.
func BenchmarkPushLive(b *testing.B) {
	for _, groups := range []int{1, 10} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			r := newRig(b, nil)
			var got atomic.Int64
			done := make(chan struct{})
			var once sync.Once
			const burst = 64
			n := (b.N + burst - 1) / burst * burst
			for g := range groups {
				name := fmt.Sprintf("S-%d", g)
				for i := range 4 {
					c := r.dial()
					c.metadata(wire.FeatureBatch, name)
					if i == 0 {
						c.must(wire.OpSubscribe, binding(wire.Fanout, "T", "", name), nil)
					}
					go drain(c, &got, int64(n*groups), func() { once.Do(func() { close(done) }) })
				}
			}
			for {
				attached := 0
				for _, g := range r.svc.Groups() {
					for _, t := range g.Topics {
						if t.Mode == "attached" {
							attached++
						}
					}
				}
				if attached == groups {
					break
				}
				time.Sleep(time.Millisecond)
			}
			p := r.dial()
			p.metadata(0, "P-test")
			var req []byte
			body := make([]byte, benchBody)
			go func() { _, _ = io.Copy(io.Discard, p.nc) }()
			_ = p.nc.SetReadDeadline(time.Time{})
			b.SetBytes(benchBody)
			b.ReportAllocs()
			b.ResetTimer()
			cpu := cpuSeconds()
			for sent := 0; sent < n; sent += burst {
				req = sends(req[:0], burst, body)
				p.write(req)
				for int64(sent*groups)-got.Load() > 4096*int64(groups) {
					time.Sleep(100 * time.Microsecond)
				}
			}
			<-done
			b.StopTimer()
			b.ReportMetric((cpuSeconds()-cpu)*1e9/float64(b.N), "cpu-ns/op")
		})
	}
}

// sends appends a burst of sends to T with ids of their own.
func sends(req []byte, burst int, body []byte) []byte {
	for i := range burst {
		req, _ = wire.AppendRequest(req, wire.OpSend, uint32(i), header(filled.Add(1), "T", "x"), body)
	}
	return req
}

// BenchmarkSend: pipelined sends of one connection, 64 a burst. One op is one message.
func BenchmarkSend(b *testing.B) {
	r := newRig(b, nil)
	p := r.dial()
	p.metadata(0, "P-test")
	p.send(1, "T", "x", "first")
	const burst = 64
	var req []byte
	body := make([]byte, benchBody)
	br := bufio.NewReaderSize(p.nc, 64<<10)
	_ = p.nc.SetReadDeadline(time.Time{})
	b.SetBytes(benchBody)
	b.ReportAllocs()
	b.ResetTimer()
	for sent := 0; sent < b.N; sent += burst {
		req = sends(req[:0], burst, body)
		p.write(req)
		for range burst {
			var head [wire.ResponseFixed]byte
			if _, err := io.ReadFull(br, head[:]); err != nil {
				b.Fatal(err)
			}
			h, err := wire.ParseHead(head[:])
			if err != nil || h.Status != wire.NoError {
				b.Fatalf("%+v %v", h, err)
			}
			_, _ = br.Discard(h.TotalLen)
		}
	}
}
