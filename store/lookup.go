package store

import (
	"context"
	"errors"

	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/lookup"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/view"
)

// KeyQuery asks for the messages of a topic that have a key.
type KeyQuery struct {
	Topic string
	// Key is a unique id or a word of KEYS; with Unique set, words of KEYS do not count.
	Key    string
	Unique bool
	// Begin and End bound the publish time, both included, in milliseconds since 1970.
	Begin, End int64
	Max        int // most matches
}

// Match is a message that a query found.
type Match struct {
	TopicEntry
	Record  []byte // must not be written to; valid until Release is called
	Release func()
}

// KeyAnswer is what a query by key found.
type KeyAnswer struct {
	Matches []Match // newest first; each has to be released
	// Complete says that nothing is missing: the index had everything that was visible when the query came.
	Complete bool
	Indexed  int64 // log position below which the index has everything, but for what it builds again
	Time     int64 // newest publish time, milliseconds since 1970, when the query came
}

// Release releases all matches.
func (a *KeyAnswer) Release() {
	for _, m := range a.Matches {
		m.Release()
	}
	a.Matches = nil
}

// maxCandidates bounds what one query looks at. So many are other messages only when somebody makes them up on purpose.
const maxCandidates = 1 << 16

// ByKey finds visible messages by key. The key index lags behind the log, so it waits until the index has reached what is visible
// now, or until ctx ends, and says which. The error is ErrClosed, ErrUnavailable or one of reading the index.
func (s *Store) ByKey(ctx context.Context, q KeyQuery) (KeyAnswer, error) {
	if q.Max < 1 || q.Key == "" || q.Begin > q.End {
		_, at := s.keys.Position()
		return KeyAnswer{Complete: true, Indexed: at}, nil
	}
	told, newest := s.log.Told(), s.log.LastTime()
	for {
		waited := s.keys.Wait(ctx, 0, told)
		if waited != nil && ctx.Err() == nil {
			return KeyAnswer{}, ErrClosed
		}
		a, err := s.byKey(&q)
		var corrupt *lookup.CorruptError
		if errors.As(err, &corrupt) {
			a.Release()
			if waited == nil {
				continue // the file is gone and its part of the log is read again
			}
			return KeyAnswer{}, err
		}
		a.Complete, a.Time = a.Complete && waited == nil, newest
		return a, err
	}
}

func (s *Store) byKey(q *KeyQuery) (KeyAnswer, error) {
	a := KeyAnswer{Complete: true}
	_, a.Indexed = s.keys.Position()
	looked := 0
	var failed error
	err := s.keys.Query(lookup.TopicOf(q.Topic).HashString(q.Key), q.Begin, q.End, func(address int64) bool {
		if looked++; looked > maxCandidates {
			a.Complete = false
			return false
		}
		m, ok, err := s.matches(q, address)
		if failed = err; err != nil {
			return false
		}
		if ok {
			a.Matches = append(a.Matches, m)
		}
		return len(a.Matches) < q.Max
	})
	if failed != nil {
		a.Release()
		return KeyAnswer{}, failed
	}
	return a, err
}

// matches looks at a candidate of the key index: it may have another key with the same hash, be deleted, or not be visible yet. It fails only when
// that cannot be told at the moment.
func (s *Store) matches(q *KeyQuery, address int64) (Match, bool, error) {
	e, b, release, err := s.EntryAt(address)
	if err != nil {
		return Match{}, false, passing(err)
	}
	v, err := record.Parse(b)
	if err != nil || e.Time < q.Begin || e.Time > q.End || string(v.Topic()) != q.Topic || !lookup.Has(v.Properties(), q.Key, q.Unique) {
		release()
		return Match{}, false, nil
	}
	return Match{TopicEntry: e, Record: b, Release: release}, true, nil
}

// Boundary says which offset a search by time returns among messages of one publish time, and between two.
type Boundary int

const (
	Lower Boundary = iota // the first message at or after the time; the end of the queue when there is none
	Upper                 // the last message at or before the time; the beginning of the queue when there is none
)

// OffsetByTime finds an offset of a queue by publish time, in milliseconds since 1970. It reads the queue index only, a few entries of it, never
// a message. ok is false when the queue never had a message. A message that became visible out of the order of publish
// times, because a clock was set back before the directory was taken over, can be missed.
func (s *Store) OffsetByTime(topic string, id int32, ms int64, b Boundary) (offset int64, ok bool) {
	q := s.index.Queue(topic, id, false)
	if q == nil {
		return 0, false
	}
	return q.Search(ms, b == Upper), true
}

