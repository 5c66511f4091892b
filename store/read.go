package store

import (
	"encoding/binary"
	"errors"
	"sync"

	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

// TopicEntry is an entry with its place.
type TopicEntry = queue.TopicEntry

// Queue returns the handle of a queue, or nil when the topic does not exist or the queue never had a message and create
// is false. Handles stay valid while the topic exists.
func (s *Store) Queue(topic string, id int32, create bool) *queue.Queue {
	return s.index.Queue(topic, id, create && s.topic(topic) != nil)
}

// Record returns the record of an entry: the stored bytes, or for a view those with what the view changes. They are valid until
// release is called and must not be written to.
func (s *Store) Record(e queue.Entry) (b []byte, release func(), err error) {
	if e.Size == 0 { // lost in a damaged part of the log, see fillGap
		r, _ := s.log.DamageIn(e.Position, e.Position+1)
		return nil, nil, &log.DamageError{Range: r}
	}
	if e.Position != e.Address {
		op, time, err := s.viewAt(e.Address)
		if err == nil {
			b, err = s.shown(e.Address, &op, time, e.Position, e.Size)
		}
		if err == nil || errors.Is(err, ErrUnavailable) {
			return b, noRelease, err
		}
		// What was moved has its changes already.
	}
	b, release, err = s.log.Read(e.Position, int(e.Size))
	if err == nil {
		if v, bad := record.Parse(b); bad != nil || v.Size() != e.Size {
			release()
			return nil, nil, s.unreadable(e)
		}
	}
	if err != nil && errors.Is(err, log.ErrRange) {
		// It may be somewhere else now: who has the entry read it before its segment went.
		if _, moved, done, e := s.movedRecord(e.Address); e == nil || passing(e) != nil {
			return moved, done, e
		}
	}
	return b, release, err
}

// badReads are positions of records that readers found to be none, each for one event.
type badReads struct {
	sync.Mutex
	at map[int64]struct{}
}

// maxBadReads bounds what is remembered; what more is found is not told.
const maxBadReads = 1000

// unreadable is the error for an entry whose bytes are no record: a start reads only what the checkpoint does not cover, so what goes bad below it
// is found by who reads it. A client would take lengths of zero or of anything for those of messages.
func (s *Store) unreadable(e queue.Entry) error {
	r := log.Range{From: e.Position, To: e.Position + int64(e.Size)}
	s.badReads.Lock()
	_, told := s.badReads.at[r.From]
	told = told || len(s.badReads.at) >= maxBadReads
	if !told {
		if s.badReads.at == nil {
			s.badReads.at = map[int64]struct{}{}
		}
		s.badReads.at[r.From] = struct{}{}
	}
	s.badReads.Unlock()
	if !told {
		s.event(levelError, "record is damaged, it is stepped over and left as it is", "position", r.From, "bytes", e.Size)
	}
	return &log.DamageError{Range: r}
}

// RecordAt returns the record whose address is at, ErrNotAddress when no visible message has that address. The bytes are
// valid until release is called and must not be written to.
func (s *Store) RecordAt(at int64) (b []byte, release func(), err error) {
	_, b, release, err = s.EntryAt(at)
	return b, release, err
}

// EntryAt is RecordAt with the entry.
func (s *Store) EntryAt(at int64) (e TopicEntry, b []byte, release func(), err error) {
	none := func(err error) (TopicEntry, []byte, func(), error) {
		if errors.Is(err, log.ErrRange) {
			err = ErrNotAddress
		}
		return TopicEntry{}, nil, nil, err
	}
	head, release, err := s.log.Read(at, 8)
	if errors.Is(err, log.ErrRange) {
		o, b, release, err := s.movedRecord(at)
		if err != nil {
			return none(err)
		}
		v, err := record.Parse(b)
		if err != nil {
			release()
			return none(err)
		}
		e := queue.Entry{Address: at, Position: o.Position, Size: v.Size(), TagsCode: v.TagsCode(), Time: v.StoreTime()}
		return TopicEntry{Entry: e, Queue: v.QueueID(), QueueOffset: v.QueueOffset()}, b, release, nil
	}
	if err != nil {
		return none(err)
	}
	if state.BeginsView(head[0]) { // a record does not begin so
		release()
		return s.viewEntryAt(at)
	}
	size, magic := int32(binary.BigEndian.Uint32(head)), binary.BigEndian.Uint32(head[4:])
	release()
	if magic != record.MagicV1 && magic != record.MagicV2 || size < record.MinSize {
		return none(ErrNotAddress)
	}
	if b, release, err = s.log.Read(at, int(size)); err != nil {
		return none(err)
	}
	v, err := record.Parse(b)
	if err == nil {
		// The bytes at a position between records can look like one: a body can hold anything. The index knows.
		if q := s.queueOf(string(v.Topic()), v.QueueID()); q != nil && v.PhysicalOffset() == at {
			var es [1]queue.Entry
			n, err := q.Read(v.QueueOffset(), es[:])
			if err != nil {
				release()
				return none(err)
			}
			if n == 1 && es[0].Address == at {
				return TopicEntry{Entry: es[0], Queue: v.QueueID(), QueueOffset: v.QueueOffset()}, b, release, nil
			}
		}
	}
	release()
	return none(ErrNotAddress)
}

// viewEntryAt is EntryAt for an address at which only a view can be.
func (s *Store) viewEntryAt(at int64) (e TopicEntry, b []byte, release func(), err error) {
	op, time, err := s.viewAt(at)
	if err != nil {
		return e, nil, nil, notAddress(err)
	}
	v := op.View
	q := s.queueOf(v.Topic, v.Queue)
	if q == nil {
		return e, nil, nil, ErrNotAddress
	}
	var es [1]queue.Entry
	n, err := q.Read(v.Offset, es[:])
	if err == nil && (n == 0 || es[0].Address != at) {
		err = ErrNotAddress
	}
	release = noRelease
	if err == nil {
		b, err = s.shown(at, &op, time, es[0].Position, es[0].Size)
	}
	if errors.Is(err, log.ErrRange) {
		_, b, release, err = s.movedRecord(at)
	}
	if err != nil {
		return e, nil, nil, err
	}
	return TopicEntry{Entry: es[0], Queue: v.Queue, QueueOffset: v.Offset}, b, release, nil
}

func (s *Store) queueOf(topic string, id int32) *queue.Queue {
	s.topics.mu.RLock()
	t := s.topics.byName[topic]
	s.topics.mu.RUnlock()
	if t != nil {
		return t.index.Queue(id, false)
	}
	return s.index.Queue(topic, id, false)
}

// ReadTopic fills dst with the visible messages of a topic over all its queues whose address is at least from, in
// address order, and returns how many it set. 0 means none yet. A message that becomes visible later has a greater address than all
// that were returned. Entries that cannot be read are reported as an event and end the result.
func (s *Store) ReadTopic(topic string, from int64, dst []TopicEntry) int {
	t := s.index.Topic(topic, false)
	if t == nil {
		return 0
	}
	n, err := t.Read(from, dst)
	if err != nil {
		s.event(levelError, "queue index could not be read", "topic", topic, "from", from, "err", err)
	}
	return n
}

// WatchTopic calls fn once, from the goroutine that makes it visible, when a message of topic with an address of at least from is visible. fn must not
// block. stop cancels it and reports whether fn will not be called.
func (s *Store) WatchTopic(topic string, from int64, fn func()) (stop func() bool) {
	t := s.index.Topic(topic, s.topic(topic) != nil)
	if t == nil {
		return func() bool { return true } // no such topic, so nothing will come
	}
	return t.Watch(from, fn)
}

// TopicVisible is a log position below which every message of the topic is visible.
func (s *Store) TopicVisible(topic string) int64 {
	told := s.log.Told() // before asking what is held
	t := s.index.Topic(topic, false)
	if t == nil || !t.Holding() {
		return told
	}
	return min(told, max(t.Limit(), s.log.Synced()))
}
