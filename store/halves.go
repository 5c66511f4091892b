package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/view"
)

// Errors of transactions and delays, tested with errors.Is.
var (
	// ErrNoHalf is for an address at which no half message is, or one whose outcome is forgotten.
	ErrNoHalf = errors.New("store: no transaction has this address")
	// ErrEnded is for a half that has another outcome already (*EndedError says which).
	ErrEnded = errors.New("store: transaction has another outcome")
	// ErrNoDelay is for an address at which no message waits for its time.
	ErrNoDelay = errors.New("store: no delayed message has this address")
)

// EndedError says which outcome a transaction has.
type EndedError struct {
	Address int64
	Outcome state.Outcome
}

func (e *EndedError) Error() string {
	what := "rolled back"
	if e.Outcome == state.Committed {
		what = "committed"
	}
	return fmt.Sprintf("store: transaction at %d is %s", e.Address, what)
}

func (e *EndedError) Is(target error) bool { return target == ErrEnded }

// HalfEnd is the end of one transaction.
type HalfEnd struct {
	Address int64 // of the half
	Commit  bool  // otherwise it is rolled back
	Due     int64 // of a commit: published not before this time, milliseconds since 1970; 0 at once

	// Err is set by EndHalves: nil when the half has this outcome, now or before; ErrNoHalf; ErrEnded; or why it could not be written,
	// and then it is undecided, except after ErrFlushTimeout.
	Err error
}

func (e *HalfEnd) outcome() state.Outcome {
	if e.Commit {
		return state.Committed
	}
	return state.RolledBack
}

// EndHalves commits and rolls back. A committed message is in the queue that it is for, and owed to the groups that are attached there, when
// EndHalves returns, at the durability of its topic. An outcome is final. The ends of one call are one record, together with those of other calls that come
// at the same time; where calls overlap often, one may wait 2 ms for another.
func (s *Store) EndHalves(ctx context.Context, ends []HalfEnd) {
	var ops []state.Op
	var mine []int // indexes into ends, of ops
	type wait struct {
		end int
		on  *ending
	}
	var waits []wait
	for i := range ends {
		e := &ends[i]
		if e.Err = s.waitHalf(ctx, e.Address); e.Err != nil {
			continue
		}
		op, on, err := s.endHalf(e)
		switch {
		case err != nil:
			e.Err = err
		case on != nil:
			waits = append(waits, wait{i, on})
		case op != nil:
			ops, mine = append(ops, *op), append(mine, i)
		}
	}
	for k, err := range s.writeEnds(ops) {
		ends[mine[k]].Err = err
	}
	for _, w := range waits {
		select {
		case <-w.on.done:
			ends[w.end].Err = w.on.err
		case <-ctx.Done():
			ends[w.end].Err = ctx.Err()
		}
	}
}

// waitHalf waits until the state has seen the record at an address.
func (s *Store) waitHalf(ctx context.Context, address int64) error {
	if address < 0 || address >= s.log.Told() {
		return ErrNoHalf
	}
	return s.WaitApplied(ctx, address)
}

// endHalf claims the end of a half and makes its operation. on is the end that somebody else is writing, when it is the same.
func (s *Store) endHalf(e *HalfEnd) (op *state.Op, on *ending, err error) {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	h := s.Half(e.Address)
	c := claim{address: e.Address}
	switch other := s.claims.of[c]; {
	case h.Outcome == e.outcome():
		return nil, nil, nil
	case h.Outcome == state.Committed || h.Outcome == state.RolledBack:
		return nil, nil, &EndedError{e.Address, h.Outcome}
	case h.Outcome == state.Unknown:
		return nil, nil, ErrNoHalf
	case other != nil && other.outcome == e.outcome():
		return nil, other, nil
	case other != nil:
		return nil, nil, &EndedError{e.Address, other.outcome}
	}
	if op, err = s.endOp(e, &h); err == nil {
		s.claims.takeLocked(c, e.outcome())
	}
	return op, nil, err
}

func (s *Store) endOp(e *HalfEnd, h *state.HalfState) (*state.Op, error) {
	switch {
	case !e.Commit:
		return &state.Op{Kind: state.OpRollback, Topic: h.Topic, First: e.Address, Last: e.Address}, nil
	case e.Due > s.o.Now().UnixMilli():
		return &state.Op{Kind: state.OpDefer, Topic: h.Topic, First: e.Address, Due: e.Due}, nil
	}
	show, err := s.waitingView(state.ViewCommit, e.Address, h.Position, h.Size)
	if err != nil {
		return nil, fmt.Errorf("half message at %d: %w", e.Address, err)
	}
	return &state.Op{Kind: state.OpPublish, Topic: h.Topic, First: e.Address, View: show}, nil
}

// waitingView makes the view of a record that waits, in the place that it is for.
func (s *Store) waitingView(kind state.ViewKind, address, position int64, size int32) (*state.View, error) {
	b, release, err := s.body(address, position, size)
	if err != nil {
		return nil, err
	}
	defer release()
	v, err := record.Parse(b)
	if err != nil {
		return nil, err
	}
	topic, id, ok := realPlace(v)
	if !ok {
		return nil, ErrNotAddress
	}
	return &state.View{Kind: kind, Topic: topic, Queue: id, Position: position, Size: size, TagsCode: int32(v.TagsCode())}, nil
}

