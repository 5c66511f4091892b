package export

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/rocketmq"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// Options say what to export.
type Options struct {
	Src, Dst string // Dst is made; it must be empty, and not inside Src
	FS       vfs.FS // default vfs.OS

	Exchange func() state.Exchange // as the store is opened with; nil: push groups get no offsets

	// QueueFileBytes is the size of a file of a consume queue. Default 6,000,000, as a broker's; a multiple of 20.
	QueueFileBytes int64

	// KeyIndex leaves a mark that makes the broker read the whole log at its first start and build its key index. Without it
	// messages of before are not found by their keys.
	KeyIndex bool

	Progress func(step string, done, total int64)
	Now      func() time.Time // default time.Now
}

// Summary is what was written.
type Summary struct {
	SegmentBytes   int64 `json:"segment_bytes"` // mappedFileSizeCommitLog of the broker
	QueueFileBytes int64 `json:"queue_file_bytes"`
	LogBegin       int64 `json:"log_begin"`
	LogEnd         int64 `json:"log_end"`
	Records        int64 `json:"records"`
	Queues         int   `json:"queues"`
	Entries        int64 `json:"entries"`
	Moved          bool  `json:"moved"` // positions, and so offset message ids, are others than they were
	Halves         int   `json:"halves"`
	Delays         int   `json:"delays"`
	Timers         int   `json:"timers"`      // of those, what needs a broker 5.x with its timer on
	Unreadable     int   `json:"unreadable"`  // messages that are left out, since their bytes are gone
	PushGroups     int   `json:"push_groups"` // topics of push groups that have got offsets
}

// Names of what is refused.
var (
	ErrNotEmpty = errors.New("export: the destination is not empty")
	ErrInside   = errors.New("export: the destination is inside the source, which is not changed")
	ErrForeign  = errors.New("export: this is the directory of an Apache broker already")
)

// unfinished keeps a broker from starting on a directory that is not complete.
const unfinished = "export-is-not-complete"

