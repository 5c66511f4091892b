package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// Severity says what a finding means for the messages.
type Severity string

const (
	Note   Severity = "note"   // left by a stop or a crash as it should be; nothing to do
	View   Severity = "view"   // a view or snapshot is wrong or missing; the log can make it again
	Damage Severity = "damage" // the log or the configuration has lost something, or a store refuses to open
)

// Finding is one thing that is not as a clean stop leaves it.
type Finding struct {
	Severity Severity `json:"severity"`
	Area     string   `json:"area"`     // log, index, keys, bits, state, config, directory; of an Apache broker: consumequeue, extension, keyindex, timer, checkpoint
	File     string   `json:"file"`     // relative to the directory; empty when it is about no single file
	Position int64    `json:"position"` // in the log; -1 when it is about no position
	What     string   `json:"what"`
	Todo     string   `json:"todo"` // what an operator can do
}

// Kind says whose directory it is.
type Kind string

const (
	FusionMQ Kind = "fusionmq"
	RocketMQ Kind = "rocketmq" // written by an Apache broker and not taken over yet
	Empty    Kind = "empty"    // without a log
)

// Report is what Run has found.
type Report struct {
	Dir          string    `json:"dir"`
	Kind         Kind      `json:"kind"`
	Clean        bool      `json:"clean"` // the last stop was clean
	SegmentBytes int64     `json:"segment_bytes"`
	Segments     int       `json:"segments"`
	LogBegin     int64     `json:"log_begin"`
	LogEnd       int64     `json:"log_end"`
	Records      int64     `json:"records"` // valid ones
	Queues       int       `json:"queues"`
	Entries      int64     `json:"entries"` // of queues, compared with their records
	Findings     []Finding `json:"findings"`
	LeftOut      int       `json:"left_out"` // findings beyond MaxFindings of their area
}

// MaxFindings is how many findings of one area a report has; the others are counted.
const MaxFindings = 100

// Worst is the most severe finding; empty when there is none.
func (r *Report) Worst() Severity {
	worst := Severity("")
	for _, f := range r.Findings {
		if f.Severity == Damage || worst == "" || worst == Note {
			worst = f.Severity
		}
	}
	return worst
}

// Err is an error that names the first damage or wrong view, nil when there is neither.
func (r *Report) Err() error {
	for _, f := range r.Findings {
		if f.Severity != Note {
			return fmt.Errorf("%s: %s: %s", f.Area, filepath.Join(r.Dir, f.File), f.What)
		}
	}
	return nil
}

// Options say what to check.
type Options struct {
	Dir string
	FS  vfs.FS // default vfs.OS

	// Exchange makes what computes the targets of push groups, the same as the store is opened with. Nil: what groups are owed
	// is not compared, and the state only when no group has a binding.
	Exchange func() state.Exchange

	// Progress is told now and then how much of a step is done, in bytes; nil: nobody is told.
	Progress func(step string, done, total int64)

	// Locked says that the caller has the lock of the directory.
	Locked bool
}

// Run checks a directory. An error means that it could not be checked: another process has it (*vfs.HeldError), it cannot be read, or ctx has ended.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if _, err := o.FS.List(o.Dir); err != nil {
		return nil, err
	}
	c := &checker{Options: o, ctx: ctx, at: store.LayoutOf(o.Dir), report: &Report{Dir: o.Dir, Findings: []Finding{}}, byArea: map[string]int{}}
	if !o.Locked {
		g, err := vfs.Guard(o.FS, c.at.Lock)
		if err != nil {
			return nil, err
		}
		defer g.Close()
	}
	if err := c.run(); err != nil {
		return nil, err
	}
	return c.report, nil
}

// checker is one run.
type checker struct {
	Options
	ctx    context.Context
	at     store.Layout
	report *Report
	byArea map[string]int
}

func (c *checker) find(s Severity, area, file string, position int64, what, todo string) {
	if c.byArea[area]++; c.byArea[area] > MaxFindings {
		c.report.LeftOut++
		return
	}
	if rel, err := filepath.Rel(c.Dir, file); file != "" && err == nil {
		file = filepath.ToSlash(rel)
	}
	c.report.Findings = append(c.report.Findings, Finding{s, area, file, position, what, todo})
}

func (c *checker) progress(step string, done, total int64) error {
	if c.Progress != nil {
		c.Progress(step, done, total)
	}
	return c.ctx.Err()
}

const (
	todoNothing = "Nothing: the next start takes care of it."
	todoRepair  = "Run `fusionctl store repair`, or start the server: it is built again from the log."
	todoRestore = "Restore the directory, or this file, from a copy. What can be read is still served."
)

