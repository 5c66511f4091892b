package record_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/fusionmq/fusionmq/store/record"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "").Replace(s))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The worked examples of the protocol description: 104 and 115 bytes.
var examples = []struct {
	name   string
	fields record.Fields
	hex    string
}{
	{
		name: "worked example of 104 bytes",
		fields: record.Fields{
			QueueID: 3, QueueOffset: 7, PhysicalOffset: 1234,
			BornTime: 1700000000000, BornHost: netip.MustParseAddrPort("10.0.0.2:50000"),
			StoreTime: 1700000000005, StoreHost: netip.MustParseAddrPort("10.0.0.1:10911"),
			Body: []byte("hi"), Topic: "T", Properties: []byte("TAGS\x01TagA\x02"),
		},
		hex: `00000068 daa320a7 58932aac 00000003 00000000 0000000000000007 00000000000004d2 00000000
			0000018bcfe56800 0a000002 0000c350 0000018bcfe56805 0a000001 00002a9f 00000000 0000000000000000
			00000002 6869 01 54 000a 54414753015461674102`,
	},
	{
		name: "worked example of 115 bytes",
		fields: record.Fields{
			QueueID: 3, QueueOffset: 7, PhysicalOffset: 4096,
			BornTime: 1700000000000, BornHost: netip.MustParseAddrPort("127.0.0.1:50000"),
			StoreTime: 1700000000001, StoreHost: netip.MustParseAddrPort("10.0.0.1:10911"),
			Body: []byte("hello"), Topic: "TopicTest", Properties: []byte("TAGS\x01TagA\x02"),
		},
		hex: `00000073 daa320a7 3610a686 00000003 00000000 0000000000000007 0000000000001000 00000000 0000018bcfe56800
			7f000001 0000c350 0000018bcfe56801 0a000001 00002a9f 00000000 0000000000000000 00000005 68656c6c6f 09
			546f70696354657374 000a 54414753015461674102`,
	},
}

func TestAppendWritesTheWorkedExamples(t *testing.T) {
	for _, tc := range examples {
		t.Run(tc.name, func(t *testing.T) {
			tc.fields.BodyCRC = record.CRC(tc.fields.Body)
			want := unhex(t, strings.ReplaceAll(tc.hex, "\t", ""))
			got := record.Append(nil, &tc.fields)
			if !bytes.Equal(got, want) {
				t.Errorf("Append = %x, want %x", got, want)
			}
			if n := record.Size(&tc.fields); n != len(want) {
				t.Errorf("Size = %d, want %d", n, len(want))
			}
			sameFields(t, got, tc.fields)
		})
	}
}

// sameFields parses b and compares every field.
func sameFields(t *testing.T, b []byte, want record.Fields) {
	t.Helper()
	v, err := record.Parse(b)
	if err != nil {
		t.Fatalf("Parse(%x): %v", b, err)
	}
	if err := v.CheckBody(); err != nil {
		t.Error(err)
	}
	got := record.Fields{
		BodyCRC: v.BodyCRC(), QueueID: v.QueueID(), Flag: v.Flag(), QueueOffset: v.QueueOffset(), PhysicalOffset: v.PhysicalOffset(),
		SysFlag: v.SysFlag() &^ (record.FlagBornV6 | record.FlagStoreV6), BornTime: v.BornTime(), BornHost: v.BornHost(), StoreTime: v.StoreTime(), StoreHost: v.StoreHost(),
		ReconsumeTimes: v.ReconsumeTimes(), PreparedOffset: v.PreparedOffset(), Body: v.Body(), Topic: string(v.Topic()), Properties: v.Properties(),
	}
	if !bytes.Equal(got.Body, want.Body) || !bytes.Equal(got.Properties, want.Properties) {
		t.Errorf("body %q, properties %q, want %q, %q", got.Body, got.Properties, want.Body, want.Properties)
	}
	got.Body, got.Properties, want.Body, want.Properties = nil, nil, nil, nil
	if g, w := fieldsKey(got), fieldsKey(want); g != w {
		t.Errorf("fields %+v, want %+v", g, w)
	}
}

