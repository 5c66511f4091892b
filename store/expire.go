package store

import (
	"encoding/json"
	"errors"
	"math"
	"slices"

	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

// Expiry names messages of one queue that were deleted before a group had read them: a record of ExpiryTopic.
type Expiry struct {
	Group string `json:"group"`
	Topic string `json:"topic"`
	Queue int32  `json:"queue"`
	First int64  `json:"first"` // queue offset
	Last  int64  `json:"last"`  // the same; the group goes on behind it
	Count int64  `json:"count"` // messages between them, before any filter of the group

	// "age": older than the age limit; "disk": the disk was above the level of forced cleaning. "body": these Count messages are still in the
	// queue, but were stored in a segment that went before, so that readers step over them; others between First and Last are not touched.
	Reason string `json:"reason"`
	Face   string `json:"face"` // "push": by the group's cursor; "pull": by its committed offset
	Time   int64  `json:"time"` // milliseconds since 1970

	// Below is the log position below which everything was about to be deleted; 0 in records of earlier versions. Until that has come to its
	// end the messages are there, and no other record names them.
	Below int64 `json:"below"`
}

// Why segments go.
const (
	reasonAge  = "age"
	reasonDisk = "disk"
	reasonBody = "body"
)

// expireBelow writes down which groups have not read what is below position, and brings the cursors of push groups there.
func (s *Store) expireBelow(position int64, reason string) error {
	now := s.o.Now().UnixMilli()
	n := &s.clean.told
	if err := n.load(s); err != nil {
		return err
	}
	n.drop(s.log.Min())
	var all []Expiry
	add := func(q *queue.Queue, group, face string, from int64) {
		low, _ := q.Range()
		first, end := max(low, from), q.SearchAddress(position)
		if first >= end {
			return
		}
		n.rest(readBy{q.Topic().Name(), group, face, q.ID()}, q, first, end-1, func(first, last int64) {
			all = append(all, Expiry{
				Group: group, Topic: q.Topic().Name(), Queue: q.ID(), First: first, Last: last, Count: last - first + 1, Reason: reason, Face: face, Time: now, Below: position,
			})
		})
	}
	for _, c := range s.tables.offsets.All() {
		if q := s.index.Queue(c.Topic, c.Queue, false); q != nil {
			add(q, c.Group, "pull", c.Offset)
		}
	}
	s.machine.RLock()
	behind := s.machine.BehindOf(position)
	s.machine.RUnlock()
	ops := make([]state.Op, 0, len(behind))
	for _, p := range behind {
		if t := s.index.Topic(p.Topic, false); t != nil {
			t.Queues(func(q *queue.Queue) { add(q, p.Group, "push", q.SearchAddress(p.Cursor)) })
		}
		ops = append(ops, state.Op{Kind: state.OpCursor, Topic: p.Topic, Group: p.Group, First: position})
	}
	all, err := s.expireViews(position, all, now)
	if err != nil {
		return err
	}
	for i := range all {
		e := &all[i]
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		it, err := s.appendOwn(s.own.expiry, text, true)
		if err != nil {
			return err
		}
		n.note(e, it.Position)
		s.clean.expired.Add(e.Count)
		s.clean.expiries.Add(1)
		s.event(levelWarn, "messages were deleted before a group had read them", "group", e.Group, "topic", e.Topic, "queue", e.Queue,
			"first", e.First, "last", e.Last, "count", e.Count, "reason", e.Reason, "face", e.Face)
	}
	for len(ops) > 0 {
		some := ops[:min(len(ops), 4096)]
		at, err := s.operateReserved(some)
		if err == nil {
			err = s.waitApplied(at)
		}
		if err != nil {
			return err
		}
		ops = ops[len(some):]
	}
	return nil
}

// raiseOffsets brings committed offsets below the first message of their queue to that message.
func (s *Store) raiseOffsets() {
	raised := s.tables.offsets.Raise(func(topic string, id int32) int64 {
		q := s.index.Queue(topic, id, false)
		if q == nil {
			return math.MinInt64
		}
		low, _ := q.Range()
		return low
	})
	for _, r := range raised {
		s.event(levelInfo, "committed offset was below the beginning of its queue and is raised to it", "topic", r.Topic, "group", r.Group, "queue", r.Queue, "offset", r.Offset)
	}
}

// Expiries returns the newest expiry records, at most most of them, oldest first.
func (s *Store) Expiries(most int) ([]Expiry, error) {
	q := s.index.Queue(ExpiryTopic, 0, false)
	if q == nil || most < 1 {
		return nil, nil
	}
	low, high := q.Range()
	var all []Expiry
	var es [32]queue.Entry
	for o := max(low, high-int64(most)); o < high; {
		n, err := q.Read(o, es[:])
		if err != nil || n == 0 {
			return all, err
		}
		for _, e := range es[:n] {
			x, err := s.expiry(e)
			if errors.Is(err, ErrUnavailable) {
				return all, err
			}
			if err == nil { // else it went meanwhile
				all = append(all, x)
			}
		}
		o += int64(n)
	}
	return all, nil
}

func (s *Store) expiry(e queue.Entry) (x Expiry, err error) {
	b, release, err := s.Record(e)
	if err != nil {
		return x, err
	}
	defer release()
	v, err := record.Parse(b)
	if err == nil {
		err = json.Unmarshal(v.Body(), &x)
	}
	return x, err
}

// keptForGroups says whether a segment that has become too old, with records no newer than newest, has messages of a topic that is kept
// until it is consumed, or the bodies of such, and some push group has not read them, as far as that can be told. Bodies of a queue are in
// any order: a group may have passed everything in the segment and not read a view in a later one whose body is here. Such a view is younger
// than its body by the view window at most, which so counts here as it does in the age limit.
func (s *Store) keptForGroups(seg log.Segment, newest int64) bool {
	all, _ := s.tables.topics.All()
	age := s.now() - newest - s.o.Retention.ViewWindow.Milliseconds()
	for _, c := range all {
		most, ok := c.KeepUntilConsumed()
		if !ok || age >= most.Milliseconds() {
			continue
		}
		t := s.index.Topic(c.Name, false)
		if t == nil {
			continue
		}
		s.machine.RLock()
		behind := s.machine.BehindOf(math.MaxInt64)
		s.machine.RUnlock()
		behind = slices.DeleteFunc(behind, func(p state.TopicPosition) bool { return p.Topic != c.Name })
		for _, p := range behind {
			if p.Cursor >= seg.End {
				continue
			}
			var es [1]TopicEntry
			if n, err := t.Read(p.Cursor, es[:]); err != nil || n == 1 && es[0].Address < seg.End {
				return true // after an error it may be so; the next look asks again
			}
		}
		if len(behind) == 0 {
			continue
		}
		if waits, err := s.viewWaits(c.Name, seg.End, behind); waits || err != nil {
			return true
		}
	}
	return false
}
