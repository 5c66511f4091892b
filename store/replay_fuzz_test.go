package store_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// FuzzReplay starts a store on a log with records of the topics that mean something to it, with any content. A start reads them or says why it does not; it neither
// panics nor hangs, two starts say the same, and what it shows can be read.
func FuzzReplay(f *testing.F) {
	topics := []string{store.OQTopic, store.StateTopic, store.MovedTopic, store.ExpiryTopic, store.HalfTopic, store.ScheduleTopic, store.TimerTopic, "T"}
	ops, err := state.AppendOps(nil, append(bindOps("T", "g"), state.Op{Kind: state.OpDelete, Topic: "T", First: 0, Last: 1 << 40}))
	if err != nil {
		f.Fatal(err)
	}
	views, _, err := state.AppendViews(nil, []state.Op{retryOf(store.Result{Address: 0, Size: 200}, "T", "g", 3)}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint8(0), ops, []byte{}, int32(0), int32(0), int64(0))
	f.Add(uint8(0), views, []byte{}, int32(1), int32(0), int64(0))
	f.Add(uint8(0), []byte("\x01\x03\x010\x010\b%RETRY%g\x01\t\x04000000000\x00\x000\x02000000"), []byte{}, int32(1), int32(0), int64(0)) // a view of what is no record
	f.Add(uint8(0), []byte{1, 0xff, 0xff, 0xff, 0xff, 0x0f}, []byte{}, int32(1), int32(0), int64(3))
	var whole bytes.Buffer
	empty := state.NewMachine(nil).Freeze()
	if err := empty.Save(&whole); err != nil {
		f.Fatal(err)
	}
	empty.Release()
	for _, last := range []byte{0, 1} {
		f.Add(uint8(1), append([]byte{1, 1, 0, 0, last}, whole.Bytes()...), []byte{}, int32(0), int32(0), int64(0))
	}
	f.Add(uint8(1), []byte{1, 2, 1, 1, 'T', 0, 0xff, 0xff, 0xff, 0xff, 0x7f}, []byte{}, int32(0), int32(0), int64(0))
	f.Add(uint8(3), []byte(`{"group":"g","first":-1}`), []byte{}, int32(0), int32(0), int64(0))
	f.Add(uint8(4), []byte("half"), []byte("REAL_TOPIC\x01T\x02REAL_QID\x0199999999999\x02CHECK_IMMUNITY_TIME_IN_SECONDS\x01-9\x02"), int32(0), int32(0), int64(0))
	f.Add(uint8(5), []byte("delay"), []byte("REAL_TOPIC\x01T\x02"), int32(0), int32(0), int64(1<<62))
	f.Add(uint8(6), []byte("timer"), []byte("TIMER_OUT_MS\x019223372036854775807\x02REAL_TOPIC\x01T\x02UNIQ_KEY\x01k\x02KEYS\x01k k k\x02"), int32(0), int32(8), int64(-5))
	f.Fuzz(func(t *testing.T, which uint8, body, props []byte, flag, sys int32, offset int64) {
		mem := vfs.NewMem()
		var b []byte
		for i, fields := range []record.Fields{
			{Topic: "T", Body: []byte("first"), StoreTime: 1},
			{Topic: topics[int(which)%len(topics)], Body: body, Properties: props, Flag: flag, SysFlag: sys &^ (record.FlagBornV6 | record.FlagStoreV6), QueueOffset: offset, StoreTime: 2},
			{Topic: "T", Body: []byte("last"), QueueOffset: 1, StoreTime: 3},
		} {
			fields.BodyCRC = record.CRC(fields.Body)
			if record.Check(&fields) != nil || len(fields.Body) > 32<<10 {
				return
			}
			at := len(b)
			b = record.Append(b, &fields)
			record.SetPlace(b[at:], fields.QueueOffset, int64(at), int64(i))
		}
		segment := make([]byte, 128<<10)
		copy(segment, b)
		put(t, mem, "/s/commitlog/00000000000000000000", segment)
		put(t, mem, "/s/commitlog/fusionmq", []byte("format 1\nsegment-bytes 131072\n"))
		put(t, mem, "/s/abort", nil)
		var answers [][32]byte
		for range 2 {
			o := store.Options{Dir: "/s", FS: mem, Exchange: newFanout()}
			s, err := store.Open(o)
			if err != nil {
				if len(findings(o)) == 0 {
					t.Errorf("a store says %v, a check finds nothing", err)
				}
				return
			}
			answers = append(answers, stateSum(t, s))
			for _, topic := range append(topics, "%RETRY%g", "%DLQ%g") {
				es := make([]store.TopicEntry, 16)
				for _, e := range es[:s.ReadTopic(topic, 0, es)] {
					b, release, err := s.Record(e.Entry)
					if err != nil {
						continue // a view of what is not there
					}
					if _, err := record.Parse(b); err != nil {
						t.Errorf("%s at %d: %v", topic, e.Address, err)
					}
					release()
				}
			}
			stop(t, s)
			if fs := findings(o); len(fs) > 0 && strings.HasPrefix(fs[0], "error: ") { // offsets that leave a gap are damage
				t.Error(fs[0])
			}
		}
		if len(answers) == 2 && answers[0] != answers[1] && int(which)%len(topics) < 4 { // what waits may have been published meanwhile
			t.Error("a second start has another state")
		}
	})
}
