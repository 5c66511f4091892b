package bits

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fusionmq/fusionmq/store/filter"
	"github.com/fusionmq/fusionmq/store/vfs"
	"pgregory.net/rapid"
)

func id(n int) ID {
	e, err := filter.ParseSQL92(fmt.Sprintf("a = %d", n))
	if err != nil {
		panic(err)
	}
	return IDOf(e)
}

// A table that is written, closed, opened, cut and shortened says nothing that is wrong, and knows what it was told as long as
// it has had room for it.
func TestTableKnowsWhatItWasTold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := vfs.NewMem()
		c := Config{FS: fs, Dir: "bits", LogEnd: 1 << 40, Failed: func(err error) { t.Fatal(err) }}
		table, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		names := []string{"A", "B"}
		type message struct {
			covered, selected []int
			unsure            bool // it may have been forgotten
		}
		model := map[string]map[int64]*message{"A": {}, "B": {}}
		cover := map[string][]int{}
		next := int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			name := rapid.SampledFrom(names).Draw(t, "topic")
			switch rapid.IntRange(0, 7).Draw(t, "step") {
			case 0, 1:
				var now []int
				var ids []ID
				for n := range 6 {
					if rapid.Bool().Draw(t, "covered") {
						now, ids = append(now, n), append(ids, id(n))
					}
				}
				cover[name] = now
				table.Topic(name).Cover(ids)
			case 2, 3, 4:
				for range rapid.IntRange(1, 100).Draw(t, "messages") {
					next += rapid.Int64Range(1, 9).Draw(t, "gap")
					m := &message{covered: cover[name]}
					var mask Mask
					for _, n := range m.covered {
						if (next+int64(n))%5 == 0 {
							m.selected = append(m.selected, n)
							mask = mask.Or(id(n).Mask())
						}
					}
					table.Topic(name).Put(next, mask)
					model[name][next] = m
				}
			case 5:
				table.Topic(name).Pause()
			case 6:
				if err := table.Flush(next+1, rapid.Bool().Draw(t, "all")); err != nil {
					t.Fatal(err)
				}
			case 7:
				// A stop, clean or not, and what is left of the log.
				if rapid.Bool().Draw(t, "clean") {
					if err := table.Flush(next+1, true); err != nil {
						t.Fatal(err)
					}
				} else {
					for _, ms := range model {
						for _, m := range ms {
							m.unsure = true
						}
					}
				}
				if rapid.Bool().Draw(t, "cut") {
					c.LogEnd = rapid.Int64Range(0, next+1).Draw(t, "end")
				}
				if rapid.Bool().Draw(t, "drop") {
					c.LogMin = rapid.Int64Range(0, c.LogEnd).Draw(t, "min")
				}
				if table, err = Open(c); err != nil {
					t.Fatal(err)
				}
				for _, ms := range model {
					for at, m := range ms {
						if at >= c.LogEnd {
							delete(ms, at)
						} else {
							m.unsure = true // its file may have gone with others
						}
					}
				}
				if c.LogEnd < next {
					next = c.LogEnd
				}
				c.LogEnd = 1 << 40
				clear(cover)
			}
			for name, ms := range model {
				for n := range 6 {
					k := table.Topic(name).Cursor(id(n), id(n).Mask())
					at := int64(0)
					if next > 100 && rapid.Bool().Draw(t, "from the middle") {
						at = next / 2
					}
					for ; at <= next; at++ {
						got := k.Known(at)
						m := ms[at]
						switch {
						case m == nil || !slices.Contains(m.covered, n):
							if got != Unknown {
								t.Fatalf("%s %d at %d: %v, nothing was said", name, n, at, got)
							}
						case slices.Contains(m.selected, n) && got == No:
							t.Fatalf("%s %d at %d: no, but it is selected", name, n, at)
						case got == Unknown && !m.unsure:
							t.Fatalf("%s %d at %d is unknown", name, n, at)
						}
					}
				}
			}
		}
	})
}

