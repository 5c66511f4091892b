package server

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/notify"
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
