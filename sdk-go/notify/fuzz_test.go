package notify

import (
	"bytes"
	"errors"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/fusionmq/fusionmq/notify/wire"
)

func FuzzDecompress(f *testing.F) {
	plain := bytes.Repeat([]byte("0123456789"), 100)
	var z, l, s bytes.Buffer
	d := deflater{min: 1, level: 1}
	packed, _ := d.compress(&z, plain)
	lw := lz4.NewWriter(&l)
	sw, err := zstd.NewWriter(&s)
	if err != nil {
		f.Fatal(err)
	}
	_, err1 := lw.Write(plain)
	_, err2 := sw.Write(plain)
	if err := errors.Join(err1, err2, lw.Close(), sw.Close()); err != nil {
		f.Fatal(err)
	}
	codecs := []string{"", wire.CompressionZlib, wire.CompressionLZ4, wire.CompressionZstd, "br"}
	for i := range codecs {
		for _, b := range [][]byte{packed, l.Bytes(), s.Bytes(), nil, packed[:len(packed)/2], append(bytes.Clone(packed), packed...)} {
			f.Add(b, uint8(i))
		}
	}
	const limit = 2000
	in := inflater{max: limit}
	f.Fuzz(func(t *testing.T, body []byte, codec uint8) {
		name := codecs[int(codec)%len(codecs)]
		out, err := in.decompress(body, name)
		if err != nil {
			if out != nil {
				t.Fatalf("%d bytes beside %v", len(out), err)
			}
			return
		}
		if len(out) > limit {
			t.Fatalf("%d bytes, limit %d", len(out), limit)
		}
		again, err := in.decompress(body, name) // by a reader that was used before
		if err != nil || !bytes.Equal(out, again) {
			t.Fatalf("the second time: %v", err)
		}
	})
}

// FuzzDelivery decodes what a server may push.
func FuzzDelivery(f *testing.F) {
	f.Add(pushed(1, "S-ump", nil).Append(nil), []byte("x"))
	f.Add(pushed(1, "S-ump", func(h *wire.MessageHeader) {
		h.BornTime, h.PostDelay, h.TTL = 1<<63, 1<<63, -1
		h.Set = h.Set.With(wire.FieldPostDelay).With(wire.FieldTTL)
		h.Properties = []wire.Property{{Key: []byte("__t.a"), Value: []byte("I"), HasValue: true}, {Key: []byte("a"), Value: []byte("1"), HasValue: true}, {}}
	}).Append(nil), []byte{})
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, header, body []byte) {
		var h wire.MessageHeader
		if h.Decode(header) != nil {
			return
		}
		var m Message
		decodeMessage(&m, &h, body)
		names := map[string]bool{}
		for name := range m.Header.All() {
			if names[name] {
				t.Fatalf("property %q is there twice", name)
			}
			names[name] = true
		}
		if m.TTL < 0 || m.RetryFor < 0 || m.AckTimeout < 0 || m.Delay < 0 {
			t.Fatalf("negative duration in %+v", m)
		}
	})
}
