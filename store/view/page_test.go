package view_test

import (
	"encoding/binary"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/view"
)

// pageRow is a line of the table of views in docs/store-format.md.
type pageRow struct {
	kind                                         view.Kind
	name, topic, sysFlag, prepared, times, props string
}

func pageRows(t *testing.T) []pageRow {
	t.Helper()
	page, err := os.ReadFile("../../docs/store-format.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(page), "| view kind | of | topic | SYSFLAG | PREPARED_TX_OFFSET | RECONSUMETIMES | properties |\n|---|---|---|---|---|---|---|\n")
	if !ok {
		t.Fatal("docs/store-format.md has no table of views")
	}
	var rows []pageRow
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) != 7 {
			t.Fatalf("a line with %d cells: %s", len(cells), line)
		}
		number, name, _ := strings.Cut(cells[0], " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		rows = append(rows, pageRow{view.Kind(n), name, cells[2], cells[3], cells[4], cells[5], cells[6]})
	}
	return rows
}

// fixed are the fields of a record with IPv4 hosts in front of its body: name, offset, bytes (spec: MessageDecoder).
var fixed = []struct {
	name      string
	at, bytes int
}{
	{"TOTALSIZE", 0, 4}, {"MAGIC", 4, 4}, {"BODYCRC", 8, 4}, {"QUEUEID", 12, 4}, {"FLAG", 16, 4}, {"QUEUEOFFSET", 20, 8}, {"PHYSICALOFFSET", 28, 8},
	{"SYSFLAG", 36, 4}, {"BORNTIMESTAMP", 40, 8}, {"BORNHOST", 48, 8}, {"STORETIMESTAMP", 56, 8}, {"STOREHOST", 64, 8}, {"RECONSUMETIMES", 72, 4},
	{"PREPARED_TX_OFFSET", 76, 8}, {"BODYLEN", 84, 4},
}

var propertyName = regexp.MustCompile("`__[a-z]+`|[0-9]*[A-Z][A-Z]+(_[A-Z]+)*")

// Law 2: what each kind of view changes is what the page says, no less and no more, looked at byte by byte.
func TestLaw2ViewsChangeWhatThePageSays(t *testing.T) {
	body := []byte("the body")
	stored := record.Append(nil, &record.Fields{
		Topic: "stored", Body: body, BodyCRC: record.CRC(body), Flag: 0x01020304, SysFlag: record.FlagCompressed, BornTime: 0x0102030405060708, StoreTime: 0x1112131415161718,
		QueueID: 0x21222324, QueueOffset: 0x3132333435363738, PhysicalOffset: 0x4142434445464748, ReconsumeTimes: 0x51525354, PreparedOffset: 0x6162636465666768,
		Properties: []byte("TAGS\x01a\x02WAIT\x01true\x02DELAY\x017\x02REAL_TOPIC\x01real\x02REAL_QID\x019\x02TRAN_MSG\x01true\x02TRANSACTION_CHECK_TIMES\x014\x02__reason\x01old\x02"),
	})
	v, err := record.Parse(stored)
	if err != nil {
		t.Fatal(err)
	}
	rows := pageRows(t)
	for i, row := range rows {
		if row.kind != view.Kind(i+1) {
			t.Fatalf("line %d is of kind %d", i+1, row.kind)
		}
		t.Run(row.name, func(t *testing.T) {
			s := &view.Show{
				Kind: row.kind, Topic: "shown topic", Queue: 3, QueueOffset: 4, Address: 5, Time: 6, Origin: 7, MessageTopic: "message topic", Reconsume: 8, Level: view.Expired,
			}
			b := view.Append(nil, v, s)
			got, err := record.Parse(b)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]bool{"TOTALSIZE": true, "QUEUEID": true, "QUEUEOFFSET": true, "PHYSICALOFFSET": true, "STORETIMESTAMP": true} // of every view
			flags := int32(0)
			if row.sysFlag != "-" {
				n, err := strconv.Atoi(strings.TrimPrefix(row.sysFlag, "transaction bits "))
				if err != nil {
					t.Fatalf("SYSFLAG: %v", err)
				}
				flags, want["SYSFLAG"] = int32(n), true
			}
			if got.SysFlag() != record.FlagCompressed|flags {
				t.Errorf("SYSFLAG %#x", got.SysFlag())
			}
			prepared := v.PreparedOffset()
			if row.prepared != "-" {
				prepared, want["PREPARED_TX_OFFSET"] = s.Origin, true
			}
			if got.PreparedOffset() != prepared {
				t.Errorf("PREPARED_TX_OFFSET %d", got.PreparedOffset())
			}
			times := v.ReconsumeTimes()
			if row.times != "-" {
				times, want["RECONSUMETIMES"] = s.Reconsume, true
			}
			if got.ReconsumeTimes() != times {
				t.Errorf("RECONSUMETIMES %d", got.ReconsumeTimes())
			}
			for _, f := range fixed {
				if changed := string(b[f.at:f.at+f.bytes]) != string(stored[f.at:f.at+f.bytes]); changed != want[f.name] {
					t.Errorf("%s at %d: changed %v, the page says %v", f.name, f.at, changed, want[f.name])
				}
			}
			if n := int(binary.BigEndian.Uint32(b)); n != len(b) {
				t.Errorf("TOTALSIZE %d of %d bytes", n, len(b))
			}
			if string(b[88:88+len(body)]) != string(body) {
				t.Errorf("body %q", b[88:88+len(body)])
			}
			if at := 88 + len(body); int(b[at]) != len("shown topic") || string(b[at+1:at+1+len("shown topic")]) != "shown topic" {
				t.Errorf("topic %q", b[at:])
			}
			if row.topic == "" {
				t.Error("the page names no topic")
			}
			// The names of properties in capitals are those that the page has in the line, and each one differs.
			before, after := properties(v), properties(got)
			var names, says []string
			for name := range after {
				if before[name] != after[name] {
					names = append(names, name)
				}
			}
			for name := range before {
				if _, ok := after[name]; !ok {
					t.Errorf("property %s is gone", name)
				}
			}
			for _, name := range propertyName.FindAllString(row.props, -1) {
				says = append(says, strings.Trim(name, "`"))
			}
			slices.Sort(names)
			slices.Sort(says)
			if !slices.Equal(names, slices.Compact(says)) {
				t.Errorf("properties %q differ, the page says %q", names, says)
			}
		})
	}
	// There is no kind without a line: the next number is of none, as 200 is.
	next, none := &view.Show{Kind: view.Kind(len(rows) + 1), Reconsume: 8, Level: 1}, &view.Show{Kind: 200, Reconsume: 8, Level: 1}
	if string(view.Append(nil, v, next)) != string(view.Append(nil, v, none)) {
		t.Errorf("kind %d has no line", next.Kind)
	}
}
