package state

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"math"
	"reflect"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// goldenOps has one of each kind and every field at a value that is not its default.
var goldenOps = []Op{
	{Kind: OpBind, Topic: "Trade", Group: "pay", Binding: Binding{Kind: BindDirect, Expr: "created", WaterMark: -1, Volatile: true}},
	{Kind: OpBind, Topic: "Trade", Group: "log", Binding: Binding{Kind: BindFanout, WaterMark: 100}},
	{Kind: OpAttach, Topic: "Trade", Group: "pay"},
	{Kind: OpDelete, Topic: "Trade", First: 1000, Last: 300_000_000},
	{Kind: OpUpdate, Topic: "Trade", First: 1200, Failed: []Failed{{"pay", 1, 1_800_000_000_000}, {"log", 0, 0}}},
	{Kind: OpRetire, Topic: "Trade", Group: "pay", First: 1200},
	{Kind: OpRetire, Topic: "Trade", Group: "log", First: 700, Last: 700},
	{Kind: OpCursor, Topic: "Trade", Group: "log", First: math.MaxInt64},
	{Kind: OpDetach, Topic: "Trade", Group: "pay"},
	{Kind: OpUnbind, Topic: "Trade", Group: "pay", Binding: Binding{Kind: BindDirect, Expr: "created", WaterMark: -1}},
	{Kind: OpRelocate, Topic: "Trade", First: 1200, Last: 90_000_000_000, Size: 4 << 20},
}

// goldenBody is goldenOps as version 1 writes it. It is on disks: a change here is a change of the format.
const goldenBody = "01" + // version
	"05" + "055472616465" + "03706179" + "0763726561746564" + "036c6f67" + "00" + // Trade pay created log ""
	"0b" + // 11 operations
	"04" + "00" + "01" + "01" + "02" + "00" + "01" + // bind
	"04" + "00" + "03" + "04" + "04" + "65" + "00" + // bind fanout
	"06" + "00" + "01" + // attach
	"01" + "00" + "d00f" + "98be868f01" + // delete 1000, 299,999,000 more
	"02" + "00" + "9003" + "02" + "01" + "01" + "80a0f1c2b134" + "03" + "00" + "00" + // update 200 further
	"03" + "00" + "01" + "00" + "00" + // retire one
	"03" + "00" + "03" + "e707" + "01" + // retire a range of one, 500 back
	"08" + "00" + "03" + "86f5ffffffffffffff01" + // cursor
	"07" + "00" + "01" + // detach
	"05" + "00" + "01" + "01" + "02" + "00" + "00" + // unbind
	"20" + "00" + "9dedffffffffffffff01" + "d0feaba3cf02" + "80808002" // relocate

func TestGoldenOperations(t *testing.T) {
	b, err := AppendOps(nil, goldenOps)
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(b); got != goldenBody {
		t.Errorf("encoded\n%s, want\n%s", got, goldenBody)
	}
	body, err := hex.DecodeString(goldenBody)
	if err != nil {
		t.Fatal(err)
	}
	ops, err := DecodeOps(body)
	if err != nil {
		t.Fatal(err)
	}
	if d := gocmp.Diff(goldenOps, ops); d != "" {
		t.Errorf("decoded (-want +got):\n%s", d)
	}
	for i := range body {
		if _, err := DecodeOps(body[:i]); err == nil {
			t.Errorf("cut off at byte %d, but no error", i)
		}
	}
}

