package log_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/store/internal/vectors"
	"github.com/fusionmq/fusionmq/store/log"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// FuzzRecover opens a log of two segments with any content, of which any part was synced once. What it takes is a sequence of records that say where
// they are; a second start finds the same and has nothing left to cut; and the log takes the next record where it says that it ends.
func FuzzRecover(f *testing.F) {
	good := func(from, n int) []byte {
		var b []byte
		for i := range n {
			body := bytes.Repeat([]byte{byte('a' + i)}, 100*i+1)
			at := len(b)
			b = record.Append(b, &record.Fields{Topic: "T", Body: body, BodyCRC: record.CRC(body), Properties: []byte("TAGS\x01x\x02"), StoreTime: int64(i)})
			record.SetPlace(b[at:], int64(i), int64(from+at), int64(i))
		}
		return b
	}
	full := func(b []byte) []byte {
		left := segmentBytes - len(b)
		return append(record.AppendBlank(b, int64(left)), make([]byte, left-record.BlankSize)...)
	}
	torn := good(0, 5)
	clear(torn[len(torn)-20:])
	bad := full(good(0, 5))
	bad[300] ^= 1
	f.Add([]byte{}, []byte{}, int64(0))
	f.Add(good(0, 3), []byte{}, int64(0))
	f.Add(torn, []byte{}, int64(0))
	f.Add(full(good(0, 5)), good(segmentBytes, 2), int64(0))
	f.Add(bad, good(segmentBytes, 2), int64(0))
	f.Add(bad, good(segmentBytes, 2), int64(segmentBytes+100))
	f.Add(full(good(0, 5)), []byte{0x7f, 0xff, 0xff, 0xff, 0xDA, 0xA3, 0x20, 0xA7}, int64(1<<40))
	f.Add(record.AppendBlank(nil, 8), record.AppendBlank(nil, 1<<40), int64(8))
	for _, name := range []string{"5.3.3-stopped", "4.9.7-killed"} { // what real brokers wrote
		files, want, err := vectors.Load(name)
		if err != nil {
			f.Fatal(err)
		}
		b := files["commitlog/"+want.Segments[0].File]
		f.Add(b[:segmentBytes], b[segmentBytes:2*segmentBytes], int64(0))
	}
	f.Fuzz(func(t *testing.T, first, second []byte, durable int64) {
		mem := vfs.NewMem()
		if err := mem.MkdirAll("/log"); err != nil {
			t.Fatal(err)
		}
		for i, b := range [][]byte{first, second} {
			whole := make([]byte, segmentBytes)
			copy(whole, b)
			if err := vfs.WriteFile(mem, []string{"/log/00000000000000000000", "/log/00000000000000004096"}[i], whole, ""); err != nil {
				t.Fatal(err)
			}
		}
		var damaged []log.Range
		open := func() (l *log.Log, r log.Recovery, seen []int64) {
			l, err := log.Open(log.Options{FS: mem, Dir: "/log", SegmentBytes: segmentBytes, Durable: durable, Unclean: true, Now: func() int64 { return time.Now().UnixMilli() }})
			if err != nil {
				t.Fatal(err)
			}
			l.SetDamaged(damaged)
			r, err = l.Recover(0, false, func(v record.View) error {
				at := v.PhysicalOffset()
				if n := len(seen); n > 0 && at <= seen[n-1] || log.Valid(v, at) != nil {
					t.Errorf("record of %d bytes at %d behind %v", v.Size(), at, seen)
				}
				seen = append(seen, at)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return l, r, seen
		}
		l, r, seen := open()
		if r.End < 0 || r.End > 2*segmentBytes || int(r.Records) != len(seen) {
			t.Errorf("%d records, the log ends at %d: %+v", len(seen), r.End, r)
		}
		damaged = l.Damaged()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		durable = min(durable, r.End) // as the store writes it down before anything is appended
		l, again, same := open()
		if again.End != r.End || len(same) != len(seen) || again.Cut || again.Behind > 0 || again.Damaged > 0 {
			t.Errorf("a second start finds %d records, end %d, %+v; the first one %d, %+v", len(same), again.End, again, len(seen), r)
		}
		l.Start()
		b := l.NewBatch()
		b.Buf = record.Append(b.Buf, &record.Fields{Topic: "T", Body: []byte("next"), BodyCRC: record.CRC([]byte("next"))})
		b.Items = append(b.Items, log.Item{Size: int32(len(b.Buf)), Sync: true})
		l.Append(b)
		if it := b.Items[0]; it.Err != nil || it.Position < r.End {
			t.Errorf("the next record is at %d, the log ended at %d: %v", it.Position, r.End, it.Err)
		}
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}
