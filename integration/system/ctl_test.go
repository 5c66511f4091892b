package system

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
	"github.com/fusionmq/fusionmq/integration/internal/raw"
	"github.com/fusionmq/fusionmq/integration/internal/rmq"
)

// ctl runs fusionctl against s and returns its exit code and streams.
func ctl(t *testing.T, s *proc.Server, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(programs.Ctl, append([]string{"--addr", s.Addr["http"]}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			t.Fatal(err)
		}
		code = exit.ExitCode()
	}
	return code, out.String(), errs.String()
}

func TestFusionctlMakesATopicThatRocketMQClientsUse(t *testing.T) {
	s := server(t)
	topic := rmq.Unique("Ctl")
	if code, out, errs := ctl(t, s, "topic", "create", topic, "--queues", "3"); code != 0 || !strings.Contains(out, topic) {
		t.Fatalf("topic create: exit %d, %q %q", code, out, errs)
	}
	for _, form := range []string{"table", "json"} {
		code, out, errs := ctl(t, s, "topic", "list", "-o", form)
		if code != 0 || !strings.Contains(out, topic) {
			t.Errorf("topic list -o %s: exit %d, %q, no %s in\n%s", form, code, errs, topic, out)
		}
	}
	send := newProducer(t, s)
	used := map[int]bool{}
	for range 30 {
		used[send(message(topic, "", "x")).MessageQueue.QueueId] = true
	}
	if len(used) != 3 || !used[0] || !used[2] {
		t.Errorf("a producer uses the queues %v, want 0, 1, 2", used)
	}
	var l rmq.Log
	group := rmq.Unique("ctl")
	consume(t, s, group, topic, "*", &l)
	if err := l.Wait(1, within); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := ctl(t, s, "group", "list", "-o", "json"); code != 0 || !strings.Contains(out, group) || !json.Valid([]byte(out)) {
		t.Errorf("group list: exit %d, %q, no %s in\n%s", code, errs, group, out)
	}
}

func TestFusionctlStatusIsWhatTheBrokerSays(t *testing.T) {
	s := server(t)
	code, out, errs := ctl(t, s, "status", "-o", "json")
	var status struct {
		PID       int               `json:"pid"`
		Ready     bool              `json:"ready"`
		Listeners map[string]string `json:"listeners"`
	}
	if err := json.Unmarshal([]byte(out), &status); code != 0 || err != nil {
		t.Fatalf("exit %d %v %q\n%s", code, err, errs, out)
	}
	if status.PID != s.Pid() || !status.Ready || status.Listeners["broker"] != s.Addr["broker"] {
		t.Errorf("status %+v, want process %d with %v", status, s.Pid(), s.Addr)
	}
	if code, out, _ := ctl(t, s, "status"); code != 0 || !strings.Contains(out, s.Addr["broker"]) {
		t.Errorf("status as a table: exit %d\n%s", code, out)
	}
}

func TestFusionctlExitCodes(t *testing.T) {
	s := server(t)
	topic := rmq.Unique("Codes")
	createTopic(t, s, topic, 1)
	for _, tc := range []struct {
		name string
		args []string
		want int
		says string
	}{
		{"success", []string{"status"}, 0, ""},
		{"an illegal topic name", []string{"topic", "create", "a b"}, 1, "a b"},
		{"no command of that name", []string{"topic", "crate", "x"}, 2, "crate"},
		{"an unknown flag", []string{"status", "--jsn"}, 2, "jsn"},
		{"a name that is missing", []string{"topic", "create"}, 2, "NAME"},
		{"an unknown form", []string{"status", "-o", "xml"}, 2, "xml"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, out, errs := ctl(t, s, tc.args...)
			if code != tc.want || !strings.Contains(out+errs, tc.says) {
				t.Errorf("exit %d, want %d and %q in:\n%s%s", code, tc.want, tc.says, out, errs)
			}
		})
	}
	t.Run("no broker there", func(t *testing.T) {
		gone := &proc.Server{Addr: map[string]string{"http": "127.0.0.1:1"}}
		if code, _, errs := ctl(t, gone, "status"); code != 1 || !strings.Contains(errs, "127.0.0.1:1") {
			t.Errorf("exit %d, want 1 and the address in %q", code, errs)
		}
	})
}

// What fusionctl creates is there for RocketMQ's own request codes, and the other way round.
func TestTopicsOfBothPlanesAreTheSame(t *testing.T) {
	s := server(t)
	topic := rmq.Unique("Plane")
	createTopic(t, s, topic, 5)
	code, out, errs := ctl(t, s, "topic", "show", topic, "-o", "json")
	if code != 0 || raw.Int([]byte(out), "readQueues") != 5 {
		t.Errorf("exit %d %q\n%s", code, errs, out)
	}
}