// ByOffsetID is EntryAt for the address in an offset message id. The host in it is not looked at: clients send the id to that host.
// ErrNotAddress: no visible message has it; other errors name what is wrong with the id.
func (s *Store) ByOffsetID(id string) (e TopicEntry, b []byte, release func(), err error) {
	_, at, err := record.ParseOffsetID(id)
	if err != nil {
		return TopicEntry{}, nil, nil, err
	}
	return s.EntryAt(at)
}

// KeyStats describe the key index.
func (s *Store) KeyStats() lookup.Stats { return s.keys.Stats() }

// openKeys opens the key index, which reads what it lacks in the background.
func (s *Store) openKeys(end int64) error {
	var err error
	s.keys, err = lookup.Open(lookup.Config{
		FS: s.o.FS, Dir: s.path(ownDir, keysDir), LogMin: s.log.Min(), LogEnd: end, SpanBytes: s.o.CheckpointBytes,
		Scan:     s.scanKeys,
		Passes:   func(err error) bool { return passing(err) != nil },
		Boundary: func(pos int64) int64 { return pos / s.o.SegmentBytes * s.o.SegmentBytes },
		Failed:   func(err error) { s.event(levelError, "key index could not be read or written", "err", err) },
	})
	return err
}

// appendRealKey appends the hash under which a message that waits is found in the topic that it is for: of its unique id.
func appendRealKey(hashes []uint64, props []byte) []uint64 {
	var topic, id []byte
	for name, value := range record.Properties(props) {
		switch string(name) {
		case view.PropRealTopic:
			topic = value
		case record.PropUniqKey:
			id = value
		}
	}
	if len(topic) == 0 || len(id) == 0 {
		return hashes
	}
	return append(hashes, lookup.TopicOf(topic).Hash(id))
}

// appendIDs appends the hashes that a repeated message is found by.
func appendIDs(hashes []uint64, v record.View) []uint64 {
	if isWaitTopic(string(v.Topic())) {
		hashes = appendRealKey(hashes, v.Properties())
	} else if id := lookup.UniqueID(v.Properties()); len(id) > 0 {
		hashes = append(hashes, lookup.TopicOf(v.Topic()).Hash(id))
	}
	if id, ok := lookup.Once(v.Properties()); ok {
		hashes = append(hashes, lookup.Anywhere.Hash(id))
	}
	return hashes
}

// scanKeys gives the key index the keys of the messages in a part of the log, those that operate-queue records publish and those that were moved
// among them.
func (s *Store) scanKeys(from, end int64, fn func(address, time int64, hashes []uint64) error) error {
	var hashes []uint64
	give := func(topic []byte, address, time int64, props []byte) error {
		if !lookup.MayHaveKeys(props) {
			return nil
		}
		hashes = lookup.TopicOf(topic).Keys(hashes[:0], props)
		if isWaitTopic(string(topic)) {
			hashes = appendRealKey(hashes, props)
		}
		if len(hashes) == 0 {
			return nil
		}
		return fn(address, time, hashes)
	}
	return s.scanRest(from, end, func(v record.View) error {
		if tx := v.TxType(); tx == record.FlagTxPrepared || tx == record.FlagTxRollback {
			return nil // in no queue; a commit publishes it
		}
		if err := give(v.Topic(), v.PhysicalOffset(), v.StoreTime(), v.Properties()); err != nil {
			return err
		}
		if string(v.Topic()) == MovedTopic {
			return movedRecords(v, func(at int64, m record.View) error { // for repeated ids alone: nobody reads a message there
				if hashes = appendIDs(hashes[:0], m); len(hashes) == 0 {
					return nil
				}
				return fn(at, v.StoreTime(), hashes)
			})
		}
		var err error
		bad := ViewsOf(v, func(topic string, _ int32, _ int64, e queue.Entry) {
			if err != nil {
				return
			}
			b, release, gone := s.Record(e)
			if gone != nil {
				err = passing(gone) // else nobody can read it either
				return
			}
			defer release()
			if body, no := record.Parse(b); no == nil {
				err = give([]byte(topic), e.Address, e.Time, body.Properties())
			}
		})
		return errors.Join(err, bad)
	})
}

// scanRest is Log.Scan of what has not gone of a part of the log, also when it goes at that moment.
func (s *Store) scanRest(from, end int64, fn func(v record.View) error) error {
	for {
		if from = max(from, s.log.Min()); from >= end {
			return nil
		}
		err := s.log.Scan(from, end, fn)
		if !errors.Is(err, log.ErrRange) && !errors.Is(err, log.ErrClosed) || from >= s.log.Min() {
			return err
		} // else a segment has gone, and with it all that was read
	}
}
