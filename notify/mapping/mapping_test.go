package mapping

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fusionmq/fusionmq/notify/wire"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/record"
)

// viewOf makes the record that the store would keep.
func viewOf(t rapid.TB, topic string, s Stored, body []byte) record.View {
	t.Helper()
	f := record.Fields{
		SysFlag: s.SysFlag, BornTime: s.BornTime, StoreTime: 1511337600001, Body: body, BodyCRC: record.CRC(body), Topic: topic, Properties: s.Properties,
		PhysicalOffset: 4096, BornHost: netip.MustParseAddrPort("127.0.0.1:1"), StoreHost: netip.MustParseAddrPort("127.0.0.1:10911"),
	}
	v, err := record.Parse(record.Append(nil, &f))
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	return v
}

func header(change func(*wire.MessageHeader)) *wire.MessageHeader {
	h := &wire.MessageHeader{
		ID: bytes.Repeat([]byte{0xab}, 16), Topic: []byte("TRADE"), Type: []byte("2300-trade-success"), Group: []byte("P-trade"),
		Committed: true, BornTime: 1511337600000, Priority: DefaultPriority,
	}
	if change != nil {
		change(h)
	}
	return h
}

func property(k, v string) wire.Property {
	return wire.Property{Key: []byte(k), Value: []byte(v), HasValue: true}
}

