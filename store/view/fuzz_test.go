package view_test

import (
	"bytes"
	"testing"

	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/view"
)

// FuzzAppend shows records with any properties in every way. What a reader gets is a record with the body, its checksum and the fields that no view changes, in the
// place of the view; a view of what was shown keeps that.
func FuzzAppend(f *testing.F) {
	f.Add(uint8(view.Commit), "T", []byte("body"), []byte("TAGS\x01a\x02REAL_TOPIC\x01T\x02REAL_QID\x011\x02"), int32(0), int32(0))
	f.Add(uint8(view.Retry), "%RETRY%g", []byte{}, []byte("RETRY_TOPIC\x01O\x02ORIGIN_MESSAGE_ID\x01x\x02DELAY\x013\x02WAIT\x01true"), int32(3), int32(-5))
	f.Add(uint8(view.Dead), "%DLQ%g", []byte("b"), []byte("\x01\x02\x02__reason\x01no\x02"), int32(2), int32(16))
	f.Add(uint8(view.Timer), "T", []byte("b"), []byte("TIMER_DEQUEUE_MS\x01"), int32(-1), int32(0))
	f.Add(uint8(view.Aside), "T", []byte("b"), bytes.Repeat([]byte("k\x01v\x02"), 8000), int32(7), int32(0x301))
	f.Add(uint8(200), "T", []byte("b"), []byte("\x02\x01\x02\x01"), int32(0), int32(-1))
	for _, rs := range records(f, "5.3.3-stopped") { // what a real broker wrote
		for i, v := range rs {
			f.Add(uint8(i%8), string(v.Topic()), v.Body(), v.Properties(), int32(i), v.SysFlag())
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, topic string, body, props []byte, level, sys int32) {
		from := &record.Fields{
			Topic: "origin", Body: body, BodyCRC: record.CRC(body), Properties: props, SysFlag: sys, Flag: level, BornTime: 5, StoreTime: 6, QueueID: 7, QueueOffset: 8, PhysicalOffset: 9, ReconsumeTimes: 3, PreparedOffset: 4,
		}
		if record.Check(from) != nil || record.Check(&record.Fields{Topic: topic}) != nil {
			return
		}
		stored, err := record.Parse(record.Append(nil, from))
		if err != nil {
			t.Fatal(err)
		}
		show := &view.Show{Kind: view.Kind(kind), Topic: topic, Queue: 17, QueueOffset: 18, Address: 19, Time: 16, Origin: 14, MessageTopic: "origin", Reconsume: 13, Level: level}
		v := stored
		for range 2 {
			if v, err = record.Parse(view.Append(nil, v, show)); err != nil {
				t.Fatal(err)
			}
			if string(v.Topic()) != topic || v.QueueID() != 17 || v.QueueOffset() != 18 || v.PhysicalOffset() != 19 || v.StoreTime() != 16 {
				t.Errorf("view is of %s/%d offset %d at %d, %d", v.Topic(), v.QueueID(), v.QueueOffset(), v.PhysicalOffset(), v.StoreTime())
			}
			if !bytes.Equal(v.Body(), body) || v.BodyCRC() != stored.BodyCRC() || v.Flag() != stored.Flag() || v.BornTime() != 5 || v.BornHost() != stored.BornHost() || v.StoreHost() != stored.StoreHost() {
				t.Errorf("a field that no view changes: %+v, stored %+v", v, stored)
			}
			if v.SysFlag()&^record.FlagTxMask != stored.SysFlag()&^record.FlagTxMask {
				t.Errorf("flags %#x, stored %#x", v.SysFlag(), stored.SysFlag())
			}
		}
	})
}
