package delivery

import "github.com/fusionmq/fusionmq/store/state"

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

func (g *Group) wakeLane(l *lane) {
	if !l.queued && l.runnable() {
		l.queued = true
		g.ready.push(l)
	}
}