// Law 4: what an operator sets counts for the next request, for durability, permission and repeated ids, and is kept over a kill
// (fault SND-17).
func TestLaw4FusionctlChangesATopicInUse(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	topic := rmq.Unique("Set")
	createTopic(t, s, topic, 4)
	set := func(args ...string) string {
		t.Helper()
		code, out, errs := ctl(t, s, append([]string{"topic", "set", topic}, args...)...)
		if code != 0 {
			t.Fatalf("topic set %q: exit %d, %q", args, code, errs)
		}
		return out
	}
	send := func() (raw.Sent, error) {
		t.Helper()
		sender, err := raw.NewSender(s.Addr["broker"], "p")
		if err != nil {
			t.Fatal(err)
		}
		defer sender.C.Close()
		type answer struct {
			sent raw.Sent
			err  error
		}
		done := make(chan answer, 1)
		sender.Go(topic, 1, []byte("x"), func(sent raw.Sent, err error) { done <- answer{sent, err} })
		a := <-done
		return a.sent, a.err
	}
	synced := func() (synced, end int64) {
		t.Helper()
		code, out, errs := ctl(t, s, "status", "-o", "json")
		if code != 0 {
			t.Fatalf("status: exit %d, %q", code, errs)
		}
		return raw.Int([]byte(out), "syncedPosition"), raw.Int([]byte(out), "maxPosition")
	}
	if _, err := send(); err != nil {
		t.Fatal(err)
	}
	if out := set("--durability", "sync", "--until-consumed", "36h", "--idempotent"); !strings.Contains(out, "async") || !strings.Contains(out, "sync") || !strings.Contains(out, "36h") {
		t.Errorf("it shows\n%s", out)
	}
	if _, err := send(); err != nil {
		t.Fatal(err)
	}
	if at, end := synced(); at < end {
		t.Errorf("after a send to a topic that is sync now %d of %d bytes are on the disk", at, end)
	}
	set("--perm", "r")
	var refused *raw.CodeError
	if _, err := send(); !errors.As(err, &refused) || refused.Code != 16 {
		t.Errorf("a send without permission: %v", err)
	}
	if n, err := raw.Pull(dial(t, s, "broker"), "g", topic, 1, 0, 0, func(raw.Message) {}); err != nil || n != 2 {
		t.Errorf("a pull of a topic that may only be read: next offset %d, %v", n, err)
	}
	set("--perm", "rw", "--write-queues", "1")
	if n, err := raw.Pull(dial(t, s, "broker"), "g", topic, 1, 0, 0, func(raw.Message) {}); err != nil || n != 2 {
		t.Errorf("a pull of a queue that producers are not told of any more: next offset %d, %v", n, err)
	}

	s.Kill()
	s = start(t, dir)
	if code, out, errs := ctl(t, s, "topic", "show", topic); code != 0 || !strings.Contains(out, "4 read, 1 write queues, rw, sync, idempotent, kept until consumed for 36h") {
		t.Errorf("after a kill: exit %d, %q\n%s", code, errs, out)
	}
	if code, out, errs := ctl(t, s, "retention", "clean", "-o", "json"); code != 0 || raw.Int([]byte(out), "deletedFiles") != 0 {
		t.Errorf("retention clean: exit %d, %q\n%s", code, errs, out)
	}
}

// Members of a group of the published client that subscribe differently are shown by who says what.
func TestFusionctlShowsConflictingSubscriptions(t *testing.T) {
	s := server(t)
	topic, group := rmq.Unique("Torn"), rmq.Unique("g")
	createTopic(t, s, topic, 2)
	var l rmq.Log
	consume(t, s, group, topic, "a", &l)
	consume(t, s, group, topic, "a || b", &l)
	_, out, _ := ctl(t, s, "group", "show", group)
	for end := time.Now().Add(within); !strings.Contains(out, "subscribe differently"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("group show says\n%s", out)
		}
		_, out, _ = ctl(t, s, "group", "show", group)
	}
	for _, want := range []string{topic + ": a\n", topic + ": a || b\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if _, body := get(t, s, "/metrics"); !regexp.MustCompile(`(?m)^fusionmq_broker_conflicting_groups(\{.*\})? [1-9]`).MatchString(body) {
		t.Error("no group is in conflict by the metrics")
	}
}
