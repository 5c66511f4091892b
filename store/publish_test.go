package store_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
	"github.com/fusionmq/fusionmq/store/view"
)

// retryOf is a publish of a message for a pull group.
func retryOf(r store.Result, topic, group string, attempt int32) state.Op {
	return state.Op{Kind: state.OpPublish, Topic: topic, Group: group, First: r.Address, View: &state.View{
		Kind: state.ViewRetry, Topic: meta.RetryPrefix + group, Position: r.Address, Size: r.Size, TagsCode: 2598919, Reconsume: attempt, Level: attempt + 2,
	}}
}

func TestPublishedViewsAreInTheirQueueAtOnce(t *testing.T) {
	for _, d := range []meta.Durability{meta.Async, meta.Sync} {
		t.Run(d.String(), func(t *testing.T) {
			o := store.Options{FS: vfs.NewMem(), Dir: "/s"}
			s := open(t, o)
			addTopic(t, s, "T", d)
			addTopic(t, s, meta.RetryPrefix+"g", d)
			var ops []state.Op
			for i := range 20 {
				r := send(t, s, "T", 0, fmt.Sprintf("m%d", i))
				ops = append(ops, retryOf(r, "T", "g", int32(i)))
			}
			operate(t, s, ops[:7]...)
			operate(t, s, ops[7])
			operate(t, s, ops[8:]...)
			want := bodies(t, s, "T", 0)
			for reopened := range 3 {
				if got := bodies(t, s, meta.RetryPrefix+"g", 0); !slices.Equal(got, want) {
					t.Fatalf("opened again %d times: the retry queue has %q, want %q", reopened, got, want)
				}
				es := make([]store.TopicEntry, 32)
				n := s.ReadTopic(meta.RetryPrefix+"g", 0, es)
				for i, e := range es[:n] {
					if i > 0 && e.Address <= es[i-1].Address || e.Position == e.Address {
						t.Fatalf("entry %d is %+v behind %+v", i, e, es[i-1])
					}
					// Its address finds it again, and no place beside it does.
					byAddress, b, release, err := s.EntryAt(e.Address)
					if err != nil || byAddress != e {
						t.Fatalf("entry at %d: %+v, %v, want %+v", e.Address, byAddress, err, e)
					}
					direct, _, err := s.Record(e.Entry)
					if err != nil || !bytes.Equal(direct, b) {
						t.Fatalf("record of %+v: %v", e, err)
					}
					release()
					for _, at := range []int64{e.Address - 1, e.Address + 1} {
						if _, _, _, err := s.EntryAt(at); !errors.Is(err, store.ErrNotAddress) {
							t.Fatalf("entry at %d, which is no address: %v", at, err)
						}
					}
				}
				stop(t, s)
				if reopened == 1 { // only the log is left
					dropViews(t, o.FS, o.Dir)
				}
				s = open(t, o)
			}
		})
	}
}

func TestViewsShowWhatTheirTableSays(t *testing.T) {
	s := open(t, store.Options{FS: vfs.NewMem(), Dir: "/s"})
	addTopic(t, s, "T", meta.Async)
	r := send(t, s, "T", 3, "body")
	operate(t, s, retryOf(r, "T", "g", 2))
	es := make([]store.TopicEntry, 4)
	if n := s.ReadTopic("%RETRY%g", 0, es); n != 1 {
		t.Fatalf("%d entries in the retry topic", n)
	}
	b, _, err := s.Record(es[0].Entry)
	if err != nil {
		t.Fatal(err)
	}
	v, err := record.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for n, value := range record.Properties(v.Properties()) {
		got[string(n)] = string(value)
	}
	want := map[string]string{
		"TAGS": "TagA", "RETRY_TOPIC": "T", "DELAY": "4", "WAIT": "false", "REAL_TOPIC": "%RETRY%g", "REAL_QID": "0",
		"ORIGIN_MESSAGE_ID": record.OffsetID(v.StoreHost(), r.Address),
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("properties (-want +got):\n%s", d)
	}
	if v.ReconsumeTimes() != 2 || string(v.Body()) != "body" || v.CheckBody() != nil || v.QueueID() != 0 || v.PhysicalOffset() != es[0].Address {
		t.Errorf("view is %+v: reconsumed %d times, body %q", v, v.ReconsumeTimes(), v.Body())
	}
}