func TestReadersMayAskWhileMessagesCome(t *testing.T) {
	table, err := Open(Config{FS: vfs.NewMem(), Dir: "bits", LogEnd: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	topic := table.Topic("T")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range int64(3 * chunkEntries) {
			// The filter is covered for some of the time. What it selects: every third of those.
			switch i % 500 {
			case 100:
				topic.Cover([]ID{id(1)})
			case 400:
				topic.Cover([]ID{id(2)})
			case 450:
				if err := table.Flush(10*i, false); err != nil {
					t.Error(err)
				}
			}
			var m Mask
			if i%3 == 0 && i%500 >= 100 && i%500 < 400 {
				m = id(1).Mask()
			}
			topic.Put(10*i, m)
		}
	}()
	for last := false; ; {
		k := topic.Cursor(id(1), id(1).Mask())
		for i := range int64(3 * chunkEntries) {
			got := k.Known(10 * i)
			if covered := i%500 >= 100 && i%500 < 400; !covered && got != Unknown || got == No && i%3 == 0 || got == Maybe && i%3 != 0 || last && covered && got == Unknown {
				t.Fatalf("message %d: %v", i, got)
			}
		}
		if last {
			return
		}
		select {
		case <-done:
			last = true
		default:
		}
	}
}

// Memory does not follow what has been seen.
func TestLaw7EntriesInMemoryAreBounded(t *testing.T) {
	fs := vfs.NewMem()
	table, err := Open(Config{FS: fs, Dir: "bits", LogEnd: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 40 {
		topic := table.Topic(fmt.Sprint("T", n))
		topic.Cover([]ID{id(1)})
		for i := range int64(4 * chunkEntries) {
			topic.Put(10*i, Mask{})
		}
	}
	// Nothing could be written yet, as nothing is synced.
	if table.fresh > 2*maxFresh {
		t.Errorf("%d entries wait in memory, the limit is %d", table.fresh, 2*maxFresh)
	}
	if err := table.Flush(1<<40, true); err != nil {
		t.Fatal(err)
	}
	if table.fresh != 0 {
		t.Errorf("%d entries wait in memory after all were written", table.fresh)
	}
	inMemory := 0
	for n := range 40 {
		topic := table.Topic(fmt.Sprint("T", n))
		k := topic.Cursor(id(1), id(1).Mask())
		for i := range int64(4 * chunkEntries) {
			if i%100 == 0 && k.Known(10*i) == Maybe {
				t.Fatal("no filter selects anything")
			}
		}
		for _, c := range *topic.chunks.Load() {
			if c.data.Load() != nil {
				inMemory++
			}
		}
	}
	if inMemory > maxLoaded+4 {
		t.Errorf("%d chunks are in memory, the limit is %d", inMemory, maxLoaded)
	}
}

func TestFilesThatAreNotWhatWasWrittenAreReportedAndRemoved(t *testing.T) {
	fs := vfs.NewMem()
	c := Config{FS: fs, Dir: "bits", LogEnd: 1000}
	table, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	topic := table.Topic("T")
	topic.Cover([]ID{id(1)})
	for i := range int64(10) {
		topic.Put(i, Mask{})
	}
	if err := table.Flush(1000, true); err != nil {
		t.Fatal(err)
	}
	names, _ := fs.List("bits")
	good, err := vfs.ReadFile(fs, "bits/"+names[0], 1<<20)
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	if err := Verify(fs, "bits/"+names[0]); err != nil {
		t.Error(err)
	}
	for i := range good {
		bad := slices.Clone(good)
		bad[i] ^= 0x40
		if err := vfs.WriteFile(fs, "bits/"+names[0], bad, ""); err != nil {
			t.Fatal(err)
		}
		if Verify(fs, "bits/"+names[0]) == nil {
			t.Errorf("byte %d changed: verified", i)
		}
		reported := 0
		c.Failed = func(error) { reported++ }
		table, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		k := table.Topic("T").Cursor(id(1), id(1).Mask())
		if got := k.Known(5); got != Unknown || reported != 1 {
			t.Fatalf("byte %d changed: %v, reported %d times", i, got, reported)
		}
		if left, _ := fs.List("bits"); len(left) != 0 {
			t.Fatalf("byte %d changed: the file is still there", i)
		}
	}
}

func FuzzDecode(f *testing.F) {
	filters := []covered{{id(1), 5, forever}, {id(2), 5, 7}}
	c := &chunk{start: 5}
	c.filters.Store(&filters)
	c.put(5, id(1).Mask())
	c.put(9, Mask{})
	f.Add([]byte{})
	f.Add([]byte(magic))
	f.Add(c.encode("T"))
	f.Add(append(c.encode("T"), c.encode("T")...))
	f.Add(c.encode("T")[:50])
	f.Fuzz(func(t *testing.T, b []byte) {
		k, what := decode(b)
		if what != "" {
			return
		}
		again := &chunk{start: k.start}
		again.filters.Store(&k.filters)
		for i, at := range k.data.addresses {
			again.put(at, k.data.masks[i])
		}
		if got := again.encode(k.topic); string(got) != string(b) {
			t.Errorf("%x is read as what is written as %x", b, got)
		}
	})
}
