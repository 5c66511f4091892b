package vfs_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fusionmq/fusionmq/store/vfs"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, fsys vfs.FS, name, content string) vfs.File {
	t.Helper()
	f, err := fsys.Create(name)
	must(t, err)
	_, err = f.WriteAt([]byte(content), 0)
	must(t, err)
	return f
}

// Both file systems answer the same.
func TestFileSystemsAgree(t *testing.T) {
	for name, fsys := range map[string]vfs.FS{"os": vfs.OS, "mem": vfs.NewMem(), "intercepted": vfs.Intercept(vfs.NewMem(), func(vfs.Op) error { return nil })} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, fsys.MkdirAll(filepath.Join(dir, "a", "b")))
			f := create(t, fsys, filepath.Join(dir, "a", "one"), "hello")
			must(t, f.Allocate(2000))
			if n, _ := f.Size(); n != 2000 {
				t.Errorf("size after Allocate %d, want 2000", n)
			}
			must(t, f.Allocate(100))
			if n, _ := f.Size(); n != 2000 {
				t.Errorf("size after a smaller Allocate %d, want 2000", n)
			}
			_, err := f.WriteAt([]byte("far"), 1500)
			must(t, err)
			must(t, f.Truncate(3))
			must(t, f.Truncate(1600))
			got := make([]byte, 1600)
			_, err = f.ReadAt(got, 0)
			must(t, err)
			if want := append([]byte("hel"), make([]byte, 1597)...); !bytes.Equal(got, want) {
				t.Errorf("after truncating down and up: %q", bytes.Trim(got, "\x00"))
			}
			if n, err := f.ReadAt(got, 1590); n != 10 || !errors.Is(err, io.EOF) {
				t.Errorf("read over the end = %d, %v, want 10, EOF", n, err)
			}
			_, err = f.WriteAt(bytes.Repeat([]byte("y"), 1600), 0)
			must(t, err)
			must(t, f.Zero(700))
			_, err = f.ReadAt(got, 0)
			must(t, err)
			if want := append(bytes.Repeat([]byte("y"), 700), make([]byte, 900)...); !bytes.Equal(got, want) {
				t.Errorf("after Zero(700): %q", got)
			}
			if from, to, err := f.NextData(0); from != 0 || to < 1 || err != nil {
				t.Errorf("NextData(0) = %d, %d, %v", from, to, err)
			}
			must(t, f.Allocate(1<<20))
			if from, to, err := f.NextData(64 << 10); from != 1<<20 || to != 1<<20 || err != nil {
				t.Errorf("NextData behind everything written = %d, %d, %v, want the size", from, to, err)
			}
			must(t, f.Sync())
			must(t, fsys.Rename(filepath.Join(dir, "a", "one"), filepath.Join(dir, "a", "two")))
			must(t, fsys.SyncDir(filepath.Join(dir, "a")))
			names, err := fsys.List(filepath.Join(dir, "a"))
			must(t, err)
			if strings.Join(names, " ") != "b/ two" {
				t.Errorf("List = %q", names)
			}
			for _, err := range []error{
				second(fsys.Open(filepath.Join(dir, "none"))), second(fsys.OpenRead(filepath.Join(dir, "none"))), second(fsys.Create(filepath.Join(dir, "none", "x"))),
				second(fsys.Stat(filepath.Join(dir, "none"))), second(fsys.List(filepath.Join(dir, "none"))), fsys.Remove(filepath.Join(dir, "none")),
			} {
				if !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("missing file: %v, want ErrNotExist", err)
				}
			}
			l, err := fsys.Lock(filepath.Join(dir, "lock"), []byte("me"))
			must(t, err)
			for range 2 {
				var held *vfs.HeldError
				if _, err := fsys.Lock(filepath.Join(dir, "lock"), []byte("you")); !errors.As(err, &held) || held.Holder != "me" {
					t.Errorf("second lock: %v, want one held by me", err)
				}
			}
			must(t, l.Close())
			l, err = fsys.Lock(filepath.Join(dir, "lock"), []byte("you"))
			must(t, err)
			must(t, l.Close())
			if free, total, err := fsys.Space(dir); err != nil || free <= 0 || total < free {
				t.Errorf("Space = %d, %d, %v", free, total, err)
			}
			name := filepath.Join(dir, "config")
			must(t, vfs.WriteFile(fsys, name, []byte("1"), name+".bak"))
			must(t, vfs.WriteFile(fsys, name, []byte("2"), name+".bak"))
			for n, want := range map[string]string{name: "2", name + ".bak": "1"} {
				if b, err := vfs.ReadFile(fsys, n, 10); string(b) != want || err != nil {
					t.Errorf("%s = %q, %v, want %q", n, b, err, want)
				}
			}
			if _, err := vfs.ReadFile(fsys, filepath.Join(dir, "a", "two"), 10); err == nil {
				t.Error("a file over the limit was read")
			}
			must(t, f.Close())
		})
	}
}

