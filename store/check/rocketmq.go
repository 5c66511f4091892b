package check

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/rocketmq"
	"github.com/fusionmq/fusionmq/store/vfs"
)

const todoTakeOver = "Start the broker that wrote it, which builds the file again, or open the directory with FusionMQ, which does not need it."

// broker compares the files of an Apache broker with its log.
type broker struct {
	c      *checker
	queues map[string]*brokerQueue // by topic/queue
	index  *indexCursor
	timers *timerCursor
	behind int64 // records that have no entry yet, after a stop that was not clean
	newest int64 // store time
}

type brokerQueue struct {
	queue  *rocketmq.Queue
	name   string
	next   int64
	seen   bool
	failed bool
}

func (c *checker) rocketmq(segments []segmentFile) error {
	if err := c.config(); err != nil {
		return err
	}
	b := &broker{c: c, queues: map[string]*brokerQueue{}}
	if err := b.open(); err != nil {
		return err
	}
	defer b.index.close()
	l := logScan{c: c, segments: segments}
	var failed error
	l.visit = func(v record.View) {
		if failed == nil {
			failed = b.record(v)
		}
	}
	if err := errors.Join(l.run(), failed); err != nil {
		return err
	}
	return b.finish()
}

func (b *broker) open() error {
	c := b.c
	var err error
	if b.index, err = openIndexes(c); err != nil {
		return err
	}
	if b.timers, err = openTimers(c); err != nil {
		return err
	}
	topics, err := list(c.FS, filepath.Join(c.Dir, rocketmq.QueueDir))
	if err != nil {
		return err
	}
	for _, topic := range topics {
		ids, err := list(c.FS, filepath.Join(c.Dir, rocketmq.QueueDir, topic))
		if err != nil {
			return err
		}
		for _, id := range ids {
			if n, err := strconv.ParseInt(id, 10, 32); err == nil && n >= 0 {
				if _, err := b.queue(topic, int32(n)); err != nil {
					return err
				}
			}
		}
	}
	obstacles, err := rocketmq.Obstacles(c.FS, c.Dir)
	if err != nil {
		return err
	}
	for _, o := range obstacles {
		c.find(Damage, "directory", o.File, -1, o.What+": FusionMQ refuses to start", o.Todo)
	}
	return nil
}

// list returns the directories in one, without their slash; none when it is missing.
func list(fsys vfs.FS, dir string) ([]string, error) {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var dirs []string
	for _, name := range names {
		if d, ok := strings.CutSuffix(name, "/"); ok {
			dirs = append(dirs, d)
		}
	}
	return dirs, err
}

func (b *broker) queue(topic string, id int32) (*brokerQueue, error) {
	name := topic + "/" + strconv.Itoa(int(id))
	if q := b.queues[name]; q != nil {
		return q, nil
	}
	q := &brokerQueue{name: name}
	b.queues[name] = q
	b.c.report.Queues++
	x, err := rocketmq.OpenQueue(b.c.FS, b.c.Dir, topic, id)
	var bad *rocketmq.FileError
	if errors.As(err, &bad) {
		b.c.find(View, "consumequeue", bad.File, -1, bad.What, todoTakeOver)
		q.failed = true
		return q, nil
	}
	q.queue = x
	return q, err
}

// record compares what the files say of a record with the record.
func (b *broker) record(v record.View) error {
	b.newest = max(b.newest, v.StoreTime())
	b.timers.record(v, b.c.report.LogBegin)
	tx := v.TxType()
	if tx != record.FlagTxRollback {
		b.index.record(b, v)
	}
	if tx == record.FlagTxPrepared || tx == record.FlagTxRollback {
		return nil
	}
	if err := b.entry(string(v.Topic()), v.QueueID(), v.QueueOffset(), v); err != nil {
		return err
	}
	for _, l := range rocketmq.LightQueues(v) {
		if _, err := b.c.FS.List(filepath.Join(b.c.Dir, rocketmq.QueueDir, l.Name)); err != nil {
			continue // the broker did not have them on
		}
		if err := b.entry(l.Name, 0, l.Offset, v); err != nil {
			return err
		}
	}
	return nil
}

