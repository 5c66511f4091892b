package httpapi

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
)

func TestBodiesAreTakenOnlyAsTheyAreMeant(t *testing.T) {
	const (
		change = "PATCH /api/v1/topics/orders"
		create = "POST /api/v1/topics"
		clean  = "POST /api/v1/retention/clean"
	)
	for _, tc := range []struct {
		name, to, give string
		code           int
		field          string
	}{
		{"nothing", change, `{}`, 200, ""},
		{"space around it", change, " {\n\"perm\" : \"r\" } \n", 200, ""},
		{"defaults", change, `{"durability":null,"idempotent":null,"untilConsumed":null,"order":null}`, 200, ""},
		{"an attribute less", change, `{"attributes":{"x":null}}`, 200, ""},
		{"null without a default", change, `{"perm":null}`, 400, "perm"},
		{"no queues", change, `{"readQueues":null}`, 400, "readQueues"},
		{"null for all attributes", change, `{"attributes":null}`, 400, "attributes"},
		{"a member twice", change, `{"perm":"r","order":true,"perm":"w"}`, 400, "perm"},
		{"a member twice, written otherwise", change, `{"perm":"r","p\u0065rm":"w"}`, 400, "perm"},
		{"an attribute twice", change, `{"attributes":{"x":"1","x":null}}`, 400, "attributes.x"},
		{"another case", change, `{"Perm":"r"}`, 400, "Perm"},
		{"both cases", change, `{"perm":"r","PERM":"w"}`, 400, "PERM"},
		{"an unknown member", change, `{"queues":4}`, 400, "queues"},
		{"an empty name", change, `{"":4}`, 400, ""},
		{"a number as a text", change, `{"readQueues":"4"}`, 400, "readQueues"},
		{"a fraction", change, `{"readQueues":4.5}`, 400, "readQueues"},
		{"too large", change, `{"readQueues":99999999999}`, 400, "readQueues"},
		{"a text as a number", change, `{"perm":4}`, 400, "perm"},
		{"a flag as a text", change, `{"order":"true"}`, 400, "order"},
		{"attributes as a list", change, `{"attributes":[]}`, 400, "attributes"},
		{"a number as an attribute", change, `{"attributes":{"x":1}}`, 400, "attributes.x"},
		{"an object as an attribute", change, `{"attributes":{"x":{"x":"1"}}}`, 400, "attributes.x"},
		{"more behind it", change, `{} {}`, 400, "body"},
		{"a bracket behind it", change, `{}]`, 400, "body"},
		{"not closed", change, `{"perm":"r"`, 400, "body"},
		{"a comma too many", change, `{"perm":"r",}`, 400, "body"},
		{"empty", change, ``, 400, "body"},
		{"null", change, `null`, 400, "body"},
		{"a list", change, `[{}]`, 400, "body"},
		{"no JSON", change, `perm=r`, 400, "body"},

		{"a topic", create, `{"name":"t","queues":4,"perm":"rw","durability":"sync","idempotent":true,"untilConsumed":"1h","order":true}`, 201, ""},
		{"a name twice", create, `{"name":"t","name":"u"}`, 400, "name"},
		{"no name", create, `{"name":null}`, 400, "name"},
		{"null for a default", create, `{"name":"t","queues":null}`, 400, "queues"},
		{"an unknown member of a topic", create, `{"name":"t","readQueues":4}`, 400, "readQueues"},
		{"more behind a topic", create, `{"name":"t"}x`, 400, "body"},
		{"a name of another type", create, `{"name":["t"]}`, 400, "name"},

		{"clean", clean, `{}`, 200, ""},
		{"clean with something", clean, `{"force":true}`, 400, "force"},
		{"clean with null", clean, `null`, 400, "body"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &table{topics: map[string]TopicDetail{"orders": {}}}
			method, path, _ := strings.Cut(tc.to, " ")
			req := httptest.NewRequest(method, path, strings.NewReader(tc.give))
			req.Host = "localhost"
			req.Header.Set("Content-Type", asJSON)
			w := httptest.NewRecorder()
			New(testOptions(a)).ServeHTTP(w, req)
			if w.Code != tc.code {
				t.Fatalf("%s %s = %d %s, want %d", tc.to, tc.give, w.Code, w.Body, tc.code)
			}
			var p Problem
			if tc.code != http.StatusBadRequest {
				return
			}
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Field != tc.field || p.Detail == "" || p.Limit == "" || w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s %s = %s (%v), want a problem with the field %q", tc.to, tc.give, w.Body, err, tc.field)
			}
		})
	}
}

// What is taken is what a reader that allows more makes of it.
func FuzzBody(f *testing.F) {
	for _, s := range []string{``, `{}`, `{"perm":"r","perm":"w"}`, `{"attributes":{"a":"b","c":null},"readQueues":3}`, `{"durability":null}`, `{"perm":"r"}}`, `{"order":tru`, `[1]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var got, again TopicChange
		if readStruct(b, reflect.ValueOf(&got).Elem()) != nil {
			return
		}
		if err := json.Unmarshal(b, &again); err != nil {
			t.Fatalf("%q was taken, and is no JSON: %v", b, err)
		}
		for _, v := range []*TopicChange{&got, &again} { // nulls
			v.Durability, v.Idempotent, v.UntilConsumed, v.Order = nil, nil, nil, nil
		}
		if !reflect.DeepEqual(got, again) {
			t.Fatalf("%q is %+v, and %+v otherwise", b, got, again)
		}
	})
}
