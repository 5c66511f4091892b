package httpapi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"
)

// TestConnectionsAreBounded: at the limit the connection that is longest without a whole request goes; when all have one in work, the next
// one waits.
func TestConnectionsAreBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limit(inner, 2)
	accepted := make(chan *counted)
	failed := make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				failed <- err
				return
			}
			accepted <- c.(*counted)
		}
	}()
	next := func() *counted {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return <-accepted
	}
	gone := func(c *counted) bool {
		_, err := c.Conn.Read(make([]byte, 1))
		return errors.Is(err, net.ErrClosed)
	}

	first, second := next(), next()
	first.works()
	first.waits() // idle since just now: younger than the second
	third := next()
	if !gone(second) {
		t.Error("the third connection did not take the place of the longest without a request")
	}
	second.works() // too late, and without effect
	second.waits()
	_ = second.Close()
	third.works()
	fourth := next()
	if !gone(first) {
		t.Error("the fourth connection did not take the place of the idle one")
	}
	if l.open != 2 || l.waiting.Len() != 1 {
		t.Errorf("%d places taken, %d wait; want 2, 1", l.open, l.waiting.Len())
	}

	fourth.works() // all are in work
	late, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	third.waits()
	fifth := <-accepted
	if !gone(third) {
		t.Error("the fifth connection did not take the place that came free")
	}
	fifth.works()
	if _, err := net.Dial("tcp", inner.Addr().String()); err != nil {
		t.Fatal(err)
	}
	_ = fourth.Close()
	_ = fourth.Close() // a second Close gives no second place
	sixth := <-accepted
	sixth.works()
	waits, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer waits.Close()
	if err := l.Close(); err != nil { // while Accept may wait for room
		t.Error(err)
	}
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close = %v", err)
	}
	_, _ = fifth.Close(), sixth.Close()
	if l.open != 0 || l.waiting.Len() != 0 {
		t.Errorf("%d places taken, %d wait; want none", l.open, l.waiting.Len())
	}
}

// TestClientsWithoutARequestKeepNobodyOut: whatever it is that connections hold back, a probe is answered although they are as many as may
// be open, and no timeout helps it.
func TestClientsWithoutARequestKeepNobodyOut(t *testing.T) {
	const most = 4
	for _, tc := range []struct {
		name, sends string
		answered    bool
	}{
		{"nothing sent", "", false},
		{"half a header", "GET /healthz HTTP/1.1\r\nHost: loc", false},
		{"half a body", "POST /api/v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", false},
		{"half a chunk", "POST /api/v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{", false},
		{"idle after an answer", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", true},
		{"half a header after an answer", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := newServer(l, New(testOptions(&table{topics: map[string]TopicDetail{}})), slog.New(slog.DiscardHandler), most)
			s.http.ReadHeaderTimeout, s.http.ReadTimeout, s.http.WriteTimeout, s.http.IdleTimeout = 0, 0, 0, 0
			go s.run()
			defer func() {
				if err := errors.Join(s.http.Close(), s.Shutdown(t.Context())); err != nil {
					t.Error(err)
				}
			}()
			var conns [most]net.Conn
			for i := range conns {
				c, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(20 * time.Second)) // of a test that fails
				conns[i] = c
				if _, err := io.WriteString(c, tc.sends); err != nil {
					t.Fatal(err)
				}
				if tc.answered {
					if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
			resp, err := client.Get(fmt.Sprintf("http://%s/healthz", l.Addr()))
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("healthz = %d", resp.StatusCode)
			}
			ended := make(chan error, most)
			for _, c := range conns {
				go func() {
					_, err := io.Copy(io.Discard, c)
					ended <- err
				}()
			}
			if err := <-ended; errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("no connection was closed for the probe")
			}
		})
	}
}
