package store

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/fusionmq/fusionmq/store/queue"
)

// What is decoded is encoded to the same meaning again, and nothing panics or allocates beyond its input.
func FuzzRestated(f *testing.F) {
	f.Add((&statePiece{from: 1 << 40, part: 2, last: true, bytes: []byte("state")}).append(nil))
	f.Add(appendBounds(nil, []queue.Bound{{Topic: "A", Queue: 3, Next: 700}, {Topic: "%RETRY%g", Queue: queue.MaxQueueID, Next: 1 << 50}}))
	f.Add([]byte{restateVersion, restateQueues, 0xff, 0xff, 0xff, 0x0f})
	f.Add([]byte{restateVersion, restateQueues, 1, 100, 'T', 0, 0}) // a name that is longer than the record
	f.Add([]byte{restateVersion, restateState, 0, 1, 1})
	f.Add([]byte{1, 1})
	f.Add([]byte{restateVersion, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, bs, err := decodeRestated(b)
		switch {
		case err != nil:
			return
		case p != nil:
			again, _, err := decodeRestated(p.append(nil))
			if err != nil || again.from != p.from || again.part != p.part || again.last != p.last || !bytes.Equal(again.bytes, p.bytes) {
				t.Errorf("%+v became %+v, %v", p, again, err)
			}
		default:
			_, again, err := decodeRestated(appendBounds(nil, bs))
			if err != nil || !reflect.DeepEqual(again, bs) {
				t.Errorf("%+v became %+v, %v", bs, again, err)
			}
		}
	})
}

// A piece of version 1 has the number of pieces.
func TestPiecesOfVersion1AreRead(t *testing.T) {
	for part, last := range []bool{false, true} {
		p, _, err := decodeRestated([]byte{countedVersion, restateState, 7, byte(part), 2, 'x'})
		if err != nil || p.from != 7 || p.part != uint64(part) || p.last != last || string(p.bytes) != "x" {
			t.Errorf("piece %d of 2: %+v, %v", part, p, err)
		}
	}
}
