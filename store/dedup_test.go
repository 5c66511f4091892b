package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// handClock is moved by the test.
type handClock struct{ ms atomic.Int64 }

func newHandClock(ms int64) *handClock {
	c := new(handClock)
	c.ms.Store(ms)
	return c
}

func (c *handClock) now() time.Time { return time.UnixMilli(c.ms.Load()) }

// onceProps are the properties of a Notify client's message.
func onceProps(n int) []byte {
	id := fmt.Sprintf("%032x", n)
	props := record.AppendProperty(nil, "UNIQ_KEY", id)
	return record.AppendProperty(record.AppendProperty(props, "KEYS", id), "TAGS", "t")
}

func sendOnce(s *store.Store, topic string, id int32, n int, body string) store.Result {
	var rs [1]store.Result
	s.Append([]store.Message{{Topic: topic, Queue: id, Body: []byte(body), Properties: onceProps(n), Once: true}}, rs[:])
	return rs[0]
}

// otherResult compares results but for Repeated and the durability reached, which grows.
func otherResult(a, b store.Result) string {
	a.Repeated, b.Repeated, a.Durability, b.Durability = false, false, 0, 0
	return cmp.Diff(a, b)
}

func addOnceTopic(t testing.TB, s *store.Store, name string, once string) {
	t.Helper()
	c := meta.DefaultTopic(name)
	c.Attributes = map[string]string{meta.OnceAttribute: once}
	if err := s.Topics().Put(c); err != nil {
		t.Fatal(err)
	}
}

func count(t testing.TB, s *store.Store, topic string, queues int32) int {
	t.Helper()
	n := 0
	for id := range queues {
		n += len(bodies(t, s, topic, id))
	}
	return n
}

func TestRepeatedSendGetsTheFirstResult(t *testing.T) {
	for _, d := range []meta.Durability{meta.Memory, meta.Async, meta.Sync} {
		t.Run(d.String(), func(t *testing.T) {
			s := open(t, store.Options{FS: vfs.NewMem(), Dir: "/s", SegmentBytes: 64 << 10, FlushInterval: time.Millisecond})
			addTopic(t, s, "A", d)
			addTopic(t, s, "B", d)
			sendOnce(s, "A", 1, 99, "another")
			first := sendOnce(s, "A", 1, 1, "first content")
			again := sendOnce(s, "B", 2, 1, "other content, topic and queue") // the id alone counts
			if first.Err != nil || first.Repeated || again.Err != nil || !again.Repeated || first.Queue != 1 {
				t.Fatalf("first %+v, again %+v", first, again)
			}
			if diff := otherResult(first, again); diff != "" {
				t.Errorf("(-first +again):\n%s", diff)
			}
			if d == meta.Sync && again.Durability != meta.Sync {
				t.Errorf("repeated at durability %v", again.Durability)
			}
			if n := count(t, s, "A", 4) + count(t, s, "B", 4); n != 2 {
				t.Errorf("%d messages stored, want 2", n)
			}
			if st := s.OnceStats(); st.Repeats != 1 || st.Asked != 0 {
				t.Errorf("%+v, want one repeat that was known without the key index", st)
			}
		})
	}
}

func TestRepeatsInOneAppend(t *testing.T) {
	s := open(t, store.Options{FS: vfs.NewMem(), Dir: "/s", SegmentBytes: 64 << 10})
	addTopic(t, s, "A", meta.Async)
	old := sendOnce(s, "A", 0, 7, "old")
	ids := []int{1, 7, 2, 1, 1, 3, 2}
	ms, rs := make([]store.Message, len(ids)), make([]store.Result, len(ids))
	for i, n := range ids {
		ms[i] = store.Message{Topic: "A", Queue: int32(i), Body: []byte{byte('a' + i)}, Properties: onceProps(n), Once: true}
	}
	s.Append(ms, rs)
	want := []struct {
		first    int
		repeated bool
	}{{0, false}, {-1, true}, {2, false}, {0, true}, {0, true}, {5, false}, {2, true}}
	for i, w := range want {
		first := old
		if w.first >= 0 {
			first = rs[w.first]
		}
		if rs[i].Err != nil || rs[i].Repeated != w.repeated || otherResult(first, rs[i]) != "" {
			t.Errorf("message %d: %+v, want repeated %v of %+v", i, rs[i], w.repeated, first)
		}
	}
	if n := count(t, s, "A", 8); n != 4 {
		t.Errorf("%d messages stored, want 4", n)
	}
}

