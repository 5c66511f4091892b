package delivery

// aboveGap is a message that was acknowledged while one below it was not done, so that the cursor could not say it.
type aboveGap struct {
	address int64
	since   int64 // milliseconds; when it was acknowledged
}

// Behind is how many messages of the cursor are acknowledged and above one that is not: a crash brings them again.
func (s *Stream) Behind() int { return s.behind }

// advance writes the acknowledgements that have waited above a gap for the linger time: what is not done below them becomes
// a retry, so that the cursor can pass it, and after a crash only that is delivered again.
func (s *Stream) advance(now int64) {
	below := int64(0)
	for s.above.len() > 0 {
		a := s.above.at(0)
		if a.address >= s.position {
			if now-a.since < s.group.cfg.Linger.Milliseconds() {
				break
			}
			below = max(below, a.address+1)
		}
		s.above.pop()
	}
	if below > s.position {
		s.convert(below, now)
	}
}

// deadline is when advance has something to do, Never when nothing waits above a gap.
func (s *Stream) deadline() int64 {
	s.trimAbove()
	if s.above.len() == 0 {
		return Never
	}
	return s.above.at(0).since + s.group.cfg.Linger.Milliseconds()
}

// trimAbove forgets acknowledgements that the cursor has passed, up to the oldest that it has not.
func (s *Stream) trimAbove() {
	for s.above.len() > 0 && s.above.at(0).address < s.position {
		s.above.pop()
	}
}

// convert moves the cursor on to an address, over done messages: everything not done on the way goes on as a retry, posted or
// waiting, no attempt counted.
func (s *Stream) convert(below, now int64) {
	g := s.group
	slots, items := make(map[*Message]*slot), make(map[*Message]*item)
	g.eachPosted(func(sl *slot) {
		if sl.source == fromCursor && sl.lane.stream == s && sl.msg.Address < below {
			slots[sl.msg] = sl
		}
	})
	for _, l := range s.lanes {
		for _, q := range []*fifo[item]{&l.again, &l.first} {
			for i := range q.len() {
				if it := q.at(i); it.source == fromCursor && it.msg.Address < below {
					items[it.msg] = it
				}
			}
		}
	}
	for s.open.len() > 0 && (*s.open.at(0)).Address < below {
		m := *s.open.at(0)
		if !m.done {
			r := g.known(m.Address)
			r.slot = slots[m]
			it := items[m]
			if r.slot != nil {
				it = &r.slot.item
			} else {
				g.count(r, 1)
				if !it.second { // those of again were counted when they were posted first
					s.unread--
				}
			}
			it.source = fromRetry
			r.ops++
			g.outs = append(g.outs, outcome{msg: m, source: fromCursor, failed: true, attempt: it.attempt, due: now})
			m.done = true
			s.behind++
		}
		s.position = s.open.pop().Address + 1
		s.behind--
	}
	s.mark()
	s.shift()
}

// failed is called for a cursor message that has become a retry. The cursor passes it in the same record: were it to
// stay below, a crash would leave the message with both, and it would come again after its retry was taken.
func (s *Stream) failed(m *Message) {
	s.passTo = max(s.passTo, m.Address+1)
	s.mark()
}

// pass does what failed has asked for.
func (s *Stream) pass(now int64) {
	if s.position < s.passTo && s.open.len() > 0 {
		s.convert(s.passTo, now)
	}
	s.passTo = 0
}