func second[T any](_ T, err error) error { return err }

// Content is durable by Sync, names by SyncDir, and nothing else.
func TestCrashCloneForgets(t *testing.T) {
	m := vfs.NewMem()
	must(t, m.MkdirAll("/d"))
	create(t, m, "/d/no-name", "x").Sync()
	f := create(t, m, "/d/f", strings.Repeat("a", 2000))
	must(t, f.Sync())
	must(t, m.SyncDir("/d"))
	create(t, m, "/d/late", "x").Sync()
	_, err := f.WriteAt([]byte(strings.Repeat("b", 2000)), 0)
	must(t, err)
	must(t, m.Remove("/d/no-name"))

	lost := m.CrashClone(rand.New(rand.NewPCG(1, 1)), 0)
	if b, err := vfs.ReadFile(lost, "/d/f", 5000); string(b) != strings.Repeat("a", 2000) {
		t.Errorf("with nothing kept: %.10q, %v", b, err)
	}
	if names, _ := lost.List("/d"); strings.Join(names, " ") != "f no-name" {
		t.Errorf("with nothing kept: names %q", names)
	}
	kept := m.CrashClone(rand.New(rand.NewPCG(1, 1)), 1)
	if b, err := vfs.ReadFile(kept, "/d/f", 5000); string(b) != strings.Repeat("b", 2000) {
		t.Errorf("with all kept: %.10q, %v", b, err)
	}
	if names, _ := kept.List("/d"); strings.Join(names, " ") != "f late" {
		t.Errorf("with all kept: names %q", names)
	}
	// In between, sectors are torn, and a seed gives one outcome.
	torn := func() string {
		b, err := vfs.ReadFile(m.CrashClone(rand.New(rand.NewPCG(7, 7)), 0.5), "/d/f", 5000)
		must(t, err)
		return string(b)
	}
	if b := torn(); !strings.Contains(b, "ab") && !strings.Contains(b, "ba") || b != torn() {
		t.Errorf("with half kept: %q", b)
	}
}

func TestCrashCloneOfATruncatedFileMayBringOldBytesBack(t *testing.T) {
	m := vfs.NewMem()
	f := create(t, m, "/f", strings.Repeat("a", 2048))
	must(t, f.Sync())
	must(t, m.SyncDir("/"))
	must(t, f.Truncate(100))
	must(t, f.Truncate(2048))
	b, err := vfs.ReadFile(m.CrashClone(rand.New(rand.NewPCG(1, 1)), 0), "/f", 5000)
	must(t, err)
	if string(b) != strings.Repeat("a", 2048) {
		t.Error("a truncation that was not synced was durable")
	}
	must(t, f.Sync())
	b, err = vfs.ReadFile(m.CrashClone(rand.New(rand.NewPCG(1, 1)), 0), "/f", 5000)
	must(t, err)
	if string(b) != strings.Repeat("a", 100)+strings.Repeat("\x00", 1948) {
		t.Error("a truncation that was synced was not durable")
	}
}

func TestFullDisk(t *testing.T) {
	m := vfs.NewMem()
	m.SetFree(4096)
	f := create(t, m, "/f", "x")
	if err := f.Allocate(8192); !errors.Is(err, vfs.ErrNoSpace) {
		t.Errorf("Allocate of more than there is = %v", err)
	}
	if n, err := f.WriteAt(make([]byte, 8192), 0); !errors.Is(err, vfs.ErrNoSpace) || n != 4096 {
		t.Errorf("write of more than there is = %d, %v", n, err)
	}
	must(t, f.Truncate(0))
	_, err := f.WriteAt(make([]byte, 4096), 0)
	must(t, err)
}

func TestInterceptInjects(t *testing.T) {
	boom := errors.New("boom")
	var next error
	var seen []string
	m := vfs.NewMem()
	fsys := vfs.Intercept(m, func(o vfs.Op) error {
		seen = append(seen, o.String())
		return next
	})
	f, err := fsys.Create("/f")
	must(t, err)
	next = &vfs.ShortWrite{N: 2, Err: boom}
	if n, err := f.WriteAt([]byte("hello"), 3); n != 2 || !errors.Is(err, boom) {
		t.Errorf("short write = %d, %v", n, err)
	}
	next = vfs.ErrSkip
	must(t, f.Sync())
	must(t, fsys.SyncDir("/"))
	if names, _ := m.CrashClone(rand.New(rand.NewPCG(1, 1)), 0).List("/"); len(names) != 0 {
		t.Errorf("a skipped directory sync kept %q", names)
	}
	next = boom
	if err := f.Truncate(9); !errors.Is(err, boom) {
		t.Errorf("Truncate = %v", err)
	}
	if got, want := strings.Join(seen, "\n"), "create f\nwrite f [3, 8)\nsync f\nsyncdir /\ntruncate f 9"; got != want {
		t.Errorf("transcript:\n%s\nwant:\n%s", got, want)
	}
}
