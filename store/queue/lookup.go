package queue

import (
	"cmp"
	"sort"
)

// readSpan reads from the span that holds offset; 0 when none does.
func (q *Queue) readSpan(offset int64, dst []Entry) (int, error) {
	p, err := q.locate(offset)
	if err != nil || p == nil {
		return 0, err
	}
	defer p.s.release()
	i := offset - p.first
	if left := int64(p.count) - i; left < int64(len(dst)) {
		dst = dst[:left]
	}
	if err := p.s.read(int(p.at)+int(i), dst); err != nil {
		q.topic.index.damaged(p.s, err)
		return 0, err
	}
	return len(dst), nil
}

// locate returns the part that holds offset, with a reference to its span that the caller gives back, or nil.
func (q *Queue) locate(offset int64) (*part, error) {
	spans := *q.topic.index.spans.Load()
	if h := q.hint.Load(); h != nil {
		switch end := h.first + int64(h.count); {
		case h.first <= offset && offset < end && h.s.acquire():
			return h, nil
		case offset == end: // read on: it is in the next span that has some of the queue, mostly the next
			i := sort.Search(len(spans), func(i int) bool { return spans[i].start >= h.s.end })
			if i < len(spans) {
				p, ok, err := q.find(spans[i])
				if err != nil {
					return nil, err
				}
				if ok && p.first == offset && p.count > 0 && p.s.acquire() {
					q.hint.Store(&p)
					return &p, nil
				}
			}
		}
	}
	// Along the spans a queue does not exist at first, and then its first offset grows. So what we look for is in the
	// last span in which it does not start behind offset.
	var found part
	var failed error
	i := sort.Search(len(spans), func(i int) bool {
		p, ok, err := q.find(spans[i])
		failed = cmp.Or(failed, err)
		if ok && p.first > offset {
			return true
		}
		if found = p; !ok { // found is that of the last one that is not behind offset, when the search ends
			found = part{}
		}
		return false
	})
	if failed != nil || i == 0 || found.s != spans[i-1] || offset < found.first || offset >= found.first+int64(found.count) || !found.s.acquire() {
		return nil, failed
	}
	q.hint.Store(&found)
	return &found, nil
}

// find is span.find for this queue with a reference held while it looks.
func (q *Queue) find(s *span) (part, bool, error) {
	if !s.acquire() {
		return part{}, false, nil
	}
	defer s.release()
	p, ok, err := s.find(q.topic.name, q.id, &q.topic.number)
	if err != nil {
		q.topic.index.damaged(s, err)
	}
	return p, ok, err
}

// searchSpans finds the first offset with an address of at least at; ok is false when no span reaches so far.
func (q *Queue) searchSpans(at int64) (offset int64, ok bool, err error) {
	spans := *q.topic.index.spans.Load()
	i := sort.Search(len(spans), func(i int) bool { return spans[i].end > at })
	if i == len(spans) {
		return 0, false, nil
	}
	s := spans[i]
	if !s.acquire() {
		return q.min.Load(), true, nil // dropped in between: what is left starts at min
	}
	defer s.release()
	p, ok, err := s.find(q.topic.name, q.id, &q.topic.number)
	if err == nil && !ok {
		return q.min.Load(), true, nil // the queue began later
	}
	if err == nil {
		n := 0
		n, err = s.search(p, at)
		offset = p.first + int64(n)
	}
	if err != nil {
		q.topic.index.damaged(s, err)
	}
	return offset, true, err
}
