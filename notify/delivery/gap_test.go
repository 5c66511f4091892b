package delivery

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store/state"
)

// caughtUp is a group whose one member was posted messages 10, 20 and so on through its cursor.
func caughtUp(t *testing.T, l *Ledger, messages int64) (*Group, *Member, *fakeConn) {
	t.Helper()
	g := NewGroup("g", Config{}, l)
	c := &fakeConn{}
	m := g.Join(c, 0, false)
	s := g.Stream("T")
	s.Start(0, 0, 0)
	var b Batch
	var ms []*Message
	for i := range messages {
		ms = append(ms, b.New("T", 0, 10, 10*(i+1), 10*(i+1), 0, 0))
	}
	s.Read(ms, 10*messages+1)
	g.Pump(0)
	if len(c.got) != int(messages) {
		t.Fatalf("%d deliveries, want %d", len(c.got), messages)
	}
	return g, m, c
}

func retryNow(address, now int64) state.Op {
	return state.Op{Kind: state.OpUpdate, Topic: "T", First: address, Failed: []state.Failed{{Group: "g", Due: now}}}
}

func cursorTo(address int64) state.Op {
	return state.Op{Kind: state.OpCursor, Topic: "T", Group: "g", First: address}
}

// An acknowledgement that the cursor cannot say is written after the linger time, however often the gap below it moves: what is
// not answered below it is a retry then. What was acknowledged later waits for its own time.
func TestAcknowledgementsAboveAGapAreWrittenAfterTheLingerTime(t *testing.T) {
	l := newLedger()
	g, m, c := caughtUp(t, l, 10)
	want := func(now int64, deadline int64, ops ...state.Op) {
		t.Helper()
		g.Expire(now)
		g.Pump(now)
		got, _ := l.Ops(nil, now, false)
		if !cmp.Equal(got, ops) {
			t.Errorf("at %d: %+v\nwant %+v", now, got, ops)
		}
		if got := g.Deadline(); got != deadline {
			t.Errorf("at %d: the deadline is %d, want %d", now, got, deadline)
		}
	}
	answer := func(address, now int64) {
		t.Helper()
		if !g.Answer(m, c.got[address/10-1].Handle, Acked, 0, now) {
			t.Fatalf("answer to %d ignored", address)
		}
	}
	answer(50, 1000)
	want(1000, 1250)
	answer(10, 1100)
	want(1100, 1250, cursorTo(11))
	answer(20, 1200)
	answer(80, 1200)
	want(1200, 1250, cursorTo(21))
	want(1249, 1250)
	want(1250, 1450, retryNow(30, 1250), retryNow(40, 1250), cursorTo(51))
	answer(70, 1300)
	answer(60, 1400) // nothing is left of the gap
	want(1450, 5000, cursorTo(81))
	if n := g.Stream("T").Behind(); n != 0 {
		t.Errorf("%d acknowledgements behind", n)
	}
	answer(30, 1500)
	want(1500, 5000, state.Op{Kind: state.OpRetire, Topic: "T", Group: "g", First: 30})
}

// The memory of a gap is bounded by what is posted, however much is acknowledged while there is one.
func TestLaw7GapsKeepNoMoreThanWhatIsPosted(t *testing.T) {
	const window, rounds = 100, 500
	l := newLedger()
	g, m, c := caughtUp(t, l, window)
	s := g.Stream("T")
	var b Batch
	next := int64(window)
	most := 0
	for range rounds {
		// All but the oldest are acknowledged, then that one, so that there is always a gap.
		got := c.got
		c.got = nil
		for i := len(got) - 1; i >= 0; i-- {
			g.Answer(m, got[i].Handle, Acked, 0, 1)
			most = max(most, s.above.len())
		}
		var ms []*Message
		for range window {
			next++
			ms = append(ms, b.New("T", 0, 10, 10*next, 10*next, 0, 0))
		}
		s.Read(ms, 10*next+1)
		g.Pump(1)
	}
	if most < window-1 || most > 2*window {
		t.Errorf("%d acknowledgements above a gap are kept, with %d messages posted", most, window)
	}
}
