package store_test

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// Law 5: a segment that cannot be opened for a while, because there are too many open files, say, loses nobody a message. Who reads is told
// that another try may succeed, and what groups are owed is found once it can be read.
func TestLaw5WhatCannotBeReadForAWhileIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := newLedger()
		var full atomic.Bool
		var tries atomic.Int64
		fsys := vfs.Intercept(vfs.NewMem(), func(o vfs.Op) error {
			if o.Kind == "openread" && full.Load() {
				tries.Add(1)
				return syscall.EMFILE
			}
			return nil
		})
		s := open(t, store.Options{Dir: "/s", FS: fsys, SegmentBytes: 64 << 10, Exchange: newFanout(), Observer: told, Events: func(store.Event) {}})
		addTopic(t, s, "A", meta.Async)
		operate(t, s, bindOps("A", "g")...)
		first := send(t, s, "A", 0, "first")
		told.owedOf("A", 1)
		settle(t, s)
		time.Sleep(time.Hour) // nobody has read the segment for so long that it is not open any more

		full.Store(true)
		send(t, s, "A", 0, "second")
		var es [1]queue.Entry
		if n, err := s.Queue("A", 0, false).Read(0, es[:]); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if _, _, err := s.Record(es[0]); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, syscall.EMFILE) {
			t.Errorf("the record at %d is read with %v", first.Address, err)
		}
		time.Sleep(time.Minute)
		if n := tries.Load(); n < 10 {
			t.Errorf("%d tries in a minute", n)
		}
		full.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		told.mu.Lock()
		defer told.mu.Unlock()
		if len(told.owed) != 2 {
			t.Errorf("%d messages are owed, want 2", len(told.owed))
		}
	})
}

// When the store is closed while something could not be read for dispatch, no checkpoint speaks for it: the next start finds it.
func TestLaw5WhatCouldNotBeReadAtAStopIsFoundAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		fsys := vfs.Intercept(vfs.NewMem(), func(o vfs.Op) error {
			if o.Kind == "openread" && full.Load() {
				return syscall.EMFILE
			}
			return nil
		})
		o := store.Options{Dir: "/s", FS: fsys, SegmentBytes: 64 << 10, Exchange: newFanout(), Observer: newLedger(), Events: func(store.Event) {}}
		s, err := tryOpen(t, o)
		if err != nil {
			t.Fatal(err)
		}
		addTopic(t, s, "A", meta.Async)
		operate(t, s, bindOps("A", "g")...)
		settle(t, s)
		time.Sleep(time.Hour)
		full.Store(true)
		r := send(t, s, "A", 0, "left out")
		if err := s.Close(); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("Close says %v", err)
		}
		full.Store(false)
		told := newLedger()
		o.Observer, o.Exchange = told, newFanout()
		open(t, o)
		synctest.Wait()
		told.mu.Lock()
		defer told.mu.Unlock()
		if len(told.owed) != 1 || told.owed[0].Address != r.Address {
			t.Errorf("%+v is owed, want the message at %d", told.owed, r.Address)
		}
	})
}
