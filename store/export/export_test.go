package export_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/check"
	"github.com/fusionmq/fusionmq/store/export"
	"github.com/fusionmq/fusionmq/store/internal/fanout"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/rocketmq"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// source is a store with some of everything.
type source struct {
	t  *testing.T
	fs *vfs.Mem
	s  *store.Store
}

func open(t *testing.T, fsys *vfs.Mem) *source {
	t.Helper()
	s, err := store.Open(store.Options{Dir: "/s", FS: fsys, SegmentBytes: 64 << 10, CheckpointBytes: 64 << 10, Exchange: fanout.New()})
	if err != nil {
		t.Fatal(err)
	}
	return &source{t, fsys, s}
}

func (x *source) topic(name string) {
	x.t.Helper()
	c := meta.DefaultTopic(name)
	c.Attributes = map[string]string{meta.DurabilityAttribute: "sync", "message.type": "NORMAL", "queue.type": "BatchCQ", "cleanup.policy": "COMPACTION"}
	if err := x.s.Topics().Put(c); err != nil {
		x.t.Fatal(err)
	}
}

func (x *source) send(m store.Message) store.Result {
	x.t.Helper()
	if m.Properties == nil {
		m.Properties = []byte("TAGS\x01TagA\x02KEYS\x01k\x02")
	}
	var rs [1]store.Result
	x.s.Append([]store.Message{m}, rs[:])
	if rs[0].Err != nil {
		x.t.Fatal(rs[0].Err)
	}
	return rs[0]
}

func (x *source) close() {
	x.t.Helper()
	if err := x.s.Close(); err != nil {
		x.t.Fatal(err)
	}
	if r, err := check.Run(context.Background(), check.Options{Dir: "/s", FS: x.fs, Exchange: fanout.New}); err != nil || r.Err() != nil {
		x.t.Fatalf("check of what is left: %+v, %v", r, err)
	}
}

// message is what a consumer sees of one.
type message struct{ Body, Props string }

// contents reads every queue of a store.
func contents(t *testing.T, s *store.Store) map[string]map[int64]message {
	t.Helper()
	out := map[string]map[int64]message{}
	s.Queues(func(q *queue.Queue) {
		topic := q.Topic().Name()
		if strings.HasPrefix(topic, store.SystemPrefix) {
			return
		}
		low, high := q.Range()
		ms := map[int64]message{}
		for o := low; o < high; o++ {
			var es [1]queue.Entry
			if n, err := q.Read(o, es[:]); n != 1 || err != nil {
				t.Fatal(err)
			}
			b, release, err := s.Record(es[0])
			if err != nil {
				t.Fatal(err)
			}
			v, err := record.Parse(b)
			if err != nil || v.QueueOffset() != o || string(v.Topic()) != topic {
				t.Fatalf("%s/%d at %d: %v", topic, q.ID(), o, err)
			}
			ms[o] = message{string(v.Body()), string(v.Properties())}
			release()
		}
		if len(ms) > 0 {
			out[fmt.Sprint(topic, "/", q.ID())] = ms
		}
	})
	return out
}

