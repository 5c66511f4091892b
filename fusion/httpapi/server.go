package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server is an open administration port.
type Server struct {
	http http.Server
	addr net.Addr
	done chan struct{} // closed when the accept loop has ended

	// silent are connections that have not sent a request yet. net/http waits five seconds for each of them.
	silent sync.Map // net.Conn
}

// Serve serves h on l until Shutdown. It takes l over.
func Serve(l net.Listener, h http.Handler, log *slog.Logger) *Server {
	s := &Server{addr: l.Addr(), done: make(chan struct{}), http: http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      2 * requestTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
	s.http.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.silent.Store(c, nil)
		} else {
			s.silent.Delete(c)
		}
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(limit(l, maxConns)); !errors.Is(err, http.ErrServerClosed) {
			log.Error("http listener failed", "addr", s.addr.String(), "error", err)
		}
	}()
	return s
}

// Addr is where the port listens.
func (s *Server) Addr() net.Addr { return s.addr }

// Shutdown stops accepting and waits for requests in work; when ctx ends first it closes their connections.
func (s *Server) Shutdown(ctx context.Context) error {
	result := make(chan error, 1)
	go func() { result <- s.http.Shutdown(ctx) }()
	<-s.done // from here on no connection comes
	s.silent.Range(func(c, _ any) bool {
		_ = c.(net.Conn).Close() // it has asked for nothing
		return true
	})
	err := <-result
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	return err
}
