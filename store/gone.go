package store

import (
	"encoding/binary"
	"errors"
	"math"
	"sync"

	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

// Views whose bodies go before they do: their own segment stays, readers step over them, and expiry records name them. A view younger
// than the age limit loses its body only when the disk is too full.

// lows are, of segments, the lowest position of a body that a view in the segment shows; noLow where none does. They save that each
// deletion reads all operate-queue records behind it.
type lows struct {
	mu    sync.Mutex
	of    map[int64]int64 // by where the segment begins
	begin int64           // segments that begin from here on are in of when they have views, those before when they were looked at
}

const noLow = math.MaxInt64

// note takes the lowest body of the views of a record that was appended; looked, of the views of a segment that takes no appends.
func (l *lows) note(base, position int64, looked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old, ok := l.of[base]; ok && position < old || !ok && (looked || base >= l.begin) {
		if l.of == nil {
			l.of = map[int64]int64{}
		}
		l.of[base] = position
	}
}

// below says whether a segment may have views of bodies below a position.
func (l *lows) below(base, position int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	low, ok := l.of[base]
	return low < position && ok || !ok && base < l.begin
}

// drop forgets segments that have gone.
func (l *lows) drop(min int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for base := range l.of {
		if base < min {
			delete(l.of, base)
		}
	}
}

// segmentOf is where the segment of a position begins.
func (s *Store) segmentOf(position int64) int64 {
	return position / s.o.SegmentBytes * s.o.SegmentBytes
}

// viewsAbove calls fn for the views at addresses of at least position whose bodies are below it and not gone yet, in the order of
// addresses, until it returns false. What is damaged has none; after an error some may be missing.
func (s *Store) viewsAbove(position int64, fn func(topic string, id int32, offset int64, e queue.Entry) bool) error {
	q := s.index.Queue(OQTopic, 0, false)
	if q == nil {
		return nil
	}
	gone, more := s.log.Min(), true
	segs := s.log.Segments()
	for i, seg := range segs {
		if !more || seg.End <= position || !s.lows.below(seg.Base, position) {
			continue
		}
		low, end := int64(noLow), q.SearchAddress(seg.End)
		var es [64]queue.Entry
		for o := q.SearchAddress(seg.Base); o < end; {
			n, err := q.Read(o, es[:min(end-o, int64(len(es)))])
			var damaged *queue.CorruptError
			if err != nil && !errors.As(err, &damaged) {
				return err
			}
			if err != nil || n == 0 {
				low = 0 // looked at again next time; told where the index is read for somebody
				break
			}
			for k := range es[:n] {
				err := s.viewsIn(&es[k], func(topic string, id int32, offset int64, e queue.Entry) {
					low = min(low, e.Position)
					if more && e.Address >= position && e.Position < position && e.Position >= gone {
						more = fn(topic, id, offset, e)
					}
				})
				if err != nil {
					return err
				}
			}
			o += int64(n)
		}
		if i < len(segs)-1 {
			s.lows.note(seg.Base, low, true)
		}
	}
	return nil
}

// viewsIn calls fn for the views of an operate-queue record, and fails only when it cannot be read at the moment.
func (s *Store) viewsIn(e *queue.Entry, fn func(topic string, id int32, offset int64, e queue.Entry)) error {
	const flagAt = 16
	b, release, err := s.log.Read(e.Position, flagAt+4)
	if err != nil {
		return passing(err)
	}
	has := binary.BigEndian.Uint32(b[flagAt:])&flagViews != 0
	release()
	if !has {
		return nil
	}
	if b, release, err = s.log.Read(e.Position, int(e.Size)); err != nil {
		return passing(err)
	}
	defer release()
	if v, err := record.Parse(b); err == nil {
		_ = ViewsOf(v, fn) // one that cannot be read was told when it was dispatched
	}
	return nil
}

// readBy is what one group has not read of one queue.
type readBy struct {
	topic, group, face string
	queue              int32
}

// expireViews adds to all, for each group and queue, the views that it has not read and that lose their body now.
func (s *Store) expireViews(position int64, all []Expiry, now int64) ([]Expiry, error) {
	var pulled map[string]map[int32][]readBy
	offsets := map[readBy]int64{}
	var pushed []state.TopicPosition
	at := map[readBy]int{}
	err := s.viewsAbove(position, func(topic string, id int32, offset int64, e queue.Entry) bool {
		if pulled == nil { // the first
			pulled = map[string]map[int32][]readBy{}
			for _, c := range s.tables.offsets.All() {
				if pulled[c.Topic] == nil {
					pulled[c.Topic] = map[int32][]readBy{}
				}
				r := readBy{c.Topic, c.Group, "pull", c.Queue}
				pulled[c.Topic][c.Queue] = append(pulled[c.Topic][c.Queue], r)
				offsets[r] = c.Offset
			}
			s.machine.RLock()
			pushed = s.machine.BehindOf(math.MaxInt64)
			s.machine.RUnlock()
		}
		add := func(r readBy) {
			if s.clean.told.view(r, offset, &e) {
				return
			}
			i, ok := at[r]
			if !ok {
				i = len(all)
				at[r] = i
				all = append(all, Expiry{Group: r.group, Topic: r.topic, Queue: r.queue, First: offset, Reason: reasonBody, Face: r.face, Time: now, Below: position})
			}
			all[i].Last = offset
			all[i].Count++
		}
		for _, r := range pulled[topic][id] {
			if offsets[r] <= offset {
				add(r)
			}
		}
		for i := range pushed {
			if p := &pushed[i]; p.Topic == topic && p.Owes(e.Address) {
				add(readBy{topic, p.Group, "push", id})
			}
		}
		return true
	})
	return all, err
}

// viewWaits says whether a view that a push group has not read yet, of the topic, has its body in a segment.
func (s *Store) viewWaits(topic string, end int64, behind []state.TopicPosition) (waits bool, err error) {
	err = s.viewsAbove(end, func(of string, _ int32, _ int64, e queue.Entry) bool {
		for i := range behind {
			waits = waits || of == topic && behind[i].Topic == topic && behind[i].Owes(e.Address)
		}
		return !waits
	})
	return waits, err
}
