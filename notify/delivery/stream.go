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
	behind   int            // done ones in open: acknowledged, but the cursor cannot say so
	above    fifo[aboveGap] // those of behind, in the order of their acknowledgements; ones that the cursor has passed may be among them
	position int64
	readTo   int64
	reported int64 // what the ledger was told
	skipFrom int64 // what was owed by the window while the cursor was still below: not read again
	skipTo   int64
	passTo   int64 // a message here has failed: the cursor must not stay below its retry
	dirty    bool  // is in group.moved
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
	switch {
	case s.mode == Detached:
		s.group.ledger.moved(m, share)
		return false
	case s.mode == Attaching, s.mode == Joining, s.mode == Detaching && s.readTo < s.attach: // behind what the cursor will find
		s.held.push(it)
		s.owed++
	default:
		s.owed++
		l := s.lane(m.TagsCode)
		l.first.push(it)
		s.group.wakeLane(l)
	}
	return s.Overflows()
}

// Overflows tells whether more of the window waits than the group may keep, and a detach is due.
func (s *Stream) Overflows() bool {
	return s.owed > s.group.cfg.DetachBacklog && s.mode != Detaching
}

// Owed is how many window messages wait or are posted, Position what the cursor has passed.
func (s *Stream) Owed() int       { return s.owed }
func (s *Stream) Position() int64 { return s.position }
