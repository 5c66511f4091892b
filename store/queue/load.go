package queue

import (
	"errors"
	"fmt"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

const (
	suffix     = ".idx"
	tempSuffix = ".tmp"
	nameDigits = 20
)

func (x *Index) fileName(start int64) string {
	return filepath.Join(x.cfg.Dir, fmt.Sprintf("%0*d%s", nameDigits, start, suffix))
}

// load opens the files of a gapless prefix of the log and removes the rest. Removal is durable before it returns: a file
// that came back after a crash could speak for a part of the log that has been written anew since.
func (x *Index) load() error {
	var spans []*span
	defer func() { x.spans.Store(&spans) }() // also after an error, for Open to close them
	if err := x.cfg.FS.MkdirAll(x.cfg.Dir); err != nil {
		return err
	}
	names, err := x.cfg.FS.List(x.cfg.Dir)
	if err != nil {
		return err
	}
	removed, broken := false, false
	for _, name := range names { // in order of start, since all names have as many digits
		path := filepath.Join(x.cfg.Dir, name)
		digits, ok := strings.CutSuffix(name, suffix)
		if !ok || len(digits) != nameDigits {
			if !strings.HasSuffix(name, suffix+tempSuffix) {
				continue // not ours
			}
		} else if start, err := strconv.ParseInt(digits, 10, 64); err == nil && !broken {
			s, err := openSpan(x.cfg.FS, path)
			var corrupt *CorruptError
			switch {
			case errors.As(err, &corrupt):
				x.cfg.Failed(err)
			case err != nil:
				return err
			case s.end <= x.cfg.LogMin: // its part of the log is gone
				s.release()
			case s.start == start && s.end <= x.cfg.LogEnd && x.follows(spans, s):
				s.settled.Store(true)
				spans = append(spans, s)
				continue
			default:
				s.release()
			}
			broken = err != nil || s.end > x.cfg.LogMin // no later file can follow
		}
		if err := x.cfg.FS.Remove(path); err != nil {
			return err
		}
		removed = true
	}
	if removed {
		if err := x.cfg.FS.SyncDir(x.cfg.Dir); err != nil {
			return err
		}
	}
	for {
		bad, err := x.loadQueues(spans)
		var corrupt *CorruptError
		if err != nil && !errors.As(err, &corrupt) {
			return err
		}
		if err == nil {
			break
		}
		// Take the damaged file away and everything behind it, and look again.
		x.cfg.Failed(err)
		for _, s := range spans[bad:] {
			s.release()
			if err := x.cfg.FS.Remove(s.name); err != nil {
				return err
			}
		}
		if err := x.cfg.FS.SyncDir(x.cfg.Dir); err != nil {
			return err
		}
		spans = spans[:bad]
		x.topics.byName = map[string]*Topic{}
	}

	x.resume = x.cfg.LogMin
	if n := len(spans); n > 0 {
		x.resume = spans[n-1].end
	}
	if x.cur == nil {
		x.cur = &generation{start: x.resume}
	} else { // the last one is in memory again
		spans[len(spans)-1].release()
		spans = spans[:len(spans)-1]
	}
	x.mu.gens = []*generation{x.cur}
	x.sealed.Store(x.cur.start)
	x.spans.Store(&spans)
	return nil
}

// loadQueues makes the handles of all queues from the directory of the last span, which names them all, and reads that
// span into memory when it is short. With an error it says which span is to blame.
func (x *Index) loadQueues(spans []*span) (bad int, err error) {
	x.cur = nil
	if len(spans) == 0 {
		return 0, nil
	}
	first, last := spans[0], spans[len(spans)-1]
	if _, err := first.directory(); err != nil {
		return 0, err
	}
	if _, err := last.directory(); err != nil {
		return len(spans) - 1, err
	}
	h := &last.header
	var gen *generation
	if int(h.entries) < x.cfg.SpanEntries && h.end-h.start < x.cfg.SpanBytes {
		gen = &generation{start: h.start, end: h.end, count: int(h.entries), loaded: int(h.entries)}
	}
	queues := make([]Queue, h.queues)
	for i := range int(h.topics) {
		name, from, n := last.topicAt(i)
		t := x.Topic(string(name), true)
		var byID []*Queue
		if n > 0 {
			byID = make([]*Queue, last.queueAt(from+n-1).id+1)
		}
		newest := int64(-1)
		for j := from; j < from+n; j++ {
			p := last.queueAt(j)
			if int(p.id) >= len(byID) || byID[p.id] != nil {
				return len(spans) - 1, &CorruptError{last.name, "queues are not in order"}
			}
			q := &queues[j]
			q.topic, q.id, q.known = t, p.id, true
			q.next = p.first + int64(p.count)
			low, bad, err := x.firstOffset(spans, t, p.id)
			if err != nil {
				return bad, err
			}
			q.min.Store(low)
			q.visible.Store(q.next)
			q.last.Store(p.last)
			newest = max(newest, p.last)
			byID[p.id] = q
			if gen != nil && p.count > 0 {
				if err := q.loadRun(gen, p); err != nil {
					return len(spans) - 1, err
				}
			}
		}
		t.queues.Store(&byID)
		t.lastPut = newest
		t.limit.Store(newest + 1)
	}
	x.cur = gen
	return 0, nil
}

// firstOffset is the first offset of a queue that the log still has. What a span says that could be read when it was written is no
// answer: that part of the log may not have gone after all. The first span knows every queue that is older; another one is looked for
// where it begins.
func (x *Index) firstOffset(spans []*span, t *Topic, id int32) (offset int64, bad int, err error) {
	at := 0
	p, ok, err := spans[0].find(t.name, id, &t.number)
	if !ok && err == nil {
		at = sort.Search(len(spans)-1, func(i int) bool { // the last one knows it
			_, ok, e := spans[i].find(t.name, id, &t.number)
			if e != nil && err == nil {
				bad, err = i, e
			}
			return ok
		})
		if err == nil {
			p, _, err = spans[at].find(t.name, id, &t.number)
			bad = at
		}
	}
	if err != nil {
		return 0, bad, err
	}
	n, err := spans[at].search(p, x.cfg.LogMin)
	return p.first + int64(n), at, err
}

func (q *Queue) loadRun(gen *generation, p part) error {
	r := q.topic.index.slabs.run(gen, p.first)
	for n, k := 0, 0; n < int(p.count); k++ {
		if k > 0 {
			r.grow(k)
		}
		b := r.block(k)
		c := min(len(b), int(p.count)-n)
		if err := p.s.readSlots(int(p.at)+n, b[:c]); err != nil {
			return err
		}
		n += c
		q.block, q.fill = b, uint16(c)
	}
	q.tail, q.gen = r, gen
	q.head.Store(r)
	return nil
}

func (x *Index) follows(spans []*span, s *span) bool {
	if len(spans) == 0 {
		return s.start <= x.cfg.LogMin
	}
	return spans[len(spans)-1].end == s.start
}
