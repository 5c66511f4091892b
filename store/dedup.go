package store

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusionmq/fusionmq/store/dedup"
	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/lookup"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

// Idempotent sends: of messages with one id that come within Options.OnceWindow, or while the first is owed to somebody by name, the first
// is stored, and the others get its result. A Notify message (Message.Once) is known by its id alone; one for a topic with the attribute
// meta.OnceAttribute by topic and unique id. What was stored is a question to the log, so it survives a restart: the key index answers it,
// and store/dedup saves asking for ids that are surely new; of what is older than the window, see kept.
//
// A half that was rolled back is a repeat for a Notify message, whose sender is told the outcome when it tries to end it (rulings A16 and
// A22). For a topic it is none: a RocketMQ producer is told nothing, so its second half would be lost.

// ErrNotIndexed is in a Result of an idempotent send when nobody can say yet whether the message is there: the key index is being built
// again and was not so far after 5 s. Nothing was stored.
var ErrNotIndexed = errors.New("store: key index is being built again, whether the message was stored before is not known yet")

// onceWait is how long a send waits for the key index.
const onceWait = 5 * time.Second

// onceTable is the state of idempotent sends.
type onceTable struct {
	windowMS int64

	mu struct {
		sync.Mutex
		flights map[uint64]chan struct{} // hashes that some call is about to store; closed when it has ended, nil: nobody waits
		window  *dedup.Window
		start   int64 // what is below it is known to the key index only
	}
	kept           kept
	repeats, asked atomic.Int64
}

// OnceStats count since Open.
type OnceStats struct {
	Repeats int64 // sends that got the result of an earlier one
	Asked   int64 // sends for which the key index was asked
	Kept    int64 // ids of messages that are or were owed by name which the filter for what is older than the window has now
}

// OnceStats returns them.
func (s *Store) OnceStats() OnceStats {
	return OnceStats{s.once.repeats.Load(), s.once.asked.Load(), s.once.kept.size.Load()}
}

// init begins the table when the log ends at end and its newest record is older than from, milliseconds since 1970.
func (o *onceTable) init(window time.Duration, bytes int, end, from int64) {
	o.windowMS = window.Milliseconds()
	o.mu.flights = map[uint64]chan struct{}{}
	o.mu.window = dedup.New(o.windowMS, bytes, from)
	o.mu.start = end
}

// forget says that of a topic nothing was noted until now.
func (o *onceTable) forget(told, now int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.window != nil { // else the table begins later
		o.mu.window.Forget(now + 1)
		o.mu.start = max(o.mu.start, told)
	}
	o.kept.forget()
}

// written notes what is in the log now.
func (o *onceTable) written(p *log.Part) {
	n, ok := p.Batch.Note.(*note)
	if !ok || len(n.once) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, k := range n.once {
		if k.item >= p.From && k.item < p.To {
			it := &p.Batch.Items[k.item]
			o.mu.window.Insert(k.hash, it.Position, it.Time)
		}
	}
}

// onceID is what a message is known by.
type onceID struct {
	topic *topic // nil: its id alone
	id    []byte
	hash  uint64
}

// onceOf returns it; ok is false for a message that is stored however often it comes.
func onceOf(t *topic, m *Message) (id onceID, ok bool, err error) {
	if m.Once {
		b, ok := lookup.Once(m.Properties)
		if !ok {
			return id, false, &FieldError{"length of properties without the unique id in front", int64(len(m.Properties)), "UNIQ_KEY of 32 lower-case hex digits first, then the same as KEYS"}
		}
		return onceID{nil, b, lookup.Anywhere.Hash(b)}, true, nil
	}
	if t == nil || !t.once.Load() {
		return id, false, nil
	}
	b := lookup.UniqueID(m.Properties)
	if len(b) == 0 {
		return id, false, nil
	}
	return onceID{t, b, t.keys.Hash(b)}, true, nil
}

// onceCall is what one Append has to do with idempotent sends.
type onceCall struct {
	mine []uint64 // claimed
	late []int    // messages whose id another one of this call or of another call is about to store
	old  []oldResult
}

