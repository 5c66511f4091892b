package delivery

import (
	"testing"

	"github.com/fusionmq/fusionmq/store/state"
)

// taker is a connection that keeps what it is given.
type taker struct{ got []Delivery }

func (c *taker) Room() bool      { return true }
func (c *taker) Push(d Delivery) { c.got = append(c.got, d) }
func (c *taker) Kick()           {}

// TestNeighboursGoToOneMember: what waits is dealt out in runs of equal length, and every member gets its own in the order of the log.
// A single message goes where the load is least.
func TestNeighboursGoToOneMember(t *testing.T) {
	const members, messages = 4, 64
	g := NewGroup("S", Config{}, NewLedger(0, func() {}))
	s := g.Stream("T")
	s.Bindings([]state.Binding{{Kind: state.BindFanout}})
	s.Start(0, 0, 0)
	conns := make([]*taker, members)
	joined := make([]*Member, members)
	for i := range conns {
		conns[i] = &taker{}
		joined[i] = g.Join(conns[i], 0, false)
	}
	var b Batch
	var ms []*Message
	for i := range int64(messages) {
		ms = append(ms, b.New("T", 0, 1000, i, i, 0, 0))
	}
	s.Read(ms, messages)
	g.Pump(1)
	for i, c := range conns {
		if len(c.got) != messages/members {
			t.Errorf("member %d got %d messages, want %d", i, len(c.got), messages/members)
		}
		for j := 1; j < len(c.got); j++ {
			if c.got[j].Message.Address != c.got[j-1].Message.Address+1 {
				t.Errorf("member %d got %d behind %d", i, c.got[j].Message.Address, c.got[j-1].Message.Address)
			}
		}
	}

	g.Answer(joined[2], conns[2].got[0].Handle, Acked, 0, 2)
	s.Read([]*Message{b.New("T", 0, 1000, messages, messages, 0, 0)}, messages+1)
	g.Pump(2)
	if c := conns[2]; c.got[len(c.got)-1].Message.Address != messages {
		t.Error("a single message did not go where the load is least")
	}

	for i, c := range conns { // at rest nothing stays large
		for _, d := range c.got {
			g.Answer(joined[i], d.Handle, Acked, 0, 3)
		}
	}
	g.Pump(3)
	g.Trim()
	for i, m := range joined {
		if m.load != 0 || len(m.slots.blocks) > slotKeep {
			t.Errorf("member %d at rest: load %d, %d blocks", i, m.load, len(m.slots.blocks))
		}
	}
	if n := len(s.rest.first.buf); n > fifoKeep {
		t.Errorf("an empty queue at rest keeps %d places", n)
	}
}
