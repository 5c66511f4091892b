package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Server is an open administration port.
type Server struct {
	http http.Server
	l    *limited
	log  *slog.Logger
	done chan struct{} // closed when the accept loop has ended
}

// Serve serves h on l until Shutdown. It takes l over.
func Serve(l net.Listener, h http.Handler, log *slog.Logger) *Server {
	s := newServer(l, h, log, maxConns)
	go s.run()
	return s
}

func newServer(l net.Listener, h http.Handler, log *slog.Logger, most int) *Server {
	return &Server{l: limit(l, most), log: log, done: make(chan struct{}), http: http.Server{
		Handler:           receive(h),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      2 * requestTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnState: func(c net.Conn, state http.ConnState) {
			switch state {
			case http.StateActive: // net/http says so when it has read the whole header
				c.(*counted).works()
			case http.StateIdle:
				c.(*counted).waits()
			}
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}}
}

type connKey struct{} // of the connection in a request's context

// receive counts a connection as waiting until the body of its request has come.
func receive(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*counted); ok && r.ContentLength != 0 {
			c.waits()
			r.Body = &body{r.Body, c}
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) run() {
	defer close(s.done)
	if err := s.http.Serve(s.l); !errors.Is(err, http.ErrServerClosed) {
		s.log.Error("http listener failed", "addr", s.Addr().String(), "error", err)
	}
}

// Addr is where the port listens.
func (s *Server) Addr() net.Addr { return s.l.Addr() }

// Shutdown stops accepting and waits for requests in work; when ctx ends first it closes their connections.
func (s *Server) Shutdown(ctx context.Context) error {
	result := make(chan error, 1)
	go func() { result <- s.http.Shutdown(ctx) }()
	<-s.done          // from here on no connection comes
	s.l.closeSilent() // net/http would wait five seconds for each of them
	err := <-result
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	return err
}