func (b *broker) entry(topic string, id int32, offset int64, v record.View) error {
	q, err := b.queue(topic, id)
	if err != nil || q.failed {
		return err
	}
	c, pos := b.c, v.PhysicalOffset()
	if q.seen && offset != q.next {
		c.find(Damage, "log", "", pos, fmt.Sprintf("message of %s has offset %d, after the one before it comes %d", q.name, offset, q.next), todoRestore)
	}
	q.seen, q.next = true, offset+1
	e, ok, err := q.queue.Entry(offset)
	if err != nil {
		return err
	}
	file := q.queue.Entries.Name(offset * rocketmq.EntryBytes)
	switch {
	case !ok && !c.report.Clean:
		b.behind++
		return nil
	case !ok:
		c.find(View, "consumequeue", file, pos, fmt.Sprintf("%s has no entry at %d", q.name, offset), todoTakeOver)
		return nil
	}
	c.report.Entries++
	if e.Position != pos || e.Size != v.Size() {
		c.find(View, "consumequeue", file, pos, fmt.Sprintf("entry of %s at %d is of position %d and %d bytes, the record of %d and %d", q.name, offset, e.Position, e.Size, pos, v.Size()), todoTakeOver)
		return nil
	}
	tags, ok, err := q.queue.Tags(e)
	if err != nil {
		return err
	}
	if !ok {
		address, _ := e.Extension()
		c.find(View, "extension", q.queue.Units.Name(address), pos, fmt.Sprintf("entry of %s at %d has no unit at %d", q.name, offset, address), todoTakeOver)
		return nil
	}
	// In a schedule queue it is the due time, by levels that are configuration of the broker.
	if topic == rocketmq.ScheduleTopic {
		if tags < v.StoreTime() {
			c.find(View, "consumequeue", file, pos, fmt.Sprintf("entry of %s at %d is due at %d, the record was stored at %d", q.name, offset, tags, v.StoreTime()), todoTakeOver)
		}
	} else if tags != v.TagsCode() {
		c.find(View, "consumequeue", file, pos, fmt.Sprintf("entry of %s at %d has tags code %d, the record %d", q.name, offset, tags, v.TagsCode()), todoTakeOver)
	}
	return nil
}

