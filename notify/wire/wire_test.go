package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"
)

func TestParseHeadDecidesOnTheFixedPartAlone(t *testing.T) {
	request := func(hl int16, total int32) []byte {
		b := []byte{MagicRequest, byte(OpSend)}
		b = binary.BigEndian.AppendUint16(b, uint16(hl))
		b = binary.BigEndian.AppendUint32(b, uint32(total))
		return binary.BigEndian.AppendUint32(b, 7)
	}
	response := func(hl int16, total int32) []byte {
		b := []byte{MagicResponse, byte(OpSend), 0, 1}
		b = binary.BigEndian.AppendUint16(b, uint16(hl))
		b = append(b, 0xff, 0xff) // reserved
		b = binary.BigEndian.AppendUint32(b, uint32(total))
		return binary.BigEndian.AppendUint32(b, 7)
	}
	tests := []struct {
		name string
		give []byte
		want Action // 0: a good frame
	}{
		{"largest request", request(MaxHeader, MaxFrame), 0},
		{"largest response", response(MaxHeader, MaxFrame), 0},
		{"request past the frame limit", request(0, MaxFrame+1), AnswerClose},
		{"request of 2 GiB", request(0, math.MaxInt32), AnswerClose},
		{"request of negative length", request(0, -1), AnswerClose},
		{"negative header length", request(-1, 10), AnswerClose},
		{"header longer than the frame", request(11, 10), AnswerClose},
		{"response past the frame limit", response(0, MaxFrame+1), Close},
		{"response with a negative header", response(-5, 10), Close},
		{"RocketMQ on the port", []byte{0, 0, 1, 0}, Close},
		{"HTTP on the port", []byte("GET / HTTP/1.1\r\n"), Close},
		{"TLS on the port", []byte{0x16, 3, 1}, Close},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			h, err := ParseHead(tc.give)
			if tc.want == 0 {
				if err != nil || h.Opaque != 7 || h.Size() != h.Fixed()+MaxFrame {
					t.Fatalf("ParseHead = %+v, %v", h, err)
				}
				return
			}
			var f *FrameError
			if !errors.As(err, &f) || ActionFor(err) != tc.want {
				t.Fatalf("ParseHead = %v, want action %v", err, tc.want)
			}
			if tc.want == AnswerClose && (f.Opaque != 7 || f.Opcode != OpSend) {
				t.Errorf("answer to opcode %v opaque %d", f.Opcode, f.Opaque)
			}
		})
	}
}

