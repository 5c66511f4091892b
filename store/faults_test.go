package store_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/state"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// Faults that were reported against brokers like this one and that no other test here is about.

// loud collects what a store says above the level of information.
func loud(events *[]string) func(store.Event) {
	return func(e store.Event) {
		if e.Level > 0 {
			*events = append(*events, e.Name+" "+fmt.Sprint(e.Attrs...))
		}
	}
}

// A checksum that happens to be zero is one (fault STO-05): the body is kept, and a flipped bit in it is found.
func TestChecksumOfZeroIsAChecksum(t *testing.T) {
	body := []byte{0x9d, 0x0a, 0xd9, 0x6d}
	if record.CRC(body) != 0 {
		t.Fatalf("the checksum is %x", record.CRC(body))
	}
	for _, flip := range []bool{false, true} {
		m := vfs.NewMem()
		o := store.Options{FS: m, Dir: "/s", SegmentBytes: 64 << 10}
		s := open(t, o)
		addTopic(t, s, "A", meta.Async)
		send(t, s, "A", 0, "before")
		zero := send(t, s, "A", 0, string(body))
		unclean(t, s, o)
		if err := m.Remove("/s/fusionmq/checkpoint"); err != nil {
			t.Fatal(err)
		}
		want := []string{"before", string(body)}
		if flip {
			at := fmt.Sprintf(" at %d: ", zero.Address)
			damaged(t, o, "damage log commitlog/0+"+at+"the log ends here .record: body checksum does not match", "damage log "+at+"the log was closed with its end at ")
			name := "/s/commitlog/" + fmt.Sprintf("%020d", 0)
			b, err := vfs.ReadFile(m, name, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			b[int(zero.Address)+bytes.Index(b[zero.Address:], body)] ^= 1
			put(t, m, name, b)
		}
		s = open(t, o)
		if d := s.Damage(); flip != (d.Bytes > 0) {
			t.Errorf("flipped %v: damage %+v", flip, d)
		}
		if !flip {
			same(t, bodies(t, s, "A", 0), want)
		} else if got := served(t, s, "A", 0); slices.Contains(got, string(body)) || got[0] != "before" {
			t.Errorf("served %q", got)
		}
	}
}

// What fills the end of a segment is no damage, however small the rest is (fault STO-07).
func TestSegmentsEndInFillersOfAllLengths(t *testing.T) {
	for rest := int64(record.BlankSize); rest < 200; rest += 7 {
		m := vfs.NewMem()
		var events []string
		o := store.Options{FS: m, Dir: "/s", SegmentBytes: 64 << 10, Events: loud(&events)}
		s := open(t, o)
		addTopic(t, s, "A", meta.Async)
		frame := int64(send(t, s, "A", 0, "x").Size) - 1
		var want []string
		want = append(want, "x")
		for range 3 {
			most := 64<<10 - s.Bounds().Max%(64<<10) - rest - frame
			for most > 30_000 {
				want = append(want, strings.Repeat("y", 20_000))
				send(t, s, "A", 0, want[len(want)-1])
				most = 64<<10 - s.Bounds().Max%(64<<10) - rest - frame
			}
			want = append(want, strings.Repeat("z", int(most)))
			send(t, s, "A", 0, want[len(want)-1])
			if left := 64<<10 - s.Bounds().Max%(64<<10); left != rest {
				t.Fatalf("%d bytes are left, want %d", left, rest)
			}
			want = append(want, strings.Repeat("n", 300))
			if r := send(t, s, "A", 0, want[len(want)-1]); r.Address%(64<<10) != 0 {
				t.Fatalf("the next message is at %d with %d bytes left", r.Address, rest)
			}
		}
		unclean(t, s, o)
		dropViews(t, m, "/s")
		events = nil
		s = open(t, o)
		same(t, bodies(t, s, "A", 0), want)
		if len(events) > 0 {
			t.Errorf("%d bytes left: %q", rest, events)
		}
	}
}

// When the files of the index have vanished, or the log has lost all messages of a queue, its ends stay in order, and it goes on
// (faults STO-09, STO-10).
func TestQueuesWhoseIndexIsGoneStayInOrder(t *testing.T) {
	for _, tc := range []struct {
		name  string
		harm  func(t *testing.T, m *vfs.Mem, first store.Result)
		want  int      // messages left
		found []string // by a check
	}{
		{"no index", func(t *testing.T, m *vfs.Mem, _ store.Result) { dropViews(t, m, "/s") }, 1000, nil},
		{"newest index file is zeros, and the log lost its tail", func(t *testing.T, m *vfs.Mem, _ store.Result) {
			names, err := m.List("/s/fusionmq/index")
			if err != nil || len(names) == 0 {
				t.Fatalf("index files %v, %v", names, err)
			}
			name := filepath.Join("/s/fusionmq/index", slices.Max(names))
			b, err := vfs.ReadFile(m, name, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			put(t, m, name, make([]byte, len(b)))
			logs, err := m.List("/s/commitlog")
			if err != nil {
				t.Fatal(err)
			}
			var last string
			for _, n := range logs {
				if len(n) == 20 {
					last = max(last, n)
				}
			}
			put(t, m, "/s/commitlog/"+last, make([]byte, 64<<10))
		}, -1, []string{"damage log commitlog/0+65536 at 65536: [0-9]+ bytes are damaged .*, and the log goes on at "}},
		{"the log lost everything", func(t *testing.T, m *vfs.Mem, first store.Result) {
			logs, err := m.List("/s/commitlog")
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range logs {
				if len(n) != 20 {
					continue
				}
				if n == strings.Repeat("0", 20) {
					put(t, m, "/s/commitlog/"+n, make([]byte, 64<<10))
				} else if err := m.Remove("/s/commitlog/" + n); err != nil {
					t.Fatal(err)
				}
			}
		}, 0, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := vfs.NewMem()
			var events []string
			o := store.Options{FS: m, Dir: "/s", SegmentBytes: 64 << 10, CheckpointBytes: 64 << 10, Events: loud(&events)}
			damaged(t, o, tc.found...)
			s := open(t, o)
			addTopic(t, s, "A", meta.Async)
			var first store.Result
			for i := range 1000 {
				if r := send(t, s, "A", 0, fmt.Sprint(i)); i == 0 {
					first = r
				}
			}
			s.Offsets().Commit("g", "A", 0, 1000)
			unclean(t, s, o)
			tc.harm(t, m, first)
			s = open(t, o)
			low, end := s.Queue("A", 0, true).Range()
			at, _ := s.Offsets().Get("g", "A", 0)
			if low < 0 || low > end || at > end || tc.want >= 0 && int(end-low) != tc.want {
				t.Errorf("queue is [%d, %d), committed %d, want %d messages; said %q", low, end, at, tc.want, events)
			}
			if tc.want < 1000 && len(events) == 0 {
				t.Error("nothing was said about it")
			}
			if r := send(t, s, "A", 0, "after"); r.QueueOffset != end {
				t.Errorf("the next message has offset %d, want %d", r.QueueOffset, end)
			}
			if got := served(t, s, "A", 0); got[len(got)-1] != "after" {
				t.Errorf("reads end with %q", got[len(got)-1])
			}
		})
	}
}

// A record whose properties are no text of properties stops nobody (fault STO-20): dispatch, keys and filters go on, and it is read as it is.
func TestOddPropertiesStopNobody(t *testing.T) {
	told := newLedger()
	s := open(t, store.Options{FS: vfs.NewMem(), Dir: "/s", SegmentBytes: 64 << 10, Exchange: newFanout(), Observer: told})
	addTopic(t, s, "A", meta.Async)
	operate(t, s, bindOps("A", "g")...)
	odd := [][]byte{{1, 2, 2, 1}, {2}, {1}, {0xff, 0xfe, 1, 0xc3, 0x28, 2}, []byte("KEYS\x01\xff \xfe\x02UNIQ_KEY\x01\xff\x02TAGS\x01\x02"), []byte("\x01KEYS\x02UNIQ_KEY")}
	want := 0
	for _, props := range odd {
		var rs [1]store.Result
		s.Append([]store.Message{{Topic: "A", Body: []byte("odd"), Properties: props}}, rs[:])
		if rs[0].Err != nil {
			t.Errorf("%q: %v", props, rs[0].Err)
			continue
		}
		want++
	}
	for range 10 {
		send(t, s, "A", 0, "good")
		want++
	}
	if got := told.owedOf("A", want); len(got) != want {
		t.Errorf("%d messages are owed, want %d", len(got), want)
	}
	if got := bodies(t, s, "A", 0); len(got) != want || got[want-1] != "good" {
		t.Errorf("%q", got)
	}
	if got := byKey(t, s, store.KeyQuery{Topic: "A", Key: "\xff"}); len(got) != 1 {
		t.Errorf("a key that is no text is found at %v", got)
	}
}

// To look at what is not there makes nothing (fault STO-23).
func TestReadingMakesNoTopic(t *testing.T) {
	m := vfs.NewMem()
	o := store.Options{FS: m, Dir: "/s", SegmentBytes: 64 << 10}
	s := open(t, o)
	addTopic(t, s, "A", meta.Async)
	send(t, s, "A", 0, "x")
	before := contents(t, m, "/s/config")
	for _, topic := range []string{"Gone", "%RETRY%Gone", ""} {
		if q := s.Queue(topic, 0, false); q != nil {
			t.Errorf("%q has a queue", topic)
		}
		if _, ok := s.OffsetByTime(topic, 0, 0, store.Lower); ok {
			t.Errorf("%q has offsets", topic)
		}
		if got := byKey(t, s, store.KeyQuery{Topic: topic, Key: "k"}); len(got) != 0 {
			t.Errorf("%q has keys at %v", topic, got)
		}
		var es [4]store.TopicEntry
		if n := s.ReadTopic(topic, 0, es[:]); n != 0 {
			t.Errorf("%q has %d messages", topic, n)
		}
		if got := s.Pending(topic, 0, 10); len(got) != 0 {
			t.Errorf("%q owes %v", topic, got)
		}
	}
	if s.Topics().Len() != 1 || !maps.Equal(before, contents(t, m, "/s/config")) {
		t.Errorf("there are %d topics", s.Topics().Len())
	}
	stop(t, s)
	if s = open(t, o); s.Topics().Len() != 1 || s.Queue("Gone", 0, false) != nil {
		t.Errorf("after a restart there are %d topics", s.Topics().Len())
	}
}

// The cleaner does not take a damaged list of topics for a reason to delete (fault STO-26).
func TestCleanerKeepsMessagesOfForgottenTopics(t *testing.T) {
	m, c := vfs.NewMem(), newClock()
	o := retentionOn(c, m)
	s := open(t, o)
	addTopic(t, s, "A", meta.Async)
	fillTopic(t, s, c, "A", 2, 200) // 20 minutes
	want := append(bodies(t, s, "A", 0), bodies(t, s, "A", 1)...)
	stop(t, s)
	put(t, m, "/s/config/topics.json", nil)
	s = open(t, o)
	if n := clean(t, s); n != 0 {
		t.Errorf("%d segments were deleted", n)
	}
	same(t, append(bodies(t, s, "A", 0), bodies(t, s, "A", 1)...), want)
	if s.Topics().Get("A") == nil {
		t.Error("the topic was not learnt again")
	}
}

// Topic and key are compared, not only their hashes (fault QRY-01): RocketMQ's of AaTopic#BB and AaTopic#Aa are the same.
func TestKeysWithOneHashInRocketMQ(t *testing.T) {
	s := open(t, store.Options{FS: vfs.NewMem(), Dir: "/s", SegmentBytes: 64 << 10})
	addTopic(t, s, "AaTopic", meta.Async)
	addTopic(t, s, "BBTopic", meta.Async)
	aa, bb := sendKeyed(t, s, "AaTopic", "", "Aa"), sendKeyed(t, s, "BBTopic", "", "BB")
	for _, tc := range []struct {
		topic, key string
		want       []int64
	}{{"AaTopic", "Aa", []int64{aa.Address}}, {"BBTopic", "BB", []int64{bb.Address}}, {"AaTopic", "BB", nil}, {"BBTopic", "Aa", nil}} {
		if got := byKey(t, s, store.KeyQuery{Topic: tc.topic, Key: tc.key}); !slices.Equal(got, tc.want) {
			t.Errorf("%s/%s is at %v, want %v", tc.topic, tc.key, got, tc.want)
		}
	}
}

// A single space is what splits keys (fault QRY-05).
func TestKeysAreSplitByBlanks(t *testing.T) {
	s := open(t, store.Options{FS: vfs.NewMem(), Dir: "/s", SegmentBytes: 64 << 10})
	addTopic(t, s, "A", meta.Async)
	var hundred []string
	for i := range 100 {
		hundred = append(hundred, fmt.Sprint("key-", i))
	}
	long, all := strings.Repeat("k", 255), map[string]int64{}
	for _, keys := range []string{"a b c", " d  e ", long, strings.Join(hundred, " "), "ключ 鍵"} {
		at := sendKeyed(t, s, "A", "", keys).Address
		for _, k := range strings.Fields(keys) {
			all[k] = at
		}
	}
	for k, at := range all {
		if got := byKey(t, s, store.KeyQuery{Topic: "A", Key: k}); !slices.Equal(got, []int64{at}) {
			t.Errorf("%q is at %v, want %d", k, got, at)
		}
	}
	for _, k := range []string{"a b", "a ", " a", "", " ", long[:254], "key-1 key-2"} {
		if got := byKey(t, s, store.KeyQuery{Topic: "A", Key: k}); len(got) != 0 {
			t.Errorf("%q is at %v", k, got)
		}
	}
}

// Every copy of a message is found by its unique id, and each once, also when KEYS say the same (fault QRY-06).
func TestEveryCopyIsFoundOnceByUniqueID(t *testing.T) {
	const id = "7F0000010000276B00000001"
	m := vfs.NewMem()
	o := store.Options{FS: m, Dir: "/s", SegmentBytes: 64 << 10}
	s := open(t, o)
	addTopic(t, s, "A", meta.Async)
	first := sendKeyed(t, s, "A", id, id)
	second := sendKeyed(t, s, "A", id, id+" "+id+" other")
	retry := retryOf(first, "A", "g", 1)
	if _, err := s.Operate([]state.Op{retry}); err != nil {
		t.Fatal(err)
	}
	want := []int64{second.Address, first.Address}
	for turn := range 2 {
		for _, unique := range []bool{true, false} {
			if got := byKey(t, s, store.KeyQuery{Topic: "A", Key: id, Unique: unique, Max: 10}); !slices.Equal(got, want) {
				t.Errorf("turn %d, unique %v: %v, want %v", turn, unique, got, want)
			}
		}
		// The retry is a copy in the topic that consumers of its group read; its record says A, as RocketMQ's does.
		var es [4]store.TopicEntry
		if n := s.ReadTopic("%RETRY%g", 0, es[:]); n != 1 {
			t.Errorf("turn %d: %d retries", turn, n)
		} else if got := byKey(t, s, store.KeyQuery{Topic: "%RETRY%g", Key: id, Unique: true, Max: 10}); !slices.Equal(got, []int64{es[0].Address}) {
			t.Errorf("turn %d: the retry is at %v, want %d", turn, got, es[0].Address)
		}
		if turn == 0 {
			s = fromLog(t, s, o)
		}
	}
}

// A window that is the wrong way round, and a number of matches that is none, find nothing and cost nothing (faults QRY-03, QRY-11).
func TestKeyQueriesThatAskForNothing(t *testing.T) {
	s := open(t, store.Options{FS: vfs.NewMem(), Dir: "/s", SegmentBytes: 64 << 10})
	addTopic(t, s, "A", meta.Async)
	for range 100 {
		sendKeyed(t, s, "A", "", "k")
	}
	now := time.Now().UnixMilli() + 1000
	for _, q := range []store.KeyQuery{
		{Topic: "A", Key: "k", Begin: now, End: 0, Max: 10}, {Topic: "A", Key: "k", End: now, Max: 0}, {Topic: "A", Key: "k", End: now, Max: -1}, {Topic: "A", Key: "", End: now, Max: 1},
	} {
		a, err := s.ByKey(context.Background(), q)
		if err != nil || len(a.Matches) != 0 || !a.Complete {
			t.Errorf("%+v: %d matches, %v", q, len(a.Matches), err)
		}
	}
	for most, want := range map[int]int{1: 1, 64: 64, 1<<31 - 1: 100} {
		a, err := s.ByKey(context.Background(), store.KeyQuery{Topic: "A", Key: "k", End: now, Max: most})
		if err != nil || len(a.Matches) != want {
			t.Errorf("%d matches of at most %d, %v", len(a.Matches), most, err)
		}
		a.Release()
	}
}
