package broker

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/metaq/remoting"
	"github.com/fusionmq/fusionmq/store"
)

// sqlSub is a subscription by an SQL92 expression.
func sqlSub(topic, expr string, version int64) remoting.SubscriptionData {
	return remoting.SubscriptionData{Topic: topic, SubString: expr, ExpressionType: "SQL92", SubVersion: remoting.Long(version)}
}

// pulled pulls a queue to its end and gives the bodies, and how many pulls it took.
func (c *client) pulled(p pullReq) (bodies []string, pulls int) {
	c.Helper()
	for {
		r := c.pull(p)
		pulls++
		switch r.Code {
		case 0:
			for _, v := range records(c, r.body) {
				bodies = append(bodies, string(v.Body()))
			}
		case 20:
		case 19:
			return bodies, pulls
		default:
			c.Fatalf("pull at %d: %v", p.offset, r)
		}
		next := num(c, r, "nextBeginOffset")
		if next <= p.offset {
			c.Fatalf("pull at %d goes on at %d", p.offset, next)
		}
		p.offset = next
	}
}

func TestPullsBySQL92(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	c := e.dial()
	for i := range 20 {
		c.sent(message{topic: "T", body: fmt.Sprint(i), props: props("n", fmt.Sprint(i), "colour", []string{"red", "blue"}[i%2])})
	}
	c.sent(message{topic: "T", body: "bare"})
	c.beat("c1", "Beat", false, sqlSub("T", "n BETWEEN 3 AND 8 AND colour = 'red'", 5))
	want := []string{"4", "6", "8"}
	for name, p := range map[string]pullReq{
		"subscription in the pull":      {group: "Pull", topic: "T", sub: "n BETWEEN 3 AND 8 AND colour = 'red'", kind: "SQL92"},
		"subscription of the heartbeat": {group: "Beat", topic: "T", version: 5, kind: "SQL92"},
		"as the Go client pulls":        {group: "Beat", topic: "T", kind: "TAG"},
		"one at a time":                 {group: "Beat", topic: "T", max: 1},
	} {
		if got, _ := c.pulled(p); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if s := e.b.Stats(); s.SQLLooked == 0 || s.SQLRead > s.SQLLooked {
		t.Errorf("looked at %d, read %d", s.SQLLooked, s.SQLRead)
	}
	// A newer subscription counts from the next pull on.
	c.beat("c1", "Beat", false, sqlSub("T", "n > 17", 6))
	if got, _ := c.pulled(pullReq{group: "Beat", topic: "T", version: 6}); !slices.Equal(got, []string{"18", "19"}) {
		t.Errorf("after a change: %q", got)
	}
}

func TestSQL92Codes(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	c := e.dial()
	c.sent(message{topic: "T", body: "x", props: props("n", "1")})
	c.beat("c1", "Good", false, sqlSub("T", "n > 0", 5))
	c.beat("c1", "Bad", false, sqlSub("T", "n >>> 0", 5))
	c.beat("c1", "Empty", false, sqlSub("T", "", 5))
	c.beat("c1", "Regex", false, remoting.SubscriptionData{Topic: "T", SubString: "a", ExpressionType: "REGEX", SubVersion: 5})
	long := "n = " + strings.Repeat("9", 200<<10)
	for _, tc := range []struct {
		name string
		give pullReq
		code int32
		want string
	}{
		{"good", pullReq{group: "Good", version: 5}, 0, ""},
		{"a pull that knows a newer subscription", pullReq{group: "Good", version: 6}, 25, "not latest"},
		{"no heartbeat", pullReq{group: "Nobody"}, 24, "not exist"},
		{"no subscription to the topic", pullReq{group: "Good", topic: "TBW102"}, 24, "not exist"},
		{"a registered expression that does not parse", pullReq{group: "Bad", version: 5}, 27, "The broker's consumer filter data is not exist!Your expression may be wrong!"},
		{"and why", pullReq{group: "Bad", version: 5}, 27, "at character 4"},
		{"an empty one", pullReq{group: "Empty"}, 27, "filter data is not exist"},
		{"another kind", pullReq{group: "Regex"}, 1, "does not support consumer to filter message by REGEX"},
		{"an expression in the pull that does not parse", pullReq{group: "G", sub: "n ==== 1", kind: "SQL92"}, 23, `"n ==== 1"`},
		{"one that is too long", pullReq{group: "G", sub: long, kind: "SQL92"}, 23, "32768"},
		{"a name that is none", pullReq{group: "G", sub: "a.b = 1", kind: "SQL92"}, 23, "at character 2"},
		{"none in the pull", pullReq{group: "G", flags: remoting.PullSubscription, kind: "SQL92"}, 23, "parse the consumer's subscription failed"},
	} {
		if tc.give.topic == "" {
			tc.give.topic = "T"
		}
		for range 2 { // an error is not forgotten either
			if r := c.pull(tc.give); r.Code != tc.code || !strings.Contains(r.Remark, tc.want) {
				t.Errorf("%s: code %d %.200q, want %d %q", tc.name, r.Code, r.Remark, tc.code, tc.want)
			}
		}
	}
	check := func(s remoting.SubscriptionData) *reply {
		body, err := json.Marshal(remoting.CheckClientConfig{ClientID: "c", Group: "G", SubscriptionData: &s})
		if err != nil {
			t.Fatal(err)
		}
		return c.call(remoting.ReqCheckClientConfig, body)
	}
	for expr, code := range map[string]int32{"a > 3 AND colour IN ('red','blue')": 0, "a >>> 3": 23, "": 23, long: 23} {
		if r := check(sqlSub("T", expr, 1)); r.Code != code || code != 0 && r.Remark == "" {
			t.Errorf("check of %.20q: %.200v, want code %d", expr, r, code)
		}
	}
	if r := check(remoting.SubscriptionData{Topic: "T", SubString: "a", ExpressionType: "REGEX"}); r.Code != 1 {
		t.Errorf("check of another kind: %v", r)
	}
}

func TestSQL92CanBeSwitchedOff(t *testing.T) {
	e := start(t, func(c *Config, _ *store.Options) { c.NoPropertyFilter = true })
	e.topic("T", 1)
	c := e.dial()
	c.beat("c1", "G", false, sqlSub("T", "n > 0", 5))
	const want = "The broker does not support consumer to filter message by SQL92"
	for name, r := range map[string]*reply{
		"heartbeat": c.pull(pullReq{group: "G", topic: "T"}),
		"pull":      c.pull(pullReq{group: "H", topic: "T", sub: "n > 0", kind: "SQL92"}),
		"check":     c.call(remoting.ReqCheckClientConfig, []byte(`{"clientId":"c","group":"G","subscriptionData":{"topic":"T","subString":"n > 0","expressionType":"SQL92"}}`)),
	} {
		if r.Code != 1 || r.Remark != want {
			t.Errorf("%s: %v", name, r)
		}
	}
}

// A pull is held while nothing is there that its filter selects, and answered by what is.
func TestHeldPullBySQL92(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	c, p := e.dial(), e.dial()
	c.beat("c1", "G", false, sqlSub("T", "n > 5", 1))
	o := c.put(remoting.ReqPullMessage, 0, nil, pullReq{group: "G", topic: "T", suspend: 30 * time.Second}.fields()...)
	c.flush()
	e.held(1)
	for n := range 8 {
		p.sent(message{topic: "T", body: fmt.Sprint(n), props: props("n", fmt.Sprint(n))})
	}
	r := c.await(o)
	if ms := records(t, r.body); r.Code != 0 || string(ms[0].Body()) != "6" {
		t.Errorf("answered by %v", r)
	}
}

// One message in a thousand: no pull comes to nothing for long, bits spare most reads, and nothing is missed.
func TestSelectiveFiltersDrain(t *testing.T) {
	const messages, each = 20_000, 1000
	e := start(t)
	e.topic("T", 4)
	c := e.dial()
	c.beat("c1", "G", false, sqlSub("T", "n = 7", 1))
	c.pull(pullReq{group: "G", topic: "T"}) // from here on the store answers it
	burst := func(from, n int) {
		var last int32
		for i := from; i < from+n; i++ {
			m := message{topic: "T", queue: 0, body: fmt.Sprint(i), v2: true, props: props("n", fmt.Sprint(i%each))}
			last = c.put(m.code(), 0, []byte(m.body), m.fields()...)
		}
		c.flush()
		for answered := false; !answered; {
			r := c.read(30 * time.Second)
			switch {
			case r == nil:
				t.Fatal("no answer")
			case !r.Response(): // a notice to the member
				continue
			case r.Code != 0:
				t.Fatal(r)
			}
			answered = r.Opaque == last
		}
	}
	for i := 0; i < messages; i += 500 {
		burst(i, 500)
	}
	before := e.b.Stats()
	got, pulls := c.pulled(pullReq{group: "G", topic: "T", version: 1})
	if len(got) != messages/each {
		t.Fatalf("%d of %d messages", len(got), messages/each)
	}
	for i, body := range got {
		if want := fmt.Sprint(i*each + 7); body != want {
			t.Errorf("message %d is %s, want %s", i, body, want)
		}
	}
	if most := messages/800 + messages/each + 2; pulls > most {
		t.Errorf("%d pulls, want at most %d", pulls, most)
	}
	if s := e.b.Stats(); s.SQLLooked-before.SQLLooked < messages {
		t.Errorf("looked at %d of %d", s.SQLLooked-before.SQLLooked, messages)
	}
}

// A group may subscribe one topic by SQL92 and another by tags: what it sends back comes again, filtered by neither.
func TestRetriesOfAnSQL92SubscriptionAreNotFiltered(t *testing.T) {
	e := start(t, quick)
	e.topic("Sql", 1)
	e.topic("Tags", 1)
	c := e.dial()
	c.beat("c1", "G", false, sqlSub("Sql", "n > 5", 1), sub("Tags", "X", 1), sub("%RETRY%G", "*", 1))
	c.sent(message{topic: "Sql", body: "sql", props: props("n", "6")})
	c.sent(message{topic: "Tags", body: "tags", props: props("TAGS", "X")})
	for _, topic := range []string{"Sql", "Tags"} {
		at := records(t, c.pull(pullReq{group: "G", topic: topic}).body)[0].PhysicalOffset()
		if r := c.back("G", at, 1); r.Code != 0 {
			t.Fatal(r)
		}
	}
	got := map[string]bool{}
	for offset := int64(0); offset < 2; {
		r := c.pull(pullReq{group: "G", topic: "%RETRY%G", offset: offset, suspend: 20 * time.Second})
		if r.Code != 0 {
			t.Fatal(r)
		}
		for _, v := range records(t, r.body) {
			got[string(v.Body())] = true
			offset++
		}
	}
	if !got["sql"] || !got["tags"] {
		t.Errorf("came again: %v", got)
	}
}
