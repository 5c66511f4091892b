package notify

import (
	"bytes"
	"testing"

	"github.com/fusionmq/fusionmq/notify/wire"
	"github.com/fusionmq/fusionmq/store/meta"
)

// TestLaw5RepeatedSendIsDeliveredOnce is ruling A22: the id alone decides, the first content stays, the answer carries the same server
// data, and a restart or a kill forgets nothing.
func TestLaw5RepeatedSendIsDeliveredOnce(t *testing.T) {
	w := newWorld(t, 31, nil)
	a := w.join("S-a", fanoutOn("T"))
	w.until("attach", func() bool { return w.mode("S-a", "T") == "attached" })
	ids := w.send("T", "x", "y")
	first := w.addr[ids[1]]
	repeat := func(when string) {
		t.Helper()
		header := func(topic string) *wire.MessageHeader {
			return &wire.MessageHeader{
				ID: append(append(make([]byte, 0, 16), 0, 0, 0, 0, 0, 0, 0, byte(ids[1])), 0, 0, 0, 0, 0, 0, 0, 7), Topic: []byte(topic), Type: []byte("z"),
				Group: []byte("P-test"), Committed: true, BornTime: uint64(w.clock.Load()), Priority: 4,
			}
		}
		ms := []Incoming{{Header: header("T"), Body: []byte("other content")}, {Header: header("Elsewhere"), Body: []byte("other topic")}}
		rs := make([]Sent, len(ms))
		w.pub.Send(ms, rs)
		for i, r := range rs {
			if r.Err != nil || r.Address != first || !bytes.Equal(r.ServerData(nil), (&Sent{Address: first}).ServerData(nil)) || r.Durability < meta.Async {
				t.Errorf("%s, message %d: %+v, want the answer of the first at %d", when, i, r, first)
			}
		}
	}
	repeat("at once")
	w.until("deliveries", func() bool { return w.waiting(a) == 2 })
	w.ackAll()
	w.settle()
	repeat("after the acknowledgements")
	w.restart()
	repeat("after a restart")
	w.kill(true)
	repeat("after a kill")
	a = w.join("S-a")
	w.until("attach", func() bool { return w.mode("S-a", "T") == "attached" })
	w.send("T", "last")
	w.until("the last message", func() bool { return w.waiting(a) > 0 })
	if got := w.ids(a); len(got) != 1 {
		t.Errorf("delivered again: %v", got)
	}
	w.ackAll()
	if n := w.st.OnceStats(); n.Repeats != 2 {
		t.Errorf("%+v since the kill, want 2 repeats", n)
	}
	w.check()
}
