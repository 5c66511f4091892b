package store_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// namedTwice tells of messages that several expiry records name.
func namedTwice(all []store.Expiry) (twice []string) {
	seen := map[string]bool{}
	for _, e := range all {
		if e.Reason == "body" {
			continue // what lies between the views is not named
		}
		for o := e.First; o <= e.Last; o++ {
			key := fmt.Sprint(e.Face, " ", e.Group, " ", e.Topic, "/", e.Queue, " ", o)
			if seen[key] {
				twice = append(twice, key)
			}
			seen[key] = true
		}
	}
	return twice
}

// Law 5: a deletion that fails behind its expiry records names nothing twice when it is tried again, running or after a start, and what comes in
// addition is named alone.
func TestLaw5ADeletionThatFailsNamesWhatItTakesOnce(t *testing.T) {
	for _, restart := range []bool{false, true} {
		name := "running"
		if restart {
			name = "after a start"
		}
		t.Run(name, func(t *testing.T) {
			c, mem := newClock(), vfs.NewMem()
			var failing atomic.Bool
			o := retentionOn(c, vfs.Intercept(mem, func(op vfs.Op) error {
				if failing.Load() && (op.Kind == "create" || op.Kind == "remove") && strings.Contains(op.Name, "checkpoint") {
					return errors.New("no room for a checkpoint")
				}
				return nil
			}))
			o.Retention.ViewWindow, o.CheckpointBytes, o.Events = time.Hour, 1<<30, func(store.Event) {}
			s, err := tryOpen(t, o)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			for _, topic := range []string{"T", "F"} {
				addTopic(t, s, topic, meta.Async)
			}
			operate(t, s, bindOps("T", "off")...)
			operate(t, s, state.Op{Kind: state.OpDetach, Topic: "T", Group: "off"})
			h := half(t, s, "T", 0, "a view whose body goes early")
			send(t, s, "T", 0, "plain")
			fillTopic(t, s, c, "F", 1, 280)
			if err := endHalf(s, h.Address, true); err != nil {
				t.Fatal(err)
			}
			send(t, s, "T", 0, "plain")
			fillTopic(t, s, c, "F", 1, 300)
			s.Offsets().Commit("p", "F", 0, 3)
			s.Offsets().Commit("p", "T", 0, 0)
			settle(t, s)
			begin := s.Bounds().Min
			try := func(segments int64) {
				t.Helper()
				mem.SetDisk(diskTotal*15/100-(segments*64-10)<<10, diskTotal)
				if n, err := s.Look(); n != 0 || err == nil {
					t.Fatalf("%d segments deleted, %v", n, err)
				}
			}
			failing.Store(true)
			try(1)
			try(2)
			if restart {
				failing.Store(false)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				failing.Store(true)
				o.Exchange = newFanout()
				if s, err = tryOpen(t, o); err != nil {
					t.Fatal(err)
				}
			}
			try(2)
			try(1)
			try(3)
			first := s.Cleaned()
			try(3)
			if got := s.Cleaned(); got.Expired != first.Expired || got.Expiries != first.Expiries {
				t.Errorf("counted %+v, and once more %+v", first, got)
			}
			failing.Store(false)
			if n := look(t, s); n != 3 {
				t.Fatalf("%d segments deleted, want 3", n)
			}
			all, err := s.Expiries(1000)
			if err != nil {
				t.Fatal(err)
			}
			if twice := namedTwice(all); len(twice) > 0 {
				t.Errorf("named twice: %d messages, from %s on", len(twice), twice[0])
			}
			low, _ := s.Queue("F", 0, false).Range()
			got := map[string]int64{}
			for _, e := range all {
				got[fmt.Sprint(e.Face, " ", e.Group, " ", e.Topic, " ", e.Reason)] += e.Count
				if e.Below <= begin || e.Below > s.Bounds().Min {
					t.Errorf("%+v: the log begins at %d", e, s.Bounds().Min)
				}
			}
			if d := cmp.Diff(map[string]int64{
				"pull p F disk": low - 3, "pull p T disk": 1, "pull p T body": 1, "push off T disk": 1, "push off T body": 1,
			}, got); d != "" {
				t.Errorf("messages in expiry records (-want +got):\n%s", d)
			}
		})
	}
}
