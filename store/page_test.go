package store_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// formatPage is docs/store-format.md. What is tested here reads files by its tables and by nothing else.
type formatPage struct {
	t     *testing.T
	text  string
	paths []*regexp.Regexp
	of    map[string]pageTable // by heading of the section and of the table, as in "fusionmq/index/*.idx: entry, 32 bytes"
}

// pageTable are the fields of something, by name: where it begins and how many bytes it has.
type pageTable struct {
	fields map[string][2]int
	bytes  int // of all, as far as they have a fixed place
}

var pathHoles = strings.NewReplacer(`<20 digits>`, `[0-9]{20}`, `<8 hex digits>`, `[0-9a-f]{8}`, `<milliseconds>`, `[0-9]+`, `<ms>`, `[0-9]+`, ".", `\.`)

func readFormatPage(t *testing.T) *formatPage {
	t.Helper()
	text, err := os.ReadFile("../docs/store-format.md")
	if err != nil {
		t.Fatal(err)
	}
	p := &formatPage{t: t, text: string(text), of: map[string]pageTable{}}
	section, table, next := "", "", 0
	quoted := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case strings.HasPrefix(line, "## "):
			section, table = line[3:], ""
		case !strings.HasPrefix(line, "|"):
			table = ""
		case section == "" && strings.HasPrefix(line, "| `"):
			dir := ""
			for _, m := range quoted.FindAllStringSubmatch(cells[0], -1) {
				name := m[1]
				if name == ".bak" {
					for _, r := range slices.Clone(p.paths[len(p.paths)-3:]) {
						p.paths = append(p.paths, regexp.MustCompile(strings.TrimSuffix(r.String(), "$")+`\.bak$`))
					}
					continue
				}
				if strings.Contains(name, "/") {
					dir = name[:strings.LastIndex(name, "/")+1]
				} else {
					name = dir + name
				}
				p.paths = append(p.paths, regexp.MustCompile("^"+pathHoles.Replace(name)+"$"))
			}
		case len(cells) >= 3 && strings.HasSuffix(cells[0], "offset") && cells[1] == "bytes":
			table, next = section+": "+strings.TrimSuffix(strings.TrimSuffix(cells[0], "offset"), ": "), 0
			table = strings.TrimSuffix(table, ": ")
			if _, twice := p.of[table]; twice {
				t.Errorf("two tables %q", table)
			}
			p.of[table] = pageTable{fields: map[string][2]int{}}
		case table != "" && cells[0] != "---":
			at, err1 := strconv.Atoi(cells[0])
			n, err2 := strconv.Atoi(cells[1])
			if err1 != nil || err2 != nil {
				continue // behind something of any length
			}
			if at != next {
				t.Errorf("%s: a field at %d, the one before ends at %d", table, at, next)
			}
			next = at + n
			name, _, _ := strings.Cut(cells[2], ":")
			x := p.of[table]
			x.fields[strings.Trim(name, "` ")], x.bytes = [2]int{at, n}, next
			p.of[table] = x
			if m := regexp.MustCompile(`(\d+) bytes$`).FindStringSubmatch(table); m != nil && m[1] != fmt.Sprint(next) && next > atoi(m[1]) {
				t.Errorf("%s has %d bytes", table, next)
			}
		}
	}
	return p
}

// version is the number in "version (1 byte, N)" behind some text.
func (p *formatPage) version(behind string) int {
	p.t.Helper()
	m := regexp.MustCompile(regexp.QuoteMeta(behind) + `version \(1 byte, (\d+)\)`).FindStringSubmatch(p.text)
	if m == nil {
		p.t.Fatalf("the page has no version behind %q", behind)
	}
	return atoi(m[1])
}

func atoi(s string) int { n, _ := strconv.Atoi(s); return n }

// number reads a little-endian field.
func (p *formatPage) number(b []byte, table, field string) int64 {
	p.t.Helper()
	f, ok := p.of[table].fields[field]
	if !ok {
		p.t.Fatalf("the page has no field %q in %q: %v", field, table, p.of[table].fields)
	}
	var w [8]byte
	copy(w[:], b[f[0]:f[0]+f[1]])
	return int64(binary.LittleEndian.Uint64(w[:]))
}

