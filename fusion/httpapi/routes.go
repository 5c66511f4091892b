package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
)

// route is one operation of the API, for the mux and for the OpenAPI document.
type route struct {
	method, path, id, summary string
	query                     reflect.Type // struct with query tags; nil: none
	body                      reflect.Type // nil: none
	out                       reflect.Type
	code                      int   // of a success
	problems                  []int // codes of the failures that a caller should expect
	handler                   http.Handler
}

// table lists the operations.
func (a *api) table() []route {
	return []route{
		operation(a, route{method: "GET", path: "/api/v1/status", id: "status", summary: "What the broker is and how it stands"},
			nil, func(ctx context.Context, _ *http.Request, _ struct{}) (Status, error) { return a.Admin.Status(ctx) }),
		operation(a, route{method: "GET", path: "/api/v1/topics", id: "listTopics", summary: "List topics in order of their names", problems: []int{400}},
			pageOf, func(ctx context.Context, _ *http.Request, p Page) (TopicPage, error) { return a.Admin.Topics(ctx, p) }),
		operation(a, route{method: "GET", path: "/api/v1/topics/{name}", id: "getTopic", summary: "One topic with its queues", problems: []int{404}},
			nil, func(ctx context.Context, r *http.Request, _ struct{}) (TopicDetail, error) {
				return a.Admin.Topic(ctx, r.PathValue("name"))
			}),
		operation(a, route{method: "POST", path: "/api/v1/topics", id: "createTopic", summary: "Create a topic", code: http.StatusCreated, problems: []int{400, 403, 409, 413, 415}},
			bodyOf[NewTopic], func(ctx context.Context, _ *http.Request, t NewTopic) (TopicDetail, error) {
				return a.Admin.CreateTopic(ctx, t)
			}),
		operation(a, route{method: "PATCH", path: "/api/v1/topics/{name}", id: "changeTopic", summary: "Change a topic; it shows what was and what is", problems: []int{400, 403, 404, 413, 415}},
			bodyOf[TopicChange], func(ctx context.Context, r *http.Request, c TopicChange) (TopicChanged, error) {
				return a.Admin.ChangeTopic(ctx, r.PathValue("name"), c)
			}),
		operation(a, route{method: "GET", path: "/api/v1/groups", id: "listGroups", summary: "List the groups of both front ends in order of their names", problems: []int{400}},
			pageOf, func(ctx context.Context, _ *http.Request, p Page) (GroupPage, error) { return a.Admin.Groups(ctx, p) }),
		operation(a, route{method: "GET", path: "/api/v1/groups/{name}", id: "getGroup", summary: "One group", problems: []int{404}},
			nil, func(ctx context.Context, r *http.Request, _ struct{}) (Group, error) {
				return a.Admin.Group(ctx, r.PathValue("name"))
			}),
		operation(a, route{method: "GET", path: "/api/v1/expiries", id: "listExpiries", summary: "The newest messages that were deleted before a group had read them", problems: []int{400}},
			newestOf, func(ctx context.Context, _ *http.Request, n Newest) (Expiries, error) {
				return a.Admin.Expiries(ctx, n.Limit)
			}),
		operation(a, route{method: "GET", path: "/api/v1/transactions", id: "listTransactions", summary: "Transactions that are not decided", problems: []int{400}},
			transactionsOf, func(ctx context.Context, _ *http.Request, q TransactionQuery) (Transactions, error) {
				return a.Admin.Transactions(ctx, q)
			}),
		operation(a, route{method: "POST", path: "/api/v1/transactions/{address}", id: "endTransaction", summary: "Commit a transaction or roll it back, for good", problems: []int{400, 404, 409, 413, 415, 503}},
			bodyOf[TransactionEnd], func(ctx context.Context, r *http.Request, e TransactionEnd) (TransactionEnded, error) {
				return a.Admin.EndTransaction(ctx, r.PathValue("address"), e)
			}),
		operation(a, route{method: "GET", path: "/api/v1/retention", id: "getRetention", summary: "When files of the log go, and how that stands"},
			nil, func(ctx context.Context, _ *http.Request, _ struct{}) (Retention, error) {
				return a.Admin.Retention(ctx)
			}),
		operation(a, route{method: "POST", path: "/api/v1/retention/clean", id: "clean", summary: "Delete now, at whatever hour, the files of the log that may go", problems: []int{400, 413, 415, 503}},
			bodyOf[CleanRequest], func(ctx context.Context, _ *http.Request, _ CleanRequest) (CleanResult, error) {
				return a.Admin.Clean(ctx)
			}),
	}
}

