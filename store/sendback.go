package store

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/view"
)

// firstRetryLevel is the delay level of a first retry that asks for none.
const firstRetryLevel = 3

func retryTopic(group string) string { return meta.RetryPrefix + group }
func deadTopic(group string) string  { return meta.DLQPrefix + group }

// SendBack is a message that a pull group could not consume.
type SendBack struct {
	Group   string
	Address int64 // as the consumer saw it
	Level   int32 // delay level; 0: by the attempts made; below 0: a dead letter at once
	Most    int32 // attempts after which it is a dead letter
}

// SendBack has a message delivered to the group again after a delay, in its retry topic, or makes it a dead letter, and says which. It
// returns when that is in the log. ErrNotAddress when no message has the address.
func (s *Store) SendBack(ctx context.Context, b SendBack) (dead bool, err error) {
	if n := len(b.Group); n < 1 || n > meta.MaxGroupBytes {
		return false, &FieldError{"length of group", int64(n), fmt.Sprintf("1 to %d bytes", meta.MaxGroupBytes)}
	}
	e, raw, release, err := s.EntryAt(b.Address)
	if err != nil {
		return false, err
	}
	defer release()
	v, err := record.Parse(raw)
	if err != nil {
		return false, err
	}
	topic, origin := string(v.Topic()), b.Address
	if isWaitTopic(topic) { // nobody has consumed what still waits
		return false, ErrNotAddress
	}
	if name, ok := v.Property(view.PropRetryTopic); ok {
		topic = string(name)
	}
	if e.Address != e.Position {
		op, _, err := s.viewAt(b.Address)
		if passing(err) != nil {
			return false, err
		}
		if err == nil && (op.View.Kind == state.ViewRetry || op.View.Kind == state.ViewRevive) && op.Group == b.Group {
			origin = op.First // one message is one thing that waits, however often it comes back
		}
	}
	made := v.ReconsumeTimes()
	attempt := min(max(made, 0), math.MaxInt32-1) + 1
	op := state.Op{Kind: state.OpReturn, Topic: topic, Group: b.Group, First: origin, Position: e.Position, Size: e.Size, Attempt: attempt}
	if dead = b.Level < 0 || made >= b.Most; dead {
		op = state.Op{Kind: state.OpPublish, Topic: topic, Group: b.Group, First: origin, View: &state.View{
			Kind: state.ViewDead, Topic: deadTopic(b.Group), Position: e.Position, Size: e.Size, TagsCode: int32(e.TagsCode), Reconsume: attempt,
		}}
	} else {
		if op.Level = b.Level; op.Level == 0 {
			op.Level = firstRetryLevel + made
		}
		op.Level = min(op.Level, int32(len(s.levels.spans.last())))
		op.Due = s.now() + delayOf(s.levels.spans.last(), op.Level)
	}
	c := claim{b.Group, origin}
	for {
		s.claims.mu.Lock()
		on, ok := s.claims.takeLocked(c, state.Unknown)
		s.claims.mu.Unlock()
		if ok {
			break
		}
		select { // an earlier one is just being published, or sent back by another consumer
		case <-on.done:
		case <-ctx.Done():
			return false, ctx.Err()
		}
		if err := s.settled(ctx); err != nil {
			return false, err
		}
	}
	if err := s.writeEnds([]state.Op{op})[0]; err != nil {
		return false, err
	}
	return dead, nil
}

// settled waits until everything that is in the log by now has taken effect.
func (s *Store) settled(ctx context.Context) error { return s.WaitApplied(ctx, s.log.Told()-1) }

// retryView makes the view of what a group gets again, in its retry topic.
func (s *Store) retryView(d *state.Due) (*state.View, error) {
	b, release, err := s.body(d.Address, d.Position, d.Size)
	if err != nil {
		return nil, err
	}
	defer release()
	v, err := record.Parse(b)
	if err != nil {
		return nil, err
	}
	w := &state.View{Kind: d.Kind, Position: d.Position, Size: d.Size, TagsCode: int32(v.TagsCode()), Reconsume: d.Attempt}
	s.placeRetry(w, d)
	return w, nil
}

// placeRetry says where w, the view of what a group gets again, is shown.
func (s *Store) placeRetry(w *state.View, d *state.Due) {
	if d.Kind == state.ViewRevive {
		w.Topic, w.PopTime = s.popRetryTopic(d.Topic, d.Group), max(d.Due-int64(d.Level), 0)
		return
	}
	w.Topic, w.Level = retryTopic(d.Group), d.Level
	if g := s.tables.groups.Get(d.Group); g != nil && g.RetryQueues > 1 {
		w.Queue = int32(uint64(d.Address) * 0x9E3779B97F4A7C15 >> 33 % uint64(g.RetryQueues)) // spread, and the same each time
	}
}

// popRetryTopic is where a group that pops gets messages of a topic again: a broker 5.x has two names for it, and uses the newer one
// only when its configuration says so.
func (s *Store) popRetryTopic(topic, group string) string {
	if strings.HasPrefix(topic, meta.RetryPrefix) {
		return topic
	}
	old, now := retryTopic(group)+"_"+topic, retryTopic(group)+"+"+topic
	if s.tables.topics.Get(old) == nil && s.tables.topics.Get(now) != nil {
		return now
	}
	return old
}
