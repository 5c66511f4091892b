package remoting

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// bomb is a zlib stream of n zeros.
func bomb(t *testing.T, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	_, _ = z.Write(make([]byte, n))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// frame puts a header and a body into a frame, whatever they hold.
func frame(s Serialize, header, body string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)+len(body)))
	b = binary.BigEndian.AppendUint32(b, uint32(s)<<24|uint32(len(header)))
	return append(append(b, header...), body...)
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

func TestExamplesOfTheProtocolDescription(t *testing.T) {
	var h Header
	for _, give := range [][]byte{
		frame(JSON, `{"code":105,"language":"GO","version":317,"opaque":1,"flag":0,"extFields":{"topic":"T"}}`, ""),
		unhex("00000025 01000021 0069 09 013d 00000001 00000000 00000000 0000000c 0005 746f706963 00000001 54"),
	} {
		body, err := h.Decode(give)
		if err != nil || body != nil || h.Code != 105 || h.Language != Go || h.Version != 317 || h.Opaque != 1 || h.Flag != 0 || h.Get("topic") != "T" || len(h.Ext) != 1 {
			t.Errorf("got %+v, body %q, %v", h, body, err)
		}
	}
}

func TestJSONHeadersThatClientsSendAreRead(t *testing.T) {
	for _, tc := range []struct{ name, give, want string }{
		{"numbers, booleans and null as values", `{"code":1,"extFields":{"a":12,"b":true,"c":null,"d":-1.5e3,"e":"null"}}`, `1 [{a 12} {b true} {d -1.5e3} {e null}]`},
		{"any key order and blanks", " { \"extFields\" : { \"k\" :\t\"v\" } ,\r\n \"opaque\" : 7 , \"code\" : 2 } \n", `2 [{k v}]`},
		{"no ext fields", `{"code":3}`, `3 []`},
		{"null ext fields", `{"code":3,"extFields":null,"remark":null,"language":null}`, `3 []`},
		{"unknown keys of any shape", `{"x":{"y":[1,{"z":[]}],"w":{}},"code":4,"v":[null,false,"]"]}`, `4 []`},
		{"escapes", `{"code":5,"extFields":{"p\u0041":"\u0001a\u0002\"\\\/\b\f\n\r\t\u00e9\u4e2d\ud83d\ude00\ud800x\udc00"}}`,
			"5 [{pA \x01a\x02\"\\/\b\f\n\r\té中😀\ufffdx\ufffd}]"},
		{"quoted integers", `{"code":"6","opaque":"7"}`, `6 []`},
		{"code outside the short range keeps its value", `{"code":65546}`, `65546 []`}, // faults REM-13: must not become 10
		{"negative code", `{"code":-1}`, `-1 []`},
		{"unknown language", `{"code":8,"language":"COBOL"}`, `8 []`},
		{"later key wins", `{"code":8,"code":9}`, `9 []`},
		{"nested value kept as text", `{"code":9,"extFields":{"a":{"b":[1]}}}`, `9 [{a {"b":[1]}}]`},
		{"empty object", `{}`, `0 []`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var h Header
			_, err := h.Decode(frame(JSON, tc.give, ""))
			if got := fmt.Sprint(h.Code, " ", h.Ext); err != nil || got != tc.want {
				t.Errorf("got %s, %v, want %s", got, err, tc.want)
			}
		})
	}
}

