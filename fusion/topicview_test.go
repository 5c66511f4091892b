package fusion

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/fusion/httpapi"
	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store/meta"
)

// request does one request with a body and returns code and answer.
func request(t *testing.T, a *App, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+a.Listeners()["http"]+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// Law 4: the durability of a topic changes while it is in use, and so does everything else that an operator may set.
func TestLaw4TopicsChangeOverHTTP(t *testing.T) {
	a, _ := start(t, load(t, t.TempDir(), nil))
	c := dial(t, a.Listeners()["broker"])
	c.send("orders", "x")
	for _, tc := range []struct {
		name, give string
		code       int
		want       string // in the answer
	}{
		{"nothing", `{}`, 200, `"after":{"name":"orders","readQueues":4,"writeQueues":4,"perm":"rw","durability":"async"`},
		{"durability", `{"durability":"sync"}`, 200, `"perm":"rw","durability":"sync"`},
		{"queues", `{"readQueues":16,"writeQueues":6}`, 200, `"after":{"name":"orders","readQueues":16,"writeQueues":6,"perm":"rw","durability":"sync"`},
		{"perm", `{"perm":"r"}`, 200, `"writeQueues":6,"perm":"r",`},
		{"no perm", `{"perm":"-"}`, 200, `"writeQueues":6,"perm":"-",`},
		{"perm again", `{"perm":"rw"}`, 200, `"before":{"name":"orders","readQueues":16,"writeQueues":6,"perm":"-",`},
		{"flags", `{"idempotent":true,"untilConsumed":"90m","order":true}`, 200, `"idempotent":true,"untilConsumed":"1h30m","order":true}}`},
		{"flags back", `{"idempotent":false,"untilConsumed":"off","order":false}`, 200, `"idempotent":false,"order":false}}`},
		{"attributes", `{"attributes":{"message.type":"NORMAL","reserve.time":"1"}}`, 200, `"attributes":{"message.type":"NORMAL","reserve.time":"1"}}}`},
		{"an attribute less", `{"attributes":{"reserve.time":null,"queue.type":null}}`, 200, `"attributes":{"message.type":"NORMAL"}}}`},
		{"a value that is none", `{"attributes":{"message.type":"banana"}}`, 400, `"field":"attributes.message.type","value":"banana","limit":"UNSPECIFIED, NORMAL, FIFO, DELAY or TRANSACTION"`},
		{"mixed types", `{"attributes":{"message.type":"MIXED"}}`, 400, `mixed message types are not enabled`},
		{"an unknown attribute", `{"attributes":{"x":"1"}}`, 400, `"field":"attributes","value":"x","limit":"one of cleanup.policy, `},
		{"an attribute for good", `{"attributes":{"queue.type":"SimpleCQ"}}`, 400, `"field":"attributes.queue.type"`},
		{"an attribute with a field", `{"attributes":{"fusion.durability":"memory"}}`, 400, `"field":"attributes","value":"fusion.durability"`},
		{"bad durability", `{"durability":"disk"}`, 400, `"value":"disk"`},
		{"bad perm", `{"perm":""}`, 400, `"field":"perm"`},
		{"bad time", `{"untilConsumed":"-1h"}`, 400, `"value":"-1h"`},
		{"no queue", `{"durability":"memory","writeQueues":0}`, 400, `"field":"writeQueueNums","value":"0"`},
		{"the default", `{"durability":"default"}`, 200, `"perm":"rw","durability":"async"`},
		{"flags again", `{"durability":"sync","idempotent":true,"untilConsumed":"90m","order":true}`, 200, `"durability":"sync","system":false,"messages":1,"idempotent":true,"untilConsumed":"1h30m","order":true`},
		{"the defaults", `{"durability":null,"idempotent":null,"untilConsumed":null,"order":null}`, 200, `"durability":"async","system":false,"messages":1,"idempotent":false,"order":false`},
		{"null for what has no default", `{"durability":"sync","perm":null}`, 400, `"field":"perm","value":"null"`},
		{"twice", `{"durability":"sync","durability":"memory"}`, 400, `"field":"durability"`},
		{"nothing again", `{}`, 200, `"after":{"name":"orders","readQueues":16,"writeQueues":6,"perm":"rw","durability":"async"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, body := request(t, a, "PATCH", "/api/v1/topics/orders", tc.give)
			if code != tc.code || !strings.Contains(body, tc.want) {
				t.Errorf("PATCH %s = %d %s, want %d and %s", tc.give, code, body, tc.code, tc.want)
			}
		})
	}
	for path, code := range map[string]int{"none": 404, "TBW102": 403, "rmq_sys_fusion_oq": 404} {
		if got, body := request(t, a, "PATCH", "/api/v1/topics/"+path, `{"perm":"r"}`); got != code {
			t.Errorf("%s: %d %s, want %d", path, got, body, code)
		}
	}

	// What another broker has given a topic stays until it is taken away.
	if _, _, err := a.store.Topics().Change("orders", func(t *meta.Topic) error {
		t.Attributes["of.another"], t.Attributes["cleanup.policy"] = "1", "banana"
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ give, want string }{
		{`{"attributes":{"of.another":"1","cleanup.policy":"banana"},"perm":"r"}`, `"attributes":{"cleanup.policy":"banana","message.type":"NORMAL","of.another":"1"}}}`},
		{`{"attributes":{"of.another":null},"perm":"rw"}`, `"attributes":{"cleanup.policy":"banana","message.type":"NORMAL"}}}`},
		{`{"attributes":{"cleanup.policy":null}}`, `"field":"attributes.cleanup.policy","value":"null"`},
	} {
		if _, body := request(t, a, "PATCH", "/api/v1/topics/orders", tc.give); !strings.Contains(body, tc.want) {
			t.Errorf("PATCH %s = %s, want %s", tc.give, body, tc.want)
		}
	}

	// It counts at once, for sends and for routes.
	if code, body := request(t, a, "PATCH", "/api/v1/topics/orders", `{"durability":"sync"}`); code != 200 {
		t.Fatal(body)
	}
	c.send("orders", "on the disk")
	if b := a.store.Bounds(); a.store.DurabilityOf("orders") != meta.Sync || b.Synced < b.Max {
		t.Errorf("after a send to a sync topic %+v", b)
	}
	_, _ = request(t, a, "PATCH", "/api/v1/topics/orders", `{"perm":"r"}`)
	_, route := dial(t, a.Listeners()["nameserver"]).call(remoting.ReqGetRouteInfoByTopic, func(e *remoting.Encoder) { e.String("topic", "orders") }, nil)
	if !strings.Contains(string(route), `"perm":4`) || !strings.Contains(string(route), `"readQueueNums":16`) {
		t.Errorf("route %s", route)
	}
}

func TestRetentionOverHTTP(t *testing.T) {
	cfg := load(t, t.TempDir(), nil)
	cfg.Store.Retention, cfg.Store.DeleteHours = 36*time.Hour, []string{"4", "5"}
	a, log := start(t, cfg)
	var r httpapi.Retention
	get(t, a, "/api/v1/retention", &r)
	if r.AgeSeconds != 36*3600 || r.ViewWindowSeconds != 9*3600 || len(r.DeleteHours) != 2 || r.RefusePercent != 90 || r.Files > 1 || !r.OldestFileUntil.Equal(time.UnixMilli(0)) {
		t.Errorf("%+v", r)
	}
	code, body := request(t, a, "POST", "/api/v1/retention/clean", `{}`)
	if code != 200 || !strings.Contains(body, `"deletedFiles":0,"retention":{"ageSeconds":129600`) || !strings.Contains(log.String(), "looked for files") {
		t.Errorf("clean: %d %s", code, body)
	}
}
