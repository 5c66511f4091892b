package mapping

import "testing"

// A name that is decoded is encoded to the same text again, and what is encoded is decoded to what it was.
func FuzzDecodeGroup(f *testing.F) {
	for _, s := range []string{"", "plain", "a%2Fb", "a%2fb", "%", "%4", "%41", "%E4%BD%A0", "%25", "%00%FF"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if name, ok := DecodeGroup(s); ok && Group(name) != s {
			t.Errorf("%q is %q, which is encoded as %q", s, name, Group(name))
		}
		if enc := Group(s); enc != s {
			if name, ok := DecodeGroup(enc); !ok || name != s {
				t.Errorf("%q is encoded as %q, which is %q, %v", s, enc, name, ok)
			}
		}
	})
}
