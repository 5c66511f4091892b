package store_test

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

// questions name what everyAnswer asks for.
type questions struct {
	topics, groups []string
	queues         int32
	keys           []string // of each topic
	halves         []int64  // addresses whose outcomes are asked
}

// recorded says what a reader gets.
func recorded(b []byte, release func(), err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	defer release()
	if v, err := record.Parse(b); err != nil || v.CheckBody() != nil {
		return fmt.Sprintf("no record: %v", err)
	}
	return fmt.Sprintf("%d bytes %x", len(b), sha256.Sum256(b))
}

// everyAnswer asks a store everything that it may be asked: queue ranges and the bytes of every message, by entry and by address, what
// waits, who is owed what, cursors, committed offsets, expiry records, keys, outcomes.
func everyAnswer(t testing.TB, s *store.Store, q questions) map[string]string {
	t.Helper()
	a := map[string]string{}
	set := func(value string, name ...any) { a[fmt.Sprint(name...)] = value }
	sum, n, err := s.StateSum()
	set(fmt.Sprintf("%x %d %v", sum, n, err), "state")
	for _, topic := range q.topics {
		for id := range q.queues {
			h := s.Queue(topic, id, false)
			if h == nil {
				continue
			}
			low, high := h.Range()
			set(fmt.Sprint(low, " ", high), topic, "/", id)
			for o := low; o < high; o++ {
				var es [1]queue.Entry
				if n, err := h.Read(o, es[:]); n != 1 || err != nil {
					t.Fatalf("%s/%d at %d: %d, %v", topic, id, o, n, err)
				}
				by, at := recorded(s.Record(es[0])), recorded(s.RecordAt(es[0].Address))
				if (by == at) != (by[0] != 'e') && by[0] != 'e' {
					t.Fatalf("%s/%d at %d: by its entry %s, by its address %s", topic, id, o, by, at)
				}
				set(fmt.Sprintf("%+v %s", es[0], by), topic, "/", id, " ", o)
			}
		}
		for _, p := range s.Pending(topic, 0, 1<<20) {
			set(fmt.Sprintf("%+v %s", p, recorded(s.RecordAt(p.Address))), "pending ", topic, " ", p.Address)
		}
		for _, group := range q.groups {
			if p, ok := s.Cursor(topic, group); ok {
				set(fmt.Sprintf("%+v", p), "cursor ", topic, " ", group)
			}
		}
		for _, key := range q.keys {
			if at := byKey(t, s, store.KeyQuery{Topic: topic, Key: key}); len(at) > 0 {
				set(fmt.Sprint(at), "key ", topic, " ", key)
			}
		}
	}
	for _, group := range q.groups {
		rs := make([]state.Retry, 64)
		for after := (state.Retry{}); ; {
			n := s.Retries(group, after, rs)
			for _, r := range rs[:n] {
				set(fmt.Sprintf("%+v %s", r, recorded(s.RecordAt(r.Address))), "retry ", group, " ", r.Topic, " ", r.Address)
			}
			if n < len(rs) {
				break
			}
			after = rs[n-1]
		}
	}
	set(fmt.Sprintf("%+v", s.Bindings()), "bindings")
	for _, aside := range []bool{false, true} {
		hs := make([]state.HalfState, 1<<12)
		for _, h := range hs[:s.Halves(aside, state.HalfState{}, hs)] {
			b, err := s.HalfRecord(h.Address)
			set(fmt.Sprintf("%+v %s", h, recorded(b, func() {}, err)), "half ", h.Address)
		}
	}
	for _, at := range q.halves {
		set(fmt.Sprint(s.Half(at).Outcome), "outcome ", at)
	}
	ds := make([]state.Due, 1<<12)
	for _, d := range ds[:s.Delays(state.Due{}, ds)] {
		set(fmt.Sprintf("%+v", d), "delay ", d.Address)
	}
	for _, d := range ds[:s.Returns(state.Due{}, ds)] {
		set(fmt.Sprintf("%+v", d), "sent back ", d.Group, " ", d.Address)
	}
	for _, o := range s.Offsets().All() {
		set(fmt.Sprint(o.Offset), "offset ", o.Group, " ", o.Topic, " ", o.Queue)
	}
	es, err := s.Expiries(1 << 12)
	set(fmt.Sprintf("%+v %v", es, err), "expiries")
	return a
}

func bodyOf(t testing.TB, b []byte) string {
	t.Helper()
	v, err := record.Parse(b)
	if err == nil {
		err = v.CheckBody()
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(v.Body())
}