func TestViewKindsHaveOneNumber(t *testing.T) {
	for a, b := range map[state.ViewKind]view.Kind{
		state.ViewCommit: view.Commit, state.ViewDelay: view.Delay, state.ViewTimer: view.Timer,
		state.ViewRetry: view.Retry, state.ViewDead: view.Dead, state.ViewAside: view.Aside, state.ViewRevive: view.Revive,
	} {
		if uint8(a) != uint8(b) {
			t.Errorf("kind %d of the state is %d of the table", a, b)
		}
	}
}

// A body may hold anything, an operate-queue record too: what is not in the index is no address.
func TestLaw9ForgedViewIsNoAddress(t *testing.T) {
	s := open(t, store.Options{FS: vfs.NewMem(), Dir: "/s"})
	addTopic(t, s, "T", meta.Async)
	r := send(t, s, "T", 0, "real")
	operate(t, s, retryOf(r, "T", "g", 1))
	es := make([]store.TopicEntry, 1)
	s.ReadTopic("%RETRY%g", 0, es)
	next := s.Bounds().Max
	const head = 88 // of the record that carries it
	f := record.Fields{Topic: store.OQTopic, Flag: 1, PhysicalOffset: next + head, StoreTime: 1}
	op := retryOf(r, "T", "g", 1)
	op.View.Offset = es[0].QueueOffset
	body, places, err := state.AppendViews(nil, []state.Op{op}, nil)
	if err != nil {
		t.Fatal(err)
	}
	state.SetBack(body[places[0]:], head+places[0])
	f.Body, f.BodyCRC = body, record.CRC(body)
	forged := record.Append(nil, &f)
	binary.BigEndian.PutUint32(forged, uint32(len(forged)))
	got := send(t, s, "T", 0, string(forged))
	if got.Address != next {
		t.Fatalf("message is at %d, not %d", got.Address, next)
	}
	if _, _, _, err := s.EntryAt(next + head + int64(head+places[0])); !errors.Is(err, store.ErrNotAddress) {
		t.Errorf("forged view: %v", err)
	}
}

func TestPublishedMessagesArePushedByTheBindingsOfTheirMoment(t *testing.T) {
	o := store.Options{FS: vfs.NewMem(), Dir: "/s", Exchange: newFanout(), Observer: newLedger()}
	s := open(t, o)
	addTopic(t, s, "T", meta.Async)
	addTopic(t, s, "U", meta.Async)
	r := send(t, s, "T", 0, "early")
	operate(t, s, bindOps("U", "g")...)
	op := retryOf(r, "T", "x", 0)
	op.Kind, op.Group, op.View.Kind, op.View.Topic, op.View.Queue = state.OpPublish, "", state.ViewCommit, "U", 5
	at := operate(t, s, op)
	l := o.Observer.(*ledger)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.owed) != 1 || l.owed[0].Topic != "U" || l.owed[0].Queue != 5 || l.owed[0].Address <= at || l.owed[0].Position != r.Address || !slices.Equal(l.owed[0].Targets, []string{"g"}) {
		t.Errorf("owed are %+v", l.owed)
	}
}

// Law 5: who has been told that a delayed message is cancelled does not get it, though its time comes while the cancel is being written.
func TestLaw5ACancelIsNotOvertakenByThePublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(faulty)
		s := open(t, store.Options{Dir: "/s", FS: f.wrap(vfs.NewMem()), SegmentBytes: 64 << 10})
		addTopic(t, s, "T", meta.Async)
		r := sendWaiting(t, s, store.Message{Topic: "T", Body: []byte("cancelled"), DeliverAt: time.Now().Add(time.Second).UnixMilli()})
		sendWaiting(t, s, store.Message{Topic: "T", Body: []byte("due"), DeliverAt: time.Now().Add(2 * time.Second).UnixMilli()})
		synctest.Wait()
		disk := make(chan struct{})
		f.set(func(o vfs.Op) error {
			if o.Kind == "write" {
				f.mu.Unlock()
				<-disk
				f.mu.Lock()
			}
			return nil
		})
		done := make(chan error)
		go func() { done <- s.CancelDelay(context.Background(), r.Address) }()
		time.Sleep(3 * time.Second) // both are due by now
		close(disk)
		if err := <-done; err != nil {
			t.Errorf("cancel: %v", err)
		}
		time.Sleep(time.Minute)
		same(t, bodies(t, s, "T", 0), []string{"due"})
	})
}
