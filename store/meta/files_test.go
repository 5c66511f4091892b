package meta

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fusionmq/fusionmq/store/vfs"
)

const dir = "/config"

// tables are the three of one directory, and what was damaged when they were opened.
type tables struct {
	topics  *Topics
	groups  *Groups
	offsets *Offsets
	damages []Damage
}

var clock = time.UnixMilli(1_800_000_000_000)

func open(t testing.TB, fsys vfs.FS) *tables {
	t.Helper()
	x := &tables{}
	var err error
	x.topics, x.groups, x.offsets, err = Open(Config{FS: fsys, Dir: dir, Now: func() time.Time { return clock }, Damaged: func(d Damage) { x.damages = append(x.damages, d) }})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func write(t testing.TB, fsys vfs.FS, name, text string) {
	t.Helper()
	if err := fsys.MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFile(fsys, filepath.Join(dir, name), []byte(text), ""); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, fsys vfs.FS, name string) string {
	t.Helper()
	b, err := vfs.ReadFile(fsys, filepath.Join(dir, name), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func names(t testing.TB, fsys vfs.FS) string {
	t.Helper()
	ns, err := fsys.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(ns, " ")
}

func text(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// TestFilesOfRealBrokers opens config directories that RocketMQ 5.3.3 and 4.9.7 have written (vectors/store), changes each
// table and compares everything that was not changed.
func TestFilesOfRealBrokers(t *testing.T) {
	for _, version := range []string{"5.3.3", "4.9.7"} {
		t.Run(version, func(t *testing.T) {
			fsys := vfs.NewMem()
			before := map[string]map[string]any{}
			for _, name := range []string{TopicTable, GroupTable, OffsetTable} {
				b, err := os.ReadFile(filepath.Join("testdata", version, name))
				if err != nil {
					t.Fatal(err)
				}
				write(t, fsys, name, string(b))
				before[name] = object(t, string(quoteKeys(b)))
			}
			x := open(t, fsys)

			order := x.topics.Get("VecSOrder")
			if order == nil || order.Perm != PermRead || !order.Order || order.ReadQueues != 3 || order.WriteQueues != 2 {
				t.Errorf("VecSOrder is %+v", order)
			}
			special := x.groups.Get("GID_store_special")
			if special == nil || special.ConsumeEnable || special.ConsumeFromMinEnable || special.RetryQueues != 3 || special.RetryMaxTimes != 5 || special.WhichBrokerWhenSlow != 2 {
				t.Errorf("GID_store_special is %+v", special)
			}
			for q, want := range []int64{0, 3, 6} {
				if got, ok := x.offsets.Get("GID_store_pull", "VecS", int32(q)); !ok || got != want {
					t.Errorf("offset of queue %d is %d, %v, want %d", q, got, ok, want)
				}
			}
			if _, ok := x.offsets.Get("GID_store_pull", "VecS", 3); ok {
				t.Error("queue 3 has an offset, the file has none")
			}

			if err := x.topics.Put(DefaultTopic("New")); err != nil {
				t.Fatal(err)
			}
			if err := x.groups.Put(DefaultGroup("GID_new")); err != nil {
				t.Fatal(err)
			}
			x.offsets.Commit("GID_new", "New", 1, 5)
			if err := x.offsets.Persist(); err != nil {
				t.Fatal(err)
			}
			for name, key := range map[string]string{TopicTable: "topicConfigTable", GroupTable: "subscriptionGroupTable", OffsetTable: "offsetTable"} {
				after, was := object(t, read(t, fsys, name)), before[name]
				for field, v := range was {
					if field != key && field != "dataVersion" && !cmp.Equal(after[field], v) {
						t.Errorf("%s: field %s was %v, is %v", name, field, v, after[field])
					}
				}
				rows := after[key].(map[string]any)
				if got, want := len(rows), len(was[key].(map[string]any))+1; got != want {
					t.Errorf("%s has %d entries, want %d", name, got, want)
				}
				for entry, v := range was[key].(map[string]any) {
					for field, want := range v.(map[string]any) {
						if got := rows[entry].(map[string]any)[field]; !cmp.Equal(got, want) {
							t.Errorf("%s: %s of %s was %v, is %v", name, field, entry, want, got)
						}
					}
				}
				if v, ok := was["dataVersion"].(map[string]any); ok {
					if got := after["dataVersion"].(map[string]any); got["counter"] != v["counter"].(float64)+1 || got["timestamp"] != float64(clock.UnixMilli()) {
						t.Errorf("%s: dataVersion was %v, is %v", name, v, got)
					}
				}
			}

			// The same again from our own files.
			y := open(t, fsys)
			if len(x.damages)+len(y.damages) > 0 {
				t.Errorf("damages %v %v", x.damages, y.damages)
			}
			xt, xv := x.topics.All()
			yt, yv := y.topics.All()
			xg, _ := x.groups.All()
			yg, _ := y.groups.All()
			if d := cmp.Diff(text(t, xt), text(t, yt)) + cmp.Diff(text(t, xg), text(t, yg)) + cmp.Diff(xv, yv) + cmp.Diff(x.offsets.All(), y.offsets.All()); d != "" {
				t.Errorf("reading back differs:\n%s", d)
			}
		})
	}
}

func TestFirstWriteKeepsWhatWeDoNotKnow(t *testing.T) {
	fsys := vfs.NewMem()
	write(t, fsys, TopicTable, `{"dataVersion":{"counter":7},"future":[1,{2:3}],"topicConfigTable":{"A":{"topicName":"A","perm":4,"later":{"x":1}}}}`)
	x := open(t, fsys)
	a := *x.topics.Get("A")
	if a.ReadQueues != 16 || string(a.Extra["later"]) != `{"x":1}` {
		t.Fatalf("A is %+v", a)
	}
	c := DefaultTopic("A") // as a request gives it, without the unknown field
	c.Perm = 6
	if err := x.topics.Put(c); err != nil {
		t.Fatal(err)
	}
	want := `{
"dataVersion":{"counter":8,"stateVersion":0,"timestamp":1800000000000},
"future":[1,{"2":3}],
"topicConfigTable":{
"A":{"attributes":{},"later":{"x":1},"order":false,"perm":6,"readQueueNums":16,"topicFilterType":"SINGLE_TAG","topicName":"A","topicSysFlag":0,"writeQueueNums":16}
}
}
`
	if d := cmp.Diff(want, read(t, fsys, TopicTable)); d != "" {
		t.Errorf("file (-want +got):\n%s", d)
	}
	if err := x.topics.Put(c); err != nil {
		t.Fatal(err)
	}
	if _, v := x.topics.All(); v.Counter != 8 {
		t.Errorf("putting the same again made version %d of 8", v.Counter)
	}
}

const (
	goodOffsets  = `{"offsetTable":{"T@G":{0:12}}}`
	olderOffsets = `{"offsetTable":{"T@G":{0:5}}}`
)

// TestDamagedFiles is STO-13: empty or garbage files after a power cut.
func TestDamagedFiles(t *testing.T) {
	damaged := []struct{ name, text string }{
		{"truncated to nothing", ""},
		{"filled with 0xFF", strings.Repeat("\xff", 100)},
		{"cut off", goodOffsets[:20]},
		{"not the table", `{"dataVersion":{}}`},
		{"key without a group", `{"offsetTable":{"T":{0:1}}}`},
		{"queue out of range", `{"offsetTable":{"T@G":{99999999:1}}}`},
	}
	for _, d := range damaged {
		t.Run(d.name+", good backup", func(t *testing.T) {
			fsys := vfs.NewMem()
			write(t, fsys, OffsetTable, d.text)
			write(t, fsys, OffsetTable+".bak", olderOffsets)
			x := open(t, fsys)
			if got, ok := x.offsets.Get("G", "T", 0); !ok || got != 5 {
				t.Fatalf("offset is %d, %v, want the backup's 5", got, ok)
			}
			if len(x.damages) != 1 || x.damages[0].Lost || x.damages[0].Err == nil || x.damages[0].Table != OffsetTable || x.damages[0].File != "/config/"+OffsetTable {
				t.Fatalf("told %+v", x.damages)
			}
			kept := filepath.Base(x.damages[0].Kept)
			if read(t, fsys, kept) != d.text {
				t.Error("the damaged file was not kept")
			}
			if got := read(t, fsys, OffsetTable); got != olderOffsets {
				t.Errorf("the file is %q afterwards, want the backup's %s", got, olderOffsets)
			}
			// The good backup stays until there is a good main file again.
			x.offsets.Commit("G", "T", 0, 6)
			if err := x.offsets.Persist(); err != nil {
				t.Fatal(err)
			}
			if got := read(t, fsys, OffsetTable+".bak"); got != olderOffsets {
				t.Errorf("the first write made the backup %s", got)
			}
			if got, _ := open(t, fsys).offsets.Get("G", "T", 0); got != 6 {
				t.Errorf("offset is %d after a restart, want 6", got)
			}
		})
		t.Run(d.name+", backup too", func(t *testing.T) {
			fsys := vfs.NewMem()
			write(t, fsys, OffsetTable, d.text)
			write(t, fsys, OffsetTable+".bak", d.text)
			x := open(t, fsys)
			if len(x.offsets.All()) != 0 || len(x.damages) != 2 || !x.damages[0].Lost || !x.damages[1].Lost {
				t.Fatalf("offsets %v, told %+v", x.offsets.All(), x.damages)
			}
			x.offsets.Commit("G", "T", 0, 1)
			if err := x.offsets.Persist(); err != nil {
				t.Fatal(err)
			}
			y := open(t, fsys)
			if got, _ := y.offsets.Get("G", "T", 0); got != 1 || len(y.damages) != 0 {
				t.Errorf("offset is %d after a restart, told %+v", got, y.damages)
			}
		})
	}
}

// TestShorterFileHasNoOldTail is STO-14.
func TestShorterFileHasNoOldTail(t *testing.T) {
	fsys := vfs.NewMem()
	x := open(t, fsys)
	for i := range 200 {
		x.offsets.Commit(fmt.Sprintf("GID_%03d", i), "T", 0, int64(i))
	}
	if err := x.offsets.Persist(); err != nil {
		t.Fatal(err)
	}
	for i := range 190 {
		x.offsets.Forget(fmt.Sprintf("GID_%03d", i), "")
	}
	if err := x.offsets.Persist(); err != nil {
		t.Fatal(err)
	}
	table := object(t, read(t, fsys, OffsetTable))["offsetTable"].(map[string]any)
	if len(table) != 10 {
		t.Errorf("the file has %d groups, want 10", len(table))
	}
	if all := open(t, fsys).offsets.All(); len(all) != 10 || all[0] != (Offset{"GID_190", "T", 0, 190}) {
		t.Errorf("after a restart: %v", all)
	}
}

// TestEveryStepOfAWriteMayFail lets each file operation of a change fail once, or the power go there, and opens again.
func TestEveryStepOfAWriteMayFail(t *testing.T) {
	boom := errors.New("boom")
	for _, power := range []bool{false, true} {
		for step := 0; ; step++ {
			mem := vfs.NewMem()
			n, failed := -1, false // -1: not yet
			var crashed *vfs.Mem
			x := open(t, vfs.Intercept(mem, func(op vfs.Op) error {
				if n < 0 {
					return nil
				}
				if n++; n-1 != step {
					return nil
				}
				failed = true
				if power {
					crashed = mem.CrashClone(rand.New(rand.NewPCG(uint64(step), 1)), 0.5)
					return nil
				}
				return boom
			}))
			old := DefaultTopic("T")
			if err := x.topics.Put(old); err != nil {
				t.Fatal(err)
			}
			changed := old
			changed.Perm = PermRead
			n = 0
			err := x.topics.Put(changed)
			n = -1
			if !failed {
				if step < 8 {
					t.Fatalf("a change has %d steps only", step)
				}
				break
			}
			if !power && (err != nil) != (x.topics.Get("T").Perm == 6) {
				t.Errorf("step %d: Put gives %v, perm is %d", step, err, x.topics.Get("T").Perm)
			}
			after := mem
			if power {
				after = crashed
			}
			y := open(t, after)
			if len(y.damages) > 0 {
				t.Errorf("step %d, power %v: damaged %+v", step, power, y.damages)
			}
			got := y.topics.Get("T")
			if got == nil || got.Perm != 6 && got.Perm != PermRead {
				t.Errorf("step %d, power %v: the topic is %+v", step, power, got)
			}
			if power {
				continue
			}
			if err := x.topics.Put(changed); err != nil { // the table goes on
				t.Errorf("step %d: the next Put gives %v", step, err)
			}
			if got := open(t, mem).topics.Get("T").Perm; got != PermRead {
				t.Errorf("step %d: perm is %d after the next Put", step, got)
			}
		}
	}
}

// A main file that is gone while its backup is there is told, since no crash leaves that; with neither there the table is new.
func TestAMissingFileWithABackupIsTold(t *testing.T) {
	fsys := vfs.NewMem()
	write(t, fsys, OffsetTable+".bak", olderOffsets)
	x := open(t, fsys)
	if got, ok := x.offsets.Get("G", "T", 0); !ok || got != 5 {
		t.Errorf("offset is %d, %v, want the backup's 5", got, ok)
	}
	if len(x.damages) != 1 || x.damages[0].Lost || x.damages[0].Kept != "" || !errors.Is(x.damages[0].Err, fs.ErrNotExist) || x.damages[0].File != "/config/"+OffsetTable {
		t.Errorf("told %+v, want one damage of %s", x.damages, OffsetTable)
	}
	y := open(t, fsys)
	if got, ok := y.offsets.Get("G", "T", 0); !ok || got != 5 || len(y.damages) != 0 {
		t.Errorf("after one start offset is %d, %v, and told %+v; want 5 and nothing", got, ok, y.damages)
	}
	if x := open(t, vfs.NewMem()); len(x.damages) != 0 {
		t.Errorf("told %+v of an empty directory", x.damages)
	}
}

// TestLaw4AcknowledgedTopicsSurviveAPowerCut changes topics and offsets, cuts the power at random, and finds every change
// that Put or Persist has acknowledged.
func TestLaw4AcknowledgedTopicsSurviveAPowerCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mem := vfs.NewMem()
		perms := map[string]int32{}
		kept, last := int64(-1), int64(-1)
		for range rapid.IntRange(1, 4).Draw(t, "lives") {
			topics, _, offsets, err := Open(Config{FS: mem, Dir: dir, Damaged: func(d Damage) { t.Fatalf("damaged: %+v", d) }})
			if err != nil {
				t.Fatal(err)
			}
			for name, perm := range perms {
				if c := topics.Get(name); c == nil || c.Perm != perm {
					t.Fatalf("topic %s is %+v, want perm %d", name, c, perm)
				}
			}
			got, ok := offsets.Get("G", "T", 0)
			if kept >= 0 && (!ok || got != kept) {
				t.Fatalf("offset is %d, %v, want %d", got, ok, kept)
			}
			for range rapid.IntRange(0, 6).Draw(t, "changes") {
				if rapid.Bool().Draw(t, "topic") {
					c := DefaultTopic(rapid.SampledFrom([]string{"A", "B", "C"}).Draw(t, "name"))
					c.Perm = rapid.Int32Range(0, 7).Draw(t, "perm")
					if err := topics.Put(c); err != nil {
						t.Fatal(err)
					}
					perms[c.Name] = c.Perm
					continue
				}
				last++
				offsets.Commit("G", "T", 0, last)
				if rapid.Bool().Draw(t, "persist") {
					if err := offsets.Persist(); err != nil {
						t.Fatal(err)
					}
					kept = last
				}
			}
			mem = mem.CrashClone(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2)), rapid.Float64Range(0, 1).Draw(t, "kept"))
		}
	})
}

func TestNothingIsLeftInTheDirectoryButTheFiles(t *testing.T) {
	fsys := vfs.NewMem()
	x := open(t, fsys)
	for _, perm := range []int32{2, 4, 6} {
		c := DefaultTopic("T")
		c.Perm = perm
		if err := x.topics.Put(c); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := names(t, fsys), "topics.json topics.json.bak"; got != want {
		t.Errorf("directory has %q, want %q", got, want)
	}
}
