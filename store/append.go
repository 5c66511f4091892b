package store

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
)

// appendChunk bounds the bytes that one call encodes before it hands them to the log, but for joined messages.
const appendChunk = 1 << 20

// Append stores ms in order and fills rs, one result a message. Messages that are accepted are contiguous in
// the log unless a segment ends between them, or they have more than 1 MiB together and are not Joined. It returns when each has the
// durability of its topic and is visible to readers. One call costs one lock and, when no other caller is writing, one
// write. Messages of topics that ask for memory, in a call without others, have their places and are answered before they are written and visible.
func (s *Store) Append(ms []Message, rs []Result) {
	rs = rs[:len(ms)]
	if full := s.clean.full.Load(); full != nil {
		for i := range rs {
			rs[i] = Result{Err: full}
		}
		return
	}
	b := s.log.NewBatch()
	done := 0
	var t *topic // of the message before, which is often the same
	var c *onceCall
	for i := range ms {
		m := &ms[i]
		rs[i] = Result{}
		if t == nil || t.name != m.Topic {
			t = s.topicOf(m)
		}
		if m.Once || t != nil && t.once.Load() {
			id, ok, err := onceOf(t, m)
			if ok && err == nil {
				if c == nil {
					c = onceCalls.Get().(*onceCall)
				}
				err = s.claim(c, i, &id, t != nil && t.sync.Load())
			}
			if err != nil {
				rs[i].Err = err
				continue
			}
		}
		if err := s.encode(b, t, m); err != nil {
			rs[i].Err = err
			continue
		}
		if c != nil {
			b.Items[len(b.Items)-1].Memory = false // who repeats it must find it in the log
		}
		rs[i].Queue = m.Queue
		rs[i].Size = b.Items[len(b.Items)-1].Size
		if len(b.Buf) >= appendChunk && (i+1 == len(ms) || !ms[i+1].Joined) {
			s.appendBatch(b, rs[done:i+1])
			done = i + 1
			b.Reset()
		}
	}
	s.appendBatch(b, rs[done:])
	s.log.Free(b)
	if c != nil {
		s.finish(c, ms, rs)
	}
}

// encode checks m, a message for t, and adds its record to the batch; t is nil when there is no such topic.
func (s *Store) encode(b *log.Batch, t *topic, m *Message) error {
	if n := len(m.Body); n < 1 || n > MaxBodyBytes {
		return &FieldError{"length of body", int64(n), "1 to 4194304 bytes"}
	}
	if n := len(m.Properties); n > MaxPropertiesBytes {
		return &FieldError{"length of properties", int64(n), "0 to 32767 bytes"}
	}
	if i := bytes.IndexByte(m.Properties, 0); i >= 0 {
		// Nobody sends one, and recovery tells a torn record by the zeros in it.
		return &FieldError{"position of a zero byte in properties", int64(i), "none"}
	}
	if m.Queue < 0 || m.Queue > queue.MaxQueueID {
		return &FieldError{"queue id", int64(m.Queue), "0 to 65535"}
	}
	if t == nil {
		if strings.HasPrefix(m.Topic, SystemPrefix) {
			return ErrSystemTopic
		}
		return ErrUnknownTopic
	}
	if t.system {
		return ErrSystemTopic
	}
	waits := false
	if m.Half || m.DelayLevel > 0 || m.DeliverAt > 0 {
		var err error
		if waits, err = s.addWaiting(b, t, m); err != nil {
			return err
		}
	}
	if !waits {
		s.add(b, t, m)
	}
	last := len(b.Items) - 1
	if size, most := int64(b.Items[last].Size), s.o.SegmentBytes-int64(movedFrame)-record.BlankSize; size > most {
		b.Buf, b.Items = b.Buf[:int64(len(b.Buf))-size], b.Items[:last]
		noteOf(b).cut(last)
		return fmt.Errorf("%w: %d bytes, most is %d", ErrTooLarge, size, most)
	}
	return nil
}

