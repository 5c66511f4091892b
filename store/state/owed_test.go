package state

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// pusher is a push front end in its plainest form: it delivers what Message says is owed, reads cursors, retries and
// acknowledges, all through operations, and counts what each group has got.
type pusher struct {
	t     *rapid.T
	x     *Machine
	at    int64
	msgs  []Head
	truth plainExchange // the bindings, never forgotten
	got   map[shareKey]int
	// What a window share is waiting for: delivered ones are not delivered again by this pusher.
	flying map[shareKey]bool
}

func (p *pusher) apply(ops ...Op) {
	b, err := AppendOps(nil, ops)
	if err != nil {
		p.t.Fatal(err)
	}
	ops, err = DecodeOps(b)
	if err != nil {
		p.t.Fatal(err)
	}
	p.at++
	p.x.Apply(p.at, ops)
	for _, op := range ops {
		switch op.Kind {
		case OpBind:
			p.truth.Bind(p.at, op.Topic, op.Group, op.Binding)
		case OpUnbind:
			p.truth.Unbind(p.at, op.Topic, op.Group, op.Binding)
		}
	}
}

func (p *pusher) send(tag string) {
	p.at++
	h := Head{Topic: "T", Address: p.at, Position: p.at, Size: 1, Properties: []byte(tag)}
	p.msgs = append(p.msgs, h)
	if o, ok := p.x.Message(&h); ok {
		for _, g := range o.Targets {
			p.flying[shareKey{"T", g, h.Address}] = true
		}
	}
}

// finish ends some of what is in flight to a group: acknowledged on its own, or failed.
func (p *pusher) finish(group string, all bool) {
	for _, h := range p.msgs {
		k := shareKey{"T", group, h.Address}
		if !p.flying[k] || !all && rapid.Bool().Draw(p.t, "later") {
			continue
		}
		delete(p.flying, k)
		if !all && rapid.Bool().Draw(p.t, "fails") {
			p.apply(Op{Kind: OpUpdate, Topic: "T", First: h.Address, Failed: []Failed{{group, 1, p.at}}})
			continue
		}
		p.got[k]++
		p.apply(Op{Kind: OpRetire, Topic: "T", Group: group, First: h.Address, Last: h.Address})
	}
}

// catchUp reads the cursor of a group, at most n messages, through the bindings that held at each message.
func (p *pusher) catchUp(group string, n int) {
	pos, ok := p.x.Cursor("T", group)
	if !ok {
		return
	}
	end := p.at + 1
	if pos.Attached {
		end = pos.Attach
	}
	x := p.x.exchange
	var ops []Op
	next := end
	for i := range p.msgs {
		h := &p.msgs[i]
		if h.Address < pos.Cursor || h.Address >= end || pos.SkipFrom <= h.Address && h.Address < pos.SkipTo {
			continue
		}
		if n--; n < 0 {
			next = h.Address
			break
		}
		if !slices.Contains(x.Targets(nil, h.Address, "T", h.Properties), group) {
			continue
		}
		if rapid.Bool().Draw(p.t, "cursor fails") {
			ops = append(ops, Op{Kind: OpUpdate, Topic: "T", First: h.Address, Failed: []Failed{{group, 1, p.at}}})
		} else {
			p.got[shareKey{"T", group, h.Address}]++
		}
	}
	p.apply(append(ops, Op{Kind: OpCursor, Topic: "T", Group: group, First: next})...)
}

func (p *pusher) retry(group string, all bool) {
	rs := make([]Retry, p.x.RetryCount(group))
	rs = rs[:p.x.Retries(group, Retry{}, rs)]
	for _, r := range rs {
		if !all && rapid.Bool().Draw(p.t, "not yet") {
			continue
		}
		if !all && rapid.Bool().Draw(p.t, "fails again") {
			p.apply(Op{Kind: OpUpdate, Topic: "T", First: r.Address, Failed: []Failed{{group, r.Attempt + 1, p.at}}})
			continue
		}
		p.got[shareKey{"T", group, r.Address}]++
		p.apply(Op{Kind: OpRetire, Topic: "T", Group: group, First: r.Address})
	}
}

