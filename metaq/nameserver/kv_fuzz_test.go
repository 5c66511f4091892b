package nameserver

import (
	"reflect"
	"testing"
	"unicode/utf8"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// FuzzKVFile opens any content of the file. What is read is the same after it was written once more; what cannot be read is kept aside.
func FuzzKVFile(f *testing.F) {
	f.Add([]byte(`{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"broker-a:4"},"empty":{}}}`), "ns", "key", "value")
	f.Add([]byte(`{"configTable":null}`), "", "", "")
	f.Add([]byte(`{"configTable":{"a":null}`), "a", "b", "c")
	f.Add([]byte{}, "a", "\xff", "c")
	f.Fuzz(func(t *testing.T, b []byte, ns, key, value string) {
		mem := vfs.NewMem()
		if err := mem.MkdirAll("/ns"); err != nil {
			t.Fatal(err)
		}
		if err := vfs.WriteFile(mem, "/ns/"+KVFile, b, ""); err != nil {
			t.Fatal(err)
		}
		now := func() int64 { return 5 }
		k, err := openKV(mem, "/ns", now)
		if k == nil {
			t.Fatal(err)
		}
		if err != nil {
			if kept, e := vfs.ReadFile(mem, "/ns/"+KVFile+".damaged-5", 1<<20); e != nil || string(kept) != string(b) {
				t.Errorf("%v, and the file is not kept: %v", err, e)
			}
		}
		if !utf8.ValidString(ns) || !utf8.ValidString(key) || !utf8.ValidString(value) || k.put(ns, key, value) != nil { // JSON cannot carry other text
			return
		}
		again, err := openKV(mem, "/ns", now)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(k.table, again.table) || k.bytes != again.bytes {
			t.Errorf("%v of %d bytes was read as %v of %d", k.table, k.bytes, again.table, again.bytes)
		}
	})
}
