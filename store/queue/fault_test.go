package queue_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// Somebody who cuts an index file costs who reads from it an error, and nobody the process.
func TestTruncatedIndexFileIsAnErrorAndNotTheEnd(t *testing.T) {
	dir := t.TempDir()
	x, err := queue.Open(queue.Config{FS: vfs.OS, Dir: dir, SpanEntries: 10000, Failed: func(error) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	q := x.Queue("T", 0, true)
	for i := range int64(10001) {
		if err := q.Put(i, queue.Entry{Address: i * 100, Position: i * 100, Size: 100}, true); err != nil {
			t.Fatal(err)
		}
	}
	x.Synced(2_000_000)
	if err := x.Drain(); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.idx"))
	if err != nil || len(names) != 1 {
		t.Fatalf("index files %v, %v", names, err)
	}
	var es [10]queue.Entry
	if n, err := q.Read(9000, es[:]); n != 10 || err != nil {
		t.Fatalf("before: %d, %v", n, err)
	}
	if err := os.Truncate(names[0], 5000); err != nil {
		t.Fatal(err)
	}
	for _, o := range []int64{0, 5000, 9000, 9990} {
		if n, err := q.Read(o, es[:]); err == nil && n > 0 && es[0].Address != o*100 {
			t.Errorf("offset %d: entry at %d", o, es[0].Address)
		} else if o >= 5000 && err == nil {
			t.Errorf("offset %d: no error", o)
		}
	}
	if n, err := q.Read(10000, es[:]); n != 1 || err != nil {
		t.Errorf("in memory: %d, %v", n, err)
	}
}
