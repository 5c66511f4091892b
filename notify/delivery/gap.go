package delivery

// Behind is how many messages of the cursor are acknowledged and above one that is not: a crash brings them again.
func (s *Stream) Behind() int { return s.behind }

// advance moves the cursor over what is done, and makes a retry of a message that has kept acknowledged ones from being
// written for too long: the cursor can then pass it, and after a crash only it is delivered again.
func (s *Stream) advance(now int64) {
	s.shift()
	if s.behind == 0 {
		s.stuck = 0
		return
	}
	if s.stuck == 0 {
		s.stuck = now
	}
	if now-s.stuck < s.group.cfg.Linger.Milliseconds() {
		return
	}
	s.convert(s.behind, Never, now)
}

// convert moves the cursor on, over as many done messages, or below an address: everything not done on the way goes on as
// a retry, posted or waiting, no attempt counted.
func (s *Stream) convert(done int, below int64, now int64) {
	g := s.group
	slots, items := make(map[*Message]*slot), make(map[*Message]*item)
	g.eachPosted(func(sl *slot) {
		if sl.source == fromCursor && sl.lane.stream == s {
			slots[sl.msg] = sl
		}
	})
	for _, l := range s.lanes {
		for _, q := range []*fifo[item]{&l.again, &l.first} {
			for i := range q.len() {
				if it := q.at(i); it.source == fromCursor {
					items[it.msg] = it
				}
			}
		}
	}
	for done > 0 && s.open.len() > 0 && (*s.open.at(0)).Address < below {
		m := *s.open.at(0)
		if m.done {
			done--
		} else {
			r := g.known(m.Address)
			r.slot = slots[m]
			it := items[m]
			if r.slot != nil {
				it = &r.slot.item
			} else {
				g.retries++
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
	s.stuck = 0
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
		s.convert(s.open.len(), s.passTo, now)
	}
	s.passTo = 0
}

func (s *Stream) deadline() int64 {
	if s.stuck == 0 {
		return Never
	}
	return s.stuck + s.group.cfg.Linger.Milliseconds()
}
