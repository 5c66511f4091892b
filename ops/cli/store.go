package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fusionmq/fusionmq/notify/exchange"
	"github.com/fusionmq/fusionmq/store/check"
	"github.com/fusionmq/fusionmq/store/export"
	"github.com/fusionmq/fusionmq/store/repair"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// storeCommand works on the files of a store directory that no process has open.
func (a *app) storeCommand() *cobra.Command {
	c := a.section("store", "Check, repair and export a data directory that no server has open", a.storeCheck(), a.storeRepair(), a.storeExport())
	c.Long = c.Short + ".\n\nThese commands read the files themselves: run them where the files are. They need no server and ignore --addr and --timeout."
	return c
}

// exchanges makes what computes the targets of push groups.
func exchanges() state.Exchange { return exchange.New() }

// foundError is what check returns after it has printed its report.
type foundError struct {
	dir   string
	worst check.Severity
}

func (e *foundError) Error() string {
	if e.worst == check.View {
		return e.dir + ": views are wrong or missing; no message is lost"
	}
	return e.dir + ": something is damaged"
}

func (a *app) storeCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check DIR",
		Short: "Verify a data directory and change nothing",
		Long: "Verify a data directory: every record of the log, every view against the records that it is of, the snapshot against the log alone,\n" +
			"the configuration. Directories of Apache RocketMQ 4.9 and 5 are verified too. Nothing is changed.\n\n" +
			"The exit code is 0 when all is sound, and 1 when a view is wrong or something is damaged. What a crash leaves is no damage.",
		Example: "  fusionctl store check /var/lib/fusionmq",
		Args:    names("the data DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			bar := a.newProgress()
			r, err := check.Run(cmd.Context(), check.Options{Dir: args[0], Exchange: exchanges, Progress: bar.step})
			bar.done()
			if err != nil {
				return inUse(args[0], err)
			}
			if a.output == "json" {
				err = a.printJSON(r)
			} else {
				err = a.printReport(r)
			}
			if err == nil && r.Err() != nil {
				err = &foundError{args[0], r.Worst()}
			}
			return err
		},
	}
}

// printReport prints a report for people.
func (a *app) printReport(r *check.Report) error {
	stop := "clean"
	if !r.Clean {
		stop = "not clean"
	}
	fmt.Fprintf(a.Out, "%s: %s directory, last stop %s\n", clean(r.Dir), r.Kind, stop)
	fmt.Fprintf(a.Out, "log: %s in %s of %s, positions %s to %s\n", one(int(r.Records), "record", "records"), one(r.Segments, "segment", "segments"), size(r.SegmentBytes), count(r.LogBegin), count(r.LogEnd))
	fmt.Fprintf(a.Out, "queues: %s with %s\n", count(int64(r.Queues)), one(int(r.Entries), "entry", "entries"))
	if r.Kind == check.Empty {
		fmt.Fprintln(a.Err, "No store has been in this directory. Name the directory that the server is started with (--data).")
		return nil
	}
	if len(r.Findings) == 0 {
		fmt.Fprintln(a.Out, "nothing to report")
		return nil
	}
	for _, f := range r.Findings {
		where := f.Area
		if f.File != "" {
			where += " " + clean(f.File)
		}
		if f.Position >= 0 {
			where += " at " + strconv.FormatInt(f.Position, 10)
		}
		fmt.Fprintf(a.Out, "%s: %s: %s\n    %s\n", f.Severity, where, clean(f.What), f.Todo)
	}
	if r.LeftOut > 0 {
		fmt.Fprintf(a.Out, "and %s more of the same kind\n", count(int64(r.LeftOut)))
	}
	return nil
}