type oldResult struct {
	i int
	r Result
}

var (
	onceCalls = sync.Pool{New: func() any { return new(onceCall) }}
	errOnce   = errors.New("store: not stored by this call") // stands in results until finish
)

// claim decides about message i: without an error the call has to store it.
func (s *Store) claim(c *onceCall, i int, id *onceID, sync bool) error {
	o := &s.once
	since := s.now() - o.windowMS
	o.mu.Lock()
	if _, busy := o.mu.flights[id.hash]; busy {
		o.mu.Unlock()
		c.late = append(c.late, i)
		return errOnce
	}
	o.mu.flights[id.hash] = nil
	at, recent := o.mu.window.Recent(id.hash)
	ask := o.mu.window.May(id.hash, since)
	need := max(o.mu.start, o.mu.window.Evicted())
	o.mu.Unlock()

	var r Result
	var found bool
	var err error
	if recent {
		r, found, err = s.first(at, id, since)
	}
	if !found && err == nil {
		begin := since
		old := s.mayBeKept(id.hash, since)
		if old {
			begin = 0
		}
		if old || ask || recent {
			o.asked.Add(1)
			r, found, err = s.askKeys(id, begin, since, need)
		}
	}
	if found && err == nil {
		if r.Durability, err = s.reached(r.Address, sync); err == nil {
			c.old = append(c.old, oldResult{i, r})
			o.repeats.Add(1)
		}
	}
	if found || err != nil {
		o.release(id.hash)
		if err == nil {
			err = errOnce
		}
		return err
	}
	c.mine = append(c.mine, id.hash)
	return nil
}

func (o *onceTable) release(hash uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ch := o.mu.flights[hash]; ch != nil {
		close(ch)
	}
	delete(o.mu.flights, hash)
}

// await returns when nobody is about to store the hash.
func (o *onceTable) await(hash uint64) {
	o.mu.Lock()
	ch, busy := o.mu.flights[hash]
	if busy && ch == nil {
		ch = make(chan struct{})
		o.mu.flights[hash] = ch
	}
	o.mu.Unlock()
	if busy {
		<-ch
	}
}

// finish ends a call's part: what it has stored is there for others, then it waits for what others store. It waits for nobody
// while anybody can wait for it.
func (s *Store) finish(c *onceCall, ms []Message, rs []Result) {
	for _, h := range c.mine {
		s.once.release(h)
	}
	for _, old := range c.old {
		rs[old.i] = old.r
	}
	for _, i := range c.late {
		if id, ok, _ := onceOf(s.topic(ms[i].Topic), &ms[i]); ok {
			s.once.await(id.hash)
		}
		s.Append(ms[i:i+1], rs[i:i+1]) // it is there now, or it failed and this one is the first
	}
	clear(c.old)
	c.mine, c.late, c.old = c.mine[:0], c.late[:0], c.old[:0]
	onceCalls.Put(c)
}

// first looks at a candidate for the message: at the record at an address, or the record that the view there shows. It counts when it was stored at
// since or later, or is owed to somebody by name. It fails only when that cannot be told at the moment.
func (s *Store) first(at int64, id *onceID, since int64) (r Result, ok bool, err error) {
	b, release, err := s.recordBytes(at)
	if err == nil {
		defer release()
		if v, err := record.Parse(b); err == nil {
			r, ok = s.firstRecord(at, v, id, since)
			return r, ok, nil
		}
	}
	if passing(err) != nil {
		return r, false, err
	}
	op, _, err := s.viewAt(at)
	if err != nil {
		return r, false, passing(err)
	}
	if _, owed := s.owedAt(op.View.Topic, at); !owed {
		return r, false, nil
	}
	b, done, err := s.log.Read(op.View.Position, int(op.View.Size))
	if err != nil {
		return r, false, passing(err)
	}
	defer done()
	v, err := record.Parse(b)
	if err != nil {
		return r, false, nil
	}
	r, ok = s.firstResult(v, id)
	return r, ok, nil
}