func crc32c(b []byte) int64 { return int64(crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))) }

// everything makes a directory that has one of each kind of thing in it.
func everything(t *testing.T, fsys vfs.FS) (want []store.TopicEntry, end int64) {
	t.Helper()
	o := store.Options{
		FS: fsys, Dir: "/s", SegmentBytes: 64 << 10, CheckpointBytes: 64 << 10, Exchange: newFanout(),
		Retention:   store.Retention{Age: time.Hour, Interval: 1000 * time.Hour},
		DelayLevels: []time.Duration{time.Second, 5 * time.Second}, // not RocketMQ's, which are in no file
	}
	o.TailRows(8)
	s, err := tryOpen(t, o)
	if err != nil {
		t.Fatal(err)
	}
	addTopic(t, s, "P", meta.Async)
	if err := s.Groups().Put(meta.DefaultGroup("g")); err != nil {
		t.Fatal(err)
	}
	if err := s.Groups().Put(meta.DefaultGroup("g2")); err != nil {
		t.Fatal(err)
	}
	operate(t, s, bindOps("P", "push")...)
	first := send(t, s, "P", 0, "owed")
	for i := range 20 {
		sendWaiting(t, s, store.Message{Topic: "P", Body: []byte("waits"), DeliverAt: time.Now().Add(time.Duration(i+500) * time.Hour).UnixMilli()})
	}
	f := s.PullFilter("P", sql(t, "n = 7"))
	synctest.Wait()
	for i := range 100 {
		sendWaiting(t, s, store.Message{Topic: "P", Body: []byte(strings.Repeat("x", 1000)), Properties: fmt.Appendf(nil, "n\x01%d\x02", i)})
	}
	synctest.Wait()
	f.Use()
	s.Offsets().Commit("pull", "P", 0, 3)
	settle(t, s)
	time.Sleep(3 * time.Hour)
	if n, err := s.Clean(); n == 0 || err != nil {
		t.Fatal(n, err)
	}
	sendShown(t, s)
	if s.Bounds().Min <= first.Address {
		t.Fatal("no segment went")
	}
	s.Offsets().Commit("pull", "P", 0, 90)
	time.Sleep(10 * time.Second) // offsets are written, twice
	settle(t, s)
	es := make([]store.TopicEntry, 20)
	want = es[:s.ReadTopic("T", 0, es)]
	for _, name := range []string{"abort", "lock"} {
		if _, err := fsys.Stat("/s/" + name); err != nil {
			t.Errorf("%s while the store is open: %v", name, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return want, s.Bounds().Max
}

// Every file that a store leaves is in the table of paths, and nothing is in the table that no store leaves.
func TestEveryFileIsOnTheFormatPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fsys := readFormatPage(t), vfs.NewMem()
		everything(t, fsys)
		used := map[*regexp.Regexp]bool{}
		for name := range contents(t, fsys, "/s") {
			rel, err := filepath.Rel("/s", name)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(p.paths, func(r *regexp.Regexp) bool { return r.MatchString(rel) })
			if i < 0 {
				t.Errorf("%s is not on the page", rel)
				continue
			}
			used[p.paths[i]] = true
		}
		for _, r := range p.paths {
			if s := r.String(); !used[r] && s != "^abort$" && s != "^lock$" && !strings.HasPrefix(s, "^fusionmq/adopt/") { // while it is open, or taken over
				t.Errorf("no file %s", s)
			}
		}
		if len(p.paths) < 10 {
			t.Errorf("%d paths were found on the page", len(p.paths))
		}
	})
}

// The files are what the page's tables of bytes say: read by them alone they give what the store answers.
func TestFilesAreWhatTheFormatPageSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, fsys := readFormatPage(t), vfs.NewMem()
		want, end := everything(t, fsys)
		files := map[string][][]byte{} // by the directory that they are in
		for name, b := range contents(t, fsys, "/s") {
			dir := filepath.Base(filepath.Dir(name))
			if dir == "fusionmq" {
				dir = filepath.Base(name)
			}
			files[dir] = append(files[dir], []byte(b))
		}
		p.checkpoint(files["checkpoint"][0], end)
		p.index(files["index"], want)
		p.bits(files["bits"])
		p.keys(files["keys"], want)
		p.runs(files["state"])
		if n := len(files["checkpoint"]); n != 1 {
			t.Errorf("%d checkpoints", n)
		}
	})
}

