package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// served reads a queue from offset 0 on: the body of each message, "" for one that readers get an error for.
func served(t testing.TB, s *store.Store, topic string, id int32) []string {
	t.Helper()
	q := s.Queue(topic, id, false)
	if q == nil {
		return nil
	}
	var all []string
	low, high := q.Range()
	for o := int64(0); o < low; o++ {
		all = append(all, "")
	}
	for o := low; o < high; o++ {
		var es [1]queue.Entry
		if n, err := q.Read(o, es[:]); n != 1 || err != nil {
			t.Fatalf("%s/%d at %d: %d entries, %v", topic, id, o, n, err)
		}
		b, release, err := s.Record(es[0])
		if err != nil {
			if !errors.Is(err, store.ErrDamaged) {
				t.Fatalf("%s/%d at %d: %v", topic, id, o, err)
			}
			all = append(all, "")
			continue
		}
		v, err := record.Parse(b)
		if err != nil || v.CheckBody() != nil || v.QueueOffset() != o {
			t.Fatalf("%s/%d at %d: record of offset %d, %v", topic, id, o, v.QueueOffset(), err)
		}
		all = append(all, string(v.Body()))
		release()
	}
	return all
}

// damagedLog writes a small log of two queues over two segments and returns the files, the results, and the bodies of each queue.
func damagedLog(t *testing.T) (files map[string]string, rs []store.Result, want [2][]string) {
	m := vfs.NewMem()
	s, err := tryOpen(t, store.Options{Dir: "/s", FS: m, SegmentBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	addTopic(t, s, "A", meta.Async)
	for i := range 8 {
		body := fmt.Sprint("message ", i, strings.Repeat(".", i))
		if i == 4 {
			body = strings.Repeat("x", 64<<10-1500) // the rest goes to the next segment
		}
		if i == 5 {
			body = strings.Repeat("y", 900)
		}
		want[i%2] = append(want[i%2], body)
		rs = append(rs, send(t, s, "A", int32(i%2), body))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return contents(t, m, "/s"), rs, want
}

// Law 5: what goes bad below the checkpoint, which a start does not read, is found by who reads it, costs its own records, and is told once each.
func TestLaw5BadBytesBelowTheCheckpointAreNotServed(t *testing.T) {
	files, rs, want := damagedLog(t)
	name := fmt.Sprintf("/s/commitlog/%020d", 0)
	for _, tc := range []struct {
		title     string
		at        int64
		n         int
		first, to int // messages that it costs
	}{
		{"a length", rs[2].Address, 4, 2, 3},
		{"a magic number", rs[3].Address + 4, 1, 3, 4},
		{"the length of a body", rs[1].Address + 84, 4, 1, 2},
		{"three messages", rs[1].Address, int(rs[3].Address + int64(rs[3].Size) - rs[1].Address), 1, 4},
	} {
		t.Run(tc.title, func(t *testing.T) {
			t.Parallel()
			m := vfs.NewMem()
			for file, text := range files {
				b := []byte(text)
				if file == name {
					for i := range b[tc.at : tc.at+int64(tc.n)] {
						b[tc.at+int64(i)] = 0
					}
				}
				put(t, m, file, b)
			}
			var told int
			o := store.Options{Dir: "/s", FS: m, SegmentBytes: 64 << 10, Events: func(e store.Event) {
				if strings.HasPrefix(e.Name, "record is damaged") {
					told++
				}
			}}
			s, err := tryOpen(t, o)
			if err != nil {
				t.Fatal(err)
			}
			left := [2][]string{slices.Clone(want[0]), slices.Clone(want[1])}
			for i := tc.first; i < tc.to; i++ {
				left[i%2][i/2] = ""
			}
			damaged(t, o, "damage log commitlog/00000000000000000000 at .* bytes are damaged")
			for range 2 {
				if diff := cmp.Diff(left, [2][]string{served(t, s, "A", 0), served(t, s, "A", 1)}); diff != "" {
					t.Errorf("served (-want +got):\n%s", diff)
				}
			}
			if told != tc.to-tc.first {
				t.Errorf("%d events, want %d", told, tc.to-tc.first)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func withoutViews(t *testing.T, files map[string]string, off int64, change func([]byte)) *vfs.Mem {
	m := vfs.NewMem()
	for name, b := range files {
		if strings.Contains(name, "/s/fusionmq/") {
			continue
		}
		bs := []byte(b)
		if name == fmt.Sprintf("/s/commitlog/%020d", off-off%(64<<10)) {
			change(bs[off%(64<<10):])
		}
		put(t, m, name, bs)
	}
	return m
}

// covered says whether anything shows that byte k of a record of topic A is not what was written: lengths, magic number and position do, and the
// body's checksum. RocketMQ's format has nothing over queue, flags, times, hosts, topic and properties.
func covered(k int64, body int) bool {
	return k < 12 || k >= 28 && k < 36 || k >= 84 && k < 88+int64(body)+1 || k == 88+int64(body)+2 || k == 88+int64(body)+3
}

// Law 5: whatever byte of what was synced goes bad, it costs its own record at most: everything else is served at its offset, the answers
// are the same after another start without views, and no byte of the log is touched.
func TestLaw5EveryBadByteCostsItsOwnRecordAtMost(t *testing.T) {
	files, rs, want := damagedLog(t)
	for i, r := range rs {
		step := int64(1)
		if r.Size > 2000 {
			step = 5557 // of a body it does not matter which byte
		}
		for off := r.Address; off < r.Address+int64(r.Size); off += step {
			m := withoutViews(t, files, off, func(b []byte) { b[0] ^= 0x55 })
			o := store.Options{Dir: "/s", FS: m, Events: func(store.Event) {}}
			if !covered(off-r.Address, len(want[i%2][i/2])) { // it only has to start, and what is before it is sound
				s, err := store.Open(o)
				if err == nil {
					err = s.Close()
				}
				if err != nil {
					t.Fatalf("byte %d of record %d: %v", off-r.Address, i, err)
				}
				for _, f := range findings(o) {
					var at int64
					if _, err := fmt.Sscan(f[strings.Index(f, " at ")+4:], &at); err != nil || at >= 0 && at < r.Address {
						t.Errorf("byte %d of record %d: a check finds %s", off-r.Address, i, f)
					}
				}
				continue
			}
			var before [2][]string
			for round := range 2 {
				s, err := store.Open(o)
				if err != nil {
					t.Fatalf("byte %d of record %d: %v", off-r.Address, i, err)
				}
				got := [2][]string{served(t, s, "A", 0), served(t, s, "A", 1)}
				for q := range got {
					have := slices.Clone(got[q])
					if i%2 == q && len(have) == len(want[q])-1 && i/2 == len(have) {
						have = append(have, "") // nobody knows that the last one was there
					}
					for k := range have {
						if q == i%2 && k == i/2 && have[k] == "" {
							have[k] = want[q][k]
						}
					}
					if diff := cmp.Diff(want[q], have); diff != "" {
						t.Fatalf("byte %d of record %d, queue %d, start %d (-want +got):\n%s", off-r.Address, i, q, round, diff)
					}
				}
				if round == 1 && cmp.Diff(before, got) != "" {
					t.Fatalf("byte %d of record %d: %q, then %q", off-r.Address, i, before, got)
				}
				before = got
				if d := s.Damage(); len(d.Ranges) > 1 || len(d.Ranges) == 1 && (d.Ranges[0].From != r.Address || d.Ranges[0].To != r.Address+int64(r.Size)) {
					// A record that is the last of its segment takes the padding with it when its own length is bad.
					if d.Ranges[0].From != r.Address || d.Ranges[0].To%(64<<10) != 0 && d.Ranges[0].To != r.Address+int64(r.Size) {
						t.Fatalf("byte %d of record %d at %d: damage %+v", off-r.Address, i, r.Address, d)
					}
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				for name, b := range contents(t, m, "/s/commitlog") {
					if was, ok := files[name]; ok && strings.Contains(name, "/0000") && differ(was, b) > 1 {
						t.Fatalf("byte %d of record %d: %d bytes of %s changed", off-r.Address, i, differ(was, b), name)
					}
				}
				if round == 1 {
					found(t, o, fmt.Sprintf("damage log (commitlog/0+[0-9]*)? at %d: ", r.Address))
				}
				dropViews(t, m, "/s")
			}
		}
	}
}

func differ(a, b string) int {
	n := 0
	for i := range len(a) {
		if i >= len(b) || a[i] != b[i] {
			n++
		}
	}
	return n
}

// A part of the log that is gone, a page of zeros or a whole segment's beginning, costs the records in it: their queues go on behind them,
// and the store goes on at the end of the log.
func TestLaw5LostPagesAreSteppedOver(t *testing.T) {
	files, rs, want := damagedLog(t)
	for _, tc := range []struct {
		name     string
		from, to int64
		lost     []int
	}{
		{"two records", rs[1].Address + 30, rs[2].Address + 50, []int{1, 2}},
		{"four records", rs[0].Address, rs[4].Address, []int{0, 1, 2, 3}},
		{"the last one", rs[7].Address, rs[7].Address + 20, nil},
		{"the beginning of a segment", 64 << 10, 64<<10 + 100, []int{5}},
		{"the padding", rs[4].Address + int64(rs[4].Size), 64 << 10, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := withoutViews(t, files, tc.from, func(b []byte) { clear(b[:tc.to-tc.from]) })
			o := store.Options{Dir: "/s", FS: m, Events: func(store.Event) {}}
			s, err := store.Open(o)
			if err != nil {
				t.Fatal(err)
			}
			end := s.Bounds().Max
			if last := rs[7].Address + int64(rs[7].Size); end != last {
				t.Errorf("the log ends at %d, want %d", end, last)
			}
			for q := range 2 {
				got := served(t, s, "A", int32(q))
				wanted := slices.Clone(want[q])
				for _, i := range tc.lost {
					if i%2 == q {
						wanted[i/2] = ""
					}
				}
				if tc.name == "the last one" && q == 1 {
					wanted = wanted[:3]
				}
				if diff := cmp.Diff(wanted, got); diff != "" {
					t.Errorf("queue %d (-want +got):\n%s", q, diff)
				}
				if r := send(t, s, "A", int32(q), "next"); r.QueueOffset != int64(len(wanted)) || r.Address < end {
					t.Errorf("next message: %+v", r)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if s, err = store.Open(o); err != nil {
				t.Fatal(err)
			}
			if got := served(t, s, "A", 0); got[len(got)-1] != "next" {
				t.Errorf("after another start: %q", got)
			}
			d := s.Damage().Ranges
			if len(d) != 1 {
				t.Fatalf("damage %+v", d)
			}
			stop(t, s)
			found(t, o, fmt.Sprintf("damage log commitlog/[0-9]+ at %d: %d bytes are damaged .*, and the log goes on at %d", d[0].From, d[0].To-d[0].From, d[0].To))
		})
	}
}
