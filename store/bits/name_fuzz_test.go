package bits

import (
	"fmt"
	"testing"
)

// A name that is read is the name that would be written for the same part.
func FuzzFileName(f *testing.F) {
	f.Add(fileName(0, 1, "T"))
	f.Add(fileName(1<<40, 1<<41, "%RETRY%g"))
	f.Add("")
	f.Add("00000000000000000005-00000000000000000005-00000000.bits")
	f.Add("-0000000000000000001-00000000000000000005-00000000.bits")
	f.Add("+0000000000000000001-00000000000000000005-0000000G.bits.tmp")
	f.Fuzz(func(t *testing.T, name string) {
		start, end, sum, ok := parseName(name)
		if !ok {
			return
		}
		if start < 0 || end <= start {
			t.Errorf("%q is for [%d, %d)", name, start, end)
		}
		if s, e, u, ok := parseName(fmt.Sprintf("%020d-%020d-%08x.bits", start, end, sum)); !ok || s != start || e != end || u != sum {
			t.Errorf("%q: [%d, %d), %08x, and again [%d, %d), %08x, %v", name, start, end, sum, s, e, u, ok)
		}
	})
}
