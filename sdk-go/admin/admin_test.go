package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// serve answers every request with fn and gives a client for it.
func serve(t *testing.T, fn http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(fn)
	t.Cleanup(s.Close)
	c, err := New(s.URL, WithHTTPClient(s.Client()))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func answer(w http.ResponseWriter, kind string, code int, text string) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text)
}

func TestNewChecksTheAddress(t *testing.T) {
	for _, tc := range []struct{ give, want string }{
		{"localhost:8080", "http://localhost:8080"},
		{"https://mq.example.com/broker-a/", "https://mq.example.com/broker-a/"},
		{"[::1]:8080", "http://[::1]:8080"},
		{"", ""}, {"ftp://x", ""}, {"http://", ""}, {"x y:1", ""}, {"http://x?y", ""},
	} {
		c, err := New(tc.give)
		if tc.want == "" {
			if err == nil {
				t.Errorf("New(%q) = %s, want an error", tc.give, c.Addr())
			}
			continue
		}
		if err != nil || c.Addr() != tc.want {
			t.Errorf("New(%q) = %v, %v, want %s", tc.give, c, err, tc.want)
		}
	}
}

func TestRequests(t *testing.T) {
	var got string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = strings.TrimSpace(fmt.Sprint(r.Method, " ", r.RequestURI, " ", r.Header.Get("Content-Type"), " ", string(body)))
		answer(w, "application/json", 200, `{}`)
	})
	ctx := t.Context()
	for _, tc := range []struct {
		name string
		do   func() error
		want string
	}{
		{"status", func() error { _, err := c.Status(ctx); return err }, "GET /api/v1/status"},
		{"topic with a percent sign", func() error { _, err := c.Topic(ctx, "%RETRY%g"); return err }, "GET /api/v1/topics/%25RETRY%25g"},
		{"topic that looks like a path", func() error { _, err := c.Topic(ctx, "a/../b"); return err }, "GET /api/v1/topics/a%2F..%2Fb"},
		{"create", func() error { _, err := c.CreateTopic(ctx, NewTopic{Name: "t", Queues: 4}); return err }, `POST /api/v1/topics application/json {"name":"t","queues":4}`},
		{"change", func() error {
			yes, sync, x := true, "sync", "1"
			_, err := c.ChangeTopic(ctx, "a/b", TopicChange{Durability: &sync, Idempotent: &yes, Attributes: map[string]*string{"x": &x, "y": nil}})
			return err
		}, `PATCH /api/v1/topics/a%2Fb application/json {"durability":"sync","idempotent":true,"attributes":{"x":"1","y":null}}`},
		{"retention", func() error { _, err := c.Retention(ctx); return err }, "GET /api/v1/retention"},
		{"clean", func() error { _, err := c.Clean(ctx); return err }, "POST /api/v1/retention/clean application/json {}"},
		{"transactions", func() error { _, err := c.Transactions(ctx, false, 7); return err }, "GET /api/v1/transactions?limit=7"},
		{"transactions aside", func() error { _, err := c.Transactions(ctx, true, 100); return err }, "GET /api/v1/transactions?aside=true&limit=100"},
		{"commit", func() error { _, err := c.EndTransaction(ctx, "123", true); return err }, `POST /api/v1/transactions/123 application/json {"outcome":"commit"}`},
		{"rollback", func() error { _, err := c.EndTransaction(ctx, "a/b", false); return err }, `POST /api/v1/transactions/a%2Fb application/json {"outcome":"rollback"}`},
		{"group", func() error { _, err := c.Group(ctx, "g"); return err }, "GET /api/v1/groups/g"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.do(); err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestListsFollowPages(t *testing.T) {
	var asked []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		switch r.URL.Query().Get("after") {
		case "":
			answer(w, "application/json", 200, `{"topics":[{"name":"a"},{"name":"b"}],"next":"b"}`)
		case "b":
			answer(w, "application/json", 200, `{"topics":[{"name":"c"}],"next":"a"}`) // does not move on: the end
		}
	})
	var names []string
	for topic, err := range c.Topics(t.Context(), List{Prefix: "p", System: true, PageSize: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, topic.Name)
	}
	if !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("names %q", names)
	}
	if want := []string{"limit=2&prefix=p&system=true", "after=b&limit=2&prefix=p&system=true"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
	for range c.Topics(t.Context(), List{}) {
		break // leaving early must not fetch more
	}
	if len(asked) != 3 {
		t.Errorf("%d requests after leaving early, want 3", len(asked))
	}
}

