package delivery

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fusionmq/fusionmq/store/state"
)

// fakeConn is a connection that keeps what it is pushed.
type fakeConn struct {
	got  []Delivery
	full bool
}

func (c *fakeConn) Room() bool      { return !c.full }
func (c *fakeConn) Push(d Delivery) { c.got = append(c.got, d) }
func (c *fakeConn) Kick()           {}

func owed(topic string, address int64, targets ...string) state.Owed {
	return state.Owed{Topic: topic, Address: address, Position: address, Size: 100, Targets: targets}
}

// attachedGroup is a group that is attached to topic T.
func attachedGroup(l *Ledger, cfg Config) *Group {
	g := NewGroup("g", cfg, l)
	s := g.Stream("T")
	s.Start(0, 0, 0)
	s.BeginAttach()
	s.EndAttach(0)
	return g
}

func newLedger() *Ledger { return NewLedger(250*time.Millisecond, func() {}) }

func ops(l *Ledger, now int64) []state.Op {
	os, _ := l.Ops(nil, now, false)
	return os
}

func TestLedgerWritesNeighboursAsOneRange(t *testing.T) {
	l := newLedger()
	var in []state.Owed
	for i := range int64(10) {
		in = append(in, owed("T", 10*(i+1), "a", "b"))
	}
	ms := l.Add(nil, in)
	settle := func(group string, share int32, which ...int) {
		var outs []outcome
		for _, i := range which {
			outs = append(outs, outcome{msg: ms[i], source: fromWindow, share: share})
		}
		l.settle(group, outs, nil)
	}
	settle("a", 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	if got := ops(l, 1000); got != nil {
		t.Errorf("with half of the targets open: %+v", got)
	}
	settle("b", 1, 0, 1, 3, 2, 7, 8) // in any order
	want := []state.Op{{Kind: state.OpDelete, Topic: "T", First: 10, Last: 40}, {Kind: state.OpDelete, Topic: "T", First: 80, Last: 90}}
	if got := ops(l, 1001); !cmp.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	// What waits for b longer than the linger time is written for a alone; 80 and 90 have left, so the rest are neighbours.
	want = []state.Op{{Kind: state.OpRetire, Topic: "T", Group: "a", First: 50, Last: 100}}
	if got := ops(l, 1300); !cmp.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	settle("b", 1, 4, 5, 6, 9)
	want = []state.Op{{Kind: state.OpDelete, Topic: "T", First: 50, Last: 100}}
	if got := ops(l, 1301); !cmp.Equal(got, want) || l.Open() != 0 {
		t.Errorf("got %+v, want %+v; %d open", got, want, l.Open())
	}
}

func TestLedgerWritesAFailureBeforeTheRangeThatCoversIt(t *testing.T) {
	l := newLedger()
	ms := l.Add(nil, []state.Owed{owed("T", 10, "a", "b"), owed("T", 20, "a")})
	l.settle("a", []outcome{{msg: ms[0], source: fromWindow, failed: true, attempt: 1, due: 99}, {msg: ms[1], source: fromWindow}}, nil)
	l.settle("b", []outcome{{msg: ms[0], source: fromWindow, share: 1}}, []cursorAt{{"T", 7}})
	want := []state.Op{
		{Kind: state.OpUpdate, Topic: "T", First: 10, Failed: []state.Failed{{Group: "a", Attempt: 1, Due: 99}}},
		{Kind: state.OpCursor, Topic: "T", Group: "b", First: 7},
		{Kind: state.OpDelete, Topic: "T", First: 10, Last: 20},
	}
	if got := ops(l, 1); !cmp.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestDetachWritesWhatTheGroupHasAcknowledged(t *testing.T) {
	l := newLedger()
	ms := l.Add(nil, []state.Owed{owed("T", 10, "a", "b"), owed("T", 20, "a", "b"), owed("T", 30, "a", "b")})
	l.settle("a", []outcome{{msg: ms[0], source: fromWindow}, {msg: ms[1], source: fromWindow}}, nil)
	got := l.DetachOps(nil, "T", "a", 5)
	want := []state.Op{{Kind: state.OpRetire, Topic: "T", Group: "a", First: 10, Last: 20}}
	if !cmp.Equal(got, want) {
		t.Errorf("before the detach: %+v, want %+v", got, want)
	}
	l.settle("a", []outcome{{msg: ms[2], source: fromWindow}}, nil) // while the record is written
	if got := l.Detached("T", "a", 40); !slices.Equal(got, []int64{30}) {
		t.Errorf("acknowledged meanwhile: %v, want 30", got)
	}
	want = []state.Op{{Kind: state.OpRetire, Topic: "T", Group: "a", First: 30}}
	if got := ops(l, 6); !cmp.Equal(got, want) {
		t.Errorf("after the detach: %+v, want %+v", got, want)
	}
}

func TestMachineWithFewestUnansweredIsChosenAtRandom(t *testing.T) { // rulings A46
	rng := rand.New(rand.NewPCG(1, 1))
	l := newLedger()
	g := attachedGroup(l, Config{Rand: rng.IntN})
	conns := make([]*fakeConn, 4)
	ms := make([]*Member, 4)
	for i := range conns {
		conns[i] = &fakeConn{}
		ms[i] = g.Join(conns[i], 0, false)
	}
	conns[3].full = true
	first := map[int]int{}
	address := int64(0)
	for range 300 {
		var in []state.Owed
		for range 3 {
			address += 10
			in = append(in, owed("T", address, "g"))
		}
		for _, m := range l.Add(nil, in) {
			g.Stream("T").Owe(m, 0)
		}
		g.Pump(1)
		for i, c := range conns[:3] {
			if len(c.got) != 1 {
				t.Fatalf("machine %d got %d of 3", i, len(c.got))
			}
			if c.got[0].Message.Address == address-20 {
				first[i]++
			}
			if !g.Answer(ms[i], c.got[0].Handle, Acked, 0, 1) {
				t.Fatal("answer ignored")
			}
			c.got = nil
		}
	}
	if len(conns[3].got) != 0 {
		t.Error("a machine whose socket is full was chosen")
	}
	for i := range 3 {
		if first[i] < 60 {
			t.Errorf("machine %d came first %d times of 300: %v", i, first[i], first)
		}
	}
}

func TestCreditIsALevelAndHeldPastTheTimeout(t *testing.T) {
	l := newLedger()
	g := attachedGroup(l, Config{})
	c := &fakeConn{}
	m := g.Join(c, 0, true)
	for _, msg := range l.Add(nil, []state.Owed{owed("T", 10, "g"), owed("T", 20, "g"), owed("T", 30, "g")}) {
		g.Stream("T").Owe(msg, 0)
	}
	g.Pump(1)
	if len(c.got) != 0 {
		t.Fatalf("%d deliveries without credit", len(c.got))
	}
	g.Credit(m, 2, 0)
	g.Pump(1)
	if len(c.got) != 2 {
		t.Fatalf("%d deliveries with credit for 2", len(c.got))
	}
	g.Expire(6000)
	g.Pump(6000)
	if len(c.got) != 2 {
		t.Fatal("a timeout gave credit back")
	}
	g.Answer(m, c.got[0].Handle, Failed, 0, 6001)
	g.Pump(6001)
	if len(c.got) != 3 {
		t.Fatal("an answer did not give its place back")
	}
	g.Credit(m, 10, 150)
	if len(c.got) != 3 {
		t.Fatal("more bytes than the credit")
	}
}

func TestAnswersThatSayNothingNewAreIgnored(t *testing.T) { // faults PSH-04, PSH-11; rulings A11
	l := newLedger()
	g := attachedGroup(l, Config{})
	c := &fakeConn{}
	m := g.Join(c, 3, false)
	msg := l.Add(nil, []state.Owed{owed("T", 10, "g")})[0]
	g.Stream("T").Owe(msg, 0)
	g.Pump(0)
	d := c.got[0]
	msg.SetID(42)
	if MemberIndex(d.Handle) != 3 {
		t.Errorf("handle %x of member 3", d.Handle)
	}
	if g.Answer(m, d.Handle, Acked, 41, 1) {
		t.Error("an answer for another message was taken")
	}
	if g.Answer(m, d.Handle+1, Acked, 0, 1) || g.Answer(m, d.Handle^1<<15, Acked, 0, 1) {
		t.Error("a handle that was never given was taken")
	}
	g.Expire(5000)
	g.Pump(5000)
	if g.Answer(m, d.Handle, Failed, 0, 5200) {
		t.Error("a failure after the verdict was taken")
	}
	if g.Answer(m, d.Handle, Acked, 0, 5500) || g.Answer(m, d.Handle, Acked, 0, 5600) {
		t.Error("a second answer was taken")
	}
	if n := g.Unanswered(); n != 0 {
		t.Errorf("%d unanswered", n)
	}
	if got := g.Counts(); got.TimedOut != 1 || got.Failed != 1 {
		t.Errorf("counts %+v", got)
	}
}

func TestBackoffLadder(t *testing.T) {
	for attempts, want := range map[int32]time.Duration{-1: 10 * time.Second, 1: 10 * time.Second, 2: 30 * time.Second, 3: time.Minute,
		12: 10 * time.Minute, 15: time.Hour, 16: 2 * time.Hour, 17: 2 * time.Hour, 1 << 30: 2 * time.Hour} {
		if got := Backoff(attempts); got != want {
			t.Errorf("Backoff(%d) = %v, want %v", attempts, got, want)
		}
	}
}

// The order of members under random changes, against a sort.
func TestMembersStayOrdered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := members{rand: func(n int) int { return 0 }}
		all := make([]*Member, rapid.IntRange(1, 6).Draw(t, "members"))
		for i := range all {
			all[i] = &Member{Conn: &fakeConn{}}
			ms.n++
			ms.link(all[i])
		}
		for range 50 {
			m := all[rapid.IntRange(0, len(all)-1).Draw(t, "member")]
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				ms.add(m, 1)
			case 2:
				if m.load > 0 {
					ms.add(m, -1)
				}
			case 3:
				if m.bucket != nil {
					ms.unlink(m)
				} else {
					ms.link(m)
				}
			}
			n, last := 0, -1
			for b := ms.first; b != nil; b = b.next {
				if b.load <= last || len(b.members) == 0 {
					t.Fatalf("bucket with load %d and %d members after load %d", b.load, len(b.members), last)
				}
				last = b.load
				for i, m := range b.members {
					if m.bucket != b || m.pos != i || m.load != b.load {
						t.Fatalf("member with load %d at %d in bucket %d", m.load, i, b.load)
					}
					n++
				}
			}
			linked := 0
			for _, m := range all {
				if m.bucket != nil {
					linked++
				}
			}
			if n != linked {
				t.Fatalf("%d members in buckets, want %d", n, linked)
			}
		}
	})
}

