package state

import (
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// goldenWaiting has one of each kind of operation of what waits, and of each kind of view.
var goldenWaiting = []Op{
	{Kind: OpPublish, Topic: "Trade", First: 1000, View: &View{Kind: ViewCommit, Topic: "Trade", Queue: 3, Offset: 77, Back: 130, Position: 1000, Size: 300, TagsCode: -5}},
	{Kind: OpPublish, Topic: "Trade", Group: "pay", First: 2000, View: &View{Kind: ViewRetry, Topic: "%RETRY%pay", Offset: 1 << 40, Back: 170, Position: 90_000_000_000, Size: 300, TagsCode: 2598919, Reconsume: 2, Level: 4}},
	{Kind: OpPublish, Topic: "Trade", Group: "pay", First: 2000, View: &View{Kind: ViewDead, Topic: "%DLQ%pay", Back: 230, Position: 1500, Size: 300, Reconsume: 16}},
	{Kind: OpPublish, Topic: "Trade", Group: "pay", First: 2000, View: &View{Kind: ViewRevive, Topic: "%RETRY%pay_Trade", Back: 330, Position: 1500, Size: 300, Reconsume: 2, PopTime: 1_800_000_000_000}},
	{Kind: OpRollback, Topic: "Trade", First: 1000, Last: 300_000_000},
	{Kind: OpCheck, Topic: "Trade", First: 1200, Attempt: 3, Due: 1_800_000_000_000},
	{Kind: OpCancel, Topic: "Trade", First: 1200, Last: 1200},
	{Kind: OpReturn, Topic: "Trade", Group: "pay", First: 2000, Position: 1000, Size: 300, Attempt: 2, Due: 1_800_000_000_000, Level: 4},
	{Kind: OpDefer, Topic: "Trade", First: 1200, Due: 1_800_000_000_000},
	{Kind: OpAdopt},
	{Kind: OpHold, Topic: "Trade", First: 1200, Position: 1200, Size: 300, Attempt: 2, Due: 1_800_000_000_000, Level: int32(HoldTimer)},
	{Kind: OpPopped, Topic: "Trade", Group: "pay", First: 2000, Position: 1000, Size: 300, Attempt: 2, Due: 1_800_000_000_000, Level: 60_000},
}

// goldenWaitingBody is goldenWaiting as version 1 writes it. It is on disks: a change here is a change of the format.
const goldenWaitingBody = "01" + // version
	"05" + "055472616465" + "03706179" + "0a255245545259257061790825444c5125706179" + "10255245545259257061795f5472616465" + // Trade pay %RETRY%pay %DLQ%pay %RETRY%pay_Trade
	"0c" + // 12 operations
	"0981" + "4d0000000000" + "820000" + "00" + "e807" + "03" + "00" + "ac02" + "09" + // commit
	"0904" + "000000000001" + "aa0000" + "0001" + "d00f" + "02" + "02" + "04" + "00" + "e0f0d7c69e05" + "ac02" + "8ea0bd02" + // retry
	"0905" + "000000000000" + "e60000" + "0001" + "d00f" + "03" + "10" + "00" + "00" + "e707" + "ac02" + "00" + // dead
	"0907" + "000000000000" + "4a0100" + "0001" + "d00f" + "04" + "02" + "00" + "00" + "e707" + "ac02" + "00" + "80a0f1c2b134" + // revive
	"0a" + "00" + "e807" + "98be868f01" + // rollback
	"0b" + "00" + "b009" + "03" + "80a0f1c2b134" + // check
	"0c" + "00" + "b009" + "00" + // cancel
	"0d" + "0001" + "d00f" + "cf0f" + "ac02" + "02" + "80a0f1c2b134" + "04" + // return
	"0e" + "00" + "b009" + "80a0f1c2b134" + // defer
	"0f0000" + // adopt
	"10" + "00" + "b009" + "00" + "ac02" + "02" + "80a0f1c2b134" + "03" + // hold
	"11" + "0001" + "d00f" + "cf0f" + "ac02" + "02" + "80a0f1c2b134" + "e0d403" // popped

func TestGoldenWaitingOperations(t *testing.T) {
	b, places, err := AppendViews(nil, goldenWaiting, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(b); got != goldenWaitingBody {
		t.Errorf("encoded\n%s, want\n%s", got, goldenWaitingBody)
	}
	ops, err := DecodeOps(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := gocmp.Diff(goldenWaiting, ops); d != "" {
		t.Errorf("decoded (-want +got):\n%s", d)
	}
	for i := range b {
		if _, err := DecodeOps(b[:i]); err == nil {
			t.Errorf("cut off at byte %d, but no error", i)
		}
	}
	// What has a fixed place is where the log and a reader of one entry look for it.
	for i, at := range places {
		v := goldenWaiting[i].View
		if back, ok := ViewBack(b[at:]); !ok || back != int(v.Back) || offsetAt(b[at+OffsetAt(b[at:]):]) != v.Offset {
			t.Errorf("view %d: back %d, %v, offset %d", i, back, ok, offsetAt(b[at+OffsetAt(b[at:]):]))
		}
		one, err := DecodeView(b, at)
		if d := gocmp.Diff(goldenWaiting[i], one); d != "" || err != nil {
			t.Errorf("view %d alone: %v (-want +got):\n%s", i, err, d)
		}
		SetBack(b[at:], 5+i)
	}
	if ops, err = DecodeOps(b); err != nil || ops[1].View.Back != 6 {
		t.Errorf("after SetBack: %v", err)
	}
	SetBack(b[places[1]:], 5)
	if _, err = DecodeOps(b); err == nil {
		t.Error("two views at one address, but no error")
	}
}

// goldenLone are publishes that have a record each, as they are on disks.
var goldenLone = []struct {
	name, body string
	op         Op
}{
	{"commit", "b14d0000000000" + "b110" + "03" + "ac02" + "7b8c1e00" + "5472616465",
		Op{Kind: OpPublish, Topic: "Trade", First: 2097, View: &View{Kind: ViewCommit, Topic: "Trade", Queue: 3, Offset: 77, Back: 88, Position: 2097, Size: 300, TagsCode: 2002043}}},
	{"timer without a tag, hosts of IPv6", "c3000000000080" + "80c8afa025" + "00" + "ac02" + "54",
		Op{Kind: OpPublish, Topic: "T", First: 10_000_000_000, View: &View{Kind: ViewTimer, Topic: "T", Offset: 1 << 47, Back: 112, Position: 10_000_000_000, Size: 300}}},
	{"not in its place yet", "82010000000000" + "00" + "00" + "00" + "54",
		Op{Kind: OpPublish, Topic: "T", View: &View{Kind: ViewDelay, Topic: "T", Offset: 1}}},
}

func TestGoldenLonePublishes(t *testing.T) {
	for _, tc := range goldenLone {
		b, places, err := AppendViews([]byte("x"), []Op{tc.op}, nil)
		if err != nil || hex.EncodeToString(b[1:]) != tc.body || !reflect.DeepEqual(places, []int{1}) {
			t.Errorf("%s: encoded %x with places %v, %v; want %s", tc.name, b[1:], places, err, tc.body)
			continue
		}
		b = b[1:]
		ops, err := DecodeOps(b)
		if d := gocmp.Diff([]Op{tc.op}, ops); d != "" || err != nil {
			t.Errorf("%s: decoded: %v (-want +got):\n%s", tc.name, err, d)
		}
		if one, err := DecodeView(b, 0); err != nil || !reflect.DeepEqual(one, tc.op) {
			t.Errorf("%s: alone %+v, %v", tc.name, one, err)
		}
		if _, err := DecodeView(b, 1); err == nil {
			t.Errorf("%s: a view begins at byte 1", tc.name)
		}
		for i := range len(b) - len(tc.op.Topic) + 1 { // what is cut off of the topic is another topic: the record says where its body ends
			if _, err := DecodeOps(b[:i]); err == nil {
				t.Errorf("%s: cut off at byte %d, but no error", tc.name, i)
			}
		}
		for _, back := range []int{88, 112} {
			if !SetBack(b, back) {
				t.Errorf("%s: back %d is refused", tc.name, back)
			}
			if got, ok := ViewBack(b); !ok || got != back {
				t.Errorf("%s: back %d, %v, want %d", tc.name, got, ok, back)
			}
		}
		if SetBack(b, 100) {
			t.Errorf("%s: a view lies 100 bytes behind the start of its record", tc.name)
		}
	}
}

// Whatever a record could not say in the short form is written in the other.
func TestLonePublishThatIsNotShort(t *testing.T) {
	v := View{Kind: ViewCommit, Topic: "T", Offset: 5, Back: 88, Position: 7, Size: 300, TagsCode: 1}
	for name, change := range map[string]func(*Op){
		"another place of the body": func(op *Op) { op.View.Position++ },
		"another topic":             func(op *Op) { op.View.Topic = "U" },
		"of a group":                func(op *Op) { op.Group, op.View.Kind = "g", ViewDead },
		"attempts":                  func(op *Op) { op.View.Reconsume = 1 },
		"behind other operations":   func(op *Op) { op.View.Back = 200 },
	} {
		w := v
		op := Op{Kind: OpPublish, Topic: "T", First: 7, View: &w}
		change(&op)
		b, err := AppendOps(nil, []Op{op})
		if err != nil || isLone(b) {
			t.Errorf("%s: %x, %v", name, b, err)
		}
		if ops, err := DecodeOps(b); err != nil || !reflect.DeepEqual(ops, []Op{op}) {
			t.Errorf("%s: came back as %+v, %v", name, ops, err)
		}
	}
}

func FuzzDecodeView(f *testing.F) {
	golden, err := hex.DecodeString(goldenWaitingBody)
	if err != nil {
		f.Fatal(err)
	}
	for _, g := range goldenLone {
		lone, _ := hex.DecodeString(g.body)
		f.Add(lone, 0)
		f.Add(lone[:len(lone)-2], 0)
	}
	f.Add([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0)
	f.Add(golden, 34)
	f.Add(golden[:50], 34)
	f.Add([]byte{}, 0)
	f.Add([]byte{opsVersion, 0xff, 0xff, 0xff, 0xff, 0x7f}, 3)
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		op, err := DecodeView(b, at)
		if err != nil {
			var e *FormatError
			if !errors.As(err, &e) {
				t.Fatalf("error is %#v", err)
			}
			return
		}
		if again, err := DecodeView(b, at); err != nil || !reflect.DeepEqual(op, again) {
			t.Fatalf("%+v, then %+v, %v", op, again, err)
		}
		enc, places, err := AppendViews(nil, []Op{op}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := DecodeView(enc, places[0]); err != nil || !reflect.DeepEqual(op, back) {
			t.Fatalf("%+v came back as %+v, %v", op, back, err)
		}
	})
}

// waitModel is what waits, as a map.
type waitModel struct {
	halves, delays, returns map[waitKey]waitValue
	aside                   map[waitKey]bool
	outcomes                map[int64]Outcome
}

type waitKey struct {
	topic, group string
	address      int64
}

type waitValue struct {
	due     int64
	attempt int32
	kind    ViewKind
}

func (m *waitModel) end(address int64, o Outcome) bool {
	for k := range m.halves {
		if k.address == address {
			delete(m.halves, k)
			delete(m.aside, k)
			m.outcomes[address] = o
			return true
		}
	}
	return false
}

func (m *waitModel) apply(op Op) {
	k := waitKey{op.Topic, op.Group, op.First}
	undelay := func() {
		for d := range m.delays {
			if d.address == op.First {
				delete(m.delays, d)
			}
		}
	}
	switch op.Kind {
	case OpPublish:
		switch op.View.Kind {
		case ViewCommit:
			if !m.end(op.First, Committed) {
				undelay()
			}
		case ViewDelay, ViewTimer:
			undelay()
		case ViewAside:
			for h := range m.halves {
				if h.address == op.First && !m.aside[h] {
					m.aside[h] = true
				}
			}
		case ViewRetry, ViewDead, ViewRevive:
			for r := range m.returns {
				if r.group == op.Group && r.address == op.First {
					delete(m.returns, r)
				}
			}
		}
	case OpRollback:
		for h := range m.halves {
			if h.topic == op.Topic && op.First <= h.address && h.address <= op.Last {
				m.end(h.address, RolledBack)
			}
		}
	case OpCheck:
		for h, v := range m.halves {
			if h.address == op.First && !m.aside[h] {
				v.due, v.attempt = op.Due, op.Attempt
				m.halves[h] = v
			}
		}
	case OpCancel:
		for d := range m.delays {
			if d.topic == op.Topic && op.First <= d.address && d.address <= op.Last {
				delete(m.delays, d)
			}
		}
	case OpReturn, OpPopped:
		for r := range m.returns {
			if r.group == op.Group && r.address == op.First {
				delete(m.returns, r)
			}
		}
		kind := ViewRetry
		if op.Kind == OpPopped {
			kind = ViewRevive
		}
		m.returns[k] = waitValue{due: op.Due, attempt: op.Attempt, kind: kind}
	case OpDefer:
		for h := range m.halves {
			if h.address == op.First {
				topic := h.topic
				m.end(op.First, Committed)
				m.delays[waitKey{topic, "", op.First}] = waitValue{due: op.Due, kind: ViewCommit}
			}
		}
	}
}

func (m *waitModel) compare(t *rapid.T, x *Machine) {
	s := x.Stats()
	if s.Halves != len(m.halves)-len(m.aside) || s.Aside != len(m.aside) || s.Delays != len(m.delays) || s.Returns != len(m.returns) || s.Outcomes != len(m.outcomes) {
		t.Fatalf("stats are %+v, the model has %d halves, %d aside, %d delays, %d returns, %d outcomes",
			s, len(m.halves), len(m.aside), len(m.delays), len(m.returns), len(m.outcomes))
	}
	page := make([]Due, rapid.IntRange(1, 5).Draw(t, "page"))
	for _, c := range []struct {
		what  string
		model map[waitKey]waitValue
		next  func(Due, []Due) int
	}{{"delays", m.delays, x.Delays}, {"returns", m.returns, x.Returns}} {
		seen := map[waitKey]bool{}
		for last := (Due{}); ; {
			n := c.next(last, page)
			if n == 0 {
				break
			}
			for _, d := range page[:n] {
				k := waitKey{d.Topic, d.Group, d.Address}
				v, ok := c.model[k]
				if !ok || seen[k] || v.due != d.Due || v.attempt != d.Attempt || d.Due < last.Due || d.Due == last.Due && d.Address < last.Address {
					t.Fatalf("%s: %+v behind %+v, the model has %+v, %v", c.what, d, last, v, ok)
				}
				if d.Kind != v.kind {
					t.Fatalf("%s: %+v, want kind %d", c.what, d, v.kind)
				}
				seen[k], last = true, d
			}
		}
		if len(seen) != len(c.model) {
			t.Fatalf("%d %s, want %d", len(seen), c.what, len(c.model))
		}
	}
	for _, aside := range []bool{false, true} {
		last, n := HalfState{}, 0
		for hs := make([]HalfState, 3); ; {
			k := x.Halves(aside, last, hs)
			if k == 0 {
				break
			}
			for _, h := range hs[:k] {
				key := waitKey{h.Topic, "", h.Address}
				v, ok := m.halves[key]
				if !ok || m.aside[key] != aside || !aside && (h.Due != v.due || h.Checks != v.attempt) || h.Due < last.Due {
					t.Fatalf("half %+v, the model has %+v, %v", h, v, ok)
				}
				last = h
				n++
			}
		}
		if want := len(m.aside); !aside && n != len(m.halves)-want || aside && n != want {
			t.Fatalf("%d halves with aside %v", n, aside)
		}
	}
	for a, o := range m.outcomes {
		if h := x.HalfAt(a); h.Outcome != o {
			t.Fatalf("outcome of %d is %+v, want %d", a, h, o)
		}
	}
	// What is owed by name, in pages, is all of it once.
	owed := map[OwedKind]int{}
	for place, es := (OwedPlace{}), make([]OwedEntry, 2); ; {
		n, next := x.Owed(math.MaxInt64, place, es)
		for _, e := range es[:n] {
			owed[e.Kind]++
		}
		if place = next; n < len(es) {
			break
		}
	}
	want := map[OwedKind]int{OwedHalf: s.Halves, OwedAside: s.Aside, OwedDelay: s.Delays, OwedReturn: s.Returns}
	for k, n := range want {
		if owed[k] != n {
			t.Fatalf("owed are %v, want %v", owed, want)
		}
	}
}

// TestWaitingAgainstAMap drives halves, delays and what pull groups send back beside a plain map, with snapshots.
func TestWaitingAgainstAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { waitAgainstAMap(t, func() Table { return new(memTable) }) })
}

func waitAgainstAMap(t *rapid.T, table func() Table) {
	x := NewMachineOn(nil, table())
	m := &waitModel{map[waitKey]waitValue{}, map[waitKey]waitValue{}, map[waitKey]waitValue{}, map[waitKey]bool{}, map[int64]Outcome{}}
	at := int64(0)
	topic := rapid.SampledFrom([]string{"T0", "T1"})
	address := func() int64 { return rapid.Int64Range(0, at).Draw(t, "address") }
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		at++
		name, due := topic.Draw(t, "topic"), rapid.Int64Range(0, 20).Draw(t, "due")
		switch kind := rapid.IntRange(0, 11).Draw(t, "kind"); kind {
		case 0, 1:
			x.Half(&Head{Topic: name, Address: at, Position: at, Size: 1}, due)
			m.halves[waitKey{name, "", at}] = waitValue{due: due}
		case 2, 3:
			x.Delay(&Head{Topic: name, Address: at, Position: at, Size: 1}, due, ViewTimer)
			m.delays[waitKey{name, "", at}] = waitValue{due: due, kind: ViewTimer}
		case 4:
			b, err := LoadOn(x.Save(nil), nil, table())
			if err != nil {
				t.Fatal(err)
			}
			x = b
		default:
			first := address()
			op := Op{Kind: OpKind(kind - 5 + int(OpPublish)), Topic: name, First: first}
			if kind == 11 {
				op.Kind = OpPopped
			}
			switch op.Kind {
			case OpPublish:
				op.View = &View{Kind: ViewKind(rapid.IntRange(1, int(lastView)).Draw(t, "view")), Topic: "V"}
				if op.View.grouped() {
					op.Group = rapid.SampledFrom([]string{"G0", "G1"}).Draw(t, "group")
				}
			case OpRollback, OpCancel:
				op.Last = first + rapid.Int64Range(0, 3).Draw(t, "more")
			case OpCheck:
				op.Due, op.Attempt = due, rapid.Int32Range(0, 3).Draw(t, "checks")
			case OpReturn, OpPopped:
				op.Group = rapid.SampledFrom([]string{"G0", "G1"}).Draw(t, "group")
				op.Position, op.Size, op.Due, op.Attempt = first, 1, due, rapid.Int32Range(0, 3).Draw(t, "attempt")
			case OpDefer:
				op.Due = due
			default:
				continue
			}
			b, err := AppendOps(nil, []Op{op})
			if err != nil {
				t.Fatal(err)
			}
			ops, err := DecodeOps(b)
			if err != nil {
				t.Fatal(err)
			}
			x.Apply(at, ops)
			m.apply(op)
		}
		if rapid.IntRange(0, 9).Draw(t, "compare") == 0 {
			m.compare(t, x)
		}
	}
	m.compare(t, x)
}

func TestOutcomesAreForgottenByStoreTime(t *testing.T) {
	m := NewMachine(nil)
	for i := int64(1); i <= 200; i++ {
		m.SetTime(i * 1000)
		m.Half(&Head{Topic: "T", Address: i * 2, Position: i * 2}, 0)
		m.Apply(i*2+1, []Op{{Kind: OpRollback, Topic: "T", First: i * 2, Last: i * 2}})
	}
	m.SetTime(100*1000 + OutcomeMemory)
	m.Apply(1000, nil)
	if n := m.Stats().Outcomes; n != 100 {
		t.Errorf("%d outcomes remembered, want 100", n)
	}
	if m.HalfAt(2).Outcome != Unknown || m.HalfAt(202).Outcome != RolledBack {
		t.Errorf("oldest %+v, newest %+v", m.HalfAt(2), m.HalfAt(202))
	}
	again, err := Load(m.Save(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []*Machine{m, again} {
		x.SetTime(400*1000 + OutcomeMemory)
		x.Apply(1001, nil)
		if n := x.Stats().Outcomes; n != 0 {
			t.Errorf("%d outcomes remembered, want none", n)
		}
	}
}
