package raw

import "testing"

func TestFieldsOfAHeader(t *testing.T) {
	h := []byte(`{"code":0,"extFields":{"msgId":"AC11\"x","queueOffset":"42","n": -7,"opaqueX":3},"remark":"opaque","opaque":12}`)
	for name, want := range map[string]int64{"code": 0, "queueOffset": 42, "n": -7, "opaque": 12, "missing": 0} {
		if got := Int(h, name); got != want {
			t.Errorf("Int(%q) = %d, want %d", name, got, want)
		}
	}
	if got := Str(h, "msgId"); got != `AC11\"x` {
		t.Errorf("Str(msgId) = %q", got)
	}
	if got := Str(h, "remark"); got != "opaque" {
		t.Errorf("Str(remark) = %q", got)
	}
}

func FuzzMessages(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 91))
	f.Add([]byte{0, 0, 0, 91})
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		_ = Messages(b, func(m Message) { n += 91 + len(m.Body) + len(m.Topic) + len(m.Properties) })
		if n > len(b) {
			t.Errorf("records of %d bytes out of %d", n, len(b))
		}
	})
}
