package cli

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// execute runs a command line against a broker that gives fixed answers by path.
func execute(t *testing.T, answers map[string]string, args ...string) (code int, out, errOut string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := answers[r.URL.Path]
		if !ok {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
	}))
	defer s.Close()
	var o, e bytes.Buffer
	code = Run(t.Context(), args, IO{Out: &o, Err: &e, Getenv: func(name string) string {
		if name == "FUSIONMQ_ADDR" {
			return s.URL
		}
		return ""
	}})
	return code, o.String(), e.String()
}

const twoGroups = `{"groups":[
 {"name":"billing","mode":"pull","lag":1234567,"members":[{"id":"10.0.0.1@7","address":"10.0.0.1:5","language":"GO","version":"401"}],
  "topics":[{"topic":"a","lag":1234567},{"topic":"b"},{"topic":"c"},{"topic":"d"},{"topic":"e"}]},
 {"name":"evil\u001b[31m","mode":"push","lag":3,"members":[],"topics":[{"topic":"a","lag":3,"attached":false}]}]}`

func TestGroupOutput(t *testing.T) {
	for _, tc := range []struct {
		name string
		give []string
		want string
	}{
		{"list", []string{"group", "list"}, `GROUP      MODE  MEMBERS        LAG  TOPICS
billing    pull        1  1 234 567  a, b, c, and 2 more
evil?[31m  push        0          3  a
`},
		{"pull group", []string{"group", "show", "billing"}, `billing: pull, 1 member, lag 1 234 567
TOPIC        LAG  STATE
a      1 234 567
b              0
MEMBER      ADDRESS     LANGUAGE  VERSION
10.0.0.1@7  10.0.0.1:5  GO        401
`},
		{"pull group in conflict", []string{"group", "show", "torn"}, `torn: pull, 2 members, lag 0
Members subscribe differently: each overwrites what the others want, and messages are passed over.
MEMBER  ADDRESS     LANGUAGE  VERSION  SUBSCRIPTION
m1      10.0.0.1:5  GO        401      a: A
m2      10.0.0.2:5  JAVA      479      a: A || B
`},
		{"push group", []string{"group", "show", "mail"}, `mail: push, 2 members, lag 9
2 without an answer yet, 7 to be tried again
TOPIC  LAG  STATE
a        0  attached
b        5  behind
MEMBER  ADDRESS     LANGUAGE  VERSION
m1      10.0.0.1:6
m2      10.0.0.2:6
`},
		{"expired", []string{"group", "expired", "--limit", "7"}, `TIME                  GROUP    MODE  TOPIC  QUEUE  FIRST   LAST  MESSAGES  REASON
2026-11-30T08:00:00Z  billing  pull  a          3     10  1 009     1 000  disk
`},
		{"transactions", []string{"transaction", "list", "--aside"}, `TRANSACTION  TOPIC   GROUP  STORED                CHECKS  NEXT CHECK  ID
1234         orders  pg     2026-11-30T08:00:00Z      15  aside       U1
5678                        2026-11-30T08:00:00Z       0  aside       cannot be read: gone
2 of 7 are shown; --limit shows more
`},
		{"commit", []string{"transaction", "commit", "1234"}, "1234: commit\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, out, errOut := execute(t, map[string]string{
				"/api/v1/transactions":      `{"total":7,"transactions":[{"address":1234,"topic":"orders","group":"pg","id":"U1","checks":15,"aside":true,"stored":"2026-11-30T08:00:00Z","due":"2026-11-30T09:00:00Z"},{"address":5678,"aside":true,"stored":"2026-11-30T08:00:00Z","problem":"gone"}]}`,
				"/api/v1/transactions/1234": `{"address":1234,"outcome":"commit"}`,
				"/api/v1/groups":            twoGroups,
				"/api/v1/expiries":          `{"expiries":[{"group":"billing","topic":"a","queue":3,"first":10,"last":1009,"count":1000,"reason":"disk","face":"pull","time":"2026-11-30T08:00:00Z"}]}`,
				"/api/v1/groups/billing":    `{"name":"billing","mode":"pull","lag":1234567,"members":[{"id":"10.0.0.1@7","address":"10.0.0.1:5","language":"GO","version":"401"}],"topics":[{"topic":"a","lag":1234567},{"topic":"b"}]}`,
				"/api/v1/groups/torn":       `{"name":"torn","mode":"pull","lag":0,"conflict":true,"members":[{"id":"m1","address":"10.0.0.1:5","language":"GO","version":"401","subscription":"a: A"},{"id":"m2","address":"10.0.0.2:5","language":"JAVA","version":"479","subscription":"a: A || B"}],"topics":[]}`,
				"/api/v1/groups/mail":       `{"name":"mail","mode":"push","lag":9,"retries":7,"unanswered":2,"members":[{"id":"m1","address":"10.0.0.1:6"},{"id":"m2","address":"10.0.0.2:6"}],"topics":[{"topic":"a","attached":true},{"topic":"b","lag":5,"attached":false}]}`,
			}, tc.give...)
			if code != 0 || errOut != "" {
				t.Errorf("exit code %d, errors %q", code, errOut)
			}
			if out != tc.want {
				t.Errorf("%q printed\n%s\nwant\n%s", tc.give, out, tc.want)
			}
		})
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1 000", -1234567: "-1 234 567"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 5 << 30: "5.0 GiB", 1 << 60: "1048576.0 TiB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
}
