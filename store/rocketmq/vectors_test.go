package rocketmq_test

import (
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store/internal/vectors"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/rocketmq"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// eachVector runs f for every directory that a real broker wrote, unpacked at /s.
func eachVector(t *testing.T, f func(t *testing.T, fsys vfs.FS, files map[string][]byte, want *vectors.Expected)) {
	for _, name := range vectors.Names {
		t.Run(name, func(t *testing.T) {
			files, want, err := vectors.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			m := vfs.NewMem()
			for n, b := range files {
				if n == rocketmq.WheelFile {
					continue // nearly all of it is a hole
				}
				n = path.Join("/s", n)
				if err := m.MkdirAll(path.Dir(n)); err != nil {
					t.Fatal(err)
				}
				x, err := m.Create(n)
				if err == nil {
					if _, err = x.WriteAt(b, 0); err == nil {
						err = x.Truncate(int64(len(b)))
					}
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			f(t, m, files, want)
		})
	}
}

// records calls f for every record of the log.
func records(t *testing.T, files map[string][]byte, f func(record.View)) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasPrefix(name, "commitlog/") {
			continue
		}
		for b := files[name]; len(b) > 0; {
			v, err := record.Parse(b)
			if err != nil {
				break // the padding or the end
			}
			f(v)
			b = b[v.Size():]
		}
	}
}

func TestConsumeQueuesOfRealBrokers(t *testing.T) {
	eachVector(t, func(t *testing.T, fsys vfs.FS, _ map[string][]byte, want *vectors.Expected) {
		for name, q := range want.ConsumeQueues {
			topic, id, _ := strings.Cut(name, "/")
			n, err := strconv.Atoi(id)
			if err != nil {
				t.Fatal(err)
			}
			x, err := rocketmq.OpenQueue(fsys, "/s", topic, int32(n))
			if err != nil {
				t.Fatal(err)
			}
			if low, high, err := x.Range(); low != 0 || high != q.Entries || err != nil {
				t.Errorf("%s is [%d, %d), %v, want %d entries", name, low, high, err, q.Entries)
			}
		}
		for _, m := range want.Messages {
			if m.ReadFrom != nil {
				continue
			}
			q, err := rocketmq.OpenQueue(fsys, "/s", m.Topic, m.Queue)
			if err != nil {
				t.Fatal(err)
			}
			e, ok, err := q.Entry(m.QueueOffset)
			if !ok || err != nil || e != (rocketmq.Entry{Position: m.Position, Size: m.Size, Tags: m.TagsCode}) {
				t.Errorf("%s/%d at %d: %+v, %v, %v, want position %d size %d code %d", m.Topic, m.Queue, m.QueueOffset, e, ok, err, m.Position, m.Size, m.TagsCode)
			}
			if m.Ext == nil {
				continue
			}
			address, ok := e.Extension()
			if !ok || address != m.Ext.Address-math.MinInt64 {
				t.Fatalf("%s/%d at %d has extension %d, %v, want %d", m.Topic, m.Queue, m.QueueOffset, address, ok, m.Ext.Address)
			}
			u, ok, err := q.Unit(address)
			if !ok || err != nil || u.Tags != m.Ext.TagsCode || u.StoreTime != m.Ext.StoreTime || hex.EncodeToString(u.Bitmap) != m.Ext.Bitmap {
				t.Errorf("%s/%d at %d: unit %+v, %v, %v, want %+v", m.Topic, m.Queue, m.QueueOffset, u, ok, err, m.Ext)
			}
		}
	})
}

func TestKeyIndexesOfRealBrokers(t *testing.T) {
	eachVector(t, func(t *testing.T, _ vfs.FS, files map[string][]byte, want *vectors.Expected) {
		entries, found := 0, 0
		for _, f := range want.IndexFiles {
			x, err := rocketmq.OpenIndex(files["index/"+f.File], vectors.Slots)
			if err != nil {
				t.Fatal(err)
			}
			h := rocketmq.IndexHeader{BeginTime: f.BeginTime, EndTime: f.EndTime, BeginPosition: f.Begin, EndPosition: f.End, SlotsUsed: f.SlotsUsed, Count: f.Count}
			if x.IndexHeader != h {
				t.Errorf("header %+v, want %+v", x.IndexHeader, h)
			}
			for range x.Entries() {
				entries++
			}
			for _, q := range want.QueryByKey {
				var got []int64
				for e := range x.Find(rocketmq.KeyHash(q.Topic, q.Key)) {
					got = append(got, e.Position)
				}
				if len(q.Positions) > 0 {
					found++
					if !slices.Equal(got, q.Positions) {
						t.Errorf("key %s of %s is at %v, want %v", q.Key, q.Topic, got, q.Positions)
					}
				}
			}
		}
		// Every record's keys are in the index, in the order of the log.
		keys := 0
		records(t, files, func(v record.View) { keys += len(rocketmq.Keys(v)) })
		if entries != keys || found == 0 {
			t.Errorf("%d entries for %d keys, %d queries with an answer", entries, keys, found)
		}
	})
}

func TestCheckpointsOfRealBrokers(t *testing.T) {
	eachVector(t, func(t *testing.T, _ vfs.FS, files map[string][]byte, want *vectors.Expected) {
		w := want.Checkpoint
		got, ok := rocketmq.DecodeCheckpoint(files["checkpoint"])
		if !ok || got != (rocketmq.Checkpoint{LogTime: w.LogTime, QueueTime: w.QueueTime, IndexTime: w.IndexTime, MasterFlushed: w.Flushed, Confirm: w.Confirm}) {
			t.Errorf("checkpoint %+v, want %+v", got, w)
		}
		if b := got.Encode(); !slices.Equal(b, files["checkpoint"]) {
			t.Error("encoded again it is another file")
		}
		if b := files["config/timercheck"]; b != nil {
			c, ok := rocketmq.DecodeTimerCheckpoint(b)
			if !ok || !slices.Equal(c.Encode(), b) || !strings.Contains(string(want.ConfigFiles["timercheck"]), fmt.Sprintf(`"last_read_ms": %d`, c.ReadTime)) &&
				!strings.Contains(string(want.ConfigFiles["timercheck"]), fmt.Sprintf(`"last_read_ms":%d`, c.ReadTime)) {
				t.Errorf("timer checkpoint %+v, want %s", c, want.ConfigFiles["timercheck"])
			}
		}
	})
}

func TestTimersOfRealBrokers(t *testing.T) {
	eachVector(t, func(t *testing.T, fsys vfs.FS, files map[string][]byte, want *vectors.Expected) {
		if want.Timer == nil {
			return // 4.9 has none
		}
		var slots []rocketmq.Slot
		wheel := files[rocketmq.WheelFile]
		for i := 0; i+rocketmq.SlotBytes <= len(wheel); i += rocketmq.SlotBytes {
			if s, ok := rocketmq.DecodeSlot(wheel[i:]); ok {
				slots = append(slots, s)
			}
		}
		var wantSlots []rocketmq.Slot
		for _, s := range want.Timer.Slots {
			wantSlots = append(wantSlots, rocketmq.Slot{Time: s.Time, First: s.First, Last: s.Last, Count: s.Count, Magic: s.Magic})
		}
		if diff := cmp.Diff(wantSlots, slots); diff != "" {
			t.Errorf("slots (-want +got):\n%s", diff)
		}
		log, err := rocketmq.OpenSequence(fsys, "/s/"+rocketmq.TimerLogDir)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want.Timer.Log {
			b := make([]byte, log.Size)
			n, err := log.ReadAt(b, w.Position)
			if err != nil {
				t.Fatal(err)
			}
			u, ok, _ := rocketmq.DecodeTimerUnit(b[:n])
			if !ok || u != (rocketmq.TimerUnit{Previous: w.Previous, Magic: w.Magic, WriteTime: w.WriteTime, Delay: w.Delay, Position: w.Message, Size: w.Size, TopicHash: w.TopicHash}) {
				t.Errorf("unit at %d: %+v, want %+v", w.Position, u, w)
			}
		}
	})
}

// What was open when the broker stopped is what the real broker goes on with.
func TestOpenTransactionsAndDelaysOfRealBrokers(t *testing.T) {
	eachVector(t, func(t *testing.T, fsys vfs.FS, files map[string][]byte, want *vectors.Expected) {
		p, err := rocketmq.ReadProgress(fsys, "/s")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.DelayOffsets, p.Levels); diff != "" && len(want.DelayOffsets)+len(p.Levels) > 0 {
			t.Errorf("delay offsets (-want +got):\n%s", diff)
		}
		o := rocketmq.NewOpen(p, state.NewTable())
		looked := 0
		o.Due = func(level int, offset int64) (int64, bool) {
			looked++
			q, err := rocketmq.OpenQueue(fsys, "/s", rocketmq.ScheduleTopic, int32(level-1))
			if err != nil {
				t.Fatal(err)
			}
			e, ok, err := q.Entry(offset)
			if err != nil || !ok {
				t.Fatalf("level %d at %d: %v", level, offset, err)
			}
			due, ok, err := q.Tags(e)
			if err != nil || !ok {
				t.Fatalf("level %d at %d: %v", level, offset, err)
			}
			return due, true
		}
		due := map[int64]int64{} // by position, as the log alone says
		alone := rocketmq.NewOpen(p, state.NewTable())
		records(t, files, func(v record.View) {
			o.Record(v)
			alone.Record(v)
		})
		for d := range alone.Delays() {
			due[d.Position] = d.Due
		}
		halves := slices.Collect(o.Halves())
		if len(halves) != len(want.Halves) {
			t.Fatalf("halves %+v, want %+v", halves, want.Halves)
		}
		for i, w := range want.Halves {
			h := halves[i]
			committed := int64(-1)
			if w.CommittedAt != nil {
				committed = *w.CommittedAt
			}
			if h.QueueOffset != w.QueueOffset || h.Position != w.Position || h.RealTopic != w.RealTopic || fmt.Sprint(h.RealQueue) != w.RealQueue || h.CommittedAt != committed {
				t.Errorf("half %+v, want %+v", h, w)
			}
		}
		var levels, timers []rocketmq.Delay
		for d := range o.Delays() {
			if d.Due != due[d.Position] {
				t.Errorf("%+v is due at %d by the log alone", d, due[d.Position])
			}
			if d.Level > 0 {
				levels = append(levels, d)
			} else {
				timers = append(timers, d)
			}
		}
		if len(levels) != len(want.Delays) || looked != len(levels) {
			t.Fatalf("delays %+v, want %+v", levels, want.Delays)
		}
		for _, w := range want.Delays {
			if !slices.ContainsFunc(levels, func(d rocketmq.Delay) bool {
				return d.Level == w.Level && d.QueueOffset == w.QueueOffset && d.Position == w.Position && d.RealTopic == w.RealTopic && fmt.Sprint(d.RealQueue) == w.RealQueue
			}) {
				t.Errorf("delay %+v is not in %+v", w, levels)
			}
		}
		// Of the timers of these directories, that of 2 s was delivered and that of 3 h recalled.
		var open []string
		for _, d := range timers {
			for _, m := range want.Messages {
				if m.Position == d.Position && m.Topic == rocketmq.TimerTopic {
					open = append(open, m.Keys+" "+m.Properties[rocketmq.PropTimerOut])
					if fmt.Sprint(d.Due) != m.Properties[rocketmq.PropTimerOut] || d.RealTopic != m.Properties[rocketmq.PropRealTopic] {
						t.Errorf("timer %+v of %+v", d, m)
					}
				}
			}
		}
		t.Log(open)
		wantOpen := 0
		if want.Timer != nil && len(want.Timer.Log) > 0 {
			wantOpen = 3
		}
		if len(open) != wantOpen {
			t.Errorf("timers %v, want %d", open, wantOpen)
		}
	})
}

