package store_test

import (
	"fmt"
	"hash/crc32"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// When a message with a level is due is the same with the snapshots and without them, whatever the levels were changed to since.
func TestLaw1DelayLevelsAreThoseOfTheirPlaceInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		began := time.Now()
		var want []time.Duration // of each message, from began, in the order of their due times
		var s *store.Store
		open := func(levels ...time.Duration) {
			t.Helper()
			var err error
			if s, err = tryOpen(t, store.Options{FS: fs, Dir: "/s", DelayLevels: levels}); err != nil {
				t.Fatal(err)
			}
		}
		see := func() {
			t.Helper()
			ds := make([]state.Due, 100)
			ds = ds[:s.Delays(state.Due{}, ds)]
			var got []time.Duration
			for _, d := range ds {
				got = append(got, time.UnixMilli(d.Due).Sub(began).Round(time.Minute))
			}
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("due after %v, want %v", got, want)
			}
		}
		send := func(level int32, due time.Duration) {
			t.Helper()
			r := sendWaiting(t, s, store.Message{Topic: "T", Body: []byte("x"), DelayLevel: level})
			if err := s.WaitApplied(t.Context(), r.Address); err != nil {
				t.Fatal(err)
			}
			want = append(want, due)
		}
		again := func() {
			t.Helper()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		open()
		addTopic(t, s, "T", meta.Async)
		send(18, 2*time.Hour)
		again()
		open(10*time.Minute, 20*time.Minute)
		send(1, 10*time.Minute)
		send(18, 20*time.Minute) // as level 2
		see()
		again()
		open(30 * time.Minute)
		send(2, 30*time.Minute)
		see()
		again()
		open() // those that the directory had
		send(1, 30*time.Minute)
		see()
		again()
		if err := fs.Remove("/s/fusionmq/checkpoint"); err != nil {
			t.Fatal(err)
		}
		open(40 * time.Minute)
		send(1, 40*time.Minute)
		see()
		again()
		// What was written under the newest levels may be lost with the end of the log; the next begins with it.
		b, err := vfs.ReadFile(fs, "/s/config/"+store.LevelsName, 1<<16)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b[:len(b)-len("crc32c 01234567\n")]) + "from 999999999 2h0m0s\n"
		if err := vfs.WriteFile(fs, "/s/config/"+store.LevelsName, fmt.Appendf(nil, "%scrc32c %08x\n", text, crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli))), ""); err != nil {
			t.Fatal(err)
		}
		open()
		send(1, 2*time.Hour)
		see()
		again()
	})
}

// A table of levels that cannot be read is replaced by what is set now.
func TestDamagedDelayLevels(t *testing.T) {
	for _, bad := range []string{"", "from 1 1s\n", "from 0 41s 1000000h\n", "from 0\n", "from 0 1s\nfrom 0 2s\n", "upto 0 1s\n", "from x 1s\n", "from 0 soon\n"} {
		if bad != "" {
			bad += fmt.Sprintf("crc32c %08x\n", crc32.Checksum([]byte(bad), crc32.MakeTable(crc32.Castagnoli)))
		}
		synctest.Test(t, func(t *testing.T) {
			fs := vfs.NewMem()
			if err := fs.MkdirAll("/s/config"); err != nil {
				t.Fatal(err)
			}
			if err := vfs.WriteFile(fs, "/s/config/"+store.LevelsName, []byte(bad), ""); err != nil {
				t.Fatal(err)
			}
			for _, levels := range [][]time.Duration{{3 * time.Hour}, nil} {
				s, err := tryOpen(t, store.Options{FS: fs, Dir: "/s", DelayLevels: levels})
				if err != nil {
					t.Fatal(err)
				}
				addTopic(t, s, "T", meta.Async)
				now := time.Now()
				r := sendWaiting(t, s, store.Message{Topic: "T", Body: []byte("x"), DelayLevel: 5})
				if err := s.WaitApplied(t.Context(), r.Address); err != nil {
					t.Fatal(err)
				}
				ds := make([]state.Due, 3)
				if n := s.Delays(state.Due{}, ds); n == 0 || ds[n-1].Due != now.Add(3*time.Hour).UnixMilli() {
					t.Errorf("%q: %d messages, %+v", bad, n, ds)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// One damaged or missing file of the levels costs nothing: the other one has them, and the start puts both right. With both gone the snapshot, which
// knows other due times than the log with what is set, is not used.
func TestLaw1DelayLevelsAreKeptTwice(t *testing.T) {
	first, second := "/s/config/"+store.LevelsName, "/s/config/"+store.LevelsName+".bak"
	flip := func(t *testing.T, fs *vfs.Mem, name string) {
		b, err := vfs.ReadFile(fs, name, 1<<16)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 1
		if err := vfs.WriteFile(fs, name, b, ""); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(t *testing.T, fs *vfs.Mem, name string) {
		if err := fs.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name       string
		harm       func(*testing.T, *vfs.Mem)
		file, copy bool // is damaged
		want       time.Duration
	}{
		{"nothing", func(*testing.T, *vfs.Mem) {}, false, false, 3 * time.Hour},
		{"a bit of the file is flipped", func(t *testing.T, fs *vfs.Mem) { flip(t, fs, first) }, true, false, 3 * time.Hour},
		{"the file is gone", func(t *testing.T, fs *vfs.Mem) { remove(t, fs, first) }, true, false, 3 * time.Hour},
		{"a bit of the copy is flipped", func(t *testing.T, fs *vfs.Mem) { flip(t, fs, second) }, false, true, 3 * time.Hour},
		{"the copy is gone", func(t *testing.T, fs *vfs.Mem) { remove(t, fs, second) }, false, true, 3 * time.Hour},
		{"both are damaged", func(t *testing.T, fs *vfs.Mem) { flip(t, fs, first); flip(t, fs, second) }, true, true, time.Hour},
		{"one is damaged and one gone", func(t *testing.T, fs *vfs.Mem) { flip(t, fs, first); remove(t, fs, second) }, true, true, time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs := vfs.NewMem()
				began := time.Now()
				open := func(levels ...time.Duration) *store.Store {
					t.Helper()
					s, err := tryOpen(t, store.Options{FS: fs, Dir: "/s", DelayLevels: levels})
					if err != nil {
						t.Fatal(err)
					}
					return s
				}
				s := open(3 * time.Hour)
				addTopic(t, s, "T", meta.Async)
				r := sendWaiting(t, s, store.Message{Topic: "T", Body: []byte("x"), DelayLevel: 1})
				if err := s.WaitApplied(t.Context(), r.Address); err != nil {
					t.Fatal(err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				tc.harm(t, fs)
				if a, b := store.DamagedLevels(fs, "/s/config"); (a != nil) != tc.file || (b != nil) != tc.copy {
					t.Errorf("damage is %v and %v", a, b)
				}
				s = open(time.Hour)
				ds := make([]state.Due, 3)
				ds = ds[:s.Delays(state.Due{}, ds)]
				if len(ds) != 1 || time.UnixMilli(ds[0].Due).Sub(began).Round(time.Minute) != tc.want {
					t.Errorf("waiting: %+v, want one message due after %v", ds, tc.want)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if a, b := store.DamagedLevels(fs, "/s/config"); a != nil || b != nil {
					t.Errorf("after a start damage is %v and %v", a, b)
				}
			})
		})
	}
}
