package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// table is an Admin over a few topics.
type table struct {
	topics map[string]TopicDetail
	failed error
}

func (a *table) Status(context.Context) (Status, error) {
	return Status{Version: "v1", Listeners: map[string]string{"http": "127.0.0.1:1"}}, a.failed
}

func (a *table) Topics(_ context.Context, p Page) (out TopicPage, err error) {
	return TopicPage{Topics: []Topic{{Name: fmt.Sprintf("%+v", p)}}}, a.failed
}

func (a *table) Topic(_ context.Context, name string) (TopicDetail, error) {
	t, ok := a.topics[name]
	if !ok {
		return t, &Problem{Status: 404, Field: "name", Value: name, Detail: "no topic of this name"}
	}
	return t, nil
}

func (a *table) CreateTopic(_ context.Context, n NewTopic) (TopicDetail, error) {
	a.topics[n.Name] = TopicDetail{Topic: Topic{Name: n.Name, WriteQueues: n.Queues}}
	return a.topics[n.Name], nil
}

func (a *table) ChangeTopic(_ context.Context, name string, c TopicChange) (out TopicChanged, err error) {
	t, ok := a.topics[name]
	if !ok {
		return out, &Problem{Status: 404, Field: "name", Value: name, Detail: "no topic of this name"}
	}
	out.Before = t.Topic
	if c.Perm != nil {
		t.Perm = *c.Perm
	}
	for k, v := range c.Attributes {
		if v == nil {
			t.Perm += "-" + k
		}
	}
	out.After = t.Topic
	return out, a.failed
}

func (a *table) Retention(context.Context) (Retention, error) { return Retention{Files: 3}, a.failed }
func (a *table) Clean(context.Context) (CleanResult, error) {
	return CleanResult{DeletedFiles: 2}, a.failed
}

func (a *table) Groups(context.Context, Page) (GroupPage, error) { return GroupPage{}, a.failed }
func (a *table) Expiries(_ context.Context, most int) (Expiries, error) {
	return Expiries{Expiries: []Expiry{{Group: "g", Count: int64(most)}}}, a.failed
}

func (a *table) Transactions(_ context.Context, q TransactionQuery) (Transactions, error) {
	return Transactions{Total: q.Limit, Transactions: []Transaction{{Aside: q.Aside}}}, a.failed
}

func (a *table) EndTransaction(_ context.Context, address string, e TransactionEnd) (TransactionEnded, error) {
	return TransactionEnded{Address: int64(len(address)), Outcome: e.Outcome}, a.failed
}

func (a *table) Group(context.Context, string) (Group, error) {
	return Group{}, context.DeadlineExceeded
}

func testOptions(a *table) Options {
	return Options{
		Admin: a, Version: "v1", Loopback: true, Log: slog.New(slog.DiscardHandler),
		Ready:   func() error { return a.failed },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") }),
	}
}

const asJSON = "application/json"

