package store_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/internal/vectors"
	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

func put(t testing.TB, fsys vfs.FS, name string, b []byte) {
	t.Helper()
	if err := fsys.MkdirAll(filepath.Dir(name)); err != nil {
		t.Fatal(err)
	}
	f, err := fsys.Create(name)
	if err == nil {
		if _, err = f.WriteAt(b, 0); err == nil {
			if err = f.Truncate(int64(len(b))); err == nil {
				err = f.Sync()
			}
		}
	}
	if err == nil {
		err = fsys.SyncDir(filepath.Dir(name))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func contents(t testing.TB, fsys vfs.FS, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	names, err := fsys.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		full := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			for n, b := range contents(t, fsys, full) {
				all[n] = b
			}
			continue
		}
		b, err := vfs.ReadFile(fsys, full, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		all[full] = string(b)
	}
	return all
}

// A log that ends anywhere, with zeros or with rubbish behind it, is cut at the end of the last whole record, and the next
// message stands there.
func TestLogIsCutAtEveryByte(t *testing.T) {
	origin := vfs.NewMem()
	o := store.Options{Dir: "/s", FS: origin, SegmentBytes: 64 << 10}
	s, err := tryOpen(t, o)
	if err != nil {
		t.Fatal(err)
	}
	addTopic(t, s, "A", meta.Async)
	var ends []int64
	for i := range 5 {
		r := send(t, s, "A", 0, strings.Repeat("b", i*17+1))
		ends = append(ends, r.Address+int64(r.Size))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	segment := []byte(contents(t, origin, "/s")["/s/commitlog/00000000000000000000"])
	topics := []byte(contents(t, origin, "/s")["/s/config/topics.json"])
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for cut := range ends[len(ends)-1] + 1 {
		for _, rubbish := range []bool{false, true} {
			b := make([]byte, len(segment))
			copy(b, segment[:cut])
			whole := 0
			for whole < len(ends) && ends[whole] <= cut {
				whole++
			}
			if rubbish {
				// Behind the record that is torn: inside one only zeros can be, since nothing else lies behind the end of a log.
				from := ends[min(whole, len(ends)-1)]
				for i := from; i < from+500; i++ {
					b[i] = byte(rng.Uint32())
				}
			}
			m := vfs.NewMem()
			put(t, m, "/s/commitlog/00000000000000000000", b)
			put(t, m, "/s/config/topics.json", topics)
			put(t, m, "/s/abort", nil)
			s, err := tryOpen(t, store.Options{Dir: "/s", FS: m, Events: func(store.Event) {}})
			if err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
			end := int64(0)
			if whole > 0 {
				end = ends[whole-1]
			}
			if got := len(bodies(t, s, "A", 0)); got != whole {
				t.Fatalf("cut at %d, rubbish %v: %d messages, want %d", cut, rubbish, got, whole)
			}
			if r := send(t, s, "A", 0, "next"); r.Address != end || r.QueueOffset != int64(whole) {
				t.Fatalf("cut at %d: next message at %d offset %d, want %d, %d", cut, r.Address, r.QueueOffset, end, whole)
			} else {
				end += int64(r.Size)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			left := contents(t, m, "/s")["/s/commitlog/00000000000000000000"][end:]
			if strings.Trim(left, "\x00") != "" {
				t.Fatalf("cut at %d: bytes behind the end are not zero", cut)
			}
		}
	}
}

// A flipped bit in a record of the part that is read again is found, and nothing behind it is served.
func TestFlippedBitsAreFound(t *testing.T) {
	origin := vfs.NewMem()
	s, err := tryOpen(t, store.Options{Dir: "/s", FS: origin, SegmentBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	addTopic(t, s, "A", meta.Async)
	first := send(t, s, "A", 0, "first")
	second := send(t, s, "A", 0, strings.Repeat("second", 10))
	send(t, s, "A", 0, "third")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files := contents(t, origin, "/s")
	size := int64(second.Size)
	for _, tc := range []struct {
		name string
		off  int64 // in the second record
	}{
		{"length", 2}, {"magic number", 4}, {"checksum", 9}, {"position", 35}, {"body length", 87}, {"body", 95}, {"topic length", 88 + 60}, {"properties length", size - 11},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := vfs.NewMem()
			for name, b := range files {
				if strings.Contains(name, "/fusionmq/") || strings.HasSuffix(name, "/"+store.SyncedName) {
					continue // with a clean checkpoint nothing is read again, and nothing says that it was ever synced
				}
				bs := []byte(b)
				if strings.Contains(name, "0000000000") {
					bs[first.Address+int64(first.Size)+tc.off] ^= 0x10
				}
				put(t, m, name, bs)
			}
			s, err := tryOpen(t, store.Options{Dir: "/s", FS: m, Events: func(store.Event) {}})
			if err != nil {
				t.Fatal(err)
			}
			same(t, bodies(t, s, "A", 0), []string{"first"})
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A directory that cannot be used is refused with a reason, and not a byte of it changes.
func TestUnusableDirectoriesAreRefusedUnchanged(t *testing.T) {
	seg := func(n int) []byte { return make([]byte, n) }
	tests := []struct {
		name  string
		files map[string][]byte
		o     store.Options
		want  string
		is    error
		found string // by a check
	}{
		{"a foreign file in the log", map[string][]byte{"commitlog/notes.txt": []byte("hi"), "commitlog/00000000000000000000": seg(65536)}, store.Options{}, "notes.txt", nil, "damage log commitlog/notes.txt at -1: its name is not a log position"},
		{"a segment of another length", map[string][]byte{"commitlog/00000000000000000000": seg(65536), "commitlog/00000000000000065536": seg(70000)}, store.Options{}, "has 70000 bytes, segments here have 65536", nil, "damage log commitlog/0+65536 at 65536: has 70000 bytes, segments here have 65536"},
		{"a missing segment", map[string][]byte{"commitlog/00000000000000000000": seg(65536), "commitlog/00000000000000131072": seg(65536)}, store.Options{}, "00000000000000065536: it is missing", nil, "damage log commitlog/0+131072 at 131072: the segment before it ends at 65536"},
		{"a newer format", map[string][]byte{"commitlog/fusionmq": []byte("format 7\nsegment-bytes 65536\nx-files 1\n")}, store.Options{}, "format 7, this program reads up to 1: start the version", store.ErrNewerFormat, "error: .* says format 7, this program reads up to 1"},
		{"a mark that is none", map[string][]byte{"commitlog/fusionmq": []byte("hello")}, store.Options{}, "want a name and a number", nil, "damage directory (commitlog/fusionmq)? at -1: .*want a name and a number"},
		{"another segment size", map[string][]byte{"commitlog/fusionmq": []byte("format 1\nsegment-bytes 65536\n")}, store.Options{SegmentBytes: 131072}, "SegmentBytes is 131072, but this directory was made with 65536", store.ErrConfigChanged, ""},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			m := vfs.NewMem()
			for name, b := range tc.files {
				put(t, m, path.Join("/s", name), b)
			}
			before := contents(t, m, "/s")
			tc.o.Dir, tc.o.FS = "/s", m
			if _, err := tryOpen(t, tc.o); err == nil || !strings.Contains(err.Error(), tc.want) || tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("Open = %v, want %q", err, tc.want)
			}
			if tc.found != "" {
				damaged(t, tc.o, tc.found)
			}
			after := contents(t, m, "/s")
			delete(after, "/s/lock")
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("files (-before +after):\n%s", diff)
			}
		})
	}
}

// A segment that was made ahead, or only half made, when the process died is no damage (fault STO-11).
func TestSegmentsMadeAheadAreNoDamage(t *testing.T) {
	for _, last := range []int{0, 65536} {
		m := vfs.NewMem()
		put(t, m, "/s/commitlog/00000000000000000000", make([]byte, 65536))
		put(t, m, "/s/commitlog/00000000000000065536", make([]byte, last))
		put(t, m, "/s/abort", nil)
		s := open(t, store.Options{Dir: "/s", FS: m})
		addTopic(t, s, "A", meta.Async)
		if r := send(t, s, "A", 0, "x"); r.Address != 0 {
			t.Errorf("first message at %d, want 0", r.Address)
		}
	}
}

// Directories that real brokers wrote open in place and answer as those brokers do.
func TestRocketMQDirectoriesOpenInPlace(t *testing.T) {
	for _, name := range vectors.Names {
		t.Run(name, func(t *testing.T) {
			files, want, err := vectors.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			m := vfs.NewMem()
			for n, b := range files {
				if strings.HasPrefix(n, "commitlog/") || strings.HasPrefix(n, "config/") || n == "abort" || n == "checkpoint" {
					put(t, m, path.Join("/s", n), b)
				}
			}
			// Nothing of what waits in these directories is due at that time.
			o := store.Options{Dir: "/s", FS: m, Now: func() time.Time { return time.UnixMilli(1795950000000) }}
			for _, when := range []string{"taken over", "opened again"} {
				s, err := tryOpen(t, o)
				if err != nil {
					t.Fatal(err)
				}
				t.Run(when, func(t *testing.T) { checkVector(t, s, want) })
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := m.Stat("/s/commitlog/" + log.MarkerName); err != nil {
				t.Errorf("no mark that keeps an Apache broker out: %v", err)
			}
			s := open(t, o)
			addTopic(t, s, "Ours", meta.Sync)
			if r := send(t, s, "Ours", 0, "hello"); r.Address < want.LogEnd {
				t.Errorf("new message at %d, the log ended at %d", r.Address, want.LogEnd)
			}
		})
	}
}

func checkVector(t *testing.T, s *store.Store, want *vectors.Expected) {
	if len(want.Halves)+len(want.Delays) == 0 { // nothing to be adopted
		if end := s.Bounds().Max; end != want.LogEnd {
			t.Errorf("log end %d, want %d", end, want.LogEnd)
		}
	} else if _, _, _, err := s.EntryAt(want.LogEnd); err != nil { // the record that adopts the directory
		t.Errorf("behind the log of the real broker, at %d: %v", want.LogEnd, err)
	}
	for _, q := range want.Topics {
		if strings.HasPrefix(q.Topic, "%LMQ%") {
			continue // light queues come with a later version
		}
		var low, high int64
		if h := s.Queue(q.Topic, q.Queue, false); h != nil {
			low, high = h.Range()
		}
		if low != q.Min || high != q.Max {
			t.Errorf("%s/%d is [%d, %d), want [%d, %d)", q.Topic, q.Queue, low, high, q.Min, q.Max)
		}
	}
	checked := 0
	for _, m := range want.Messages {
		if m.ReadFrom != nil {
			continue
		}
		var es [1]queue.Entry
		if n, err := s.Queue(m.Topic, m.Queue, true).Read(m.QueueOffset, es[:]); n != 1 || err != nil {
			t.Errorf("%s/%d at %d: %d, %v", m.Topic, m.Queue, m.QueueOffset, n, err)
			continue
		}
		b, release, err := s.Record(es[0])
		if err != nil {
			t.Fatal(err)
		}
		v, err := record.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(v.Body())
		wantSum := m.BodySHA256
		if m.StoredBodySHA256 != "" {
			wantSum = m.StoredBodySHA256
		}
		if es[0].Address != m.Position || es[0].Size != m.Size || es[0].Time != m.StoreTime || hex.EncodeToString(sum[:]) != wantSum {
			t.Errorf("%s/%d at %d: %+v, want position %d", m.Topic, m.Queue, m.QueueOffset, es[0], m.Position)
		}
		release()
		checked++
	}
	if checked == 0 {
		t.Error("no message was compared")
	}
	for _, v := range want.ViewByOffset {
		b, release, err := s.RecordAt(v.Position)
		if err != nil {
			t.Errorf("RecordAt(%d): %v", v.Position, err)
			continue
		}
		if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != v.SHA256 {
			t.Errorf("RecordAt(%d): other bytes than the broker returns", v.Position)
		}
		release()
	}
	for _, q := range want.SearchByTime {
		if strings.HasPrefix(want.Version, "4.") {
			break // knows no boundary: it answers the last entry not after the time, or the next file
		}
		h := s.Queue(q.Topic, q.Queue, false)
		if low, up := h.Search(q.Timestamp, false), h.Search(q.Timestamp, true); low != q.Lower || up != q.Upper {
			t.Errorf("%s/%d at time %d: lower %d, upper %d, want %d, %d", q.Topic, q.Queue, q.Timestamp, low, up, q.Lower, q.Upper)
		}
	}
	for key, offsets := range want.GroupOffsets {
		topic, group, _ := strings.Cut(key, "@")
		for id, offset := range offsets {
			var q int32
			fmt.Sscan(id, &q)
			if got, ok := s.Offsets().Get(group, topic, q); !ok || got != offset {
				t.Errorf("offset of %s in %s/%d is %d, %v, want %d", group, topic, q, got, ok, offset)
			}
		}
	}
}

// Committed offsets above what a crash has left are lowered to the end of the queue.
func TestCommittedOffsetsAreLoweredToTheEnd(t *testing.T) {
	m := vfs.NewMem()
	o := store.Options{Dir: "/s", FS: m, SegmentBytes: 64 << 10}
	s, err := tryOpen(t, o)
	if err != nil {
		t.Fatal(err)
	}
	addTopic(t, s, "A", meta.Async)
	for range 3 {
		send(t, s, "A", 0, "x")
	}
	s.Offsets().Commit("g", "A", 0, 10)
	s.Offsets().Commit("h", "A", 0, 2)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var told []string
	o.Events = func(e store.Event) {
		if e.Level > 0 {
			told = append(told, e.Name)
		}
	}
	s = open(t, o)
	g, _ := s.Offsets().Get("g", "A", 0)
	h, _ := s.Offsets().Get("h", "A", 0)
	if g != 3 || h != 2 || len(told) != 1 {
		t.Errorf("offsets %d, %d, events %q, want 3, 2 and one event", g, h, told)
	}
}

func FuzzCheckpointAndFormatFiles(f *testing.F) {
	m := vfs.NewMem()
	stop(f, open(f, store.Options{Dir: "/s", FS: m, SegmentBytes: 64 << 10}))
	good, err := vfs.ReadFile(m, "/s/fusionmq/checkpoint", 1<<20)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{}, []byte{})
	f.Add(good, []byte("format 1\nsegment-bytes 65536\n"))
	f.Add(good[:len(good)-1], []byte("format 2\n"))
	f.Add(append(append([]byte(nil), good...), 0), []byte("format 99999999999999999999\n"))
	bad := append([]byte(nil), good...)
	bad[9] ^= 1
	f.Add(bad, []byte("segment-bytes 1\nformat 1\n"))
	f.Fuzz(func(t *testing.T, checkpoint, format []byte) {
		m := vfs.NewMem()
		put(t, m, "/s/fusionmq/checkpoint", checkpoint)
		if len(format) > 0 {
			put(t, m, "/s/commitlog/fusionmq", format)
		}
		o := store.Options{Dir: "/s", FS: m}
		s, err := store.Open(o)
		if err != nil {
			if len(findings(o)) == 0 {
				t.Errorf("a store says %v, a check finds nothing", err)
			}
			return
		}
		stop(t, s)
		found(t, o)
	})
}

// A checkpoint that says more than the log has is not believed: what is left of the log is read and served.
func TestLogShorterThanItsCheckpoint(t *testing.T) {
	m := vfs.NewMem()
	o := store.Options{Dir: "/s", FS: m, SegmentBytes: 64 << 10, CheckpointBytes: 64 << 10, Exchange: newFanout()}
	s, err := tryOpen(t, o)
	if err != nil {
		t.Fatal(err)
	}
	addTopic(t, s, "A", meta.Async)
	operate(t, s, bindOps("A", "g")...)
	var want []string
	for i := range 30 {
		body := fmt.Sprint(i, strings.Repeat("x", 10000))
		if r := send(t, s, "A", 0, body); r.Address < 128<<10 {
			want = append(want, body)
		}
	}
	s.Offsets().Commit("h", "A", 0, 30)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := m.List("/s/commitlog")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if name > fmt.Sprintf("%020d", 64<<10) && name != log.MarkerName {
			if err := m.Remove("/s/commitlog/" + name); err != nil {
				t.Fatal(err)
			}
		}
	}
	warned := ""
	o.Exchange, o.Events = newFanout(), func(e store.Event) {
		if e.Level > 0 {
			warned += e.Name + "\n"
		}
	}
	s = open(t, o)
	same(t, bodies(t, s, "A", 0), want)
	if got, _ := s.Offsets().Get("h", "A", 0); got != int64(len(want)) {
		t.Errorf("committed offset %d, want %d", got, len(want))
	}
	if n := len(s.Pending("A", 0, 100)); n != len(want) {
		t.Errorf("%d messages are owed, want %d", n, len(want))
	}
	if !strings.Contains(warned, "checkpoint does not fit the log") {
		t.Errorf("events: %q", warned)
	}
	if r := send(t, s, "A", 0, "next"); r.QueueOffset != int64(len(want)) {
		t.Errorf("next message has offset %d, want %d", r.QueueOffset, len(want))
	}
}

// Law 5: one byte that has gone bad in the middle of the log does not destroy the sound records behind it, when the log has
// to be read anew: they are set aside, counted, and named in an error.
func TestLaw5SoundRecordsBehindADamagedOneAreKept(t *testing.T) {
	m := vfs.NewMem()
	o := store.Options{Dir: "/s", FS: m, SegmentBytes: 64 << 10}
	s, err := tryOpen(t, o)
	if err != nil {
		t.Fatal(err)
	}
	addTopic(t, s, "A", meta.Async)
	var rs []store.Result
	for i := range 40 {
		rs = append(rs, send(t, s, "A", 0, fmt.Sprint(i, strings.Repeat("x", 5000))))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	bad := rs[5].Address + 2000
	f, err := m.Open("/s/commitlog/00000000000000000000")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("NONE"), bad); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/s/fusionmq/checkpoint", "/s/config/" + store.SyncedName} { // nothing says that it was ever synced
		if err := m.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	var told []any
	o.Events = func(e store.Event) {
		if e.Level == 8 {
			told = append(told, e.Name, e.Attrs)
		}
	}
	s, err = tryOpen(t, o)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(bodies(t, s, "A", 0)); got != 5 {
		t.Errorf("%d messages are served, want 5", got)
	}
	if !strings.Contains(fmt.Sprint(told), "records 34 ") {
		t.Errorf("told %v, want 34 records", told)
	}
	send(t, s, "A", 0, "next")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	kept := ""
	for name, b := range contents(t, m, "/s/commitlog") {
		if strings.Contains(name, ".cut-") {
			kept += b
		}
	}
	for i := range 40 {
		if body := fmt.Sprint(i, strings.Repeat("x", 5000)); i > 5 && !strings.Contains(kept, body) {
			t.Errorf("message %d is nowhere", i)
		}
	}
	s = open(t, o) // what was set aside is no hindrance
	if got := len(bodies(t, s, "A", 0)); got != 6 {
		t.Errorf("%d messages after another start, want 6", got)
	}
}

// A file that is no segment must not decide how long segments are.
func TestDirectoryThatIsNoLogIsRefused(t *testing.T) {
	for _, size := range []int{3, 65536 + 1, 4096} {
		m := vfs.NewMem()
		put(t, m, "/s/commitlog/00000000000000000000", make([]byte, size))
		_, err := tryOpen(t, store.Options{Dir: "/s", FS: m})
		if !errors.Is(err, store.ErrNotLog) {
			t.Errorf("%d bytes: %v", size, err)
		}
		if _, err := m.Stat("/s/commitlog/" + log.MarkerName); err == nil {
			t.Errorf("%d bytes: the directory was marked", size)
		}
	}
}
