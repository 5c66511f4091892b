package queue_test

import (
	"testing"

	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// Law 1: where a queue begins is what the log says. A file that was written after readers were refused what was about to go, with a power
// cut before it went, says nothing of it.
func TestLaw1QueuesBeginWhereTheLogDoes(t *testing.T) {
	for _, logMin := range []int64{0, 500, 1500, 2500} {
		fsys := vfs.NewMem()
		c := queue.Config{FS: fsys, Dir: "/i", SpanEntries: 10}
		x, err := queue.Open(c)
		if err != nil {
			t.Fatal(err)
		}
		old, young := x.Queue("Old", 0, true), x.Queue("Young", 3, true)
		for i := range int64(40) { // Young begins in the second file
			q, o := old, i
			if i >= 15 && i%2 == 0 {
				q, o = young, (i-16)/2
			} else if i >= 15 {
				o = 15 + (i-15)/2
			}
			if err := q.Put(o, queue.Entry{Address: i * 100, Position: i * 100, Size: 100}, true); err != nil {
				t.Fatal(err)
			}
			if i == 30 {
				if err := x.RaiseMin(2500); err != nil {
					t.Fatal(err)
				}
			}
		}
		x.Synced(4000)
		if err := x.Seal(4000); err != nil {
			t.Fatal(err)
		}
		wantOld, _ := old.Range()
		wantYoung, _ := young.Range()
		if wantOld != 20 || wantYoung != 5 {
			t.Fatalf("raised to %d and %d", wantOld, wantYoung)
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		c.LogMin, c.LogEnd = logMin, 4000
		if x, err = queue.Open(c); err != nil {
			t.Fatal(err)
		}
		for name, q := range map[string]*queue.Queue{"Old": x.Queue("Old", 0, false), "Young": x.Queue("Young", 3, false)} {
			low, high := q.Range()
			var es [1]queue.Entry
			if n, err := q.Read(low, es[:]); n != 1 || err != nil || es[0].Address < logMin || low > 0 && es[0].Address >= logMin+200 {
				t.Errorf("log from %d: %s is [%d, %d) and begins at %+v, %v", logMin, name, low, high, es[0], err)
			}
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
