package delivery

import (
	"testing"

	"github.com/fusionmq/fusionmq/store/state"
)

// due makes a retry of topic T that is due.
func due(address int64, attempt int32) []Retry {
	var b Batch
	r := state.Retry{Topic: "T", Address: address, Attempt: attempt, Due: 1}
	return []Retry{{Retry: r, Message: b.New("T", 0, 10, address, address, 0, 0)}}
}

// The line is looked at for a message when nothing else is known of it than what the store has applied.
func TestAppliedSaysWhetherTheLineIsToBeLookedAt(t *testing.T) {
	var c fakeConn
	var m *Member
	for _, tc := range []struct {
		name  string
		do    func(g *Group)
		looks []bool // at each operation that is applied
	}{
		{"nothing is known", func(g *Group) {}, []bool{true}},
		{"it is posted", func(g *Group) { g.Retry(due(10, 1)); g.Pump(2) }, []bool{false, false}},
		{"it has failed", func(g *Group) {
			g.Retry(due(10, 1))
			g.Pump(2)
			g.Answer(m, c.got[0].Handle, Failed, 0, 3)
		}, []bool{true}},
		{"it is taken", func(g *Group) {
			g.Retry(due(10, 1))
			g.Pump(2)
			g.Answer(m, c.got[0].Handle, Acked, 0, 3)
		}, []bool{false, true}}, // the second is of nobody here
		{"it has failed and was taken late", func(g *Group) {
			g.Retry(due(10, 1))
			g.Pump(2)
			g.Expire(5002)
			g.Answer(m, c.got[0].Handle, Acked, 0, 5003)
		}, []bool{false, false}},
		{"somebody reads the line", func(g *Group) {
			g.Retry(due(10, 1))
			g.Pump(2)
			g.Answer(m, c.got[0].Handle, Failed, 0, 3)
			g.BeginLoad()
		}, []bool{false}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewGroup("g", Config{}, newLedger())
			c = fakeConn{}
			m = g.Join(&c, 0, false)
			tc.do(g)
			for i, want := range tc.looks {
				if got := g.Applied(10); got != want {
					t.Errorf("operation %d: look %v, want %v", i+1, got, want)
				}
			}
		})
	}
}

// What is known to be over while it is posted is over when its connection breaks, too.
func TestARetryThatIsOverDoesNotWaitAgainWhenItsMemberGoes(t *testing.T) {
	g := NewGroup("g", Config{}, newLedger())
	var a, b fakeConn
	m := g.Join(&a, 0, false)
	g.Retry(due(10, 1))
	g.Pump(2)
	g.Join(&b, 0, false)
	g.Taken([]int64{10})
	g.Leave(m, 3)
	g.Pump(3)
	if front, others := g.RetriesWaiting(); len(b.got) != 0 || front+others != 0 {
		t.Errorf("%d deliveries to the other member, %d and %d retries wait", len(b.got), front, others)
	}
}