// exported reads every queue of an exported directory with its own files.
func exported(t *testing.T, fsys vfs.FS) (map[string]map[int64]message, *rocketmq.Open) {
	t.Helper()
	log, err := rocketmq.OpenSequence(fsys, "/d/commitlog")
	if err != nil {
		t.Fatal(err)
	}
	progress, err := rocketmq.ReadProgress(fsys, "/d")
	if err != nil {
		t.Fatal(err)
	}
	open := rocketmq.NewOpen(progress, state.NewTable())
	out := map[string]map[int64]message{}
	topics, err := fsys.List("/d/consumequeue")
	if err != nil {
		t.Fatal(err)
	}
	byPosition := map[int64]record.View{}
	for _, topic := range topics {
		ids, err := fsys.List(filepath.Join("/d/consumequeue", topic))
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			topic, id := strings.TrimSuffix(topic, "/"), strings.TrimSuffix(id, "/")
			var n int32
			fmt.Sscan(id, &n)
			q, err := rocketmq.OpenQueue(fsys, "/d", topic, n)
			if err != nil {
				t.Fatal(err)
			}
			low, high, err := q.Range()
			if err != nil {
				t.Fatal(err)
			}
			ms := map[int64]message{}
			for o := low; o < high; o++ {
				e, _, err := q.Entry(o)
				if err != nil {
					t.Fatal(err)
				}
				b := make([]byte, e.Size)
				if _, err := log.ReadAt(b, e.Position); err != nil {
					t.Fatal(err)
				}
				v, err := record.Parse(b)
				if err != nil || v.CheckBody() != nil || v.QueueOffset() != o || string(v.Topic()) != topic || v.QueueID() != n || v.PhysicalOffset() != e.Position {
					t.Fatalf("%s/%s at %d: %v", topic, id, o, err)
				}
				ms[o] = message{string(v.Body()), string(v.Properties())}
				byPosition[e.Position] = v
			}
			out[topic+"/"+id] = ms
		}
	}
	for _, at := range slices.Sorted(maps.Keys(byPosition)) {
		open.Record(byPosition[at])
	}
	return out, open
}

func run(t *testing.T, fsys vfs.FS, o export.Options) *export.Summary {
	t.Helper()
	o.Src, o.Dst, o.FS, o.Exchange = "/s", "/d", fsys, fanout.New
	sum, err := export.Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := check.Run(context.Background(), check.Options{Dir: "/d", FS: fsys})
	if err != nil {
		t.Fatal(err)
	}
	if r.Kind != check.RocketMQ || r.Err() != nil || r.Records != sum.Records || r.Entries != sum.Entries {
		t.Errorf("check of the export: %+v\nsummary %+v", r, sum)
	}
	return sum
}

// A directory with nothing but messages is exported as it is: every byte of the log, and so every position and message id.
func TestPlainMessagesKeepTheirPositions(t *testing.T) {
	m := vfs.NewMem()
	x := open(t, m)
	x.topic("A")
	for i := range 500 {
		x.send(store.Message{Topic: "A", Queue: int32(i % 3), Body: bytes.Repeat([]byte{byte(i)}, 400)})
	}
	x.s.Offsets().Commit("g", "A", 1, 17)
	want := contents(t, x.s)
	x.close()
	before := tree(t, m, "/s")
	sum := run(t, m, export.Options{QueueFileBytes: 1000})
	if diff := cmp.Diff(before, tree(t, m, "/s")); diff != "" {
		t.Errorf("the source has changed:\n%s", diff)
	}
	if sum.Moved || sum.Records != 500 || sum.Queues != 3 {
		t.Errorf("summary %+v", sum)
	}
	got, _ := exported(t, m)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("messages (-store +export):\n%s", diff)
	}
	for name, b := range tree(t, m, "/d/commitlog") {
		if a := before[strings.Replace(name, "/d/", "/s/", 1)]; !bytes.Equal([]byte(a), []byte(b)) {
			t.Errorf("%s differs", name)
		}
	}
	topics, _, offsets, err := meta.Open(meta.Config{FS: m, Dir: "/d/config"})
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := offsets.Get("g", "A", 1); n != 17 || !ok {
		t.Errorf("offset %d, %v", n, ok)
	}
	if c := topics.Get("A"); c == nil || c.Attributes[meta.DurabilityAttribute] != "" || c.Attributes["message.type"] != "NORMAL" || len(c.Attributes) != 1 {
		t.Errorf("topic %+v", c)
	}
	for _, name := range []string{"/d/commitlog/fusionmq", "/d/abort", "/d/fusionmq/checkpoint"} {
		if _, err := m.Stat(name); err == nil {
			t.Errorf("%s is there", name)
		}
	}
}

func tree(t *testing.T, fsys vfs.FS, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	names, err := fsys.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		full := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			maps.Copy(out, tree(t, fsys, full))
			continue
		}
		b, err := vfs.ReadFile(fsys, full, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		out[full] = string(b)
	}
	return out
}

