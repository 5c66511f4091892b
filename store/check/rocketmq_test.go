package check_test

import (
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/fusionmq/fusionmq/store/check"
	"github.com/fusionmq/fusionmq/store/internal/vectors"
	"github.com/fusionmq/fusionmq/store/rocketmq"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// vector unpacks a directory that a real broker wrote, without the timer wheel, which is nearly all a hole.
func vector(t *testing.T, name string) (*vfs.Mem, map[string][]byte, *vectors.Expected) {
	t.Helper()
	all, want, err := vectors.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	delete(all, rocketmq.WheelFile)
	m := vfs.NewMem()
	for n, b := range all {
		n = path.Join("/s", n)
		if err := m.MkdirAll(path.Dir(n)); err != nil {
			t.Fatal(err)
		}
		f, err := m.Create(n)
		if err == nil {
			if _, err = f.WriteAt(b, 0); err == nil {
				err = f.Truncate(int64(len(b)))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return m, all, want
}

func TestDirectoriesOfRealBrokersAreSound(t *testing.T) {
	for _, name := range vectors.Names {
		t.Run(name, func(t *testing.T) {
			m, _, want := vector(t, name)
			r := run(t, m)
			if err := r.Err(); err != nil {
				t.Errorf("%v\nall: %+v", err, r.Findings)
			}
			entries, records := int64(0), 0
			for _, q := range want.ConsumeQueues {
				entries += q.Entries
			}
			for _, s := range want.Segments {
				records += s.Records
			}
			if r.Kind != check.RocketMQ || r.Clean == strings.HasSuffix(name, "killed") || r.LogEnd != want.LogEnd || r.Entries != entries || r.Records != int64(records) || r.Queues != len(want.ConsumeQueues) {
				t.Errorf("report %+v, want %d entries, %d records, end %d", r, entries, records, want.LogEnd)
			}
		})
	}
}

// A flipped bit in a consume queue, an extension, the key index or the timer log is found where it changes what the broker would
// read.
func TestEveryFlippedBitInABrokersFilesIsFound(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	m, all, _ := vector(t, "5.3.3-lmq")
	timers, allTimers, _ := vector(t, "5.3.3-stopped")
	shorten(t, timers)
	const slots = 40 + 4*vectors.Slots
	for _, tc := range []struct {
		name     string
		fs       *vfs.Mem
		file     string
		from, to int64
		silent   func(off int64) bool // bytes that nothing repeats
	}{
		{"consume queue", m, "consumequeue/VecSLmq/2/00000000000000000000", 0, 20, nil},
		{"light queue", m, "consumequeue/%LMQ%vec1/0/00000000000000000000", 0, 60, nil},
		{"extension", m, "consumequeue_ext/VecSLmq/2/00000000000000000000", 0, 20, func(off int64) bool { return off >= 10 && off < 18 }}, // the store time
		{"key index", m, "", slots + 20, slots + 140, func(off int64) bool { k := (off - slots) % 20; return k >= 12 }},                   // times and chains
		{"timer log", timers, "timerlog/00000000000000000000", 0, 6 * 52, func(off int64) bool { // the chain, what is reserved, and when the message that rolls is written
			k, rolls := off%52, off/52 == 4
			return k >= 4 && k < 12 || rolls && k >= 16 && k < 28 || k >= 44
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files := all
			if tc.fs == timers {
				files = allTimers
			}
			if tc.file == "" {
				for n := range files {
					if strings.HasPrefix(n, "index/") {
						tc.file = n
					}
				}
			}
			found := 0
			for off := tc.from + rng.Int64N(*each); off < tc.to; off += *each {
				bit := byte(1) << rng.IntN(8)
				r := run(t, change(t, tc.fs, path.Join("/s", tc.file), func(f vfs.File) error {
					_, err := f.WriteAt([]byte{files[tc.file][off] ^ bit}, off)
					return err
				}))
				if r.Err() != nil || slices.ContainsFunc(r.Findings, func(f check.Finding) bool { return f.Area == "timer" }) {
					found++
				} else if tc.silent == nil || !tc.silent(off) {
					t.Errorf("bit %#x of byte %d was flipped and nothing found", bit, off)
				}
			}
			t.Logf("%d of %d found", found, (tc.to-tc.from) / *each)
		})
	}
}

// shorten cuts the log behind its timer messages, so that a check takes less time.
func shorten(t *testing.T, m *vfs.Mem) {
	t.Helper()
	names, err := m.List("/s/commitlog")
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		f, err := m.Open(path.Join("/s/commitlog", name))
		if err == nil && i == 0 {
			err = f.Zero(24013)
		} else if err == nil {
			err = m.Remove(path.Join("/s/commitlog", name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Remove("/s/checkpoint"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Create("/s/abort"); err != nil {
		t.Fatal(err)
	}
	if r := run(t, m); r.Err() != nil || r.Records < 50 {
		t.Fatalf("report %+v", r)
	}
}

func TestFindingsInABrokersDirectory(t *testing.T) {
	m, all, _ := vector(t, "5.3.3-stopped")
	for _, tc := range []struct {
		name  string
		give  func(*testing.T, vfs.FS) error
		worst check.Severity
		want  string
	}{
		{"a queue that is gone", func(_ *testing.T, fsys vfs.FS) error {
			return fsys.Remove("/s/consumequeue/VecS/1/00000000000000000000")
		}, check.View, "VecS/1 has no entry at 0"},
		{"an entry that the log has not", func(_ *testing.T, fsys vfs.FS) error {
			f, err := fsys.Open("/s/consumequeue/VecSTx/1/00000000000000000000")
			if err != nil {
				return err
			}
			q, err := rocketmq.OpenQueue(fsys, "/s", "VecSTx", 1)
			if err != nil {
				return err
			}
			_, high, err := q.Range()
			if err != nil {
				return err
			}
			_, err = f.WriteAt(rocketmq.Entry{Position: 4711, Size: 100}.Append(nil), high*rocketmq.EntryBytes)
			return err
		}, check.View, "VecSTx/1 has an entry at"},
		{"a queue file of another length", func(_ *testing.T, fsys vfs.FS) error {
			f, err := fsys.Open("/s/consumequeue/VecSMany/0/00000000000000006000")
			if err != nil {
				return err
			}
			return f.Truncate(5000)
		}, check.View, "has 5000 bytes, files here have 6000"},
		{"a log that is shorter than the checkpoint says", func(_ *testing.T, fsys vfs.FS) error {
			var segments []string
			for n := range all {
				if strings.HasPrefix(n, "commitlog/") {
					segments = append(segments, n)
				}
			}
			slices.Sort(segments)
			f, err := fsys.Open(path.Join("/s", segments[len(segments)-1]))
			if err != nil {
				return err
			}
			return f.Zero(0)
		}, check.Damage, "the log was on the disk up to a message of"},
		{"a damaged record", func(_ *testing.T, fsys vfs.FS) error {
			f, err := fsys.Open("/s/commitlog/00000000000000000000")
			if err != nil {
				return err
			}
			_, err = f.WriteAt(make([]byte, 100), 5000)
			return err
		}, check.Damage, "the log goes on at"},
		{"no key index and no checkpoint", func(t *testing.T, fsys vfs.FS) error {
			for n := range all {
				if strings.HasPrefix(n, "index/") || n == "checkpoint" {
					if err := fsys.Remove(path.Join("/s", n)); err != nil {
						t.Fatal(err)
					}
				}
			}
			return nil
		}, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := vfs.NewOverlay(m)
			if err := tc.give(t, o); err != nil {
				t.Fatal(err)
			}
			r := run(t, o)
			if r.Worst() != tc.worst || tc.want != "" && !slices.ContainsFunc(r.Findings, func(f check.Finding) bool { return f.Severity == tc.worst && strings.Contains(f.What, tc.want) }) {
				t.Errorf("worst %q, want %q with %q: %+v", r.Worst(), tc.worst, tc.want, r.Findings)
			}
		})
	}
}