func TestHandlesAreNotRepeatedSoon(t *testing.T) {
	m := &Member{}
	seen := map[uint32]bool{}
	for round := range 20 {
		var ss []*slot
		for range 200 {
			s := m.slots.take(m)
			s.state = slotPosted
			if h := s.handle(); seen[h] {
				t.Fatalf("handle %x again in round %d", h, round)
			} else {
				seen[h] = true
			}
			ss = append(ss, s)
		}
		for _, s := range ss {
			m.slots.put(s)
		}
		m.slots.trim()
		if len(m.slots.blocks) > 64/slotBlock {
			t.Fatal("an empty table stayed large")
		}
	}
}

// BenchmarkPostAndAnswer is what one delivery costs the machines: owed, posted, acknowledged, written as a range.
func BenchmarkPostAndAnswer(b *testing.B) {
	for _, members := range []int{1, 16} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			l := newLedger()
			g := attachedGroup(l, Config{})
			conns, ms := make([]*fakeConn, members), make([]*Member, members)
			for i := range conns {
				conns[i] = &fakeConn{}
				ms[i] = g.Join(conns[i], 0, false)
			}
			const batch = 64
			in := make([]state.Owed, batch)
			targets := []string{"g"}
			var msgs []*Message
			var os []state.Op
			address := int64(0)
			b.ReportAllocs()
			for n := 0; n < b.N; n += batch {
				for i := range in {
					address += 100
					in[i] = state.Owed{Topic: "T", Address: address, Position: address, Size: 100, Targets: targets}
				}
				msgs = l.Add(msgs[:0], in)
				for _, m := range msgs {
					g.Stream("T").Owe(m, 0)
				}
				g.Pump(int64(n))
				for i, c := range conns {
					for _, d := range c.got {
						g.Answer(ms[i], d.Handle, Acked, 0, int64(n))
					}
					c.got = c.got[:0]
				}
				g.Pump(int64(n))
				os, _ = l.Ops(os[:0], int64(n), false)
			}
		})
	}
}
