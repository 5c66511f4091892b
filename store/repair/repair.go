// Package repair brings the views of a closed store directory in order. What is truth, the log and a configuration file that can be
// read, is never changed by it: it removes views, opens the store, which builds them again from the log, and closes it.
//
// [Plan] says what [Run] would do. Damage in the log is not repaired: what can not be read is gone, and the store goes on with
// what can.
package repair

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/check"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// Options say what to repair.
type Options struct {
	Dir      string
	FS       vfs.FS                // default vfs.OS
	Exchange func() state.Exchange // as in check.Options
	Progress func(step string, done, total int64)

	All bool // remove all views and snapshots, also sound ones
}

// Action is one thing that Run does.
type Action struct {
	Kind string `json:"kind"` // remove, replace or rebuild
	File string `json:"file"` // relative to the directory; empty for rebuild
	Why  string `json:"why"`
}

// Result is a plan, or what was done.
type Result struct {
	Before  *check.Report `json:"before"`
	Actions []Action      `json:"actions"` // none when there is nothing to repair
	Beyond  []string      `json:"beyond"`  // damage that no repair undoes
	After   *check.Report `json:"after"`   // nil for a plan
}

// ErrForeign is returned for a directory that an Apache broker wrote and this program has not taken over.
var ErrForeign = errors.New("repair: this is the directory of an Apache broker: that broker builds its views itself, and FusionMQ, once it has opened the directory, does not use them")

// Plan checks a directory and says what Run would do. It changes nothing.
func Plan(ctx context.Context, o Options) (*Result, error) {
	r, err := check.Run(ctx, o.check(false))
	if err != nil {
		return nil, err
	}
	return o.plan(r)
}

func (o *Options) check(locked bool) check.Options {
	return check.Options{Dir: o.Dir, FS: o.FS, Exchange: o.Exchange, Progress: o.Progress, Locked: locked}
}

func (o *Options) plan(r *check.Report) (*Result, error) {
	if r.Kind == check.RocketMQ {
		return nil, ErrForeign
	}
	p := &Result{Before: r, Actions: []Action{}, Beyond: []string{}}
	views, opens := o.All, true
	for _, f := range r.Findings {
		switch {
		case f.Severity == check.Note:
		case f.Severity == check.View:
			views = true
		case f.Area == "config":
			p.Actions = append(p.Actions, Action{"replace", f.File, f.What + "; it is kept beside its place"})
		default:
			p.Beyond = append(p.Beyond, fmt.Sprintf("%s at %d: %s. %s", f.File, f.Position, f.What, f.Todo))
			opens = opens && f.Area != "directory"
		}
	}
	if !opens {
		p.Actions = []Action{}
		return p, nil // a store would refuse, whatever is removed
	}
	if views {
		names, err := o.views()
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			p.Actions = append(p.Actions, Action{"remove", name, "a view or snapshot, built again from the log"})
		}
	}
	if len(p.Actions) > 0 || views {
		p.Actions = append(p.Actions, Action{"rebuild", "", "the store is opened and closed"})
	}
	return p, nil
}

// views lists the files that are views: all below fusionmq/.
func (o *Options) views() ([]string, error) {
	var all []string
	var walk func(dir string) error
	fsys := o.fs()
	walk = func(dir string) error {
		names, err := fsys.List(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if d, ok := strings.CutSuffix(name, "/"); ok {
				if err := walk(filepath.Join(dir, d)); err != nil {
					return err
				}
				continue
			}
			rel, err := filepath.Rel(o.Dir, filepath.Join(dir, name))
			if err != nil {
				return err
			}
			all = append(all, rel)
		}
		return nil
	}
	return all, walk(store.LayoutOf(o.Dir).Own)
}

func (o *Options) fs() vfs.FS {
	if o.FS == nil {
		return vfs.OS
	}
	return o.FS
}

// Run checks a directory, does what its plan says, and checks it again. With nothing to do nothing is changed. A failure in between leaves
// a directory that a store opens.
func Run(ctx context.Context, o Options) (*Result, error) {
	layout := store.LayoutOf(o.Dir)
	if _, err := o.fs().List(o.Dir); err != nil {
		return nil, err
	}
	lock, err := o.fs().Lock(layout.Lock, fmt.Appendf(nil, "process %d (repair) since %s", os.Getpid(), time.Now().Format(time.RFC3339)))
	if err != nil {
		return nil, err
	}
	p, err := o.remove(ctx)
	if e := lock.Close(); err == nil {
		err = e
	}
	if err != nil || len(p.Actions) == 0 {
		return p, err
	}
	if o.Progress != nil {
		o.Progress("rebuild", 0, 1)
	}
	so := store.Options{Dir: o.Dir, FS: o.FS}
	if o.Exchange != nil {
		so.Exchange = o.Exchange()
	}
	s, err := store.Open(so)
	if err != nil {
		return p, err
	}
	if err := s.Close(); err != nil {
		return p, err
	}
	if o.Exchange == nil {
		// It did not know what push groups are owed, and a snapshot would say: nothing. The next start reads the log instead.
		if err := o.removeAll(func(name string) bool { return filepath.Dir(name) == filepath.Base(layout.Own) }); err != nil {
			return p, err
		}
	}
	p.After, err = check.Run(ctx, o.check(false))
	return p, err
}

// remove does what can be done before the store is opened; the lock is held.
func (o *Options) remove(ctx context.Context) (*Result, error) {
	r, err := check.Run(ctx, o.check(true))
	if err != nil {
		return nil, err
	}
	p, err := o.plan(r)
	if err != nil {
		return nil, err
	}
	remove := map[string]bool{}
	for _, a := range p.Actions {
		if a.Kind == "remove" {
			remove[a.File] = true
		}
	}
	return p, o.removeAll(func(name string) bool { return remove[name] })
}

// removeAll durably removes the views that which names.
func (o *Options) removeAll(which func(name string) bool) error {
	names, err := o.views()
	if err != nil {
		return err
	}
	dirs := map[string]bool{}
	for _, name := range names {
		if !which(name) {
			continue
		}
		path := filepath.Join(o.Dir, name)
		if err := o.fs().Remove(path); err != nil {
			return err
		}
		dirs[filepath.Dir(path)] = true
	}
	for dir := range dirs {
		if err := o.fs().SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}
