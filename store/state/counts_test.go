package state

import (
	"encoding/binary"
	"runtime"
	"testing"
)

// Law 9: a count in a record is no reason to make room for so many: there must be bytes for them.
func TestLaw9CountsAreBoundedByTheirBytes(t *testing.T) {
	list := binary.AppendUvarint([]byte{opsVersion}, 1<<15)
	ops := binary.AppendUvarint([]byte{opsVersion, 0}, MaxOps)
	targets := binary.AppendUvarint([]byte{opsVersion, 1, 1, 'T', 1, byte(OpUpdate), 0, 0}, 1<<15)
	for name, b := range map[string][]byte{"strings": list, "operations": ops, "targets": targets} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := DecodeOps(b)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: %x was taken", name, b)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
			t.Errorf("%s: %d bytes were allocated for a body of %d", name, n, len(b))
		}
	}
}
