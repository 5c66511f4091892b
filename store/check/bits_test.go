package check_test

import (
	"testing"

	"github.com/fusionmq/fusionmq/store/bits"
	"github.com/fusionmq/fusionmq/store/filter"
	"github.com/fusionmq/fusionmq/store/vfs"
)

func TestDamagedFilterBitsAreFound(t *testing.T) {
	m := directory(t, 12, 30)
	const dir = "/s/fusionmq/bits"
	table, err := bits.Open(bits.Config{FS: m, Dir: dir, LogEnd: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	e, err := filter.ParseSQL92("a = 1")
	if err != nil {
		t.Fatal(err)
	}
	topic := table.Topic("T")
	topic.Cover([]bits.ID{bits.IDOf(e)})
	topic.Put(0, bits.Mask{})
	if err := table.Flush(1<<40, true); err != nil {
		t.Fatal(err)
	}
	if r := run(t, m); r.Err() != nil {
		t.Errorf("%+v", r.Findings)
	}
	names, err := m.List(dir)
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	name := dir + "/" + names[0]
	b, err := vfs.ReadFile(m, name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		r := run(t, change(t, m, name, func(f vfs.File) error {
			_, err := f.WriteAt([]byte{b[i] ^ 1}, int64(i))
			return err
		}))
		if len(r.Findings) != 1 || r.Findings[0].File != "fusionmq/bits/"+names[0] {
			t.Fatalf("byte %d: %+v", i, r.Findings)
		}
	}
}
