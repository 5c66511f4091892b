package broker

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/metaq/membership"
)

// Stats are counters of a broker. All but the last line count since it started.
type Stats struct {
	Put, PutBytes      int64 // messages stored and the bytes of their records
	PutRefused         int64 // sends not stored, a batch counted once
	Batches            int64 // batches that went to the store; Put counts their messages
	Recalls            int64 // delayed messages that their producers took back
	Commits, Rollbacks int64 // transactions whose producers said so, repeats included
	EndsRefused        int64 // ends of transactions that were answered with an error
	Checks             int64 // questions to producers how a transaction ended
	Aside              int64 // transactions that were moved aside, because nobody said
	Got, GotBytes      int64 // messages handed to pulls
	PullsFound         int64 // pulls answered with messages
	PullsMissed        int64 // pulls answered without, or held first
	SentBack           int64 // messages that consumers gave back, to come again or as dead letters
	NotReturned        int64 // of groups without retry queues: accepted and dropped, as RocketMQ does
	DeadLetters        int64 // messages that became dead letters, those among them that a client sent as such
	SQLLooked          int64 // messages that pulls with an SQL92 filter came to
	SQLRead            int64 // of them, messages whose properties were read: bits told of the others
	Resets             int64 // queues of groups that were reset to another offset
	SteppedOver        int64 // messages that pulls found in a queue and could not read: their bodies have gone, or are damaged
	Paused             int64 // times that a connection was not read for a while, because its requests were not handled fast enough
	Accepted           int64 // connections
	Refused            int64 // connections closed at once, because there were too many
	Malformed          int64 // connections closed for a broken frame or another protocol
	Slow               int64 // connections closed because the peer did not read, or sent faster than it was handled
	Panics             int64 // requests that failed by a mistake in this program, contained

	Connections, HeldPulls, LockedQueues, ConflictingGroups, ConsumerGroups, ProducerGroups, Clients int // now; Clients are connections with a heartbeat
}

// counters are the live form of Stats.
type counters struct {
	puts, putBytes, refusals, batches, gets, getBytes, hits, misses, stepped atomic.Int64
	returned, notReturned, dead, recalls                                     atomic.Int64
	commits, rollbacks, endsRefused, checks, aside                           atomic.Int64

	sqlLooked, sqlRead, resets atomic.Int64
}

func (c *counters) put(n, bytes int64) {
	c.puts.Add(n)
	c.putBytes.Add(bytes)
}

func (c *counters) selected(looked, read int) {
	c.sqlLooked.Add(int64(looked))
	c.sqlRead.Add(int64(read))
}

func (c *counters) refused(n int64) { c.refusals.Add(n) }

func (c *counters) got(n, bytes int) {
	c.hits.Add(1)
	c.gets.Add(int64(n))
	c.getBytes.Add(int64(bytes))
}

func (c *counters) miss() { c.misses.Add(1) }

// Stats returns the counters.
func (b *Broker) Stats() Stats {
	c := &b.stats
	s := Stats{
		Put: c.puts.Load(), PutBytes: c.putBytes.Load(), PutRefused: c.refusals.Load(), Batches: c.batches.Load(), Recalls: c.recalls.Load(), Got: c.gets.Load(), GotBytes: c.getBytes.Load(),
		PullsFound: c.hits.Load(), PullsMissed: c.misses.Load(), SteppedOver: c.stepped.Load(), HeldPulls: b.holds.len(),
		Commits: c.commits.Load(), Rollbacks: c.rollbacks.Load(), EndsRefused: c.endsRefused.Load(), Checks: c.checks.Load(), Aside: c.aside.Load(),
		Resets: c.resets.Load(), LockedQueues: b.locks.len(), ConflictingGroups: len(b.members.Conflicts()),
		SQLLooked: c.sqlLooked.Load(), SQLRead: c.sqlRead.Load(),
		SentBack: c.returned.Load(), NotReturned: c.notReturned.Load(), DeadLetters: c.dead.Load(),
	}
	s.Clients, s.ConsumerGroups, s.ProducerGroups = b.members.Counts()
	for _, srv := range b.listening() {
		st := srv.Stats()
		s.Connections += int(st.Connections)
		s.Paused += st.Paused
		s.Accepted += st.Accepted
		s.Refused += st.Refused
		s.Malformed += st.Malformed + st.Foreign
		s.Slow += st.Slow
		s.Panics += st.Panics
	}
	return s
}

// ConsumerGroup is a consumer group with members.
type ConsumerGroup struct {
	Name    string
	Model   string // CLUSTERING or BROADCASTING
	Members []membership.Member
	Topics  []string // subscribed, in order
	// Conflict: members subscribe differently (Member.Subs), so messages are passed over that some of them are for.
	Conflict bool
}

// ConsumerGroups lists the consumer groups that have members, ordered by name.
func (b *Broker) ConsumerGroups() []ConsumerGroup {
	var out []ConsumerGroup
	for _, name := range b.members.GroupNames() {
		g := b.members.Group(name)
		if g == nil {
			continue // its last member went meanwhile
		}
		out = append(out, ConsumerGroup{Name: name, Model: string(g.Model), Members: b.members.Consumers(name), Topics: g.Topics(), Conflict: b.members.Conflict(name)})
	}
	return out
}

// sampleEvery is the distance of two samples of a rates.
const sampleEvery = 10 * time.Second

// sample is what the counters were at a moment.
type sample struct {
	at                       time.Time
	puts, gets, hits, misses int64
}

// rates remembers samples of ten minutes and the totals at the last two midnights, for the rates and totals that tools
// read in the runtime information.
type rates struct {
	sync.Mutex
	ring      [61]sample // the newest is at next-1
	next      int
	day       int // day of the month of the newest sample
	morning   sample
	yesterday sample
}

func (r *rates) add(s sample) {
	r.Lock()
	defer r.Unlock()
	if day := s.at.Day(); day != r.day {
		if r.next > 0 {
			r.yesterday, r.morning = r.morning, s
		}
		r.day = day
	}
	r.ring[r.next%len(r.ring)] = s
	r.next++
}

// text gives the rate of a counter over the last 10, 60 and 600 seconds, separated and followed by blanks. A window that
// is longer than the broker's life is left out, except the first: RocketMQ does the same.
func (r *rates) text(now sample, count func(sample) int64) string {
	r.Lock()
	defer r.Unlock()
	var b strings.Builder
	for i, back := range []int{1, 6, 60} {
		if r.next < back {
			if i > 0 {
				break
			}
			b.WriteString("0.0 ")
			continue
		}
		old := r.ring[(r.next-back)%len(r.ring)]
		seconds := max(now.at.Sub(old.at).Seconds(), 1e-3)
		fmt.Fprintf(&b, "%.3f ", float64(count(now)-count(old))/seconds)
	}
	return b.String()
}

func (b *Broker) sample(at time.Time) sample {
	c := &b.stats
	return sample{at: at, puts: c.puts.Load(), gets: c.gets.Load(), hits: c.hits.Load(), misses: c.misses.Load()}
}