func TestLightQueuesOfRealBrokers(t *testing.T) {
	eachVector(t, func(t *testing.T, _ vfs.FS, files map[string][]byte, want *vectors.Expected) {
		ends := map[string]int64{}
		records(t, files, func(v record.View) {
			for _, q := range rocketmq.LightQueues(v) {
				if q.Offset != ends[q.Name] {
					t.Errorf("%s has offset %d after %d", q.Name, q.Offset, ends[q.Name])
				}
				ends[q.Name]++
			}
		})
		wantEnds := map[string]int64{}
		for _, q := range want.Topics {
			if strings.HasPrefix(q.Topic, rocketmq.LightPrefix) {
				wantEnds[q.Topic] = q.Max
			}
		}
		if diff := cmp.Diff(wantEnds, ends); diff != "" {
			t.Errorf("light queues (-want +got):\n%s", diff)
		}
	})
}

// A client of a broker that has light queues off may have written anything.
func TestLightQueuesHaveOffsetsThatOthersFollow(t *testing.T) {
	for offset, want := range map[string]int{"0": 1, "7": 1, "-1": 0, "9223372036854775807": 0, "9223372036854775806": 0, "9223372036854775808": 0, "x": 0, "": 0} {
		props := record.AppendProperty(nil, rocketmq.PropLight, rocketmq.LightPrefix+"a")
		props = record.AppendProperty(props, rocketmq.PropLightOffsets, offset)
		v, err := record.Parse(record.Append(nil, &record.Fields{Topic: "T", Body: []byte("x"), Properties: props, BornHost: netip.MustParseAddrPort("127.0.0.1:1"), StoreHost: netip.MustParseAddrPort("127.0.0.1:1")}))
		if err != nil {
			t.Fatal(err)
		}
		if got := rocketmq.LightQueues(v); len(got) != want {
			t.Errorf("offset %q: %v", offset, got)
		}
	}
}