// finish looks for what no record has made, and at how far the log goes.
func (b *broker) finish() error {
	c := b.c
	for _, name := range slices.Sorted(maps.Keys(b.queues)) {
		q := b.queues[name]
		if q.failed || !q.seen {
			continue // all its messages are expired
		}
		e, ok, err := q.queue.Entry(q.next)
		if err != nil {
			return err
		}
		if ok && c.report.Clean {
			c.find(View, "consumequeue", q.queue.Entries.Name(q.next*rocketmq.EntryBytes), e.Position, fmt.Sprintf("%s has an entry at %d, the log has no such message", q.name, q.next), todoTakeOver)
		}
	}
	b.index.finish(c)
	b.timers.finish(c)
	if b.behind > 0 {
		c.find(Note, "consumequeue", "", -1, fmt.Sprintf("%d entries were not written before the stop", b.behind), todoNothing)
	}
	name := filepath.Join(c.Dir, "checkpoint")
	raw, err := vfs.ReadFile(c.FS, name, 1<<20)
	if err == nil {
		p, ok := rocketmq.DecodeCheckpoint(raw)
		if !ok {
			c.find(View, "checkpoint", name, -1, fmt.Sprintf("has %d bytes, a checkpoint has %d", len(raw), rocketmq.CheckpointBytes), todoTakeOver)
		} else if p.LogTime > b.newest && c.report.Records > 0 {
			c.find(Damage, "log", name, c.report.LogEnd, fmt.Sprintf("the log was on the disk up to a message of %d, the newest one in it is of %d", p.LogTime, b.newest), todoRestore)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return b.offsets()
}

func (b *broker) offsets() error {
	c := b.c
	above := Note
	if c.report.Clean {
		above = View
	}
	end := func(topic string, id int32) (int64, bool) {
		q := b.queues[topic+"/"+strconv.Itoa(int(id))]
		if q == nil || !q.seen {
			return 0, false
		}
		return q.next, true
	}
	for _, o := range c.offsets() {
		if n, ok := end(o.Topic, o.Queue); ok && o.Offset > n {
			c.find(above, "config", filepath.Join(c.at.Config, meta.OffsetTable), -1, fmt.Sprintf("group %s has committed %d of %s/%d, which ends at %d", o.Group, o.Offset, o.Topic, o.Queue, n), "Nothing: the next start of FusionMQ lowers it to the end.")
		}
	}
	p, err := rocketmq.ReadProgress(c.FS, c.Dir)
	if err != nil {
		return err
	}
	for level, o := range p.Levels {
		if n, ok := end(rocketmq.ScheduleTopic, int32(level-1)); ok && o > n {
			c.find(above, "config", filepath.Join(c.at.Config, "delayOffset.json"), -1, fmt.Sprintf("level %d has delivered up to %d, its queue ends at %d", level, o, n), todoNothing)
		}
	}
	return nil
}

// indexCursor goes through the key index beside the log: its entries are in the order of the log.
type indexCursor struct {
	files   []*rocketmq.Index
	names   []string
	unmap   []func() error
	file    int
	n       int32
	next    rocketmq.IndexEntry
	have    bool
	from    int64 // position of the first record that is in it
	missing int64
	first   int64 // position of the first record whose key is missing
}

func openIndexes(c *checker) (*indexCursor, error) {
	x := &indexCursor{}
	dir := filepath.Join(c.Dir, rocketmq.IndexDir)
	names, err := c.FS.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, name := range names {
		if _, err := strconv.ParseInt(name, 10, 64); err != nil {
			continue // a broker passes it over
		}
		name = filepath.Join(dir, name)
		b, unmap, err := mapped(c.FS, name)
		if err != nil {
			x.close()
			return nil, err
		}
		x.unmap = append(x.unmap, unmap)
		// A broker's configuration says how many slots there are; by default, and mostly, a fifth of the number of entries and slots.
		const perSlot = 4 + 4*20
		f, err := rocketmq.OpenIndex(b, (len(b)-40)/perSlot)
		if err == nil && (len(b)-40)%perSlot != 0 {
			c.find(Note, "keyindex", name, -1, "has another relation of slots to entries than a broker's default and is not checked", "Nothing.")
			continue
		}
		if err != nil {
			c.find(View, "keyindex", name, -1, err.Error(), todoTakeOver)
			continue
		}
		x.files, x.names = append(x.files, f), append(x.names, name)
	}
	if len(x.files) > 0 {
		x.from = x.files[0].BeginPosition
	}
	x.n = 0
	x.advance()
	return x, nil
}

// mapped is the content of a file.
func mapped(fsys vfs.FS, name string) ([]byte, func() error, error) {
	f, err := fsys.OpenRead(name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, nil, err
	}
	if m, ok := f.(vfs.Mapper); ok && size > 0 {
		return m.Map(size)
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	return b, func() error { return nil }, nil
}

func (x *indexCursor) close() {
	for _, f := range x.unmap {
		_ = f() // of a mapping that is ours and whole it cannot fail
	}
}

func (x *indexCursor) advance() {
	x.have = false
	for x.file < len(x.files) {
		f := x.files[x.file]
		if x.n++; x.n < f.Count {
			if e, ok := f.Entry(x.n); ok {
				x.next, x.have = e, true
				return
			}
		}
		x.file, x.n = x.file+1, 0
	}
}

func (x *indexCursor) record(b *broker, v record.View) {
	pos := v.PhysicalOffset()
	if len(x.files) == 0 || pos < x.from {
		return
	}
	for x.have && x.next.Position < pos {
		if x.next.Position >= b.c.report.LogBegin {
			b.c.find(View, "keyindex", x.names[x.file], x.next.Position, "has an entry of a position where no record is", todoTakeOver)
		}
		x.advance()
	}
	keys := rocketmq.Keys(v)
	hashes := map[int32]int{}
	for _, k := range keys {
		hashes[rocketmq.KeyHash(string(v.Topic()), k)]++
	}
	for x.have && x.next.Position == pos {
		// A broker that was restarted may have put the last record in twice.
		if _, ok := hashes[x.next.Hash]; !ok {
			b.c.find(View, "keyindex", x.names[x.file], pos, fmt.Sprintf("has an entry of hash %d, which is that of no key of the record", x.next.Hash), todoTakeOver)
		} else {
			hashes[x.next.Hash] = 0
		}
		x.advance()
	}
	for _, n := range hashes {
		if n > 0 && x.missing == 0 {
			x.first = pos
		}
		x.missing += int64(n)
	}
}

func (x *indexCursor) finish(c *checker) {
	switch {
	case x.have && c.report.Clean:
		c.find(View, "keyindex", x.names[x.file], x.next.Position, "has entries behind the end of the log", todoTakeOver)
	case x.missing > 0 && c.report.Clean:
		c.find(View, "keyindex", "", x.first, fmt.Sprintf("does not have %d keys of records in its range", x.missing), todoTakeOver)
	case x.missing > 0:
		c.find(Note, "keyindex", "", x.first, fmt.Sprintf("%d keys were not written before the stop", x.missing), todoNothing)
	}
}

// timerCursor goes through the timer log beside the log: its units are in the order of the log.
type timerCursor struct {
	log  *rocketmq.Sequence
	at   int64 // position behind the unit
	next rocketmq.TimerUnit
	have bool
	bad  int64
	file string // of the first bad unit, with its message's position and what is wrong
	pos  int64
	what string
}

func openTimers(c *checker) (*timerCursor, error) {
	log, err := rocketmq.OpenSequence(c.FS, filepath.Join(c.Dir, rocketmq.TimerLogDir))
	var bad *rocketmq.FileError
	if errors.As(err, &bad) {
		c.find(View, "timer", bad.File, -1, bad.What, todoTakeOver)
		return &timerCursor{log: &rocketmq.Sequence{}}, nil
	}
	if err != nil {
		return nil, err
	}
	t := &timerCursor{log: log, at: log.Begin()}
	t.advance()
	return t, nil
}

func (t *timerCursor) advance() {
	t.have = false
	for t.at < t.log.End() {
		left := t.log.Size - (t.at-t.log.Begin())%t.log.Size
		b := make([]byte, min(left, rocketmq.TimerUnitBytes+16))
		n, err := t.log.ReadAt(b, t.at)
		if err != nil {
			return
		}
		u, ok, end := rocketmq.DecodeTimerUnit(b[:n])
		switch {
		case ok:
			t.at += rocketmq.TimerUnitBytes
			t.next, t.have = u, true
			return
		case end || left < rocketmq.TimerUnitBytes+16:
			t.at += left
		default:
			return // not written yet
		}
	}
}

func (t *timerCursor) record(v record.View, begin int64) {
	pos := v.PhysicalOffset()
	for t.have && t.next.Position <= pos {
		switch {
		case t.next.Position < begin: // expired
		case t.next.Position < pos:
			t.wrong("is of a position where no record is")
		default:
			if what := unitDiffers(t.next, v); what != "" {
				t.wrong(what)
			}
		}
		t.advance()
	}
}

func (t *timerCursor) wrong(what string) {
	if t.bad++; t.bad == 1 {
		t.file, t.pos, t.what = t.log.Name(t.at-rocketmq.TimerUnitBytes), t.next.Position, what
	}
}

// unitDiffers says in what a unit of the timer log differs from the record that it is of.
func unitDiffers(u rocketmq.TimerUnit, v record.View) string {
	topic, _ := v.Property(rocketmq.PropRealTopic)
	_, cancels := v.Property(rocketmq.PropTimerDelete)
	out, _ := v.Property(rocketmq.PropTimerOut)
	due, err := strconv.ParseInt(string(out), 10, 64)
	slot := u.WriteTime + int64(u.Delay)
	rolls := u.Magic&rocketmq.TimerRoll != 0
	switch {
	case string(v.Topic()) != rocketmq.TimerTopic:
		return fmt.Sprintf("is of a message of topic %q", v.Topic())
	case u.Size != v.Size():
		return fmt.Sprintf("says %d bytes, the record has %d", u.Size, v.Size())
	case u.TopicHash != record.HashCode(topic):
		return fmt.Sprintf("is not for topic %q", topic)
	case cancels != (u.Magic&rocketmq.TimerDelete != 0) || u.Magic&^(rocketmq.TimerRoll|rocketmq.TimerDelete) != rocketmq.TimerDefault:
		return fmt.Sprintf("has magic number %d", u.Magic)
	case err == nil && (!rolls && slot != due || rolls && slot >= due):
		return fmt.Sprintf("is of the slot at %d, the message is due at %d", slot, due)
	}
	return ""
}

func (t *timerCursor) finish(c *checker) {
	if t.have && c.report.Clean {
		t.wrong("is of a position behind the end of the log")
	} else if t.have {
		c.find(Note, "timer", t.log.Name(t.at-rocketmq.TimerUnitBytes), t.next.Position, "units of the timer log are of positions behind the end of the log", todoNothing)
	}
	if t.bad > 0 {
		c.find(View, "timer", t.file, t.pos, fmt.Sprintf("%d units of the timer log differ from their messages: one %s", t.bad, t.what), todoTakeOver)
	}
	b, err := vfs.ReadFile(c.FS, filepath.Join(c.at.Config, "timercheck"), 1<<20)
	if err != nil {
		return // no broker with a timer
	}
	if p, ok := rocketmq.DecodeTimerCheckpoint(b); ok && t.at < p.LogFlushed && t.bad == 0 && !t.have {
		c.find(View, "timer", t.log.Name(t.at), -1, fmt.Sprintf("the timer log ends at %d, it was on the disk up to %d", t.at, p.LogFlushed), todoTakeOver)
	}
}
