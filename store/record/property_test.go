package record_test

import (
	"net/netip"
	"testing"

	"github.com/fusionmq/fusionmq/store/record"
)

func TestProperty(t *testing.T) {
	tests := []struct {
		name, give, find, want string
		ok                     bool
	}{
		{"first of two", "a\x011\x02b\x012\x02", "a", "1", true},
		{"last without its end", "a\x011\x02b\x012", "b", "2", true},
		{"the last of equal names wins", "a\x011\x02a\x012\x02", "a", "2", true},
		{"a name that is a prefix", "aa\x011\x02", "a", "", false},
		{"a value that looks like a name", "b\x01a\x02a\x011\x02", "a", "1", true},
		{"empty value is absent", "a\x01\x02", "a", "", false},
		{"empty name is absent", "\x01v\x02", "", "", false},
		{"a later empty value does not hide an earlier one", "a\x011\x02a\x01\x02", "a", "1", true},
		{"value with 0x01 in it", "a\x011\x01x\x02", "a", "1\x01x", true},
		{"nothing", "", "a", "", false},
		{"no separator at all", "abc", "abc", "", false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, ok := record.Property([]byte(tc.give), tc.find)
			if string(got) != tc.want || ok != tc.ok {
				t.Errorf("Property(%q, %q) = %q, %v, want %q, %v", tc.give, tc.find, got, ok, tc.want, tc.ok)
			}
			m := map[string]string{}
			for n, v := range record.Properties([]byte(tc.give)) {
				m[string(n)] = string(v)
			}
			if v, ok := m[tc.find]; v != tc.want || ok != tc.ok {
				t.Errorf("Properties(%q)[%q] = %q, %v, want %q, %v", tc.give, tc.find, v, ok, tc.want, tc.ok)
			}
		})
	}
}

func TestAppendPropertyClosesAnOpenEntry(t *testing.T) {
	got := record.AppendProperty([]byte("a\x011"), "b", "2")
	got = record.AppendProperty(got, "c", "")
	got = record.AppendProperty(got, []byte("d"), []byte("4"))
	if want := "a\x011\x02b\x012\x02d\x014\x02"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := string(record.AppendWithout(nil, got, "b", "x")); got != "a\x011\x02d\x014\x02" {
		t.Errorf("AppendWithout = %q", got)
	}
}

func TestHashCodeIsJavas(t *testing.T) {
	for s, want := range map[string]int32{
		"": 0, "TagA": 2598919, "TagB": 2598920, "polygenelubricants": -2147483648, "é": 233, "TopicTest-0": 1247014820, "TopicTest#KEY1": -1656969516,
		"😀": 31*0xD83D + 0xDE00,
	} {
		if got := record.HashCode(s); got != want {
			t.Errorf("HashCode(%q) = %d, want %d", s, got, want)
		}
		if got := record.HashCode([]byte(s)); got != want {
			t.Errorf("HashCode([]byte(%q)) = %d, want %d", s, got, want)
		}
	}
}

func TestOffsetID(t *testing.T) { // faults QRY-08
	for _, tc := range []struct {
		host string
		pos  int64
		id   string
	}{
		{"127.0.0.1:10911", 0, "7F00000100002A9F0000000000000000"},
		{"127.0.0.1:10091", 1024, "7F0000010000276B0000000000000400"},
		{"10.0.0.1:10911", 1234, "0A00000100002A9F00000000000004D2"},
		{"[::1]:10911", 255, "00000000000000000000000000000001" + "00002A9F" + "00000000000000FF"},
	} {
		h := netip.MustParseAddrPort(tc.host)
		if got := record.OffsetID(h, tc.pos); got != tc.id {
			t.Errorf("OffsetID(%s, %d) = %s, want %s", tc.host, tc.pos, got, tc.id)
		}
		gh, gp, err := record.ParseOffsetID(tc.id)
		if gh != h || gp != tc.pos || err != nil {
			t.Errorf("ParseOffsetID(%s) = %v, %d, %v", tc.id, gh, gp, err)
		}
	}
	for _, bad := range []string{"", "7F", "7F00000100002A9F000000000000000G", "7F000001FFFF2A9F0000000000000000", "7F00000100002A9FF000000000000000"} {
		if _, _, err := record.ParseOffsetID(bad); err == nil {
			t.Errorf("ParseOffsetID(%q): no error", bad)
		}
	}
}

func FuzzProperties(f *testing.F) {
	for _, s := range []string{"", "a\x011\x02", "a\x011", "\x01\x02\x01", "TAGS\x01é\x02KEYS\x01k\x02", "XTAGS\x01a\x02TAGS\x01\x02", "a\x01TAGS\x01b\x02TAGS\x01c\x02TAGS\x01d"} {
		f.Add([]byte(s), "TAGS")
	}
	f.Fuzz(func(t *testing.T, props []byte, name string) {
		if !record.ValidProperty(name) {
			return
		}
		got, ok := record.Property(props, name)
		var want []byte
		var found bool
		for n, v := range record.Properties(props) {
			if string(n) == name {
				want, found = v, true
			}
		}
		if ok != found || string(got) != string(want) {
			t.Fatalf("Property(%q, %q) = %q, %v; ranging gives %q, %v", props, name, got, ok, want, found)
		}
		tag, _ := record.Property(props, record.PropTags)
		if got, want := record.TagsCode(props), int64(record.HashCode(tag)); got != want {
			t.Fatalf("TagsCode(%q) = %d, want %d", props, got, want)
		}
		again := record.AppendWithout(nil, props)
		if g, ok := record.Property(again, name); ok != found || string(g) != string(want) {
			t.Fatalf("after copying: %q, %v, want %q, %v", g, ok, want, found)
		}
	})
}

func FuzzParseOffsetID(f *testing.F) {
	for _, s := range []string{"", "7F00000100002A9F0000000000000000", "7f00000100002a9f00000000000004d2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, id string) {
		h, pos, err := record.ParseOffsetID(id)
		if err != nil {
			return
		}
		h2, pos2, err := record.ParseOffsetID(record.OffsetID(h, pos))
		if err != nil || pos2 != pos || h2.Port() != h.Port() || h2.Addr().Unmap() != h.Addr().Unmap() {
			t.Fatalf("%q: %v %d, again %v %d %v", id, h, pos, h2, pos2, err)
		}
	})
}
