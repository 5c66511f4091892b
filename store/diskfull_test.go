package store_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

func look(t testing.TB, s *store.Store) int {
	t.Helper()
	n, err := s.Look()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

const diskTotal = 1 << 40

// useDisk sets how much of the disk is used, in percent, with room for a test before it is one more.
func useDisk(m *vfs.Mem, percent int64) { m.SetDisk(diskTotal-diskTotal/100*percent+1<<30, diskTotal) }

func TestAgeDeletesInItsHoursAndOnAFullerDisk(t *testing.T) {
	c, mem := newClock(), vfs.NewMem()
	o := retentionOn(c, mem)
	o.Retention.Hours = []int{(c.now().Hour() + 16) % 24}
	s := open(t, o)
	addTopic(t, s, "A", meta.Async)
	fillTopic(t, s, c, "A", 1, 300)
	settle(t, s)
	useDisk(mem, 75)
	if n := look(t, s); n != 0 {
		t.Errorf("%d segments deleted before their time", n)
	}
	c.pass(75 * time.Minute)
	if n := look(t, s); n != 0 {
		t.Errorf("%d segments deleted outside the hours", n)
	}
	useDisk(mem, 76)
	if n := look(t, s); n == 0 {
		t.Error("nothing deleted above MaxUsed")
	}
	useDisk(mem, 75)
	fillTopic(t, s, c, "A", 1, 300)
	settle(t, s)
	c.pass(11 * time.Hour)
	for look(t, s) != 0 {
		t.Error("segments deleted outside the hours")
	}
	c.pass(30 * time.Minute)
	for range 24 {
		if look(t, s) > 0 {
			return
		}
		c.pass(30 * time.Minute)
	}
	t.Error("nothing deleted in a whole day")
}

// Above the forced level the oldest segments go, as many as it takes, and what groups have lost by that is named (fault STO-27).
func TestForcedCleaningTakesTheOldestAndNamesWhatIsLost(t *testing.T) {
	c, mem := newClock(), vfs.NewMem()
	s := open(t, retentionOn(c, mem))
	addTopic(t, s, "A", meta.Async)
	fillTopic(t, s, c, "A", 1, 600)
	s.Offsets().Commit("g", "A", 0, 3)
	settle(t, s)
	mem.SetDisk(diskTotal*15/100-150<<10, diskTotal)
	if n := look(t, s); n != 3 {
		t.Fatalf("%d segments of 64 KiB deleted, want 3: the disk is 150 KiB above the level", n)
	}
	all, err := s.Expiries(10)
	first, _ := s.Queue("A", 0, false).Range()
	if err != nil || len(all) != 1 || all[0].Reason != "disk" || all[0].First != 3 || all[0].Last != first-1 || all[0].Count != first-3 {
		t.Errorf("expiry records %+v, %v; the queue begins at %d", all, err, first)
	}
	if got := s.Cleaned(); got.Segments != 3 || got.Expired != first-3 || got.Expiries != 1 {
		t.Errorf("counted %+v", got)
	}
	if s.Err() != nil {
		t.Errorf("messages are refused: %v", s.Err())
	}
}

// Messages of a topic that is only pulled wake no dispatcher, and on a disk of a few segments nothing else comes when it is full.
func TestForcedCleaningWaitsForNoDispatcher(t *testing.T) {
	c, mem := newClock(), vfs.NewMem()
	o := retentionOn(c, mem)
	o.FlushInterval, o.CheckpointBytes = time.Millisecond, 64<<20
	s := open(t, o)
	addTopic(t, s, "A", meta.Async)
	fillTopic(t, s, c, "A", 1, 600)
	for b := s.Bounds(); b.Synced < b.Max; b = s.Bounds() {
		time.Sleep(time.Millisecond)
	}
	mem.SetDisk(diskTotal*15/100-150<<10, diskTotal)
	if n := look(t, s); n != 3 {
		t.Fatalf("%d segments of 64 KiB deleted, want 3: the disk is 150 KiB above the level", n)
	}
}

// With nothing left to delete messages are refused, with the measured value and the limit; reads go on, and so does everything once
// there is room, but only below the lower level (faults STO-17, STO-18, STO-19).
func TestFullDiskRefusesMessagesWithTheMeasuredValue(t *testing.T) {
	c, mem := newClock(), vfs.NewMem()
	s := open(t, retentionOn(c, mem))
	addTopic(t, s, "A", meta.Async)
	send(t, s, "A", 0, "before")
	for _, step := range []struct {
		percent int64
		refused bool
	}{{90, false}, {91, true}, {90, true}, {86, true}, {85, false}, {90, false}, {99, true}, {10, false}} {
		useDisk(mem, step.percent)
		look(t, s)
		r := try(s, "A", "x")
		var full *store.DiskFullError
		if refused := errors.As(r.Err, &full); refused != step.refused || r.Err != nil && !refused {
			t.Fatalf("at %d%%: %v", step.percent, r.Err)
		}
		if refused := s.Err() != nil; refused != step.refused {
			t.Errorf("at %d%%: Err is %v", step.percent, s.Err())
		}
		if full != nil && (!errors.Is(r.Err, store.ErrNoSpace) || full.Limit != 90 || !strings.Contains(r.Err.Error(), "more than 90%")) {
			t.Errorf("refused with %v", r.Err)
		}
		if got := bodies(t, s, "A", 0); got[0] != "before" {
			t.Errorf("read %q", got)
		}
	}
	if got := bodies(t, s, "A", 0); len(got) != 5 {
		t.Errorf("%d messages, want 5: refused ones leave nothing", len(got))
	}
}

func TestRetentionOptionsAreChecked(t *testing.T) {
	for _, r := range []store.Retention{
		{MaxUsed: 96}, {MaxUsed: 5}, {ForcedAt: 86}, {RefuseAt: 91}, {ForcedAt: 80, RefuseAt: 80}, {Hours: []int{24}}, {Age: -1}, {ViewWindow: -1}, {Interval: -1}, {MostAtOnce: -1},
	} {
		o := store.Options{Dir: "/s", FS: vfs.NewMem(), Retention: r}
		_, err := store.Open(o)
		found(t, o, "error: .* not exist") // nothing was made
		var f *store.FieldError
		if !errors.As(err, &f) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// A push topic may be kept until it is consumed, at most for as long as it says.
func TestMessagesAreKeptUntilTheyAreConsumed(t *testing.T) {
	for _, keep := range []string{"true", "10h", "", "read"} {
		t.Run(keep, func(t *testing.T) {
			c, mem := newClock(), vfs.NewMem()
			s := open(t, retentionOn(c, mem))
			topic := meta.DefaultTopic("P")
			most := time.Duration(0)
			switch keep {
			case "true", "read":
				topic.Attributes, most = map[string]string{meta.UntilConsumedAttribute: "true"}, 7*24*time.Hour
			case "10h":
				topic.Attributes, most = map[string]string{meta.UntilConsumedAttribute: keep}, 10*time.Hour
			}
			if err := s.Topics().Put(topic); err != nil {
				t.Fatal(err)
			}
			operate(t, s, bindOps("P", "g")[:1]...)
			rs := fillTopic(t, s, c, "P", 1, 300)
			if keep == "read" {
				operate(t, s, opCursor("P", "g", rs[299].Address))
				most = 0
			}
			addTopic(t, s, "A", meta.Async)
			fillTopic(t, s, c, "A", 1, 300)
			settle(t, s)
			c.pass(75 * time.Minute)
			if n := look(t, s); (n == 0) != (most > 0) {
				t.Fatalf("%d segments deleted after the age limit", n)
			}
			if most == 0 {
				return
			}
			c.pass(most - 3*time.Hour)
			if n := look(t, s); n != 0 {
				t.Fatalf("%d segments deleted before %v", n, most)
			}
			c.pass(3 * time.Hour)
			if n := look(t, s); n == 0 {
				t.Fatal("nothing deleted in the end")
			}
		})
	}
	bad := meta.DefaultTopic("B")
	bad.Attributes = map[string]string{meta.UntilConsumedAttribute: "169h"}
	if err := open(t, retention(newClock())).Topics().Put(bad); err == nil {
		t.Error("a topic that is kept for longer than a week is accepted")
	}
}

// The space for moving what is owed in one segment is kept back from everybody else: on a disk that takes no message any more, a
// segment full of owed messages still goes, and nothing of it is lost.
func TestSpaceIsKeptBackForMovingWhatIsOwed(t *testing.T) {
	c, mem := newClock(), vfs.NewMem()
	o := retentionOn(c, mem)
	o.FlushInterval, o.Retention.MostAtOnce = time.Millisecond, 1
	o.CheckpointBytes = 64 << 20 // files of views would take of what is free while it is measured
	s := open(t, o)
	addTopic(t, s, "P", meta.Async)
	operate(t, s, bindOps("P", "g")...)
	const room = 16 * (64 << 10)
	mem.SetDisk(room, room)
	for try(s, "P", strings.Repeat("x", 1000)).Err == nil {
	}
	settle(t, s)
	owed := owedRecords(t, s, []string{"P"})
	free, _, _ := mem.Space("/s")
	if free < 2*64<<10 || len(owed) < 300 {
		t.Fatalf("%d bytes are free when messages are refused, %d are owed", free, len(owed))
	}
	mem.SetDisk(free, free*4) // three quarters are used: by age
	c.pass(24 * time.Hour)
	low := s.Bounds().Min
	if n := clean(t, s); n != 1 || s.Bounds().Min == low {
		t.Fatalf("%d segments deleted", n)
	}
	if diff := cmp.Diff(owed, owedRecords(t, s, []string{"P"})); diff != "" {
		t.Errorf("owed messages (-before +after):\n%s", diff)
	}
	operate(t, s, state.Op{Kind: state.OpDelete, Topic: "P", First: 0, Last: s.Bounds().Max})
	for clean(t, s) > 0 {
	}
	for r := try(s, "P", "taken again"); r.Err != nil; r = try(s, "P", "taken again") {
		time.Sleep(time.Millisecond)
	}
}

// A device that turns read-only refuses messages with the reason, reads go on, the process lives, and all is well again when it
// can be written, without a restart (fault STO-17).
func TestReadOnlyDeviceRefusesAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, mem := newClock(), vfs.NewMem()
		var readOnly atomic.Bool
		o := retentionOn(c, vfs.Intercept(mem, func(op vfs.Op) error {
			switch op.Kind {
			case "create", "open", "remove", "rename", "write", "truncate", "allocate", "zero":
				if readOnly.Load() {
					return fmt.Errorf("%s: %w", op, syscall.EROFS)
				}
			}
			return nil
		}))
		o.Retention.Interval = 10 * time.Second
		s := open(t, o)
		addTopic(t, s, "A", meta.Async)
		addTopic(t, s, "S", meta.Sync)
		var want []string
		for i := range 200 {
			want = append(want, fmt.Sprint(i, strings.Repeat(".", 1000)))
			send(t, s, "A", 0, want[i])
		}
		settle(t, s)
		readOnly.Store(true)
		for range 5 {
			for _, topic := range []string{"A", "S"} {
				if r := try(s, topic, "refused"); !errors.Is(r.Err, store.ErrFailed) || !errors.Is(r.Err, syscall.EROFS) {
					t.Fatalf("append to %s: %v, want the reason", topic, r.Err)
				}
			}
			s.Offsets().Commit("g", "A", 0, 1)
			c.pass(24 * time.Hour) // the cleaner would like to delete
			time.Sleep(11 * time.Second)
			same(t, bodies(t, s, "A", 0), want)
		}
		readOnly.Store(false)
		time.Sleep(time.Second)
		for _, topic := range []string{"A", "S"} {
			if r := try(s, topic, "taken again"); r.Err != nil {
				t.Fatalf("append to %s: %v", topic, r.Err)
			}
		}
		time.Sleep(11 * time.Second)
		if s.Cleaned().Segments == 0 {
			t.Error("no segment was deleted after the device could be written again")
		}
		if got := bodies(t, s, "S", 0); len(got) != 1 {
			t.Errorf("queue of the sync topic: %q", got)
		}
	})
}
