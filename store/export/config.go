package export

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/rocketmq"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// opBytes is how long a body with marks of decided transactions may be; a broker writes 4096.
const opBytes = 4000

// decided moves undecided transactions whose segment is gone behind the others, and marks those that were decided behind the first
// undecided one.
func (x *exporter) decided() error {
	h := &x.half
	end := x.queues.end(rocketmq.HalfTopic, 0)
	gone := 0
	for a, begin := x.ahead(state.OwedHalf), x.store.Bounds().Min; a.head() != nil && a.head().Address < begin; a.drop() {
		gone++
		b, err := x.store.HalfRecord(a.head().Address)
		if errors.Is(err, store.ErrUnavailable) {
			return err
		}
		if err != nil {
			x.sum.Unreadable++
			continue
		}
		v, err := record.Parse(b)
		if err != nil {
			return err
		}
		if h.first < 0 {
			h.first = end
		}
		x.sum.Moved = true
		if err := x.extra(rocketmq.HalfTopic, fieldsOf(v)); err != nil {
			return err
		}
	}
	x.sum.Unreadable += x.sum.Halves - h.met - gone
	h.op = x.queues.end(rocketmq.OpTopic, 0)
	if h.first < 0 {
		h.first = end
		return nil
	}
	return x.marks(end)
}

// marks writes a mark for each half behind the first open one and in front of offset end that is decided.
func (x *exporter) marks(end int64) error {
	var decided []int64
	size := 0
	flush := func() error {
		if len(decided) == 0 {
			return nil
		}
		props := record.AppendProperty(record.AppendProperty(nil, record.PropTags, "d"), "WAIT", "true")
		err := x.extra(rocketmq.OpTopic, record.Fields{Properties: props, Body: rocketmq.AppendOp(nil, decided)})
		decided, size = decided[:0], 0
		return err
	}
	q := x.store.Queue(rocketmq.HalfTopic, 0, false)
	open := x.ahead(state.OwedHalf)
	var es [256]queue.Entry
	for o := x.half.first; o < end; {
		n, err := q.Read(o, es[:])
		if err != nil || n == 0 {
			return err
		}
		for i := range es[:n] {
			if _, ok := open.at(es[i].Address); ok {
				continue
			}
			decided = append(decided, o+int64(i))
			if size += len(strconv.FormatInt(o+int64(i), 10)) + 1; size < opBytes {
				continue
			}
			if err := flush(); err != nil {
				return err
			}
		}
		o += int64(n)
	}
	return flush()
}

// emptyQueues keeps the next offset of queues whose messages are all gone.
func (x *exporter) emptyQueues() error {
	var err error
	x.store.Queues(func(q *queue.Queue) {
		topic := q.Topic().Name()
		if _, high := q.Range(); err == nil && high > x.queues.end(topic, q.ID()) && !strings.HasPrefix(topic, store.SystemPrefix) {
			err = x.queues.put(topic, q.ID(), high, rocketmq.BlankEntry())
		}
	})
	return err
}

// config writes the tables, and where a broker goes on in its own topics.
func (x *exporter) config() error {
	dir := filepath.Join(x.Dst, rocketmq.ConfigDir)
	topics, groups, offsets, err := meta.Open(meta.Config{FS: x.FS, Dir: dir, Now: x.Now})
	if err != nil {
		return err
	}
	var ts []meta.Topic
	all, _ := x.store.Topics().All()
	for _, t := range all {
		if strings.HasPrefix(t.Name, store.SystemPrefix) {
			continue
		}
		c := *t
		c.Attributes = maps.Clone(t.Attributes)
		maps.DeleteFunc(c.Attributes, func(k, _ string) bool {
			// Whatever a topic says, its messages are in ordinary queues here, and the broker would look for others.
			return strings.HasPrefix(k, "fusion.") || k == "queue.type" || k == "cleanup.policy"
		})
		ts = append(ts, c)
	}
	for _, name := range []string{rocketmq.HalfTopic, rocketmq.OpTopic, rocketmq.TimerTopic} {
		if x.queues.end(name, 0) > 0 && x.store.Topics().Get(name) == nil {
			c := meta.DefaultTopic(name)
			c.ReadQueues, c.WriteQueues = 1, 1
			ts = append(ts, c)
		}
	}
	if err := topics.PutAll(ts); err != nil {
		return err
	}
	gs, _ := x.store.Groups().All()
	for _, g := range gs {
		if err := groups.Put(*g); err != nil {
			return err
		}
	}
	for _, o := range x.store.Offsets().All() {
		offsets.Commit(o.Group, o.Topic, o.Queue, o.Offset)
	}
	x.pushOffsets(offsets)
	// What a pop was not answered for waits by itself: the revive service begins behind what it has.
	for q, files := range x.queues.all {
		if strings.HasPrefix(q.topic, rocketmq.RevivePrefix) {
			offsets.Commit(rocketmq.ReviveGroup, q.topic, q.id, files.next-1)
		}
	}
	offsets.Commit(rocketmq.TransactionGroup, rocketmq.HalfTopic, 0, x.half.first)
	offsets.Commit(rocketmq.TransactionGroup, rocketmq.OpTopic, 0, x.half.op)
	if err := offsets.Persist(); err != nil {
		return err
	}
	if err := x.lightOffsets(offsets); err != nil {
		return err
	}
	levels := map[string]int64{}
	for id, l := range x.levels {
		if id < 0 {
			continue
		}
		next := l.end
		if l.open > 0 && l.whole() {
			next = l.first
		}
		levels[strconv.Itoa(int(id)+1)] = next
	}
	b, err := json.Marshal(map[string]any{"dataVersion": meta.DataVersion{Timestamp: x.Now().UnixMilli()}, "offsetTable": levels})
	if err != nil {
		return err
	}
	if err := vfs.WriteFile(x.FS, filepath.Join(dir, "delayOffset.json"), b, ""); err != nil {
		return err
	}
	timers := x.level(-1).first
	check := rocketmq.TimerCheckpoint{ReadTime: x.Now().UnixMilli() / 1000 * 1000, QueueOffset: timers, MasterOffset: timers, Timestamp: x.Now().UnixMilli()}
	if err := vfs.WriteFile(x.FS, filepath.Join(dir, "timercheck"), check.Encode(), ""); err != nil {
		return err
	}
	if x.KeyIndex {
		return vfs.WriteFile(x.FS, filepath.Join(x.Dst, "abort"), nil, "")
	}
	point := rocketmq.Checkpoint{LogTime: x.log.newest, QueueTime: x.log.newest}
	if x.log.records == 0 {
		point = rocketmq.Checkpoint{}
	}
	return vfs.WriteFile(x.FS, filepath.Join(x.Dst, "checkpoint"), point.Encode(), "")
}