func (p *formatPage) magic(b []byte, table, want string) {
	p.t.Helper()
	if p.of[table].bytes < 8 || string(b[:8]) != want {
		p.t.Errorf("%s: begins with %q", table, b[:8])
	}
}

func (p *formatPage) equal(what string, got, want int64) {
	p.t.Helper()
	if got != want {
		p.t.Errorf("%s is %d, want %d", what, got, want)
	}
}

func (p *formatPage) checkpoint(b []byte, end int64) {
	const table = "fusionmq/checkpoint"
	p.magic(b, table, "FMQCKPT\x01")
	p.equal("position", p.number(b, table, "position"), end)
	p.equal("flags", p.number(b, table, "flags; bit 0"), 1)
	n := p.number(b, table, "length of the state")
	state := b[p.of[table].bytes:][:n]
	p.equal("length", int64(len(b)), int64(p.of[table].bytes)+n+4)
	p.equal("checksum", int64(binary.LittleEndian.Uint32(b[len(b)-4:])), crc32c(b[:len(b)-4]))
	if string(state[:8]) != "FMQSTATE" || int(state[8]) != p.version("`FMQSTATE`, ") {
		p.t.Errorf("state begins with %q", state[:9])
	}
	p.equal("checksum of the state", int64(binary.LittleEndian.Uint32(state[n-4:])), crc32c(state[:n-4]))
	if parts := int64(binary.LittleEndian.Uint32(state[9:])); state[13+parts] != 1 {
		p.t.Errorf("form %d of what waits behind %d bytes", state[13+parts], parts)
	}
	at, k := binary.Varint(state[13:])
	now, _ := binary.Varint(state[13+k:])
	if at <= 0 || at >= end || now < 946_684_800_000 { // a bubble begins in 2000
		p.t.Errorf("state at %d, time %d", at, now)
	}
}

func (p *formatPage) index(files [][]byte, want []store.TopicEntry) {
	const head, entry, queue, topic = "fusionmq/index/*.idx: header, 64 bytes", "fusionmq/index/*.idx: entry, 32 bytes", "fusionmq/index/*.idx: queue, 40 bytes", "fusionmq/index/*.idx: topic, 16 bytes"
	got := map[int64]store.TopicEntry{}
	for _, b := range files {
		p.magic(b, head, "FMQIDX\x00\x01")
		p.equal("size of the file", p.number(b, head, "size of the file"), int64(len(b)))
		p.equal("checksum", p.number(b, head, "checksum of bytes 0..59"), crc32c(b[:60]))
		p.equal("entries in a page", p.number(b, head, "entries in a page"), 128)
		entries, queues, topics := p.number(b, head, "entries"), p.number(b, head, "queues"), p.number(b, head, "topics")
		sums := b[64+32*entries:]
		p.equal("checksum of the rest", p.number(b, head, "checksum of everything behind the entries"), crc32c(sums))
		pages := (entries + 127) / 128
		for i := range pages {
			page := b[64+4096*i : min(64+4096*(i+1), 64+32*entries)]
			p.equal("checksum of a page", int64(binary.LittleEndian.Uint32(sums[4*i:])), crc32c(page))
		}
		qs := sums[4*pages:]
		ts := qs[40*queues:]
		names := ts[16*topics:]
		p.equal("bytes of names", p.number(b, head, "bytes of names"), int64(len(names)))
		for i := range topics {
			x := ts[16*i:][:16]
			from := p.number(x, topic, "start of the name in the names")
			if string(names[from:from+p.number(x, topic, "its length")]) != "T" {
				continue
			}
			first := p.number(x, topic, "number of its first queue in the table of queues")
			for k := range p.number(x, topic, "how many queues it has") {
				q := qs[40*(first+k):][:40]
				for n := range p.number(q, queue, "entries in this span") {
					e := b[64+32*(p.number(q, queue, "number of the first entry in the file")+n):][:32]
					te := store.TopicEntry{Queue: int32(p.number(q, queue, "queue number")), QueueOffset: p.number(q, queue, "queue offset of the first of them, or of the next one to come") + n}
					te.Address, te.Position = p.number(e, entry, "address"), p.number(e, entry, "position of the record with the body")
					te.Time, te.Size, te.TagsCode = p.number(e, entry, "publish time, ms since 1970"), int32(p.number(e, entry, "size of the record")), int64(int32(p.number(e, entry, "tags code, signed")))
					got[te.Address] = te
					if start, end := p.number(b, head, "start"), p.number(b, head, "end"); te.Address < start || te.Address >= end {
						p.t.Errorf("entry at %d in a file of [%d, %d)", te.Address, start, end)
					}
				}
			}
		}
	}
	if len(got) != len(want) || len(want) < 5 {
		p.t.Errorf("%d entries of T in index files, want %d", len(got), len(want))
	}
	for _, e := range want {
		if got[e.Address] != e {
			p.t.Errorf("entry %+v is %+v in the file", e, got[e.Address])
		}
	}
}

