package store

import (
	"context"
	"errors"

	"github.com/fusionmq/fusionmq/store/lookup"
	"github.com/fusionmq/fusionmq/store/record"
)

// Recall says what has become of a message that is to be taken back.
type Recall int

const (
	RecallUnknown   Recall = iota // no delayed message of the topic has the id, now or in what is kept
	RecallTaken                   // it waited, and is never published
	RecallBefore                  // it was taken back before
	RecallPublished               // it is published, or just being published
)

// RecallDelay takes the delayed messages of a topic that have a unique id back. It finds them through the key index, which lags behind the log, and waits
// for it until ctx ends: ErrNotIndexed. Other errors are those of CancelDelay, ErrUnavailable, and those of reading the index; some of several may be taken back then.
func (s *Store) RecallDelay(ctx context.Context, topic, id string) (Recall, error) {
	out, err := s.recall(ctx, topic, id)
	if out == RecallBefore && err == nil {
		// It may have been published since its keys were looked up, and then its view is found now.
		out, err = s.recall(ctx, topic, id)
	}
	return out, err
}

func (s *Store) recall(ctx context.Context, topic, id string) (Recall, error) {
	told := s.log.Told()
	if err := s.WaitApplied(ctx, told-1); err != nil {
		return RecallUnknown, err
	}
	var at []int64
	for {
		if err := s.keys.Wait(ctx, 0, told); err != nil {
			if s.closed.Load() {
				return RecallUnknown, ErrClosed
			}
			return RecallUnknown, ErrNotIndexed
		}
		at = at[:0]
		err := s.keys.Query(lookup.TopicOf(topic).HashString(id), 0, 1<<62, func(address int64) bool {
			at = append(at, address)
			return len(at) < maxCandidates
		})
		if err == nil {
			break
		}
		if !errors.As(err, new(*lookup.CorruptError)) {
			return RecallUnknown, err
		}
		told = s.log.Told() // the file is gone, and what it had is read again
	}
	out := RecallUnknown
	for _, a := range at {
		r, err := s.recallAt(ctx, a, topic, id)
		if err != nil {
			return out, err
		}
		switch {
		case r == RecallTaken, r == RecallPublished && out != RecallTaken, r == RecallBefore && out == RecallUnknown:
			out = r
		}
	}
	return out, nil
}

// recallAt takes back what waits at an address, if it is the message.
func (s *Store) recallAt(ctx context.Context, address int64, topic, id string) (Recall, error) {
	m, ok, err := s.matches(&KeyQuery{Topic: topic, Key: id, Unique: true, End: 1 << 62}, address)
	if err != nil {
		return RecallUnknown, err
	}
	if ok {
		m.Release()
		return RecallPublished, nil
	}
	b, release, err := s.recordBytes(address)
	if err != nil {
		return RecallUnknown, passing(err) // else a candidate that is gone, or is none
	}
	v, err := record.Parse(b)
	mine := err == nil && (string(v.Topic()) == TimerTopic || string(v.Topic()) == ScheduleTopic)
	if mine {
		real, _, ok := realPlace(v)
		mine = ok && real == topic && string(lookup.UniqueID(v.Properties())) == id
	}
	release()
	if !mine {
		return RecallUnknown, nil
	}
	s.machine.RLock()
	_, waits := s.machine.DelayAt(address)
	s.machine.RUnlock()
	if !waits {
		return RecallBefore, nil // or published, and then its view is a candidate as well, or will be
	}
	err = s.CancelDelay(ctx, address)
	if errors.Is(err, ErrNoDelay) {
		return RecallPublished, nil
	}
	if err != nil {
		return RecallUnknown, err
	}
	return RecallTaken, nil
}
