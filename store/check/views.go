package check

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// config reads the tables as a start does, and their backups as one that needs them would.
func (c *checker) config() error {
	names, err := c.FS.List(c.at.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, _, _, err = meta.Open(meta.Config{FS: vfs.NewOverlay(c.FS), Dir: c.at.Config, Damaged: func(d meta.Damage) {
		todo := "Nothing: the next start uses the backup, and keeps the file beside it."
		if d.Lost {
			todo = "Restore the file from a copy; otherwise the next start begins with an empty table. Topics with messages are made again with default settings."
		}
		c.find(Damage, "config", d.File, -1, fmt.Sprintf("cannot be used: %v", d.Err), todo)
	}})
	if err != nil {
		return err
	}
	if _, _, err := store.ReadSynced(c.FS, c.Dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.find(Damage, "config", filepath.Join(c.at.Config, store.SyncedName), -1, err.Error(),
			"Nothing: the next start writes it anew. If it also finds a damaged record, it cannot tell that from the end of the log.")
	}
	file, backup := store.DamagedLevels(c.FS, c.at.Config)
	switch path := filepath.Join(c.at.Config, store.LevelsName); {
	case file != nil && backup != nil:
		c.find(Damage, "config", path, -1, fmt.Sprintf("cannot be used: %v", file),
			"Restore the file from a copy; otherwise the delays that the next start is given count for all messages with a level that wait.")
	case file != nil:
		c.find(Damage, "config", path, -1, fmt.Sprintf("cannot be used: %v", file), "Nothing: the next start uses the copy beside it, and writes the file anew.")
	case backup != nil:
		c.find(Note, "config", path+".bak", -1, fmt.Sprintf("this copy cannot be used: %v", backup), "Nothing while the file itself is sound: the next start writes it anew.")
	}
	for _, table := range []string{meta.TopicTable, meta.GroupTable, meta.OffsetTable} {
		backup := filepath.Join(c.at.Config, table+".bak")
		if !slices.Contains(names, table+".bak") {
			continue
		}
		o := vfs.NewOverlay(c.FS)
		if err := o.Rename(backup, filepath.Join(c.at.Config, table)); err != nil {
			return err
		}
		_, _, _, err := meta.Open(meta.Config{FS: o, Dir: c.at.Config, Damaged: func(d meta.Damage) {
			if d.Table == table {
				c.find(Note, "config", backup, -1, fmt.Sprintf("this backup cannot be used: %v", d.Err), "Nothing while the file itself is sound: its next change writes the backup anew.")
			}
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// views is the directory as a store sees it, opened over files in memory.
type views struct {
	c      *checker
	store  *store.Store
	queues map[string][]*queueCheck // by topic and number
	gap    bool                     // a part of the log is damaged, which was reported
}

// queueCheck is what was read of a queue while the log is read.
type queueCheck struct {
	queue  *queue.Queue
	next   int64 // offset that the next record has
	seen   bool
	failed bool // it could not be read, which was reported
	buf    [16]queue.Entry
	from   int64 // offset of buf[0]
	have   int64 // in buf
}

// open opens the directory over files in memory. Nothing falls due, expires or fills up there: the store is still, the clock
// stands in 1970 and the disk is empty.
func (c *checker) open(fsys vfs.FS) (*store.Store, error) {
	o := store.Options{Dir: c.Dir, FS: fsys, Now: func() time.Time { return time.UnixMilli(0) }, FlushInterval: time.Hour, PersistInterval: time.Hour, Still: true}
	if c.Exchange != nil {
		o.Exchange = c.Exchange()
	}
	return store.Open(o)
}

// openViews opens what is to be checked; nil when a store refuses.
func (c *checker) openViews() (*views, error) {
	o := vfs.NewOverlay(c.FS)
	s, err := c.open(o)
	if err != nil {
		c.find(Damage, "directory", "", -1, fmt.Sprintf("a store refuses to open: %v", err), "Follow what the message says.")
		return nil, c.ctx.Err()
	}
	v := &views{c: c, store: s, queues: map[string][]*queueCheck{}}
	v.leftOut(o)
	return v, nil
}

func (v *views) close() {
	_ = v.store.Close() // what it would keep is in memory
}

// leftOut reports index files that an opening has removed although nothing in them is damaged.
func (v *views) leftOut(o *vfs.Overlay) {
	c := v.c
	names, err := c.FS.List(c.at.Index)
	if err != nil {
		return // there is none
	}
	for _, name := range names {
		path := filepath.Join(c.at.Index, name)
		if !strings.HasSuffix(name, ".idx") {
			continue
		}
		if _, err := o.Stat(path); err == nil {
			continue
		}
		info, err := queue.Verify(c.FS, path)
		if err != nil {
			continue // was reported
		}
		b := v.store.Bounds()
		switch {
		case info.End <= b.Min:
			c.find(Note, "index", path, info.Start, "its part of the log is gone", todoNothing)
		case info.End > b.Max && !c.report.Clean:
			c.find(Note, "index", path, info.Start, fmt.Sprintf("reaches to %d, the log ends at %d", info.End, b.Max), todoNothing)
		default:
			c.find(View, "index", path, info.Start, "does not fit the log, or the file before it", todoRepair)
		}
	}
}

// record compares what the index says of a record with the record.
func (v *views) record(r record.View) {
	if tx := r.TxType(); tx == record.FlagTxPrepared || tx == record.FlagTxRollback {
		return
	}
	pos := r.PhysicalOffset()
	v.entry(string(r.Topic()), r.QueueID(), r.QueueOffset(), queue.Entry{Address: pos, Position: pos, Size: r.Size(), TagsCode: r.TagsCode(), Time: r.StoreTime()})
	v.store.LightOf(r, v.entry)
	if err := store.ViewsOf(r, v.entry); err != nil {
		v.c.find(Damage, "log", "", pos, fmt.Sprintf("operate-queue record cannot be read: %v", err), todoRestore)
	}
}

// entry compares one entry with what is in its queue.
func (v *views) entry(topic string, id int32, offset int64, want queue.Entry) {
	q := v.queue(topic, id)
	if q == nil {
		v.c.find(View, "index", "", want.Address, fmt.Sprintf("message of %s/%d at %d is in no queue", topic, id, offset), todoRepair)
		return
	}
	if q.seen && offset != q.next && !v.gap {
		v.c.find(Damage, "log", "", want.Address, fmt.Sprintf("message of %s/%d has offset %d, after the one before it comes %d", topic, id, offset, q.next), todoRestore)
	}
	if low, _ := q.queue.Range(); !q.seen && offset != low && !v.gap {
		v.c.find(View, "index", "", want.Address, fmt.Sprintf("queue %s/%d begins at %d, its first message in the log has offset %d", topic, id, low, offset), todoRepair)
	}
	q.seen, q.next = true, offset+1
	v.c.report.Entries++
	if offset < q.from || offset >= q.from+q.have {
		n, err := q.queue.Read(offset, q.buf[:])
		if err != nil || n == 0 {
			if !q.failed {
				q.failed = true
				v.c.find(View, "index", "", want.Address, fmt.Sprintf("queue %s/%d cannot be read at %d: %v", topic, id, offset, errOr(err, "nothing is there")), todoRepair)
			}
			return
		}
		q.from, q.have = offset, int64(n)
	}
	if got := q.buf[offset-q.from]; got != want {
		v.c.find(View, "index", "", want.Address, fmt.Sprintf("entry of %s/%d at %d is %+v, the log says %+v", topic, id, offset, got, want), todoRepair)
	}
}

func errOr(err error, what string) error {
	if err != nil {
		return err
	}
	return errors.New(what)
}

func (v *views) queue(topic string, id int32) *queueCheck {
	qs := v.queues[topic]
	for int(id) >= len(qs) && id <= queue.MaxQueueID && id >= 0 {
		qs = append(qs, nil)
		v.queues[topic] = qs
	}
	if id < 0 || int(id) >= len(qs) {
		return nil
	}
	if qs[id] == nil {
		q := v.store.Queue(topic, id, false)
		if q == nil {
			return nil
		}
		qs[id] = &queueCheck{queue: q}
	}
	return qs[id]
}

// finish looks for entries that no record has made.
func (v *views) finish() {
	v.store.Queues(func(q *queue.Queue) {
		low, high := q.Range()
		if v.c.report.Queues++; low == high {
			return
		}
		topic := q.Topic().Name()
		k := v.queue(topic, q.ID())
		if first := max(low, k.next); first < high && v.lost(q, first, high) {
			return
		}
		if !k.seen {
			v.c.find(View, "index", "", -1, fmt.Sprintf("queue %s/%d has offsets %d to %d, the log has no message of it", topic, q.ID(), low, high-1), todoRepair)
		} else if k.next != high {
			v.c.find(View, "index", "", -1, fmt.Sprintf("queue %s/%d ends at %d, its messages in the log end at %d", topic, q.ID(), high, k.next), todoRepair)
		}
	})
	all, _ := v.store.Topics().All()
	known := map[string]bool{}
	for _, t := range all {
		known[t.Name] = true
	}
	for _, o := range v.c.offsets() {
		end := int64(0)
		if q := v.store.Queue(o.Topic, o.Queue, false); q != nil {
			_, end = q.Range()
		}
		if o.Offset > end && known[o.Topic] {
			v.c.find(Note, "config", filepath.Join(v.c.at.Config, meta.OffsetTable), -1, fmt.Sprintf("group %s has committed %d of %s/%d, which ends at %d", o.Group, o.Offset, o.Topic, o.Queue, end), "Nothing: the next start lowers it to the end.")
		}
	}
}

// lost says whether all entries of a queue from one offset to another are of records that are known to be damaged. A store makes them of what can
// still be read of the record, and readers get an error for it.
func (v *views) lost(q *queue.Queue, from, to int64) bool {
	ranges := v.store.Damage().Ranges
	var es [16]queue.Entry
	for from < to {
		n, err := q.Read(from, es[:min(int64(len(es)), to-from)])
		if err != nil || n == 0 {
			return false
		}
		for _, e := range es[:n] {
			if !slices.ContainsFunc(ranges, func(r log.Range) bool { return r.From <= e.Address && e.Address < r.To }) {
				return false
			}
		}
		from += int64(n)
	}
	return true
}

// offsets are the committed offsets as the file has them.
func (c *checker) offsets() []meta.Offset {
	if _, err := c.FS.List(c.at.Config); err != nil {
		return nil
	}
	_, _, offsets, err := meta.Open(meta.Config{FS: vfs.NewOverlay(c.FS), Dir: c.at.Config})
	if err != nil {
		return nil // was an error of Run before
	}
	return offsets.All()
}

// compareStates opens the directory once more without its snapshots: what the log alone says has to be the same.
func (v *views) compareStates() error {
	c := v.c
	if c.Exchange == nil && len(v.store.Bindings()) > 0 {
		return nil
	}
	if err := c.progress("state", 0, 1); err != nil {
		return err
	}
	o := vfs.NewOverlay(c.FS)
	names, err := o.List(c.at.Own)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range slices.DeleteFunc(names, func(s string) bool { return strings.HasSuffix(s, "/") }) {
		if err := o.Remove(filepath.Join(c.at.Own, name)); err != nil {
			return err
		}
	}
	s, err := c.open(o)
	if err != nil {
		c.find(Damage, "state", "", -1, fmt.Sprintf("a store refuses to open when it has to read the whole log: %v", err), "Follow what the message says. Do not remove "+filepath.Base(c.at.Own)+"/ before.")
		return c.ctx.Err()
	}
	defer func() { _ = s.Close() }() // what it would keep is in memory
	have, haveBytes, err := v.store.StateSum()
	if err != nil { // the damaged file was told
		return c.ctx.Err()
	}
	want, wantBytes, err := s.StateSum()
	if err != nil {
		return err
	}
	if have != want {
		c.find(View, "state", c.at.Checkpoint, -1, fmt.Sprintf("leads to another state (%d bytes) than the log alone (%d bytes)", haveBytes, wantBytes), todoRepair)
	}
	return c.progress("state", 1, 1)
}
