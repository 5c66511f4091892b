package delivery

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Config holds the numbers of delivery. The zero value of a field means its default.
type Config struct {
	AckTimeout    time.Duration   // wait for an answer when the message asks for none of its own. Default 5 s
	LateKeep      time.Duration   // how long after a timeout an answer is still honoured. Default 60 s
	DetachBacklog int             // most messages of a topic that may wait in an attached group. Default 10,000
	WaterMark     int             // most unanswered messages of a binding that states none. Default 10,000
	Linger        time.Duration   // how long an acknowledgement may wait for those of other groups. Default 250 ms
	Rand          func(n int) int // a number in [0, n). Default math/rand/v2
}

func (c Config) withDefaults() Config {
	if c.AckTimeout == 0 {
		c.AckTimeout = 5 * time.Second
	}
	if c.LateKeep == 0 {
		c.LateKeep = time.Minute
	}
	if c.DetachBacklog == 0 {
		c.DetachBacklog = 10_000
	}
	if c.WaterMark == 0 {
		c.WaterMark = 10_000
	}
	if c.Linger == 0 {
		c.Linger = 250 * time.Millisecond
	}
	if c.Rand == nil {
		c.Rand = rand.IntN
	}
	return c
}

// Never is a deadline that does not come.
const Never = math.MaxInt64

// Counts are a group's numbers; those above the line are totals since the process started.
type Counts struct {
	Posted, Acked, Failed, TimedOut, SecondTries, Late uint64

	Members, Waiting, Unanswered int
}

// Group is one subscriber group on this broker.
type Group struct {
	Name string

	cfg     Config
	ledger  *Ledger
	streams map[string]*Stream
	members members
	times   timeouts
	counts  Counts

	// ready are the lanes that have something to post and room under their watermark; a lane is in it at most once.
	ready fifo[*lane]

	// retrying are the messages of the group's retry line that are known here: waiting for a machine, posted, or with an
	// outcome that the store has not applied yet. The line shows them until then and must not be served from twice.
	retrying map[int64]*retrying
	retries  int     // of retrying: those that wait for a machine
	loading  bool    // somebody reads the line: what he has read may be older than what is known here
	applied  []int64 // of retrying: what would have been forgotten meanwhile

	pumps   uint64    // calls of Pump
	touched []*Member // members that Pump has pushed to
	grown   []*Member // whose slots have taken more memory than an idle member keeps
	outs    []outcome // for the ledger
	moved   []*Stream // whose cursor has moved
	cursors []cursorAt
}

// retrying is one message of the retry line that is in memory.
type retrying struct {
	slot  *slot // posted; nil: waiting in a lane, or over
	over  bool  // it has an outcome: it waits for its next attempt, or is done
	taken bool  // done
	ops   int   // operations on it that the store has not applied yet
}

// NewGroup makes a group without members.
func NewGroup(name string, cfg Config, l *Ledger) *Group {
	g := &Group{Name: name, cfg: cfg.withDefaults(), ledger: l}
	g.members.rand = g.cfg.Rand
	return g
}

// Members is the number of connections.
func (g *Group) Members() int { return g.members.n }

// Counts returns the group's numbers.
func (g *Group) Counts() Counts {
	c := g.counts
	c.Members = g.members.n
	for _, s := range g.streams {
		for _, l := range s.lanes {
			c.Waiting += l.waiting()
			c.Unanswered += l.out
		}
		c.Waiting += s.held.len()
	}
	return c
}

// Join adds a connection. Without limited it is sent whatever the watermarks allow; with it nothing until Credit.
func (g *Group) Join(c Conn, index uint8, limited bool) *Member {
	m := &Member{Conn: c, Index: index, group: g, limited: limited}
	g.members.n++
	g.members.link(m)
	return m
}

// Group is the group that the member belongs to.
func (m *Member) Group() *Group { return m.group }

// Limit says whether the member is sent only what Credit allows, or what the watermarks allow.
func (g *Group) Limit(m *Member, on bool) {
	m.limited = on
	g.members.link(m)
}

// Credit sets how much the member may have unanswered. It is a level: the newest one holds.
func (g *Group) Credit(m *Member, messages uint32, bytes int64) {
	m.limited, m.credit, m.bytes = true, messages, bytes
	g.members.link(m)
}

// Wake tells that a member may have room again.
func (g *Group) Wake(m *Member) {
	if m.group != nil {
		g.members.link(m)
	}
}

