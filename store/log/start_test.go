package log_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// startedFS notes what its files are told to start, by name.
type startedFS struct {
	vfs.FS
	mu      sync.Mutex
	started map[string][][2]int64
}

type startedFile struct {
	vfs.File
	fs   *startedFS
	name string
}

func (f *startedFS) Create(name string) (vfs.File, error) {
	file, err := f.FS.Create(name)
	return &startedFile{file, f, strings.TrimSuffix(name, ".tmp")}, err
}

func (f *startedFile) StartSync(off, n int64) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.fs.started[f.name] = append(f.fs.started[f.name], [2]int64{off, off + n})
}

// What is written is on its way to the disk before the tick of the flush loop, each byte once, in whole pages.
func TestWhatIsWrittenStartsForTheDiskBeforeTheNextSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const segment, total = 3 << 20, 20 << 20
		fsys := &startedFS{FS: vfs.NewMem(), started: map[string][][2]int64{}}
		if err := fsys.MkdirAll("/log"); err != nil {
			t.Fatal(err)
		}
		l, err := log.Open(log.Options{FS: fsys, Dir: "/log", SegmentBytes: segment, FlushInterval: time.Hour, Now: func() int64 { return time.Now().UnixMilli() }})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Recover(l.Min(), false, func(record.View) error { return nil }); err != nil {
			t.Fatal(err)
		}
		l.Start()
		var seq log.Sequence
		for l.Written() < total {
			b := l.NewBatch()
			add(b, &seq, 100_000, false)
			l.Append(b)
			if err := b.Items[0].Err; err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if l.Synced() > 0 {
			t.Fatalf("synced to %d without being asked", l.Synced())
		}
		fsys.mu.Lock()
		names, err := fsys.List("/log")
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for _, name := range names {
			end := int64(0)
			for _, r := range fsys.started["/log/"+name] {
				if r[0] != end || r[1] <= r[0] || r[1] > segment || r[1]%4096 != 0 {
					t.Errorf("%s: started %v behind %d", name, r, end)
				}
				end = r[1]
			}
			sum += end
		}
		fsys.mu.Unlock()
		if sum > l.Written() || sum < l.Written()-5<<20 {
			t.Errorf("started %d of %d bytes", sum, l.Written())
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