func TestErrors(t *testing.T) {
	for _, tc := range []struct {
		name string
		kind string
		code int
		text string
		want func(error) bool
	}{
		{"a problem", "application/problem+json", 409, `{"status":409,"title":"Conflict","detail":"topic t exists","field":"name","value":"t","limit":"x"}`,
			func(err error) bool {
				var e *Error
				return errors.As(err, &e) && *e == Error{409, "Conflict", "topic t exists", "name", "t", "x"} && err.Error() == "topic t exists"
			}},
		{"a problem without detail", "application/problem+json", 500, `{"title":"Internal Server Error"}`,
			func(err error) bool { return err.Error() == "HTTP 500 Internal Server Error" }},
		{"a web page", "text/html", 200, "<html>", func(err error) bool { return errors.Is(err, ErrNotFusionMQ) }},
		{"a redirect", "text/html", 302, "", func(err error) bool { return errors.Is(err, ErrNotFusionMQ) }},
		{"no JSON", "application/json", 200, "{", func(err error) bool { return errors.Is(err, ErrNotFusionMQ) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, tc.kind, tc.code, tc.text) })
			if _, err := c.Status(t.Context()); err == nil || !tc.want(err) {
				t.Errorf("Status = %#v", err)
			}
			for _, err := range c.Groups(t.Context(), List{}) {
				if err == nil || !tc.want(err) {
					t.Errorf("Groups = %#v", err)
				}
			}
		})
	}
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Status(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Status with a cancelled context = %v", err)
	}
}

// TestTypesMatchTheServer compares the types with the document that the server makes from its own.
func TestTypesMatchTheServer(t *testing.T) {
	b, err := os.ReadFile("../../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any
			}
		}
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	ours := map[string]any{
		"Status": Status{}, "StoreStatus": StoreStatus{}, "Counts": Counts{}, "Memory": Memory{}, "Topic": Topic{}, "TopicDetail": TopicDetail{}, "Queue": Queue{},
		"TopicPage": topicPage{}, "NewTopic": NewTopic{}, "Group": Group{}, "GroupTopic": GroupTopic{}, "Member": Member{}, "GroupPage": groupPage{}, "Expiry": Expiry{}, "Expiries": expiries{}, "Problem": Error{},
		"TopicChange": TopicChange{}, "TopicChanged": TopicChanged{}, "Retention": Retention{}, "CleanRequest": struct{}{}, "CleanResult": CleanResult{},
		"Transaction": Transaction{}, "Transactions": Transactions{}, "TransactionEnd": transactionEnd{}, "TransactionEnded": TransactionEnded{},
	}
	for name, schema := range doc.Components.Schemas {
		v, ok := ours[name]
		if !ok {
			t.Errorf("the server has %s, which the client lacks", name)
			continue
		}
		var have []string
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			if !f.Anonymous {
				tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				have = append(have, tag)
			}
		}
		for field := range schema.Properties {
			if !slices.Contains(have, field) && (name != "Problem" || field != "type") {
				t.Errorf("%s: the server has %s, which the client lacks", name, field)
			}
		}
		for _, field := range have {
			if _, ok := schema.Properties[field]; !ok {
				t.Errorf("%s: the client has %s, which the server lacks", name, field)
			}
		}
	}
}
