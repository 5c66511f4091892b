package store_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/internal/fanout"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

func newFanout() state.Exchange { return fanout.New() }

// ledger is an observer that keeps what it is told.
type ledger struct {
	mu      sync.Mutex
	news    sync.Cond // on mu
	owed    []state.Owed
	applied []int64
}

func newLedger() *ledger {
	l := new(ledger)
	l.news.L = &l.mu
	return l
}

func (l *ledger) Owed(os []state.Owed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owed = append(l.owed, os...)
	l.news.Broadcast()
}

func (l *ledger) Applied(at int64, _ []state.Op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.applied = append(l.applied, at)
}

// owedOf returns the addresses owed of a topic, in the order they were told, when there are at least n.
func (l *ledger) owedOf(topic string, n int) []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		as := []int64{}
		for _, o := range l.owed {
			if o.Topic == topic {
				as = append(as, o.Address)
			}
		}
		if len(as) >= n {
			return as
		}
		l.news.Wait()
	}
}

func operate(t testing.TB, s *store.Store, ops ...state.Op) int64 {
	t.Helper()
	at, err := s.Operate(ops)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.WaitApplied(context.Background(), at); err != nil {
		t.Fatal(err)
	}
	return at
}

func bindOps(topic, group string) []state.Op {
	return []state.Op{
		{Kind: state.OpBind, Topic: topic, Group: group, Binding: state.Binding{Kind: state.BindFanout, WaterMark: -1}},
		{Kind: state.OpAttach, Topic: topic, Group: group},
	}
}

// settle waits until everything appended has been dispatched and made durable.
func settle(t testing.TB, s *store.Store) {
	t.Helper()
	if err := s.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitApplied(context.Background(), s.Bounds().Max-1); err != nil {
		t.Fatal(err)
	}
}

// A binding takes effect at the position of its record, however far the writer is by the time it is read.
func TestMessagesBehindABindingAreOwedOnceEach(t *testing.T) {
	for _, d := range []meta.Durability{meta.Async, meta.Sync} {
		t.Run(d.String(), func(t *testing.T) {
			told := newLedger()
			s := open(t, store.Options{SegmentBytes: 256 << 10, Exchange: newFanout(), Observer: told})
			const topics, each = 6, 150
			var wg sync.WaitGroup
			var mu sync.Mutex
			addresses := map[string][]int64{}
			since := map[string]int64{}
			for k := range topics {
				topic := fmt.Sprint("T", k)
				addTopic(t, s, topic, d)
				wg.Add(2)
				start, bound := make(chan struct{}), make(chan struct{})
				go func() {
					defer wg.Done()
					// Some messages before the binding, some while it is made, some after it.
					for i, after := 0, 0; after < each/3; i++ {
						if i == each/3 {
							close(start)
						}
						select {
						case <-bound:
							after++
						default:
						}
						var rs [1]store.Result
						s.Append([]store.Message{{Topic: topic, Queue: int32(i % 3), Body: []byte("x")}}, rs[:])
						if rs[0].Err != nil {
							t.Errorf("append: %v", rs[0].Err)
							return
						}
						mu.Lock()
						addresses[topic] = append(addresses[topic], rs[0].Address)
						mu.Unlock()
					}
				}()
				go func() {
					defer wg.Done()
					<-start
					defer close(bound)
					at, err := s.Operate(bindOps(topic, "g"))
					if err != nil {
						t.Errorf("operate: %v", err)
					}
					mu.Lock()
					since[topic] = at
					mu.Unlock()
				}()
			}
			wg.Wait()
			settle(t, s)
			for k := range topics {
				topic := fmt.Sprint("T", k)
				want := slices.DeleteFunc(addresses[topic], func(a int64) bool { return a < since[topic] })
				if diff := cmp.Diff(want, told.owedOf(topic, len(want))); diff != "" {
					t.Errorf("%s bound at %d, owed (-want +got):\n%s", topic, since[topic], diff)
				}
			}
		})
	}
}

// answers is everything a store says about its topics and push groups.
type answers struct {
	Queues   map[string][]string
	Topics   map[string][]store.TopicEntry
	Bindings []store.GroupBinding
	Cursors  map[string]state.GroupPosition
	Retries  map[string][]state.Retry
	Pending  map[string][]state.Pending
}