// TestLaw5EachMessageIsOwedOnceToEachGroup attaches and detaches groups at random, also while their cursors are behind,
// lets deliveries fail on every path, takes the state through snapshots, and finds at the end that every group was owed
// every message of its bindings exactly once, and nothing else.
func TestLaw5EachMessageIsOwedOnceToEachGroup(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &pusher{t: t, x: NewMachine(&plainExchange{}), got: map[shareKey]int{}, flying: map[shareKey]bool{}}
		tags := []string{"a", "b"}
		attached := func(group string) bool { pos, ok := p.x.Cursor("T", group); return ok && pos.Attached }
		detach := func(group string) {
			p.apply(Op{Kind: OpDetach, Topic: "T", Group: group})
			for k := range p.flying { // not answered: they are retries now
				if k.group == group {
					delete(p.flying, k)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				for range rapid.IntRange(1, 5).Draw(t, "n") {
					p.send(rapid.SampledFrom(tags).Draw(t, "tag"))
				}
			},
			"bind": func(t *rapid.T) {
				b := Binding{Kind: BindDirect, Expr: rapid.SampledFrom(tags).Draw(t, "expr")}
				kind := OpBind
				if rapid.IntRange(0, 3).Draw(t, "unbind") == 0 {
					kind = OpUnbind
				}
				p.apply(Op{Kind: kind, Topic: "T", Group: rapid.SampledFrom(modelGroups).Draw(t, "group"), Binding: b})
			},
			"attach or detach": func(t *rapid.T) {
				group := rapid.SampledFrom(modelGroups).Draw(t, "group")
				if attached(group) {
					detach(group)
				} else {
					p.apply(Op{Kind: OpAttach, Topic: "T", Group: group})
				}
			},
			"finish": func(t *rapid.T) { p.finish(rapid.SampledFrom(modelGroups).Draw(t, "group"), false) },
			"retry":  func(t *rapid.T) { p.retry(rapid.SampledFrom(modelGroups).Draw(t, "group"), false) },
			"catch up": func(t *rapid.T) {
				p.catchUp(rapid.SampledFrom(modelGroups).Draw(t, "group"), rapid.IntRange(0, 6).Draw(t, "n"))
			},
			"delete": func(t *rapid.T) { // a range that is answered by all
				if len(p.msgs) == 0 {
					return
				}
				i := rapid.IntRange(0, len(p.msgs)-1).Draw(t, "first")
				j := rapid.IntRange(i, min(i+4, len(p.msgs)-1)).Draw(t, "last")
				for _, h := range p.msgs[i : j+1] {
					for _, group := range modelGroups {
						if k := (shareKey{"T", group, h.Address}); p.flying[k] {
							delete(p.flying, k)
							p.got[k]++
						}
					}
				}
				p.apply(Op{Kind: OpDelete, Topic: "T", First: p.msgs[i].Address, Last: p.msgs[j].Address})
			},
			"restart": func(t *rapid.T) {
				x, err := Load(p.x.Save(nil), &plainExchange{})
				if err != nil {
					t.Fatal(err)
				}
				p.x = x
			},
		})
		for _, group := range modelGroups {
			p.finish(group, true)
			p.catchUp(group, 1<<30)
			p.catchUp(group, 1<<30) // past what was to be skipped
			p.retry(group, true)
		}
		if s := p.x.Stats(); s.Window != 0 || s.Retries != 0 {
			t.Fatalf("everything is done, but the state holds %+v", s)
		}
		for _, h := range p.msgs {
			for _, group := range modelGroups {
				want := 0
				if slices.ContainsFunc(p.truth.lives, func(l life) bool { return l.group == group && l.match(h.Address, "T", string(h.Properties)) }) {
					want = 1
				}
				if got := p.got[shareKey{"T", group, h.Address}]; got != want {
					t.Fatalf("group %s got the message at %d (%s) %d times, want %d", group, h.Address, h.Properties, got, want)
				}
			}
		}
	})
}