func TestParseWaitsForEveryByte(t *testing.T) {
	frame, err := AppendRequest(nil, OpSend, 1, []byte("header"), []byte("body"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range frame {
		if _, n, err := Parse(frame[:i]); !errors.Is(err, ErrShort) || n != 0 {
			t.Fatalf("Parse of %d bytes = %d, %v", i, n, err)
		}
	}
	f, n, err := Parse(append(frame, frame...))
	if err != nil || n != len(frame) || string(f.Header) != "header" || string(f.Body) != "body" {
		t.Errorf("Parse = %+v, %d, %v", f, n, err)
	}
}

func TestBuilderRefusesWhatTheReaderWould(t *testing.T) {
	keep := []byte("before")
	for _, tc := range []struct{ header, body int }{{MaxHeader + 1, 0}, {0, MaxFrame + 1}, {MaxHeader, MaxFrame}} {
		got, err := AppendRequest(keep, OpSend, 1, make([]byte, tc.header), make([]byte, tc.body))
		if !errors.Is(err, ErrTooLong) || string(got) != "before" {
			t.Errorf("header %d body %d: %d bytes, %v", tc.header, tc.body, len(got), err)
		}
	}
}

func TestErrorTextIsCutAtARune(t *testing.T) {
	for _, text := range []string{strings.Repeat("城", 1000), strings.Repeat("a", 5000), "\xff" + strings.Repeat("b", 2000), strings.Repeat("b\xff", 3000)} {
		got, ok, err := ErrorText(AppendErrorText(nil, text))
		if err != nil || !ok || len(got) > MaxErrorText || len(got) < MaxErrorText-4 || !utf8.Valid(got) {
			t.Errorf("text of %d bytes comes back with %d, %v, %v", len(text), len(got), ok, err)
		}
	}
}

func field(num protowire.Number, typ protowire.Type, content ...byte) []byte {
	return append(protowire.AppendTag(nil, num, typ), content...)
}

// TestHeadersAreReadAsProto2 breaks a valid header in every way that a sender could be misunderstood.
func TestHeadersAreReadAsProto2(t *testing.T) {
	good := drawHeaderFixed().Append(nil)
	join := func(parts ...[]byte) []byte { return slices.Concat(parts...) }
	tests := []struct {
		name  string
		give  []byte
		field string // of the error; "-" for any, "" for none
	}{
		{"valid", good, ""},
		{"unknown varint", join(good, field(99, protowire.VarintType, 5)), ""},
		{"unknown bytes", join(good, field(24, protowire.BytesType, 1, 'x')), ""},
		{"unknown fixed32", join(good, field(30, protowire.Fixed32Type, 1, 2, 3, 4)), ""},
		{"unknown fixed64", join(good, field(31, protowire.Fixed64Type, 1, 2, 3, 4, 5, 6, 7, 8)), ""},
		{"topic as varint", join(good, field(FieldTopic, protowire.VarintType, 1)), "topic"},
		{"flag as bytes", join(good, field(FieldFlag, protowire.BytesType, 0)), "flag"},
		{"ttl as fixed32", join(good, field(FieldTTL, protowire.Fixed32Type, 0, 0, 0, 0)), "timeToLive"},
		{"group", join(good, field(98, protowire.StartGroupType), field(98, protowire.EndGroupType)), "-"},
		{"end of a group", join(good, field(98, protowire.EndGroupType)), "-"},
		{"field number 0", join(good, []byte{0x00, 0x01}), "-"},
		{"length past the end", join(good, field(FieldTopic, protowire.BytesType, 200)), "-"},
		{"endless varint", join(good, field(FieldFlag, protowire.VarintType, bytes.Repeat([]byte{0xff}, 11)...)), "-"},
		{"property without a key", join(good, field(FieldProperties, protowire.BytesType, 2, 0x12, 0)), "key"},
		{"property with a numeric key", join(good, field(FieldProperties, protowire.BytesType, 2, 0x08, 0)), "key"},
		{"nothing", nil, "id"},
		{"no priority", field(FieldID, protowire.BytesType, 0), "flag"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var h MessageHeader
			err := h.Decode(tc.give)
			var he *HeaderError
			switch {
			case tc.field == "":
				if err != nil {
					t.Fatal(err)
				}
			case !errors.As(err, &he) || tc.field != "-" && he.Field != tc.field || ActionFor(err) != Answer:
				t.Fatalf("Decode = %v, want an error on %s", err, tc.field)
			}
		})
	}
}

func TestTheLastValueOfAFieldWins(t *testing.T) {
	h := drawHeaderFixed()
	b := h.Append(nil)
	h.Topic, h.Priority, h.TTL = []byte("LATER"), 9, 60
	h.Set = h.Set.With(FieldTTL)
	b = append(b, h.Append(nil)...)
	var got MessageHeader
	if err := got.Decode(b); err != nil {
		t.Fatal(err)
	}
	if string(got.Topic) != "LATER" || got.Priority != 9 || got.TTL != 60 || len(got.Properties) != 2*len(h.Properties) {
		t.Errorf("decoded %+v", got)
	}
}

// TestNestedMessagesMerge splits the required fields of a nested header over two occurrences, as proto2 allows.
func TestNestedMessagesMerge(t *testing.T) {
	whole := drawHeaderFixed().Append(nil)
	cut := 0
	for n := 0; n < 3; n++ { // after the third field
		_, _, size := protowire.ConsumeField(whole[cut:])
		cut += size
	}
	b := appendBytesField(appendBytesField(nil, 1, whole[:cut]), 1, whole[cut:])
	var c Check
	if err := c.Decode(b); err != nil {
		t.Fatal(err)
	}
	if string(c.Header.Append(nil)) != string(whole) {
		t.Error("the parts do not make the whole")
	}
	if err := c.Decode(appendBytesField(nil, 1, whole[:cut])); err == nil {
		t.Error("half a header decodes")
	}
}

func drawHeaderFixed() *MessageHeader {
	return &MessageHeader{
		ID: []byte("0123456789abcdef"), Topic: []byte("TRADE"), Type: []byte("2300-trade-success"), Group: []byte("P-trade"), Committed: true,
		BornTime: 1511337600000, Priority: 4, DeliveryCount: 1, TargetGroup: []byte("S-ump"), Created: 1511337600001,
		Set:        FieldSet(0).With(FieldDeliveryCount).With(FieldTargetGroup).With(FieldCreated),
		Properties: []Property{{Key: []byte("seller"), Value: []byte("42"), HasValue: true}, {Key: []byte("gone")}},
	}
}

func TestOutcomeNeverCommitsOnDoubt(t *testing.T) {
	tests := []struct {
		committed, has bool
		status         CommitStatus
		want           CommitStatus // 0: an error
	}{
		{true, true, Committed, Committed}, {false, true, Rollback, Rollback}, {false, true, NoAction, NoAction},
		{true, false, 0, Committed}, {false, false, 0, Rollback},
		{true, true, Rollback, 0}, {true, true, NoAction, 0}, {false, true, Committed, 0}, {true, true, 0, 0}, {true, true, 9, 0}, {false, true, 9, 0},
	}
	for _, tc := range tests {
		m := CommitRollback{Committed: tc.committed, HasStatus: tc.has, Status: tc.status}
		got, err := m.Outcome()
		if got != tc.want || (err != nil) != (tc.want == 0) {
			t.Errorf("Outcome(%v, %v) = %v, %v, want %v", tc.committed, tc.status, got, err, tc.want)
		}
	}
}

func TestMessageListIsBounded(t *testing.T) {
	h := drawHeaderFixed()
	var b []byte
	for range MaxListMessages {
		b = AppendListMessage(b, h, []byte("x"))
	}
	list, err := DecodeMessageList(nil, b)
	if err != nil || len(list) != MaxListMessages {
		t.Fatalf("DecodeMessageList = %d, %v", len(list), err)
	}
	if _, err := DecodeMessageList(nil, AppendListMessage(b, h, []byte("x"))); err == nil {
		t.Error("a list of 1001 decodes")
	}
	if _, err := DecodeMessageList(nil, appendBytesField(nil, 1, appendBytesField(nil, 1, h.Append(nil)))); err == nil {
		t.Error("a member without a body decodes")
	}
}

// A property in memory is many times the four bytes that it can come in.
func TestMetadataIsBounded(t *testing.T) {
	for _, tc := range []struct {
		name, field string
		entry       []byte
		most        int
	}{
		{"groups", "clientInfoSet", (&Metadata{Clients: []ClientInfo{{Group: []byte("g")}}}).Append(nil), MaxMetadataGroups},
		{"build info", "clientBuildInfo", (&Metadata{Build: []Property{{Key: []byte{}}}}).Append(nil), MaxMetadataBuild},
	} {
		var m Metadata
		if err := m.Decode(bytes.Repeat(tc.entry, tc.most)); err != nil {
			t.Errorf("%d %s: %v", tc.most, tc.name, err)
		}
		err := m.Decode(bytes.Repeat(tc.entry, tc.most+1))
		var h *HeaderError
		if !errors.As(err, &h) || h.Field != tc.field {
			t.Errorf("%d %s: %v, want an error about %s", tc.most+1, tc.name, err, tc.field)
		}
	}
}

func TestTextThatWouldBreakARecordIsRefused(t *testing.T) {
	for _, bad := range []string{"a\x00b", "a\x01b", "a\x02b", "a\xffb"} {
		if err := CheckProperty(bad, "v"); err == nil {
			t.Errorf("key %q is taken", bad)
		}
		if err := CheckProperty("k", bad); err == nil {
			t.Errorf("value %q is taken", bad)
		}
		for _, f := range []Field{FieldPublisherHost, FieldReplyToTopic, FieldReplyToType, FieldReplyWhenDelivery} {
			h := drawHeaderFixed()
			h.Set = h.Set.With(f)
			h.PublisherHost, h.ReplyToTopic, h.ReplyToType, h.ReplyWhenDelivered = []byte(bad), []byte(bad), []byte(bad), []byte(bad)
			for _, other := range []Field{FieldPublisherHost, FieldReplyToTopic, FieldReplyToType, FieldReplyWhenDelivery} {
				if other != f {
					h.Set = h.Set.Without(other)
				}
			}
			if err := h.Validate(); err == nil || !strings.Contains(err.Error(), FieldName(f)) {
				t.Errorf("%s %q: %v", FieldName(f), bad, err)
			}
		}
	}
}

func TestFeaturesAreAgreed(t *testing.T) {
	md := Metadata{Clients: []ClientInfo{{Group: []byte("S-ump")}}, Build: []Property{FeatureProperty(AllFeatures)}}
	var got Metadata
	if err := got.Decode(md.Append(nil)); err != nil || got.Features() != AllFeatures {
		t.Fatalf("features = %v, %v", got.Features(), err)
	}
	if f := ParseFeatures(" batch , newer,credit"); f != FeatureBatch|FeatureCredit {
		t.Errorf("ParseFeatures = %v", f)
	}
	ans := MetadataAnswer{Info: []Property{FeatureProperty(FeatureBatch)}}
	var back MetadataAnswer
	if err := back.Decode(ans.Append(nil)); err != nil || !back.Features().Has(FeatureBatch) || back.Features().Has(FeatureCredit) {
		t.Errorf("answer = %v, %v", back.Features(), err)
	}
	if err := back.Decode(nil); err != nil || back.Features() != 0 {
		t.Errorf("a legacy answer accepts %v, %v", back.Features(), err)
	}
}

func TestBindingText(t *testing.T) {
	const rest = `,"topic":"TRADE","group":"S-ump"`
	tests := []struct{ name, give, wantErr string }{
		{"defaults", `{"kind":"fanout"` + rest + `}`, ""},
		{"every key", `{"kind":"direct","topic":"TRADE","expr":"t","group":"S-ump","waterMark":40000,"persistent":false,"shadow":true}`, ""},
		{"spaces", " { \"kind\" : \"fanout\"" + rest + " } \n", ""},
		{"unknown key", `{"kind":"fanout","x":1` + rest + `}`, "unknown key"},
		{"key in capitals", `{"Kind":"fanout"` + rest + `}`, "unknown key"},
		{"twice", `{"kind":"fanout","kind":"fanout"` + rest + `}`, "twice"},
		{"number as text", `{"kind":"fanout","waterMark":"1"` + rest + `}`, "waterMark"},
		{"fraction", `{"kind":"fanout","waterMark":1.5` + rest + `}`, "waterMark"},
		{"too large", `{"kind":"fanout","waterMark":2147483648` + rest + `}`, "waterMark"},
		{"zero", `{"kind":"fanout","waterMark":0` + rest + `}`, "waterMark"},
		{"null", `{"kind":"fanout","expr":null` + rest + `}`, "expr"},
		{"nested", `{"kind":"fanout","expr":{}` + rest + `}`, "expr"},
		{"boolean as number", `{"kind":"fanout","persistent":1` + rest + `}`, "persistent"},
		{"no group", `{"kind":"fanout","topic":"TRADE"}`, "group"},
		{"unknown kind", `{"kind":"queue"` + rest + `}`, "kind"},
		{"direct without a type", `{"kind":"direct"` + rest + `}`, "messageType"},
		{"header without a filter", `{"kind":"header"` + rest + `}`, "expr"},
		{"fanout with a type", `{"kind":"fanout","expr":"t"` + rest + `}`, "expr"},
		{"system topic", `{"kind":"fanout","topic":"%DLQ%g","group":"g"}`, "topic"},
		{"group with a blank", `{"kind":"fanout","topic":"T","group":"a b"}`, "group"},
		{"array", `[]`, "object"},
		{"two objects", `{"kind":"fanout"` + rest + `}{}`, "behind"},
		{"cut", `{"kind":"fanout"` + rest, "EOF"},
		{"empty", ``, "object"},
		{"no UTF-8", "{\"kind\":\"fanout\",\"expr\":\"\xff\"" + rest + "}", "UTF-8"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			b, err := ParseBinding([]byte(tc.give))
			if tc.wantErr == "" {
				if err != nil {
					t.Fatal(err)
				}
				if again, err := ParseBinding(b.Append(nil)); err != nil || again != b {
					t.Errorf("again = %+v, %v, want %+v", again, err, b)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("ParseBinding(%s) = %v, want an error with %q", tc.give, err, tc.wantErr)
			}
		})
	}
}

func TestNames(t *testing.T) {
	ok := func(err error) bool { return err == nil }
	tests := []struct {
		name string
		give bool
		want bool
	}{
		{"topic of 64", ok(CheckTopic(strings.Repeat("a", 64))), true},
		{"topic of 65", ok(CheckTopic(strings.Repeat("a", 65))), false},
		{"topic with %", ok(CheckTopic("a%b")), true},
		{"topic with |", ok(CheckTopic("a|b")), false},
		{"topic with a dot", ok(CheckTopic("a.b")), false},
		{"no topic", ok(CheckTopic("")), false},
		{"retry topic", ok(CheckTopic("%RETRY%g")), false},
		{"system topic", ok(CheckTopic([]byte("SCHEDULE_TOPIC_XXXX"))), false},
		{"system prefix", ok(CheckTopic("rmq_sys_wheel_timer")), false},
		{"nearly a system topic", ok(CheckTopic("rmq_sysx")), true},
		{"type with a bar", ok(CheckType("a|b")), false},
		{"type star", ok(CheckType("*")), false},
		{"type with a blank", ok(CheckType("a b")), false},
		{"type in Chinese", ok(CheckType("交易")), false},
		{"type with a dot", ok(CheckType("a.b")), true},
		{"group with a star", ok(CheckGroup("group", "a*")), true},
		{"body of 0", ok(CheckBody(0)), false},
		{"body of 4 MiB", ok(CheckBody(MaxBody)), true},
		{"body of 4 MiB and 1", ok(CheckBody(MaxBody + 1)), false},
	}
	for _, tc := range tests {
		if tc.give != tc.want {
			t.Errorf("%s: accepted = %v, want %v", tc.name, tc.give, tc.want)
		}
	}
}

func TestBatchRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.Uint64Range(1, math.MaxUint64/2).Draw(t, "first")
		bodies := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 40), 1, 300).Draw(t, "bodies")
		h := drawHeaderFixed()
		dst, b := BeginBatch([]byte("x"), first)
		var err error
		for _, body := range bodies {
			dst = h.Append(b.BeginEntry(dst))
			if dst, err = b.EndEntry(dst, len(body)); err != nil {
				t.Fatal(err)
			}
			dst = append(dst, body...)
		}
		if dst, err = b.End(dst, 0); err != nil {
			t.Fatal(err)
		}
		f, n, err := Parse(dst[1:])
		if err != nil || n != len(dst)-1 || f.Opcode != OpDeliverBatch {
			t.Fatalf("Parse = %+v, %d, %v", f, n, err)
		}
		d, err := Batch(f.Header, f.Body)
		if err != nil || d.Len() != len(bodies) {
			t.Fatalf("Batch = %d, %v", d.Len(), err)
		}
		for i, want := range bodies {
			tag, header, body, ok, err := d.Next()
			if !ok || err != nil || tag != first+uint64(i) || !bytes.Equal(body, want) {
				t.Fatalf("message %d: tag %d, body %x, %v, %v", i, tag, body, ok, err)
			}
			var got MessageHeader
			if err := got.Decode(header); err != nil || cmp.Diff(h, &got) != "" {
				t.Fatalf("header %+v, %v", got, err)
			}
		}
		if _, _, _, ok, err := d.Next(); ok || err != nil {
			t.Fatalf("behind the last: %v, %v", ok, err)
		}
	})
}

