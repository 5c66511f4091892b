package store_test

import (
	"context"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/vfs"
)

var rewrite = flag.Bool("rewrite", false, "write the golden transcripts anew")

// What the store does to the disk, in order, so that every change of the order of syncs is seen in review:
// testdata/transcript.txt. Reads and closes are left out.
func TestTranscriptOfFileOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var out strings.Builder
		newest := ""                   // name in the log directory that a sync of it is about
		inDir := map[string][]string{} // operations of the step, by directory: what different goroutines do in different ones has no order
		step := func(title string, do func()) {
			out.WriteString("# " + title + "\n")
			do()
			synctest.Wait() // the background work that it asked for is done
			mu.Lock()
			defer mu.Unlock()
			for _, dir := range slices.Sorted(maps.Keys(inDir)) {
				for _, line := range inDir[dir] {
					out.WriteString(dir + ": " + line + "\n")
				}
			}
			clear(inDir)
		}
		fsys := vfs.Intercept(vfs.NewMem(), func(o vfs.Op) error {
			switch o.Kind {
			case "read", "stat", "list", "openread", "open", "close", "space":
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			dir := filepath.Dir(o.Name)
			if o.Kind == "syncdir" || o.Kind == "mkdir" {
				dir = o.Name
			}
			key := filepath.Base(dir)
			if key == "commitlog" {
				// The writer, the flush loop and the one that makes segments have no order either, but on one file.
				if o.Kind == "create" || o.Kind == "rename" || o.Kind == "remove" {
					newest = strings.TrimSuffix(filepath.Base(o.Name), ".tmp")
				}
				if o.Kind == "syncdir" {
					key += "/" + newest
				} else {
					key += "/" + strings.TrimSuffix(filepath.Base(o.Name), ".tmp")
				}
			}
			line := o.String()
			if o.Kind == "write" && !strings.HasPrefix(key, "commitlog/0") {
				line = "write " + filepath.Base(o.Name) // in how many pieces, and how long they are, does not matter
				if lines := inDir[key]; len(lines) > 0 && lines[len(lines)-1] == line {
					return nil
				}
			}
			inDir[key] = append(inDir[key], line)
			return nil
		})
		var s *store.Store
		opened := func() {
			var err error
			s, err = tryOpen(t, store.Options{Dir: "/s", FS: fsys, SegmentBytes: 64 << 10, CheckpointBytes: 128 << 10, PersistInterval: time.Hour, Retention: store.Retention{Age: time.Minute, Interval: 1000 * time.Hour}, Events: func(store.Event) {}})
			if err != nil {
				t.Fatal(err)
			}
		}
		closed := func() {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		big := strings.Repeat("x", 30<<10)
		step("open a new directory", opened)
		step("create a topic that asks for async", func() { addTopic(t, s, "A", meta.Async) })
		step("create a topic that asks for sync", func() { addTopic(t, s, "S", meta.Sync) })
		step("append async", func() { send(t, s, "A", 0, "one") })
		step("append sync", func() { send(t, s, "S", 0, "two") })
		step("append async until the segment is half full: the next one is made", func() { send(t, s, "A", 0, big+big[:10<<10]) })
		step("append over the end of the segment: padding, then the next segment", func() { send(t, s, "A", 0, big) })
		step("the background sync", func() { time.Sleep(501 * time.Millisecond) })
		step("append until a span is full: its index file, and a checkpoint when it is asked for", func() {
			for range 4 {
				send(t, s, "A", 0, big)
				synctest.Wait()
			}
			if err := s.Flush(context.Background()); err != nil {
				t.Fatal(err)
			}
		})
		step("commit an offset and close", func() {
			s.Offsets().Commit("g", "A", 0, 1)
			closed()
		})
		step("open after a clean stop", opened)
		step("create a topic that asks for memory", func() { addTopic(t, s, "M", meta.Memory) })
		step("append in memory: written behind the answer", func() { send(t, s, "M", 0, "three") })
		step("push group g is owed a message, and segments are filled", func() {
			operate(t, s, bindOps("A", "g")...)
			send(t, s, "A", 0, "four")
			for range 3 {
				send(t, s, "S", 0, big)
				synctest.Wait()
			}
		})
		step("delete what is too old: expiry, moved, state and queue records, one sync, then the names one by one", func() {
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			clear(inDir)
			if n, err := s.Clean(); err != nil || n == 0 {
				t.Fatal(n, err)
			}
		})
		step("close", closed)
		name := filepath.Join("testdata", "transcript.txt")
		got := out.String()
		if *rewrite {
			if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("file operations (-want +got), -rewrite to accept:\n%s", diff)
		}
	})
}
