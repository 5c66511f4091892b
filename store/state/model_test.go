package state

import (
	"bytes"
	"cmp"
	"reflect"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// model is the state in its plainest form: one map of shares, walked from end to end for every operation.
type model struct {
	exchange plainExchange
	msgs     map[int64]Head
	shares   map[shareKey]*modelShare
	places   map[[2]string]*GroupPosition
	ignored  uint64
}

type shareKey struct {
	topic, group string
	address      int64
}

type modelShare struct {
	retry   bool
	attempt int32
	due     int64
	size    int32
}

func newModel() *model {
	return &model{msgs: map[int64]Head{}, shares: map[shareKey]*modelShare{}, places: map[[2]string]*GroupPosition{}}
}

func (m *model) message(h *Head) []string {
	m.msgs[h.Address] = *h
	var owed []string
	for _, g := range m.exchange.Targets(nil, h.Address, h.Topic, h.Properties) {
		if p := m.places[[2]string{h.Topic, g}]; p != nil && p.Attached {
			m.shares[shareKey{h.Topic, g, h.Address}] = &modelShare{size: h.Size}
			owed = append(owed, g)
		}
	}
	return owed
}

func (m *model) apply(at int64, op *Op) {
	found := false
	each := func(fn func(k shareKey, s *modelShare)) {
		for k, s := range m.shares {
			fn(k, s)
		}
	}
	place := m.places[[2]string{op.Topic, op.Group}]
	switch op.Kind {
	case OpDelete:
		each(func(k shareKey, s *modelShare) {
			if k.topic == op.Topic && !s.retry && op.First <= k.address && k.address <= op.Last {
				delete(m.shares, k)
				found = true
			}
		})
	case OpUpdate:
		for _, f := range op.Failed {
			k := shareKey{op.Topic, f.Group, op.First}
			s := m.shares[k]
			if s == nil {
				p := m.places[[2]string{op.Topic, f.Group}]
				if op.First >= at || p != nil && p.Attached && op.First >= p.Attach {
					m.ignored++
					continue
				}
				s = &modelShare{}
				m.shares[k] = s
			}
			s.retry, s.attempt, s.due = true, f.Attempt, f.Due
		}
		found = true
	case OpRetire:
		each(func(k shareKey, s *modelShare) {
			if k.topic != op.Topic || k.group != op.Group {
				return
			}
			if op.Last == 0 && k.address == op.First || op.Last != 0 && !s.retry && op.First <= k.address && k.address <= op.Last {
				delete(m.shares, k)
				found = true
			}
		})
	case OpBind:
		m.exchange.Bind(at, op.Topic, op.Group, op.Binding)
		if place == nil {
			m.places[[2]string{op.Topic, op.Group}] = &GroupPosition{Cursor: at}
		}
		found = true
	case OpUnbind:
		found = m.exchange.find(op.Topic, op.Group, op.Binding) != nil
		m.exchange.Unbind(at, op.Topic, op.Group, op.Binding)
	case OpAttach:
		if found = place != nil && !place.Attached && place.SkipFrom == place.SkipTo; found {
			place.Attached, place.Attach = true, at
		}
	case OpDetach:
		if found = place != nil && place.Attached; found {
			each(func(k shareKey, s *modelShare) {
				if k.topic == op.Topic && k.group == op.Group && !s.retry {
					s.retry = true
				}
			})
			if place.Cursor < place.Attach {
				place.SkipFrom, place.SkipTo = place.Attach, at
			} else {
				place.Cursor = at
			}
			place.Attached, place.Attach = false, 0
		}
	case OpCursor:
		to := min(op.First, at)
		if place != nil && place.Attached {
			to = min(to, place.Attach)
		}
		if found = place != nil && to > place.Cursor; found {
			place.Cursor = to
			if place.SkipFrom < place.SkipTo && to >= place.SkipFrom {
				place.Cursor = max(to, place.SkipTo)
				place.SkipFrom, place.SkipTo = 0, 0
			}
		}
	}
	if !found {
		m.ignored++
	}
}

var (
	modelTopics = []string{"T0", "T1"}
	modelGroups = []string{"G0", "G1", "G2"}
)

// compare checks every answer of the machine against the model.
func (m *model) compare(t *rapid.T, x *Machine) {
	equal := func(what string, got, want any) {
		t.Helper()
		if reflect.DeepEqual(got, want) { // much faster than Diff
			return
		}
		if d := gocmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("%s (-want +got):\n%s", what, d)
		}
	}
	window := map[[2]any]bool{}
	retries := 0
	for _, topic := range modelTopics {
		byAddress := map[int64]*Pending{}
		for _, group := range modelGroups {
			var want []GroupPosition
			if p := m.places[[2]string{topic, group}]; p != nil {
				want = append(want, *p)
			}
			var got []GroupPosition
			if p, ok := x.Cursor(topic, group); ok {
				got = append(got, p)
			}
			equal("position of "+group+" on "+topic, got, want)
		}
		for k, s := range m.shares {
			if k.topic != topic {
				continue
			}
			p := byAddress[k.address]
			if p == nil {
				p = &Pending{Address: k.address, Position: k.address}
				byAddress[k.address] = p
			}
			p.Size = max(p.Size, s.size)
			if s.retry {
				retries++
				p.Retries = append(p.Retries, Retry{Topic: topic, Group: k.group, Address: k.address, Position: k.address, Size: s.size, Attempt: s.attempt, Due: s.due})
			} else {
				window[[2]any{topic, k.address}] = true
				p.Targets = append(p.Targets, k.group)
			}
		}
		var want []Pending
		for _, p := range byAddress {
			slices.Sort(p.Targets)
			slices.SortFunc(p.Retries, func(a, b Retry) int { return cmp.Compare(a.Group, b.Group) })
			want = append(want, *p)
		}
		slices.SortFunc(want, func(a, b Pending) int { return cmp.Compare(a.Address, b.Address) })
		from := rapid.Int64Range(0, 200).Draw(t, "scan from")
		want = slices.DeleteFunc(want, func(p Pending) bool { return p.Address < from })
		equal("scan of "+topic, slices.Collect(x.Scan(topic, from)), want)
	}
	equal("stats", x.Stats(), Stats{Window: len(window), Retries: retries, Ignored: x.Stats().Ignored})
	for _, group := range modelGroups {
		var want []Retry
		for k, s := range m.shares {
			if k.group == group && s.retry {
				want = append(want, Retry{Topic: k.topic, Group: group, Address: k.address, Position: k.address, Size: s.size, Attempt: s.attempt, Due: s.due})
			}
		}
		slices.SortFunc(want, func(a, b Retry) int { return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Address, b.Address)) })
		equal("retry count of "+group, x.RetryCount(group), len(want))
		var got []Retry
		dst := make([]Retry, rapid.IntRange(1, 5).Draw(t, "retries at once"))
		for last := (Retry{}); ; last = got[len(got)-1] {
			n := x.Retries(group, last, dst)
			if n == 0 {
				break
			}
			got = append(got, dst[:n]...)
		}
		equal("retries of "+group, got, want)
	}
	var want []GroupBinding
	for _, l := range m.exchange.lives {
		if l.until == 0 {
			want = append(want, GroupBinding{l.topic, l.group, l.b, l.since})
		}
	}
	slices.SortFunc(want, func(a, b GroupBinding) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Binding.Kind, b.Binding.Kind), cmp.Compare(a.Binding.Expr, b.Binding.Expr))
	})
	equal("bindings", x.Bindings(), want)
	for _, b := range want {
		if has, _ := x.PushGroup(b.Group); !has {
			t.Fatalf("%s has a binding and is no push group", b.Group)
		}
	}
	for k := range m.shares {
		if has, _ := x.PushGroup(k.group); !has {
			t.Fatalf("%s is owed %d and is no push group", k.group, k.address)
		}
	}
}

