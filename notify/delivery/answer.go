package delivery

import (
	"container/heap"
	"time"
)

// Answer applies a subscriber's answer to the delivery that handle names. id is the first eight bytes of the message id
// in the answer, 0 when it has none. It reports false for an answer that says nothing new: a second one, one for
// another message, one that came after the place was given up.
func (g *Group) Answer(m *Member, handle uint32, v Verdict, id uint64, now int64) bool {
	if m.group == nil {
		return false
	}
	s := m.slots.lookup(handle)
	if s == nil {
		return false
	}
	if known := s.msg.id.Load(); id != 0 && known != 0 && id != known {
		return false
	}
	it, l, posted := g.take(s, m)
	switch {
	case !posted:
		if v != Acked {
			return false // the verdict is known already: further failures are ignored (rulings A11)
		}
		g.counts.Late++
		g.endLate(it.msg)
	case v == Acked:
		g.counts.Acked++
		g.done(it, l, now)
	case (v == Busy || v == Unknown) && !it.second && g.members.n > 1:
		g.again(it, l, m)
	default:
		g.fail(it, l, now)
	}
	return true
}

// again gives an item to a second machine, before everything else.
func (g *Group) again(it item, l *lane, except *Member) {
	it.second, it.except = true, except
	g.counts.SecondTries++
	if it.source == fromRetry {
		if r := g.retrying[it.msg.Address]; r != nil && !r.over {
			g.count(r, 1)
		}
	}
	l.again.push(it)
	g.wakeLane(l)
}

// SetTimeout gives a posted delivery a timeout of its own, counted from when it was posted.
func (g *Group) SetTimeout(m *Member, handle uint32, d time.Duration) {
	if m.group == nil {
		return
	}
	s := m.slots.lookup(handle)
	if s == nil || s.state != slotPosted {
		return
	}
	g.times.remove(s)
	s.deadline = s.posted + d.Milliseconds()
	heap.Push(&g.times.custom, s)
}

// take gives the place of a delivery back to its member. posted says that nothing was known of it until now.
func (g *Group) take(s *slot, m *Member) (it item, l *lane, posted bool) {
	g.times.remove(s)
	it, l, posted = s.item, s.lane, s.state == slotPosted
	if posted {
		g.unpost(s)
	}
	g.release(s)
	g.members.link(m)
	return it, l, posted
}

// Drop ends a delivery that cannot be made because its message is no longer there or cannot be read. It counts as taken.
func (g *Group) Drop(m *Member, handle uint32, now int64) {
	if m.group == nil {
		return
	}
	s := m.slots.lookup(handle)
	if s == nil {
		return
	}
	it, l, posted := g.take(s, m)
	if posted {
		g.done(it, l, now)
	}
}

// Expire fails what has not been answered in time.
func (g *Group) Expire(now int64) {
	for s := g.times.posted.head; s != nil && s.deadline <= now; s = g.times.posted.head {
		g.timedOut(s, now)
	}
	for len(g.times.custom) > 0 && g.times.custom[0].deadline <= now {
		g.timedOut(g.times.custom[0], now)
	}
	for s := g.times.late.head; s != nil && s.deadline <= now; s = g.times.late.head {
		g.times.remove(s)
		m := s.member
		g.release(s)
		g.members.link(m)
	}
	if g.gaps <= now {
		g.gaps = Never
		for _, s := range g.streams {
			s.advance(now)
			g.gaps = min(g.gaps, s.deadline())
		}
	}
}

// Deadline is when Expire has to be called next, Never when nothing is posted and no acknowledgement waits above a gap. It may
// be too early, never too late. Any call that changes the group may bring it forward.
func (g *Group) Deadline() int64 { return g.times.next(g.gaps) }

func (g *Group) timedOut(s *slot, now int64) {
	g.counts.TimedOut++
	g.times.remove(s)
	it, l := s.item, s.lane
	g.unpost(s)
	g.keepLate(s, now)
	g.fail(it, l, now)
}

// keepLate keeps a slot for an answer that comes late. A member with credit holds its place until it answers.
func (g *Group) keepLate(s *slot, now int64) {
	s.state = slotLate
	if !s.member.limited {
		s.deadline = now + g.cfg.LateKeep.Milliseconds()
		g.times.late.push(s)
	}
}

// unpost takes a slot out of the watermark's count and of the retry table. Its member's load stays until release.
func (g *Group) unpost(s *slot) {
	s.lane.out--
	g.wakeLane(s.lane)
	if s.source == fromRetry {
		if r := g.retrying[s.msg.Address]; r != nil && r.slot == s {
			r.slot = nil
		}
	}
}

// release frees a slot and its member's place.
func (g *Group) release(s *slot) {
	m := s.member
	m.loadB -= int64(s.msg.Size)
	m.slots.put(s)
	g.members.add(m, -1)
}

// done ends an item that was taken, fail one that has to wait for its next attempt.
func (g *Group) done(it item, l *lane, now int64) {
	g.end(it, l, now)
	if it.source == fromRetry {
		r := g.over(it.msg.Address)
		r.taken = true
		r.ops++
	}
	if it.source != fromCursor { // the cursor says it
		g.outs = append(g.outs, outcome{msg: it.msg, source: it.source, share: it.share})
	}
}

func (g *Group) fail(it item, l *lane, now int64) {
	g.counts.Failed++
	attempts := it.attempt + 1
	if it.source == fromCursor {
		l.stream.failed(it.msg)
	}
	g.end(it, l, now)
	g.later(it, attempts, now+Backoff(attempts).Milliseconds())
}

// later makes a retry of an item.
func (g *Group) later(it item, attempts int32, due int64) {
	g.over(it.msg.Address).ops++
	g.outs = append(g.outs, outcome{msg: it.msg, source: it.source, share: it.share, failed: true, attempt: attempts, due: due})
}

func (g *Group) end(it item, l *lane, now int64) {
	switch it.source {
	case fromWindow:
		l.stream.owed--
	case fromCursor:
		l.stream.taken(it.msg, now)
	case fromRetry:
	}
}

// endLate honours an acknowledgement for a message that had failed: it leaves the retry line, wherever it is by now.
func (g *Group) endLate(msg *Message) {
	if r := g.retrying[msg.Address]; r != nil {
		if r.taken {
			return
		}
		if s := r.slot; s != nil { // another machine has it: its answer says nothing any more
			g.times.remove(s)
			g.unpost(s)
			g.keepLate(s, s.posted)
		} else if !r.over {
			g.count(r, -1)
		}
	}
	r := g.over(msg.Address)
	r.taken = true
	r.ops++
	g.outs = append(g.outs, outcome{msg: msg, source: fromRetry})
}

// eachPosted calls fn for every posted slot.
func (g *Group) eachPosted(fn func(*slot)) {
	for s := g.times.posted.head; s != nil; s = s.next {
		fn(s)
	}
	for _, s := range g.times.custom {
		fn(s)
	}
}
