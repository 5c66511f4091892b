package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/notify"
	"github.com/fusionmq/fusionmq/notify/wire"
)

// TestShutdownAtOnce: a server can be shut down before its loop has begun to serve.
func TestShutdownAtOnce(t *testing.T) {
	for range 50 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s, err := Serve(ln, Options{Service: notify.New(notify.Options{})})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		if err := s.Shutdown(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
}

// A producer that sends on while the server stops gets an answer to everything that was stored, and then the end.
func TestShutdownAnswersEverythingThatWasStored(t *testing.T) {
	var clk clock // stands: a client that takes long to read the end is not cut off
	r := newRig(t, func(_ *notify.Options, o *Options) { clk.set(o) })
	var answered atomic.Int64
	var wg sync.WaitGroup
	warm := make(chan struct{}, 4)
	for p := range uint64(cap(warm)) {
		c := r.dial()
		c.metadata(0, "P-test")
		body := bytes.Repeat([]byte("x"), 500)
		wg.Go(func() { // writes until the connection breaks
			for i := uint64(1); ; i++ {
				b, _ := wire.AppendRequest(nil, wire.OpSend, uint32(i), header(p<<32|i, "stop", ""), body)
				if _, err := c.nc.Write(b); err != nil {
					return
				}
			}
		})
		wg.Go(func() {
			defer c.nc.Close() // as a client does at the end of its input
			var once sync.Once
			isWarm := func() { once.Do(func() { warm <- struct{}{} }) }
			defer isWarm() // of one that fails
			for n := 0; ; n++ {
				f, err := c.tryRead(patience)
				if err != nil {
					if !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
						t.Errorf("after %d answers: %v, want the end of the connection between two answers", n, err)
					}
					return
				}
				if f.Status == wire.NoError {
					answered.Add(1)
				}
				if n == 100 {
					isWarm()
				}
			}
		})
	}
	for range cap(warm) {
		<-warm
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.srv.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if s, a := r.st.Stats().Appends, answered.Load(); s != a {
		t.Errorf("%d messages are stored, %d answered", s, a)
	}
}
