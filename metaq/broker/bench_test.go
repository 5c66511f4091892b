package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store"
)

// rawClient writes prepared bursts and counts the answers, without an allocation of its own, so that what a benchmark
// counts is the broker's.
type rawClient struct {
	conn net.Conn
	buf  []byte
	have int
}

func (e *env) raw() *rawClient {
	e.Helper()
	conn, err := net.Dial("tcp", e.addr)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { conn.Close() })
	return &rawClient{conn: conn, buf: make([]byte, 16<<20)}
}

// exchange writes requests and reads n answers, whose bytes it returns the number of.
func (c *rawClient) exchange(tb testing.TB, requests []byte, n int) (total int) {
	if _, err := c.conn.Write(requests); err != nil {
		tb.Fatal(err)
	}
	for n > 0 {
		at := 0
		for n > 0 && c.have-at >= 4 {
			size := int(binary.BigEndian.Uint32(c.buf[at:])) + 4
			if c.have-at < size {
				break
			}
			at += size
			total += size
			n--
		}
		c.have = copy(c.buf, c.buf[at:c.have])
		if n == 0 {
			break
		}
		m, err := c.conn.Read(c.buf[c.have:])
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("the broker closed the connection with %d answers missing", n)
			}
			tb.Fatal(err)
		}
		c.have += m
	}
	return total
}

func (e *env) burstOf(n, size int, binaryHeader bool) []byte {
	var enc remoting.Encoder
	body := []byte(strings.Repeat("x", size))
	for i := range n {
		m := message{topic: "T", queue: i % 4, v2: true, props: props("UNIQ_KEY", fmt.Sprintf("%032d", i), "WAIT", "true", "TAGS", "TagA")}
		head := remoting.Head{Code: m.code(), Opaque: int32(i + 1)}
		if binaryHeader {
			head.Serialize = remoting.Binary
		}
		enc.Begin(head)
		f := m.fields()
		for j := 0; j < len(f); j += 2 {
			enc.String(f[j], f[j+1])
		}
		if err := enc.End(body); err != nil {
			e.Fatal(err)
		}
	}
	return append([]byte(nil), enc.Bytes()...)
}

// allocations runs f and returns how many allocations the process made meanwhile.
func allocations(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs
}

func BenchmarkSend(b *testing.B) {
	for _, bc := range []struct {
		size, burst int
		binary      bool
	}{{128, 1, false}, {128, 256, false}, {1024, 32, false}, {1024, 256, false}, {1024, 256, true}} {
		b.Run(fmt.Sprintf("size=%d/burst=%d/binary=%v", bc.size, bc.burst, bc.binary), func(b *testing.B) {
			e := start(b, func(_ *Config, o *store.Options) { o.SegmentBytes = 256 << 20 })
			e.topic("T", 4)
			c := e.raw()
			burst := e.burstOf(bc.burst, bc.size, bc.binary)
			c.exchange(b, burst, bc.burst)
			b.SetBytes(int64(bc.size * bc.burst))
			b.ReportAllocs()
			b.ResetTimer()
			n := allocations(func() {
				for range b.N {
					c.exchange(b, burst, bc.burst)
				}
			})
			b.StopTimer()
			messages := float64(b.N * bc.burst)
			b.ReportMetric(messages/b.Elapsed().Seconds(), "msg/s")
			b.ReportMetric(float64(n)/messages, "allocs/msg")
		})
	}
}

func BenchmarkPull(b *testing.B) {
	for _, bc := range []struct {
		size int
		sub  string
		kind string
	}{{128, "*", ""}, {1024, "*", ""}, {1024, "TagA", ""}, {4096, "*", ""}, {1024, "TAGS = 'TagA'", "SQL92"}} {
		b.Run(fmt.Sprintf("size=%d/sub=%s", bc.size, bc.sub), func(b *testing.B) {
			e := start(b, func(_ *Config, o *store.Options) { o.SegmentBytes = 256 << 20 })
			e.topic("T", 4)
			c := e.raw()
			for range 32 {
				c.exchange(b, e.burstOf(128, bc.size, false), 128)
			}
			const inFlight = 16
			var enc remoting.Encoder
			for i := range inFlight {
				enc.Begin(remoting.Head{Code: remoting.ReqPullMessage, Opaque: int32(i + 1)})
				f := pullReq{group: "G", topic: "T", queue: i % 4, offset: int64(i * 32), sub: bc.sub, kind: bc.kind}.fields()
				for j := 0; j < len(f); j += 2 {
					enc.String(f[j], f[j+1])
				}
				if err := enc.End(nil); err != nil {
					b.Fatal(err)
				}
			}
			c.exchange(b, enc.Bytes(), inFlight)
			before := e.b.Stats().Got
			b.ReportAllocs()
			b.ResetTimer()
			n := allocations(func() {
				for range b.N {
					c.exchange(b, enc.Bytes(), inFlight)
				}
			})
			b.StopTimer()
			messages := float64(e.b.Stats().Got - before)
			b.SetBytes(int64(messages) / int64(b.N) * int64(bc.size))
			b.ReportMetric(messages/b.Elapsed().Seconds(), "msg/s")
			b.ReportMetric(float64(n)/messages, "allocs/msg")
		})
	}
}

// BenchmarkHeldPull is the way of one message from its send to consumers that wait for it, each on its own connection.
func BenchmarkHeldPull(b *testing.B) {
	for _, readers := range []int{1, 16} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			e := start(b, func(_ *Config, o *store.Options) { o.SegmentBytes = 256 << 20 })
			e.topic("T", 4)
			p := e.raw()
			send := e.burstOf(1, 128, false)
			var rs []*waiting
			for range readers {
				rs = append(rs, e.wait())
			}
			b.ReportAllocs()
			b.ResetTimer()
			n := allocations(func() {
				for range b.N {
					for _, r := range rs {
						r.hold(b)
					}
					e.held(readers)
					p.exchange(b, send, 1)
					for _, r := range rs {
						r.get(b)
					}
				}
			})
			b.StopTimer()
			b.ReportMetric(float64(n)/float64(b.N*readers), "allocs/msg")
		})
	}
}

// waiting is a consumer of queue 0 that allocates nothing.
type waiting struct {
	*rawClient
	request []byte
	at      int // where the request has its offset, as 19 digits
	offset  int64
}

func (e *env) wait() *waiting {
	var enc remoting.Encoder
	enc.Begin(remoting.Head{Code: remoting.ReqPullMessage, Opaque: 1})
	f := pullReq{group: "G", topic: "T", offset: 1e18, sub: "*", suspend: 30 * time.Second}.fields()
	for j := 0; j < len(f); j += 2 {
		enc.String(f[j], f[j+1])
	}
	if err := enc.End(nil); err != nil {
		e.Fatal(err)
	}
	request := append([]byte(nil), enc.Bytes()...)
	return &waiting{rawClient: e.raw(), request: request, at: strings.Index(string(request), "1000000000000000000")}
}

func (w *waiting) hold(tb testing.TB) {
	n := w.offset
	for i := 18; i >= 0; i-- {
		w.request[w.at+i] = byte('0' + n%10)
		n /= 10
	}
	if _, err := w.conn.Write(w.request); err != nil {
		tb.Fatal(err)
	}
}

func (w *waiting) get(tb testing.TB) {
	w.exchange(tb, nil, 1)
	w.offset++
}
