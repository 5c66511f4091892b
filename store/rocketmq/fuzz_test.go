package rocketmq

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
)

func FuzzDecodeEntry(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, EntryBytes))
	f.Add(Entry{Position: 77, Size: 91, Tags: -5}.Append(nil))
	f.Add(BlankEntry().Append(nil))
	f.Add(Entry{Position: 1 << 40, Size: 91, Tags: -1 << 63}.Append(nil))
	f.Add(bytes.Repeat([]byte{0xff}, 50))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, ok := DecodeEntry(b)
		if ok && !bytes.Equal(e.Append(nil), b[:EntryBytes]) {
			t.Errorf("%x encodes as %x", b[:EntryBytes], e.Append(nil))
		}
		if address, ext := e.Extension(); ext && address < 0 {
			t.Errorf("extension at %d", address)
		}
		if e, ok := DecodeBatchEntry(b); ok && (e.Count < 1 || e.First < 0 || e.Size < 1) {
			t.Errorf("batch entry %+v", e)
		}
	})
}

func FuzzDecodeUnit(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0xff, 0xff})
	f.Add(Unit{Tags: 7, StoreTime: 8}.Append(nil))
	f.Add(append(Unit{Tags: 7, StoreTime: 8, Bitmap: []byte{1, 2, 3}}.Append(nil), 9))
	f.Add(append([]byte{0x7f, 0xff}, make([]byte, 40)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		u, n, ok, _ := DecodeUnit(b)
		if ok && (n > len(b) || !bytes.Equal(u.Append(nil), b[:n])) {
			t.Errorf("%x encodes as %x", b[:n], u.Append(nil))
		}
	})
}

func FuzzKeyIndex(f *testing.F) {
	index := func(slots int, slot, previous, count int32) []byte {
		b := make([]byte, indexHeaderBytes+4*slots+20*4)
		binary.BigEndian.PutUint32(b[36:], uint32(count))
		binary.BigEndian.PutUint32(b[indexHeaderBytes:], uint32(slot))
		for n := range 4 {
			binary.BigEndian.PutUint32(b[indexHeaderBytes+4*slots+20*n+16:], uint32(previous))
		}
		return b
	}
	f.Add([]byte{}, 1)
	f.Add(index(3, 3, 2, 4), 3)
	f.Add(index(1, 2, 2, 4), 1)
	f.Add(index(1, 2, 1<<30, 1<<30), 1)
	f.Add(index(1, -2, -1, -4), 1<<30)
	f.Fuzz(func(t *testing.T, b []byte, slots int) {
		x, err := OpenIndex(b, slots)
		if err != nil {
			return
		}
		entries := 0
		for range x.Entries() {
			entries++
		}
		if entries*indexEntryBytes > len(b) {
			t.Errorf("%d entries in %d bytes", entries, len(b))
		}
		found := 0
		for range x.Find(0) {
			found++
		}
		if found > entries {
			t.Errorf("%d of %d entries found", found, entries)
		}
		for range x.Find(-1 << 31) {
			t.Error("an entry of no key")
		}
	})
}

func FuzzDecodeCheckpoints(f *testing.F) {
	f.Add([]byte{})
	f.Add(Checkpoint{1, 2, 3, 4, 5}.Encode())
	f.Add(TimerCheckpoint{1, 2, 3, 4, 5, 6, 7}.Encode())
	f.Add(bytes.Repeat([]byte{0xff}, 56))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, ok := DecodeCheckpoint(b); ok && !bytes.Equal(c.Encode()[:40], b[:40]) {
			t.Errorf("%x encodes as %x", b[:40], c.Encode()[:40])
		}
		if c, ok := DecodeTimerCheckpoint(b); ok && !bytes.Equal(c.Encode()[:56], b[:56]) {
			t.Errorf("%x encodes as %x", b[:56], c.Encode()[:56])
		}
	})
}

func FuzzTimer(f *testing.F) {
	unit := make([]byte, TimerUnitBytes)
	unit[3], unit[15], unit[35], unit[39] = TimerUnitBytes, 1, 9, 100
	f.Add([]byte{})
	f.Add(unit)
	f.Add(append(unit, unit...))
	f.Add([]byte{0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0xCB, 0xD4, 0x31, 0x94})
	f.Add(bytes.Repeat([]byte{0xff}, 60))
	f.Fuzz(func(t *testing.T, b []byte) {
		if u, ok, end := DecodeTimerUnit(b); ok && (end || u.Size <= 0 || u.Position < 0) {
			t.Errorf("unit %+v", u)
		}
		if s, ok := DecodeSlot(b); ok && s.Time <= 0 {
			t.Errorf("slot %+v", s)
		}
	})
}

