package delivery

// quantum is how many messages one lane posts before another has its turn.
const quantum = 64

// Pump posts what can be posted and hands the outcomes so far to the ledger. It is to be called before the group's lock
// is given up after any other call that changes the group.
func (g *Group) Pump(now int64) {
	g.pumps++
	for n := g.ready.len(); n > 0 && g.members.n > 0; {
		l := g.ready.pop()
		l.queued = false
		full := false
		if l.pump != g.pumps {
			l.pump, l.share = g.pumps, max(1, min(l.waiting(), l.limit-l.out)/g.members.n)
		}
		var r run
		for i := 0; i < quantum && l.runnable(); i++ {
			if full = !g.postOne(l, now, &r); full {
				break
			}
		}
		g.endRun(&r)
		if l.runnable() {
			l.queued = true
			if full {
				g.ready.pushFront(l)
				break
			}
			g.ready.push(l)
		}
		n = g.ready.len()
	}
	for i, m := range g.touched {
		m.touched = false
		m.Conn.Kick()
		g.touched[i] = nil
	}
	g.touched = g.touched[:0]
	g.settle(now)
}

// run is a row of neighbours that go to one member: its connection writes them at once, from one place in the log. It is
// as long as what waits when Pump begins goes round among the members, so with little waiting every message goes where the load is least.
type run struct {
	m    *Member
	left int   // messages that it may still get
	room int64 // and bytes
	n    int   // it got; its place among the members is not changed yet
}

// runBytes is where a run ends.
const runBytes = 128 << 10

// member is who gets an item of a lane, nil when nobody takes it.
func (g *Group) member(l *lane, it *item, r *run) *Member {
	if r.left > 0 && r.room > 0 && it.except == nil && r.m.fits() {
		return r.m
	}
	g.endRun(r)
	m := g.members.pick(it.except)
	if m != nil && it.except == nil {
		*r = run{m: m, left: l.share, room: runBytes}
	}
	return m
}

func (g *Group) endRun(r *run) {
	if r.n > 0 {
		r.m.load -= r.n // add is told of all of them
		g.members.add(r.m, r.n)
	}
	*r = run{}
}

// postOne posts the lane's next message; false when no member takes it.
func (g *Group) postOne(l *lane, now int64, r *run) bool {
	q := l.next()
	it := *q.at(0)
	var known *retrying
	if it.source == fromRetry {
		if known = g.retrying[it.msg.Address]; known == nil || known.over {
			q.pop() // ended by a late answer while it waited
			return true
		}
	}
	m := g.member(l, &it, r)
	if m == nil && it.except != nil {
		q.pop()
		if it.except.group != g { // the machine that could not take it has gone, so nobody is excepted
			it.except = nil
			l.again.pushFront(it)
			return true
		}
		if known != nil {
			g.count(known, -1)
		}
		g.fail(it, l, now) // no other machine takes anything now
		return true
	}
	if m == nil {
		return false
	}
	q.pop()
	l.alternate = q == &l.first
	s := m.slots.take(m)
	if len(m.slots.blocks) > slotKeep && !m.slots.grown {
		m.slots.grown = true
		g.grown = append(g.grown, m)
	}
	s.item, s.lane, s.state = it, l, slotPosted
	s.posted, s.deadline = now, now+g.cfg.AckTimeout.Milliseconds()
	g.times.posted.push(s)
	if known != nil {
		known.slot = s
		g.count(known, -1)
	}
	if it.source == fromCursor && q == &l.first {
		l.stream.unread--
	}
	l.out++
	m.loadB += int64(it.msg.Size)
	if m == r.m {
		m.load++
		r.n++
		r.left--
		r.room -= int64(it.msg.Size)
	} else {
		g.members.add(m, 1)
	}
	g.counts.Posted++
	m.Conn.Push(Delivery{Message: it.msg, Group: g.Name, Attempt: it.attempt + 1, Handle: s.handle()})
	if !m.touched {
		m.touched = true
		g.touched = append(g.touched, m)
	}
	return true
}