// writeEnds writes operations that end what is claimed, at the durability of its topics, and returns the error of each. The claims end when they have taken effect, or here
// when they are not in the log.
func (s *Store) writeEnds(ops []state.Op) []error {
	if len(ops) == 0 {
		return nil
	}
	errs := make([]error, len(ops))
	es := make([]*ending, len(ops))
	sync := false
	s.claims.mu.Lock()
	for i := range ops {
		c, _ := claimOf(&ops[i])
		es[i] = s.claims.of[c] // before the dispatcher can take it out of the map
	}
	s.claims.mu.Unlock()
	for i := range ops {
		t := s.topic(ops[i].Topic)
		sync = sync || t != nil && t.sync.Load()
	}
	j := &s.ends
	if sync {
		j = &s.syncEnds
	}
	err := j.operate(ops)
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	for i, e := range es {
		errs[i] = err
		e.err = err
		close(e.done)
		if c, _ := claimOf(&ops[i]); err != nil && !errors.Is(err, ErrFlushTimeout) && s.claims.of[c] == e {
			delete(s.claims.of, c)
		}
	}
	return errs
}

// Half tells about the half message at an address. One that was stored a moment ago may be unknown until WaitApplied has returned for
// its address.
func (s *Store) Half(address int64) state.HalfState {
	s.machine.RLock()
	defer s.machine.RUnlock()
	return s.machine.HalfAt(address)
}

// Halves fills dst with undecided transactions in the order in which they are due for a check, starting behind after, or at the first one
// when after is the zero HalfState; aside asks for those that nobody is asked about any more.
func (s *Store) Halves(aside bool, after state.HalfState, dst []state.HalfState) int {
	s.machine.RLock()
	defer s.machine.RUnlock()
	return s.machine.Halves(aside, after, dst)
}

// ReadHalf calls fn with the stored record of an undecided half, which is valid until fn returns. ErrNoHalf when there is none.
func (s *Store) ReadHalf(address int64, fn func(h *state.HalfState, v record.View) error) error {
	h := s.Half(address)
	if h.Outcome != state.Undecided && h.Outcome != state.Aside {
		return ErrNoHalf
	}
	b, release, err := s.body(address, h.Position, h.Size)
	if err != nil {
		return err
	}
	defer release()
	v, err := record.Parse(b)
	if err != nil {
		return err
	}
	return fn(&h, v)
}

// HalfRecord returns the record of an undecided half as its producer is asked about it: with the topic and queue that it is for.
func (s *Store) HalfRecord(address int64) (b []byte, err error) {
	err = s.ReadHalf(address, func(_ *state.HalfState, v record.View) error {
		b, err = AppendHalf(nil, address, v, -1)
		return err
	})
	return b, err
}

// AppendHalf appends the record v of the half at an address as its producer is asked about it: with the topic and queue that it is for,
// and, unless it is negative, with the number of the check.
func AppendHalf(dst []byte, address int64, v record.View, check int32) ([]byte, error) {
	topic, id, ok := realPlace(v)
	if !ok {
		return dst, ErrNotAddress
	}
	p := record.Patch{
		Topic: topic, QueueID: id, QueueOffset: v.QueueOffset(), PhysicalOffset: address, SysFlag: v.SysFlag(), StoreTime: v.StoreTime(),
		ReconsumeTimes: v.ReconsumeTimes(), PreparedOffset: v.PreparedOffset(),
	}
	if check >= 0 {
		props := record.AppendWithout(make([]byte, 0, len(v.Properties())+len(view.PropCheckTimes)+16), v.Properties(), view.PropCheckTimes)
		if props = record.AppendProperty(props, view.PropCheckTimes, strconv.Itoa(int(check))); len(props) <= MaxPropertiesBytes {
			p.Properties = props
		}
	}
	return v.AppendPatched(dst, &p), nil
}

// HalfCheck says that a half has been asked about, or is to be asked about later without that.
type HalfCheck struct {
	Address int64
	Checks  int32 // made so far
	Due     int64 // of the next one, milliseconds since 1970
}

// CheckHalves takes over what was asked, in one record. Halves that have an outcome by now are left alone.
func (s *Store) CheckHalves(cs []HalfCheck) error {
	var ops []state.Op
	for _, c := range cs {
		if h := s.Half(c.Address); h.Outcome == state.Undecided {
			ops = append(ops, state.Op{Kind: state.OpCheck, Topic: h.Topic, First: c.Address, Attempt: c.Checks, Due: c.Due})
		}
	}
	if len(ops) == 0 {
		return nil
	}
	_, err := s.Operate(ops)
	return err
}

// SetHalvesAside moves undecided halves to where nobody is asked about them any more: each is shown in AsideTopic, and can still be
// committed or rolled back. After an error some may be where they were.
func (s *Store) SetHalvesAside(addresses []int64) error {
	var ops []state.Op
	var failed error
	s.claims.mu.Lock()
	for _, a := range addresses {
		h := s.Half(a)
		if h.Outcome != state.Undecided || s.claims.of[claim{address: a}] != nil {
			continue
		}
		show := &state.View{Kind: state.ViewAside, Topic: AsideTopic, Position: h.Position, Size: h.Size, Reconsume: h.Checks}
		if v, err := s.waitingView(state.ViewAside, a, h.Position, h.Size); err == nil {
			show.TagsCode = v.TagsCode
		} else if passing(err) != nil {
			failed = err
			continue
		}
		s.claims.takeLocked(claim{address: a}, state.Aside)
		ops = append(ops, state.Op{Kind: state.OpPublish, Topic: h.Topic, First: a, View: show})
	}
	s.claims.mu.Unlock()
	return errors.Join(failed, errors.Join(s.writeEnds(ops)...))
}
