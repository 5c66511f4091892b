package rocketmq

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

// popModel keeps check points as a broker's revive service thinks of them.
type popModel map[popModelKey]map[int64]map[int64]bool // by invisible time: whether an offset is open

type popModelKey struct {
	topic, group   string
	queue          int32
	start, popTime int64
}

func (m popModel) record(p *Pop, judged bool) {
	k := popModelKey{p.Topic, p.Group, p.Queue, p.Start, p.PopTime}
	switch {
	case p.Kind != PopCheckPoint:
		for _, offsets := range m[k] {
			for _, n := range p.Offsets {
				if offsets[n] {
					offsets[n] = false
				}
			}
		}
	case judged:
		delete(m[k], p.Invisible)
	case m[k][p.Invisible] == nil:
		if m[k] == nil {
			m[k] = map[int64]map[int64]bool{}
		}
		m[k][p.Invisible] = map[int64]bool{}
		for i, n := range p.Offsets {
			m[k][p.Invisible][n] = p.Done&(1<<i) == 0
		}
	}
}

func (m popModel) popped() (all []Popped) {
	latest := map[Popped]Popped{}
	for k, times := range m {
		for invisible, offsets := range times {
			for n, open := range offsets {
				p := Popped{k.topic, k.group, k.queue, n, k.popTime, k.popTime + invisible}
				at := Popped{Topic: k.topic, Group: k.group, Queue: k.queue, Offset: n}
				if have, ok := latest[at]; open && (!ok || have.Due < p.Due) {
					latest[at] = p
				}
			}
		}
	}
	for _, p := range latest {
		all = append(all, p)
	}
	return all
}

// popRecord is a record as a broker writes one of a revive topic.
func popRecord(t *testing.T, topic, real string, offset int64, p *Pop) record.View {
	t.Helper()
	doc := map[string]any{"so": p.Start, "pt": p.PopTime, "q": p.Queue, "t": p.Topic, "c": p.Group, "bn": "b"}
	switch p.Kind {
	case PopCheckPoint:
		var d []int64
		for _, n := range p.Offsets {
			d = append(d, n-p.Start)
		}
		doc["it"], doc["n"], doc["d"], doc["bm"] = p.Invisible, len(d), d, p.Done
	case PopAck:
		doc["ao"] = p.Offsets[0]
	case PopBatchAck:
		doc["aol"] = p.Offsets
	}
	body, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	props := record.AppendProperty(nil, record.PropTags, string(p.Kind))
	if real != "" {
		props = record.AppendProperty(props, PropRealTopic, real)
	}
	v, err := record.Parse(record.Append(nil, &record.Fields{Topic: topic, Body: body, BodyCRC: record.CRC(body), Properties: props, QueueOffset: offset}))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// What is open of check points is what a map of them says, whatever of check points, acknowledgements and copies comes.
func TestOpenPopsAreAMap(t *testing.T) {
	const revive = RevivePrefix + "c"
	for range 300 {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		last := int64(rng.IntN(40)) // in the revive topic; what is up to it was judged
		o := NewOpen(Progress{Wheel: true, Revive: map[string]map[int32]int64{revive: {0: last}}}, state.NewTable())
		m := popModel{}
		var cks []Pop
		offset, timer := int64(0), int64(0)
		record := func(p *Pop) {
			if rng.IntN(2) == 0 {
				o.Record(popRecord(t, TimerTopic, revive, timer, p))
				timer++
				m.record(p, false)
				return
			}
			o.Record(popRecord(t, revive, "", offset, p))
			m.record(p, offset <= last)
			offset++
		}
		for range rng.IntN(120) {
			switch k := rng.IntN(6); {
			case k < 2 || len(cks) == 0:
				p := Pop{Kind: PopCheckPoint, Topic: fmt.Sprint("T", rng.IntN(2)), Group: fmt.Sprint("g", rng.IntN(2)), Queue: int32(rng.IntN(2)), Start: int64(3 * len(cks)), PopTime: 1_800_000_000_000 + int64(rng.IntN(5)), Invisible: int64(10 * rng.IntN(3))}
				at := p.Start
				for range 1 + rng.IntN(32) {
					p.Offsets = append(p.Offsets, at)
					at += 1 + int64(rng.IntN(3)*rng.IntN(50))
				}
				p.Done = rng.Uint64N(1<<len(p.Offsets)) &^ rng.Uint64() // acknowledged before it was written
				cks = append(cks, p)
				record(&p)
			case k == 2: // from the timer's topic into the other, or written again with a part of it later
				p := cks[rng.IntN(len(cks))]
				if rng.IntN(2) == 0 {
					p.Invisible += int64(5 * rng.IntN(2))
				}
				record(&p)
			default:
				p := cks[rng.IntN(len(cks))]
				p.Kind = PopBatchAck
				p.Offsets = slices.DeleteFunc(slices.Clone(p.Offsets), func(int64) bool { return rng.IntN(2) == 0 })
				p.Offsets = append(p.Offsets, int64(rng.IntN(300)))
				if rng.IntN(2) == 0 {
					p.Kind, p.Offsets = PopAck, p.Offsets[:1]
				}
				record(&p)
			}
		}
		want, got := m.popped(), slices.Collect(o.Popped())
		for _, all := range [][]Popped{want, got} {
			slices.SortFunc(all, func(a, b Popped) int {
				return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.PopTime, b.PopTime))
			})
		}
		// Of two check points that end at the same time either may be the one.
		same := gocmp.Comparer(func(a, b Popped) bool {
			a.PopTime, b.PopTime = 0, 0
			return a == b
		})
		if diff := gocmp.Diff(want, got, same); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
	}
}
