// Package admin is the client of a broker's administration port (/api/v1).
//
// Start with [New]; each method of [Client] is one operation. Lists are iterators that fetch page after page:
//
//	c, err := admin.New("127.0.0.1:8080")
//	...
//	for t, err := range c.Topics(ctx, admin.List{Prefix: "orders"}) {
//		...
//	}
//
// What the broker refuses comes back as an [*Error] with the field, the value and the limit that it is about; everything
// else is about the way to the broker. Nothing is tried again by itself. A Client may be used from any goroutine.
package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Client talks to one broker.
type Client struct {
	base *url.URL
	http *http.Client
}

// Option changes how a Client works.
type Option func(*Client)

// WithHTTPClient sets the HTTP client, overriding the default of one with a timeout of 30 s a request that follows no redirects.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// maxAnswer bounds an answer; a page of 1000 groups with their clients stays far below it.
const maxAnswer = 64 << 20

// New makes a client for the broker at addr: host:port, or an http or https address. It does not connect.
func New(addr string, opts ...Option) (*Client, error) {
	text := addr
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("admin: address %q: want host:port, or http://host:port", addr)
	}
	c := &Client{base: u, http: &http.Client{
		Timeout:       30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	for _, o := range opts {
		o(c)
	}
	return c, nil
}

// Addr is the address that the client talks to.
func (c *Client) Addr() string { return c.base.String() }

// Error is a refusal of the broker.
type Error struct {
	Status int    `json:"status"` // HTTP status code
	Title  string `json:"title"`
	Detail string `json:"detail"` // what is wrong and what to change
	Field  string `json:"field"`  // what it is about, when it is one field
	Value  string `json:"value"`
	Limit  string `json:"limit"`
}

func (e *Error) Error() string {
	if e.Detail != "" {
		return e.Detail
	}
	return fmt.Sprintf("HTTP %d %s", e.Status, e.Title)
}

// ErrNotFusionMQ is wrapped by every method when something else than a broker's administration port has answered.
var ErrNotFusionMQ = errors.New("admin: the answer does not come from a FusionMQ administration port")

// Status tells what the broker is and how it stands.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return call[Status](ctx, c, http.MethodGet, "status", nil, nil)
}

// Topic tells about one topic and its queues. An unknown one is an *Error with status 404.
func (c *Client) Topic(ctx context.Context, name string) (*TopicDetail, error) {
	return named[TopicDetail](ctx, c, http.MethodGet, "topic", name, nil)
}

// CreateTopic creates a topic. One that exists is an *Error with status 409.
func (c *Client) CreateTopic(ctx context.Context, t NewTopic) (*TopicDetail, error) {
	return call[TopicDetail](ctx, c, http.MethodPost, "topics", nil, t)
}

// ChangeTopic changes a topic and tells what it was and is. An unknown one is an *Error with status 404, one of the system with 403.
func (c *Client) ChangeTopic(ctx context.Context, name string, t TopicChange) (*TopicChanged, error) {
	return named[TopicChanged](ctx, c, http.MethodPatch, "topic", name, t)
}

// Retention tells when files of the log go, and how that stands.
func (c *Client) Retention(ctx context.Context) (*Retention, error) {
	return call[Retention](ctx, c, http.MethodGet, "retention", nil, nil)
}

// Clean has the broker delete now, at whatever hour, the files of the log that may go.
func (c *Client) Clean(ctx context.Context) (*CleanResult, error) {
	return call[CleanResult](ctx, c, http.MethodPost, "retention/clean", nil, struct{}{})
}

// Transactions lists at most most transactions that are not decided, those that were moved aside or those whose producers are asked. most is 1 to 1000.
func (c *Client) Transactions(ctx context.Context, aside bool, most int) (*Transactions, error) {
	q := url.Values{"limit": {strconv.Itoa(most)}}
	if aside {
		q.Set("aside", "true")
	}
	return call[Transactions](ctx, c, http.MethodGet, "transactions", q, nil)
}

// EndTransaction commits a transaction or rolls it back, for good. An unknown one is an *Error with status 404, one that has the other outcome with
// 409; one that has this outcome is a success.
func (c *Client) EndTransaction(ctx context.Context, address string, commit bool) (*TransactionEnded, error) {
	e := transactionEnd{"rollback"}
	if commit {
		e.Outcome = "commit"
	}
	return named[TransactionEnded](ctx, c, http.MethodPost, "transaction", address, e)
}

