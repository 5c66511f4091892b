package store_test

import (
	"strings"
	"testing"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// What a start finds: a directory that a test has closed, and what it has done to it.

// stop closes a store before the end of the test.
func stop(t testing.TB, s *store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// unclean closes a store and has its directory say that nobody did: the next start trusts no clean stop. No byte is lost, as after a kill.
func unclean(t testing.TB, s *store.Store, o store.Options) {
	t.Helper()
	stop(t, s)
	put(t, o.FS, store.LayoutOf(o.Dir).Abort, []byte("1"))
}

// fromLog closes a store and opens its directory again with nothing but the log and the configuration, under an exchange of its own.
func fromLog(t testing.TB, s *store.Store, o store.Options) *store.Store {
	t.Helper()
	stop(t, s)
	dropViews(t, o.FS, o.Dir)
	if o.Exchange != nil {
		o.Exchange = newFanout()
	}
	return open(t, o)
}

// dropViews removes everything that a start can make again.
func dropViews(t testing.TB, fsys vfs.FS, dir string) {
	t.Helper()
	l := store.LayoutOf(dir)
	for _, d := range []string{l.Index, l.Own} {
		names, err := fsys.List(d)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if !strings.HasSuffix(n, "/") {
				if err := fsys.Remove(d + "/" + n); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
