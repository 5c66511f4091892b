package state

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// placeKey names something that is owed by name: its kind, the group of a return or a retry, and its address. Halves, delays and returns are known by
// their address alone, whatever their topic.
type placeKey struct {
	kind    OwedKind
	group   string
	address int64
}

// placeModel is where the records of what is owed are, as a map.
type placeModel map[placeKey]OwedBody

const modelAttach = 2 // address of the record that attaches G to T

func (m placeModel) apply(op *Op) {
	put := func(k placeKey) { m[k] = OwedBody{op.Topic, op.First, op.Position, op.Size} }
	switch op.Kind {
	case OpDelete:
		maps.DeleteFunc(m, func(k placeKey, _ OwedBody) bool {
			return k.kind == OwedWindow && op.First <= k.address && k.address <= op.Last
		})
	case OpUpdate:
		if b, ok := m[placeKey{OwedWindow, "", op.First}]; ok {
			delete(m, placeKey{OwedWindow, "", op.First})
			m[placeKey{OwedRetry, "G", op.First}] = b
		} else if k := (placeKey{OwedRetry, "G", op.First}); op.First < modelAttach {
			if _, ok := m[k]; !ok { // it failed while it was read through the cursor
				m[k] = OwedBody{op.Topic, op.First, op.First, 0}
			}
		}
	case OpReturn:
		put(placeKey{OwedReturn, op.Group, op.First})
	case OpAdopt:
		maps.DeleteFunc(m, func(k placeKey, _ OwedBody) bool { return k.kind == OwedHalf || k.kind == OwedDelay })
	case OpHold:
		if HoldKind(op.Level) == HoldHalf {
			put(placeKey{OwedHalf, "", op.First})
		} else {
			put(placeKey{OwedDelay, "", op.First})
		}
	case OpRelocate:
		for k, b := range m {
			if k.address == op.First && (b.Topic == op.Topic || k.kind != OwedWindow && k.kind != OwedRetry) {
				m[k] = OwedBody{b.Topic, b.Address, op.Last, op.Size}
			}
		}
	}
}

func (m placeModel) below(position int64) []OwedBody {
	var all []OwedBody
	for _, b := range m {
		if b.Position < position {
			all = append(all, b)
		}
	}
	return sortBodies(all)
}

func sortBodies(all []OwedBody) []OwedBody {
	slices.SortFunc(all, func(a, b OwedBody) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Position, b.Position), cmp.Compare(a.Size, b.Size))
	})
	return all
}

// Law 1 for the operations that take over, hold and move: where the record of everything that is owed lies is what a plain map says, also from a snapshot.
// What retention would move is exactly that.
func TestLaw1PlacesAreAFunctionOfTheLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, m := NewMachine(&plainExchange{}), placeModel{}
		at := int64(0)
		apply := func(op Op) {
			at++
			b, err := AppendOps(nil, []Op{op})
			if err != nil {
				t.Fatal(err)
			}
			ops, err := DecodeOps(b)
			if err != nil {
				t.Fatal(err)
			}
			x.Apply(at, ops)
			m.apply(&ops[0])
		}
		apply(Op{Kind: OpBind, Topic: "T", Group: "G", Binding: Binding{Kind: BindFanout, WaterMark: -1}})
		apply(Op{Kind: OpAttach, Topic: "T", Group: "G"})
		apply(Op{Kind: OpBind, Topic: "U", Group: "G", Binding: Binding{Kind: BindFanout, WaterMark: -1}}) // behind
		topic := rapid.SampledFrom([]string{"T", "U"})
		address := func(t *rapid.T) int64 {
			if known := slices.Sorted(func(yield func(int64) bool) {
				for k := range m {
					if !yield(k.address) {
						return
					}
				}
			}); len(known) > 0 && rapid.IntRange(0, 4).Draw(t, "known") > 0 {
				return rapid.SampledFrom(known).Draw(t, "address")
			}
			return rapid.Int64Range(0, at).Draw(t, "address")
		}
		size := rapid.Int32Range(1, 1000)
		t.Repeat(map[string]func(*rapid.T){
			"stored": func(t *rapid.T) {
				at++
				h := &Head{Topic: topic.Draw(t, "topic"), Address: at, Position: at, Size: size.Draw(t, "size")}
				b := OwedBody{h.Topic, at, at, h.Size}
				switch rapid.IntRange(0, 2).Draw(t, "what") {
				case 0:
					x.Half(h, 5)
					m[placeKey{OwedHalf, "", at}] = b
				case 1:
					x.Delay(h, 5, ViewDelay)
					m[placeKey{OwedDelay, "", at}] = b
				case 2:
					h.Topic, b.Topic = "T", "T"
					if _, ok := x.Message(h); !ok {
						t.Fatal("a message of T is owed to nobody")
					}
					m[placeKey{OwedWindow, "", at}] = b
				}
			},
			"done": func(t *rapid.T) {
				a := address(t)
				apply(Op{Kind: OpDelete, Topic: "T", First: a, Last: a + rapid.Int64Range(0, 5).Draw(t, "more")})
			},
			"failed": func(t *rapid.T) {
				apply(Op{Kind: OpUpdate, Topic: "T", First: address(t), Failed: []Failed{{"G", 1, 9}}})
			},
			"sent back": func(t *rapid.T) {
				apply(Op{
					Kind: OpReturn, Topic: topic.Draw(t, "topic"), Group: rapid.SampledFrom([]string{"P", "Q"}).Draw(t, "group"), First: address(t),
					Position: rapid.Int64Range(0, 2000).Draw(t, "position"), Size: size.Draw(t, "size"), Attempt: 1, Due: 9, Level: 3,
				})
			},
			"hold": func(t *rapid.T) {
				apply(Op{
					Kind: OpHold, Topic: topic.Draw(t, "topic"), First: address(t), Position: rapid.Int64Range(0, 2000).Draw(t, "position"), Size: size.Draw(t, "size"),
					Due: 9, Level: rapid.Int32Range(1, 3).Draw(t, "hold"),
				})
			},
			"adopt": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "adopt") == 0 {
					apply(Op{Kind: OpAdopt})
				}
			},
			"relocate": func(t *rapid.T) {
				a := address(t)
				apply(Op{Kind: OpRelocate, Topic: topic.Draw(t, "topic"), First: a, Last: a + rapid.Int64Range(0, 2000).Draw(t, "by"), Size: size.Draw(t, "size")})
			},
			"a snapshot": func(t *rapid.T) {
				y, err := Load(x.Save(nil), &plainExchange{})
				if err != nil {
					t.Fatal(err)
				}
				x = y
			},
			"": func(t *rapid.T) {
				below := rapid.Int64Range(0, 3000).Draw(t, "below")
				var got []OwedBody
				page := make([]OwedBody, rapid.IntRange(1, 7).Draw(t, "page"))
				for place, end := (OwedPlace{}), false; !end; {
					var n int
					n, place, end = x.OwedPage(below, place, page)
					got = append(got, page[:n]...)
				}
				if want := m.below(below); !slices.Equal(sortBodies(got), want) {
					t.Fatalf("owed below %d are %+v, want %+v", below, got, want)
				}
				a := rapid.Int64Range(0, at).Draw(t, "at")
				b, ok := x.Place(a)
				found := false
				for k, w := range m {
					found = found || k.address == a && w == b
					if k.address == a && !ok {
						t.Fatalf("%d has no place, want %+v", a, w)
					}
				}
				if ok && !found {
					t.Fatalf("%d is at %+v, the model has no such thing", a, b)
				}
			},
		})
	})
}
