package delivery

import "github.com/fusionmq/fusionmq/store/state"

// CanAttach tells whether a group whose cursor has come to the head may be attached: its machines have taken almost all
// that the cursor found and of the retries that are due, so they keep up, and nothing of an earlier attach is left for
// the cursor to step over. Otherwise a slow group would be attached, overflow, and be attached again, with a retry for
// every message.
func (s *Stream) CanAttach() bool {
	return s.mode == Detached && s.unread <= nearHead && s.group.waiting[0]+s.group.waiting[1] <= nearHead && (s.skipFrom >= s.skipTo || s.position >= s.skipTo)
}

// nearHead is how many cursor messages, and how many retries, may still wait for a machine when a group is attached.
const nearHead = 64

// BeginAttach and EndAttach bracket the writing of the attach record. at is its address, or -1 when it was not written.
func (s *Stream) BeginAttach() { s.mode = Attaching }

func (s *Stream) EndAttach(at int64) {
	if at < 0 {
		s.mode = Detached
		for s.held.len() > 0 { // nothing can be owed without an attach
			it := s.held.pop()
			s.owed--
			s.group.ledger.moved(it.msg, it.share)
		}
		return
	}
	s.mode, s.attach, s.skipFrom, s.skipTo = Joining, at, 0, 0
	for n := s.held.len(); n > 0; n-- {
		if it := s.held.pop(); it.msg.Address < at { // as in Owe
			s.owed--
			s.group.ledger.moved(it.msg, it.share)
		} else {
			s.held.push(it)
		}
	}
	if s.readTo >= at {
		s.joined()
	}
}

// Refused takes back an attach whose record the store has not taken, instead of EndAttach. pos is where the store says that
// the group stands. What it does not know of the cursor is told again, and what it owes by retries the cursor steps over, so
// that the next attach is not refused for the same reason.
func (s *Stream) Refused(pos state.GroupPosition) {
	s.EndAttach(-1)
	s.reported = min(s.reported, pos.Cursor)
	if s.position < pos.SkipTo {
		s.skipFrom, s.skipTo = pos.SkipFrom, pos.SkipTo
		s.jump()
	}
	s.shift()
	s.mark()
}

// joined is called when the cursor was read up to the attach record: what was held follows what it found.
func (s *Stream) joined() {
	s.mode = Attached
	for s.held.len() > 0 {
		it := s.held.pop()
		l := s.lane(it.msg.TagsCode)
		l.first.push(it)
		s.group.wakeLane(l)
	}
}

// BeginDetach and EndDetach bracket the writing of the detach record; at is its address, or -1 when it was not written.
// In between the window is posted as before, and nothing of the retry line. Afterwards what was posted goes on as retries,
// which the store has made of it without counting the attempt, and what waited is left to the retry line.
func (s *Stream) BeginDetach() (was Mode) {
	was = s.mode
	s.mode = Detaching
	return was
}

func (s *Stream) EndDetach(at int64, was Mode, now int64) {
	if at < 0 {
		s.mode = was
		if s.readTo < s.attach {
			s.mode = Joining // Abandon gave back what the cursor had found
		}
		return
	}
	g := s.group
	s.mode = Detached
	for s.held.len() > 0 {
		s.held.pop()
	}
	for _, l := range s.lanes {
		for _, q := range []*fifo[item]{&l.again, &l.first} {
			for n := q.len(); n > 0; n-- {
				if it := q.pop(); it.source != fromWindow {
					q.push(it)
				}
			}
		}
	}
	g.eachPosted(func(sl *slot) {
		if sl.source == fromWindow && sl.lane.stream == s {
			sl.source = fromRetry
			r := g.known(sl.msg.Address)
			r.slot, r.front = sl, true
		}
	})
	s.owed = 0
	if s.readTo < s.attach || s.open.len() > 0 {
		// The cursor goes on to the attach record, and then over what the window owed.
		s.skipFrom, s.skipTo = s.attach, at
		if s.readTo >= s.attach {
			s.readTo = at
		}
	} else {
		s.position, s.reported, s.readTo = at, at, at
	}
	s.attach = 0
}
