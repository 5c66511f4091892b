package record_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"path"
	"testing"

	"github.com/fusionmq/fusionmq/store/internal/vectors"
	"github.com/fusionmq/fusionmq/store/record"
)

// Every record of every directory that a real broker wrote, field by field.
func TestRealStoreDirectories(t *testing.T) {
	for _, name := range vectors.Names {
		t.Run(name, func(t *testing.T) {
			files, want, err := vectors.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			byPosition := map[int64]vectors.Message{}
			for _, m := range want.Messages {
				if m.ReadFrom == nil {
					byPosition[m.Position] = m
				}
			}
			end, seen := int64(0), 0
			for _, seg := range want.Segments {
				data := files[path.Join("commitlog", seg.File)]
				if len(data) != vectors.SegmentBytes {
					t.Fatalf("segment %s has %d bytes, want %d", seg.File, len(data), vectors.SegmentBytes)
				}
				var base int64
				for _, c := range seg.File {
					base = base*10 + int64(c-'0')
				}
				at, records := int64(0), 0
				for {
					v, err := record.Parse(data[at:])
					if errors.Is(err, record.ErrBlank) {
						if seg.PaddingAt == nil || base+at != *seg.PaddingAt {
							t.Errorf("padding at %d, expected.json has %v", base+at, seg.PaddingAt)
						}
						break
					}
					if err != nil {
						break
					}
					checkVector(t, v, base+at, byPosition)
					at += int64(v.Size())
					records++
					end = base + at
				}
				if records != seg.Records {
					t.Errorf("segment %s: %d records, want %d", seg.File, records, seg.Records)
				}
				seen += records
			}
			if end != want.LogEnd {
				t.Errorf("log end %d, want %d", end, want.LogEnd)
			}
			if seen != len(byPosition) || seen == 0 {
				t.Errorf("%d records, want %d", seen, len(byPosition))
			}
		})
	}
}

func checkVector(t *testing.T, v record.View, pos int64, byPosition map[int64]vectors.Message) {
	t.Helper()
	m, ok := byPosition[pos]
	if !ok {
		t.Errorf("record at %d is not in expected.json", pos)
		return
	}
	got := vectors.Message{
		Topic: string(v.Topic()), Queue: v.QueueID(), QueueOffset: v.QueueOffset(), Position: v.PhysicalOffset(), Size: v.Size(), SysFlag: v.SysFlag(), Flag: v.Flag(),
		BornTime: v.BornTime(), BornHost: v.BornHost().String(), StoreTime: v.StoreTime(), StoreHost: v.StoreHost().String(),
		ReconsumeTimes: v.ReconsumeTimes(), PreparedOffset: v.PreparedOffset(), OffsetID: record.OffsetID(v.StoreHost(), pos),
	}
	props := map[string]string{}
	for n, val := range record.Properties(v.Properties()) {
		props[string(n)] = string(val)
	}
	wantLen, wantSum := m.BodyLen, m.BodySHA256
	if m.StoredBodySHA256 != "" {
		wantLen, wantSum = m.StoredBodyLen, m.StoredBodySHA256
	}
	sum := sha256.Sum256(v.Body())
	if len(v.Body()) != wantLen || hex.EncodeToString(sum[:]) != wantSum || v.CheckBody() != nil {
		t.Errorf("record at %d: body of %d bytes differs, want %d", pos, len(v.Body()), wantLen)
	}
	wantProps := map[string]string{}
	for n, val := range m.Properties {
		if val != "" { // an empty TRACE_CONTEXT is in one record; readers drop it
			wantProps[n] = val
		}
	}
	if !maps.Equal(props, wantProps) {
		t.Errorf("record at %d: properties %v, want %v", pos, props, wantProps)
	}
	if code, want := v.TagsCode(), int64(record.HashCode(m.Tags)); code != want {
		t.Errorf("record at %d: tags code %d, want %d", pos, code, want)
	}
	if g, w := key(got), key(m); g != w {
		t.Errorf("record at %d: %+v, want %+v", pos, g, w)
	}
}

type vectorKey struct {
	topic                           string
	queue, size, sys, flag, rec     int32
	offset, pos, born, stored, prep int64
	bornHost, storeHost, id         string
}

func key(m vectors.Message) vectorKey {
	return vectorKey{m.Topic, m.Queue, m.Size, m.SysFlag, m.Flag, m.ReconsumeTimes, m.QueueOffset, m.Position, m.BornTime, m.StoreTime, m.PreparedOffset, m.BornHost, m.StoreHost, m.OffsetID}
}
