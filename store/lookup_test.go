package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/internal/vectors"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

const allTimes = 1 << 60

// byKey gives the addresses that a query finds, which must be complete.
func byKey(t testing.TB, s *store.Store, q store.KeyQuery) []int64 {
	t.Helper()
	if q.Max == 0 {
		q.Max = 64
	}
	if q.End == 0 {
		q.End = allTimes
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	a, err := s.ByKey(ctx, q)
	if err != nil || !a.Complete {
		t.Fatalf("%+v: complete %v, %v", q, a.Complete, err)
	}
	defer a.Release()
	var at []int64
	for _, m := range a.Matches {
		v, err := record.Parse(m.Record)
		if err != nil || string(v.Topic()) != q.Topic || v.PhysicalOffset() != m.Address || v.QueueID() != m.Queue || v.QueueOffset() != m.QueueOffset {
			t.Fatalf("%+v: match %+v has a record of %s/%d offset %d at %d, %v", q, m.TopicEntry, v.Topic(), v.QueueID(), v.QueueOffset(), v.PhysicalOffset(), err)
		}
		at = append(at, m.Address)
	}
	return at
}

func sendKeyed(t testing.TB, s *store.Store, topic, uniq, keys string) store.Result {
	t.Helper()
	props := record.AppendProperty(nil, "UNIQ_KEY", uniq)
	props = record.AppendProperty(props, "KEYS", keys)
	var rs [1]store.Result
	s.Append([]store.Message{{Topic: topic, Body: []byte("x"), Properties: props}}, rs[:])
	if rs[0].Err != nil {
		t.Fatal(rs[0].Err)
	}
	return rs[0]
}

// A query sees what was acknowledged before it, though the index follows on its own.
func TestKeysAreFoundWhenTheSendHasReturned(t *testing.T) {
	for _, d := range []meta.Durability{meta.Async, meta.Sync} {
		t.Run(d.String(), func(t *testing.T) {
			s := open(t, store.Options{FS: vfs.NewMem(), Dir: "/s", SegmentBytes: 64 << 10, FlushInterval: time.Millisecond})
			addTopic(t, s, "A", d)
			addTopic(t, s, "B", d)
			first := sendKeyed(t, s, "A", "u1", "order-1 user-7")
			second := sendKeyed(t, s, "A", "u2", "order-2 user-7")
			sendKeyed(t, s, "B", "u1", "order-1")
			for _, tc := range []struct {
				name string
				give store.KeyQuery
				want []int64
			}{
				{"a word of KEYS", store.KeyQuery{Key: "order-1"}, []int64{first.Address}},
				{"newest first", store.KeyQuery{Key: "user-7"}, []int64{second.Address, first.Address}},
				{"at most", store.KeyQuery{Key: "user-7", Max: 1}, []int64{second.Address}},
				{"the unique id counts", store.KeyQuery{Key: "u2"}, []int64{second.Address}},
				{"only the unique id", store.KeyQuery{Key: "order-2", Unique: true}, nil},
				{"by unique id", store.KeyQuery{Key: "u2", Unique: true}, []int64{second.Address}},
				{"before its time", store.KeyQuery{Key: "u2", End: first.StoreTime - 1}, nil},
				{"after its time", store.KeyQuery{Key: "u2", Begin: second.StoreTime + 1}, nil},
				{"at its time", store.KeyQuery{Key: "u2", Begin: second.StoreTime, End: second.StoreTime}, []int64{second.Address}},
				{"a part of a key", store.KeyQuery{Key: "order"}, nil},
				{"no key", store.KeyQuery{Key: ""}, nil},
			} {
				t.Run(tc.name, func(t *testing.T) {
					tc.give.Topic = "A"
					if got := byKey(t, s, tc.give); !slices.Equal(got, tc.want) {
						t.Errorf("%+v finds %v, want %v", tc.give, got, tc.want)
					}
				})
			}
		})
	}
}

// A sync topic's message is found when it is visible, not before.
func TestKeysOfMessagesThatAreNotVisibleAreNotFound(t *testing.T) {
	hold, held := make(chan struct{}), make(chan struct{}, 100)
	armed := make(chan struct{})
	fsys := vfs.Intercept(vfs.NewMem(), func(o vfs.Op) error {
		select {
		case <-armed:
			if o.Kind == "sync" && strings.Contains(o.Name, "commitlog") {
				held <- struct{}{}
				<-hold
			}
		default:
		}
		return nil
	})
	s := open(t, store.Options{FS: fsys, Dir: "/s", SegmentBytes: 64 << 10})
	addTopic(t, s, "A", meta.Sync)
	close(armed)
	done := make(chan store.Result)
	go func() { done <- sendKeyed(t, s, "A", "u1", "k") }()
	<-held
	if got := byKey(t, s, store.KeyQuery{Topic: "A", Key: "k"}); len(got) != 0 {
		t.Errorf("found at %v before it is on the disk", got)
	}
	close(hold)
	r := <-done
	if got := byKey(t, s, store.KeyQuery{Topic: "A", Key: "k"}); !slices.Equal(got, []int64{r.Address}) {
		t.Errorf("found at %v, want %d", got, r.Address)
	}
}

// TestLaw1KeysAreAFunctionOfTheLog: with the key index gone, damaged or from before a kill, also after segments were deleted, the answers
// are the same (fault QRY-10).
func TestLaw1KeysAreAFunctionOfTheLog(t *testing.T) {
	for _, tc := range []struct {
		name string
		harm func(t *testing.T, m *vfs.Mem, names []string)
	}{
		{"as it was", func(*testing.T, *vfs.Mem, []string) {}},
		{"deleted", func(t *testing.T, m *vfs.Mem, names []string) {
			for _, n := range names {
				if err := m.Remove(n); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"one deleted", func(t *testing.T, m *vfs.Mem, names []string) {
			if err := m.Remove(names[len(names)/2]); err != nil {
				t.Fatal(err)
			}
		}},
		{"damaged", func(t *testing.T, m *vfs.Mem, names []string) {
			for i, n := range names {
				b, err := vfs.ReadFile(m, n, 1<<30)
				if err != nil {
					t.Fatal(err)
				}
				b[(len(b)-1)*i/len(names)] ^= 0x10
				put(t, m, n, b)
			}
		}},
		{"cut", func(t *testing.T, m *vfs.Mem, names []string) {
			for _, n := range names {
				b, err := vfs.ReadFile(m, n, 1<<30)
				if err != nil {
					t.Fatal(err)
				}
				put(t, m, n, b[:len(b)/2])
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := vfs.NewMem()
			clock := newHandClock(1_700_000_000_000)
			o := store.Options{
				FS: m, Dir: "/s", SegmentBytes: 64 << 10, CheckpointBytes: 64 << 10, Now: clock.now,
				Retention: store.Retention{Age: time.Hour, ViewWindow: time.Minute},
			}
			if tc.name == "damaged" {
				damaged(t, o, perhaps+"view keys fusionmq/keys/.*wrong checksum") // what a query reads is written anew; whether it reads all depends on which files were merged
			}
			var want map[string][]int64
			ask := func(s *store.Store) map[string][]int64 {
				got := map[string][]int64{}
				for i := range 40 {
					k := fmt.Sprint("k", i)
					got[k] = byKey(t, s, store.KeyQuery{Topic: "A", Key: k, Max: 1000})
				}
				for i := 0; i < 900; i += 50 {
					k := fmt.Sprint("u", i)
					got[k] = byKey(t, s, store.KeyQuery{Topic: "A", Key: k, Unique: true})
				}
				return got
			}
			for round := range 3 { // several files
				s := open(t, o)
				if round == 0 {
					addTopic(t, s, "A", meta.Async)
				}
				for i := range 300 {
					n := round*300 + i
					sendKeyed(t, s, "A", fmt.Sprint("u", n), fmt.Sprint("k", n%40, " ", strings.Repeat("long ", 30)))
					clock.ms.Add(10_000)
				}
				if round == 2 {
					if n, err := s.Clean(); n == 0 || err != nil {
						t.Fatalf("%d segments went, %v", n, err)
					}
					if want = ask(s); len(want["k1"]) == 0 || len(want["u0"]) != 0 || len(want["u850"]) != 1 {
						t.Fatalf("answers before: %v", want)
					}
				}
				stop(t, s)
			}
			names, err := m.List("/s/fusionmq/keys")
			if err != nil || len(names) == 0 {
				t.Fatalf("files of the key index: %v, %v", names, err)
			}
			for i := range names {
				names[i] = filepath.Join("/s/fusionmq/keys", names[i])
			}
			tc.harm(t, m, names)
			s := open(t, o)
			var diff string
			for range 4 { // a damaged file is noticed when it is read
				if diff = cmp.Diff(want, ask(s)); diff == "" {
					break
				}
			}
			if diff != "" {
				t.Errorf("answers (-before +after):\n%s", diff)
			}
		})
	}
}

// A message that does not fit leaves none of its keys to the one behind it in the batch.
func TestRefusedMessagesLeaveNoKeys(t *testing.T) {
	s := open(t, store.Options{FS: vfs.NewMem(), Dir: "/s", SegmentBytes: 64 << 10})
	addTopic(t, s, "A", meta.Async)
	var rs [2]store.Result
	s.Append([]store.Message{
		{Topic: "A", Body: make([]byte, 70<<10), Properties: []byte("KEYS\x01large\x02")},
		{Topic: "A", Body: []byte("x"), Properties: []byte("KEYS\x01small\x02")},
	}, rs[:])
	if rs[0].Err == nil || rs[1].Err != nil {
		t.Fatalf("results %+v", rs)
	}
	if got := byKey(t, s, store.KeyQuery{Topic: "A", Key: "small"}); !slices.Equal(got, []int64{rs[1].Address}) {
		t.Errorf("small is at %v, want %d", got, rs[1].Address)
	}
	if st := s.KeyStats(); st.Memory != 1 {
		t.Errorf("%d entries of one key", st.Memory)
	}
}

// A publish is found at its own address and topic; where the message waited it is not.
func TestKeysOfPublishedMessages(t *testing.T) {
	m := vfs.NewMem()
	o := store.Options{FS: m, Dir: "/s", SegmentBytes: 64 << 10}
	s := open(t, o)
	addTopic(t, s, "A", meta.Async)
	var rs [1]store.Result
	s.Append([]store.Message{{Topic: "A", Half: true, Body: []byte("x"), Properties: []byte("UNIQ_KEY\x01half-1\x02KEYS\x01order-9\x02")}}, rs[:])
	if rs[0].Err != nil {
		t.Fatal(rs[0].Err)
	}
	if got := byKey(t, s, store.KeyQuery{Topic: "A", Key: "order-9"}); len(got) != 0 {
		t.Errorf("a half is found at %v", got)
	}
	if err := endHalf(s, rs[0].Address, true); err != nil {
		t.Fatal(err)
	}
	first := byKey(t, s, store.KeyQuery{Topic: "A", Key: "order-9"})
	if len(first) != 1 || first[0] <= rs[0].Address {
		t.Errorf("the committed message is at %v, its half at %d", first, rs[0].Address)
	}
	stop(t, s)
	names, _ := m.List("/s/fusionmq/keys")
	for _, n := range names {
		if err := m.Remove(filepath.Join("/s/fusionmq/keys", n)); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, o)
	if got := byKey(t, s, store.KeyQuery{Topic: "A", Key: "order-9"}); !slices.Equal(got, first) {
		t.Errorf("after the index is made again it is at %v, was %v", got, first)
	}
}

// The real brokers' directories, and what the brokers answered from them.
func TestKeysOfVectorDirectories(t *testing.T) {
	for _, name := range vectors.Names {
		t.Run(name, func(t *testing.T) {
			files, want, err := vectors.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			m := vfs.NewMem()
			for path, b := range files {
				put(t, m, filepath.Join("/s", path), b)
			}
			s := open(t, store.Options{Dir: "/s", FS: m})
			asked := 0
			for _, q := range want.QueryByKey {
				got := byKey(t, s, store.KeyQuery{Topic: q.Topic, Key: q.Key})
				if len(q.Positions) == 0 { // 5.3.3 lost a part of its index in the kill; ours is made again
					if len(got) == 0 {
						t.Errorf("%s of %s is in no answer", q.Key, q.Topic)
					}
					continue
				}
				if !slices.Equal(got, q.Positions) {
					t.Errorf("%s of %s is at %v, the real broker says %v", q.Key, q.Topic, got, q.Positions)
				}
				asked++
			}
			for _, msg := range want.Messages {
				uniq := msg.Properties["UNIQ_KEY"]
				if uniq == "" || msg.ReadFrom != nil {
					continue
				}
				if got := byKey(t, s, store.KeyQuery{Topic: msg.Topic, Key: uniq, Unique: true}); !slices.Contains(got, msg.Position) {
					t.Errorf("unique id %s of %s is at %v, want %d", uniq, msg.Topic, got, msg.Position)
				}
				e, b, release, err := s.ByOffsetID(msg.OffsetID)
				if err != nil {
					t.Errorf("offset id %s: %v", msg.OffsetID, err)
					continue
				}
				if v, err := record.Parse(b); err != nil || e.Address != msg.Position || e.Queue != msg.Queue || e.QueueOffset != msg.QueueOffset || string(v.Topic()) != msg.Topic {
					t.Errorf("offset id %s is %+v", msg.OffsetID, e)
				}
				release()
				asked++
			}
			for _, q := range want.SearchByTime {
				if strings.HasPrefix(want.Version, "4.") {
					break // knows no boundary
				}
				low, ok1 := s.OffsetByTime(q.Topic, q.Queue, q.Timestamp, store.Lower)
				up, ok2 := s.OffsetByTime(q.Topic, q.Queue, q.Timestamp, store.Upper)
				if low != q.Lower || up != q.Upper || !ok1 || !ok2 {
					t.Errorf("%s/%d at %d: %d, %d, want %d, %d", q.Topic, q.Queue, q.Timestamp, low, up, q.Lower, q.Upper)
				}
			}
			if asked == 0 {
				t.Error("nothing was asked")
			}
		})
	}
}

// Searches by time at every edge: before the first message, between two, at several of one time, behind the last, in an empty and in no queue.
func TestOffsetByTime(t *testing.T) {
	clock := newHandClock(10_000)
	s := open(t, store.Options{FS: vfs.NewMem(), Dir: "/s", SegmentBytes: 64 << 10, Now: clock.now})
	addTopic(t, s, "A", meta.Async)
	for _, ms := range []int64{10_000, 20_000, 20_000, 20_000, 30_000} {
		clock.ms.Store(ms)
		send(t, s, "A", 1, "x")
	}
	for _, tc := range []struct{ ms, lower, upper int64 }{
		{9_999, 0, 0}, {10_000, 0, 0}, {10_001, 1, 0}, {19_999, 1, 0}, {20_000, 1, 3}, {20_001, 4, 3}, {30_000, 4, 4}, {30_001, 5, 4}, {-1, 0, 0}, {1 << 60, 5, 4},
	} {
		low, _ := s.OffsetByTime("A", 1, tc.ms, store.Lower)
		up, ok := s.OffsetByTime("A", 1, tc.ms, store.Upper)
		if low != tc.lower || up != tc.upper || !ok {
			t.Errorf("at %d: lower %d, upper %d, %v, want %d, %d", tc.ms, low, up, ok, tc.lower, tc.upper)
		}
	}
	if o, ok := s.OffsetByTime("A", 7, 0, store.Lower); ok || o != 0 {
		t.Errorf("a queue without messages: %d, %v", o, ok)
	}
}

// Positions that are no address are refused, whatever the bytes there look like.
func TestByOffsetIDRefusesWhatIsNoAddress(t *testing.T) {
	s := open(t, store.Options{FS: vfs.NewMem(), Dir: "/s", SegmentBytes: 64 << 10})
	addTopic(t, s, "A", meta.Async)
	inner := send(t, s, "A", 0, "inner")
	b, release, err := s.RecordAt(inner.Address)
	if err != nil {
		t.Fatal(err)
	}
	outer := send(t, s, "A", 0, string(b)) // a body that is a record
	release()
	host := netip.MustParseAddrPort("10.0.0.1:10911")
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		at := rng.Int64N(outer.Address + int64(outer.Size) + 100)
		_, _, release, err := s.ByOffsetID(record.OffsetID(host, at))
		if err == nil {
			release()
		}
		if is := at == inner.Address || at == outer.Address; is != (err == nil) || !is && !errors.Is(err, store.ErrNotAddress) {
			t.Fatalf("position %d: %v", at, err)
		}
	}
	for _, id := range []string{"", "zz", strings.Repeat("0", 31), strings.Repeat("g", 32)} {
		if _, _, _, err := s.ByOffsetID(id); err == nil || errors.Is(err, store.ErrNotAddress) {
			t.Errorf("%q: %v, want what is wrong with it", id, err)
		}
	}
}

// The beginning of a part of the log may go after the key index has decided to read it: the rest is read, and nothing has failed.
func TestKeysAreReadOfWhatHasNotGone(t *testing.T) {
	c := newClock()
	s := open(t, retention(c))
	addTopic(t, s, "A", meta.Async)
	for i := range 300 {
		sendWaiting(t, s, store.Message{Topic: "A", Body: make([]byte, 1000), Properties: fmt.Appendf(nil, "KEYS\x01k%d\x02", i)})
	}
	settle(t, s)
	c.pass(24 * time.Hour)
	if clean(t, s) == 0 {
		t.Fatal("nothing deleted")
	}
	b := s.Bounds()
	var got int64
	err := s.ScanKeys(0, b.Max, func(address, _ int64, _ []uint64) error {
		if got++; address < b.Min {
			t.Errorf("a record at %d, the log begins at %d", address, b.Min)
		}
		return nil
	})
	low, high := s.Queue("A", 0, false).Range()
	if err != nil || got != high-low {
		t.Errorf("%d records with keys, want %d, %v", got, high-low, err)
	}
	if err := s.ScanKeys(0, b.Min, nil); err != nil {
		t.Errorf("all of it has gone: %v", err)
	}
}
