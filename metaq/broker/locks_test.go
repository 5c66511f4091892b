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

// lockCall asks for the locks of queues of T and gives those that were granted.
func (c *client) lockCall(code int32, group, id string, queues ...int32) (granted []int32) {
	c.Helper()
	in := remoting.LockBatchRequest{ClientID: id, ConsumerGroup: group}
	for _, q := range queues {
		in.MQSet = append(in.MQSet, remoting.MessageQueue{BrokerName: "broker-a", QueueID: q, Topic: "T"})
	}
	body, err := json.Marshal(in)
	if err != nil {
		c.Fatal(err)
	}
	r := c.ok(code, body)
	if code == remoting.ReqUnlockBatchMQ {
		if len(r.body) > 0 {
			c.Errorf("unlock answered %q", r.body)
		}
		return nil
	}
	if !strings.HasPrefix(string(r.body), `{"lockOKMQSet":[`) {
		c.Errorf("lock answered %q", r.body)
	}
	var out remoting.LockBatchResult
	if err := json.Unmarshal(r.body, &out); err != nil {
		c.Fatal(err)
	}
	for _, q := range out.LockOKMQSet {
		if q.Topic != "T" || q.BrokerName != "broker-a" {
			c.Errorf("granted %+v", q)
		}
		granted = append(granted, q.QueueID)
	}
	return granted
}

func (c *client) lock(group, id string, queues ...int32) []int32 {
	c.Helper()
	return c.lockCall(remoting.ReqLockBatchMQ, group, id, queues...)
}

func (c *client) unlock(group, id string, queues ...int32) {
	c.Helper()
	c.lockCall(remoting.ReqUnlockBatchMQ, group, id, queues...)
}

func TestQueueLocks(t *testing.T) {
	e := start(t)
	e.topic("T", 4)
	a, b := e.dial(), e.dial()
	for _, step := range []struct {
		name string
		got  []int32
		want []int32
	}{
		{"a takes all", a.lock("G", "a", 0, 1, 2, 3), []int32{0, 1, 2, 3}},
		{"b gets none", b.lock("G", "b", 0, 1, 2, 3), nil},
		{"a renews", a.lock("G", "a", 0, 1), []int32{0, 1}},
		{"another group has its own", b.lock("H", "b", 0, 1), []int32{0, 1}},
		{"queues that are not there", b.lock("G", "b", -1, 4, 1<<30), nil},
	} {
		if !slices.Equal(step.got, step.want) {
			t.Errorf("%s: granted %v, want %v", step.name, step.got, step.want)
		}
	}
	b.unlock("G", "b", 0, 1, 2, 3) // not the owner
	if got := b.lock("G", "b", 0); len(got) != 0 {
		t.Errorf("after somebody else's unlock: granted %v", got)
	}
	a.unlock("G", "a", 2, 3)
	if got := b.lock("G", "b", 0, 1, 2, 3); !slices.Equal(got, []int32{2, 3}) {
		t.Errorf("after the owner's unlock: granted %v, want 2 and 3", got)
	}
	if n := e.b.Stats().LockedQueues; n != 6 {
		t.Errorf("%d queues are locked, want 6", n)
	}
	// A connection that closes leaves the locks: its client may still be at work.
	a.conn.Close()
	e.until("the connection is gone", func() bool { return e.b.Stats().Connections == 2 })
	if got := b.lock("G", "b", 0, 1); len(got) != 0 {
		t.Errorf("after the owner's connection closed: granted %v", got)
	}
	for body, want := range map[string]string{
		``: "empty", `{"consumerGroup":"G"}`: "clientId", `{"clientId":"a"}`: "consumerGroup", `{"clientId":"a","consumerGroup":"a b"}`: "a b",
		`{"clientId":"` + strings.Repeat("x", 2000) + `","consumerGroup":"G"}`: "2000 bytes",
	} {
		if r := b.call(remoting.ReqLockBatchMQ, []byte(body)); r.Code != 29 || !strings.Contains(r.Remark, want) {
			t.Errorf("%.40s: %v", body, r)
		}
	}
}

func TestLockOfAGroupThatIsNotThere(t *testing.T) {
	e := start(t, func(c *Config, _ *store.Options) { c.NoAutoCreateGroups = true })
	e.topic("T", 1)
	if r := e.dial().call(remoting.ReqLockBatchMQ, []byte(`{"clientId":"a","consumerGroup":"G","mqSet":[]}`)); r.Code != 26 {
		t.Errorf("%v", r)
	}
}

// A lock is its owner's for 60 s from the last time that it was asked for, and anybody's afterwards.
func TestLocksHaveALife(t *testing.T) {
	var ls locks
	now := time.UnixMilli(1_700_000_000_000)
	q := lockedQueue{"T", 1}
	take := func(client string) bool { return ls.take(now, "G", q, client) }
	pass := func(d time.Duration) { now = now.Add(d) }
	if !take("a") || take("b") {
		t.Fatal("the first one does not have it")
	}
	for range 10 { // 70 s of work and more
		if pass(20 * time.Second); !take("a") || take("b") {
			t.Fatal("a lock that is renewed is lost")
		}
	}
	if pass(lockLife); take("b") || !ls.any(now, "G") {
		t.Error("taken within its life")
	}
	pass(time.Millisecond)
	if ls.any(now, "G") {
		t.Error("it lives on")
	}
	if !take("b") || take("a") || ls.len() != 1 {
		t.Error("not taken over after its life")
	}
	pass(lockLife + time.Millisecond)
	if !take("b") {
		t.Error("its owner cannot renew one that is over")
	}
	pass(lockLife + time.Millisecond)
	if ls.expire(now); ls.len() != 0 || len(ls.groups) != 0 {
		t.Errorf("%d are left after their life", ls.len())
	}
}

func TestLaw7LocksAreBounded(t *testing.T) {
	var ls locks
	now := time.Now()
	for i := range int32(maxLocks) {
		if !ls.take(now, fmt.Sprint("G", i%3), lockedQueue{"T", i}, "a") {
			t.Fatalf("lock %d is not given", i)
		}
	}
	if ls.take(now, "G", lockedQueue{"T", maxLocks}, "a") {
		t.Error("one more is given")
	}
	ls.give("G0", lockedQueue{"T", 0}, "a")
	if !ls.take(now, "G", lockedQueue{"T", maxLocks}, "a") {
		t.Error("the place of one that was given back is not")
	}
}

// Who consumes in order gives a message up by sending it to the retry topic: it is a dead letter, whatever its attempts say.
func TestOrderedGroupsSendDeadLetters(t *testing.T) {
	e := start(t)
	e.topic("T", 1)
	c := e.dial()
	c.lock("G", "a", 0)
	c.sent(message{topic: "%RETRY%G", body: "x", props: props("RETRY_TOPIC", "T"), extra: []string{"reconsumeTimes", "1", "maxReconsumeTimes", "16"}})
	if v := c.next("G", "%DLQ%G", 0); string(v.Body()) != "x" {
		t.Errorf("dead letter %q", v.Body())
	}
	c.unlock("G", "a", 0)
	c.sent(message{topic: "%RETRY%G", body: "y", extra: []string{"reconsumeTimes", "1", "maxReconsumeTimes", "16"}})
	if v := c.next("G", "%RETRY%G", 0); string(v.Body()) != "y" {
		t.Errorf("retry %q", v.Body())
	}
}
