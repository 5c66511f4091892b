package store_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/check"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// directories are those that running tests will have checked, and what is to be found in them.
var directories struct {
	sync.Mutex
	of map[directory][]string
}

type directory struct {
	t   testing.TB
	fs  vfs.FS
	dir string
}

// checkAtEnd has the directory checked when the test is over.
func checkAtEnd(t testing.TB, o store.Options) {
	if _, ok := t.(*testing.B); ok {
		return
	}
	d := directory{t, o.FS, o.Dir}
	directories.Lock()
	defer directories.Unlock()
	if directories.of == nil {
		directories.of = map[directory][]string{}
	}
	if _, ok := directories.of[d]; ok {
		return
	}
	directories.of[d] = nil
	t.Cleanup(func() {
		directories.Lock()
		want := directories.of[d]
		delete(directories.of, d)
		directories.Unlock()
		if !t.Failed() {
			found(t, o, want...)
		}
	})
}

// damaged says that the test leaves the directory damaged on purpose, and what the check at its end has to find there: what found takes.
func damaged(t testing.TB, o store.Options, want ...string) {
	checkAtEnd(t, o)
	directories.Lock()
	defer directories.Unlock()
	directories.of[directory{t, o.FS, o.Dir}] = want
}

// perhaps begins an expression that need not match a finding.
const perhaps = "perhaps "

// found verifies a directory that no store has open. Each finding has to match one of the regular expressions, from its beginning on, and each of
// these a finding; with none of them nothing in the directory may be damaged, and every view has to be what the log says.
func found(t testing.TB, o store.Options, want ...string) {
	t.Helper()
	matched := make([]bool, len(want))
	for _, f := range findings(o) {
		one := false
		for i, w := range want {
			w = strings.TrimPrefix(w, perhaps)
			if regexp.MustCompile("^(?:" + w + ")").MatchString(f) {
				matched[i], one = true, true
			}
		}
		if !one {
			t.Errorf("check of %s: %s", o.Dir, f)
		}
	}
	for i, w := range want {
		matched[i] = matched[i] || strings.HasPrefix(w, perhaps)
	}
	if i := slices.Index(matched, false); i >= 0 {
		t.Errorf("check of %s: nothing is found that is like %q", o.Dir, want[i])
	}
}

// findings are what a check finds that a stop does not leave, each as `severity area file at position: what`, or why there is no check, such as
// a store that has the directory.
func findings(o store.Options) (all []string) {
	c := check.Options{Dir: o.Dir, FS: o.FS}
	if o.Exchange != nil {
		c.Exchange = func() state.Exchange { return newFanout() }
	}
	r, err := check.Run(context.Background(), c)
	if err != nil {
		return []string{"error: " + err.Error()}
	}
	for _, f := range r.Findings {
		if f.Severity != check.Note {
			all = append(all, fmt.Sprintf("%s %s %s at %d: %s", f.Severity, f.Area, f.File, f.Position, f.What))
		}
	}
	return all
}