func FuzzOffsets(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte(`{"dataVersion":{"counter":3},"offsetTable":{1:3,2:1,16:0}}`))
	f.Add([]byte(`{"offsetTable":{"T@g":{0:1,1:2}},"lmqOffsetTable":{"%LMQ%x@g":4}}`))
	f.Add([]byte(`{"offsetTable":{0:-1}}`))
	f.Add([]byte(`{"offsetTable":`))
	f.Fuzz(func(t *testing.T, b []byte) {
		levels, err := DecodeDelayOffsets(b)
		for level, n := range levels {
			if level < 1 || n < 0 || err != nil {
				t.Errorf("level %d has %d, %v", level, n, err)
			}
		}
		_, light, err := DecodeOffsets(b)
		for name, n := range light {
			if n < 0 || err != nil {
				t.Errorf("%q has %d, %v", name, n, err)
			}
		}
	})
}

func FuzzDecodeOp(f *testing.F) {
	f.Add([]byte("0,1,2,"))
	f.Add([]byte("17"))
	f.Add([]byte(",,x,-3,99999999999999999999,"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		got := DecodeOp(b)
		if again := DecodeOp(AppendOp(nil, got)); !slices.Equal(got, again) {
			t.Errorf("%v, again %v", got, again)
		}
	})
}

func FuzzDecodePop(f *testing.F) {
	f.Add("ck", []byte(`{"bm":0,"bn":"b","c":"g","d":[0,2,5],"it":60000,"n":3,"pt":17,"q":1,"ro":4,"so":9,"t":"T"}`))
	f.Add("ck", []byte(`{"n":100000000}`))
	f.Add("ack", []byte(`{"ao":11,"c":"g","pt":17,"q":1,"so":9,"t":"T","bn":"b"}`))
	f.Add("bAck", []byte(`{"aol":[9,11],"c":"g","pt":17,"q":1,"so":9,"t":"T","bn":"b"}`))
	f.Add("", []byte{})
	f.Fuzz(func(t *testing.T, kind string, b []byte) {
		p, err := decodePop(PopKind(kind), b)
		if err == nil && p.Kind == PopCheckPoint && len(p.Offsets) != p.Count {
			t.Errorf("%+v", p)
		}
	})
}

// FuzzOpen gives records of any topic with any properties to the reader of what is open.
func FuzzOpen(f *testing.F) {
	f.Add(HalfTopic, "REAL_TOPIC\x01T\x02REAL_QID\x010\x02PGROUP\x01p\x02", "", int64(0), int32(0))
	f.Add(OpTopic, "TAGS\x01d\x02", "0,1,2,", int64(0), int32(0))
	f.Add(ScheduleTopic, "DELAY\x013\x02REAL_TOPIC\x01T\x02", "", int64(5), int32(17))
	f.Add(ScheduleTopic, "", "", int64(5), int32(-17))
	f.Add(TimerTopic, "TIMER_OUT_MS\x0177\x02REAL_TOPIC\x01T\x02UNIQ_KEY\x01k\x02", "", int64(5), int32(0))
	f.Add(TimerTopic, "TIMER_OUT_MS\x0177\x02REAL_TOPIC\x01T\x02TIMER_DEL_UNIQKEY\x01T+k\x02", "", int64(5), int32(0))
	f.Add(TimerTopic, "TIMER_OUT_MS\x0177\x02REAL_TOPIC\x01rmq_sys_REVIVE_LOG_c\x02TAGS\x01ck\x02", `{"c":"g","d":[0,2],"it":60000,"n":2,"pt":17,"q":1,"so":9,"t":"T"}`, int64(5), int32(0))
	f.Add("rmq_sys_REVIVE_LOG_c", "TAGS\x01bAck\x02", `{"aol":[9],"c":"g","pt":17,"q":1,"so":9,"t":"T"}`, int64(5), int32(0))
	f.Add("T", "INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x012,x\x02", "", int64(5), int32(0))
	f.Fuzz(func(t *testing.T, topic, props, body string, offset int64, id int32) {
		fields := &record.Fields{Topic: topic, Properties: []byte(props), Body: []byte(body), BodyCRC: record.CRC([]byte(body)), QueueOffset: offset, QueueID: id}
		if record.Check(fields) != nil || len(topic) > record.MaxTopicV1 {
			return
		}
		v, err := record.Parse(record.Append(nil, fields))
		if err != nil {
			t.Fatal(err)
		}
		o := NewOpen(Progress{}, state.NewTable())
		o.Record(v)
		o.Record(v)
		if n := len(slices.Collect(o.Halves())) + len(slices.Collect(o.Delays())); n > 1 {
			t.Errorf("one record is open %d times", n)
		}
		if n := len(slices.Collect(o.Popped())); n > maxPop {
			t.Errorf("one record has %d messages", n)
		}
		for _, q := range LightQueues(v) {
			if q.Offset < 0 {
				t.Errorf("%+v", q)
			}
		}
	})
}
