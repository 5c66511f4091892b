package store_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/check"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// directories are those that running tests will have checked.
var directories struct {
	sync.Mutex
	of map[directory]bool
}

type directory struct {
	t   testing.TB
	fs  vfs.FS
	dir string
}

// checkAtEnd has the directory checked when the test is over, unless a store still has it or damaged is called.
func checkAtEnd(t testing.TB, o store.Options) {
	if _, ok := t.(*testing.B); ok {
		return
	}
	d := directory{t, o.FS, o.Dir}
	directories.Lock()
	defer directories.Unlock()
	if directories.of == nil {
		directories.of = map[directory]bool{}
	}
	if _, ok := directories.of[d]; ok {
		return
	}
	directories.of[d] = true
	t.Cleanup(func() {
		directories.Lock()
		check := directories.of[d]
		delete(directories.of, d)
		directories.Unlock()
		if check && !t.Failed() {
			checked(t, o)
		}
	})
}

// damaged says that the test leaves the directory damaged on purpose.
func damaged(t testing.TB, fsys vfs.FS, dir string) {
	directories.Lock()
	defer directories.Unlock()
	directories.of[directory{t, fsys, dir}] = false
}

// checked verifies a directory that no store has open: nothing in it may be damaged, and every view has to be what the log says.
func checked(t testing.TB, o store.Options) {
	t.Helper()
	for _, f := range findings(t, o) {
		t.Errorf("check of %s: %+v", o.Dir, f)
	}
}

// findings are what a check finds that a stop does not leave; nothing while a store has the directory.
func findings(t testing.TB, o store.Options) []check.Finding {
	t.Helper()
	c := check.Options{Dir: o.Dir, FS: o.FS}
	if o.Exchange != nil {
		c.Exchange = func() state.Exchange { return newFanout() }
	}
	r, err := check.Run(context.Background(), c)
	var held *vfs.HeldError
	if errors.As(err, &held) {
		return nil
	}
	if err != nil {
		t.Errorf("check of %s: %v", o.Dir, err)
		return nil
	}
	return slices.DeleteFunc(r.Findings, func(f check.Finding) bool { return f.Severity == check.Note })
}
