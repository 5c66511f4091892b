// Package httpapi serves the administration port of a broker: /api/v1 (JSON in and out, problem+json on errors, an
// OpenAPI document made from the Go types), /metrics, /healthz and /readyz.
//
// [New] gives the http.Handler, [Serve] a server around it with timeouts and limits. What the API shows and changes comes through
// [Admin]; this package knows no store and no protocol.
//
// The port has no access control yet. What a web page that a user happens to visit could do is closed all the same: every
// changing request must be application/json, which no form can send, must not come from another origin, and on a loopback
// listener must name a loopback host, so that a rebound DNS name reaches nothing.
package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// Admin is what the API shows and changes. Methods run concurrently. An error that is a [*Problem] is the answer as it stands;
// any other is logged and answered with 500.
type Admin interface {
	Status(context.Context) (Status, error)
	Topics(context.Context, Page) (TopicPage, error)
	Topic(ctx context.Context, name string) (TopicDetail, error)
	CreateTopic(context.Context, NewTopic) (TopicDetail, error)
	ChangeTopic(ctx context.Context, name string, c TopicChange) (TopicChanged, error)
	Groups(context.Context, Page) (GroupPage, error)
	Group(ctx context.Context, name string) (Group, error)
	Expiries(ctx context.Context, most int) (Expiries, error)
	Transactions(context.Context, TransactionQuery) (Transactions, error)
	EndTransaction(ctx context.Context, address string, e TransactionEnd) (TransactionEnded, error)
	Retention(context.Context) (Retention, error)
	Clean(context.Context) (CleanResult, error)
}

// Options configure New. All fields are required unless they say otherwise.
type Options struct {
	Admin   Admin
	Ready   func() error // nil result: everything serves
	Metrics http.Handler // the page /metrics
	Log     *slog.Logger
	Version string // for the OpenAPI document
	// Loopback says that only this machine can reach the listener; then the Host header must name it.
	Loopback bool
}

// Limits of the port.
const (
	maxBody        = 64 << 10 // bytes of a request body
	maxHeader      = 16 << 10 // bytes of a request's header
	maxConns       = 256
	requestTimeout = 30 * time.Second
	maxPage        = 1000
	defaultPage    = 100
)

type api struct {
	Options
	routes []route
}

// New makes the handler of the port.
func New(o Options) http.Handler {
	a := &api{Options: o}
	a.routes = a.table()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := o.Ready(); err != nil {
			plain(w, http.StatusServiceUnavailable, "not ready: "+err.Error())
			return
		}
		plain(w, http.StatusOK, "ready")
	})
	mux.Handle("GET /metrics", o.Metrics)
	doc := openAPI(a.routes, o.Version)
	mux.HandleFunc("GET /api/v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(doc) // the client has gone when this fails
	})
	methods := map[string][]string{}
	for _, r := range a.routes {
		mux.Handle(r.method+" "+r.path, r.handler)
		methods[r.path] = append(methods[r.path], r.method)
	}
	for path, allowed := range methods {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			a.fail(w, r, &Problem{Status: http.StatusMethodNotAllowed, Field: "method", Value: r.Method, Limit: strings.Join(allowed, ", "),
				Detail: fmt.Sprintf("%s is not possible here; want %s", r.Method, strings.Join(allowed, " or "))})
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.fail(w, r, &Problem{Status: http.StatusNotFound, Field: "path", Value: r.URL.Path,
			Detail: "nothing is served at this path; /api/v1/openapi.json lists what is"})
	})
	return a.guard(mux)
}

// guard refuses what a foreign web page could send, and bounds body and time of everything else.
func (a *api) guard(next http.Handler) http.Handler {
	var origin http.CrossOriginProtection
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if a.Loopback && !loopbackHost(r.Host) {
			a.fail(w, r, &Problem{Status: http.StatusForbidden, Field: "Host", Value: r.Host, Limit: "localhost or an address",
				Detail: "this port serves its own machine only; name it localhost or by its address, or open http.addr to other machines"})
			return
		}
		if err := origin.Check(r); err != nil {
			a.fail(w, r, &Problem{Status: http.StatusForbidden, Field: "Origin", Value: r.Header.Get("Origin"),
				Detail: "a page of another origin may not change anything here"})
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func loopbackHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

func plain(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text+"\n")
}

// fail answers with err as problem+json.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	var p *Problem
	if !errors.As(err, &p) {
		status, detail := http.StatusInternalServerError, "the server failed; its log says why"
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			status, detail = http.StatusGatewayTimeout, fmt.Sprintf("no answer within %s", requestTimeout)
		case errors.Is(err, context.Canceled):
			return // nobody is there to read the answer
		default:
			a.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		}
		p = &Problem{Status: status, Detail: detail}
	}
	out := *p
	out.Type, out.Title = "about:blank", http.StatusText(p.Status)
	writeJSON(w, "application/problem+json", out.Status, out)
}

func writeJSON(w http.ResponseWriter, kind string, code int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic("httpapi: " + err.Error()) // the types hold nothing that cannot be written
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(code)
	_, _ = w.Write(append(b, '\n'))
}