// TestLaw10NotifyHeadersNeverActInRocketMQ sends every reserved name as a header.
func TestLaw10NotifyHeadersNeverActInRocketMQ(t *testing.T) {
	plain, err := Store(nil, header(nil))
	if err != nil {
		t.Fatal(err)
	}
	for name := range reserved {
		t.Run(name, func(t *testing.T) {
			h := header(func(h *wire.MessageHeader) { h.Properties = append(h.Properties, property(name, "true")) })
			s, err := Store(nil, h)
			if strings.HasPrefix(name, "__") {
				var in *wire.InputError
				if !errors.As(err, &in) {
					t.Fatalf("Store = %v, want an InputError", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			was, _ := record.Property(plain.Properties, name)
			if now, _ := record.Property(s.Properties, name); !bytes.Equal(now, was) {
				t.Errorf("property %s = %q, want %q", name, now, was)
			}
			if v, ok := Property(s.Properties, name); !ok || string(v) != "true" {
				t.Errorf("Property(%s) = %q, %v", name, v, ok)
			}
			var l Loader
			var back wire.MessageHeader
			l.Load(&back, viewOf(t, "TRADE", s, []byte("x")))
			if diff := cmp.Diff(h.Properties, back.Properties); diff != "" {
				t.Errorf("header after the round trip (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPropertyRoundTripNotifyToRecordToNotify(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHeader(t)
		buf := []byte("A\x01b\x02")
		s, err := Store(buf, h)
		if err != nil {
			t.Fatalf("Store: %v", err)
		}
		if !bytes.HasPrefix(s.Properties, buf) {
			t.Fatal("Store changed what was in the buffer")
		}
		s.Properties = s.Properties[len(buf):]
		var l Loader
		var got wire.MessageHeader
		l.Load(&got, viewOf(t, string(h.Topic), s, []byte("body")))
		if target, ok := Target(s.Properties); ok != (len(h.TargetGroup) > 0) || ok && !bytes.Equal(target, h.TargetGroup) {
			t.Fatalf("Target = %q, %v, want %q", target, ok, h.TargetGroup)
		}
		if diff := cmp.Diff(expected(h), canonical(&got)); diff != "" {
			t.Fatalf("header after the round trip (-want +got):\n%s", diff)
		}
		for _, p := range got.Properties {
			if string(p.Key) == wire.KeyCompression && h.Flag&wire.FlagCompressed != 0 {
				continue
			}
			if v, ok := Property(s.Properties, string(p.Key)); !ok || !bytes.Equal(v, p.Value) {
				t.Fatalf("Property(%q) = %q, %v, want %q", p.Key, v, ok, p.Value)
			}
		}
		if err := got.Validate(); err != nil {
			t.Fatalf("what comes back is not valid: %v", err)
		}
	})
}

// drawHeader makes any header that a client may send.
func drawHeader(t *rapid.T) *wire.MessageHeader {
	visible := rapid.StringMatching(`[!-~]{1,64}`)
	text := rapid.StringMatching(`[ -~é杭州\x{3}]{0,20}`)
	i32 := rapid.Int32()
	h := &wire.MessageHeader{
		ID:        rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"),
		Flag:      i32.Draw(t, "flag"),
		Topic:     []byte(rapid.StringMatching(`T[A-Za-z0-9_%-]{0,63}`).Draw(t, "topic")),
		Type:      []byte(rapid.StringMatching(`[!-)+-{}~]{1,64}`).Draw(t, "type")),
		Group:     []byte(visible.Draw(t, "group")),
		Committed: true,
		BornTime:  rapid.Uint64().Draw(t, "born"),
		Priority:  rapid.SampledFrom([]int32{4, 0, -1, 9, 1 << 30}).Draw(t, "priority"),
	}
	h.Set = wire.FieldSet(rapid.Uint32().Draw(t, "set")) & (1<<24 - 1<<9) &^ (1 << wire.FieldProperties)
	h.DeliveryCount, h.Version, h.TTL = i32.Draw(t, "count"), i32.Draw(t, "version"), i32.Draw(t, "ttl")
	h.DLQTime, h.PostTimeout = i32.Draw(t, "dlq"), i32.Draw(t, "timeout")
	h.PostDelay, h.ReplyID = rapid.Uint64().Draw(t, "delay"), rapid.Uint64().Draw(t, "reply")
	h.PublisherHost, h.ReplyToTopic = []byte(text.Draw(t, "host")), []byte(text.Draw(t, "replyTopic"))
	h.ReplyToType, h.ReplyWhenDelivered = []byte(text.Draw(t, "replyType")), []byte(text.Draw(t, "replyWhen"))
	h.TargetGroup = []byte(rapid.StringMatching(`[!-~]{0,64}`).Draw(t, "target"))
	if !h.Set.Has(wire.FieldTargetGroup) {
		h.TargetGroup = nil
	}
	names := append(slices.Sorted(func(yield func(string) bool) {
		for n := range reserved {
			if !strings.HasPrefix(n, "__") && !yield(n) {
				return
			}
		}
	}), "a", "b", "_", "_x", "seller", "城市", wire.KeyUnit, wire.KeyShadow, wire.KeyTrace)
	key := rapid.OneOf(rapid.SampledFrom(names), rapid.StringMatching(`[a-zA-Z.\x{3}é][ -~]{0,30}`))
	for range rapid.IntRange(0, 40).Draw(t, "properties") {
		p := property(key.Draw(t, "key"), text.Draw(t, "value"))
		p.HasValue = rapid.IntRange(0, 9).Draw(t, "has") > 0
		if !p.HasValue {
			p.Value = nil
		}
		h.Properties = append(h.Properties, p)
	}
	if rapid.Bool().Draw(t, "typed") {
		h.Properties = append(h.Properties, property("__t.n", "I"), property("n", "5"))
	}
	if rapid.Bool().Draw(t, "ctype") {
		h.Properties = append(h.Properties, property(wire.KeyCompression, rapid.SampledFrom([]string{"zlib", "lz4", "zstd"}).Draw(t, "codec")))
	}
	return h
}

// expected is what docs/mapping.md promises of h.
func expected(h *wire.MessageHeader) *wire.MessageHeader {
	want := *h
	want.Properties = nil
	for i, p := range h.Properties {
		last := true
		for _, q := range h.Properties[i+1:] {
			last = last && !bytes.Equal(q.Key, p.Key)
		}
		if zlib := string(p.Key) == wire.KeyCompression && string(p.Value) == wire.CompressionZlib && h.Flag&wire.FlagCompressed != 0; last && p.HasValue && !zlib {
			want.Properties = append(want.Properties, p)
		}
	}
	want.Set = want.Set.Without(wire.FieldDeliveryCount).Without(wire.FieldLastDelivery).Without(wire.FieldTargetGroup).With(wire.FieldCreated)
	want.Created = 1511337600001
	return canonical(&want)
}

// canonical drops what Set does not name, treats an empty optional text as absent and orders properties.
func canonical(h *wire.MessageHeader) *wire.MessageHeader {
	c := *h
	for f, v := range map[wire.Field]*[]byte{wire.FieldPublisherHost: &c.PublisherHost, wire.FieldTargetGroup: &c.TargetGroup,
		wire.FieldReplyToTopic: &c.ReplyToTopic, wire.FieldReplyToType: &c.ReplyToType, wire.FieldReplyWhenDelivery: &c.ReplyWhenDelivered} {
		if !c.Set.Has(f) || len(*v) == 0 {
			c.Set, *v = c.Set.Without(f), nil
		}
	}
	for f, v := range map[wire.Field]*int32{wire.FieldDeliveryCount: &c.DeliveryCount, wire.FieldVersion: &c.Version, wire.FieldTTL: &c.TTL,
		wire.FieldDLQTime: &c.DLQTime, wire.FieldPostTimeout: &c.PostTimeout} {
		if !c.Set.Has(f) {
			*v = 0
		}
	}
	for f, v := range map[wire.Field]*uint64{wire.FieldPostDelay: &c.PostDelay, wire.FieldReplyID: &c.ReplyID, wire.FieldCreated: &c.Created,
		wire.FieldLastDelivery: &c.LastDelivery} {
		if !c.Set.Has(f) {
			*v = 0
		}
	}
	c.Properties = slices.Clone(h.Properties)
	slices.SortFunc(c.Properties, func(a, b wire.Property) int { return bytes.Compare(a.Key, b.Key) })
	for i := range c.Properties {
		if len(c.Properties[i].Value) == 0 {
			c.Properties[i].Value = nil
		}
	}
	return &c
}

// TestPropertyRoundTripRocketMQToNotify loads what a RocketMQ producer may store: all of its own properties arrive
// under their names, and a header made of them stores the same ones again.
func TestPropertyRoundTripRocketMQToNotify(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringMatching(`[ -~é]{1,20}`)
		props := rapid.MapOfN(rapid.StringMatching(`[a-z.é][ -~]{0,30}`), value, 0, 20).Draw(t, "user properties")
		uniq := rapid.OneOf(rapid.StringMatching(`[0-9A-F]{32}`), rapid.StringMatching(`[0-9a-f]{32}`), rapid.StringMatching(`[ -~]{1,40}`)).Draw(t, "UNIQ_KEY")
		tag := rapid.StringMatching(`[!-)+-{}~]{1,64}`).Draw(t, "TAGS")
		group := rapid.StringMatching(`[%|a-zA-Z0-9_-]{1,64}`).Draw(t, "PGROUP")
		keys := rapid.StringMatching(`[a-z]{1,8}( [a-z]{1,8})?`).Draw(t, "KEYS")
		codec := rapid.SampledFrom([]int32{0, record.FlagCompressed, record.FlagCompressed | record.FlagCompressorLZ4, record.FlagCompressed | record.FlagCompressorZSTD}).Draw(t, "codec")

		var text []byte
		for k, v := range props {
			text = record.AppendProperty(text, k, v)
		}
		for _, p := range [][2]string{{"UNIQ_KEY", uniq}, {"TAGS", tag}, {"PGROUP", group}, {"KEYS", keys}, {"WAIT", "true"}, {"CLUSTER", "c"}, {"TRACE_ON", "true"}} {
			text = record.AppendProperty(text, p[0], p[1])
		}
		var l Loader
		var h wire.MessageHeader
		l.Load(&h, viewOf(t, "T", Stored{Properties: text, BornTime: 5, SysFlag: codec}, []byte("x")))

		wantID := md5.Sum([]byte(uniq))
		if raw, err := hex.DecodeString(uniq); err == nil && len(raw) == 16 {
			wantID = [16]byte(raw)
		}
		if !bytes.Equal(h.ID, wantID[:]) || string(h.Type) != tag || string(h.Group) != group || h.Priority != DefaultPriority || !h.Committed {
			t.Fatalf("loaded %+v", h)
		}
		got := map[string]string{}
		for _, p := range h.Properties {
			got[string(p.Key)] = string(p.Value)
		}
		want := map[string]string{wire.KeyKeys: keys}
		for k, v := range props {
			want[k] = v
		}
		switch codec & record.FlagCompressorMask {
		case record.FlagCompressorLZ4:
			want[wire.KeyCompression] = "lz4"
		case record.FlagCompressorZSTD:
			want[wire.KeyCompression] = "zstd"
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("headers (-want +got):\n%s", diff)
		}

		// Publishing the same content again gives the same properties to pull consumers.
		again := h
		again.Properties = slices.DeleteFunc(slices.Clone(h.Properties), func(p wire.Property) bool { return string(p.Key) == wire.KeyKeys })
		s, err := Store(nil, &again)
		if err != nil {
			t.Fatalf("Store: %v", err)
		}
		if s.SysFlag != codec {
			t.Fatalf("sysFlag = %#x, want %#x", s.SysFlag, codec)
		}
		props["TAGS"], props["PGROUP"], props["UNIQ_KEY"], props["KEYS"] = tag, group, hex.EncodeToString(wantID[:]), hex.EncodeToString(wantID[:])
		stored := map[string]string{}
		for k, v := range record.Properties(s.Properties) {
			stored[string(k)] = string(v)
		}
		if diff := cmp.Diff(props, stored); diff != "" {
			t.Fatalf("properties stored again (-want +got):\n%s", diff)
		}
	})
}

func TestStoreRefusesWhatWouldChangeARecord(t *testing.T) {
	long := strings.Repeat("v", wire.MaxValue)
	tests := []struct {
		name  string
		give  func(*wire.MessageHeader)
		field string
	}{
		{"byte 0x01 in a key", func(h *wire.MessageHeader) { h.Properties = []wire.Property{property("a\x01b", "c")} }, "property key"},
		{"byte 0x02 in a value", func(h *wire.MessageHeader) { h.Properties = []wire.Property{property("a", "c\x02DELAY\x011")} }, "value of property"},
		{"no UTF-8", func(h *wire.MessageHeader) { h.Properties = []wire.Property{property("a", "\xff")} }, "value of property"},
		{"empty key", func(h *wire.MessageHeader) { h.Properties = []wire.Property{property("", "x")} }, "property key"},
		{"key of 129 bytes", func(h *wire.MessageHeader) { h.Properties = []wire.Property{property(strings.Repeat("k", 129), "x")} }, "property key"},
		{"value of 4097 bytes", func(h *wire.MessageHeader) { h.Properties = []wire.Property{property("k", long+"v")} }, "value of property"},
		{"more than 16 KiB of header", func(h *wire.MessageHeader) {
			for i := range 4 {
				h.Properties = append(h.Properties, property(fmt.Sprint(i), long))
			}
		}, "properties"},
		{"system key", func(h *wire.MessageHeader) { h.Properties = []wire.Property{property("__legacy.x", "1")} }, "property key"},
		{"our own prefix", func(h *wire.MessageHeader) { h.Properties = []wire.Property{property("__n.ttl", "1")} }, "property key"},
		{"reserved prefix", func(h *wire.MessageHeader) { h.Properties = []wire.Property{property("__h.DELAY", "1")} }, "property key"},
		{"__keys", func(h *wire.MessageHeader) { h.Properties = []wire.Property{property("__keys", "1")} }, "property key"},
		{"unknown compression", func(h *wire.MessageHeader) { h.Properties = []wire.Property{property("__ctype", "br")} }, "value of property"},
		{"0x02 in the host name", func(h *wire.MessageHeader) {
			h.PublisherHost, h.Set = []byte("h\x02"), h.Set.With(wire.FieldPublisherHost)
		}, "publisherHostName"},
		{"short id", func(h *wire.MessageHeader) { h.ID = h.ID[:15] }, "id"},
		{"system topic", func(h *wire.MessageHeader) { h.Topic = []byte("%RETRY%g") }, "topic"},
		{"our topics", func(h *wire.MessageHeader) { h.Topic = []byte("rmq_sys_fusion_oq") }, "topic"},
		{"type of two tags", func(h *wire.MessageHeader) { h.Type = []byte("a||b") }, "messageType"},
		{"group with a blank", func(h *wire.MessageHeader) { h.Group = []byte("a b") }, "groupId"},
		{"a header whose record is too long", func(h *wire.MessageHeader) {
			for i := range 3000 {
				h.Properties = append(h.Properties, wire.Property{Key: fmt.Appendf(nil, "%x", i), HasValue: true})
			}
			for i := range 600 {
				h.Properties = append(h.Properties, wire.Property{Key: fmt.Appendf(nil, "%xz", i), HasValue: true})
			}
		}, "header"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s, err := Store(nil, header(tc.give))
			var in *wire.InputError
			if !errors.As(err, &in) || in.Field != tc.field || s.Properties != nil {
				t.Errorf("Store = %v, want an InputError on %q", err, tc.field)
			}
		})
	}
}

func TestStoreRefusesPropertyTextPastTheRecordsLimit(t *testing.T) {
	h := header(func(h *wire.MessageHeader) { // these names are longer in the record than on the wire
		h.Group, h.Type = bytes.Repeat([]byte("."), 64), bytes.Repeat([]byte("t"), 64)
	})
	for i := 0; h.Validate() == nil; i++ {
		h.Properties = append(h.Properties, wire.Property{Key: fmt.Appendf(nil, "%x", i), HasValue: true})
	}
	h.Properties = h.Properties[:len(h.Properties)-1]
	var in *wire.InputError
	if _, err := Store(nil, h); !errors.As(err, &in) || in.Field != "properties" {
		t.Errorf("Store = %v, want an InputError on properties", err)
	}
}

func TestLoadWithoutAUniqueKeyUsesTheOffsetID(t *testing.T) {
	var l Loader
	var h wire.MessageHeader
	l.Load(&h, viewOf(t, "T", Stored{}, []byte("x")))
	if got, want := hex.EncodeToString(h.ID), "7f00000100002a9f0000000000001000"; got != want {
		t.Errorf("id = %s, want %s", got, want)
	}
	if len(h.Properties) != 0 || len(h.Type) != 0 {
		t.Errorf("loaded %+v", h)
	}
}

func TestLoadKeepsAFieldThatIsNoFieldAsProperty(t *testing.T) {
	text := []byte("__n.ttl\x0107\x02__n.priority\x017\x02__n.new\x01x\x02__e.a\x012\x02__h.b\x01c\x02__foo\x01bar\x02")
	var l Loader
	var h wire.MessageHeader
	l.Load(&h, viewOf(t, "T", Stored{Properties: text}, []byte("x")))
	if h.Priority != 7 || h.Set.Has(wire.FieldTTL) {
		t.Errorf("priority = %d, set %b", h.Priority, h.Set)
	}
	want := []wire.Property{property("__n.ttl", "07"), property("__n.new", "x"), property("__e.a", "2"), property("__h.b", "c"), property("__foo", "bar")}
	if diff := cmp.Diff(want, h.Properties); diff != "" {
		t.Errorf("properties (-want +got):\n%s", diff)
	}
}

func TestGroupNames(t *testing.T) {
	tests := []struct{ give, want string }{
		{"S-ump", "S-ump"}, {"a.b", "a%2Eb"}, {"a%b", "a%b"}, {"a%.b", "a%25%2Eb"}, {"@", "%40"}, {"a|b", "a|b"},
	}
	for _, tc := range tests {
		got := Group(tc.give)
		if got != tc.want {
			t.Errorf("Group(%q) = %q, want %q", tc.give, got, tc.want)
		}
		back, ok := DecodeGroup(got)
		if encoded := tc.give != tc.want; ok != encoded || ok && back != tc.give {
			t.Errorf("DecodeGroup(%q) = %q, %v", got, back, ok)
		}
	}
	for _, plain := range []string{"a%2eb", "a%41", "%", "a%2", "a%zz", "a%2E%"} {
		if back, ok := DecodeGroup(plain); ok {
			t.Errorf("DecodeGroup(%q) = %q, want none", plain, back)
		}
	}
}

func TestEncodedGroupsAreDistinct(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[!-~]{1,64}`).Draw(t, "name")
		enc := Group(name)
		if !meta.PlainGroup(enc) || len(enc) > 3*len(name) {
			t.Fatalf("Group(%q) = %q", name, enc)
		}
		if back, ok := DecodeGroup(enc); enc != name && (!ok || back != name) {
			t.Fatalf("DecodeGroup(%q) = %q, %v, want %q", enc, back, ok, name)
		}
	})
}

// TestMappingDocument compares docs/mapping.md with the table in code. To write it anew: UPDATE_MAPPING=1 go test ./mapping.
func TestMappingDocument(t *testing.T) {
	const file = "../../docs/mapping.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- table -->\n", "<!-- end of table -->\n"
	head, rest, ok1 := strings.Cut(string(text), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no table marks", file)
	}
	want := head + begin + document() + end + tail
	if os.Getenv("UPDATE_MAPPING") != "" {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, string(text)); diff != "" && os.Getenv("UPDATE_MAPPING") == "" {
		t.Errorf("%s differs from Table() (-want +got):\n%s", file, diff)
	}
}

func document() string {
	var b strings.Builder
	b.WriteString("| Notify | in the record | what a Notify subscriber gets |\n|---|---|---|\n")
	for _, r := range Table() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.Notify, r.Record, r.Back)
	}
	var names []string
	for n := range reserved {
		names = append(names, "`"+n+"`")
	}
	slices.Sort(names)
	b.WriteString("\nNames that RocketMQ reserves: " + strings.Join(names, ", ") + ".\n")
	return b.String()
}

func TestTableNamesEveryField(t *testing.T) {
	rows := Table()
	for f := wire.FieldID; f <= wire.FieldReplyWhenDelivery; f++ {
		if !slices.ContainsFunc(rows, func(r Row) bool { return r.Notify == wire.FieldName(f) }) {
			t.Errorf("field %s is not in the table", wire.FieldName(f))
		}
	}
	for _, s := range scalars {
		if !slices.ContainsFunc(rows, func(r Row) bool { return strings.Contains(r.Record, "`"+s.name+"`") }) {
			t.Errorf("property %s is not in the table", s.name)
		}
	}
}

func FuzzLoad(f *testing.F) {
	s, err := Store(nil, header(func(h *wire.MessageHeader) {
		h.TTL, h.Set = 5, h.Set.With(wire.FieldTTL)
		h.Properties = []wire.Property{property("KEYS", "a"), property("x", "")}
	}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(s.Properties, int32(0))
	f.Add([]byte("TAGS\x01a\x02UNIQ_KEY\x017F0000010DD418B4AAC27F4C8AB90000"), int32(0x101))
	f.Add([]byte("\x01\x02\x02__n.ttl\x01-0\x02__e.\x011\x02__h.\x01"), int32(4))
	f.Fuzz(func(t *testing.T, props []byte, sys int32) {
		if len(props) > MaxProperties {
			return
		}
		v := viewOf(t, "T", Stored{Properties: props, SysFlag: sys &^ (record.FlagBornV6 | record.FlagStoreV6)}, []byte("x"))
		var l Loader
		var h wire.MessageHeader
		l.Load(&h, v)
		enc := h.Append(nil)
		if len(enc) > wire.MaxBatchHeader || len(h.ID) != wire.MessageIDLen {
			t.Fatalf("%d bytes of properties make a header of %d", len(props), len(enc))
		}
		if h.Validate() != nil {
			return
		}
		s, err := Store(nil, &h)
		if err != nil {
			return // such as a record that is too long with the system's properties
		}
		var again wire.MessageHeader
		var l2 Loader
		l2.Load(&again, viewOf(t, "T", Stored{Properties: s.Properties, SysFlag: s.SysFlag, BornTime: s.BornTime}, []byte("x")))
		if diff := cmp.Diff(expected(&h), canonical(&again)); diff != "" && h.Committed {
			t.Fatalf("stored again (-want +got):\n%s", diff)
		}
	})
}

func BenchmarkStore(b *testing.B) {
	h := header(func(h *wire.MessageHeader) {
		h.Properties = []wire.Property{property("seller", "42"), property("buyer", "4711"), property("KEYS", "x")}
	})
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Store(buf, h); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	s, err := Store(nil, header(func(h *wire.MessageHeader) {
		h.Properties = []wire.Property{property("seller", "42"), property("buyer", "4711"), property("KEYS", "x")}
	}))
	if err != nil {
		b.Fatal(err)
	}
	v := viewOf(b, "TRADE", s, make([]byte, 1024))
	var l Loader
	var h wire.MessageHeader
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		l.Load(&h, v)
		buf = h.Append(buf[:0])
	}
}

func TestStoreAndLoadDoNotAllocate(t *testing.T) {
	h := header(func(h *wire.MessageHeader) {
		h.Properties = []wire.Property{property("seller", "42"), property("KEYS", "x")}
	})
	buf := make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() { _, _ = Store(buf, h) }); n > 0 {
		t.Errorf("Store allocates %v times a message", n)
	}
	s, _ := Store(nil, h)
	v := viewOf(t, "TRADE", s, []byte("x"))
	var l Loader
	var got wire.MessageHeader
	l.Load(&got, v)
	if n := testing.AllocsPerRun(100, func() { l.Load(&got, v) }); n > 0 {
		t.Errorf("Load allocates %v times a message", n)
	}
}
