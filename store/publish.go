package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/view"
)

// A publish is an operation that shows a message at a further place. It takes its queue offset in the append pipeline like a send, and
// its address is where it lies in its operate-queue record. Readers get the body's bytes with what store/view changes.

// flagViews is FLAG of an operate-queue record that has views, so that nobody decodes the others to look for some.
const flagViews = 1

// addViews makes room in the batch for the queue entries of the record that was added last. places are those of the views in its body.
func (s *Store) addViews(b *log.Batch, ops []state.Op, places []int) error {
	item := len(b.Items) - 1
	it := &b.Items[item]
	rec := b.Buf[len(b.Buf)-int(it.Size):]
	v, err := record.Parse(rec)
	if err != nil {
		return err // not of our own making
	}
	body := v.BodyOffset()
	for i := range ops {
		show := ops[i].View
		if show == nil {
			continue
		}
		at := body + places[0]
		places = places[1:]
		if show.Queue > queue.MaxQueueID {
			return &FieldError{"queue id", int64(show.Queue), "0 to 65535"}
		}
		t, err := s.viewTopic(show.Topic)
		if err != nil {
			return err
		}
		if !state.SetBack(rec[at:], at) {
			return &FieldError{"place of a view in its record", int64(at), "within 16 MiB"} // not of our own making
		}
		it.Sync = it.Sync || t.sync.Load()
		b.Views = append(b.Views, log.View{
			Item: item, Seq: &s.lane(t, show.Queue).seq, Start: at, At: at + state.OffsetAt(rec[at:]), Hold: t.sync.Load(),
			Position: show.Position, Size: show.Size, Tags: int64(show.TagsCode),
		})
	}
	return nil
}

// viewTopic returns the topic of a view. Those of retries and dead letters are made when they are missing, as RocketMQ does; any
// other one that is missing was deleted, and what is published to it waits in the index until it is made again.
func (s *Store) viewTopic(name string) (*topic, error) {
	if t := s.topic(name); t != nil {
		return t, nil
	}
	if strings.HasPrefix(name, meta.RetryPrefix) || strings.HasPrefix(name, meta.DLQPrefix) || name == AsideTopic {
		c := meta.DefaultTopic(name)
		c.ReadQueues, c.WriteQueues = 1, 1
		if err := s.tables.topics.Put(c); err != nil {
			return nil, err
		}
		return s.setTopic(&c), nil
	}
	s.topics.mu.Lock()
	defer s.topics.mu.Unlock()
	return s.topicLocked(name), nil
}

// putViews gives the views of a record that was written to the index.
func (s *Store) putViews(views []log.View, at, time int64) {
	low := int64(noLow)
	for i := range views {
		v := &views[i]
		low = min(low, v.Position)
		l := v.Seq.Owner.(*lane)
		e := queue.Entry{Address: at + int64(v.Start), Position: v.Position, Size: v.Size, TagsCode: v.Tags, Time: time}
		if err := l.queue.Put(v.QueueOffset, e, !v.Hold); err != nil {
			s.event(levelError, "queue index refused an entry", "topic", l.topic.name, "queue", l.queue.ID(), "err", err)
		}
	}
	if len(views) > 0 {
		s.lows.note(s.segmentOf(at), low, false)
	}
}

// replayViews gives the views of an operate-queue record to the index, in replay.
func (s *Store) replayViews(v record.View) error {
	if v.Flag()&flagViews == 0 || string(v.Topic()) != OQTopic {
		return nil
	}
	ops, err := state.DecodeOps(v.Body())
	if err != nil {
		return fmt.Errorf("operate-queue record at %d: %w", v.PhysicalOffset(), err)
	}
	for i := range ops {
		if show := ops[i].View; show != nil {
			if err := s.replayPut(show.Topic, show.Queue, show.Offset, viewEntry(v, show)); err != nil {
				return err
			}
		}
	}
	return nil
}

// viewEntry is the queue entry of a view in the operate-queue record v.
func viewEntry(v record.View, show *state.View) queue.Entry {
	return queue.Entry{Address: v.PhysicalOffset() + int64(show.Back), Position: show.Position, Size: show.Size, TagsCode: int64(show.TagsCode), Time: v.StoreTime()}
}

