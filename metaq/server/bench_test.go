package server_test

import (
	"bufio"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/metaq/server"
)

// BenchmarkEcho sends 1 KiB requests over real sockets and waits for windows of depth answers at a time. Compare depth 64 with
// depth 1 of the same run: what one write per burst is worth. bursts/req says how many requests a handler call had.
func BenchmarkEcho(b *testing.B) {
	for _, bc := range []struct{ conns, depth int }{{1, 1}, {16, 1}, {1, 64}, {16, 64}} {
		b.Run(fmt.Sprintf("conns=%d/depth=%d", bc.conns, bc.depth), func(b *testing.B) {
			s := start(b, server.Config{Handler: server.HandlerFunc(echo)})
			frame := request(10, 1, "x", make([]byte, 1024))
			window := make([]byte, 0, bc.depth*len(frame))
			for range bc.depth {
				window = append(window, frame...)
			}
			var conns []net.Conn
			for range bc.conns {
				c, err := net.Dial("tcp", s.Addr().String())
				if err != nil {
					b.Fatal(err)
				}
				defer c.Close()
				conns = append(conns, c)
			}
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for _, c := range conns {
				wg.Go(func() {
					r := bufio.NewReaderSize(c, 64<<10)
					for n := b.N / len(conns); n > 0; n -= bc.depth {
						k := min(n, bc.depth)
						if _, err := c.Write(window[:k*len(frame)]); err != nil {
							b.Error(err)
							return
						}
						for range k {
							head, err := r.Peek(4)
							if err != nil {
								b.Error(err)
								return
							}
							size, err := remoting.FrameSize(head)
							if err != nil {
								b.Error(err)
								return
							}
							if _, err := r.Discard(size); err != nil {
								b.Error(err)
								return
							}
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			if st := s.Stats(); st.Bursts > 0 {
				b.ReportMetric(float64(st.Requests)/float64(st.Bursts), "req/burst")
			}
		})
	}
}