func TestConcurrentSendsOfOneIDAreStoredOnce(t *testing.T) {
	s := open(t, store.Options{FS: vfs.NewMem(), Dir: "/s", SegmentBytes: 256 << 10, FlushInterval: time.Millisecond})
	addTopic(t, s, "A", meta.Sync)
	const senders, ids = 8, 50
	rs := make([][]store.Result, senders)
	var wg sync.WaitGroup
	for w := range senders {
		rs[w] = make([]store.Result, ids)
		wg.Go(func() {
			ms := make([]store.Message, ids)
			for i := range ms {
				n := i
				if w%2 == 1 {
					n = ids - 1 - i // in the other order, so that calls wait for each other
				}
				ms[i] = store.Message{Topic: "A", Queue: int32(w), Body: []byte("x"), Properties: onceProps(n), Once: true}
			}
			got := make([]store.Result, ids)
			s.Append(ms, got)
			for i := range got {
				n := i
				if w%2 == 1 {
					n = ids - 1 - i
				}
				rs[w][n] = got[i]
			}
		})
	}
	wg.Wait()
	for n := range ids {
		stored := 0
		for w := range senders {
			if rs[w][n].Err != nil || otherResult(rs[0][n], rs[w][n]) != "" {
				t.Fatalf("id %d: %+v and %+v", n, rs[0][n], rs[w][n])
			}
			if !rs[w][n].Repeated {
				stored++
			}
		}
		if stored != 1 {
			t.Errorf("id %d was stored %d times", n, stored)
		}
	}
	if n := count(t, s, "A", senders); n != ids {
		t.Errorf("%d messages stored, want %d", n, ids)
	}
}

// When the first send fails, the second one stores: also when it has waited for the first.
func TestSendIsStoredWhenTheFirstFailed(t *testing.T) {
	var mu sync.Mutex
	failing, waiting, hold := false, make(chan struct{}), make(chan struct{})
	fsys := vfs.Intercept(vfs.NewMem(), func(o vfs.Op) error {
		mu.Lock()
		fail := failing && o.Kind == "write" && strings.Contains(o.Name, "commitlog")
		failing = failing && !fail
		mu.Unlock()
		if fail {
			close(waiting)
			<-hold
			return errors.New("bad sector")
		}
		return nil
	})
	s := open(t, store.Options{FS: fsys, Dir: "/s", SegmentBytes: 64 << 10})
	addTopic(t, s, "A", meta.Async)
	mu.Lock()
	failing = true
	mu.Unlock()
	first, second := make(chan store.Result), make(chan store.Result)
	go func() { first <- sendOnce(s, "A", 0, 1, "first") }()
	<-waiting
	go func() { second <- sendOnce(s, "A", 0, 1, "second") }()
	close(hold)
	if r := <-first; !errors.Is(r.Err, store.ErrFailed) {
		t.Fatalf("first %+v", r)
	}
	r := <-second
	for errors.Is(r.Err, store.ErrFailed) { // the log is being repaired
		r = sendOnce(s, "A", 0, 1, "second")
	}
	if r.Err != nil || r.Repeated {
		t.Fatalf("second %+v", r)
	}
	if got := bodies(t, s, "A", 0); len(got) != 1 || got[0] != "second" {
		t.Errorf("stored %q", got)
	}
	if r := sendOnce(s, "A", 0, 2, strings.Repeat("x", 65<<10)); !errors.Is(r.Err, store.ErrTooLarge) {
		t.Errorf("too large: %+v", r)
	}
	if r := sendOnce(s, "A", 0, 2, "x"); r.Err != nil || r.Repeated {
		t.Errorf("after one that was refused: %+v", r)
	}
}