// Transactions, delays and what was sent back: everything that consumers saw is there under the same queue offsets, and what waits
// waits in RocketMQ's topics.
func TestViewsBecomeRecordsAndWhatWaitsGoesOn(t *testing.T) {
	m := vfs.NewMem()
	x := open(t, m)
	x.topic("T")
	hour := time.Now().Add(time.Hour).UnixMilli()
	var halves []store.Result
	for i := range 6 {
		halves = append(halves, x.send(store.Message{Topic: "T", Queue: 1, Body: fmt.Appendf(nil, "half %d", i), Half: true, Properties: []byte("TRAN_MSG\x01true\x02PGROUP\x01p\x02")}))
		x.send(store.Message{Topic: "T", Queue: 1, Body: fmt.Appendf(nil, "plain %d", i)})
	}
	ends := []store.HalfEnd{{Address: halves[4].Address, Commit: true}, {Address: halves[0].Address, Commit: true}, {Address: halves[3].Address}}
	x.s.EndHalves(context.Background(), ends)
	for _, e := range ends {
		if e.Err != nil {
			t.Fatal(e.Err)
		}
	}
	x.send(store.Message{Topic: "T", Queue: 0, Body: []byte("level 17"), DelayLevel: 17})
	x.send(store.Message{Topic: "T", Queue: 0, Body: []byte("level 18, first"), DelayLevel: 18})
	cancelled := x.send(store.Message{Topic: "T", Queue: 0, Body: []byte("level 18, taken back"), DelayLevel: 18})
	x.send(store.Message{Topic: "T", Queue: 0, Body: []byte("level 18, last"), DelayLevel: 18})
	x.send(store.Message{Topic: "T", Queue: 2, Body: []byte("timer"), DeliverAt: hour})
	if err := x.s.CancelDelay(context.Background(), cancelled.Address); err != nil {
		t.Fatal(err)
	}
	back := x.send(store.Message{Topic: "T", Queue: 3, Body: []byte("sent back")})
	dead := x.send(store.Message{Topic: "T", Queue: 3, Body: []byte("dead letter")})
	if _, err := x.s.SendBack(context.Background(), store.SendBack{Group: "pull", Address: back.Address, Level: 17, Most: 16}); err != nil {
		t.Fatal(err)
	}
	if isDead, err := x.s.SendBack(context.Background(), store.SendBack{Group: "pull", Address: dead.Address, Level: -1, Most: 16}); err != nil || !isDead {
		t.Fatal(err)
	}
	if err := x.s.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	want := contents(t, x.s)
	x.close()

	sum := run(t, m, export.Options{})
	if !sum.Moved || sum.Halves != 3 || sum.Delays != 5 || sum.Unreadable != 0 {
		t.Errorf("summary %+v", sum)
	}
	got, open := exported(t, m)
	// Copies and marks lie behind what the store has.
	for name, ms := range want {
		for o, w := range ms {
			if got[name][o] != w {
				t.Errorf("%s at %d is %+v, want %+v", name, o, got[name][o], w)
			}
		}
	}
	for name := range got {
		if topic, _, _ := strings.Cut(name, "/"); topic != rocketmq.TimerTopic && topic != rocketmq.OpTopic && len(got[name]) != len(want[name]) {
			t.Errorf("%s has %d messages, want %d", name, len(got[name]), len(want[name]))
		}
	}
	var undecided []string
	for h := range open.Halves() {
		if h.RealTopic != "T" || h.RealQueue != 1 || h.CommittedAt >= 0 {
			t.Errorf("half %+v", h)
		}
		undecided = append(undecided, got[rocketmq.HalfTopic+"/0"][h.QueueOffset].Body)
	}
	if diff := cmp.Diff([]string{"half 1", "half 2", "half 5"}, undecided); diff != "" {
		t.Errorf("undecided (-want +got):\n%s", diff)
	}
	var waits []string
	for d := range open.Delays() {
		name := rocketmq.TimerTopic + "/0"
		if d.Level > 0 {
			name = fmt.Sprint(rocketmq.ScheduleTopic, "/", d.Level-1)
			q, err := rocketmq.OpenQueue(m, "/d", rocketmq.ScheduleTopic, int32(d.Level-1))
			if err != nil {
				t.Fatal(err)
			}
			if e, ok, err := q.Entry(d.QueueOffset); err != nil || !ok || e.Tags != d.Due {
				t.Errorf("entry %+v of %+v", e, d)
			}
		}
		if left := d.Due - time.Now().UnixMilli(); left < 50*60_000 || left > 121*60_000 {
			t.Errorf("%+v is due in %d ms", d, left)
		}
		waits = append(waits, fmt.Sprintf("%s: %s for %s/%d", name, got[name][d.QueueOffset].Body, d.RealTopic, d.RealQueue))
	}
	slices.Sort(waits)
	// The delays of level 18 have a hole, where one was taken back: they go on as timers.
	if diff := cmp.Diff([]string{
		"SCHEDULE_TOPIC_XXXX/16: level 17 for T/0",
		"rmq_sys_wheel_timer/0: level 18, first for T/0",
		"rmq_sys_wheel_timer/0: level 18, last for T/0",
		"rmq_sys_wheel_timer/0: sent back for %RETRY%pull/0",
		"rmq_sys_wheel_timer/0: timer for T/2",
	}, waits); diff != "" {
		t.Errorf("what waits (-want +got):\n%s", diff)
	}
}

