package delivery

import (
	"testing"

	"github.com/fusionmq/fusionmq/store/state"
)

// While a detach is being written the store may show its retries before the group has said which of them are posted.
func TestRetryLineSeenDuringADetachPostsNothingTwice(t *testing.T) {
	l := newLedger()
	g := attachedGroup(l, Config{})
	var c fakeConn
	g.Join(&c, 0, false)
	s := g.Stream("T")
	m := l.Add(nil, []state.Owed{owed("T", 10, g.Name)})[0]
	s.Owe(m, 0)
	g.Pump(1)
	line := []Retry{{Retry: state.Retry{Topic: "T", Address: 10}, Message: m}}
	was := s.BeginDetach()
	g.Retry(line) // the loader was faster than the detach's writer
	g.Pump(2)
	s.EndDetach(20, was, 3)
	g.Retry(line)
	g.Pump(3)
	if len(c.got) != 1 {
		t.Fatalf("posted %d times, want once", len(c.got))
	}
	if !g.Retrying(10) || g.RetriesWaiting() != 0 {
		t.Errorf("retrying %v, %d retries wait; want it known and posted", g.Retrying(10), g.RetriesWaiting())
	}
}