// Group tells about one group. An unknown one is an *Error with status 404.
func (c *Client) Group(ctx context.Context, name string) (*Group, error) {
	return named[Group](ctx, c, http.MethodGet, "group", name, nil)
}

// List says what a list holds. The zero value is everything that users made.
type List struct {
	Prefix   string // only names that begin with it
	System   bool   // also what the system made for itself
	PageSize int    // entries fetched at a time, 1 to 1000. Default 1000
}

// Topics lists topics in order of their names. An error is the last thing that it yields.
func (c *Client) Topics(ctx context.Context, l List) iter.Seq2[Topic, error] {
	return pages(l, func(q url.Values) ([]Topic, string, error) {
		p, err := call[topicPage](ctx, c, http.MethodGet, "topics", q, nil)
		if err != nil {
			return nil, "", err
		}
		return p.Topics, p.Next, nil
	})
}

// Groups lists the groups of both front ends in order of their names. An error is the last thing that it yields.
func (c *Client) Groups(ctx context.Context, l List) iter.Seq2[Group, error] {
	return pages(l, func(q url.Values) ([]Group, string, error) {
		p, err := call[groupPage](ctx, c, http.MethodGet, "groups", q, nil)
		if err != nil {
			return nil, "", err
		}
		return p.Groups, p.Next, nil
	})
}

// Expiries lists the newest ranges of messages that were deleted before a group had read them, oldest first. most is 1 to 1000.
func (c *Client) Expiries(ctx context.Context, most int) ([]Expiry, error) {
	e, err := call[expiries](ctx, c, http.MethodGet, "expiries", url.Values{"limit": {strconv.Itoa(most)}}, nil)
	if err != nil {
		return nil, err
	}
	return e.Expiries, nil
}

// pages yields the entries of one page after the other.
func pages[T any](l List, fetch func(url.Values) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		size := l.PageSize
		if size == 0 {
			size = 1000
		}
		q := url.Values{"limit": {strconv.Itoa(size)}}
		if l.Prefix != "" {
			q.Set("prefix", l.Prefix)
		}
		if l.System {
			q.Set("system", "true")
		}
		for {
			entries, next, err := fetch(q)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
			if next == "" || next <= q.Get("after") { // a page that does not move on would never end
				return
			}
			q.Set("after", next)
		}
	}
}

// named calls about the one thing of a kind that has a name. What no path can carry, since servers take dots and slashes in it for something
// else, is the name of nothing.
func named[T any](ctx context.Context, c *Client, method, kind, name string, in any) (*T, error) {
	if name == "." || name == ".." || strings.Trim(name, "/") == "" {
		return nil, &Error{Status: http.StatusNotFound, Title: http.StatusText(http.StatusNotFound), Field: "name", Value: name, Detail: fmt.Sprintf("there is no %s %q", kind, name)}
	}
	return call[T](ctx, c, method, kind+"s/"+url.PathEscape(name), nil, in)
}

// call does one request and reads its answer.
func call[T any](ctx context.Context, c *Client, method, path string, query url.Values, in any) (*T, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("admin: %w", err)
		}
		body = bytes.NewReader(b)
	}
	u := c.base.JoinPath("api", "v1")
	u.RawPath = u.EscapedPath() + "/" + path // path is escaped already
	var err error
	if u.Path, err = url.PathUnescape(u.RawPath); err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("admin: %s %s: %w", method, u.Redacted(), err)
	}
	if len(answer) > maxAnswer {
		return nil, fmt.Errorf("admin: %s %s: the answer has more than %d bytes", method, u.Redacted(), maxAnswer)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case kind == "application/problem+json" && resp.StatusCode >= 400:
		e := &Error{}
		if err := json.Unmarshal(answer, e); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotFusionMQ, err)
		}
		e.Status = resp.StatusCode
		return nil, e
	case kind == "application/json" && resp.StatusCode/100 == 2:
		out := new(T)
		if err := json.Unmarshal(answer, out); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotFusionMQ, err)
		}
		return out, nil
	default:
		return nil, fmt.Errorf("%w: %s %s gave HTTP %d, %s", ErrNotFusionMQ, method, u.Redacted(), resp.StatusCode, resp.Header.Get("Content-Type"))
	}
}