// Leave removes a connection. What it had posted goes to another machine, with the attempt not counted; a message that
// loses its second machine too has failed. When no member is left, everything waits for the service to detach.
func (g *Group) Leave(m *Member, now int64) {
	if m.group == nil {
		return
	}
	g.members.unlink(m)
	g.members.n--
	for _, b := range m.slots.blocks {
		for i := range b {
			s := &b[i]
			if s.state == slotFree {
				continue
			}
			g.times.remove(s)
			if s.state == slotPosted {
				it, l := s.item, s.lane
				g.unpost(s)
				if it.second && g.members.n > 0 {
					g.fail(it, l, now)
				} else {
					g.again(it, l, nil)
				}
			}
		}
	}
	if m.slots.grown {
		g.grown = slices.DeleteFunc(g.grown, func(o *Member) bool { return o == m })
	}
	m.slots = slotTable{}
	m.load, m.loadB, m.group = 0, 0, nil
}

// again gives an item to a second machine, before everything else.
func (g *Group) again(it item, l *lane, except *Member) {
	it.second, it.except = true, except
	g.counts.SecondTries++
	if it.source == fromRetry {
		g.retries++
	}
	l.again.push(it)
	g.wakeLane(l)
}

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
	g.times.remove(s)
	it, l, posted := s.item, s.lane, s.state == slotPosted
	if posted {
		g.unpost(s)
	}
	g.release(s)
	g.members.link(m)
	switch {
	case !posted:
		if v != Acked {
			return false // the verdict is known already: further failures are ignored (rulings A11)
		}
		g.counts.Late++
		g.endLate(it.msg)
	case v == Acked:
		g.counts.Acked++
		g.done(it, l)
	case (v == Busy || v == Unknown) && !it.second && g.members.n > 1:
		g.again(it, l, m)
	default:
		g.fail(it, l, now)
	}
	return true
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

// Drop ends a delivery that cannot be made because its message is no longer there or cannot be read. It counts as taken.
func (g *Group) Drop(m *Member, handle uint32) {
	if m.group == nil {
		return
	}
	s := m.slots.lookup(handle)
	if s == nil {
		return
	}
	g.times.remove(s)
	it, l, posted := s.item, s.lane, s.state == slotPosted
	if posted {
		g.unpost(s)
	}
	g.release(s)
	g.members.link(m)
	if posted {
		g.done(it, l)
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
	for _, s := range g.streams {
		s.advance(now)
	}
}

// Deadline is when Expire has something to do, Never when nothing is posted.
func (g *Group) Deadline() int64 {
	d := g.times.next(Never)
	for _, s := range g.streams {
		d = min(d, s.deadline())
	}
	return d
}

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
func (g *Group) done(it item, l *lane) {
	g.end(it, l)
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
	g.end(it, l)
	if it.source == fromCursor {
		l.stream.failed(it.msg)
	}
	g.later(it, attempts, now+Backoff(attempts).Milliseconds())
}

// later makes a retry of an item.
func (g *Group) later(it item, attempts int32, due int64) {
	g.over(it.msg.Address).ops++
	g.outs = append(g.outs, outcome{msg: it.msg, source: it.source, share: it.share, failed: true, attempt: attempts, due: due})
}

func (g *Group) end(it item, l *lane) {
	switch it.source {
	case fromWindow:
		l.stream.owed--
	case fromCursor:
		l.stream.taken(it.msg)
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
			g.retries--
		}
	}
	r := g.over(msg.Address)
	r.taken = true
	r.ops++
	g.outs = append(g.outs, outcome{msg: msg, source: fromRetry})
}

// Taken tells of messages of the retry line that are done, with the operation that says so on its way.
func (g *Group) Taken(addresses []int64) {
	for _, a := range addresses {
		r := g.over(a)
		r.taken = true
		r.ops++
	}
}

// known is what is known of a message of the retry line; made when it is missing.
func (g *Group) known(address int64) *retrying {
	r := g.retrying[address]
	if r == nil {
		if g.retrying == nil {
			g.retrying = make(map[int64]*retrying)
		}
		r = &retrying{}
		g.retrying[address] = r
	}
	return r
}

func (g *Group) over(address int64) *retrying {
	r := g.known(address)
	r.over, r.slot = true, nil
	return r
}

