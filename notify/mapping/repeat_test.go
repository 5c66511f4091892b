package mapping

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fusionmq/fusionmq/notify/wire"
)

// TestLoaderOfManyRecordsIsALoaderOfEach: whatever was loaded before, a Loader and a row of encoded headers give what fresh ones
// give. The records are made of few parts, so that neighbours are often alike, or nearly.
func TestLoaderOfManyRecordsIsALoaderOfEach(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	kept := map[string]int{} // what was taken last; three times of four it is taken again
	one := func(of ...string) string {
		k := of[0] + of[1] + of[len(of)-1]
		if r.IntN(4) == 0 {
			kept[k] = r.IntN(len(of))
		}
		return of[kept[k]]
	}
	const a, b = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	var l Loader
	var h wire.MessageHeader
	var row wire.HeaderRow
	repeats := 0
	attempt := int32(1)
	for range 50_000 {
		var parts []string
		add := func(name, value string) {
			if value != "" {
				parts = append(parts, name+"\x01"+value+"\x02")
			}
		}
		add("TAGS", one("x", "x", "x", "y"))
		add("UNIQ_KEY", one(a, b, a, b, strings.ToUpper(a), strings.ToUpper(b), "not hexadecimal, but of 32 bytes", "short", ""))
		add("KEYS", one("", "", a, b, strings.ToUpper(a), "order-1", "not hexadecimal, but of 32 bytes"))
		add("__n.target", one("", "", "", "S-1", "S-2"))
		add("seller", one("", "", "42", "43", a))
		if r.IntN(8) == 0 {
			r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		}
		if r.IntN(32) == 0 {
			add("UNIQ_KEY", b)
		}
		v := viewOf(t, one("T", "T", "T", "U"), Stored{
			Properties: []byte(strings.Join(parts, "")), SysFlag: int32(r.IntN(16) / 15), BornTime: []int64{1511337600000, 1511337600001, 5}[r.IntN(3)],
		}, []byte("x"))

		l.Load(&h, v)
		if !l.Repeats() {
			row.Break()
		} else {
			repeats++
		}
		if n := int32(1 + r.IntN(8)/7); n != attempt {
			attempt = n
			row.Break()
		}
		h.DeliveryCount, h.Set = attempt, h.Set.With(wire.FieldDeliveryCount)
		got := row.Append([]byte("before"), &h)

		var fresh Loader
		var want wire.MessageHeader
		fresh.Load(&want, v)
		want.DeliveryCount, want.Set = attempt, want.Set.With(wire.FieldDeliveryCount)
		if fresh.Repeats() {
			t.Fatal("the first record of a loader repeats one")
		}
		if enc := want.Append([]byte("before")); !bytes.Equal(got, enc) || !bytes.Equal(h.Append([]byte("before")), enc) {
			t.Fatalf("properties %q give\n%q, want\n%q", v.Properties(), got, enc)
		}
		if !bytes.Equal(l.Target(), fresh.Target()) || (l.Target() == nil) != (fresh.Target() == nil) {
			t.Fatalf("properties %q are for %q, want %q", v.Properties(), l.Target(), fresh.Target())
		}
	}
	if repeats < 1000 {
		t.Fatalf("%d records were like the one before", repeats)
	}
	t.Logf("%d records were like the one before", repeats)
}