func (s *Store) add(b *log.Batch, t *topic, m *Message) {
	f := record.Fields{
		BodyCRC: record.CRC(m.Body), QueueID: m.Queue, Flag: m.Flag, SysFlag: m.SysFlag, BornTime: m.BornTime, BornHost: m.BornHost,
		StoreHost: s.o.StoreHost, ReconsumeTimes: m.ReconsumeTimes, PreparedOffset: m.PreparedOffset,
		Body: m.Body, Topic: t.name, Properties: m.Properties,
	}
	n := len(b.Buf)
	b.Buf = record.Append(b.Buf, &f)
	b.Own = b.Own || t.system // changes of state are small, and most of them mean that less is owed
	it := log.Item{Size: int32(len(b.Buf) - n), Sync: t.sync.Load(), Memory: t.memory.Load()}
	if tx := m.SysFlag & record.FlagTxMask; tx != record.FlagTxPrepared && tx != record.FlagTxRollback {
		it.Seq = &s.lane(t, m.Queue).seq
		it.Tags = record.TagsCode(m.Properties)
	}
	b.Items = append(b.Items, it)
	t.noteKeys(b, m.Properties)
}

// appendBatch appends what was encoded and fills the results that have no error yet.
func (s *Store) appendBatch(b *log.Batch, rs []Result) {
	if len(b.Items) == 0 {
		return
	}
	memory := true
	for i := range b.Items {
		memory = memory && b.Items[i].Memory
	}
	s.log.Append(b)
	reached := meta.Async
	if memory {
		reached = meta.Memory
	}
	k, stored := 0, 0
	for i := range rs {
		r := &rs[i]
		if r.Err != nil {
			continue
		}
		it := &b.Items[k]
		k++
		if it.Err != nil && !errors.Is(it.Err, ErrFlushTimeout) {
			*r = Result{Err: it.Err}
			continue
		}
		stored++
		r.Err, r.Address, r.QueueOffset, r.StoreTime, r.Durability = it.Err, it.Position, it.QueueOffset, it.Time, reached
		if it.Sync && it.Err == nil {
			r.Durability = meta.Sync
		}
	}
	s.appends.Add(int64(stored))
}

// written gives records that are in the page cache to the views, in log order. The log calls it from one goroutine at a
// time.
func (s *Store) written(parts []log.Part, end int64) {
	s.dispatch.pushing.RLock()
	heads := s.dispatch.scratch[:0]
	keys, scan := s.dispatch.keys[:0], false
	for i := range parts {
		items := parts[i].Items()
		keys = keysOf(keys, &parts[i])
		s.once.written(&parts[i])
		scan = scan || len(parts[i].Batch.Views) > 0 || s.hasMoved(&parts[i])
		for k := range items {
			it := &items[k]
			if it.Seq == nil {
				continue // of no queue
			}
			l := it.Seq.Owner.(*lane)
			e := queue.Entry{Address: it.Position, Position: it.Position, Size: it.Size, TagsCode: it.Tags, Time: it.Time}
			if err := l.queue.Put(it.QueueOffset, e, !it.Sync); err != nil {
				// The sequence was taken from the index and only the log advances it, so this is a bug, not a state to handle.
				s.event(levelError, "queue index refused an entry", "topic", l.topic.name, "queue", l.queue.ID(), "err", err)
			}
			if len(parts[i].Batch.Views) > 0 {
				s.putViews(parts[i].Batch.ViewsOf(parts[i].From+k), it.Position, it.Time)
			}
			if l.topic.interested.Load() || l.topic == s.oq {
				heads = append(heads, head{lane: l, entry: e, offset: it.QueueOffset, held: it.Sync})
			}
		}
	}
	if s.dispatch.looked != nil {
		s.dispatch.looked()
	}
	s.dispatch.push(heads, end)
	s.dispatch.scratch = heads
	s.dispatch.pushing.RUnlock()
	if scan {
		s.once.kept.shown.Store(end)
		s.keys.Advance(parts[0].Items()[0].Position, end, end) // it looks at what was published or moved
	} else {
		s.keys.Put(keys, end)
	}
	s.dispatch.keys = keys
	s.index.Wake()
}

// synced makes visible what waited for the disk.
func (s *Store) synced(end int64) {
	s.index.Synced(end)
	s.keys.Synced(end)
	s.dispatch.synced(end)
}
