package store

import (
	"cmp"
	"errors"
	"slices"

	"github.com/fusionmq/fusionmq/store/queue"
)

// told is what expiry records say of messages that are still in the log: of a deletion that has failed behind them, or that a power cut
// has ended. Who deletes the rest says no range again.
type told struct {
	read bool // what the log has of before the start
	of   map[readBy][]toldRange
}

// toldRange is what one expiry record names in a queue.
type toldRange struct {
	first, last int64 // queue offsets
	at          int64 // address of the record
	below       int64 // what lies below this log position was about to go
	body        bool  // only views whose body does
}

// note takes a record that is at an address.
func (n *told) note(e *Expiry, at int64) {
	if n.of == nil {
		n.of = map[readBy][]toldRange{}
	}
	r := readBy{e.Topic, e.Group, e.Face, e.Queue}
	n.of[r] = append(n.of[r], toldRange{e.First, e.Last, at, e.Below, e.Reason == reasonBody})
}

// drop forgets what has gone below a log position.
func (n *told) drop(min int64) {
	for k, all := range n.of {
		if n.of[k] = slices.DeleteFunc(all, func(r toldRange) bool { return r.below <= min }); len(n.of[k]) == 0 {
			delete(n.of, k)
		}
	}
}

// load reads, once, the records that a run of before has left: the newest ones, up to one of a deletion that came to its end.
func (n *told) load(s *Store) error {
	q := s.index.Queue(ExpiryTopic, 0, false)
	if n.read || q == nil {
		n.read = true
		return nil
	}
	var es [1]queue.Entry
	low, high := q.Range()
	for o := high - 1; o >= low; o-- {
		k, err := q.Read(o, es[:])
		if err != nil || k == 0 {
			return err
		}
		e, err := s.expiry(es[0])
		if errors.Is(err, ErrUnavailable) {
			return err
		}
		if err != nil {
			continue // damaged: it says nothing
		}
		if e.Below <= s.log.Min() {
			break
		}
		n.note(&e, es[0].Address)
	}
	n.read = true
	return nil
}

// rest calls fn for the parts of the offsets first to last that no record names.
func (n *told) rest(r readBy, q *queue.Queue, first, last int64, fn func(first, last int64)) {
	all := slices.Clone(n.of[r])
	slices.SortFunc(all, func(a, b toldRange) int { return cmp.Compare(a.first, b.first) })
	for i := range all {
		a := &all[i]
		if a.body || a.last < first || a.first > last || !a.speaksOf(q) {
			continue
		}
		if a.first > first {
			fn(first, a.first-1)
		}
		first = a.last + 1
	}
	if first <= last {
		fn(first, last)
	}
}

// speaksOf says whether the range is of the queue that is there now: a topic of its name that was made again has later messages.
func (r *toldRange) speaksOf(q *queue.Queue) bool {
	var es [1]queue.Entry
	n, err := q.Read(r.last, es[:])
	return err == nil && n == 1 && es[0].Address < r.at
}

// view says whether a record names a view that stays while its body goes.
func (n *told) view(r readBy, offset int64, e *queue.Entry) bool {
	return slices.ContainsFunc(n.of[r], func(a toldRange) bool {
		return a.body && a.first <= offset && offset <= a.last && e.Position < a.below && e.Address < a.at
	})
}