// ViewsOf calls fn for each view that the operate-queue record v makes: its queue, and its entry there. For tools.
func ViewsOf(v record.View, fn func(topic string, id int32, offset int64, e queue.Entry)) error {
	if v.Flag()&flagViews == 0 || string(v.Topic()) != OQTopic {
		return nil
	}
	ops, err := state.DecodeOps(v.Body())
	for i := range ops {
		if show := ops[i].View; show != nil {
			fn(show.Topic, show.Queue, show.Offset, viewEntry(v, show))
		}
	}
	return err
}

// published dispatches the views of an operate-queue record, after its operations.
func (d *dispatcher) published(v record.View, ops []state.Op) {
	if v.Flag()&flagViews == 0 {
		return
	}
	s := d.s
	for i := range ops {
		show := ops[i].View
		if show == nil {
			continue
		}
		s.topics.mu.RLock()
		t, owed := s.topics.byName[show.Topic], s.topics.owed[show.Topic]
		s.topics.mu.RUnlock()
		if !owed {
			continue
		}
		b, release, err := d.read(show.Position, show.Size)
		if err != nil {
			s.event(levelError, "published message cannot be read and is not pushed", "topic", show.Topic, "position", show.Position, "err", err)
			continue
		}
		if body, err := record.Parse(b); err == nil {
			d.message(show.Topic, show.Queue, viewEntry(v, show), body.Properties(), t != nil && t.sync.Load())
		} else {
			s.event(levelError, "published message cannot be read and is not pushed", "topic", show.Topic, "position", show.Position, "err", err)
		}
		release()
	}
}

// viewAt finds the view at an address: its operation and the time it was made. It gives ErrNotAddress where none is.
func (s *Store) viewAt(at int64) (op state.Op, time int64, err error) {
	head, release, err := s.log.Read(at, state.ViewBytes)
	if err != nil {
		return op, 0, err
	}
	back, ok := state.ViewBack(head)
	release()
	start := at - int64(back)
	if !ok || back <= 0 || start < 0 {
		return op, 0, ErrNotAddress
	}
	if head, release, err = s.log.Read(start, 4); err != nil {
		return op, 0, notAddress(err)
	}
	size := int64(int32(binary.BigEndian.Uint32(head)))
	release()
	if size < record.MinSize || int64(back) >= size {
		return op, 0, ErrNotAddress
	}
	b, release, err := s.log.Read(start, int(size))
	if err != nil {
		return op, 0, notAddress(err)
	}
	defer release()
	v, err := record.Parse(b)
	if err != nil || string(v.Topic()) != OQTopic || v.PhysicalOffset() != start || v.Flag()&flagViews == 0 {
		return op, 0, ErrNotAddress
	}
	if op, err = state.DecodeView(v.Body(), back-v.BodyOffset()); err != nil {
		return op, 0, ErrNotAddress
	}
	return op, v.StoreTime(), nil
}

// notAddress is what a failed read says of an address: that it is none, or nothing.
func notAddress(err error) error {
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	return ErrNotAddress
}

// shown returns the record of a view, whose body may have another place by now; 0 and 0 for the one that the view names.
func (s *Store) shown(at int64, op *state.Op, time, position int64, size int32) ([]byte, error) {
	v := op.View
	if size == 0 {
		position, size = v.Position, v.Size
	}
	b, release, err := s.log.Read(position, int(size))
	if err != nil {
		return nil, err
	}
	defer release()
	rec, err := record.Parse(b)
	if err != nil {
		return nil, err
	}
	return view.Append(nil, rec, &view.Show{
		Kind: view.Kind(v.Kind), Topic: v.Topic, Queue: v.Queue, QueueOffset: v.Offset, Address: at, Time: time,
		Origin: op.First, MessageTopic: op.Topic, Reconsume: v.Reconsume, Level: v.Level, PopTime: v.PopTime,
	}), nil
}

func noRelease() {}