func (c *checker) run() error {
	if err := c.kind(); err != nil {
		return err
	}
	segments, err := c.segments()
	if err != nil {
		return err
	}
	_, err = c.FS.Stat(c.at.Abort)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	c.report.Clean = err != nil
	if !c.report.Clean {
		c.find(Note, "directory", c.at.Abort, -1, "the last stop was not clean", todoNothing)
	}
	if c.report.Kind == RocketMQ {
		return c.rocketmq(segments)
	}
	if err := c.config(); err != nil {
		return err
	}
	if err := errors.Join(c.indexFiles(), c.keyFiles(), c.bitFiles(), c.runFiles()); err != nil {
		return err
	}
	position, err := c.checkpoint()
	if err != nil {
		return err
	}
	v, err := c.openViews()
	if err != nil {
		return err
	}
	if v != nil {
		defer v.close()
	}
	l := logScan{c: c, segments: segments}
	if v != nil {
		l.visit = func(r record.View) {
			v.gap = l.damaged
			v.record(r)
		}
	}
	if err := l.run(); err != nil {
		return err
	}
	switch {
	case !c.report.Clean || position < 0 || position == c.report.LogEnd:
	case position < c.report.LogEnd:
		c.find(View, "state", c.at.Checkpoint, -1, fmt.Sprintf("is older than the log: it was written when the log was closed with its end at %d, and the log goes on to %d", position, c.report.LogEnd),
			"Nothing is lost: the log counts. Run `fusionctl store repair`, or start the server, which reads the log on from there. If it was copied here from a backup, leave it out the next time.")
	default:
		c.find(Damage, "log", "", c.report.LogEnd, fmt.Sprintf("the log was closed with its end at %d, its last valid record ends at %d", position, c.report.LogEnd), todoRestore)
	}
	if v == nil || l.damaged {
		return nil // what follows compares with a log that is whole
	}
	v.finish()
	return v.compareStates()
}

// kind tells whose directory it is and how long its segments are.
func (c *checker) kind() error {
	_, size, err := store.ReadFormat(c.FS, c.Dir)
	var newer *store.FormatError
	switch {
	case err == nil:
		c.report.Kind, c.report.SegmentBytes = FusionMQ, size
	case errors.Is(err, fs.ErrNotExist):
		c.report.Kind = RocketMQ
	case errors.As(err, &newer):
		return err // its records may mean something else
	default:
		c.report.Kind = FusionMQ
		c.find(Damage, "directory", c.at.Marker, -1, err.Error(), "Restore the file from a copy; it says `format 1` and `segment-bytes` with the size of the segment files, each on a line.")
	}
	return nil
}

// indexFiles verifies each file of the queue index and that they follow each other.
func (c *checker) indexFiles() error {
	names, err := c.FS.List(c.at.Index)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	end := int64(-1)
	for i, name := range names {
		path := filepath.Join(c.at.Index, name)
		if strings.HasSuffix(name, ".tmp") {
			c.find(Note, "index", path, -1, "was not finished", todoNothing)
			continue
		}
		if !strings.HasSuffix(name, ".idx") {
			c.find(Note, "index", path, -1, "is no index file", "Remove it if nobody needs it.")
			continue
		}
		info, err := queue.Verify(c.FS, path)
		var corrupt *queue.CorruptError
		switch {
		case errors.As(err, &corrupt):
			c.find(View, "index", path, -1, corrupt.What, todoRepair)
			end = -1
			continue
		case err != nil:
			return err
		}
		if end >= 0 && info.Start != end {
			c.find(View, "index", path, info.Start, fmt.Sprintf("begins at %d, the file before it ends at %d", info.Start, end), todoRepair)
		}
		end = info.End
		if err := c.progress("index files", int64(i+1), int64(len(names))); err != nil {
			return err
		}
	}
	return nil
}

// checkpoint returns where a clean stop has left the end of the log, -1 when nothing says so.
func (c *checker) checkpoint() (int64, error) {
	p, err := store.ReadCheckpoint(c.FS, c.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return -1, nil
	case err != nil:
		var path *fs.PathError
		if errors.As(err, &path) {
			return -1, err
		}
		c.find(View, "state", c.at.Checkpoint, -1, err.Error(), todoRepair)
		return -1, nil
	}
	if _, err := state.LoadWith(p.State, nil, state.NewTable(), func([]byte) error { return nil }); err != nil {
		c.find(View, "state", c.at.Checkpoint, -1, "the snapshot of what is owed in it cannot be used, it may be of another version or damaged: "+strings.TrimPrefix(err.Error(), "state: "),
			"Nothing is lost: the log counts. Run `fusionctl store repair`, or start the server: the snapshot is made again from the log.")
	}
	if !p.Clean {
		return -1, nil
	}
	return p.Position, nil
}
