package delivery

import (
	"slices"

	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

// Mode is how a group follows a topic.
type Mode uint8

const (
	Detached  Mode = iota // served from the cursor
	Attaching             // the attach is being written; its place in the log is not known yet
	Joining               // attached; the cursor still reads on to the attach record
	Attached              // served from the window
	Detaching             // the detach is being written
)

// String names the mode for logs and status pages.
func (m Mode) String() string {
	return [...]string{"detached", "attaching", "joining", "attached", "detaching"}[m]
}

// Stream is the first deliveries of one topic to one group.
type Stream struct {
	Topic string

	group  *Group
	lanes  []*lane         // rest first
	direct map[int64]*lane // by hash of the message type
	rest   *lane           // for what no direct binding names

	mode   Mode
	attach int64 // address of the attach record; Joining and Attached

	// held are messages from the window that came while the cursor has not been read up to the attach record.
	held   fifo[item]
	owed   int // window messages that wait or are posted
	unread int // cursor messages that wait for a machine

	// The cursor. Messages in open came through it, in address order; those in front are not done. Everything below
	// position is done or a retry. readTo is where reading goes on.
	open     fifo[*Message]
	behind   int // done ones in open: acknowledged, but the cursor cannot say so
	position int64
	readTo   int64
	reported int64 // what the ledger was told
	skipFrom int64 // what was owed by the window while the cursor was still below: not read again
	skipTo   int64
	passTo   int64 // a message here has failed: the cursor must not stay below its retry
	dirty    bool  // is in group.moved
	stuck    int64 // since when the front of open keeps done ones from being written; 0: it does not
}

// lane is what one binding of a stream delivers: it has a watermark of its own.
type lane struct {
	stream *Stream
	kind   state.BindingKind
	expr   string
	limit  int
	out    int // posted and not answered

	again fifo[item] // second machine, before all others
	retry fifo[item]
	first fifo[item]
	// alternate makes retries and first deliveries take turns, so that neither waits behind the other's backlog.
	alternate bool
	queued    bool // in group.ready

	pump  uint64 // call of Pump that share is of
	share int    // messages for one member in a row
}

func (l *lane) waiting() int { return l.again.len() + l.retry.len() + l.first.len() }

func (l *lane) runnable() bool { return l.out < l.limit && l.waiting() > 0 }

// next is the queue that is served next; one of them is not empty.
func (l *lane) next() *fifo[item] {
	switch {
	case l.again.len() > 0:
		return &l.again
	case l.first.len() == 0, l.retry.len() > 0 && l.alternate:
		return &l.retry
	}
	return &l.first
}

// Stream returns the group's stream of a topic, made when it is missing.
func (g *Group) Stream(topic string) *Stream {
	s := g.streams[topic]
	if s == nil {
		s = &Stream{Topic: topic, group: g}
		s.rest = &lane{stream: s, limit: g.cfg.WaterMark}
		s.lanes = append(s.lanes, s.rest)
		if g.streams == nil {
			g.streams = make(map[string]*Stream)
		}
		g.streams[topic] = s
	}
	return s
}

// Streams calls fn for each stream.
func (g *Group) Streams(fn func(*Stream)) {
	for _, s := range g.streams {
		fn(s)
	}
}

// Mode is how the group follows the topic now.
func (s *Stream) Mode() Mode { return s.mode }

// Bindings sets the bindings that hold now. Messages that wait keep their lane.
func (s *Stream) Bindings(bs []state.Binding) {
	type name struct {
		kind state.BindingKind
		expr string
	}
	have := make(map[name]*lane, len(s.lanes))
	for _, l := range s.lanes[1:] {
		have[name{l.kind, l.expr}] = l
	}
	wanted := make(map[*lane]bool, len(bs))
	s.direct = nil
	s.rest.limit = s.group.cfg.WaterMark
	for _, b := range bs {
		limit := int(b.WaterMark)
		if limit <= 0 {
			limit = s.group.cfg.WaterMark
		}
		if b.Kind == state.BindFanout {
			s.rest.limit = limit
			continue
		}
		l := have[name{b.Kind, b.Expr}]
		if l == nil {
			l = &lane{stream: s, kind: b.Kind, expr: b.Expr}
			s.lanes = append(s.lanes, l)
		}
		l.limit = limit
		wanted[l] = true
		s.group.wakeLane(l)
		if s.direct == nil {
			s.direct = make(map[int64]*lane, len(bs))
		}
		s.direct[int64(record.HashCode(b.Expr))] = l
	}
	s.group.wakeLane(s.rest)
	// A lane whose binding is gone stays while it has work.
	s.lanes = slices.DeleteFunc(s.lanes, func(l *lane) bool {
		return l != s.rest && !wanted[l] && l.out == 0 && l.waiting() == 0 && !l.queued
	})
}

func (s *Stream) lane(tagsCode int64) *lane {
	if l := s.direct[tagsCode]; l != nil {
		return l
	}
	return s.rest
}

// Owe takes a message from the window. It reports true when more waits than the group may keep, and a detach is due.
// For a group that the window no longer owes anything the share is given up at once: the store has made a retry of it.
func (s *Stream) Owe(m *Message, share int32) (overflow bool) {
	it := item{msg: m, share: share, source: fromWindow}
	if m.Address < s.attach {
		// Of a sync topic: it was owed by an earlier attach, and became visible, and so known here, only now.
		s.group.ledger.moved(m, share)
		return false
	}
	switch s.mode {
	case Detached:
		s.group.ledger.moved(m, share)
		return false
	case Attaching, Joining:
		s.held.push(it)
		s.owed++
	default:
		s.owed++
		l := s.lane(m.TagsCode)
		l.first.push(it)
		s.group.wakeLane(l)
	}
	return s.owed > s.group.cfg.DetachBacklog && s.mode != Detaching
}

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
func (s *Stream) Read(ms []*Message, next int64, now int64) {
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
	s.advance(now)
}

// CanAttach tells whether a group whose cursor has come to the head may be attached: its machines have taken almost all
// that the cursor found and of the retries that are due, so they keep up, and nothing of an earlier attach is left for
// the cursor to step over. Otherwise a slow group would be attached, overflow, and be attached again, with a retry for
// every message.
func (s *Stream) CanAttach() bool {
	return s.mode == Detached && s.unread <= nearHead && s.group.retries <= nearHead && (s.skipFrom >= s.skipTo || s.position >= s.skipTo)
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
// In between nothing new of the window is posted. Afterwards what was posted goes on as retries, which the store has
// made of it without counting the attempt, and what waited is left to the retry line.
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
			g.known(sl.msg.Address).slot = sl
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
	s.unread, s.behind, s.stuck = 0, 0, 0
	return left
}

// Owed is how many window messages wait or are posted, Position what the cursor has passed.
func (s *Stream) Owed() int       { return s.owed }
func (s *Stream) Position() int64 { return s.position }

// Behind is how many messages of the cursor are acknowledged and above one that is not: a crash brings them again.
func (s *Stream) Behind() int { return s.behind }

// taken marks a cursor message done; the cursor moves in advance.
func (s *Stream) taken(m *Message) {
	if !m.done {
		m.done = true
		s.behind++
	}
	s.shift()
}

// shift drops the done ones in front.
func (s *Stream) shift() {
	was := s.position
	for s.open.len() > 0 && (*s.open.at(0)).done {
		s.position = s.open.pop().Address + 1
		s.behind--
		s.stuck = 0
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

// eachPosted calls fn for every posted slot.
func (g *Group) eachPosted(fn func(*slot)) {
	for s := g.times.posted.head; s != nil; s = s.next {
		fn(s)
	}
	for _, s := range g.times.custom {
		fn(s)
	}
}
