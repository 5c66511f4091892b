package vfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// An overlay answers like a file system that was changed in the same way, and what lies below it stays as it was.
func TestOverlayAnswersAsIfTheFilesBelowHadChanged(t *testing.T) {
	eachOverlay(t, overlayAnswers)
}

// eachOverlay runs a test with the changes in memory, and in files, of which none is left.
func eachOverlay(t *testing.T, test func(*testing.T, func(base *vfs.Mem) *vfs.Overlay)) {
	t.Run("in memory", func(t *testing.T) { test(t, func(base *vfs.Mem) *vfs.Overlay { return vfs.NewOverlay(base) }) })
	t.Run("in files", func(t *testing.T) {
		test(t, func(base *vfs.Mem) *vfs.Overlay {
			files := &createdFiles{FS: base}
			o := vfs.NewScratchOverlay(files, "/scratch/of")
			t.Cleanup(func() {
				if err := o.Close(); err != nil || files.open != 0 {
					t.Errorf("%d files are open, %v", files.open, err)
				}
				if names, err := base.List("/scratch/of"); err != nil && !errors.Is(err, fs.ErrNotExist) || len(names) > 0 {
					t.Errorf("%v are left, %v", names, err)
				}
			})
			return o
		})
	})
}

// createdFiles counts the files that were created and are open.
type createdFiles struct {
	vfs.FS
	open int
}

func (c *createdFiles) Create(name string) (vfs.File, error) {
	f, err := c.FS.Create(name)
	if err == nil {
		c.open++
		f = &createdFile{f, c}
	}
	return f, err
}

type createdFile struct {
	vfs.File
	of *createdFiles
}

func (f *createdFile) Close() error {
	f.of.open--
	return f.File.Close()
}

func overlayAnswers(t *testing.T, overlay func(base *vfs.Mem) *vfs.Overlay) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 40 {
		base, model := vfs.NewMem(), vfs.NewMem()
		names := []string{"/d/a", "/d/b", "/d/c"}
		for _, m := range []*vfs.Mem{base, model} {
			if err := m.MkdirAll("/d"); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range names[:2] {
			b := randomBytes(rng, rng.IntN(20000))
			fill(t, base, name, b)
			fill(t, model, name, b)
		}
		below := read(t, base, "/d")
		over := overlay(base)
		both := func(what string, f func(vfs.FS) error) {
			t.Helper()
			a, b := f(over), f(model)
			if (a == nil) != (b == nil) || errors.Is(a, fs.ErrNotExist) != errors.Is(b, fs.ErrNotExist) {
				t.Fatalf("%s: %v, want %v", what, a, b)
			}
		}
		file := func(name string, f func(vfs.File) error) func(vfs.FS) error {
			return func(fsys vfs.FS) error {
				x, err := fsys.Open(name)
				if err != nil {
					return err
				}
				return errors.Join(f(x), x.Close())
			}
		}
		for range 60 {
			name, off, size := names[rng.IntN(len(names))], int64(rng.IntN(22000)), int64(rng.IntN(22000))
			switch rng.IntN(8) {
			case 0:
				both("create", func(fsys vfs.FS) error {
					f, err := fsys.Create(name)
					if err != nil {
						return err
					}
					return f.Close()
				})
			case 1:
				both("remove", func(fsys vfs.FS) error { return fsys.Remove(name) })
			case 2:
				to := names[rng.IntN(len(names))]
				if to != name {
					both("rename", func(fsys vfs.FS) error { return fsys.Rename(name, to) })
				}
			case 3, 4:
				b := randomBytes(rng, rng.IntN(9000))
				both("write", file(name, func(f vfs.File) error { _, err := f.WriteAt(b, off); return err }))
			case 5:
				both("truncate", file(name, func(f vfs.File) error { return f.Truncate(size) }))
			case 6:
				both("zero", file(name, func(f vfs.File) error {
					if n, _ := f.Size(); off > n {
						return nil
					}
					return f.Zero(off)
				}))
			case 7:
				both("allocate", file(name, func(f vfs.File) error { return f.Allocate(size) }))
			}
			if diff := cmp.Diff(read(t, model, "/d"), read(t, over, "/d")); diff != "" {
				t.Fatalf("files (-model +overlay):\n%s", diff)
			}
		}
		if diff := cmp.Diff(below, read(t, base, "/d")); diff != "" {
			t.Fatalf("files below have changed:\n%s", diff)
		}
	}
}