func TestBatchLimits(t *testing.T) {
	dst, b := BeginBatch(nil, 1)
	if got, err := b.End(dst, 0); err != nil || len(got) != 0 {
		t.Errorf("an empty batch = %d bytes, %v", len(got), err)
	}
	var err error
	for range MaxBatchMessages {
		dst = b.BeginEntry(dst)
		if dst, err = b.EndEntry(dst, 0); err != nil {
			t.Fatal(err)
		}
	}
	full := len(dst)
	dst = b.BeginEntry(dst)
	if dst, err = b.EndEntry(dst, 0); !errors.Is(err, ErrTooLong) || len(dst) != full {
		t.Errorf("one too many: %d bytes more, %v", len(dst)-full, err)
	}
	if dst, err = b.End(dst, 0); err != nil {
		t.Fatal(err)
	}
	f, _, err := Parse(dst)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := Batch(f.Header, f.Body); err != nil || d.Len() != MaxBatchMessages {
		t.Errorf("Batch = %d, %v", d.Len(), err)
	}
	dst, b = BeginBatch(nil, 1)
	dst = append(b.BeginEntry(dst), make([]byte, MaxBatchHeader+1)...)
	if _, err = b.EndEntry(dst, 0); !errors.Is(err, ErrTooLong) {
		t.Errorf("a header of 128 KiB and 1: %v", err)
	}
	dst = b.BeginEntry(nil)
	if _, err = b.EndEntry(dst, MaxFrame); !errors.Is(err, ErrTooLong) {
		t.Errorf("a body of 16 MiB: %v", err)
	}
}

func TestAckRunsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var runs []AckRun
		var e AckEncoder
		var body []byte
		for range rapid.IntRange(0, 30).Draw(t, "runs") {
			r := AckRun{First: rapid.Uint64Range(1, math.MaxUint64).Draw(t, "first"), Status: Status(rapid.IntRange(0, 255).Draw(t, "status"))}
			r.Last = r.First + min(rapid.Uint64().Draw(t, "length"), math.MaxUint64-r.First)
			if r.Status != NoError {
				r.Text = rapid.SliceOfN(rapid.Byte(), 0, MaxAckText).Draw(t, "text")
			}
			runs = append(runs, r)
			body = e.Append(body, r)
		}
		a := ReadAcks(body)
		for i, want := range runs {
			got, ok, err := a.Next()
			if !ok || err != nil || got.First != want.First || got.Last != want.Last || got.Status != want.Status || !bytes.Equal(got.Text, want.Text) {
				t.Fatalf("run %d = %+v, %v, %v, want %+v", i, got, ok, err, want)
			}
		}
		if _, ok, err := a.Next(); ok || err != nil {
			t.Fatalf("behind the last: %v, %v", ok, err)
		}
	})
}

func TestManyAcksInOrderAreAFewBytes(t *testing.T) {
	var e AckEncoder
	body := e.Append(nil, AckRun{First: 100_001, Last: 101_000})
	again := e.Append(nil, AckRun{First: 101_001, Last: 102_000})
	if len(body) > 6 || len(again) > 4 {
		t.Errorf("1000 acks take %d bytes, the next 1000 %d", len(body), len(again))
	}
}

