package crash

import (
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/integration/internal/proc"
	"github.com/fusionmq/fusionmq/integration/internal/push"
	"github.com/fusionmq/fusionmq/integration/internal/raw"
)

const quiet = 60 * time.Second

// load is a data directory with one topic, the server that has it now, and what is sent to it and comes back.
type load struct {
	*ledger
	t            *testing.T
	dir          string
	topic, group string
	queues       int
	s            *proc.Server // the last one started; killed at the end of the test
	made         bool         // the topic is
}

// newLoad makes a load without a server.
func newLoad(t *testing.T, seed uint64, topic string, queues int) *load {
	t.Helper()
	x := &load{ledger: newLedger(seed), t: t, dir: t.TempDir(), topic: topic, group: "S-" + topic, queues: queues}
	t.Cleanup(func() {
		if x.s == nil {
			return
		}
		x.s.Kill()
		if t.Failed() {
			t.Logf("output of the server:\n%s", x.s.Output())
		}
	})
	return x
}

// serve starts a server on the directory, for the first time with the topic.
func (x *load) serve() {
	x.t.Helper()
	s, err := proc.Start(programs.Server, x.dir)
	if err != nil {
		x.t.Fatalf("seed %d: start: %v", x.seed, err)
	}
	x.s = s
	if x.made {
		return
	}
	c, err := raw.Dial(s.Addr["broker"])
	if err != nil {
		x.t.Fatal(err)
	}
	defer c.Close()
	if err := raw.CreateTopic(c, x.topic, x.queues); err != nil {
		x.t.Fatal(err)
	}
	x.made = true
}

// subscribe begins to push to the group.
func (x *load) subscribe() *push.Subscriber {
	x.t.Helper()
	sub, err := push.Subscribe(x.s.Addr["notify"], x.group, x.topic, x.handle)
	if err != nil {
		x.t.Fatalf("seed %d: subscribe: %v", x.seed, err)
	}
	return sub
}

// kept checks that the log has what was acknowledged, where its answer said.
func (x *load) kept() {
	x.t.Helper()
	x.verify(x.t, x.s.Addr["broker"], x.topic, x.queues)
}

// settled waits until everything acknowledged has reached the group, which is subscribed, and checks that nothing ever came that must not.
func (x *load) settled() {
	x.t.Helper()
	x.allPushed(x.t, quiet)
	x.noneWrong(x.t)
	sent, acked, pushed, again := x.counts()
	x.t.Logf("seed %d: %d sent, %d acknowledged, %d reached the push group, %d repeats", x.seed, sent, acked, pushed, again)
}
