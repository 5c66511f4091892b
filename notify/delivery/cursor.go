package delivery

// Start places the cursor, from what the store says. skipFrom and skipTo bound what the cursor does not read.
func (s *Stream) Start(position, skipFrom, skipTo int64) {
	s.position, s.reported, s.readTo = position, position, position
	s.skipFrom, s.skipTo = skipFrom, skipTo
	s.jump()
}

func (s *Stream) jump() {
	if s.skipFrom < s.skipTo && s.readTo >= s.skipFrom && s.readTo < s.skipTo {
		s.readTo = s.skipTo
	}
}

// ReadTo is where reading goes on, and the address to stop at when that is not Never.
func (s *Stream) ReadTo() (from, stop int64) {
	stop = Never
	if s.skipFrom < s.skipTo && s.readTo < s.skipFrom {
		stop = s.skipFrom
	}
	if s.mode == Joining {
		stop = min(stop, s.attach)
	}
	return s.readTo, stop
}

// WantsMore tells whether the stream's cursor should be read on: it is not at the attach record, and little waits.
func (s *Stream) WantsMore() bool {
	return (s.mode == Detached || s.mode == Attaching || s.mode == Joining && s.readTo < s.attach) && s.unread < readAhead/2
}

// readAhead is how many cursor messages may wait for a machine.
const readAhead = 1024

// Read takes the messages that the cursor found, in address order; everything below next was looked at.
func (s *Stream) Read(ms []*Message, next int64) {
	for _, m := range ms {
		s.open.push(m)
		s.unread++
		l := s.lane(m.TagsCode)
		l.first.push(item{msg: m, source: fromCursor})
		s.group.wakeLane(l)
	}
	s.readTo = next
	s.jump()
	s.shift()
	if s.mode == Joining && s.readTo >= s.attach {
		s.joined()
	}
}

// Abandon is called when the last member has gone: what the cursor found and nobody took is read again later. Where
// later messages are done and earlier ones are not, the earlier ones become retries, no attempt counted, so that what
// was acknowledged is not delivered again. It returns how many that it had found are left.
func (s *Stream) Abandon(now int64) (left int) {
	g := s.group
	waiting := make(map[*Message]item)
	for _, l := range s.lanes {
		for _, q := range []*fifo[item]{&l.again, &l.first} {
			for n := q.len(); n > 0; n-- {
				it := q.pop()
				if it.source == fromCursor {
					waiting[it.msg] = it
				} else {
					q.push(it)
				}
			}
		}
	}
	last := -1
	for i := range s.open.len() {
		if (*s.open.at(i)).done {
			last = i
		}
	}
	for i := 0; i <= last; i++ {
		if m := *s.open.at(i); !m.done {
			g.later(item{msg: m, source: fromCursor}, waiting[m].attempt, now)
			m.done = true
			s.behind++
		}
	}
	s.shift()
	if left = s.open.len(); left > 0 {
		if at := (*s.open.at(0)).Address; at > s.position {
			s.position = at
			s.mark() // CanAttach goes by it, so the log must say it before an attach
		}
		s.open.clear()
		s.readTo = s.position
		s.jump()
	}
	s.unread, s.behind = 0, 0
	s.above.clear()
	return left
}

// taken marks a cursor message done. One that the cursor cannot pass, because one below it is not done, waits above the gap.
func (s *Stream) taken(m *Message, now int64) {
	if !m.done {
		m.done = true
		s.behind++
	}
	s.shift()
	if m.Address >= max(s.position, s.passTo) {
		s.trimAbove() // so it holds at most twice what open did
		s.above.push(aboveGap{m.Address, now})
		s.group.gaps = min(s.group.gaps, now+s.group.cfg.Linger.Milliseconds())
	}
}

// shift drops the done ones in front.
func (s *Stream) shift() {
	was := s.position
	for s.open.len() > 0 && (*s.open.at(0)).done {
		s.position = s.open.pop().Address + 1
		s.behind--
	}
	if s.open.len() == 0 {
		s.position = max(s.position, s.readTo)
	}
	if s.position > was {
		s.mark()
	}
}

// mark has the ledger told of the cursor's place at the next settle.
func (s *Stream) mark() {
	if !s.dirty {
		s.dirty = true
		s.group.moved = append(s.group.moved, s)
	}
}

// report is where the cursor is, when the ledger does not know.
func (s *Stream) report() (at int64, news bool) {
	if s.position <= s.reported {
		return 0, false
	}
	at = s.position
	if s.mode == Attached || s.mode == Joining {
		at = min(at, s.attach) // the store's cursor stands at the attach record while the group is attached
		if at <= s.reported {
			return 0, false
		}
	}
	s.reported = at
	return at, true
}