type fieldSet struct {
	crc                  uint32
	qid, flag, sys, rec  int32
	qo, phys, born, st   int64
	prep                 int64
	bornHost, storedHost netip.AddrPort
	topic                string
}

func fieldsKey(f record.Fields) fieldSet {
	return fieldSet{f.BodyCRC, f.QueueID, f.Flag, f.SysFlag, f.ReconsumeTimes, f.QueueOffset, f.PhysicalOffset, f.BornTime, f.StoreTime, f.PreparedOffset, f.BornHost, f.StoreHost, f.Topic}
}

func TestRoundTripOfHostsAndLongTopics(t *testing.T) {
	v4, v6 := netip.MustParseAddrPort("192.168.1.9:10911"), netip.MustParseAddrPort("[2001:db8::7]:65535")
	for _, topic := range []string{"T", strings.Repeat("x", 127), strings.Repeat("x", 128), strings.Repeat("y", 255)} {
		for _, born := range []netip.AddrPort{v4, v6} {
			for _, stored := range []netip.AddrPort{v4, v6} {
				f := record.Fields{
					QueueID: 5, Flag: -7, SysFlag: record.FlagCompressed | record.FlagCompressorZSTD | record.FlagTxCommit, BornTime: 1, BornHost: born, StoreHost: stored,
					ReconsumeTimes: 3, PreparedOffset: 1 << 40, Body: []byte("body"), Topic: topic, Properties: []byte("a\x01b\x02"),
				}
				f.BodyCRC = record.CRC(f.Body)
				b := record.Append([]byte("prefix"), &f)[6:]
				sameFields(t, b, f)
				record.SetPlace(b, 11, 22, 33)
				record.SetQueueID(b, 44)
				record.SetSysFlag(b, record.FlagMultiTags)
				record.SetReconsumeTimes(b, 55)
				record.SetPreparedOffset(b, 66)
				f.QueueOffset, f.PhysicalOffset, f.StoreTime, f.QueueID, f.SysFlag, f.ReconsumeTimes, f.PreparedOffset = 11, 22, 33, 44, record.FlagMultiTags, 55, 66
				sameFields(t, b, f)
				if v, _ := record.Parse(b); (v.Magic() == record.MagicV2) != (len(topic) > record.MaxTopicV1) {
					t.Errorf("topic of %d bytes has magic %x", len(topic), v.Magic())
				}
			}
		}
	}
}

func TestParseRefusesWhatIsNoRecord(t *testing.T) {
	good := unhex(t, strings.ReplaceAll(examples[0].hex, "\t", ""))
	for i := range good {
		if _, err := record.Parse(good[:i]); err == nil {
			t.Errorf("Parse of the first %d of %d bytes: no error", i, len(good))
		}
	}
	tests := []struct {
		name  string
		spoil func(b []byte)
		want  error
	}{
		{"zero length", func(b []byte) { copy(b, "\x00\x00\x00\x00") }, record.ErrSize},
		{"negative length", func(b []byte) { b[0] = 0xff }, record.ErrSize},
		{"longer than the bytes", func(b []byte) { b[3]++ }, record.ErrShort},
		{"shorter than its fields", func(b []byte) { b[3]-- }, record.ErrSize},
		{"zeros", func(b []byte) { clear(b) }, record.ErrMagic},
		{"blank", func(b []byte) { record.AppendBlank(b[:0], 104) }, record.ErrBlank},
		{"negative body length", func(b []byte) { b[84] = 0x80 }, record.ErrSize},
		{"body over the end", func(b []byte) { b[87] = 200 }, record.ErrSize},
		{"topic over the end", func(b []byte) { b[90] = 0x7f }, record.ErrSize},
		{"negative topic length", func(b []byte) { b[90] = 0x81 }, record.ErrSize},
		{"negative properties length", func(b []byte) { b[92] = 0x80 }, record.ErrSize},
		{"IPv6 flag on an IPv4 record", func(b []byte) { b[39] |= byte(record.FlagBornV6) }, record.ErrSize},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			b := bytes.Clone(good)
			tc.spoil(b)
			if _, err := record.Parse(b); !errors.Is(err, tc.want) {
				t.Errorf("Parse(%x) = %v, want %v", b, err, tc.want)
			}
		})
	}
	b := bytes.Clone(good)
	b[88] ^= 1
	v, err := record.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.CheckBody(); !errors.Is(err, record.ErrCRC) {
		t.Errorf("CheckBody of a flipped body = %v, want %v", err, record.ErrCRC)
	}
}