func (o *Options) defaults() error {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.QueueFileBytes == 0 {
		o.QueueFileBytes = 6_000_000
	}
	if o.QueueFileBytes < rocketmq.EntryBytes || o.QueueFileBytes%rocketmq.EntryBytes != 0 {
		return fmt.Errorf("export: QueueFileBytes is %d; want a multiple of %d", o.QueueFileBytes, rocketmq.EntryBytes)
	}
	if within(o.resolve(o.Src), o.resolve(o.Dst)) {
		return fmt.Errorf("%w: %s", ErrInside, o.Dst)
	}
	names, err := o.FS.List(o.Dst)
	if err == nil && len(names) > 0 {
		return fmt.Errorf("%w: %s has %s", ErrNotEmpty, o.Dst, names[0])
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// resolve is the directory that a path leads to, through the links of what is there of it.
func (o *Options) resolve(path string) string {
	if o.FS != vfs.OS {
		return filepath.Clean(path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	for there, rest := path, ""; ; there, rest = filepath.Dir(there), filepath.Join(filepath.Base(there), rest) {
		if real, err := filepath.EvalSymlinks(there); err == nil {
			return filepath.Join(real, rest)
		}
		if there == filepath.Dir(there) {
			return path
		}
	}
}

// within tells whether path lies below dir.
func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != "." && filepath.IsLocal(rel)
}

// Run exports a directory that no process has open, and changes nothing in it. After an error Dst is not complete, and a broker
// refuses to start on it.
func Run(ctx context.Context, o Options) (*Summary, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	layout := store.LayoutOf(o.Src)
	guard, err := vfs.Guard(o.FS, layout.Lock)
	if err != nil {
		return nil, err
	}
	defer guard.Close()
	_, segment, err := store.ReadFormat(o.FS, o.Src)
	if errors.Is(err, fs.ErrNotExist) {
		if _, e := o.FS.List(layout.Log); e == nil {
			err = ErrForeign
		}
	}
	if err != nil {
		return nil, err
	}
	// What opening it changes is written beside the destination: of a directory that was not stopped, or has lost its views, that is as much as
	// the log is long.
	over := vfs.NewScratchOverlay(o.FS, o.Dst)
	defer func() { _ = over.Close() }()
	so := store.Options{Dir: o.Src, FS: over, Now: func() time.Time { return time.UnixMilli(0) }, FlushInterval: time.Hour, PersistInterval: time.Hour, Still: true}
	if o.Exchange != nil {
		so.Exchange = o.Exchange()
	}
	s, err := store.Open(so)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }() // what it would keep goes with the overlay
	x := &exporter{Options: o, ctx: ctx, store: s, levels: map[int32]*level{}, half: halfQueue{first: -1}}
	x.sum.SegmentBytes, x.sum.QueueFileBytes = segment, o.QueueFileBytes
	if err := x.run(); err != nil {
		return nil, err
	}
	return &x.sum, nil
}

// exporter is one run.
type exporter struct {
	Options
	ctx    context.Context
	store  *store.Store
	log    logWriter
	queues queueWriter
	halves *ahead           // undecided, for the records of the log
	delays *ahead           // the same of what waits for its time
	levels map[int32]*level // by queue of the schedule topic; -1 is the timer topic
	half   halfQueue
	sum    Summary
}

// level is what was seen of a queue in which messages wait.
type level struct {
	first, open, end int64 // offset of the first that waits, how many do, and the end of the queue
}

// whole tells whether everything behind first waits, so that a broker can go on from there.
func (l *level) whole() bool { return l.open == 0 || l.end-l.first == l.open }

func (l *level) saw(offset int64, waits bool) {
	l.end = offset + 1
	if waits {
		if l.open == 0 {
			l.first = offset
		}
		l.open++
	}
}

// halfQueue is what was seen of the topic of undecided transactions.
type halfQueue struct {
	met   int   // records of those that are open
	first int64 // offset of the first that is open; -1 without one
	op    int64 // offset of our first mark
}

// ahead goes through what waits by address, beside something else that is in the order of addresses. It holds a page.
type ahead struct {
	store *store.Store
	kind  state.OwedKind
	room  [256]state.OwedEntry
	page  []state.OwedEntry // that is left
	next  int64             // from which the next page begins
	end   bool
}

func (x *exporter) ahead(kind state.OwedKind) *ahead { return &ahead{store: x.store, kind: kind} }

// head is what comes next, nil at the end; drop steps over it.
func (a *ahead) head() *state.OwedEntry {
	if len(a.page) == 0 && !a.end {
		n := a.store.Waiting(a.kind, a.next, a.room[:])
		if a.page = a.room[:n]; n > 0 {
			a.next = a.page[n-1].Address + 1
		}
		a.end = n < len(a.room)
	}
	if len(a.page) == 0 {
		return nil
	}
	return &a.page[0]
}

func (a *ahead) drop() { a.page = a.page[1:] }

// at finds what waits at an address, which is at or above those that were asked for before.
func (a *ahead) at(address int64) (e *state.OwedEntry, ok bool) {
	for {
		switch e = a.head(); {
		case e == nil || e.Address > address:
			return nil, false
		case e.Address == address:
			return e, true
		}
		a.drop()
	}
}

func (x *exporter) run() error {
	logDir := store.LayoutOf(x.Dst).Log
	if err := x.FS.MkdirAll(logDir); err != nil {
		return err
	}
	mark := filepath.Join(logDir, unfinished)
	if err := vfs.WriteFile(x.FS, mark, []byte("This export was not finished. Remove the directory.\n"), ""); err != nil {
		return err
	}
	b := x.store.Bounds()
	x.log = logWriter{fs: x.FS, dir: logDir, size: x.sum.SegmentBytes, end: b.Min}
	x.queues = queueWriter{fs: x.FS, dir: filepath.Join(x.Dst, rocketmq.QueueDir), size: x.QueueFileBytes, all: map[queueID]*queueFiles{}}
	x.sum.LogBegin = b.Min
	x.sum.Halves = x.store.StateStats().Halves
	x.halves, x.delays = x.ahead(state.OwedHalf), x.ahead(state.OwedDelay)
	n := 0
	err := x.store.Records(b.Min, func(v record.View) error {
		if n++; n%(1<<12) == 0 {
			if err := x.progress("log", v.PhysicalOffset()-b.Min, b.Max-b.Min); err != nil {
				return err
			}
		}
		return x.record(v)
	})
	if err != nil {
		return err
	}
	for _, step := range []func() error{x.waiting, x.decided, x.emptyQueues, x.log.finish, x.queues.flushAll, x.config} {
		if err := step(); err != nil {
			return err
		}
	}
	x.sum.LogEnd, x.sum.Records = x.log.end, x.log.records
	x.sum.Queues, x.sum.Entries = len(x.queues.all), x.queues.count
	if err := x.FS.SyncDir(logDir); err != nil {
		return err
	}
	if err := x.FS.Remove(mark); err != nil {
		return err
	}
	return x.FS.SyncDir(logDir)
}

func (x *exporter) progress(step string, done, total int64) error {
	if x.Progress != nil {
		x.Progress(step, done, total)
	}
	return x.ctx.Err()
}

// dues calls fn for everything in a list of what waits, in the order of due times.
func (x *exporter) dues(list func(state.Due, []state.Due) int, fn func(state.Due) error) error {
	ds := make([]state.Due, 256)
	for after := (state.Due{}); ; {
		n := list(after, ds)
		for _, d := range ds[:n] {
			if err := fn(d); err != nil {
				return err
			}
		}
		if n < len(ds) {
			return nil
		}
		after = ds[n-1]
	}
}

// record writes what a record of our log is for RocketMQ.
func (x *exporter) record(v record.View) error {
	topic := string(v.Topic())
	if strings.HasPrefix(topic, store.SystemPrefix) {
		x.sum.Moved = true
		var failed error
		err := store.ViewsOf(v, func(topic string, id int32, offset int64, e queue.Entry) {
			if failed == nil {
				failed = x.view(topic, id, offset, e)
			}
		})
		return errors.Join(err, failed)
	}
	b := append([]byte(nil), v.Bytes()...)
	if tx := v.TxType(); tx == record.FlagTxPrepared || tx == record.FlagTxRollback {
		_, err := x.log.append(b)
		return err
	}
	tags := v.TagsCode()
	switch at := v.PhysicalOffset(); topic {
	case rocketmq.HalfTopic:
		if _, open := x.halves.at(at); open {
			if x.half.met++; x.half.first < 0 {
				x.half.first = v.QueueOffset()
			}
		}
	case rocketmq.ScheduleTopic:
		d, waits := x.delays.at(at)
		if tags = v.StoreTime(); waits { // otherwise it is behind the offset from which the broker goes on, or replaced by a copy
			tags = d.Due
		}
		x.level(v.QueueID()).saw(v.QueueOffset(), waits)
	case rocketmq.TimerTopic:
		_, waits := x.delays.at(at)
		x.level(-1).saw(v.QueueOffset(), waits)
	}
	at, err := x.put(topic, v.QueueID(), v.QueueOffset(), tags, b)
	if err != nil {
		return err
	}
	x.store.LightOf(v, func(topic string, id int32, offset int64, e queue.Entry) {
		err = errors.Join(err, x.queues.put(topic, id, offset, rocketmq.Entry{Position: at, Size: int32(len(b)), Tags: tags}))
	})
	return err
}

func (x *exporter) level(id int32) *level {
	l := x.levels[id]
	if l == nil {
		l = &level{}
		x.levels[id] = l
	}
	return l
}

// view writes a view as a record.
func (x *exporter) view(topic string, id int32, offset int64, e queue.Entry) error {
	if strings.HasPrefix(topic, store.SystemPrefix) {
		return nil
	}
	b, release, err := x.store.Record(e)
	if errors.Is(err, store.ErrUnavailable) {
		return err
	}
	if err != nil {
		x.sum.Unreadable++
		return nil
	}
	b = append([]byte(nil), b...)
	release()
	_, err = x.put(topic, id, offset, e.TagsCode, b)
	return err
}

// put appends a record and its queue entry, and returns where the record is.
func (x *exporter) put(topic string, id int32, offset, tags int64, b []byte) (at int64, err error) {
	if at, err = x.log.append(b); err != nil {
		return 0, err
	}
	return at, x.queues.put(topic, id, offset, rocketmq.Entry{Position: at, Size: int32(len(b)), Tags: tags})
}

// waiting writes copies of what waits and that a broker would not find by going on at an offset: it goes to the timer topic.
func (x *exporter) waiting() error {
	copied := func(d state.Due) error {
		b, err := x.store.Preview(d)
		if errors.Is(err, store.ErrUnavailable) {
			return err
		}
		if err != nil {
			x.sum.Unreadable++
			return nil
		}
		v, err := record.Parse(b)
		if err != nil {
			return err
		}
		props := record.AppendWithout(nil, v.Properties(), rocketmq.PropRealTopic, rocketmq.PropRealQueue, rocketmq.PropTimerOut, rocketmq.PropDelay,
			"TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS")
		props = record.AppendProperty(props, rocketmq.PropTimerOut, strconv.FormatInt(d.Due, 10))
		props = record.AppendProperty(props, rocketmq.PropRealTopic, string(v.Topic()))
		props = record.AppendProperty(props, rocketmq.PropRealQueue, strconv.Itoa(int(v.QueueID())))
		x.sum.Moved = true
		x.sum.Timers++
		f := fieldsOf(v)
		f.Properties = props
		return x.extra(rocketmq.TimerTopic, f)
	}
	// As they were before the copies: these lie behind.
	timers := x.level(-1)
	if !timers.whole() {
		timers.first = timers.end
	}
	if timers.open == 0 {
		timers.first = timers.end
	}
	err := x.dues(x.store.Delays, func(d state.Due) error {
		x.sum.Delays++
		ok, err := x.inPlace(d)
		if err != nil || ok {
			return err
		}
		return copied(d)
	})
	if err != nil {
		return err
	}
	return x.dues(x.store.Returns, func(d state.Due) error {
		x.sum.Delays++
		return copied(d)
	})
}

// inPlace tells whether a broker finds a delayed message where it was stored.
func (x *exporter) inPlace(d state.Due) (bool, error) {
	if d.Address < x.store.Bounds().Min {
		return false, nil // its segment is gone, and the message was moved
	}
	b, release, err := x.store.RecordAt(d.Address)
	if errors.Is(err, store.ErrNotAddress) {
		return false, nil // it was in a damaged part
	}
	if err != nil {
		return false, err
	}
	defer release()
	v, err := record.Parse(b)
	if err != nil {
		return false, err
	}
	switch string(v.Topic()) {
	case rocketmq.ScheduleTopic:
		return x.level(v.QueueID()).whole(), nil
	case rocketmq.TimerTopic:
		x.sum.Timers++
		if l := x.level(-1); l.open == l.end-l.first {
			return true, nil
		}
		x.sum.Timers--
	}
	return false, nil
}

// extra appends a record behind all others to queue 0 of a topic. What f does not say is set.
func (x *exporter) extra(topic string, f record.Fields) error {
	f.Topic, f.BodyCRC, f.QueueOffset = topic, record.CRC(f.Body), x.queues.end(topic, 0)
	f.StoreTime = max(x.log.newest, 1)
	if f.BornTime == 0 {
		f.BornTime = f.StoreTime
	}
	if err := record.Check(&f); err != nil {
		return err
	}
	_, err := x.put(topic, 0, f.QueueOffset, record.TagsCode(f.Properties), record.Append(nil, &f))
	return err
}

// fieldsOf are what a copy of a record keeps of it.
func fieldsOf(v record.View) record.Fields {
	return record.Fields{
		Flag: v.Flag(), SysFlag: v.SysFlag() &^ record.FlagTxMask, BornTime: v.BornTime(), BornHost: v.BornHost(), StoreHost: v.StoreHost(),
		ReconsumeTimes: v.ReconsumeTimes(), PreparedOffset: v.PreparedOffset(), Body: v.Body(), Properties: v.Properties(),
	}
}
