package delivery

import (
	"math"
	"slices"
)

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
	waiting  [2]int  // of retrying: those that wait for a machine; at 1 those that a detach has made of first deliveries
	loading  bool    // somebody reads the line: what he has read may be older than what is known here
	applied  []int64 // of retrying: what would have been forgotten meanwhile

	pumps   uint64    // calls of Pump
	touched []*Member // members that Pump has pushed to
	grown   []*Member // whose slots have taken more memory than an idle member keeps
	outs    []outcome // for the ledger
	moved   []*Stream // whose cursor has moved
	gaps    int64     // no acknowledgement above a gap has to be written before; Never: there is none
	cursors []cursorAt
}

// NewGroup makes a group without members.
func NewGroup(name string, cfg Config, l *Ledger) *Group {
	g := &Group{Name: name, cfg: cfg.withDefaults(), ledger: l, gaps: Never}
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

// Limit says whether the member is sent only what Credit allows, or what the watermarks allow. It does nothing for one that
// has left.
func (g *Group) Limit(m *Member, on bool, now int64) {
	if m.group == nil {
		return
	}
	if m.limited != on {
		m.limited = on
		for _, b := range m.slots.blocks {
			for i := range b {
				if s := &b[i]; s.state == slotLate {
					g.times.remove(s)
					g.keepLate(s, now)
				}
			}
		}
	}
	g.members.link(m)
}

// Credit sets how much the member may have unanswered. It is a level: the newest one holds. It does nothing for one that has
// left.
func (g *Group) Credit(m *Member, messages uint32, bytes int64) {
	if m.group == nil {
		return
	}
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
		s.above.trim()
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
