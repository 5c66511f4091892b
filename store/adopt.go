package store

import (
	"context"
	"errors"
	"math"
	"sync/atomic"

	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/rocketmq"
	"github.com/fusionmq/fusionmq/store/runs"
	"github.com/fusionmq/fusionmq/store/state"
)

// adoptBatch is how many messages one record of a take-over holds.
const adoptBatch = 8 << 10

// adopt takes over what waits in a directory that another broker wrote. The log alone does not say what of it is still open: that
// broker kept the ends of delays beside the log, and those of transactions in records of its own. So everything that a replay has found
// is dropped, and what is open is held by name. It is done before anything can be published; the mark says so until it is durable.
func (s *Store) adopt() error {
	s.foreign = s.log.Written()
	progress, err := rocketmq.ReadProgress(s.o.FS, s.o.Dir)
	if err != nil {
		return err
	}
	if err := s.adoptLight(&progress); err != nil {
		return err
	}
	a := adopter{s: s, ops: []state.Op{{Kind: state.OpAdopt}}}
	if err := a.all(progress); err != nil {
		return err
	}
	if n := s.StateStats(); a.held == 0 && n.Halves == 0 && n.Delays == 0 {
		s.adopting = false
		return s.markFormat() // nothing waits, and nothing seems to
	}
	if err = a.write(); err == nil {
		err = s.WaitApplied(context.Background(), a.at)
	}
	if err == nil {
		err = s.log.Sync()
	}
	if err != nil {
		return err
	}
	s.event(levelInfo, "what waits in the directory of the Apache broker is taken over", "messages", a.held)
	s.adopting = false
	return s.markFormat()
}

// adopter writes the operations that make of what the replay has found what the other broker's files say is open.
type adopter struct {
	s    *Store
	ops  []state.Op // not written
	at   int64      // of the newest that are
	held int
}

func (a *adopter) write() (err error) {
	a.at, err = a.s.Operate(a.ops)
	a.ops = a.ops[:0]
	return err
}

func (a *adopter) add(op *state.Op) error {
	a.ops = append(a.ops, *op)
	if a.held++; len(a.ops) < adoptBatch {
		return nil
	}
	return a.write()
}

func (a *adopter) hold(m *rocketmq.Message, kind state.HoldKind, due int64, attempt int32) error {
	if m.RealTopic == "" || len(m.RealTopic) > record.MaxTopicBytes {
		a.s.event(levelError, "message that waits names no topic and is not taken over", "position", m.Position)
		return nil
	}
	return a.add(&state.Op{Kind: state.OpHold, Topic: m.RealTopic, First: m.Position, Position: m.Position, Size: m.Size, Due: max(due, 0), Attempt: attempt, Level: int32(kind)})
}

// all goes through the log. What is open is kept on the disk meanwhile.
func (a *adopter) all(progress rocketmq.Progress) (err error) {
	s := a.s
	var failed atomic.Pointer[error]
	table, err := runs.Open(runs.Config{FS: s.o.FS, Dir: s.path(ownDir, adoptDir), TailRows: s.o.tailRows, Failed: func(err error) { failed.Store(&err) }})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, table.Drop()) }()
	if err := table.Clean(); err != nil {
		return err
	}
	open := rocketmq.NewOpen(progress, table)
	open.Due = s.levelDue()
	err = s.log.Scan(s.log.Min(), s.log.Written(), func(v record.View) error {
		open.Record(v)
		return nil
	})
	if err != nil {
		return err
	}
	for p := range open.Popped() {
		op, err := s.popped(&p)
		if err == nil && op != nil {
			err = a.add(op)
		}
		if err != nil {
			return err
		}
	}
	if err := s.tables.offsets.Persist(); err != nil {
		return err
	}
	for h := range open.Halves() {
		if h.CommittedAt >= 0 {
			continue // the message is in its queue, and only the mark of it was lost
		}
		if err := a.hold(&h.Message, state.HoldHalf, h.StoreTime+firstCheck, h.Checks); err != nil {
			return err
		}
	}
	for d := range open.Delays() {
		kind := state.HoldTimer
		if d.Level > 0 {
			kind = state.HoldDelay
		}
		if err := a.hold(&d.Message, kind, d.Due, 0); err != nil {
			return err
		}
	}
	if err := failed.Load(); err != nil { // some rows may be missing
		return *err
	}
	return nil
}

// levelDue looks up in the broker's consume queues when a message of a delay level is due.
func (s *Store) levelDue() func(level int, offset int64) (int64, bool) {
	levels := map[int]*rocketmq.Queue{}
	return func(level int, offset int64) (int64, bool) {
		q, ok := levels[level]
		if !ok {
			// A queue that cannot be read is no reason to stop: the levels have their usual delays then.
			var err error
			if q, err = rocketmq.OpenQueue(s.o.FS, s.o.Dir, rocketmq.ScheduleTopic, int32(level-1)); err != nil {
				s.event(levelWarn, "consume queue of a delay level cannot be used", "level", level, "err", err)
				q = nil
			}
			levels[level] = q
		}
		if q == nil {
			return 0, false
		}
		e, ok, err := q.Entry(offset)
		if err != nil || !ok {
			return 0, false
		}
		due, ok, err := q.Tags(e)
		return due, ok && err == nil && due > 0
	}
}

// popped is the operation that gives a group again what it was given by a pop and has not acknowledged, as the broker's revive service
// would; nil when there is no such message. The retry topic is made, with the group at its beginning.
func (s *Store) popped(p *rocketmq.Popped) (*state.Op, error) {
	q := s.index.Queue(p.Topic, p.Queue, false)
	if s.tables.topics.Get(p.Topic) == nil || meta.CheckGroup(p.Group) != nil || q == nil {
		s.event(levelWarn, "message that a group has not acknowledged is of a topic, group or queue that is gone", "topic", p.Topic, "group", p.Group, "queue", p.Queue, "offset", p.Offset)
		return nil, nil
	}
	var e [1]queue.Entry
	n, err := q.Read(p.Offset, e[:])
	if err != nil {
		return nil, err
	}
	var v record.View
	if err = errors.New("no such offset"); n == 1 {
		var b []byte
		var release func()
		if b, release, err = s.log.Read(e[0].Position, int(e[0].Size)); err == nil {
			defer release()
			v, err = record.Parse(b)
		}
	}
	if passing(err) != nil {
		return nil, err
	}
	if err != nil {
		s.event(levelWarn, "message that a group has not acknowledged is gone", "topic", p.Topic, "group", p.Group, "queue", p.Queue, "offset", p.Offset, "err", err)
		return nil, nil
	}
	retry := s.popRetryTopic(p.Topic, p.Group)
	if err := meta.CheckTopic(retry); err != nil && s.topic(retry) == nil {
		s.event(levelError, "retry topic of a group cannot be made", "err", err)
		return nil, nil
	}
	if _, err := s.viewTopic(retry); err != nil {
		return nil, err
	}
	if _, ok := s.tables.offsets.Get(p.Group, retry, 0); !ok {
		s.tables.offsets.Commit(p.Group, retry, 0, 0)
	}
	return &state.Op{
		Kind: state.OpPopped, Topic: p.Topic, Group: p.Group, First: e[0].Address, Position: e[0].Position, Size: e[0].Size,
		Attempt: min(max(v.ReconsumeTimes(), 0), math.MaxInt32-1) + 1, Due: max(p.Due, 0), Level: int32(min(max(p.Due-p.PopTime, 0), math.MaxInt32)),
	}, nil
}
