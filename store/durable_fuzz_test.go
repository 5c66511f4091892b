package store

import (
	"bytes"
	"testing"

	"github.com/fusionmq/fusionmq/store/log"
)

// What is read of the file is what would be written, byte for byte; anything else is refused.
func FuzzSyncedFile(f *testing.F) {
	f.Add(durable{}.encode())
	f.Add(durable{synced: 1 << 40, damaged: []log.Range{{From: 3, To: 9}, {From: 1 << 30, To: 1<<30 + 1}}}.encode())
	f.Add([]byte("synced 1\ncrc32c 00000000\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := decodeDurable(b)
		if err == nil && d.synced == 0 && len(d.damaged) == 0 {
			return // no line at all says the same as zeros
		}
		if err == nil && !bytes.Equal(d.encode(), b) {
			t.Errorf("%q was read as %+v", b, d)
		}
	})
}