func (p *formatPage) bits(files [][]byte) {
	const table = "fusionmq/bits/*.bits"
	if len(files) == 0 {
		p.t.Error("no filter bits")
	}
	for _, b := range files {
		p.magic(b, table, "FMQBITS\x01")
		m, f, n := p.number(b, table, "messages m"), p.number(b, table, "filters f"), p.number(b, table, "length t of the topic's name")
		name := string(b[p.of[table].bytes:][:n])
		rest := b[int64(p.of[table].bytes)+n:]
		p.equal("length", int64(len(rest)), 32*f+22*m+4)
		p.equal("checksum", int64(binary.LittleEndian.Uint32(b[len(b)-4:])), crc32c(b[:len(b)-4]))
		messages := rest[32*f:]
		first, last := int64(binary.LittleEndian.Uint64(messages)), int64(binary.LittleEndian.Uint64(messages[22*(m-1):]))
		if name != "P" || f != 1 || first != p.number(b, table, "address of the first message") || last+1 != p.number(b, table, "one more than the address of the last one") {
			p.t.Errorf("%d messages of %q from %d to %d with %d filters", m, name, first, last, f)
		}
	}
}

// pageHash is the hash of a key as the page has it in words.
func pageHash(seed uint64, b []byte) uint64 {
	const A, B, C = 0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3
	mix := func(a, b uint64) uint64 {
		hi, lo := bits.Mul64(a, b)
		return hi ^ lo
	}
	h := mix(seed^A, uint64(len(b))^B)
	for ; len(b) >= 8; b = b[8:] {
		h = mix(h^binary.LittleEndian.Uint64(b), C)
	}
	var rest [8]byte
	copy(rest[:], b)
	return mix(h^binary.LittleEndian.Uint64(rest[:])^A, B)
}

func (p *formatPage) keys(files [][]byte, want []store.TopicEntry) {
	const head = "fusionmq/keys/*.keys: header"
	const seedC = 0x8EBC6AF09C88C6E3
	found := map[int64]bool{}
	for _, b := range files {
		p.magic(b, head, "FMQKEY\x00\x01")
		p.equal("length is of pages", int64(len(b)%4096), 0)
		for page := range slices.Chunk(b, 4096) {
			p.equal("checksum of a page", int64(binary.LittleEndian.Uint32(page[4092:])), crc32c(page[:4092]))
		}
		entries, blocks, start := p.number(b, head, "entries"), p.number(b, head, "blocks of the filter"), p.number(b, head, "start")
		filter := 1 + (blocks+62)/63
		for i := range 2 * len(shownKinds) { // where they are seen, and where they were sent to
			topic := "T"
			if i >= len(shownKinds) {
				i -= len(shownKinds)
				topic = shownKinds[i].topic
			}
			h := pageHash(pageHash(seedC, []byte(topic))|1, fmt.Append(nil, "shown-", i))
			for n := range entries {
				e := b[4096*(filter+n/204)+20*(n%204):][:20]
				var w [8]byte
				copy(w[:], e[8:14])
				if binary.LittleEndian.Uint64(e) != h {
					continue
				}
				found[start+int64(binary.LittleEndian.Uint64(w[:]))] = true
				block, _ := bits.Mul64(h, uint64(blocks))
				bit := h * 0x9E3779B97F4A7C15
				at := b[4096*(1+block/63)+64*(block%63):][:64]
				for range 6 {
					if k := bit & 511; at[k/8]&(1<<(k%8)) == 0 {
						p.t.Errorf("key of message %d is not in the filter", i)
					}
					bit >>= 9
				}
			}
		}
	}
	for _, e := range want {
		if !found[e.Address] {
			p.t.Errorf("key of the message at %d is in no file", e.Address)
		}
	}
}