// lightOffsets writes what has been committed into the file that a broker with light queues on reads instead, when there are any.
func (x *exporter) lightOffsets(offsets *meta.Offsets) error {
	light, all := map[string]int64{}, map[string]map[int32]int64{}
	some := false
	for q := range x.queues.all {
		some = some || strings.HasPrefix(q.topic, rocketmq.LightPrefix)
	}
	if !some {
		return nil
	}
	for _, o := range offsets.All() {
		key := o.Topic + "@" + o.Group
		if strings.HasPrefix(o.Topic, rocketmq.LightPrefix) {
			light[key] = o.Offset
			continue
		}
		if all[key] == nil {
			all[key] = map[int32]int64{}
		}
		all[key][o.Queue] = o.Offset
	}
	b, err := json.Marshal(map[string]any{"lmqOffsetTable": light, "offsetTable": all})
	if err != nil {
		return err
	}
	return vfs.WriteFile(x.FS, filepath.Join(x.Dst, rocketmq.ConfigDir, rocketmq.LightOffsets), b, "")
}

// pushOffsets gives each push group committed offsets at the first message that it is still owed, in topics where it has none.
func (x *exporter) pushOffsets(offsets *meta.Offsets) {
	if x.Exchange == nil {
		return
	}
	type place struct{ topic, group string }
	from := map[place]int64{}
	seen := map[string]bool{}
	for _, b := range x.store.Bindings() {
		p := place{b.Topic, b.Group}
		if c, ok := x.store.Cursor(b.Topic, b.Group); ok && (!c.Attached || c.Cursor < c.Attach) {
			from[p] = c.Cursor
		} else if _, ok := from[p]; !ok {
			from[p] = x.store.Bounds().Max
		}
		seen[b.Topic] = true
	}
	const page = 1024
	for topic := range seen {
		for at := int64(0); ; {
			ps := x.store.Pending(topic, at, page)
			for _, m := range ps {
				at = m.Address + 1
				lower := func(group string) {
					if n, ok := from[place{topic, group}]; ok {
						from[place{topic, group}] = min(n, m.Address)
					}
				}
				for _, g := range m.Targets {
					lower(g)
				}
				for _, r := range m.Retries {
					lower(r.Group)
				}
			}
			if len(ps) < page {
				break
			}
		}
	}
	for p, at := range from {
		if meta.CheckGroup(p.group) != nil {
			continue
		}
		has := false
		x.store.Queues(func(q *queue.Queue) {
			if q.Topic().Name() == p.topic {
				if _, ok := offsets.Get(p.group, p.topic, q.ID()); ok {
					has = true
				}
			}
		})
		if has {
			continue
		}
		x.sum.PushGroups++
		x.store.Queues(func(q *queue.Queue) {
			if q.Topic().Name() == p.topic {
				offsets.Commit(p.group, p.topic, q.ID(), q.SearchAddress(at))
			}
		})
	}
}

// String says in one line what was written.
func (s *Summary) String() string {
	return fmt.Sprintf("%d records, %d queues with %d entries, positions %d to %d", s.Records, s.Queues, s.Entries, s.LogBegin, s.LogEnd)
}