// A push group goes on as a pull group at the first message that it is owed.
func TestPushGroupsGetOffsets(t *testing.T) {
	m := vfs.NewMem()
	x := open(t, m)
	x.topic("P")
	bind := func(group string) []state.Op {
		return []state.Op{{Kind: state.OpBind, Topic: "P", Group: group, Binding: state.Binding{Kind: state.BindFanout}}}
	}
	operate := func(ops ...state.Op) {
		t.Helper()
		at, err := x.s.Operate(ops)
		if err == nil {
			err = x.s.WaitApplied(context.Background(), at)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	operate(append(bind("attached"), state.Op{Kind: state.OpAttach, Topic: "P", Group: "attached"})...)
	x.send(store.Message{Topic: "P", Queue: 0, Body: []byte("0")})
	operate(bind("offline")...)
	a := x.send(store.Message{Topic: "P", Queue: 0, Body: []byte("1")})
	x.send(store.Message{Topic: "P", Queue: 0, Body: []byte("2")})
	operate(state.Op{Kind: state.OpDelete, Topic: "P", First: 0, Last: a.Address})
	x.close()
	sum := run(t, m, export.Options{})
	if sum.PushGroups != 2 {
		t.Errorf("summary %+v", sum)
	}
	_, _, offsets, err := meta.Open(meta.Config{FS: m, Dir: "/d/config"})
	if err != nil {
		t.Fatal(err)
	}
	for group, want := range map[string]int64{"attached": 2, "offline": 1} {
		if n, _ := offsets.Get(group, "P", 0); n != want {
			t.Errorf("%s goes on at %d, want %d", group, n, want)
		}
	}
}

// A link from elsewhere leads into the source as well.
func TestADestinationInsideTheSourceIsRefusedThroughLinks(t *testing.T) {
	dir := t.TempDir()
	src, link := filepath.Join(dir, "src"), filepath.Join(dir, "link")
	if err := os.Mkdir(src, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(src, link); err != nil {
		t.Fatal(err)
	}
	for _, o := range []export.Options{
		{Src: src, Dst: filepath.Join(link, "a", "b")},
		{Src: link, Dst: filepath.Join(src, "a")},
	} {
		if _, err := export.Run(context.Background(), o); !errors.Is(err, export.ErrInside) {
			t.Errorf("from %s to %s: %v", o.Src, o.Dst, err)
		}
	}
	if names, err := os.ReadDir(src); err != nil || len(names) > 0 {
		t.Errorf("the source has %v afterwards, %v", names, err)
	}
	// A name that only begins like the source's is outside.
	if _, err := export.Run(context.Background(), export.Options{Src: src, Dst: src + "2"}); err == nil || errors.Is(err, export.ErrInside) {
		t.Errorf("beside the source: %v", err)
	}
}

func TestUnusableDirectoriesAreRefused(t *testing.T) {
	m := vfs.NewMem()
	x := open(t, m)
	x.topic("A")
	x.send(store.Message{Topic: "A", Body: []byte("x")})
	o := export.Options{Src: "/s", Dst: "/d", FS: m}
	var held *vfs.HeldError
	if _, err := export.Run(context.Background(), o); !errors.As(err, &held) {
		t.Errorf("of a store that is open: %v", err)
	}
	x.close()
	if err := m.MkdirAll("/d"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Create("/d/notes"); err != nil {
		t.Fatal(err)
	}
	if _, err := export.Run(context.Background(), o); !errors.Is(err, export.ErrNotEmpty) {
		t.Errorf("into a directory with something in it: %v", err)
	}
	for _, dst := range []string{"/s/new", "/s/commitlog/new", "/d/../s/x/y"} {
		o.Dst = dst
		if _, err := export.Run(context.Background(), o); !errors.Is(err, export.ErrInside) {
			t.Errorf("into %s: %v", dst, err)
		}
	}
	o.Dst = "/e"
	if _, err := export.Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	if _, err := export.Run(context.Background(), export.Options{Src: "/e", Dst: "/f", FS: m}); !errors.Is(err, export.ErrForeign) {
		t.Errorf("of a RocketMQ directory: %v", err)
	}
	// An export that is interrupted leaves something that no broker starts on.
	ctx, cancel := context.WithCancel(context.Background())
	o = export.Options{Src: "/s", Dst: "/g", FS: vfs.Intercept(m, func(op vfs.Op) error {
		if op.Kind == "create" && strings.HasPrefix(op.Name, "/g/config") {
			return errors.New("no")
		}
		return nil
	})}
	cancel()
	if _, err := export.Run(ctx, o); err == nil {
		t.Error("no error")
	}
	names, err := m.List("/g/commitlog")
	if err != nil || !slices.ContainsFunc(names, func(n string) bool { return strings.Trim(n, "0123456789") != "" }) {
		t.Errorf("left: %v, %v", names, err)
	}
}

// Law 5: what waits goes along when its segment has gone and its record was moved, also when all that waits in the segments that are left
// can stay where it is.
func TestLaw5WhatWasMovedIsExported(t *testing.T) {
	m := vfs.NewMem()
	var ms atomic.Int64
	ms.Store(1_800_000_000_000)
	clock := func() time.Time { return time.UnixMilli(ms.Load()) }
	s, err := store.Open(store.Options{
		Dir: "/s", FS: m, SegmentBytes: 64 << 10, CheckpointBytes: 64 << 10, Exchange: fanout.New(), Now: clock,
		Retention: store.Retention{Age: time.Hour, Interval: 1000 * time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	x := &source{t, m, s}
	x.topic("T")
	wait := func(body string) {
		x.send(store.Message{Topic: "T", Body: []byte("timer " + body), DeliverAt: clock().Add(30 * 24 * time.Hour).UnixMilli()})
		x.send(store.Message{Topic: "T", Body: []byte("level " + body), DelayLevel: 18})
		x.send(store.Message{Topic: "T", Body: []byte("half " + body), Half: true})
	}
	wait("moved")
	for range 200 {
		x.send(store.Message{Topic: "T", Body: make([]byte, 1000)})
	}
	ms.Add((90 * time.Minute).Milliseconds()) // a level's delay is two hours
	if n, err := s.Clean(); n == 0 || err != nil {
		t.Fatalf("%d segments deleted, %v", n, err)
	}
	wait("left")
	x.close()
	run(t, m, export.Options{Now: clock})
	got, open := exported(t, m)
	var found []string
	for h := range open.Halves() {
		found = append(found, got[rocketmq.HalfTopic+"/0"][h.QueueOffset].Body)
	}
	for d := range open.Delays() {
		name := rocketmq.TimerTopic + "/0"
		if d.Level > 0 {
			name = fmt.Sprint(rocketmq.ScheduleTopic, "/", d.Level-1)
		}
		found = append(found, got[name][d.QueueOffset].Body)
	}
	slices.Sort(found)
	if diff := cmp.Diff([]string{"half left", "half moved", "level left", "level moved", "timer left", "timer moved"}, found); diff != "" {
		t.Errorf("what waits (-want +got):\n%s", diff)
	}
}
