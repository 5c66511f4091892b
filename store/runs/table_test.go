package runs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/fusionmq/fusionmq/store/vfs"
)

func key(n uint64) (k Key) {
	binary.BigEndian.PutUint64(k[:], n)
	return k
}

func value(n uint64) (v Value) {
	binary.BigEndian.PutUint64(v[:], n)
	return v
}

var lastKey = func() (k Key) {
	for i := range k {
		k[i] = 0xff
	}
	return k
}()

// contents reads a table from end to end.
func contents(t *Table) map[uint64]uint64 {
	m := map[uint64]uint64{}
	t.Scan(new(Key), &lastKey, into(m))
	return m
}

func into(m map[uint64]uint64) func(k *Key, v *Value) bool {
	return func(k *Key, v *Value) bool {
		m[binary.BigEndian.Uint64(k[:])] = binary.BigEndian.Uint64(v[:])
		return true
	}
}

func openTable(t interface{ Fatal(...any) }, fsys vfs.FS, tail int) *Table {
	x, err := Open(Config{FS: fsys, Dir: "/runs", TailRows: tail, Failed: func(err error) { t.Fatal(err) }})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestLaw1TableIsAMap compares the table with a map under random changes, with the map as of its last snapshot after power cuts, and views
// of it with the map as of the moment in which they were taken.
func TestLaw1TableIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mem := vfs.NewMem()
		tail := rapid.IntRange(1, 40).Draw(t, "tail rows")
		x := openTable(t, mem, tail)
		defer func() { _ = x.Close() }()
		model := map[uint64]uint64{}
		var saved []byte
		savedModel := map[uint64]uint64{}
		var pin *Pin
		var view *View
		var viewModel map[uint64]uint64
		check := func() {
			if got := contents(x); !maps.Equal(got, model) {
				t.Fatalf("table has %v, want %v", got, model)
			}
			if view == nil {
				return
			}
			got := map[uint64]uint64{}
			if err := view.Scan(new(Key), &lastKey, into(got)); err != nil || !maps.Equal(got, viewModel) {
				t.Fatalf("view has %v, want %v, err %v", got, viewModel, err)
			}
		}
		for step := range rapid.IntRange(1, 200).Draw(t, "steps") {
			n := rapid.Uint64Range(0, 60).Draw(t, "key")
			k := key(n)
			switch rapid.IntRange(0, 11).Draw(t, "step") {
			default:
				_, have := model[n]
				v := value(uint64(step))
				x.Put(&k, &v, !have && rapid.Bool().Draw(t, "fresh"))
				model[n] = uint64(step)
			case 0, 1, 2, 3:
				if _, have := model[n]; have {
					x.Delete(&k)
					delete(model, n)
				}
			case 4, 5:
				var v Value
				want, have := model[n]
				if ok := x.Get(&k, &v); ok != have || ok && v != value(want) {
					t.Fatalf("key %d: %v, %v, want %v, %v", n, v, ok, want, have)
				}
			case 6:
				to := key(n + rapid.Uint64Range(0, 20).Draw(t, "more"))
				var got, want []uint64
				x.Scan(&k, &to, func(k *Key, _ *Value) bool {
					got = append(got, binary.BigEndian.Uint64(k[:]))
					return true
				})
				for i := n; i < binary.BigEndian.Uint64(to[:]); i++ {
					if _, ok := model[i]; ok {
						want = append(want, i)
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("scan from %d gives %v, want %v", n, got, want)
				}
			case 7: // a durable snapshot
				b, p := x.Snapshot(nil)
				if err := p.Sync(); err != nil {
					t.Fatal(err)
				}
				pin.Release()
				saved, pin, savedModel = b, p, maps.Clone(model)
			case 8: // a power cut
				seed := rapid.Uint64().Draw(t, "seed")
				clone := mem.CrashClone(rand.New(rand.NewPCG(seed, 0)), 0.5)
				_ = x.Close()
				mem = clone
				x, pin = openTable(t, mem, tail), nil
				if saved != nil {
					var err error
					if pin, err = x.Restore(saved); err != nil {
						t.Fatal(err)
					}
				}
				if err := x.Clean(); err != nil {
					t.Fatal(err)
				}
				model = maps.Clone(savedModel)
				check()
			case 9:
				if view != nil {
					check()
					view.Release()
				}
				view, viewModel = x.View(), maps.Clone(model)
			}
			if rapid.IntRange(0, 19).Draw(t, "check") == 0 {
				check()
			}
		}
		check()
		if view != nil {
			view.Release()
		}
		// Nothing but what is needed lies around.
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		names, err := mem.List("/runs")
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if err := Verify(mem, "/runs/"+n); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestLaw7TableKeepsLittleInMemory fills a table with many rows, deletes most, and looks at what is in memory and on the disk.
func TestLaw7TableKeepsLittleInMemory(t *testing.T) {
	const rows, tail = 200_000, 1000
	mem := vfs.NewMem()
	x := openTable(t, mem, tail)
	defer func() { _ = x.Close() }()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range rng.Perm(rows) {
		k, v := key(uint64(n)), value(uint64(n))
		x.Put(&k, &v, true)
	}
	settleMerges(x)
	s := x.Stats()
	perRow := float64(s.Indexed) / rows
	if s.Tail > tail || s.Runs > 10 || perRow > float64(KeyBytes)/pageRows*1.1 {
		t.Errorf("stats are %+v, %.3f bytes of memory a row", s, perRow)
	}
	for n := range rows {
		if n%100 != 0 {
			k := key(uint64(n))
			x.Delete(&k)
		}
	}
	settleMerges(x)
	// A run has more rows than all newer ones together, so deletions may wait beside what they delete until there are as many.
	if s = x.Stats(); s.Rows > 2*rows {
		t.Errorf("%d rows are left of %d, stats %+v", s.Rows, rows/100, s)
	}
	if got := len(contents(x)); got != rows/100 {
		t.Errorf("%d rows, want %d", got, rows/100)
	}
}

// settleMerges waits until nothing is to be merged.
func settleMerges(x *Table) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for x.mu.merging {
		x.merged.Wait()
	}
}

func TestDamagedRunsAreFoundAndRemoved(t *testing.T) {
	mem := vfs.NewMem()
	x := openTable(t, mem, 300)
	for n := range uint64(300) {
		k, v := key(n), value(n)
		x.Put(&k, &v, true)
	}
	b, pin := x.Snapshot(nil)
	if err := pin.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	name := pin.runs[0].path
	whole, err := vfs.ReadFile(mem, name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for at := range whole {
		bad := slices.Clone(whole)
		bad[at] ^= 0x10
		m := vfs.NewMem()
		write(t, m, name, bad)
		if err := Verify(m, name); err == nil {
			t.Fatalf("bit flipped at byte %d: nothing found", at)
		}
		var told []error
		y, err := Open(Config{FS: m, Dir: "/runs", TailRows: 300, Failed: func(err error) { told = append(told, err) }})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := y.Restore(b); err == nil { // a page is read later
			view := y.View()
			if err := view.Scan(new(Key), &lastKey, into(map[uint64]uint64{})); err == nil {
				t.Fatalf("bit flipped at byte %d: a view reads all of it", at)
			}
			view.Release()
			n := len(contents(y))
			var c *CorruptError
			if len(told) != 1 || !errors.As(told[0], &c) || n >= 300 {
				t.Fatalf("bit flipped at byte %d: %d rows, told %v", at, n, told)
			}
			if _, err := m.Stat(name); err == nil {
				t.Fatalf("bit flipped at byte %d: the file stays", at)
			}
		}
		_ = y.Close()
	}
	for cut := range len(whole) {
		m := vfs.NewMem()
		write(t, m, name, whole[:cut])
		if err := Verify(m, name); err == nil {
			t.Fatalf("cut at byte %d: nothing found", cut)
		}
	}
}

func write(t testing.TB, fsys vfs.FS, name string, b []byte) {
	t.Helper()
	if err := fsys.MkdirAll("/runs"); err != nil {
		t.Fatal(err)
	}
	f, err := fsys.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// A disk that is full keeps the rows in memory until it is not.
func TestTailGrowsWhileTheDiskIsFull(t *testing.T) {
	mem := vfs.NewMem()
	mem.SetDisk(20<<10, 1<<30)
	failed := 0
	x, err := Open(Config{FS: mem, Dir: "/runs", TailRows: 500, Failed: func(error) { failed++ }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = x.Close() }()
	for n := range uint64(3000) {
		if n == 2500 {
			mem.SetDisk(1<<30, 1<<30)
		}
		k, v := key(n), value(n)
		x.Put(&k, &v, true)
	}
	if got := len(contents(x)); got != 3000 || failed == 0 || failed > 20 {
		t.Errorf("%d rows, %d failures told", got, failed)
	}
	if s := x.Stats(); s.Tail > 600 || s.Rows < 2000 {
		t.Errorf("with room again: %+v", s)
	}
}

func FuzzRestore(f *testing.F) {
	mem := vfs.NewMem()
	x := openTable(f, mem, 10)
	for n := range uint64(25) {
		k, v := key(n), value(n)
		x.Put(&k, &v, true)
	}
	settleMerges(x)
	b, pin := x.Snapshot(nil)
	var files [][]byte
	for _, r := range pin.runs {
		whole, err := vfs.ReadFile(mem, r.path, 1<<20)
		if err != nil {
			f.Fatal(err)
		}
		files = append(files, whole)
	}
	_ = x.Close()
	f.Add(b, files[0])
	f.Add(b[:len(b)-3], files[0])
	f.Add([]byte{}, []byte{})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x7f}, []byte(magic))
	f.Add([]byte{1, 0, 1, 0, 0}, files[0][:80])
	f.Fuzz(func(t *testing.T, b, file []byte) {
		m := vfs.NewMem()
		for id := range uint64(4) {
			write(t, m, runName("/runs", id), file)
		}
		y, err := Open(Config{FS: m, Dir: "/runs", TailRows: 10})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = y.Close() }()
		if _, err := y.Restore(b); err == nil {
			if first := contents(y); !maps.Equal(first, contents(y)) {
				t.Fatal("two answers")
			}
		}
	})
}

func BenchmarkTable(b *testing.B) {
	for _, rows := range []int{100_000, 2_000_000} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			x, err := Open(Config{FS: vfs.OS, Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = x.Close() }()
			for n := range uint64(rows) {
				k, v := key(n*0x9E3779B97F4A7C15), value(n)
				x.Put(&k, &v, true)
			}
			settleMerges(x)
			b.Logf("%+v", x.Stats())
			b.Run("get", func(b *testing.B) {
				b.ReportAllocs()
				var v Value
				for i := range b.N {
					k := key(uint64(i%rows) * 0x9E3779B97F4A7C15)
					if !x.Get(&k, &v) {
						b.Fatal("gone")
					}
				}
			})
			b.Run("scan=64", func(b *testing.B) {
				b.ReportAllocs()
				for i := range b.N {
					k := key(uint64(i%rows) * 0x9E3779B97F4A7C15)
					n := 0
					x.Scan(&k, &lastKey, func(*Key, *Value) bool { n++; return n < 64 })
				}
			})
			b.Run("put", func(b *testing.B) {
				b.ReportAllocs()
				for i := range b.N {
					k, v := key(uint64(rows+i)*0x9E3779B97F4A7C15), value(1)
					x.Put(&k, &v, true)
				}
			})
		})
	}
}

// Who looks for many that are near each other, there or not, reads a page of each run twice and not once for each.
func TestLookingForWhatIsNearReadsLittle(t *testing.T) {
	const rows, tail = 4000, 500
	var reads atomic.Int64
	x := openTable(t, vfs.Intercept(vfs.NewMem(), func(op vfs.Op) error {
		if op.Kind == "read" {
			reads.Add(1)
		}
		return nil
	}), tail)
	for i := range uint64(rows) {
		k, v := key(2*i), value(i)
		x.Put(&k, &v, true)
	}
	settleMerges(x)
	n, before := x.Stats().Runs, reads.Load()
	for i := range uint64(2 * rows) {
		k, v := key(i), Value{}
		if ok := x.Get(&k, &v); ok != (i%2 == 0) || ok && v != value(i/2) {
			t.Fatalf("row %d: %v, %v", i, ok, v)
		}
	}
	if got, most := reads.Load()-before, int64(3*(rows/pageRows+n)); got > most {
		t.Errorf("%d reads of %d runs for %d rows, most should be %d", got, n, 2*rows, most)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
}