func TestAMillionDeletesInOrderAreAFewBytes(t *testing.T) {
	b, err := AppendOps(nil, []Op{{Kind: OpDelete, Topic: "T", First: 1 << 40, Last: 1<<40 + 1_000_000*256}})
	if err != nil || len(b) > 20 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestAppendOpsNamesWhatIsWrong(t *testing.T) {
	for _, tc := range []struct {
		name  string
		give  Op
		field string
	}{
		{"no kind", Op{Topic: "T"}, "kind"},
		{"later kind", Op{Kind: lastOp + 1, Topic: "T"}, "kind"},
		{"no topic", Op{Kind: OpDelete, First: 1, Last: 1}, "topic"},
		{"long topic", Op{Kind: OpDelete, Topic: strings.Repeat("x", MaxNameBytes+1)}, "topic"},
		{"no group", Op{Kind: OpAttach, Topic: "T"}, "group"},
		{"negative address", Op{Kind: OpCursor, Topic: "T", Group: "G", First: -1}, "first"},
		{"range the wrong way round", Op{Kind: OpDelete, Topic: "T", First: 2, Last: 1}, "last"},
		{"retire the wrong way round", Op{Kind: OpRetire, Topic: "T", Group: "G", First: 2, Last: 1}, "last"},
		{"update of nobody", Op{Kind: OpUpdate, Topic: "T", First: 2}, "failed"},
		{"update of no name", Op{Kind: OpUpdate, Topic: "T", First: 2, Failed: []Failed{{}}}, "failed group"},
		{"negative attempt", Op{Kind: OpUpdate, Topic: "T", First: 2, Failed: []Failed{{"G", -1, 0}}}, "attempt or due of group G"},
		{"binding of no kind", Op{Kind: OpBind, Topic: "T", Group: "G"}, "binding kind"},
		{"water mark", Op{Kind: OpBind, Topic: "T", Group: "G", Binding: Binding{Kind: BindFanout, WaterMark: -2}}, "water mark"},
		{"long expression", Op{Kind: OpBind, Topic: "T", Group: "G", Binding: Binding{Kind: BindDirect, Expr: strings.Repeat("x", MaxExprBytes+1)}}, "binding expression"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := []byte("before")
			b, err := AppendOps(before, []Op{goldenOps[0], tc.give})
			var e *OpError
			if !errors.As(err, &e) || e.Index != 1 || e.Field != tc.field || e.Want == "" {
				t.Errorf("got %v, want an OpError of operation 1, field %s", err, tc.field)
			}
			if string(b) != "before" {
				t.Errorf("dst is %q", b)
			}
		})
	}
	if _, err := AppendOps(nil, make([]Op, MaxOps+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too many operations give %v", err)
	}
}

func TestDecodeOpsIsLoudAboutWhatItDoesNotKnow(t *testing.T) {
	for name, give := range map[string]string{
		"empty":                 "",
		"later version":         "02" + goldenBody[2:],
		"kind 0":                "0101015401000000",
		"later kind":            "0101015401110000",
		"string out of range":   "01010154010105000000",
		"later flag":            "0102015401470104000104000002",
		"bytes behind":          goldenBody + "00",
		"count without content": "01ffffffff0f",
		"ops without content":   "0100ffff0f",
		"delete that overflows": "01010154010100feffffffffffffffff01ffffffffffffffff7f",
	} {
		t.Run(name, func(t *testing.T) {
			b, err := hex.DecodeString(give)
			if err != nil {
				t.Fatal(err)
			}
			ops, err := DecodeOps(b)
			var e *FormatError
			if !errors.As(err, &e) {
				t.Errorf("got %v, %v, want a FormatError", ops, err)
			}
			if name == "later version" && e.Version != 2 {
				t.Errorf("version is %d, want 2", e.Version)
			}
		})
	}
}

func TestOperationsComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ops []Op
		for range rapid.IntRange(0, 40).Draw(t, "n") {
			op := drawOp(t, rapid.Int64Range(100, 1<<40).Draw(t, "end"))
			op.Topic = rapid.StringN(1, 20, 100).Draw(t, "topic")
			ops = append(ops, op)
		}
		b, err := AppendOps(nil, ops)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeOps(b)
		if err != nil {
			t.Fatal(err)
		}
		if len(ops)+len(got) > 0 && !reflect.DeepEqual(got, ops) {
			t.Fatalf("got %+v, want %+v", got, ops)
		}
	})
}

