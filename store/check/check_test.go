package check_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/check"
	"github.com/fusionmq/fusionmq/store/internal/fanout"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

const segmentBytes = 64 << 10

// directory makes a store directory of a few segments with messages, groups that are owed some of them, and offsets.
func directory(t *testing.T, messages, body int) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem()
	s, err := store.Open(store.Options{Dir: "/s", FS: m, SegmentBytes: segmentBytes, CheckpointBytes: 64 << 10, Exchange: fanout.New()})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"A", "B"} {
		if err := s.Topics().Put(meta.DefaultTopic(name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Operate([]state.Op{{Kind: state.OpBind, Topic: "A", Group: "g", Binding: state.Binding{Kind: state.BindFanout}}, {Kind: state.OpAttach, Topic: "A", Group: "g"}}); err != nil {
		t.Fatal(err)
	}
	rs := make([]store.Result, 1)
	for i := range messages {
		s.Append([]store.Message{{Topic: []string{"A", "B"}[i%2], Queue: int32(i % 3), Body: bytes.Repeat([]byte{byte('a' + i%26)}, body+i%7), Properties: []byte(fmt.Sprintf("TAGS\x01t%d\x02KEYS\x01k%d\x02", i%5, i))}}, rs)
		if rs[0].Err != nil {
			t.Fatal(rs[0].Err)
		}
		if i%4 == 0 {
			if _, err := s.Operate([]state.Op{{Kind: state.OpDelete, Topic: "A", First: rs[0].Address, Last: rs[0].Address}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.Offsets().Commit("p", "B", 1, 2)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return m
}

func run(t *testing.T, fsys vfs.FS) *check.Report {
	t.Helper()
	r, err := check.Run(context.Background(), check.Options{Dir: "/s", FS: fsys, Exchange: fanout.New})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func files(t *testing.T, fsys vfs.FS, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	names, err := fsys.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		full := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			maps.Copy(out, files(t, fsys, full))
			continue
		}
		b, err := vfs.ReadFile(fsys, full, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		out[full] = b
	}
	return out
}

// change returns an overlay over m in which the file has other content.
func change(t *testing.T, m vfs.FS, name string, f func(vfs.File) error) vfs.FS {
	t.Helper()
	o := vfs.NewOverlay(m)
	x, err := o.Open(name)
	if err == nil {
		err = f(x)
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestASoundDirectoryHasNoFindingsAndIsNotChanged(t *testing.T) {
	m := directory(t, 900, 300)
	before := files(t, m, "/s")
	r := run(t, m)
	if len(r.Findings) > 0 {
		t.Errorf("findings: %+v", r.Findings)
	}
	if r.Kind != check.FusionMQ || !r.Clean || r.Segments < 5 || r.Records != 900+225+1 || r.Entries != 900+226 || r.Queues != 7 || r.SegmentBytes != segmentBytes {
		t.Errorf("report %+v", r)
	}
	if diff := cmp.Diff(before, files(t, m, "/s")); diff != "" {
		t.Errorf("files have changed:\n%s", diff)
	}
}

// What is due when a store stops is still waiting while its directory is looked at: published, it would be in a queue and not in the log.
func TestWhatIsDueIsNotPublishedByACheck(t *testing.T) {
	m := vfs.NewMem()
	s, err := store.Open(store.Options{Dir: "/s", FS: m, DelayLevels: []time.Duration{time.Millisecond}, Still: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Topics().Put(meta.DefaultTopic("T")); err != nil {
		t.Fatal(err)
	}
	rs := make([]store.Result, 100)
	for i := range rs {
		s.Append([]store.Message{{Topic: "T", Body: []byte("x")}}, rs[i:i+1])
		if rs[i].Err != nil {
			t.Fatal(rs[i].Err)
		}
		if _, err := s.SendBack(t.Context(), store.SendBack{Group: "g", Address: rs[i].Address, Most: 3}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if r := run(t, m); r.Err() != nil {
		t.Error(r.Err())
	}
}

// While a store has the directory nothing is read.
func TestADirectoryInUseIsRefused(t *testing.T) {
	m := directory(t, 5, 10)
	s, err := store.Open(store.Options{Dir: "/s", FS: m})
	if err != nil {
		t.Fatal(err)
	}
	var held *vfs.HeldError
	if _, err := check.Run(context.Background(), check.Options{Dir: "/s", FS: m}); !errors.As(err, &held) || !strings.Contains(held.Holder, "process ") {
		t.Errorf("check of an open directory: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	run(t, m)
}

// each is how many bytes lie between two that are flipped or cut at: all of them take minutes. Where it begins changes from run to run.
var each = flag.Int64("check.each", 5, "flip and cut at every nth byte")

// A flipped bit is found wherever a checksum, a length, a view or the position of the record can show it. The fields of a record
// that nothing protects are RocketMQ's: flags, times and hosts of the producer, and properties but the tag.
func TestEveryFlippedBitThatAnythingShowsIsFound(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	m := directory(t, 12, 30)
	all := files(t, m, "/s")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b := all[name]
		base := filepath.Base(name)
		if base == "lock" {
			continue
		}
		silent := func(int64) bool { return false }
		if strings.Contains(name, "/commitlog/0") {
			end := int64(0)
			for end < int64(len(b)) {
				v, err := record.Parse(b[end:])
				if err != nil {
					break
				}
				end += int64(v.Size())
			}
			b = b[:end+200]
			silent = func(off int64) bool { return unprotected(t, all[name], off) }
		}
		if strings.Contains(name, "/config/") {
			// A value that is another value cannot be told; that the file is no JSON can.
			silent = func(off int64) bool { return !strings.ContainsRune("{}[]:,\"", rune(all[name][off])) }
		}
		found := 0
		for off := rng.Int64N(*each); off < int64(len(b)); off += *each {
			bit := byte(1) << rng.IntN(8)
			r, err := check.Run(context.Background(), check.Options{Dir: "/s", Exchange: fanout.New, FS: change(t, m, name, func(f vfs.File) error {
				_, err := f.WriteAt([]byte{all[name][off] ^ bit}, off)
				return err
			})})
			var newer *store.FormatError
			if errors.As(err, &newer) {
				found++ // the flip has made the format that of a later version
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if r.Err() != nil || strings.HasSuffix(name, ".bak") && len(r.Findings) > 0 {
				found++
			} else if !silent(off) {
				t.Errorf("%s: bit %#x of byte %d was flipped and nothing found: %+v", name, bit, off, r.Findings)
			}
		}
		t.Logf("%s: %d of %d found", name, found, int64(len(b)) / *each)
		if found == 0 {
			t.Errorf("%s: nothing was found", name)
		}
	}
}

// unprotected tells whether the byte of the log is in a field that no checksum covers and no view repeats.
func unprotected(t *testing.T, log []byte, at int64) bool {
	for pos := int64(0); ; {
		v, err := record.Parse(log[pos:])
		if err != nil {
			return false // behind the end
		}
		if at >= pos+int64(v.Size()) {
			pos += int64(v.Size())
			continue
		}
		off := at - pos
		props := int64(v.Size()) - int64(len(v.Properties()))
		switch {
		case off >= 16 && off < 20, off >= 36 && off < 56, off >= 64 && off < 84: // flag; sysflag, born time and host; store host, reconsume times, prepared offset
			return true
		case off >= props:
			tag, _ := v.Property("TAGS")
			i := int64(bytes.Index(v.Properties(), tag))
			return off < props+i || off >= props+i+int64(len(tag)) || len(tag) == 0
		}
		return false
	}
}

// A file of any other length is found, but for what a crash may leave of the checkpoint: none.
func TestEveryTruncationIsFound(t *testing.T) {
	m := directory(t, 12, 30)
	all := files(t, m, "/s")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if filepath.Base(name) == "lock" || strings.HasSuffix(name, ".bak") {
			continue // the backup is read when the file cannot be
		}
		n := int64(len(all[name]))
		step := max(*each, n/100)
		for size := rand.Int64N(step); size < n-step; size += step {
			r := run(t, change(t, m, name, func(f vfs.File) error { return f.Truncate(size) }))
			if r.Err() == nil {
				t.Errorf("%s cut to %d of %d bytes: nothing found: %+v", name, size, n, r.Findings)
			}
		}
	}
}

func TestFindings(t *testing.T) {
	const last = "/s/commitlog/00000000000000262144"
	m := directory(t, 660, 300)
	end := run(t, m).LogEnd
	all := files(t, m, "/s")
	if all[last] == nil || end < 262144 || end >= 262144+segmentBytes {
		t.Fatalf("log ends at %d, files %v", end, slices.Sorted(maps.Keys(all)))
	}
	touch := func(name string, b []byte) func(*testing.T, vfs.FS) {
		return func(t *testing.T, fsys vfs.FS) {
			f, err := fsys.Create(name)
			if err == nil {
				_, err = f.WriteAt(b, 0)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	write := func(name string, off int64, b []byte) func(*testing.T, vfs.FS) {
		return func(t *testing.T, fsys vfs.FS) {
			f, err := fsys.Open(name)
			if err == nil {
				_, err = f.WriteAt(b, off)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(name string) func(*testing.T, vfs.FS) {
		return func(t *testing.T, fsys vfs.FS) {
			if err := fsys.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	var indexes []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if strings.HasSuffix(name, ".idx") {
			indexes = append(indexes, name)
		}
	}
	for _, tc := range []struct {
		name  string
		give  []func(*testing.T, vfs.FS)
		worst check.Severity
		want  string // in the first finding of that severity
		at    int64
	}{
		{"no views at all", []func(*testing.T, vfs.FS){remove("/s/fusionmq/checkpoint"), remove(indexes[0])}, check.View, "does not fit the log", -1},
		{"no checkpoint", []func(*testing.T, vfs.FS){remove("/s/fusionmq/checkpoint")}, "", "", -1},
		{"an abort file", []func(*testing.T, vfs.FS){touch("/s/abort", []byte("17"))}, check.Note, "the last stop was not clean", -1},
		{"a torn record after a crash", []func(*testing.T, vfs.FS){touch("/s/abort", nil), write(last, end-262144, []byte{0, 0, 1, 0})}, check.Note, "", -1},
		{"bytes behind the end after a clean stop", []func(*testing.T, vfs.FS){write(last, end-262144+900, []byte{1})}, check.Damage, "not zero up to", end},
		{"a hole in the middle", []func(*testing.T, vfs.FS){write("/s/commitlog/00000000000000131072", 700, make([]byte, 5000))}, check.Damage, "the log goes on at", -1},
		{"a padding that is gone", []func(*testing.T, vfs.FS){write("/s/commitlog/00000000000000065536", segmentBytes-300, make([]byte, 300))}, check.Damage, "the log goes on at 131072", -1},
		{"a segment that is gone", []func(*testing.T, vfs.FS){remove("/s/commitlog/00000000000000131072")}, check.Damage, "the segment before it ends at 131072", 196608},
		{"the last segment is gone", []func(*testing.T, vfs.FS){remove(last)}, check.Damage, "", -1},
		{"a segment being made", []func(*testing.T, vfs.FS){touch("/s/commitlog/00000000000000327680.tmp", nil)}, check.Note, "being made", -1},
		{"an unfinished index file", []func(*testing.T, vfs.FS){touch("/s/fusionmq/index/00000000000000327680.idx.tmp", nil)}, check.Note, "was not finished", -1},
		{"a foreign file in the log", []func(*testing.T, vfs.FS){touch("/s/commitlog/x", nil)}, check.Damage, "20 digits", -1},
		{"topics that cannot be read", []func(*testing.T, vfs.FS){touch("/s/config/topics.json", []byte("{"))}, check.Damage, "cannot be used", -1},
		{"an offset above the end", []func(*testing.T, vfs.FS){touch("/s/config/consumerOffset.json", []byte(`{"offsetTable":{"B@p":{1:99999}}}`))}, check.Note, "has committed 99999 of B/1", -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := vfs.NewOverlay(m)
			for _, f := range tc.give {
				f(t, o)
			}
			r := run(t, o)
			if r.Worst() != tc.worst {
				t.Fatalf("worst finding %q, want %q: %+v", r.Worst(), tc.worst, r.Findings)
			}
			if tc.want == "" {
				return
			}
			if !slices.ContainsFunc(r.Findings, func(f check.Finding) bool {
				return f.Severity == tc.worst && strings.Contains(f.What, tc.want) && (tc.at < 0 || f.Position == tc.at) && f.Todo != ""
			}) {
				t.Errorf("no finding %q at %d: %+v", tc.want, tc.at, r.Findings)
			}
		})
	}
}

// A snapshot that is well-formed and tells something else than the log is found.
func TestLaw1ASnapshotThatDiffersFromTheLogIsFound(t *testing.T) {
	a, b := directory(t, 12, 30), directory(t, 16, 30)
	ca, cb := files(t, a, "/s")["/s/fusionmq/checkpoint"], files(t, b, "/s")["/s/fusionmq/checkpoint"]
	if bytes.Equal(ca, cb) {
		t.Fatal("equal checkpoints")
	}
	r := run(t, change(t, a, "/s/fusionmq/checkpoint", func(f vfs.File) error {
		_, err := f.WriteAt(forge(ca, cb), 0)
		return errors.Join(err, f.Truncate(int64(len(forge(ca, cb)))))
	}))
	if r.Worst() != check.View || !strings.Contains(r.Findings[0].What, "another state") {
		t.Errorf("findings %+v", r.Findings)
	}
}

// Law 1: a checkpoint of before, put beside a log that went on, is told for what it is, and a start reads the log on from it.
func TestLaw1AnOlderCheckpointIsNotBelieved(t *testing.T) {
	for _, more := range []int{1, 40, 3000} {
		t.Run(fmt.Sprint(more), func(t *testing.T) {
			m := directory(t, 60, 300)
			reopen := func() *store.Store {
				t.Helper()
				s, err := store.Open(store.Options{Dir: "/s", FS: m, SegmentBytes: segmentBytes, CheckpointBytes: 64 << 10, Exchange: fanout.New()})
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			rs := make([]store.Result, 1)
			send := func(s *store.Store, n int) {
				t.Helper()
				for i := range n {
					if s.Append([]store.Message{{Topic: "A", Body: bytes.Repeat([]byte{'x'}, 300), DelayLevel: int32(i % 5 / 4 * 18)}}, rs); rs[0].Err != nil {
						t.Fatal(rs[0].Err)
					}
					if i%3 == 0 {
						if _, err := s.Operate([]state.Op{{Kind: state.OpDelete, Topic: "A", First: rs[0].Address, Last: rs[0].Address}}); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			s := reopen()
			send(s, 40) // some of it waits
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			old := files(t, m, "/s")["/s/fusionmq/checkpoint"]
			s = reopen()
			send(s, more)
			_, next := s.Queue("A", 0, false).Range()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			end := run(t, m).LogEnd
			f, err := m.Create("/s/fusionmq/checkpoint")
			if err == nil {
				_, err = f.WriteAt(old, 0)
			}
			if err = errors.Join(err, f.Truncate(int64(len(old)))); err != nil {
				t.Fatal(err)
			}
			r := run(t, m)
			if r.Worst() != check.View || len(r.Findings) != 1 || !strings.Contains(r.Findings[0].What, "is older than the log") || r.LogEnd != end {
				t.Errorf("findings %+v, want that the checkpoint is older than the log", r.Findings)
			}
			s = reopen()
			if _, got := s.Queue("A", 0, false).Range(); got != next || s.Bounds().Max < end {
				t.Errorf("a start has offsets to %d and a log to %d, want %d and %d", got, s.Bounds().Max, next, end)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if r := run(t, m); r.Err() != nil {
				t.Errorf("after a start: %+v", r.Findings)
			}
		})
	}
}

// forge gives a checkpoint the state of another one.
func forge(c, other []byte) []byte {
	le := binary.LittleEndian
	state := other[32 : len(other)-4]
	b := slices.Concat(c[:28], le.AppendUint32(nil, uint32(len(state))), state)
	return le.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}