// firstRecord is first for the record v, which was appended at an address or moved there.
func (s *Store) firstRecord(at int64, v record.View, id *onceID, since int64) (Result, bool) {
	r, ok := s.firstResult(v, id)
	if !ok {
		return r, false
	}
	topic, half := string(v.Topic()), false
	if isWaitTopic(topic) {
		half = topic == HalfTopic
		topic, _, _ = realPlace(v)
	}
	if r.Address != at || r.StoreTime < since {
		if owed, ok := s.owedAt(topic, r.Address); !ok || r.Address != at && owed.Position != at {
			return r, false
		}
	}
	if half && id.topic != nil && s.waitApplied(s.log.Told()-1) == nil && s.Half(r.Address).Outcome == state.RolledBack {
		return r, false
	}
	return r, true
}

// firstResult is the result of the append of the record v, when it is of the message.
func (s *Store) firstResult(v record.View, id *onceID) (Result, bool) {
	topic, q, waits := v.Topic(), v.QueueID(), isWaitTopic(string(v.Topic()))
	if waits {
		name, real, ok := realPlace(v)
		if !ok {
			return Result{}, false
		}
		topic, q = []byte(name), real
	}
	if id.topic == nil {
		if have, ok := lookup.Once(v.Properties()); !ok || string(have) != string(id.id) {
			return Result{}, false
		}
	} else if string(topic) != id.topic.name || string(lookup.UniqueID(v.Properties())) != string(id.id) {
		return Result{}, false
	}
	return Result{Address: v.PhysicalOffset(), QueueOffset: v.QueueOffset(), Queue: q, StoreTime: v.StoreTime(), Size: v.Size(), Repeated: true}, true
}

func (s *Store) owedAt(topic string, address int64) (state.OwedBody, bool) {
	s.machine.RLock()
	defer s.machine.RUnlock()
	return s.machine.OwedAt(topic, address)
}

// recordBytes returns the record that was appended at an address, in a queue or not, wherever it is now.
func (s *Store) recordBytes(at int64) (b []byte, release func(), err error) {
	head, release, err := s.log.Read(at, 8)
	if err == nil {
		size := int(int32(binary.BigEndian.Uint32(head)))
		release()
		if size < record.MinSize {
			return nil, nil, ErrNotAddress
		}
		return s.log.Read(at, size)
	}
	if passing(err) != nil {
		return nil, nil, err
	}
	_, b, release, err = s.movedRecord(at)
	return b, release, err
}

// askKeys asks the key index for the message, stored at begin or later, once it has everything that it is asked for.
func (s *Store) askKeys(id *onceID, begin, since, need int64) (r Result, found bool, err error) {
	need = max(need, s.once.kept.shown.Load())
	for {
		if low, at := s.keys.Position(); at < need || low > s.log.Min() {
			ctx, cancel := context.WithTimeout(context.Background(), onceWait)
			err := s.keys.Wait(ctx, s.firstSince(begin), need)
			cancel()
			if err != nil {
				return Result{}, false, ErrNotIndexed
			}
		}
		var failed error
		err = s.keys.Query(id.hash, begin, 1<<62, func(at int64) bool {
			r, found, failed = s.first(at, id, since)
			return !found && failed == nil
		})
		if failed != nil {
			return r, false, failed
		}
		var corrupt *lookup.CorruptError
		if found || err == nil || !errors.As(err, &corrupt) {
			return r, found, err
		}
		need = s.log.Told() // the file is gone, and what it had is read again
	}
}

// firstSince is a log position below which everything is older than a time.
func (s *Store) firstSince(since int64) int64 {
	from := s.log.Min()
	for _, seg := range s.log.Segments() {
		if s.log.NewestBelow(seg.End) >= since {
			break
		}
		from = seg.End
	}
	return from
}

// reached is the durability of a record that is in the log, brought to sync when that is asked for.
func (s *Store) reached(at int64, sync bool) (meta.Durability, error) {
	if s.log.Synced() > at {
		return meta.Sync, nil
	}
	if !sync {
		return meta.Async, nil
	}
	return meta.Sync, s.log.Sync()
}
