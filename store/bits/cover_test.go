package bits

import (
	"fmt"
	"testing"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// Law 1: bits say something of a filter and a message only when the filter was one of those that were evaluated for it. What was before a subscription and what came
// after it has no answer, in memory and from files.
func TestLaw1BitsAnswerForTheFiltersOfTheirTime(t *testing.T) {
	mem := vfs.NewMem()
	open := func() *Topic {
		table, err := Open(Config{FS: mem, Dir: "/bits", LogEnd: 1000})
		if err != nil {
			t.Fatal(err)
		}
		return table.Topic("T")
	}
	a, b := ID{1}, ID{2}
	p := open()
	none := Mask{}
	put := func(address int64) { p.Put(address, none) } // of no filter: who may ask is told No
	p.Cover([]ID{a})
	put(10)
	put(11)
	p.Cover([]ID{a, b})
	put(20)
	put(21)
	p.Cover([]ID{a})
	put(30)
	put(31)
	p.Cover([]ID{a, b}) // it comes back
	put(40)
	check := func(when string) {
		t.Helper()
		for _, tc := range []struct {
			id      ID
			address int64
			want    Answer
		}{
			{a, 10, No}, {a, 11, No}, {a, 20, No}, {a, 21, No}, {a, 30, No}, {a, 31, No}, {a, 40, No}, {a, 41, Unknown},
			{b, 10, Unknown}, {b, 11, Unknown}, {b, 20, No}, {b, 21, No}, {b, 30, Unknown}, {b, 31, Unknown}, {b, 40, No},
		} {
			c := p.Cursor(tc.id, tc.id.Mask())
			if got := c.Known(tc.address); got != tc.want {
				t.Errorf("%s: filter %d at %d: %v, want %v", when, tc.id[0], tc.address, got, tc.want)
			}
		}
	}
	check("in memory")
	if err := p.table.Flush(1000, true); err != nil {
		t.Fatal(err)
	}
	p = open()
	check("from files")
}

// Of all files that are read, the entries of a few stay in memory.
func TestLaw7EntriesOfFilesAreBounded(t *testing.T) {
	table, err := Open(Config{FS: vfs.NewMem(), Dir: "/bits", LogEnd: 1000})
	if err != nil {
		t.Fatal(err)
	}
	inMemory := func() (n int) {
		for i := range 3 * maxLoaded {
			for _, c := range *table.Topic(fmt.Sprint("T", i)).chunks.Load() {
				if c.data.Load() != nil {
					n++
				}
			}
		}
		return n
	}
	for i := range 3 * maxLoaded {
		p := table.Topic(fmt.Sprint("T", i))
		p.Cover([]ID{{1}})
		p.Put(int64(i), Mask{})
	}
	if err := table.Flush(1000, true); err != nil {
		t.Fatal(err)
	}
	if n := inMemory(); n > maxLoaded {
		t.Errorf("%d files are in memory after they were written, at most %d may be", n, maxLoaded)
	}
	for i := range 3 * maxLoaded {
		c := table.Topic(fmt.Sprint("T", i)).Cursor(ID{1}, ID{1}.Mask())
		if got := c.Known(int64(i)); got != No {
			t.Errorf("topic %d: %v", i, got)
		}
	}
	if n := inMemory(); n > maxLoaded {
		t.Errorf("%d files are in memory after they were read, at most %d may be", n, maxLoaded)
	}
}
