package rawnats

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
)

// A server of a few lines stands in for NATS: it answers each publish to the stream, in two writes that cut a line, and refuses the rest.
func TestAnswersReachTheirRequests(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprint(c, "INFO {}\r\nPING\r\n")
		br, seq := bufio.NewReader(c), 0
		for {
			line, err := br.ReadString('\n')
			if err != nil {
				return
			}
			f := strings.Fields(line)
			if f[0] != "PUB" {
				continue
			}
			if _, err := br.ReadString('\n'); err != nil {
				return
			}
			if f[1] != "stream" {
				fmt.Fprintf(c, "HMSG %s 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n", f[2])
				continue
			}
			seq++
			body := fmt.Sprintf(`{"stream":"stream","seq":%d}`, seq)
			fmt.Fprintf(c, "MSG %s 1", f[2])
			fmt.Fprintf(c, " %d\r\n%s\r\n", len(body), body)
		}
	}()
	c, err := Dial(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i, tc := range []struct {
		subject string
		seq     int64
		refused bool
	}{{"stream", 1, false}, {"other", 0, true}, {"stream", 2, false}} {
		got := make(chan int64, 1)
		bad := make(chan error, 1)
		c.Publish(tc.subject, []byte("body"), func(seq int64, err error) {
			got <- seq
			bad <- err
		})
		if seq, err := <-got, <-bad; seq != tc.seq || (err != nil) != tc.refused {
			t.Errorf("publish %d to %s = %d, %v", i, tc.subject, seq, err)
		}
	}
}