// operation completes a route with its types and handler. read gets the input out of a request; nil for none.
func operation[In, Out any](a *api, r route, read func(*http.Request) (In, error), do func(context.Context, *http.Request, In) (Out, error)) route {
	if r.code == 0 {
		r.code = http.StatusOK
	}
	r.out = reflect.TypeFor[Out]()
	if in := reflect.TypeFor[In](); read != nil {
		if r.method == http.MethodGet {
			r.query = in
		} else {
			r.body = in
		}
	}
	r.handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var in In
		var err error
		if read != nil {
			in, err = read(req)
		}
		if err == nil {
			var out Out
			if out, err = do(req.Context(), req, in); err == nil {
				writeJSON(w, "application/json", r.code, out)
				return
			}
		}
		a.fail(w, req, err)
	})
	return r
}

func bodyOf[T any](r *http.Request) (v T, err error) {
	err = readJSON(r, &v)
	return v, err
}

// pageOf reads the parameters of a list. An unknown one is a mistake: it would silently show something else.
func pageOf(r *http.Request) (Page, error) {
	p := Page{Limit: defaultPage}
	for name, values := range r.URL.Query() {
		v := values[len(values)-1]
		switch name {
		case "prefix":
			p.Prefix = v
		case "after":
			p.After = v
		case "limit":
			n, err := strconv.Atoi(v)
			if err != nil || n < 1 || n > maxPage {
				return p, badQuery(name, v, fmt.Sprintf("1 to %d", maxPage))
			}
			p.Limit = n
		case "system":
			b, err := strconv.ParseBool(v)
			if err != nil {
				return p, badQuery(name, v, "true or false")
			}
			p.System = b
		default:
			return p, badQuery(name, v, "prefix, after, limit or system")
		}
	}
	return p, nil
}

// newestOf reads the parameter of a list that ends with what is newest.
func newestOf(r *http.Request) (Newest, error) {
	n := Newest{Limit: defaultPage}
	for name, values := range r.URL.Query() {
		v := values[len(values)-1]
		if name != "limit" {
			return n, badQuery(name, v, "limit")
		}
		limit, err := strconv.Atoi(v)
		if err != nil || limit < 1 || limit > maxPage {
			return n, badQuery(name, v, fmt.Sprintf("1 to %d", maxPage))
		}
		n.Limit = limit
	}
	return n, nil
}

// transactionsOf reads the parameters of the list of transactions.
func transactionsOf(r *http.Request) (TransactionQuery, error) {
	q := TransactionQuery{Limit: defaultPage}
	for name, values := range r.URL.Query() {
		v := values[len(values)-1]
		switch name {
		case "aside":
			b, err := strconv.ParseBool(v)
			if err != nil {
				return q, badQuery(name, v, "true or false")
			}
			q.Aside = b
		case "limit":
			n, err := strconv.Atoi(v)
			if err != nil || n < 1 || n > maxPage {
				return q, badQuery(name, v, fmt.Sprintf("1 to %d", maxPage))
			}
			q.Limit = n
		default:
			return q, badQuery(name, v, "aside or limit")
		}
	}
	return q, nil
}

func badQuery(name, value, want string) error {
	return &Problem{Status: http.StatusBadRequest, Field: name, Value: value, Limit: want, Detail: fmt.Sprintf("parameter %s is %q; want %s", name, value, want)}
}