func FuzzDecodeOps(f *testing.F) {
	golden, err := hex.DecodeString(goldenBody)
	if err != nil {
		f.Fatal(err)
	}
	waiting, err := hex.DecodeString(goldenWaitingBody)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(waiting)
	f.Add(golden)
	f.Add(golden[:len(golden)/2])
	f.Add(append(golden, golden...))
	f.Add([]byte{})
	f.Add([]byte{opsVersion})
	f.Add([]byte{opsVersion, 0, 0})
	f.Add([]byte{opsVersion, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	for _, g := range goldenLone {
		lone, _ := hex.DecodeString(g.body)
		f.Add(lone)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		ops, err := DecodeOps(b)
		if err != nil {
			var e *FormatError
			if !errors.As(err, &e) || e.Offset < 0 || e.Offset > len(b) {
				t.Fatalf("error is %#v", err)
			}
			return
		}
		// What was accepted can be written, and is the same then.
		again, err := AppendOps(nil, ops)
		if err != nil {
			t.Fatalf("%+v was read but cannot be written: %v", ops, err)
		}
		ops2, err := DecodeOps(again)
		if err != nil || len(ops) > 0 && !reflect.DeepEqual(ops, ops2) {
			t.Fatalf("%+v came back as %+v, %v", ops, ops2, err)
		}
		// And applied, whatever it says.
		m := NewMachine(&plainExchange{})
		m.Apply(1<<40, ops)
		m.Message(&Head{Topic: "T", Address: 1<<40 + 1, Size: 1})
		m.Apply(1<<40+2, ops)
		if _, err := Load(m.Save(nil), &plainExchange{}); err != nil {
			t.Fatal(err)
		}
	})
}

// seal adds the checksum, so that the fuzzer gets behind it.
func seal(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// goldenMachine has something of everything.
func goldenMachine() *Machine {
	m := NewMachine(&plainExchange{})
	m.Apply(1, goldenOps[:3])
	m.Message(&Head{Topic: "Trade", Address: 1000, Position: 1000, Size: 7, Properties: []byte("created")})
	m.Message(&Head{Topic: "Trade", Address: 1200, Position: 1100, Size: 7, Properties: []byte("created")})
	m.Apply(1300, goldenOps[4:5])
	m.Apply(1400, goldenOps[9:])
	m.Half(&Head{Topic: "Trade", Address: 1500, Position: 1500, Size: 7}, 99)
	m.Delay(&Head{Topic: "Trade", Address: 1600, Position: 1600, Size: 7}, 98, ViewDelay)
	m.Apply(1700, goldenWaiting)
	return m
}

func FuzzLoad(f *testing.F) {
	whole := goldenMachine().Save(nil)
	body := whole[:len(whole)-4]
	f.Add(body)
	f.Add(body[:len(body)/2])
	f.Add(rowsForm(goldenMachine()))
	f.Add(append(append([]byte{}, body...), body...))
	f.Add([]byte{})
	f.Add([]byte(snapshotMagic))
	f.Add(append([]byte(snapshotMagic), snapshotVersion, 0xff, 0xff, 0xff, 0xff, 0x0f))
	f.Fuzz(func(t *testing.T, b []byte) {
		x := &plainExchange{}
		m, err := Load(seal(b), x)
		if err != nil {
			var e *SnapshotError
			if !errors.As(err, &e) || len(x.lives) > 0 {
				t.Fatalf("error is %#v, exchange was told %v", err, x.lives)
			}
			return
		}
		saved := m.Save(nil)
		again, err := Load(saved, &plainExchange{})
		if err != nil {
			t.Fatal(err)
		}
		if string(again.Save(nil)) != string(saved) {
			t.Fatal("a snapshot of a snapshot differs")
		}
		m.Apply(math.MaxInt64, goldenOps)
	})
}

func TestSnapshotOfAnotherKindIsRefused(t *testing.T) {
	good := NewMachine(nil).Save(nil)
	if _, err := Load(good, nil); err != nil {
		t.Fatal(err)
	}
	bit := append([]byte{}, good...)
	bit[len(bit)/2] ^= 4
	later := append([]byte{}, good[:len(good)-4]...)
	later[len(snapshotMagic)] = snapshotVersion + 1
	for name, b := range map[string][]byte{"empty": nil, "cut off": good[:len(good)-1], "one bit": bit, "later version": seal(later)} {
		var e *SnapshotError
		if _, err := Load(b, nil); !errors.As(err, &e) || (name == "later version") != (e.Version == snapshotVersion+1) {
			t.Errorf("%s: got %#v", name, err)
		}
	}
}

// What an earlier version has restated is read: rows of the table behind parts of no length.
func TestSnapshotOfRowsIsRead(t *testing.T) {
	m := goldenMachine()
	old := rowsForm(m)
	again, err := Load(seal(old), &plainExchange{})
	if err != nil {
		t.Fatal(err)
	}
	if string(again.Save(nil)) != string(m.Save(nil)) {
		t.Error("it is another state")
	}
	for n := range old {
		if _, err := Load(seal(old[:n]), nil); err == nil {
			t.Errorf("%d of %d bytes are read", n, len(old))
		}
	}
}

// rowsForm is a state as rowsVersion has it, without the checksum.
func rowsForm(m *Machine) []byte {
	head := m.head(nil)
	b := append([]byte(snapshotMagic), rowsVersion)
	b = append(append(b, head[len(snapshotMagic)+5:]...), 0, 0, 0, 0, 0)
	at, n, rows := len(b), uint64(0), []byte(nil)
	from, to := keyOf(0, 0, 0, 0, 0), keyOf(math.MaxInt32, 0, 0, 0, 0)
	m.table.Scan(&from, &to, func(k *[KeyBytes]byte, v *[ValueBytes]byte) bool {
		n++
		rows = append(append(rows, k[:]...), v[:]...)
		return true
	})
	b = append(binary.AppendUvarint(b, n), rows...)
	binary.LittleEndian.PutUint32(b[at-4:], uint32(len(b)-at))
	return b
}
