package remoting

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/fusionmq/fusionmq/metaq/internal/vectors"
)

// FuzzDecode feeds whole frames of either encoding.
func FuzzDecode(f *testing.F) {
	fs, err := vectors.Load("testdata", "go-*")
	if err != nil {
		f.Fatal(err)
	}
	for i, fr := range fs {
		if i%20 == 0 {
			f.Add(fr.Bytes)
		}
	}
	f.Add([]byte(nil))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(unhex("00000004 00000000"))
	f.Add(unhex("7fffffff 00000000"))
	f.Add(append(sendFrame(), sendFrame()...))
	f.Add(frame(JSON, `{"extFields":{"a":"\ud83d\u0001`, "x"))
	f.Add(frame(Binary, strings.Repeat("\xff", 30), ""))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 4 {
			if size, err := FrameSize(b); err == nil && size < len(b) {
				b = b[:size]
			}
		}
		give := bytes.Clone(b)
		var h, h2, h3 Header
		body, err := h.Decode(b)
		body2, err2 := h2.Decode(b)
		if (err == nil) != (err2 == nil) || err == nil && (!same(&h, &h2) || !bytes.Equal(body, body2)) {
			t.Fatalf("two answers: %+v %v, %+v %v", h, err, h2, err2)
		}
		if !bytes.Equal(give, b) {
			t.Fatal("Decode wrote to the frame")
		}
		if err != nil {
			return
		}
		if len(body) > len(b) || len(h.Ext) > MaxFields {
			t.Fatalf("body of %d bytes and %d fields from a frame of %d", len(body), len(h.Ext), len(b))
		}
		// The typed headers must not fall over, whatever they say.
		_ = new(SendHeader).Read(&h)
		_ = new(PullHeader).Read(&h)

		var e Encoder
		if err := e.Frame(&h, body); err != nil {
			return // escapes can make it too large
		}
		body3, err := h3.Decode(e.Bytes())
		if err != nil {
			t.Fatalf("our own frame: %v: %x", err, e.Bytes())
		}
		if !bytes.Equal(body, body3) || h.Code != h3.Code || h.Opaque != h3.Opaque || h.Flag != h3.Flag || h.Version != h3.Version || len(h.Ext) != len(h3.Ext) {
			t.Fatalf("%+v came back as %+v", h, h3)
		}
		for i, x := range h.Ext {
			if y := h3.Ext[i]; h3.Serialize == JSON && (y.Key != strings.ToValidUTF8(x.Key, "\ufffd") && !invalid(x.Key) || y.Value != x.Value && !invalid(x.Value)) ||
				h3.Serialize == Binary && x != y {
				t.Fatalf("field %q came back as %q", x, y)
			}
		}
	})
}

// invalid reports text that JSON cannot carry.
func invalid(s string) bool { return strings.ToValidUTF8(s, "") != s }

// FuzzBody feeds the dialect reader and the bodies that clients send.
func FuzzBody(f *testing.F) {
	for _, s := range []string{
		``, `null`, `[]`, `{}`, `{0:"a"}`, `{{"a":1}:5}`, `{"clientID":"c","producerDataSet":[{"groupName":"p"}]}`,
		`{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":1,"subscriptionDataSet":[{"topic":"T","codeSet":["1"]}]}]}`,
		`{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":6}}}}`, "{\"a\":\"\\", "\x78\x9c\x03\x00", `{"a":{`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		give := bytes.Clone(b)
		h, err := DecodeHeartbeat(b)
		if err == nil {
			text, err := EncodeBody(h)
			if err != nil {
				t.Fatalf("encode: %v", err)
			}
			h2, err := DecodeHeartbeat(text)
			if err != nil {
				t.Fatalf("our own body: %v: %s", err, text)
			}
			text2, err := EncodeBody(h2)
			if err != nil {
				t.Fatalf("encode: %v", err)
			}
			if h3, err := DecodeHeartbeat(text2); err != nil || !reflect.DeepEqual(h2, h3) { // invalid UTF-8 changes once
				t.Fatalf("%s came back as %s, %v", text, text2, err)
			}
		}
		if r, err := DecodeRegisterBody(b); err == nil && r == nil {
			t.Fatal("neither a body nor an error")
		}
		if out, err := standardJSON(b, maxElements); err == nil {
			if again, err := standardJSON(out, maxElements); err != nil || !bytes.Equal(out, again) {
				t.Fatalf("not stable: %q, then %q, %v", out, again, err)
			}
		}
		if !bytes.Equal(give, b) {
			t.Fatal("the body was written to")
		}
	})
}

// FuzzNextBatchMessage takes bodies of batches apart: what comes out is in the body, and written again reads the same.
func FuzzNextBatchMessage(f *testing.F) {
	one := AppendBatchMessage(nil, &BatchMessage{Flag: 1, Body: []byte("body"), Properties: "a\x01b\x02"})
	f.Add([]byte(nil))
	f.Add(one)
	f.Add(append(bytes.Clone(one), one...))
	f.Add(append(bytes.Clone(one), "garbage"...))
	f.Add(one[:len(one)-1])
	f.Add(bytes.Repeat([]byte{0xff}, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		for rest := b; ; {
			m, next, err := NextBatchMessage(rest)
			if err != nil {
				return
			}
			if len(next)+len(m.Body)+len(m.Properties)+22 != len(rest) {
				t.Fatalf("message of %d and %d bytes, %d of %d are left", len(m.Body), len(m.Properties), len(next), len(rest))
			}
			again, left, err := NextBatchMessage(append(AppendBatchMessage(nil, &m), next...))
			if err != nil || !reflect.DeepEqual(again, m) || !bytes.Equal(left, next) {
				t.Fatalf("%+v %v, want %+v", again, err, m)
			}
			rest = next
		}
	})
}