func TestOpcodeAndStatusNames(t *testing.T) {
	for want, got := range map[string]fmt.Stringer{"SEND_MESSAGE": OpSend, "ACK_BATCH": OpAckBatch, "0x55": Opcode(0x55), "THREADPOOL_BUSY": StatusBusy,
		"status 99": Status(99), "header": Header, "kind 9": BindingKind(9), "sync": DurabilitySync, "durability 77": Durability(77), "batch,credit": FeatureBatch | FeatureCredit} {
		if got.String() != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestValidHeadersFitADelivery fills a header to every limit at once, in many and in few properties.
func TestValidHeadersFitADelivery(t *testing.T) {
	for _, size := range []int{1, 2, 5, 20, 100} {
		h := drawHeaderFixed()
		text := bytes.Repeat([]byte("x"), MaxText)
		h.Topic, h.Type, h.Group, h.TargetGroup = text[:MaxName], text[:MaxName], text[:MaxName], text[:MaxName]
		h.PublisherHost, h.ReplyToTopic, h.ReplyToType, h.ReplyWhenDelivered = text, text, text, text
		h.Flag, h.Priority, h.Version, h.TTL, h.DLQTime, h.PostTimeout, h.DeliveryCount = -1, -1, -1, -1, -1, -1, -1
		h.BornTime, h.PostDelay, h.ReplyID, h.Created, h.LastDelivery = math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64
		h.Set, h.Properties = (1<<24-1)&^requiredFields&^(1<<FieldProperties), nil
		for h.Validate() == nil {
			h.Properties = append(h.Properties, Property{Key: text[:min(size, MaxKey)], Value: text[:size], HasValue: true})
		}
		h.Properties = h.Properties[:len(h.Properties)-1]
		if n := h.Size(); n > MaxHeader-deliveryRoom {
			t.Errorf("properties of %d bytes: a valid header has %d bytes", size, n)
		}
		if _, err := AppendRequest(nil, OpDeliver, 1, h.Append(nil), nil); err != nil {
			t.Errorf("properties of %d bytes: %v", size, err)
		}
	}
}
