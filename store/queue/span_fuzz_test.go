package queue

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// spanFile makes a real index file of a few queues and returns its bytes.
func spanFile(t testing.TB) []byte {
	t.Helper()
	fsys := vfs.NewMem()
	x, err := Open(Config{FS: fsys, Dir: "/index", LogEnd: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	for i := range int64(300) {
		q := x.Queue([]string{"A", "%RETRY%B", "C"}[i%3], int32(i%2), true)
		if err := q.Put(q.Next(), Entry{Address: i * 10, Position: i * 10, Size: 10, TagsCode: -i, Time: i}, true); err != nil {
			t.Fatal(err)
		}
	}
	x.Synced(3000)
	if err := x.Seal(3000); err != nil {
		t.Fatal(err)
	}
	b, err := vfs.ReadFile(fsys, x.fileName(0), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// repair makes the checksums of a file right as far as its header allows, so that the fuzzer gets behind them.
func repair(b []byte) []byte {
	b = append([]byte{}, b...)
	if len(b) < headerBytes {
		return b
	}
	le := binary.LittleEndian
	copy(b, magic)
	le.PutUint64(b[44:], uint64(len(b)))
	entries := int64(le.Uint32(b[24:]))
	dir := headerBytes + entries*entryBytes
	if entries <= maxSpanEntries && dir <= int64(len(b)) {
		for p := int64(0); p*pageEntries < entries; p++ {
			page := b[headerBytes+p*pageBytes : min(headerBytes+(p+1)*pageBytes, dir)]
			if sum := dir + 4*p; sum+4 <= int64(len(b)) {
				le.PutUint32(b[sum:], crc32.Checksum(page, castagnoli))
			}
		}
		le.PutUint32(b[52:], crc32.Checksum(b[dir:], castagnoli))
	}
	le.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
	return b
}

// FuzzSpan gives an index any bytes as its file. It must open, with or without it, and answer reads with entries or with
// a *CorruptError.
func FuzzSpan(f *testing.F) {
	good := spanFile(f)
	f.Add(good, false)
	f.Add(good, true)
	f.Add(good[:len(good)-1], true)
	f.Add(good[:headerBytes], true)
	f.Add(append(good, good...), true)
	f.Add([]byte{}, false)
	for _, at := range []int{8, 16, 24, 28, 32, 36, headerBytes, len(good) - 60, len(good) - 200, len(good) - 400} {
		b := append([]byte{}, good...)
		b[at] ^= 0x81
		f.Add(b, true)
	}
	f.Fuzz(func(t *testing.T, b []byte, repaired bool) {
		if repaired {
			b = repair(b)
		}
		fsys := vfs.NewMem()
		if err := fsys.MkdirAll("/index"); err != nil {
			t.Fatal(err)
		}
		for _, spanEntries := range []int{1, 1 << 20} { // read from the file, and taken into memory
			if err := vfs.WriteFile(fsys, "/index/00000000000000000000.idx", b, ""); err != nil {
				t.Fatal(err)
			}
			x, err := Open(Config{FS: fsys, Dir: "/index", LogEnd: 1 << 20, SpanEntries: spanEntries})
			if err != nil {
				t.Fatal(err)
			}
			var corrupt *CorruptError
			x.Topics(func(topic *Topic) {
				if _, err := topic.Read(0, make([]TopicEntry, 50)); err != nil && !errors.As(err, &corrupt) {
					t.Fatal(err)
				}
				topic.Queues(func(q *Queue) {
					low, high := q.Range()
					if low < 0 || high < low {
						t.Fatalf("range %d..%d", low, high)
					}
					for _, at := range []int64{low, (low + high) / 2, high - 1} {
						if _, err := q.Read(at, make([]Entry, 200)); err != nil && !errors.As(err, &corrupt) {
							t.Fatal(err)
						}
					}
					q.Search(5, true)
					q.SearchAddress(100)
				})
			})
			if err := x.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
