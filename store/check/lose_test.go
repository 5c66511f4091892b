package check_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/internal/fanout"
	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// messages opens a store and returns the body of every message by queue and offset, and how many are owed.
func messages(fsys vfs.FS) (map[string]string, int, error) {
	s, err := store.Open(store.Options{Dir: "/s", FS: fsys, SegmentBytes: segmentBytes, CheckpointBytes: 64 << 10, Exchange: fanout.New()})
	if err != nil {
		return nil, 0, err
	}
	all := map[string]string{}
	s.Queues(func(q *queue.Queue) {
		low, high := q.Range()
		for o := low; o < high && err == nil; o++ {
			var e [1]queue.Entry
			var n int
			if n, err = q.Read(o, e[:]); n == 0 && err == nil {
				err = fmt.Errorf("%s/%d has nothing at %d", q.Topic().Name(), q.ID(), o)
			}
			if err != nil {
				return
			}
			var b []byte
			var release func()
			if b, release, err = s.Record(e[0]); err != nil {
				return
			}
			var v record.View
			if v, err = record.Parse(b); err == nil {
				all[fmt.Sprint(q.Topic().Name(), "/", q.ID(), " ", o)] = string(v.Body())
			}
			release()
		}
	})
	owed := s.StateStats().Window
	return all, owed, errors.Join(err, s.Close())
}

// Whatever is done to a byte of a file that is not the log, every message is served and owed as before: views and snapshots are made again,
// tables of the configuration have no messages. Only the mark in commitlog/ can make a store refuse, which it says.
func TestEveryBadByteOutsideTheLogLosesNoMessage(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	m := directory(t, 12, 30)
	want, wantOwed, err := messages(vfs.NewOverlay(m))
	if err != nil || len(want) < 12 || wantOwed == 0 {
		t.Fatalf("%d messages, %d owed, %v", len(want), wantOwed, err)
	}
	all := files(t, m, "/s")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		base := filepath.Base(name)
		if base == "lock" || strings.Contains(name, "/commitlog/0") {
			continue
		}
		b := all[name]
		for off := rng.Int64N(*each); off < int64(len(b)); off += *each {
			bit := byte(1) << rng.IntN(8)
			for what, f := range map[string]func(vfs.File) error{
				fmt.Sprintf("bit %#x of byte %d flipped", bit, off): func(f vfs.File) error { _, err := f.WriteAt([]byte{b[off] ^ bit}, off); return err },
				fmt.Sprintf("cut to %d bytes", off):                 func(f vfs.File) error { return f.Truncate(off) },
			} {
				got, owed, err := messages(change(t, m, name, f))
				if err != nil && base == log.MarkerName {
					if got != nil {
						t.Fatalf("%s, %s: %v", name, what, err)
					}
					continue // refused
				}
				if err != nil || owed != wantOwed {
					t.Fatalf("%s, %s: %d owed, want %d, %v", name, what, owed, wantOwed, err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("%s, %s (-want +got):\n%s", name, what, diff)
				}
			}
		}
	}
}
