package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
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
		_, err := store.Open(store.Options{Dir: "/s", FS: vfs.NewMem(), Retention: r})
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
