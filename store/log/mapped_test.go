package log_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// longLog is a log of many segments in real files, and the positions and bodies of its records.
func longLog(t *testing.T, segments, mapped int) (l *log.Log, dir string, at []int64, size int32) {
	t.Helper()
	dir = t.TempDir()
	const segment = 64 << 10
	l, err := log.Open(log.Options{FS: vfs.OS, Dir: dir, SegmentBytes: segment, Mapped: mapped, Now: func() int64 { return time.Now().UnixMilli() }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Recover(0, false, func(record.View) error { return nil }); err != nil {
		t.Fatal(err)
	}
	l.Start()
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	for int64(len(at)) < int64(segments)*6 {
		b := l.NewBatch()
		body := []byte(fmt.Sprint(len(at), strings.Repeat("x", 10000)))[:10000]
		b.Buf = record.Append(b.Buf, &record.Fields{BodyCRC: record.CRC(body), Body: body, Topic: "T"})
		b.Items = append(b.Items, log.Item{Size: int32(len(b.Buf))})
		l.Append(b)
		if b.Items[0].Err != nil {
			t.Fatal(b.Items[0].Err)
		}
		at, size = append(at, b.Items[0].Position), b.Items[0].Size
		l.Free(b)
	}
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	return l, dir, at, size
}

func openFiles(t *testing.T, dir string) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, fd := range fds {
		if name, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(name, dir) {
			n++
		}
	}
	return n
}

// Law 7: however long the log and whoever reads all of it, no more segments are mapped than configured, and no more files open than the
// appends need. What a reader holds stays.
func TestLaw7MappingsFollowWhatIsRead(t *testing.T) {
	const mapped = 4
	l, dir, at, size := longLog(t, 200, mapped)
	first, release, err := l.Read(at[0], int(size))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range at {
				pos := at[(i*7+g*131)%len(at)]
				b, release, err := l.Read(pos, int(size))
				if err != nil {
					t.Errorf("read at %d: %v", pos, err)
					return
				}
				if v, err := record.Parse(b); err != nil || v.PhysicalOffset() != pos || v.CheckBody() != nil {
					t.Errorf("record at %d: %v", pos, err)
				}
				release()
			}
		}()
	}
	wg.Wait()
	if n, bytes := l.Mapped(); n > mapped || bytes != int64(n)*(64<<10) {
		t.Errorf("%d segments, %d bytes are mapped, want at most %d segments", n, bytes, mapped)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(maps), dir); n > mapped+1 {
		t.Errorf("the process has %d mappings of the log, want at most %d and the one that is held", n, mapped)
	}
	if n := openFiles(t, dir); n > 3 {
		t.Errorf("%d files of the log are open", n)
	}
	if v, err := record.Parse(first); err != nil || v.CheckBody() != nil {
		t.Errorf("bytes that are held: %v", err)
	}
	release()
}

// What nobody reads for some minutes is let go of.
func TestIdleMappingsAreLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, at, size := longLog(t, 10, 0)
		for _, pos := range at {
			_, release, err := l.Read(pos, int(size))
			if err != nil {
				t.Fatal(err)
			}
			release()
		}
		if n, _ := l.Mapped(); n < 10 {
			t.Fatalf("%d segments are mapped", n)
		}
		for range 30 {
			time.Sleep(30 * time.Second)
			if _, release, err := l.Read(at[3], int(size)); err != nil {
				t.Fatal(err)
			} else {
				release()
			}
		}
		if n, bytes := l.Mapped(); n != 1 || bytes != 64<<10 {
			t.Errorf("%d segments, %d bytes are mapped, one is read", n, bytes)
		}
	})
}

// Somebody who cuts a file of the log costs readers of that file an error, and nobody the process.
func TestTruncatedSegmentIsAnErrorAndNotTheEnd(t *testing.T) {
	l, dir, at, size := longLog(t, 5, 0)
	held, release, err := l.Read(at[1], int(size))
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	name := filepath.Join(dir, fmt.Sprintf("%020d", 0))
	if err := os.Truncate(name, 12000); err != nil {
		t.Fatal(err)
	}
	_ = held // its bytes are gone; who still looks at them is beyond help
	for i, pos := range at {
		b, done, err := l.Read(pos, int(size))
		lost := pos+int64(size) > 12288 && pos < 64<<10 // of the page that was cut the rest reads as zeros
		if lost != (err != nil) || err != nil && !errors.Is(err, log.ErrDamaged) {
			t.Errorf("record %d at %d: %v", i, pos, err)
		}
		if err == nil {
			if v, err := record.Parse(b); pos+int64(size) <= 12000 && (err != nil || v.CheckBody() != nil) {
				t.Errorf("record %d: %v", i, err)
			}
			done()
		}
	}
	err = l.Scan(0, l.Written(), func(v record.View) error { return v.CheckBody() })
	if err == nil {
		t.Error("a scan did not notice")
	}
	b := l.NewBatch()
	b.Buf = record.Append(b.Buf, &record.Fields{Body: []byte("b"), Topic: "T"})
	b.Items = append(b.Items, log.Item{Size: int32(len(b.Buf)), Sync: true})
	if l.Append(b); b.Items[0].Err != nil {
		t.Errorf("append: %v", b.Items[0].Err)
	}
}