func (p *formatPage) runs(files [][]byte) {
	const head, row = "fusionmq/state/*.run", "State of the push groups: row"
	delays := map[int64]int64{}
	for _, b := range files {
		p.magic(b, head, "FMQRUN\x00\x01")
		p.equal("size of the file", p.number(b, head, "size of the file"), int64(len(b)))
		p.equal("rows in a page", p.number(b, head, "rows in a page"), 128)
		p.equal("bytes of a row", p.number(b, head, "bytes of a row"), 57)
		p.equal("checksum", p.number(b, head, "checksum of bytes 0..59"), crc32c(b[:60]))
		rows := p.number(b, head, "rows")
		pages := (rows + 127) / 128
		p.equal("checksum of the first keys", p.number(b, head, "checksum of the first keys"), crc32c(b[int64(len(b))-24*pages:]))
		p.equal("length", int64(len(b)), 64+57*rows+4*pages+24*pages)
		for i := range rows {
			r := b[64+57*i+4*(i/128):][:57]
			if r[0] != 1 {
				continue
			}
			at := func(field string) int64 {
				f, ok := p.of[row].fields[field]
				if !ok {
					p.t.Fatalf("no field %q in %v", field, p.of[row].fields)
				}
				n := int64(0)
				for _, c := range r[1:][f[0] : f[0]+f[1]] {
					n = n<<8 | int64(c)
				}
				return n
			}
			if at("space * 2, + 1 in the row by due time. Spaces") == 2*2 {
				switch kind := state.ViewKind(at("of a delay")); {
				case kind != state.ViewDelay && kind != state.ViewTimer && kind != state.ViewCommit:
					p.t.Errorf("a delay is published as %d", kind)
				case kind != state.ViewTimer || at("size; 0") > 1000: // of sendShown
					continue
				}
				delays[at("address; in the row by due time")] = at("due time; of an outcome")
			}
		}
	}
	if len(delays) < 10 {
		p.t.Errorf("%d delays in files", len(delays))
	}
	for address, due := range delays {
		if address < 0 || due < 946_684_800_000+500*3_600_000 {
			p.t.Errorf("the delay at %d is due at %d", address, due)
		}
	}
}

// The other pieces of the page that are text: the mark of the format, and how far the log was synced.
func TestTextFilesAreWhatTheFormatPageSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		_, end := everything(t, fsys)
		files := contents(t, fsys, "/s")
		if got := files["/s/commitlog/fusionmq"]; got != "format 1\nsegment-bytes 65536\n" {
			t.Errorf("mark %q", got)
		}
		line := fmt.Sprintf("synced %d\n", end)
		if got, want := files["/s/config/fusionmq.synced"], fmt.Sprintf("%scrc32c %08x\n", line, crc32c([]byte(line))); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		all := logBytes(t, fsys, "/s")
		var kinds []string
		for at := 0; at+8 < len(all); {
			v, err := record.Parse(all[at:])
			if err != nil {
				at = (at/65536 + 1) * 65536 // the rest of a segment
				continue
			}
			if string(v.Topic()) == store.StateTopic {
				kinds = append(kinds, fmt.Sprintf("state %d %d", v.Body()[0], v.Body()[1]))
			}
			if string(v.Topic()) == store.ExpiryTopic && !bytes.HasPrefix(v.Body(), []byte(`{"group":`)) {
				t.Errorf("expiry record %q", v.Body())
			}
			at += int(v.Size())
		}
		if want := fmt.Sprintf("state %d 1", readFormatPage(t).version("`rmq_sys_fusion_state` | ")); !slices.Contains(kinds, want) {
			t.Errorf("records of restated state: %q, the page says %s", kinds, want)
		}
	})
}