func TestAnswers(t *testing.T) {
	boom := errors.New("disk on fire")
	big := `{"name":"` + strings.Repeat("x", maxBody) + `"}`
	for _, tc := range []struct {
		name, method, path, body string
		header                   map[string]string
		failed                   error
		wantCode                 int
		want                     []string // each must be in the answer
	}{
		{name: "live", method: "GET", path: "/healthz", wantCode: 200, want: []string{"ok"}},
		{name: "live although not ready", method: "GET", path: "/healthz", failed: boom, wantCode: 200},
		{name: "ready", method: "GET", path: "/readyz", wantCode: 200, want: []string{"ready"}},
		{name: "not ready", method: "GET", path: "/readyz", failed: boom, wantCode: 503, want: []string{"not ready: disk on fire"}},
		{name: "metrics", method: "GET", path: "/metrics", wantCode: 200, want: []string{"metrics"}},
		{name: "status", method: "GET", path: "/api/v1/status", wantCode: 200, want: []string{`"version":"v1"`, `"listeners":{"http":"127.0.0.1:1"}`}},
		{name: "inner errors stay inside", method: "GET", path: "/api/v1/status", failed: boom, wantCode: 500, want: []string{`"status":500`, "its log says why"}},
		{name: "too slow", method: "GET", path: "/api/v1/groups/g", wantCode: 504, want: []string{"no answer within 30s"}},
		{name: "page defaults", method: "GET", path: "/api/v1/topics", wantCode: 200, want: []string{"Limit:100"}},
		{name: "page given", method: "GET", path: "/api/v1/topics?prefix=a&after=b&limit=7&system=true", wantCode: 200, want: []string{"{Prefix:a After:b Limit:7 System:true}"}},
		{name: "page too large", method: "GET", path: "/api/v1/topics?limit=1001", wantCode: 400, want: []string{`"field":"limit"`, `"value":"1001"`, `"limit":"1 to 1000"`}},
		{name: "expiries", method: "GET", path: "/api/v1/expiries", wantCode: 200, want: []string{`"count":100`, `"reason":""`}},
		{name: "few expiries", method: "GET", path: "/api/v1/expiries?limit=3", wantCode: 200, want: []string{`"count":3`}},
		{name: "too many expiries", method: "GET", path: "/api/v1/expiries?limit=0", wantCode: 400, want: []string{`"field":"limit"`}},
		{name: "expiries of a page", method: "GET", path: "/api/v1/expiries?after=a", wantCode: 400, want: []string{`"field":"after"`}},
		{name: "transactions", method: "GET", path: "/api/v1/transactions", wantCode: 200, want: []string{`"total":100`, `"aside":false`}},
		{name: "transactions that were moved aside", method: "GET", path: "/api/v1/transactions?aside=true&limit=3", wantCode: 200, want: []string{`"total":3`, `"aside":true`}},
		{name: "too many transactions", method: "GET", path: "/api/v1/transactions?limit=1001", wantCode: 400, want: []string{`"field":"limit"`}},
		{name: "transactions somewhere", method: "GET", path: "/api/v1/transactions?aside=where", wantCode: 400, want: []string{`"field":"aside"`}},
		{name: "transactions of a topic", method: "GET", path: "/api/v1/transactions?topic=t", wantCode: 400, want: []string{`"field":"topic"`}},
		{name: "end of a transaction", method: "POST", path: "/api/v1/transactions/1234", body: `{"outcome":"commit"}`, header: map[string]string{"Content-Type": asJSON}, wantCode: 200, want: []string{`"address":4`, `"outcome":"commit"`}},
		{name: "unknown parameter", method: "GET", path: "/api/v1/topics?size=1", wantCode: 400, want: []string{`"field":"size"`}},
		{name: "unknown topic", method: "GET", path: "/api/v1/topics/none", wantCode: 404, want: []string{`"title":"Not Found"`, `"value":"none"`, `"type":"about:blank"`}},
		{name: "escaped topic", method: "GET", path: "/api/v1/topics/%25RETRY%25g", wantCode: 404, want: []string{`"value":"%RETRY%g"`}},
		{name: "unknown path", method: "GET", path: "/api/v2/status", wantCode: 404, want: []string{"/api/v1/openapi.json"}},
		{name: "wrong method", method: "DELETE", path: "/api/v1/topics", wantCode: 405, want: []string{"GET or POST"}},
		{name: "create", method: "POST", path: "/api/v1/topics", body: `{"name":"t","queues":4}`, header: map[string]string{"Content-Type": "application/json; charset=utf-8"}, wantCode: 201, want: []string{`"writeQueues":4`}},
		{name: "create from a form", method: "POST", path: "/api/v1/topics", body: `{"name":"t"}`, header: map[string]string{"Content-Type": "text/plain"}, wantCode: 415, want: []string{"application/json"}},
		{name: "create without a type", method: "POST", path: "/api/v1/topics", body: `{"name":"t"}`, wantCode: 415},
		{name: "create from another origin", method: "POST", path: "/api/v1/topics", body: `{"name":"t"}`, header: map[string]string{"Content-Type": asJSON, "Sec-Fetch-Site": "cross-site"}, wantCode: 403, want: []string{"another origin"}},
		{name: "create from another origin, old browser", method: "POST", path: "/api/v1/topics", body: `{"name":"t"}`, header: map[string]string{"Content-Type": asJSON, "Origin": "https://evil.example"}, wantCode: 403},
		{name: "rebound name", method: "GET", path: "/api/v1/status", header: map[string]string{"Host": "evil.example:8080"}, wantCode: 403, want: []string{`"field":"Host"`}},
		{name: "localhost", method: "GET", path: "/healthz", header: map[string]string{"Host": "localhost:8080"}, wantCode: 200},
		{name: "IPv6", method: "GET", path: "/healthz", header: map[string]string{"Host": "[::1]:8080"}, wantCode: 200},
		{name: "body too large", method: "POST", path: "/api/v1/topics", body: big, header: map[string]string{"Content-Type": asJSON}, wantCode: 413, want: []string{"65536"}},
		{name: "unknown field", method: "POST", path: "/api/v1/topics", body: `{"nam":"t"}`, header: map[string]string{"Content-Type": asJSON}, wantCode: 400, want: []string{"unknown field", "nam"}},
		{name: "wrong type", method: "POST", path: "/api/v1/topics", body: `{"queues":"four"}`, header: map[string]string{"Content-Type": asJSON}, wantCode: 400, want: []string{`"field":"queues"`, `"limit":"a whole number of at most 2147483647"`}},
		{name: "two objects", method: "POST", path: "/api/v1/topics", body: `{"name":"t"}{}`, header: map[string]string{"Content-Type": asJSON}, wantCode: 400, want: []string{"more behind"}},
		{name: "change", method: "PATCH", path: "/api/v1/topics/old", body: `{"perm":"r","attributes":{"x":null}}`, header: map[string]string{"Content-Type": asJSON}, wantCode: 200, want: []string{`"before":{"name":"old"`, `"perm":"r-x"`}},
		{name: "change of nothing there", method: "PATCH", path: "/api/v1/topics/none", body: `{}`, header: map[string]string{"Content-Type": asJSON}, wantCode: 404},
		{name: "change of an unknown field", method: "PATCH", path: "/api/v1/topics/old", body: `{"name":"new"}`, header: map[string]string{"Content-Type": asJSON}, wantCode: 400, want: []string{"unknown field"}},
		{name: "change from a form", method: "PATCH", path: "/api/v1/topics/old", body: `{}`, header: map[string]string{"Content-Type": "text/plain"}, wantCode: 415},
		{name: "retention", method: "GET", path: "/api/v1/retention", wantCode: 200, want: []string{`"files":3`}},
		{name: "clean", method: "POST", path: "/api/v1/retention/clean", body: `{}`, header: map[string]string{"Content-Type": asJSON}, wantCode: 200, want: []string{`"deletedFiles":2`}},
		{name: "clean from a form", method: "POST", path: "/api/v1/retention/clean", header: map[string]string{"Content-Type": "text/plain"}, wantCode: 415},
		{name: "clean by looking", method: "GET", path: "/api/v1/retention/clean", wantCode: 405, want: []string{"POST"}},
		{name: "no body", method: "POST", path: "/api/v1/topics", header: map[string]string{"Content-Type": asJSON}, wantCode: 400},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &table{topics: map[string]TopicDetail{"old": {Topic: Topic{Name: "old"}}}, failed: tc.failed}
			req := httptest.NewRequest(tc.method, tc.path, strings.NewReader(tc.body))
			req.Host = "127.0.0.1:8080"
			for k, v := range tc.header {
				if k == "Host" {
					req.Host = v
				}
				req.Header.Set(k, v)
			}
			w := httptest.NewRecorder()
			New(testOptions(a)).ServeHTTP(w, req)
			if w.Code != tc.wantCode {
				t.Errorf("%s %s = %d, want %d: %s", tc.method, tc.path, w.Code, tc.wantCode, w.Body)
			}
			for _, want := range tc.want {
				if !strings.Contains(w.Body.String(), want) {
					t.Errorf("%s %s = %s\nwant it to contain %s", tc.method, tc.path, w.Body, want)
				}
			}
			if strings.Contains(w.Body.String(), boom.Error()) && strings.HasPrefix(tc.path, "/api") {
				t.Errorf("the answer tells an inner error: %s", w.Body)
			}
			if tc.wantCode >= 400 && strings.HasPrefix(tc.path, "/api") && w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("error is %q", w.Header().Get("Content-Type"))
			}
			if tc.wantCode >= 400 && len(a.topics) > 1 {
				t.Errorf("a refused request made %v", a.topics)
			}
		})
	}
}