// settle hands the collected outcomes to the ledger. It runs before the group's lock is given up, so that a detach never
// overtakes an acknowledgement.
func (g *Group) settle(now int64) {
	for _, s := range g.moved {
		s.pass(now)
	}
	for i, s := range g.moved {
		if at, news := s.report(); news {
			g.cursors = append(g.cursors, cursorAt{s.Topic, at})
		}
		s.dirty = false
		g.moved[i] = nil
	}
	g.moved = g.moved[:0]
	if len(g.outs) > 0 || len(g.cursors) > 0 {
		g.ledger.settle(g.Name, g.outs, g.cursors)
		clear(g.outs)
		g.outs, g.cursors = g.outs[:0], g.cursors[:0]
	}
}

// Settle hands the outcomes so far to the ledger, as Pump does, and posts nothing.
func (g *Group) Settle(now int64) { g.settle(now) }

// Trim gives back the memory that a crowd has left behind. It is to be called when the group has come to rest.
func (g *Group) Trim() {
	for _, s := range g.streams {
		s.open.trim()
		s.held.trim()
		for _, l := range s.lanes {
			l.again.trim()
			l.retry.trim()
			l.first.trim()
		}
	}
	left := g.grown[:0]
	for _, m := range g.grown {
		if m.slots.trim(); len(m.slots.blocks) > slotKeep {
			left = append(left, m)
		}
	}
	clear(g.grown[len(left):])
	g.grown = left
}

// Unanswered is how many deliveries wait for an answer in time.
func (g *Group) Unanswered() int {
	n := 0
	for _, s := range g.streams {
		for _, l := range s.lanes {
			n += l.out
		}
	}
	return n
}

// Applied tells that the store has applied an operation on a message: when it was the last one that is known of, and the
// line still shows the message, it is to be tried again.
func (g *Group) Applied(address int64) {
	if r := g.retrying[address]; r != nil {
		r.ops = max(r.ops-1, 0)
		if r.over && r.ops == 0 {
			if g.loading {
				g.applied = append(g.applied, address)
			} else {
				delete(g.retrying, address)
			}
		}
	}
}

// BeginLoad and EndLoad bracket reading the retry line and handing what was found to Retry; in between, messages whose
// outcome the store applies stay known, so that an older sight of the line does not bring them back. They report whether
// the line is to be read again from its start, because such a message may have been passed over. BeginLoad may be called
// again for each part of the line.
func (g *Group) BeginLoad() (again bool) {
	again = g.EndLoad()
	g.loading = true
	return again
}

func (g *Group) EndLoad() (again bool) {
	g.loading = false
	for _, address := range g.applied {
		if r := g.retrying[address]; r != nil && r.over && r.ops == 0 {
			again = again || !r.taken
			delete(g.retrying, address)
		}
	}
	g.applied = nil
	return again
}

// RetriesWaiting is how many retries are loaded and wait for a machine.
func (g *Group) RetriesWaiting() int { return g.retries }

// Retrying tells whether a message of the retry line is in memory already.
func (g *Group) Retrying(address int64) bool { return g.retrying[address] != nil }

// Retry takes retries that are due, in their order. Those that are known already are left out, and those of a topic whose
// detach is being written: the line may show what the detach has made retries of before EndDetach has said which of it
// is posted. The line is to be read again from its start after EndDetach.
func (g *Group) Retry(rs []Retry) {
	for _, r := range rs {
		if g.retrying[r.Address] != nil || g.Stream(r.Topic).mode == Detaching {
			continue
		}
		g.known(r.Address)
		g.retries++
		l := g.Stream(r.Topic).lane(r.Message.TagsCode)
		q := &l.retry
		if r.Attempt == 0 { // a first delivery that a detach has interrupted: in line with the others, oldest first
			q = &l.first
		}
		q.push(item{msg: r.Message, source: fromRetry, attempt: r.Attempt})
		g.wakeLane(l)
	}
}

// ForgetRetries drops the retries that wait for a machine. They stay in the store's line.
func (g *Group) ForgetRetries() {
	for _, s := range g.streams {
		for _, l := range s.lanes {
			for _, q := range []*fifo[item]{&l.again, &l.retry, &l.first} {
				for n := q.len(); n > 0; n-- {
					if it := q.pop(); it.source != fromRetry {
						q.push(it)
					} else {
						g.forget(it)
					}
				}
			}
		}
	}
}

func (g *Group) forget(it item) {
	r := g.retrying[it.msg.Address]
	if r == nil || r.over || r.slot != nil {
		return
	}
	g.retries--
	if r.ops > 0 {
		r.over = true // Applied forgets it
	} else {
		delete(g.retrying, it.msg.Address)
	}
}

func (g *Group) wakeLane(l *lane) {
	if !l.queued && l.runnable() {
		l.queued = true
		g.ready.push(l)
	}
}