// entry is one record of a log that a test made.
type entry struct {
	at   int64
	head *Head
	ops  []byte // encoded
}

func feed(t *rapid.T, x *Machine, es []entry) {
	for _, e := range es {
		if e.head != nil {
			x.Message(e.head)
			continue
		}
		ops, err := DecodeOps(e.ops)
		if err != nil {
			t.Fatal(err)
		}
		x.Apply(e.at, ops)
	}
}

func drawBinding(t *rapid.T) Binding {
	b := Binding{Kind: BindDirect, Expr: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "expr"), WaterMark: rapid.Int32Range(-1, 1).Draw(t, "water mark"), Volatile: rapid.Bool().Draw(t, "volatile")}
	if rapid.Bool().Draw(t, "fanout") {
		b.Kind, b.Expr = BindFanout, ""
	}
	return b
}

func drawOp(t *rapid.T, end int64) Op {
	op := Op{Kind: OpKind(rapid.IntRange(1, 8).Draw(t, "kind")), Topic: rapid.SampledFrom(modelTopics).Draw(t, "topic")}
	if op.Kind != OpDelete && op.Kind != OpUpdate {
		op.Group = rapid.SampledFrom(modelGroups).Draw(t, "group")
	}
	address := func(what string, low int64) int64 {
		a := rapid.Int64Range(max(low, end-40), max(low, end+5)).Draw(t, what)
		return a - a%2 + int64(slices.Index(modelTopics, op.Topic)) // an address is in one topic only
	}
	switch op.Kind {
	case OpDelete:
		op.First = address("first", 0)
		op.Last = address("last", op.First)
		op.Last = max(op.Last, op.First)
	case OpRetire:
		op.First = address("first", 0)
		if rapid.Bool().Draw(t, "range") {
			op.Last = max(op.First, address("last", op.First))
		}
	case OpUpdate:
		op.First = address("first", 0)
		for _, g := range modelGroups {
			if rapid.Bool().Draw(t, "fails") {
				op.Failed = append(op.Failed, Failed{g, rapid.Int32Range(0, 5).Draw(t, "attempt"), rapid.Int64Range(0, 9).Draw(t, "due")})
			}
		}
		if op.Failed == nil {
			op.Failed = []Failed{{"G0", 1, 1}}
		}
	case OpBind, OpUnbind:
		op.Binding = drawBinding(t)
	case OpCursor:
		op.First = address("first", 0)
	}
	return op
}