func TestBrokenFramesAreRefused(t *testing.T) { // faults REM-01, REM-03
	bin := unhex("0069 09 013d 00000001 00000000 00000000 0000000c 0005 746f706963 00000001 54")
	patch := func(at int, b ...byte) string {
		c := bytes.Clone(bin)
		copy(c[at:], b)
		return string(c)
	}
	for _, tc := range []struct {
		name string
		give []byte
		want string
	}{
		{"length 2", unhex("00000002 0000"), "want at least"},
		{"length 2 in 8 bytes", unhex("00000002 00000000"), "length word 2"},
		{"length 4 and no header", unhex("00000004 00000000"), "JSON header"},
		{"negative length", unhex("ffffffff 00000000"), "length word -1"},
		{"unknown serialize type", frame(0x7f, "{}", ""), "serialize type 127"},
		{"header longer than the frame", unhex("00000008 00000009 7b7d7b7d"), "header length 9"},
		{"one byte over 16 MiB", unhex("00fffffd 00000000"), "larger than 16777216"},
		{"HTTP", []byte("GET / HTTP/1.1\r\n\r\n"), "larger than"},
		{"JSON cut off", frame(JSON, `{"code":1`, ""), "want , or }"},
		{"JSON string cut off", frame(JSON, `{"co`, ""), "string without end"},
		{"JSON escape cut off", frame(JSON, `{"extFields":{"a":"\`, ""), "string without end"},
		{"JSON short \\u", frame(JSON, `{"extFields":{"a":"\u12"}}`, ""), "bad \\u escape"},
		{"JSON unknown escape", frame(JSON, `{"remark":"\x"}`, ""), "unknown escape"},
		{"JSON list", frame(JSON, `[]`, ""), "want {"},
		{"JSON garbage behind", frame(JSON, `{}{}`, ""), "after the end"},
		{"JSON code too large", frame(JSON, `{"code":4294967306}`, ""), "32-bit"},
		{"JSON code is a fraction", frame(JSON, `{"code":1.5}`, ""), "32-bit"},
		{"JSON ext fields a list", frame(JSON, `{"extFields":[]}`, ""), "not an object"},
		{"JSON nested too deep", frame(JSON, `{"x":`+strings.Repeat("[", 1000)+strings.Repeat("]", 1000)+`}`, ""), "nested deeper"},
		{"JSON a million opening braces", frame(JSON, strings.Repeat(`{"x":`, 1_000_000), ""), "nested deeper"},
		{"JSON too many fields", frame(JSON, `{"extFields":{`+strings.Repeat(`"a":1,`, 2000)+`"b":2}}`, ""), "1024"},
		{"binary too short", frame(Binary, string(bin[:20]), ""), "at least 21"},
		{"binary remark past the end", frame(Binary, patch(13, 0, 0, 0, 99), ""), "remark length 99"},
		{"binary negative remark", frame(Binary, patch(13, 0xff, 0xff, 0xff, 0xff), ""), "remark length -1"},
		{"binary ext past the end", frame(Binary, patch(17, 0, 0, 0, 13), ""), "ext block length 13"},
		{"binary negative ext", frame(Binary, patch(17, 0x80, 0, 0, 0), ""), "ext block length -2147483648"},
		{"binary key past the end", frame(Binary, patch(21, 0x7f, 0xff), ""), "key length 32767"},
		{"binary negative key", frame(Binary, patch(21, 0xff, 0xff), ""), "key length -1"},
		{"binary value past the end", frame(Binary, patch(28, 0, 0, 0, 2), ""), "value length 2"},
		{"binary negative value", frame(Binary, patch(28, 0xff, 0xff, 0xff, 0xff), ""), "value length -1"},
		{"binary ends inside a key length", frame(Binary, string(bin[:17])+"\x00\x00\x00\x01\x00", ""), "inside a key length"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var h Header
			_, err := h.Decode(tc.give)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrTooLarge) {
				t.Errorf("got %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestMissingAndBadFieldsAreNamed(t *testing.T) {
	read := func(ext string, to interface{ Read(*Header) error }) error {
		var h Header
		if _, err := h.Decode(frame(JSON, `{"code":10,"extFields":{`+ext+`}}`, "")); err != nil {
			t.Fatal(err)
		}
		return to.Read(&h)
	}
	const send = `"a":"P","b":"T","e":"0","f":"0","g":"1","h":"0"`
	for _, tc := range []struct {
		give string
		to   interface{ Read(*Header) error }
		want string
	}{
		{"", new(SendHeader), "field producerGroup is missing"},
		{`"a":"P"`, new(SendHeader), "field topic is missing"},
		{`"a":"P","b":"T"`, new(SendHeader), "field queueId is missing"},
		{send, new(SendHeader), ""},
		{send + `,"e":"x"`, new(SendHeader), `field e: "x" is not a whole number from -2147483648 to 2147483647`},
		{send + `,"queueId":"2147483648"`, new(SendHeader), `field queueId: "2147483648" is not`},
		{send + `,"g":"9223372036854775808"`, new(SendHeader), `field g: "9223372036854775808" is not a whole number of 64 bits`},
		{send + `,"j":"","l":""`, new(SendHeader), ""},
		{"", new(PullHeader), "field consumerGroup is missing"},
		{`"consumerGroup":"G","topic":"T","queueId":"0","maxMsgNums":"1","sysFlag":"0"`, new(PullHeader), "field queueOffset is missing"},
	} {
		err := read(tc.give, tc.to)
		var f *FieldError
		if tc.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tc.give, err)
			}
		} else if !errors.As(err, &f) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.give, err, tc.want)
		}
	}
}

func TestIntegersAreReadInTheirWholeRange(t *testing.T) {
	for _, s := range []string{"0", "-0", "9223372036854775807", "-9223372036854775808", "007"} {
		if n, ok := parseInt(s); !ok {
			t.Errorf("parseInt(%q) = %d, false", s, n)
		}
	}
	for _, s := range []string{"", "-", "+", "9223372036854775808", "-9223372036854775809", "1 ", " 1", "1x", "0x1", "99999999999999999999", "1.0"} {
		if n, ok := parseInt(s); ok {
			t.Errorf("parseInt(%q) = %d, true", s, n)
		}
	}
	if n, _ := parseInt("-9223372036854775808"); n != -1<<63 {
		t.Errorf("got %d", n)
	}
}

func TestACodeThatDoesNotFitTheBinaryHeaderGoesOutInJSON(t *testing.T) {
	var e Encoder
	var h Header
	e.Begin(Head{Code: ReqPopMessage, Serialize: Binary})
	if err := e.End(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Decode(e.Bytes()); err != nil || h.Code != ReqPopMessage || h.Serialize != JSON {
		t.Errorf("got %+v, %v", h, err)
	}
}

func TestAFrameThatIsTooLargeIsNotWritten(t *testing.T) {
	var e Encoder
	e.Begin(Head{Code: 1})
	_ = e.End([]byte("first"))
	n := e.Len()
	e.Begin(Head{Code: 2})
	if err := e.EndHeader(MaxFrame); !errors.Is(err, ErrTooLarge) || e.Len() != n {
		t.Errorf("got %v, %d bytes, want %d", err, e.Len(), n)
	}
	e.Begin(Head{Code: 3})
	e.String("k", "v")
	if e.Len() != n {
		t.Error("a frame under construction is visible")
	}
	e.Cancel()
	var h Header
	if body, err := h.Decode(e.Bytes()); err != nil || string(body) != "first" {
		t.Errorf("got %q, %v", body, err)
	}
}

func TestReadFrameTakesBytesAsTheyComeAndGrowsWithThem(t *testing.T) { // faults REM-11
	want := frame(JSON, "{}", strings.Repeat("x", 300<<10))
	got, err := ReadFrame(iotest.OneByteReader(bytes.NewReader(want)), nil)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	// A promise of 16 MiB and nothing behind it costs 64 KiB.
	if n := testing.AllocsPerRun(1, func() {
		if _, err := ReadFrame(bytes.NewReader(unhex("00fffffc")), nil); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got %v", err)
		}
	}); n > 8 {
		t.Errorf("%v allocations", n)
	}
	if _, err := ReadFrame(bytes.NewReader(nil), nil); !errors.Is(err, io.EOF) {
		t.Errorf("got %v at the end of a stream", err)
	}
}

func TestDecodingAndEncodingOfHotHeadersAllocatesNothing(t *testing.T) {
	f := sendFrame()
	var h Header
	var s SendHeader
	var e Encoder
	buf := make([]byte, 0, 4096)
	res := SendResult{MsgID: "0A00000100002A9F00000000000004D2", QueueID: 3, QueueOffset: 7, TransactionID: "x", RegionID: "DefaultRegion"}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := h.Decode(f); err != nil {
			t.Fatal(err)
		}
		if err := s.Read(&h); err != nil {
			t.Fatal(err)
		}
		e.Reset(buf)
		e.Response(h.ReplyTo(), RespSuccess, "")
		res.Write(&e)
		_ = e.End(nil)
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func TestACloneOutlivesItsFrame(t *testing.T) {
	f := sendFrame()
	var h Header
	if _, err := h.Decode(f); err != nil {
		t.Fatal(err)
	}
	c := h.Clone()
	want := fmt.Sprint(c.Ext, c.Remark)
	clear(f)
	clear(h.scratch[:cap(h.scratch)])
	if got := fmt.Sprint(c.Ext, c.Remark); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// sendFrame is a send as the Go client makes it: 20 ext fields, properties with six escapes.
func sendFrame() []byte {
	h := `{"code":10,"language":"GO","version":317,"opaque":1234567,"flag":0,"remark":"","extFields":{"producerGroup":"PG_bench","topic":"TopicBench",` +
		`"defaultTopic":"TBW102","defaultTopicQueueNums":"4","queueId":"3","sysFlag":"0","bornTimestamp":"1700000000000","flag":"0",` +
		`"properties":"UNIQ_KEY\u0001C0000202000100000000000000000001\u0002TAGS\u0001TagA\u0002KEYS\u0001order-1\u0002","reconsumeTimes":"0","unitMode":"false",` +
		`"maxReconsumeTimes":"0","batch":"false","bname":"broker-a","AccessKey":"","Signature":"","x1":"1","x2":"2","x3":"3","x4":"4"}}`
	return frame(JSON, h, strings.Repeat("b", 1024))
}

// Strings are read and written eight bytes at a time: whatever needs a closer look must be seen at each place of a word.
func TestTextWithOddCharactersAnywhere(t *testing.T) {
	var e Encoder
	for n := range 20 {
		for at := range n + 1 {
			for _, odd := range []string{"", "\"", "\\", "\x00", "\x01", "\x1f", "\x7f", "é", "\u2028", "😀"} {
				text := strings.Repeat("a", at) + odd + strings.Repeat("~", n-at)
				want := Header{Code: 7, Ext: []Field{{text, text}, {"last", text}}}
				e.Reset(nil)
				if err := e.Frame(&want, nil); err != nil {
					t.Fatal(err)
				}
				var got Header
				if _, err := got.Decode(e.Bytes()); err != nil {
					t.Fatalf("%q: %v in %s", text, err, e.Bytes()[8:])
				}
				var ref struct{ ExtFields map[string]string }
				if err := json.Unmarshal(e.Bytes()[8:], &ref); err != nil {
					t.Fatal(err)
				}
				if len(got.Ext) != 2 || got.Ext[0] != want.Ext[0] || got.Ext[1] != want.Ext[1] || ref.ExtFields[text] != text {
					t.Fatalf("%q came back as %q, encoding/json has %q", text, got.Ext, ref.ExtFields)
				}
			}
		}
	}
}