func (a *app) storeRepair() *cobra.Command {
	var apply, all bool
	cmd := &cobra.Command{
		Use:   "repair DIR",
		Short: "Build the views of a data directory again",
		Long: "Build the views of a data directory again where they are wrong or missing: remove them, and read them from the log. A configuration file\n" +
			"that cannot be read is kept aside, and its backup used. The log is not changed: damage in it is reported and stays.\n\n" +
			"Without --apply this only says what would be done.",
		Example: "  fusionctl store repair /var/lib/fusionmq\n  fusionctl store repair /var/lib/fusionmq --apply",
		Args:    names("the data DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			bar := a.newProgress()
			o := repair.Options{Dir: args[0], Exchange: exchanges, Progress: bar.step, All: all}
			do := repair.Plan
			if apply {
				do = repair.Run
			}
			r, err := do(cmd.Context(), o)
			bar.done()
			if err != nil {
				return inUse(args[0], err)
			}
			if a.output == "json" {
				err = a.printJSON(r)
			} else {
				a.printRepair(args[0], r, apply)
			}
			switch {
			case err != nil:
			case len(r.Beyond) > 0:
				err = &foundError{args[0], check.Damage}
			case r.After != nil && r.After.Err() != nil:
				err = &foundError{args[0], r.After.Worst()}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&apply, "apply", false, "do it")
	cmd.Flags().BoolVar(&all, "all", false, "build all views again, also sound ones")
	return cmd
}

// printRepair prints a plan or what was done for people.
func (a *app) printRepair(dir string, r *repair.Result, applied bool) {
	for _, line := range r.Beyond {
		fmt.Fprintf(a.Out, "beyond repair: %s\n", clean(line))
	}
	if len(r.Actions) == 0 {
		fmt.Fprintln(a.Out, "nothing to repair")
		return
	}
	for _, x := range r.Actions {
		if x.File == "" {
			fmt.Fprintf(a.Out, "%s: %s\n", x.Kind, x.Why)
			continue
		}
		fmt.Fprintf(a.Out, "%s %s: %s\n", x.Kind, clean(x.File), clean(x.Why))
	}
	if !applied {
		fmt.Fprintf(a.Out, "Nothing was changed. Do it with `fusionctl store repair %s --apply`.\n", clean(dir))
		return
	}
	fmt.Fprintln(a.Out, "done")
}

func (a *app) storeExport() *cobra.Command {
	var o export.Options
	cmd := &cobra.Command{
		Use:   "export SRC DST",
		Short: "Write a data directory as a plain RocketMQ store directory",
		Long: "Write a data directory as a plain RocketMQ store directory, for the way back to an Apache broker. SRC is not changed; DST is made, or is\n" +
			"empty. Queue offsets stay as they are. A push group goes on as a pull group at the first message that it is still owed.",
		Example: "  fusionctl store export /var/lib/fusionmq /var/lib/rocketmq/store",
		Args:    names("the data directory SRC", "the directory DST to write"),
		RunE: func(cmd *cobra.Command, args []string) error {
			bar := a.newProgress()
			o.Src, o.Dst, o.Exchange, o.Progress = args[0], args[1], exchanges, bar.step
			sum, err := export.Run(cmd.Context(), o)
			bar.done()
			switch {
			case errors.Is(err, export.ErrNotEmpty):
				return &hintError{err, "Name a directory that does not exist yet."}
			case errors.Is(err, export.ErrInside):
				return &hintError{err, "Name a directory outside of it."}
			case errors.Is(err, export.ErrForeign):
				return &hintError{fmt.Errorf("%s: %w", args[0], err), "An Apache broker opens it as it is."}
			case err != nil:
				return inUse(args[0], err)
			}
			if a.output == "json" {
				return a.printJSON(sum)
			}
			a.printExport(args[1], sum)
			return nil
		},
	}
	cmd.Flags().BoolVar(&o.KeyIndex, "key-index", false, "have the broker build its key index at its first start, for which it reads the whole log")
	cmd.Flags().Int64Var(&o.QueueFileBytes, "queue-file-bytes", 0, "size of a consume queue file in bytes (default 6000000, as a broker's)")
	return cmd
}

// printExport prints what was written for people, and how a broker has to be configured for it.
func (a *app) printExport(dir string, s *export.Summary) {
	fmt.Fprintf(a.Out, "%s: %s in %s with %s, positions %s to %s\n", clean(dir), one(int(s.Records), "record", "records"), one(s.Queues, "queue", "queues"),
		one(int(s.Entries), "entry", "entries"), count(s.LogBegin), count(s.LogEnd))
	if s.Halves+s.Delays > 0 {
		fmt.Fprintf(a.Out, "waiting: %s, %s\n", one(s.Halves, "undecided transaction", "undecided transactions"), one(s.Delays, "delayed message", "delayed messages"))
	}
	if s.Timers > 0 {
		fmt.Fprintf(a.Out, "%s of them with a time of its own: only brokers 5.x with timerWheelEnable deliver those\n", count(int64(s.Timers)))
	}
	if s.PushGroups > 0 {
		fmt.Fprintf(a.Out, "push groups: offsets for %s; they get some messages again\n", one(s.PushGroups, "topic", "topics"))
	}
	if s.Moved {
		fmt.Fprintln(a.Out, "positions in the log have changed: offset message ids of before are not valid there")
	}
	if s.Unreadable > 0 {
		fmt.Fprintf(a.Out, "left out: %s that cannot be read\n", one(s.Unreadable, "message", "messages"))
	}
	fmt.Fprintf(a.Out, "broker.conf: storePathRootDir=%s mappedFileSizeCommitLog=%d mappedFileSizeConsumeQueue=%d\n", clean(dir), s.SegmentBytes, s.QueueFileBytes)
}

// inUse explains errors of the commands that work on files.
func inUse(dir string, err error) error {
	var held *vfs.HeldError
	switch {
	case errors.As(err, &held):
		who := held.Holder
		if who == "" {
			who = "another process"
		}
		return &hintError{fmt.Errorf("%s is in use by %s", dir, who), "Stop it first, or work on a copy of the directory."}
	case errors.Is(err, fs.ErrNotExist):
		return &hintError{err, "Name the directory that the server is started with (--data)."}
	case errors.Is(err, repair.ErrForeign):
		return &hintError{fmt.Errorf("%s: %w", dir, err), ""}
	}
	return err
}

// hintError is an error with what to do about it.
type hintError struct {
	error
	hint string
}

func (e *hintError) Unwrap() error { return e.error }