// TestLaw1StateIsAFunctionOfTheLog feeds random messages and operations, sensible and not, to a machine and to a plain
// model, compares every answer, and then makes the same state again in other ways: replayed from the start, from a
// snapshot on, and from a snapshot with a replay that begins too far back. The snapshots must be equal to the byte.
func TestLaw1StateIsAFunctionOfTheLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var log []entry
		x, m := NewMachine(&plainExchange{}), newModel()
		var saved []byte
		savedAt := 0
		var frozen *Frozen
		at := int64(0)
		// Start with what makes the rest worth while.
		for _, topic := range modelTopics {
			for _, group := range modelGroups {
				ops := []Op{{Kind: OpBind, Topic: topic, Group: group, Binding: Binding{Kind: BindFanout, WaterMark: -1}}, {Kind: OpAttach, Topic: topic, Group: group}}
				log = append(log, opsEntry(t, at, ops))
				at++
			}
		}
		for _, e := range log {
			both(t, x, m, e)
		}
		t.Repeat(map[string]func(*rapid.T){
			"messages": func(t *rapid.T) {
				for range rapid.IntRange(1, 30).Draw(t, "n") {
					at++
					h := &Head{Topic: modelTopics[at%2], Address: at, Position: at, Size: rapid.Int32Range(1, 9).Draw(t, "size"),
						Properties: []byte(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tag"))}
					e := entry{at: at, head: h}
					log = append(log, e)
					both(t, x, m, e)
					at += rapid.Int64Range(0, 2).Draw(t, "step")
				}
			},
			"operate": func(t *rapid.T) {
				var ops []Op
				for range rapid.IntRange(1, 4).Draw(t, "n") {
					ops = append(ops, drawOp(t, at))
				}
				at++
				e := opsEntry(t, at, ops)
				log = append(log, e)
				both(t, x, m, e)
			},
			"save": func(t *rapid.T) { saved, savedAt, frozen = x.Save(nil), len(log), x.Freeze() },
			"": func(t *rapid.T) {
				check := rapid.IntRange(0, 8).Draw(t, "check")
				if check < 3 {
					m.compare(t, x)
				}
				if check > 0 {
					return
				}
				want := x.Save(nil)
				replayed := NewMachine(&plainExchange{})
				feed(t, replayed, log)
				m.compare(t, replayed)
				if got := replayed.Save(nil); string(got) != string(want) {
					t.Fatal("a replay from the start gives another snapshot")
				}
				if saved == nil {
					return
				}
				var late bytes.Buffer
				if err := frozen.Save(&late); err != nil || !bytes.Equal(late.Bytes(), saved) {
					t.Fatalf("what was frozen then is saved otherwise now, err %v", err)
				}
				back := rapid.IntRange(0, savedAt).Draw(t, "replay from")
				loaded, err := Load(saved, &plainExchange{})
				if err != nil {
					t.Fatal(err)
				}
				feed(t, loaded, log[back:])
				m.compare(t, loaded)
				if got := loaded.Save(nil); string(got) != string(want) {
					t.Fatal("a replay on a snapshot gives another snapshot")
				}
			},
		})
	})
}

func opsEntry(t *rapid.T, at int64, ops []Op) entry {
	b, err := AppendOps(nil, ops)
	if err != nil {
		t.Fatal(err)
	}
	return entry{at: at, ops: b}
}

func both(t *rapid.T, x *Machine, m *model, e entry) {
	if e.head != nil {
		want := m.message(e.head)
		owed, ok := x.Message(e.head)
		if ok != (len(want) > 0) || !slices.Equal(owed.Targets, want) {
			t.Fatalf("message %d: owed to %v, want %v", e.at, owed.Targets, want)
		}
		return
	}
	ops, err := DecodeOps(e.ops)
	if err != nil {
		t.Fatal(err)
	}
	ignored := x.Stats().Ignored - m.ignored
	for i := range ops {
		m.apply(e.at, &ops[i])
	}
	x.Apply(e.at, ops)
	if x.Stats().Ignored-m.ignored != ignored {
		t.Fatalf("operations %+v at %d: ignored %d, want %d", ops, e.at, x.Stats().Ignored, m.ignored)
	}
}