// TestLaw1WhatWasStoredOnceIsAFunctionOfTheLog: a restart, clean or not, and the loss of every view change no answer; nor does it matter
// that the topic began to ask for it after the send.
func TestLaw1WhatWasStoredOnceIsAFunctionOfTheLog(t *testing.T) {
	for _, tc := range []struct {
		name string
		harm func(t *testing.T, m *vfs.Mem)
	}{
		{"clean stop", func(*testing.T, *vfs.Mem) {}},
		{"no key index", func(t *testing.T, m *vfs.Mem) {
			names, err := m.List("/s/fusionmq/keys")
			if err != nil || len(names) == 0 {
				t.Fatalf("%v, %v", names, err)
			}
			for _, n := range names {
				if err := m.Remove(filepath.Join("/s/fusionmq/keys", n)); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"killed", func(t *testing.T, m *vfs.Mem) { put(t, m, "/s/abort", []byte("1")) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, clock := vfs.NewMem(), newHandClock(1_700_000_000_000)
			o := store.Options{FS: m, Dir: "/s", SegmentBytes: 64 << 10, CheckpointBytes: 64 << 10, Now: clock.now}
			s, err := tryOpen(t, o)
			if err != nil {
				t.Fatal(err)
			}
			addTopic(t, s, "A", meta.Async)
			addTopic(t, s, "Opt", meta.Async)
			var first []store.Result
			for n := range 700 {
				first = append(first, sendOnce(s, "A", int32(n%3), n, strings.Repeat("x", 100)))
				clock.ms.Add(1000)
			}
			half := store.Message{Topic: "A", Queue: 2, Body: []byte("h"), Properties: onceProps(10_000), Once: true, Half: true}
			var hs [2]store.Result
			s.Append([]store.Message{half}, hs[:1])
			opt := store.Message{Topic: "Opt", Queue: 3, Body: []byte("o"), Properties: []byte("UNIQ_KEY\x017F01\x02")}
			var os [2]store.Result
			s.Append([]store.Message{opt}, os[:1])
			if hs[0].Err != nil || os[0].Err != nil {
				t.Fatalf("%+v, %+v", hs[0], os[0])
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			tc.harm(t, m)
			s = open(t, o)
			addOnceTopic(t, s, "Opt", "true")
			for n, want := range first {
				got := sendOnce(s, "A", 0, n, "again")
				in := n >= 100 // 10 minutes are 600 s
				if got.Err != nil || got.Repeated != in || in && otherResult(want, got) != "" {
					t.Fatalf("id %d, sent %d s ago: %+v, first %+v", n, 700-n, got, want)
				}
			}
			half.Half = false // a plain send with the id of a half
			s.Append([]store.Message{half}, hs[1:])
			s.Append([]store.Message{opt}, os[1:])
			for _, rs := range [][2]store.Result{hs, os} {
				if rs[1].Err != nil || !rs[1].Repeated || otherResult(rs[0], rs[1]) != "" {
					t.Errorf("%+v, first %+v", rs[1], rs[0])
				}
			}
		})
	}
}

// A topic's attribute decides for sends that do not ask themselves, by topic and unique id, from the moment it is set.
func TestTopicAsksForMessagesToBeStoredOnce(t *testing.T) {
	s := open(t, store.Options{FS: vfs.NewMem(), Dir: "/s", SegmentBytes: 64 << 10})
	for _, name := range []string{"Plain", "Opt", "Other"} {
		addTopic(t, s, name, meta.Async)
	}
	send := func(topic, uniq string) store.Result {
		t.Helper()
		return sendKeyed(t, s, topic, uniq, "")
	}
	before := send("Opt", "u0")
	if r := send("Opt", "u0"); r.Repeated {
		t.Error("repeated without the attribute")
	}
	addOnceTopic(t, s, "Opt", "true")
	addOnceTopic(t, s, "Other", "true")
	if r := send("Opt", "u0"); !r.Repeated || r.Address < before.Address {
		t.Errorf("one from before the attribute: %+v", r)
	}
	if r := send("Opt", "u1"); r.Repeated {
		t.Errorf("first: %+v", r)
	}
	if r := send("Opt", "u1"); !r.Repeated {
		t.Errorf("second: %+v", r)
	}
	if r := send("Other", "u1"); r.Repeated {
		t.Errorf("the same id in another topic: %+v", r)
	}
	for range 2 {
		if r := send("Plain", "u1"); r.Repeated {
			t.Errorf("a topic that does not ask: %+v", r)
		}
		if r := send("Opt", ""); r.Repeated {
			t.Errorf("without an id: %+v", r)
		}
	}
	addOnceTopic(t, s, "Opt", "false")
	if r := send("Opt", "u1"); r.Repeated {
		t.Errorf("after the attribute was taken away: %+v", r)
	}
	if err := s.Topics().Put(meta.Topic{Name: "Bad", ReadQueues: 1, WriteQueues: 1, Perm: 6, Attributes: map[string]string{meta.OnceAttribute: "yes"}}); err == nil || !strings.Contains(err.Error(), "true or false") {
		t.Errorf("attribute yes: %v", err)
	}
}

func TestOnceNeedsItsID(t *testing.T) {
	s := open(t, store.Options{FS: vfs.NewMem(), Dir: "/s", SegmentBytes: 64 << 10})
	addTopic(t, s, "A", meta.Async)
	good := onceProps(1)
	for _, props := range [][]byte{nil, []byte("TAGS\x01a\x02"), bytes.ToUpper(onceProps(0xabc)), good[:60], append([]byte("a\x01b\x02"), good...)} {
		var rs [1]store.Result
		s.Append([]store.Message{{Topic: "A", Body: []byte("x"), Properties: props, Once: true}}, rs[:])
		if !errors.Is(rs[0].Err, store.ErrBadMessage) {
			t.Errorf("%q: %+v", props, rs[0])
		}
	}
}

// Random sends against a plain map: with a window too small for its ids, time, restarts and lost views.
func TestOnceModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m, clock := vfs.NewMem(), newHandClock(1_700_000_000_000)
		o := store.Options{
			FS: m, Dir: "/s", SegmentBytes: 64 << 10, CheckpointBytes: 64 << 10, Now: clock.now,
			OnceWindow: 10 * time.Second, OnceBytes: 64 << 10,
		}
		s, err := tryOpen(t, o)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		for _, c := range []meta.Topic{meta.DefaultTopic("A"), meta.DefaultTopic("B")} {
			if err := s.Topics().Put(c); err != nil {
				rt.Fatal(err)
			}
		}
		first := map[int]store.Result{}
		rt.Repeat(map[string]func(*rapid.T){
			"send": func(rt *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(rt, "messages") {
					n := rapid.IntRange(0, 30).Draw(rt, "id")
					topic := rapid.SampledFrom([]string{"A", "B"}).Draw(rt, "topic")
					got := sendOnce(s, topic, rapid.Int32Range(0, 3).Draw(rt, "queue"), n, "x")
					want, ok := first[n]
					ok = ok && want.StoreTime >= clock.ms.Load()-10_000
					if got.Err != nil || got.Repeated != ok || ok && otherResult(want, got) != "" {
						rt.Fatalf("id %d at %d: %+v, first %+v", n, clock.ms.Load(), got, want)
					}
					if !ok {
						first[n] = got
					}
				}
			},
			"time": func(rt *rapid.T) {
				clock.ms.Add(rapid.Int64Range(0, 6000).Draw(rt, "ms"))
			},
			"reopen": func(rt *rapid.T) {
				if err := s.Close(); err != nil {
					rt.Fatal(err)
				}
				names, _ := m.List("/s/fusionmq/keys")
				for _, name := range names {
					if rapid.Bool().Draw(rt, "lose "+name) {
						if err := m.Remove(filepath.Join("/s/fusionmq/keys", name)); err != nil {
							rt.Fatal(err)
						}
					}
				}
				if s, err = tryOpen(t, o); err != nil {
					rt.Fatal(err)
				}
			},
		})
	})
}

func BenchmarkAppendOnce(b *testing.B) {
	for _, once := range []bool{false, true} {
		b.Run(fmt.Sprint("once=", once), func(b *testing.B) {
			s := benchStore(b, meta.Async)
			const batch = 32
			ms, rs := benchMessages(batch), make([]store.Result, batch)
			b.ReportAllocs()
			b.ResetTimer()
			stop := cpuPerOp(b)
			props := make([][]byte, batch)
			for n := 0; n < b.N; n += batch {
				for k := range ms {
					props[k] = append(props[k][:0], "UNIQ_KEY\x01"...)
					at := len(props[k])
					props[k] = fmt.Appendf(props[k], "%032x", n+k)
					props[k] = append(append(append(props[k], "\x02KEYS\x01"...), props[k][at:at+32]...), 2)
					ms[k].Properties, ms[k].Once = props[k], once
				}
				s.Append(ms, rs)
				if rs[0].Err != nil || rs[0].Repeated {
					b.Fatalf("%+v", rs[0])
				}
			}
			stop()
		})
	}
}