func ask(t testing.TB, s *store.Store, topics, groups []string, queues int32) answers {
	t.Helper()
	a := answers{map[string][]string{}, map[string][]store.TopicEntry{}, s.Bindings(), map[string]state.GroupPosition{}, map[string][]state.Retry{}, map[string][]state.Pending{}}
	for _, topic := range topics {
		for id := range queues {
			low, high := int64(0), int64(0)
			if q := s.Queue(topic, id, false); q != nil {
				low, high = q.Range()
			}
			a.Queues[fmt.Sprint(topic, "/", id)] = append([]string{fmt.Sprint(low, " ", high)}, bodies(t, s, topic, id)...)
		}
		es := make([]store.TopicEntry, 10000)
		a.Topics[topic] = es[:s.ReadTopic(topic, 0, es)]
		a.Pending[topic] = s.Pending(topic, 0, 10000)
		for _, group := range groups {
			if p, ok := s.Cursor(topic, group); ok {
				a.Cursors[topic+"@"+group] = p
			}
		}
	}
	for _, group := range groups {
		rs := make([]state.Retry, 1000)
		a.Retries[group] = rs[:s.Retries(group, state.Retry{}, rs)]
	}
	return a
}

// Law 1: views and snapshots are functions of the log. Whatever of them is deleted, the answers are the same.
func TestLaw1DeletedViewsAreRebuiltWithTheSameAnswers(t *testing.T) {
	dir := t.TempDir()
	o := store.Options{Dir: dir, SegmentBytes: 64 << 10, CheckpointBytes: 64 << 10, Exchange: newFanout()}
	s, err := tryOpen(t, o)
	if err != nil {
		t.Fatal(err)
	}
	topics, groups := []string{"A", "B", "C"}, []string{"g", "h"}
	for _, topic := range topics {
		addTopic(t, s, topic, meta.Async)
	}
	operate(t, s, bindOps("A", "g")...)
	var addresses []int64
	for i := range 2000 {
		topic := topics[i%3]
		r := send(t, s, topic, int32(i%4), fmt.Sprint("message ", i))
		if topic == "A" {
			addresses = append(addresses, r.Address)
		}
		if i == 700 {
			operate(t, s, bindOps("A", "h")...)
			operate(t, s, bindOps("B", "h")...)
		}
	}
	operate(t, s, state.Op{Kind: state.OpDelete, Topic: "A", First: addresses[0], Last: addresses[300]})
	operate(t, s, state.Op{Kind: state.OpUpdate, Topic: "A", First: addresses[500], Failed: []state.Failed{{Group: "h", Attempt: 2, Due: 12345}}},
		state.Op{Kind: state.OpRetire, Topic: "A", Group: "g", First: addresses[501]})
	operate(t, s, state.Op{Kind: state.OpDetach, Topic: "B", Group: "h"})
	settle(t, s)
	want := ask(t, s, topics, groups, 4)
	if len(want.Pending["A"]) == 0 || len(want.Retries["h"]) == 0 || len(want.Topics["A"]) < 600 {
		t.Fatalf("the test has nothing to compare: %d pending, %d retries, %d messages", len(want.Pending["A"]), len(want.Retries["h"]), len(want.Topics["A"]))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		delete func() error
	}{
		{"nothing", func() error { return nil }},
		{"the index", func() error { return os.RemoveAll(filepath.Join(dir, "fusionmq", "index")) }},
		{"one index file", func() error {
			names, err := filepath.Glob(filepath.Join(dir, "fusionmq", "index", "*"))
			if err != nil || len(names) < 2 {
				return fmt.Errorf("%d index files, %w", len(names), err)
			}
			return os.Remove(names[1])
		}},
		{"the checkpoint", func() error { return os.Remove(filepath.Join(dir, "fusionmq", "checkpoint")) }},
		{"everything of ours", func() error { return os.RemoveAll(filepath.Join(dir, "fusionmq")) }},
		{"everything, after a crash", func() error {
			if err := os.WriteFile(filepath.Join(dir, "abort"), nil, 0o644); err != nil {
				return err
			}
			return os.RemoveAll(filepath.Join(dir, "fusionmq"))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.delete(); err != nil {
				t.Fatal(err)
			}
			o.Exchange = newFanout()
			s, err := tryOpen(t, o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, ask(t, s, topics, groups, 4)); diff != "" {
				t.Errorf("answers (-want +got):\n%s", diff)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// After a start, what attached groups are still owed is told again.
func TestWindowIsToldAgainAfterAStart(t *testing.T) {
	dir := t.TempDir()
	o := store.Options{Dir: dir, SegmentBytes: 64 << 10, Exchange: newFanout()}
	s, err := tryOpen(t, o)
	if err != nil {
		t.Fatal(err)
	}
	addTopic(t, s, "A", meta.Async)
	operate(t, s, bindOps("A", "g")...)
	var want []int64
	for i := range 400 {
		r := send(t, s, "A", int32(i%2), "x")
		if i >= 5 && (i < 100 || i >= 300) {
			want = append(want, r.Address)
		} else {
			operate(t, s, state.Op{Kind: state.OpDelete, Topic: "A", First: r.Address, Last: r.Address})
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	told := newLedger()
	o.Exchange, o.Observer = newFanout(), told
	s = open(t, o)
	r := send(t, s, "A", 0, "new")
	settle(t, s)
	if diff := cmp.Diff(append(want, r.Address), told.owedOf("A", len(want)+1)); diff != "" {
		t.Errorf("owed after a start (-want +got):\n%s", diff)
	}
	if len(told.owed) > 0 && (told.owed[0].Queue != 1 || told.owed[0].TagsCode != 2598919 || told.owed[0].Time == 0 || !slices.Equal(told.owed[0].Targets, []string{"g"})) {
		t.Errorf("first owed: %+v", told.owed[0])
	}
}

// A group may have ended its bindings while it is attached: what the window owes it is told all the same.
func TestWindowOfAGroupWithoutBindingsIsToldAfterAStart(t *testing.T) {
	o := store.Options{Dir: t.TempDir(), SegmentBytes: 64 << 10, Exchange: newFanout()}
	s, err := tryOpen(t, o)
	if err != nil {
		t.Fatal(err)
	}
	addTopic(t, s, "A", meta.Async)
	ops := bindOps("A", "g")
	operate(t, s, ops...)
	addTopic(t, s, "B", meta.Async)
	operate(t, s, bindOps("B", "h")...)
	want := []int64{send(t, s, "A", 0, "x").Address, send(t, s, "A", 1, "y").Address}
	operate(t, s, state.Op{Kind: state.OpUnbind, Topic: "A", Group: "g", Binding: ops[0].Binding})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	told := newLedger()
	o.Exchange, o.Observer = newFanout(), told
	send(t, open(t, o), "B", 0, "new")
	told.owedOf("B", 1) // comes after all that is told again
	if diff := cmp.Diff(want, told.owedOf("A", 0)); diff != "" {
		t.Errorf("owed after a start (-want +got):\n%s", diff)
	}
}

// A record that went bad below the checkpoint, and that a group is owed, does not keep the store from starting: it is told, so
// that who delivers it counts and names it.
func TestADamagedRecordThatIsOwedDoesNotStopTheStart(t *testing.T) {
	fsys := vfs.NewMem()
	o := store.Options{Dir: "/s", FS: fsys, SegmentBytes: 64 << 10, Exchange: newFanout()}
	s, err := tryOpen(t, o)
	if err != nil {
		t.Fatal(err)
	}
	addTopic(t, s, "A", meta.Async)
	operate(t, s, bindOps("A", "g")...)
	var want []int64
	for range 3 {
		want = append(want, send(t, s, "A", 0, "x").Address)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := fsys.Open("/s/commitlog/00000000000000000000")
	if err == nil {
		_, err = f.WriteAt(make([]byte, 20), want[1])
	}
	if err != nil {
		t.Fatal(err)
	}
	damaged(t, o, fmt.Sprintf("damage log commitlog/0+ at %d: .*, and the log goes on at %d", want[1], want[2]))
	told := newLedger()
	o.Exchange, o.Observer = newFanout(), told
	s = open(t, o)
	settle(t, s)
	if diff := cmp.Diff(want, told.owedOf("A", len(want))); diff != "" {
		t.Errorf("owed after a start (-want +got):\n%s", diff)
	}
	if got := send(t, s, "A", 0, "y"); got.QueueOffset != 3 {
		t.Errorf("the next message gets offset %d, want 3", got.QueueOffset)
	}
}

// Law 2: a message that two groups are owed, one of them tries again, has its body in the log once.
func TestLaw2BodyIsWrittenOnce(t *testing.T) {
	s := open(t, store.Options{SegmentBytes: 1 << 20, Exchange: newFanout()})
	addTopic(t, s, "A", meta.Async)
	operate(t, s, bindOps("A", "g")...)
	operate(t, s, bindOps("A", "h")...)
	body := make([]byte, 10000)
	begin := s.Bounds().Max
	r := send(t, s, "A", 0, string(body))
	for attempt := range int32(10) {
		operate(t, s, state.Op{Kind: state.OpUpdate, Topic: "A", First: r.Address, Failed: []state.Failed{{Group: "g", Attempt: attempt, Due: 1}, {Group: "h", Attempt: attempt, Due: 1}}})
	}
	operate(t, s, state.Op{Kind: state.OpRetire, Topic: "A", Group: "g", First: r.Address}, state.Op{Kind: state.OpRetire, Topic: "A", Group: "h", First: r.Address})
	if grown := s.Bounds().Max - begin; grown > int64(len(body))+11*200+200 {
		t.Errorf("one message of %d bytes with ten attempts took %d bytes of log", len(body), grown)
	}
	if n := s.RetryCount("g") + s.RetryCount("h"); n != 0 {
		t.Errorf("%d retries are left", n)
	}
}
