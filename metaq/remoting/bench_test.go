package remoting

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/bytedance/sonic"
)

// The baselines decode into what a straightforward implementation would use.
type mapHeader struct {
	Code      int32             `json:"code"`
	Language  string            `json:"language"`
	Version   int32             `json:"version"`
	Opaque    int32             `json:"opaque"`
	Flag      int32             `json:"flag"`
	Remark    string            `json:"remark"`
	ExtFields map[string]string `json:"extFields"`
}

func BenchmarkDecodeHeader(b *testing.B) {
	f := sendFrame()
	text := f[prefixLen : len(f)-1024]
	var bin Encoder
	var h Header
	if _, err := h.Decode(f); err != nil {
		b.Fatal(err)
	}
	hb := *h.Clone()
	hb.Serialize = Binary
	if err := bin.Frame(&hb, nil); err != nil {
		b.Fatal(err)
	}
	run := func(name string, size int, fn func() error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				if err := fn(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("codec=flat/form=json", len(text), func() error { return h.DecodeHeader(JSON, text) })
	run("codec=flat/form=json/typed=send", len(text), func() error {
		if err := h.DecodeHeader(JSON, text); err != nil {
			return err
		}
		var s SendHeader
		return s.Read(&h)
	})
	run("codec=flat/form=binary", bin.Len(), func() error { _, err := h.Decode(bin.Bytes()); return err })
	run("codec=sonic/form=json", len(text), func() error { var m mapHeader; return sonic.Unmarshal(text, &m) })
	run("codec=encoding-json/form=json", len(text), func() error { var m mapHeader; return json.Unmarshal(text, &m) })
}

func BenchmarkEncodeResponse(b *testing.B) {
	r := SendResult{MsgID: "0A00000100002A9F00000000000004D2", QueueID: 3, QueueOffset: 7, TransactionID: "C0000202000100000000000000000001", RegionID: "DefaultRegion"}
	for _, s := range []Serialize{JSON, Binary} {
		b.Run(fmt.Sprintf("codec=flat/form=%s", strings.ToLower(s.String())), func(b *testing.B) {
			b.ReportAllocs()
			var e Encoder
			buf := make([]byte, 0, 1024)
			for b.Loop() {
				e.Reset(buf)
				e.Response(ReplyTo{Opaque: 7, Serialize: s}, 0, "")
				r.Write(&e)
				_ = e.End(nil)
			}
		})
	}
	m := func() mapHeader {
		return mapHeader{Code: 0, Language: "GO", Version: 479, Opaque: 7, Flag: 1, ExtFields: map[string]string{
			"msgId": r.MsgID, "queueId": "3", "queueOffset": "7", "transactionId": r.TransactionID, "MSG_REGION": r.RegionID, "TRACE_ON": "true"}}
	}
	b.Run("codec=sonic/form=json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := sonic.Marshal(m()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("codec=encoding-json/form=json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := json.Marshal(m()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
