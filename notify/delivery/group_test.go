package delivery

import (
	"testing"

	"github.com/fusionmq/fusionmq/store/state"
)

// What a connection asks for while it is being closed must not bring its member back.
func TestMemberThatHasLeftGetsNothing(t *testing.T) {
	for name, late := range map[string]func(*Group, *Member){
		"credit": func(g *Group, m *Member) { g.Credit(m, 10, 0) },
		"limit":  func(g *Group, m *Member) { g.Limit(m, false, 1) },
		"wake":   func(g *Group, m *Member) { g.Wake(m) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			g := attachedGroup(l, Config{Rand: func(n int) int { return n - 1 }}) // who came last
			var gone, here fakeConn
			m := g.Join(&gone, 0, true)
			g.Join(&here, 0, false)
			g.Leave(m, 1)
			late(g, m)
			for i := range int64(4) {
				g.Stream("T").Owe(l.Add(nil, []state.Owed{owed("T", 10*(i+1), "g")})[0], 0)
			}
			g.Pump(2)
			if len(gone.got) != 0 || len(here.got) != 4 {
				t.Errorf("%d messages to the member that has left, %d to the other", len(gone.got), len(here.got))
			}
		})
	}
}

// A delivery that is out of time holds its place until the answer with credit, for a while without. A connection that changes
// from one to the other keeps none for ever and gives none up.
func TestPlacesOfLateAnswersFollowTheKindOfConnection(t *testing.T) {
	for _, limited := range []bool{true, false} {
		l := newLedger()
		g := attachedGroup(l, Config{})
		var c fakeConn
		m := g.Join(&c, 0, limited)
		g.Credit(m, 1, 0)
		g.Limit(m, limited, 0)
		g.Stream("T").Owe(l.Add(nil, []state.Owed{owed("T", 10, "g")})[0], 0)
		g.Pump(0)
		g.Expire(5000)
		g.Limit(m, !limited, 6000)
		g.Expire(6000 + g.cfg.LateKeep.Milliseconds())
		want := 0
		if !limited {
			want = 1
		}
		if m.load != want || m.slots.used != want {
			t.Errorf("with credit %v, then %v: load %d, %d places in use, want %d", limited, !limited, m.load, m.slots.used, want)
		}
	}
}