// TestOpenAPIDocument compares the document with docs/openapi.json, which clients are checked against.
// UPDATE=1 writes the file.
func TestOpenAPIDocument(t *testing.T) {
	const path = "../../docs/openapi.json"
	o := testOptions(&table{})
	o.Version = "v1"
	w := httptest.NewRecorder()
	req := httptest.NewRequest("GET", "/api/v1/openapi.json", nil)
	req.Host = "localhost"
	New(o).ServeHTTP(w, req)
	got := w.Body.Bytes()
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s differs from the types (%v); run: UPDATE=1 go test ./httpapi -run OpenAPI", path, err)
	}
	var doc struct {
		Paths map[string]map[string]struct {
			Responses map[string]any
		}
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct{ Description string }
			}
		}
	}
	if err := json.Unmarshal(got, &doc); err != nil {
		t.Fatal(err)
	}
	for _, r := range (&api{Options: o}).table() {
		if len(doc.Paths[r.path][strings.ToLower(r.method)].Responses) < 2 {
			t.Errorf("%s %s is not described", r.method, r.path)
		}
	}
	for name, s := range doc.Components.Schemas {
		for field, p := range s.Properties {
			if p.Description == "" {
				t.Errorf("%s.%s has no description", name, field)
			}
		}
	}
}

func TestServeAndShutdown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := Serve(l, New(testOptions(&table{})), slog.New(slog.DiscardHandler))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + s.Addr().String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("healthz = %d", resp.StatusCode)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown = %v", err)
	}
	if _, err := net.Dial("tcp", s.Addr().String()); err == nil {
		t.Error("the port still accepts")
	}
}
