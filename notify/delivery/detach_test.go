package delivery

import (
	"testing"

	"github.com/google/go-cmp/cmp"

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
	if front, others := g.RetriesWaiting(); !g.Retrying(10) || front+others != 0 {
		t.Errorf("retrying %v, %d and %d retries wait; want it known and posted", g.Retrying(10), front, others)
	}
}

// What a group is owed while it is detached before its cursor has come to the attach record waits behind the cursor, like what it was
// owed before: a member that comes meanwhile does not get the newest first.
func TestLaw5DetachBeforeTheCursorIsThereKeepsTheOrder(t *testing.T) {
	for _, fails := range []bool{false, true} {
		l := newLedger()
		g := NewGroup("g", Config{}, l)
		s := g.Stream("T")
		s.Start(0, 0, 0)
		s.BeginAttach()
		s.EndAttach(10)
		msgs := l.Add(nil, []state.Owed{owed("T", 20, "g"), owed("T", 30, "g")})
		s.Owe(msgs[0], 0)
		was := s.BeginDetach()
		s.Owe(msgs[1], 0)
		var c fakeConn
		g.Join(&c, 0, false)
		g.Pump(1)
		if len(c.got) != 0 {
			t.Fatalf("posted the message at %d first", c.got[0].Message.Address)
		}
		if !fails {
			s.EndDetach(40, was, 2)
			l.Detached("T", "g", 40)
			g.Pump(2)
			if len(c.got) != 0 || s.Owed() != 0 || l.Open() != 2 {
				t.Errorf("after the detach %d are posted, %d owed", len(c.got), s.Owed())
			}
			if ops(l, 2); l.Open() != 0 {
				t.Errorf("%d messages are open, the retry line has them", l.Open())
			}
			continue
		}
		s.EndDetach(-1, was, 2)
		s.Read(nil, 10)
		g.Pump(2)
		if len(c.got) != 2 || c.got[0].Message.Address != 20 {
			t.Errorf("after a detach that was not written %d are posted", len(c.got))
		}
	}
}

// The store refuses an attach while its cursor is below what an earlier attach has owed. So where the cursor stands when
// the last member goes has to reach the log before the next attach.
func TestCursorThatStepsOverAnEarlierAttachIsWrittenWhenTheLastMemberGoes(t *testing.T) {
	l := newLedger()
	g := NewGroup("g", Config{}, l)
	var c fakeConn
	m := g.Join(&c, 0, false)
	s := g.Stream("T")
	s.Start(0, 100, 200)
	var b Batch
	s.Read([]*Message{b.New("T", 0, 10, 40, 40, 0, 0)}, 100)
	s.Read([]*Message{b.New("T", 0, 10, 250, 250, 0, 0)}, 300)
	g.Pump(1)
	g.Answer(m, c.got[0].Handle, Acked, 0, 2)
	g.Pump(2)
	ops(l, 2)
	g.Leave(m, 3)
	s.Abandon(3)
	g.Settle(3)
	want := []state.Op{{Kind: state.OpCursor, Topic: "T", Group: "g", First: 250}}
	if got := ops(l, 3); !s.CanAttach() || !cmp.Equal(got, want) {
		t.Errorf("written %+v, want %+v; can attach: %v", got, want, s.CanAttach())
	}
}

// A refused attach leaves the stream where the store says that it is, so that the next one is not refused for the same reason.
func TestRefusedAttachTellsTheCursorAgainAndStepsOverWhatIsARetry(t *testing.T) {
	for _, tc := range []struct {
		name     string
		position int64 // of the stream
		store    state.GroupPosition
		want     []state.Op
		from     int64 // where reading goes on
		stop     int64
	}{
		{"the store has not heard of the cursor", 300, state.GroupPosition{Cursor: 40, SkipFrom: 100, SkipTo: 200}, []state.Op{cursorTo(300)}, 300, Never},
		{"the stream has not heard of an earlier attach", 50, state.GroupPosition{Cursor: 50, SkipFrom: 100, SkipTo: 200}, nil, 50, 100},
		{"and stands in it", 150, state.GroupPosition{Cursor: 50, SkipFrom: 100, SkipTo: 200}, []state.Op{cursorTo(200)}, 200, Never},
		{"another attach", 50, state.GroupPosition{Cursor: 50, Attached: true, Attach: 60}, nil, 50, Never},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLedger()
			g := NewGroup("g", Config{}, l)
			s := g.Stream("T")
			s.Start(tc.position, 0, 0)
			s.BeginAttach()
			s.Owe(l.Add(nil, []state.Owed{owed("T", 400, "g")})[0], 0)
			s.Refused(tc.store)
			g.Settle(1)
			if got := ops(l, 1); !cmp.Equal(got, tc.want) {
				t.Errorf("written %+v, want %+v", got, tc.want)
			}
			if from, stop := s.ReadTo(); from != tc.from || stop != tc.stop {
				t.Errorf("reading goes on at %d up to %d, want %d, %d", from, stop, tc.from, tc.stop)
			}
			if s.Mode() != Detached || s.Owed() != 0 || l.Open() != 0 {
				t.Errorf("mode %v, %d owed, %d open", s.Mode(), s.Owed(), l.Open())
			}
		})
	}
}
