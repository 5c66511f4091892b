package notify

import (
	"slices"
	"strings"
	"sync/atomic"

	"github.com/fusionmq/fusionmq/notify/delivery"
)

// counters are totals since the process started.
type counters struct {
	sends, sendFailures, busy             atomic.Uint64
	catchUps                              atomic.Uint64
	operations, operateRecords            atomic.Uint64
	operateFailures                       atomic.Uint64
	attaches, attachesRefused             atomic.Uint64
	detaches, overflows                   atomic.Uint64
	lost, volatileDrops, topicsMade       atomic.Uint64
	pushed, acked, failed, timeouts, late atomic.Uint64 // of groups that are gone from the table
}

// Stats is what the service has done and what waits in it. Totals count from the start of the process.
type Stats struct {
	Sends, SendFailures uint64 // messages stored; refused or failed
	Busy                uint64 // sends refused because too many were on their way
	Pushed              uint64 // deliveries handed to connections, retries included
	Acked, Failed       uint64 // answers
	TimedOut, LateAcked uint64 // deliveries without an answer in time; of those, acknowledged later
	CatchUp             uint64 // messages found through cursors
	Operations          uint64 // entries written to the operate queue
	OperateRecords      uint64 // records they were written in
	OperateFailures     uint64 // records that the store refused; they are tried again
	Attaches, Detaches  uint64
	AttachesRefused     uint64 // attaches that did not fit what the log says of the group; it stays detached
	Overflows           uint64 // detaches because too much waited
	Lost                uint64 // messages that could not be read and were not delivered
	VolatileDrops       uint64 // messages of volatile bindings dropped with their group's last member
	TopicsMade          uint64 // by auto-creation

	Sessions, Groups, Members int
	Waiting, Unanswered       int // deliveries that wait for a machine; that wait for an answer
	Open                      int // messages whose outcome is open or not written
}

// GroupStats is one group that has, or lately had, members here.
type GroupStats struct {
	Name                string
	Members             int
	Waiting, Unanswered int
	Retries             int // in the retry line, loaded ones included
	Parked              int // bindings that are not persistent and wait for a member
	Pushed, Acked       uint64
	Failed, TimedOut    uint64
	Topics              []TopicStats
}

// TopicStats is how a group follows a topic.
type TopicStats struct {
	Topic  string
	Mode   string // attached, detached, or on the way
	Cursor int64  // address that the group's cursor has passed
}

// Stats returns a snapshot; it takes each group's lock for a moment.
func (s *Service) Stats() Stats {
	c := &s.counters
	st := Stats{
		Sends: c.sends.Load(), SendFailures: c.sendFailures.Load(), Busy: c.busy.Load(),
		Pushed: c.pushed.Load(), Acked: c.acked.Load(), Failed: c.failed.Load(), TimedOut: c.timeouts.Load(), LateAcked: c.late.Load(),
		CatchUp: c.catchUps.Load(), Operations: c.operations.Load(), OperateRecords: c.operateRecords.Load(), OperateFailures: c.operateFailures.Load(),
		Attaches: c.attaches.Load(), AttachesRefused: c.attachesRefused.Load(), Detaches: c.detaches.Load(), Overflows: c.overflows.Load(),
		Lost: c.lost.Load(), VolatileDrops: c.volatileDrops.Load(), TopicsMade: c.topicsMade.Load(),
		Open: s.ledger.Open(),
	}
	for _, g := range s.everyGroup() {
		g.mu.Lock()
		n := g.d.Counts()
		g.mu.Unlock()
		st.Pushed += n.Posted
		st.Acked += n.Acked
		st.Failed += n.Failed
		st.TimedOut += n.TimedOut
		st.LateAcked += n.Late
		st.Members += n.Members
		st.Waiting += n.Waiting
		st.Unanswered += n.Unanswered
		if n.Members > 0 {
			st.Groups++
		}
	}
	s.mu.RLock()
	st.Sessions = len(s.mu.sessions)
	s.mu.RUnlock()
	return st
}

// Groups lists the groups that have, or lately had, members here, by name.
func (s *Service) Groups() []GroupStats {
	var all []GroupStats
	for _, g := range s.everyGroup() {
		g.mu.Lock()
		n := g.d.Counts()
		gs := GroupStats{Name: g.name, Members: n.Members, Waiting: n.Waiting, Unanswered: n.Unanswered,
			Pushed: n.Posted, Acked: n.Acked, Failed: n.Failed, TimedOut: n.TimedOut, Parked: len(g.parked)}
		g.d.Streams(func(st *delivery.Stream) {
			gs.Topics = append(gs.Topics, TopicStats{Topic: st.Topic, Mode: st.Mode().String(), Cursor: st.Position()})
		})
		g.mu.Unlock()
		slices.SortFunc(gs.Topics, func(a, b TopicStats) int { return strings.Compare(a.Topic, b.Topic) })
		gs.Retries = s.store.RetryCount(g.name)
		all = append(all, gs)
	}
	slices.SortFunc(all, func(a, b GroupStats) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// keepCounts adds a group's totals to the service's before it is forgotten.
func (c *counters) keepCounts(n delivery.Counts) {
	c.pushed.Add(n.Posted)
	c.acked.Add(n.Acked)
	c.failed.Add(n.Failed)
	c.timeouts.Add(n.TimedOut)
	c.late.Add(n.Late)
}