// The ranges of data that an overlay names leave out nothing but zeros.
func TestOverlayNamesEveryRangeWithData(t *testing.T) {
	eachOverlay(t, overlayNamesRanges)
}

func overlayNamesRanges(t *testing.T, overlay func(base *vfs.Mem) *vfs.Overlay) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	base := vfs.NewMem()
	fill(t, base, "/a", append(make([]byte, 20000), 1, 2, 3))
	over := overlay(base)
	f, err := over.Open("/a")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 50 {
		if _, err := f.WriteAt(randomBytes(rng, rng.IntN(300)), int64(rng.IntN(60000))); err != nil {
			t.Fatal(err)
		}
		if rng.IntN(4) == 0 {
			if err := f.Zero(int64(rng.IntN(60000))); err != nil {
				t.Fatal(err)
			}
		}
		size, _ := f.Size()
		all := make([]byte, size)
		if _, err := f.ReadAt(all, 0); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		for off := int64(0); off < size; {
			from, to, err := f.NextData(off)
			if err != nil || from < off || to < from || from < size && to == from {
				t.Fatalf("data from %d of %d: [%d, %d), %v", off, size, from, to, err)
			}
			if i := bytes.IndexFunc(all[off:min(from, size)], func(r rune) bool { return r != 0 }); i >= 0 {
				t.Fatalf("byte at %d is not zero and in no range", off+int64(i))
			}
			off = max(to, off+1)
		}
	}
}

// A guard keeps other processes and this one from taking the lock, meets a lock that is held, and changes no byte.
func TestGuardKeepsTheLockFreeAndChangesNothing(t *testing.T) {
	if name := os.Getenv("GUARD_TEST_LOCK"); name != "" {
		if l, err := vfs.OS.Lock(name, []byte("other")); err != nil {
			fmt.Println("refused")
		} else {
			_ = l.Close()
			fmt.Println("taken")
		}
		return
	}
	name := filepath.Join(t.TempDir(), "lock")
	if g, err := vfs.Guard(vfs.OS, name); err != nil || g.Close() != nil {
		t.Fatalf("guard of a lock that was never made: %v", err)
	}
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the guard has made the file: %v", err)
	}
	if err := os.WriteFile(name, []byte("lock"), 0o644); err != nil {
		t.Fatal(err)
	}
	other := func() string {
		cmd := exec.Command(os.Args[0], "-test.run=TestGuardKeepsTheLockFreeAndChangesNothing$")
		cmd.Env = append(os.Environ(), "GUARD_TEST_LOCK="+name)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(bytes.Fields(out)[0])
	}
	g, err := vfs.Guard(vfs.OS, name)
	if err != nil {
		t.Fatal(err)
	}
	var held *vfs.HeldError
	if _, err := vfs.OS.Lock(name, nil); !errors.As(err, &held) {
		t.Errorf("this process took the lock beside the guard: %v", err)
	}
	if got := other(); got != "refused" {
		t.Errorf("another process has %s the lock", got)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(name); err != nil || string(b) != "lock" {
		t.Errorf("the file has %q, %v", b, err)
	}
	if got := other(); got != "taken" {
		t.Errorf("after the guard another process is %s", got)
	}
	l, err := vfs.OS.Lock(name, []byte("me"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := vfs.Guard(vfs.OS, name); !errors.As(err, &held) {
		t.Errorf("guard of a held lock: %v", err)
	}
	if got := other(); got != "refused" {
		t.Errorf("after a refused guard another process has %s the lock", got)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func fill(t *testing.T, fsys vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fsys.Create(name)
	if err == nil {
		_, err = f.WriteAt(b, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, fsys vfs.FS, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	names, err := fsys.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := vfs.ReadFile(fsys, filepath.Join(dir, name), 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		st, err := fsys.Stat(filepath.Join(dir, name))
		if err != nil || st.Size != int64(len(b)) {
			t.Fatalf("%s: %d bytes, size %d, %v", name, len(b), st.Size, err)
		}
		all[name] = string(b)
	}
	return all
}