func TestCheckNamesFieldAndLimit(t *testing.T) {
	for _, f := range []record.Fields{{}, {Topic: strings.Repeat("t", 256)}, {Topic: "t", Properties: make([]byte, 32768)}} {
		var le *record.LimitError
		if err := record.Check(&f); !errors.As(err, &le) {
			t.Errorf("Check(topic %d, properties %d) = %v, want a LimitError", len(f.Topic), len(f.Properties), err)
		}
	}
	if err := record.Check(&record.Fields{Topic: "t", Properties: make([]byte, 32767)}); err != nil {
		t.Error(err)
	}
}

func TestViewDoesNotAllocate(t *testing.T) {
	b := unhex(t, strings.ReplaceAll(examples[1].hex, "\t", ""))
	var sum int64
	n := testing.AllocsPerRun(100, func() {
		v, err := record.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		p, _ := v.Property("TAGS")
		sum += v.TagsCode() + int64(len(p)) + int64(len(v.Topic())) + int64(len(v.Body())) + int64(v.StoreHost().Port()) + v.StoreTime()
	})
	if n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func FuzzParse(f *testing.F) {
	good := unhex(f, strings.ReplaceAll(examples[0].hex, "\t", ""))
	bad := bytes.Clone(good)
	bad[88] ^= 1
	huge := bytes.Clone(good)
	huge[0] = 0x7f
	topic, body := bytes.Clone(good), bytes.Clone(good)
	topic[90], body[84] = 0x7f, 0x7f
	for _, s := range [][]byte{nil, good[:7], huge, topic, body, bad, good, append(bytes.Clone(good), good...), append(bytes.Clone(good), "garbage"...)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := record.Parse(b)
		if err != nil {
			return
		}
		if int(v.Size()) > len(b) {
			t.Fatalf("size %d of %d bytes", v.Size(), len(b))
		}
		if v.Magic() == record.MagicV2 && len(v.Topic()) <= record.MaxTopicV1 || len(v.Topic()) > record.MaxTopicBytes {
			return // readable, but Append would choose the other version
		}
		again := record.Append(nil, &record.Fields{
			BodyCRC: v.BodyCRC(), QueueID: v.QueueID(), Flag: v.Flag(), QueueOffset: v.QueueOffset(), PhysicalOffset: v.PhysicalOffset(),
			SysFlag: v.SysFlag(), BornTime: v.BornTime(), BornHost: v.BornHost(), StoreTime: v.StoreTime(), StoreHost: v.StoreHost(),
			ReconsumeTimes: v.ReconsumeTimes(), PreparedOffset: v.PreparedOffset(), Body: v.Body(), Topic: string(v.Topic()), Properties: v.Properties(),
		})
		// Ports keep 16 of their 32 bits, and an IPv4 address in IPv6 form becomes IPv4: compare the lengths only then.
		if len(again) == len(v.Bytes()) {
			w, err := record.Parse(again)
			if err != nil || !bytes.Equal(w.Body(), v.Body()) || !bytes.Equal(w.Properties(), v.Properties()) || w.StoreTime() != v.StoreTime() {
				t.Fatalf("encoded again: %v, %x want %x", err, again, v.Bytes())
			}
		}
		for name, value := range record.Properties(v.Properties()) {
			if len(name) == 0 || len(value) == 0 {
				t.Fatalf("empty property %q=%q", name, value)
			}
		}
	})
}
