package store

import (
	"fmt"
	"time"

	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

// The push state, as the operate queue has made it so far. The dispatcher changes it, record by record; the queries below
// may be called at any time. Exchange is called with the state locked, so it must not call the store.

// Operate appends ops as one operate-queue record and returns its address once it is in the page cache. The operations
// take effect when the dispatcher reaches the record; Observer.Applied says when. What a publish shows can be read when Operate
// returns, at the durability of its topic. An operation that cannot be written
// gives a *state.OpError and nothing is appended.
func (s *Store) Operate(ops []state.Op) (at int64, err error) { return s.operate(ops, false) }

// operate is Operate; with sync it returns when the record is durable.
func (s *Store) operate(ops []state.Op, sync bool) (at int64, err error) {
	if namesBodies(ops) {
		s.bodies.mu.RLock()
		defer s.bodies.mu.RUnlock()
		if ops, err = s.keepBodies(ops); err != nil {
			return 0, err
		}
	}
	body, places, err := state.AppendViews(nil, ops, nil)
	if err != nil {
		return 0, err
	}
	if n := len(body); n > MaxBodyBytes {
		return 0, &FieldError{"length of operations", int64(n), "1 to 4194304 bytes"}
	}
	b := s.log.NewBatch()
	defer s.log.Free(b)
	now := s.o.Now().UnixMilli()
	m := Message{Topic: OQTopic, BornTime: now, BornHost: s.o.StoreHost, Body: body}
	if len(places) > 0 {
		m.Flag = flagViews
	}
	s.add(b, s.oq, &m)
	b.Items[0].Sync = sync
	if len(places) > 0 {
		if err := s.addViews(b, ops, places); err != nil {
			return 0, err
		}
	}
	s.log.Append(b)
	return b.Items[0].Position, b.Items[0].Err
}

// GroupBinding is a binding with its owner and the address of the record that made it.
type GroupBinding = state.GroupBinding

// Bindings lists the bindings of all groups, ordered by topic, group, kind and expression.
func (s *Store) Bindings() []GroupBinding {
	s.machine.RLock()
	defer s.machine.RUnlock()
	return s.machine.Bindings()
}

// Cursor tells where a group reads a topic: attached groups are at the tail and their cursor stands at the attach record until it was read up to there.
func (s *Store) Cursor(topic, group string) (pos state.GroupPosition, ok bool) {
	s.machine.RLock()
	defer s.machine.RUnlock()
	return s.machine.Cursor(topic, group)
}

// Retries fills dst with waiting retries of a group in order of (due, address), starting behind after; 0 when there are no more.
func (s *Store) Retries(group string, after state.Retry, dst []state.Retry) int {
	s.machine.RLock()
	defer s.machine.RUnlock()
	return s.machine.Retries(group, after, dst)
}

// Waits tells whether the message at an address waits for another attempt in a group.
func (s *Store) Waits(group string, address int64) bool {
	s.machine.RLock()
	defer s.machine.RUnlock()
	return s.machine.Waits(group, address)
}

// RetryCount is how many targets of a group wait for another attempt.
func (s *Store) RetryCount(group string) int {
	s.machine.RLock()
	defer s.machine.RUnlock()
	return s.machine.RetryCount(group)
}

// Pending lists the messages of a topic from an address on whose outcome is open, in address order, at most most of them:
// what the data queue says minus what the operate queue says.
func (s *Store) Pending(topic string, from int64, most int) []state.Pending {
	s.machine.RLock()
	defer s.machine.RUnlock()
	var ps []state.Pending
	for p := range s.machine.Scan(topic, from) {
		if len(ps) == most {
			break
		}
		ps = append(ps, p)
	}
	return ps
}

// StateStats counts what the push state holds.
func (s *Store) StateStats() state.Stats {
	s.machine.RLock()
	defer s.machine.RUnlock()
	return s.machine.Machine.Stats()
}

// outcomeSpare is how much longer than the window of idempotent sends outcomes of transactions are remembered.
const outcomeSpare = 5 * time.Minute

// loadState makes the machine of a checkpoint. One that cannot be used becomes one that says to read the whole log.
func (s *Store) loadState(c *checkpoint) (m *state.Machine, err error) {
	defer func() {
		if err == nil {
			m.RememberOutcomes((s.o.OnceWindow + outcomeSpare).Milliseconds()) // ruling A16
		}
	}()
	if c.state != nil {
		m, err := state.LoadWith(c.state, s.o.Exchange, stateTable{s.rows.Table}, s.rows.restore)
		if err == nil {
			return m, nil
		}
		if err := s.openRows(); err != nil { // an empty table
			return nil, err
		}
		s.event(levelWarn, "push state of the checkpoint cannot be used, the whole log is read", "err", err)
		*c = checkpoint{position: s.log.Min()}
	}
	return state.NewMachineOn(s.o.Exchange, stateTable{s.rows.Table}), nil
}

// markOwed marks the topics that groups are attached to after a snapshot was loaded.
func (s *Store) markOwed() {
	for _, b := range s.machine.Bindings() {
		if s.owes(b.Topic) {
			s.setInterested(b.Topic, true)
		}
	}
}

// owes says whether the state machine has to see the topic's messages: a topic whose groups are all behind or offline is as
// cheap as one that nobody has bound.
func (s *Store) owes(topic string) bool {
	return s.o.Exchange != nil && s.machine.Owes(topic) && s.o.Exchange.Interested(topic)
}

// replay is view for the start: what cannot be applied stops it.
func (d *dispatcher) replay(v record.View) error {
	d.failed = nil
	d.view(v)
	d.owed = d.owed[:0] // told from the window when the replay is over
	return d.failed
}

// operations applies an operate-queue record.
func (d *dispatcher) operations(v record.View) {
	s, at := d.s, v.PhysicalOffset()
	ops, err := state.DecodeOps(v.Body())
	if err != nil {
		// It was written by a later version, or is damaged in a way that its checksum does not show. Passing over it would
		// change what groups are owed, so a start stops here; a running store wrote it itself.
		d.failed = fmt.Errorf("operate-queue record at %d: %w", at, err)
		s.event(levelError, "operate-queue record cannot be read", "position", at, "err", err)
		return
	}
	d.tell() // what came before it
	s.machine.Lock()
	s.machine.SetTime(v.StoreTime())
	s.machine.Apply(at, ops)
	s.machine.Unlock()
	for i := range ops {
		switch ops[i].Kind {
		case state.OpBind, state.OpUnbind, state.OpAttach, state.OpDetach:
			if yes := s.owes(ops[i].Topic); yes != s.topics.isOwed(ops[i].Topic) {
				s.setInterested(ops[i].Topic, yes)
				d.marked = d.marked || yes
			}
		}
	}
	if o := s.o.Observer; o != nil && !d.replaying {
		o.Applied(at, ops)
	}
	d.published(v, ops)
	d.keep(v, ops)
	s.claims.applied(ops)
	for i := range ops {
		switch ops[i].Kind {
		case state.OpDefer, state.OpReturn, state.OpHold, state.OpPopped:
			s.publisher.expect(ops[i].Due, ops[i].Kind == state.OpDefer)
		}
	}
}

// message gives a message of an interesting topic to the state machine.
func (d *dispatcher) message(topic string, id int32, e queue.Entry, props []byte, held bool) {
	h := state.Head{Topic: topic, Queue: id, Address: e.Address, Position: e.Position, Size: e.Size, Time: e.Time, TagsCode: e.TagsCode, Properties: props}
	d.s.machine.Lock()
	owed, ok := d.s.machine.Message(&h)
	d.s.machine.Unlock()
	if ok {
		d.owe(owed, held)
	}
}

// oweWindow makes the dispatcher tell what the windows hold, after a start. It reads the index and not the log, but for what was moved: a window may
// be long, and a message that cannot be read any more is for who delivers it to find, not a reason not to start; one that cannot be read at
// the moment is.
func (d *dispatcher) oweWindow() error {
	s := d.s
	var es [64]TopicEntry
	for _, topic := range s.machine.Windows() {
		entries := es[:0]
		for p := range s.machine.Scan(topic, 0) {
			if len(p.Targets) == 0 {
				continue
			}
			for len(entries) > 0 && entries[0].Address < p.Address {
				entries = entries[1:]
			}
			if len(entries) == 0 {
				entries = es[:s.ReadTopic(topic, p.Address, es[:])]
			}
			o := state.Owed{Topic: topic, Address: p.Address, Position: p.Position, Size: p.Size, Targets: p.Targets}
			if len(entries) > 0 && entries[0].Address == p.Address {
				o.Queue, o.Time, o.TagsCode = entries[0].Queue, entries[0].Time, entries[0].TagsCode
			} else if v, release, err := s.movedHead(topic, &p); err == nil { // its segment has gone
				o.Queue, o.Time, o.TagsCode = v.QueueID(), v.StoreTime(), v.TagsCode()
				release()
			} else if passing(err) != nil {
				return err
			} else {
				s.event(levelError, "message owed to push groups is in no queue", "topic", topic, "address", p.Address, "err", err)
			}
			d.owed = append(d.owed, o)
		}
	}
	if len(d.owed) > 0 {
		d.signal()
	}
	return nil
}

// movedHead is the record of a message in a window that is in no queue any more, because its segment has gone.
func (s *Store) movedHead(topic string, p *state.Pending) (v record.View, release func(), err error) {
	if p.Address >= s.log.Min() {
		return v, nil, ErrNotAddress
	}
	b, release, err := s.readOwed(state.OwedBody{Topic: topic, Address: p.Address, Position: p.Position, Size: p.Size})
	if err != nil {
		return v, nil, err
	}
	if v, err = record.Parse(b); err != nil {
		release()
	}
	return v, release, err
}
