package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fusionmq/fusionmq/store"
	"github.com/fusionmq/fusionmq/store/filter"
	"github.com/fusionmq/fusionmq/store/meta"
	"github.com/fusionmq/fusionmq/store/queue"
	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

func sql(t testing.TB, text string) *filter.Expr {
	t.Helper()
	e, err := filter.ParseSQL92(text)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// sendNumbers appends messages with property n from..to-1, spread over two queues.
func sendNumbers(t testing.TB, s *store.Store, topic string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		rs := make([]store.Result, 1)
		s.Append([]store.Message{{Topic: topic, Queue: int32(i % 2), Body: []byte("body"), Properties: fmt.Appendf(nil, "n\x01%d\x02colour\x01c%d\x02", i, i%10)}}, rs)
		if rs[0].Err != nil {
			t.Fatal(rs[0].Err)
		}
	}
}

// selectAll selects from both queues, a few at a time, and counts the records that were read.
func selectAll(t testing.TB, s *store.Store, topic string, f *store.PullFilter) (addresses []int64, read int) {
	t.Helper()
	for id := range int32(2) {
		q := s.Queue(topic, id, false)
		if q == nil {
			continue
		}
		at, end := q.Range()
		dst := make([]store.TopicEntry, 3)
		for at < end {
			r, err := s.Select(q, at, f, dst, 50)
			if err != nil {
				t.Fatal(err)
			}
			if r.Looked > 50 || r.Next != at+int64(r.Looked) || r.Looked == 0 {
				t.Fatalf("Select from %d: %+v", at, r)
			}
			for _, e := range dst[:r.Entries] {
				if e.QueueOffset < at || e.QueueOffset >= r.Next || e.Queue != id {
					t.Fatalf("Select from %d gave %+v", at, e)
				}
				addresses = append(addresses, e.Address)
			}
			at, read = r.Next, read+r.Read
		}
	}
	slices.Sort(addresses)
	return addresses, read
}

// evaluated is selectAll by reading and evaluating each message.
func evaluated(t testing.TB, s *store.Store, topic string, e *filter.Expr) (addresses []int64) {
	t.Helper()
	var es [64]store.TopicEntry
	for from := int64(0); ; {
		n := s.ReadTopic(topic, from, es[:])
		if n == 0 {
			return addresses
		}
		for _, x := range es[:n] {
			v, release := readRecord(t, s, x.Entry)
			if e.Eval(nil, &filter.Message{Properties: v.Properties()}) == filter.True {
				addresses = append(addresses, x.Address)
			}
			release()
			from = x.Address + 1
		}
	}
}

// checkSelect compares the two and returns how many records the select has read.
func checkSelect(t testing.TB, s *store.Store, topic, text string) int {
	t.Helper()
	e := sql(t, text)
	got, read := selectAll(t, s, topic, s.PullFilter(topic, e))
	if want := evaluated(t, s, topic, e); !slices.Equal(got, want) {
		t.Errorf("%s: %d selected, want %d", text, len(got), len(want))
	}
	return read
}

// Messages that came while a filter was known are passed over without the log; those from before, or that a later filter
// meets, are evaluated, and the answers are right.
func TestFilterBitsAnswerWhatCameWhileTheFilterWasKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		o := store.Options{FS: fs, Dir: "store"}
		s := open(t, o)
		addTopic(t, s, "T", meta.Async)
		sendNumbers(t, s, "T", 0, 100)
		if read := checkSelect(t, s, "T", "colour = 'c3'"); read != 100 {
			t.Errorf("%d of 100 messages from before the filter were evaluated", read)
		}
		synctest.Wait()
		sendNumbers(t, s, "T", 100, 300)
		synctest.Wait()
		if read := checkSelect(t, s, "T", "colour = 'c3'"); read != 120 {
			t.Errorf("%d records were read, want the 100 from before and the 20 that are selected", read)
		}
		// Another filter, a little later: it is evaluated for all that came before it.
		if read := checkSelect(t, s, "T", "n >= 290"); read != 300 {
			t.Errorf("a new filter read %d records of 300", read)
		}
		synctest.Wait()
		sendNumbers(t, s, "T", 300, 400)
		synctest.Wait()
		if read := checkSelect(t, s, "T", "n < 290"); read != 400 {
			t.Errorf("a third filter read %d records of 400", read)
		}
		if read := checkSelect(t, s, "T", "colour = 'c3'"); read < 130 || read > 170 {
			t.Errorf("%d records were read; 130 are needed, a few more have the bits by chance", read)
		}
		if read := checkSelect(t, s, "T", "n >= 290"); read != 400 {
			t.Errorf("%d records were read, of which none has another answer", read)
		}
		if read := checkSelect(t, s, "T", "n >= 1000"); read != 400 {
			t.Errorf("%d", read)
		}
	})
}

// Law 1: filter bits are a view. Kept, deleted or damaged, they change what a pull reads and never what it selects.
func TestLaw1FilterBitsMayBeDeleted(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, fs *vfs.Mem, file string){
		"kept": func(*testing.T, *vfs.Mem, string) {},
		"deleted": func(t *testing.T, fs *vfs.Mem, file string) {
			if err := fs.Remove(file); err != nil {
				t.Fatal(err)
			}
		},
		"damaged": func(t *testing.T, fs *vfs.Mem, file string) {
			f, err := fs.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte{0xff, 0xff, 0xff}, 100); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs := vfs.NewMem()
				o := store.Options{FS: fs, Dir: "store"}
				s, err := tryOpen(t, o)
				if err != nil {
					t.Fatal(err)
				}
				addTopic(t, s, "T", meta.Async)
				f := s.PullFilter("T", sql(t, "colour = 'c3'"))
				synctest.Wait()
				sendNumbers(t, s, "T", 0, 200)
				synctest.Wait()
				want, read := selectAll(t, s, "T", f)
				if len(want) != 20 || read != 20 {
					t.Fatalf("%d selected, %d read", len(want), read)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				names, err := fs.List("store/fusionmq/bits")
				if err != nil || len(names) != 1 || !strings.HasSuffix(names[0], ".bits") {
					t.Fatalf("%v %v", names, err)
				}
				spoil(t, fs, "store/fusionmq/bits/"+names[0])
				s = open(t, o)
				got, read := selectAll(t, s, "T", s.PullFilter("T", sql(t, "colour = 'c3'")))
				if !slices.Equal(got, want) {
					t.Errorf("after a restart %v are selected, before %v", got, want)
				}
				if most := map[string]int{"kept": 20, "deleted": 200, "damaged": 200}[name]; read != most {
					t.Errorf("%d records were read, want %d", read, most)
				}
			})
		})
	}
}

// After a power cut the log may end before what the bits speak for, and go on with other messages at the same addresses.
func TestFilterBitsNeverOutliveTheirMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		o := store.Options{FS: fs, Dir: "store"}
		s, err := tryOpen(t, o)
		if err != nil {
			t.Fatal(err)
		}
		addTopic(t, s, "T", meta.Async)
		s.PullFilter("T", sql(t, "colour = 'c3'"))
		synctest.Wait()
		sendNumbers(t, s, "T", 0, 100)
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		bits, err := fs.List("store/fusionmq/bits")
		if err != nil || len(bits) != 1 {
			t.Fatal(bits, err)
		}
		// The log of an empty store with the bits of a longer one.
		other := vfs.NewMem()
		copyFile(t, fs, other, "store/fusionmq/bits", bits[0])
		o.FS = other
		s = open(t, o)
		addTopic(t, s, "T", meta.Async)
		for i := range 100 {
			rs := make([]store.Result, 1)
			s.Append([]store.Message{{Topic: "T", Queue: int32(i % 2), Body: []byte("body"), Properties: fmt.Appendf(nil, "n\x01%d\x02colour\x01c3\x02", i)}}, rs)
		}
		if read := checkSelect(t, s, "T", "colour = 'c3'"); read != 100 {
			t.Errorf("%d records were read, the others told by bits of a log that is gone", read)
		}
	})
}

func copyFile(t *testing.T, from, to *vfs.Mem, dir, name string) {
	t.Helper()
	b, err := vfs.ReadFile(from, dir+"/"+name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := to.MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFile(to, dir+"/"+name, b, ""); err != nil {
		t.Fatal(err)
	}
}

func readRecord(t testing.TB, s *store.Store, e queue.Entry) (record.View, func()) {
	t.Helper()
	b, release, err := s.Record(e)
	if err != nil {
		t.Fatal(err)
	}
	v, err := record.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return v, release
}

// A filter that nobody uses for a day is not answered any more, one that is used is.
func TestFiltersThatNobodyUsesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		s := open(t, store.Options{FS: vfs.NewMem(), Dir: "store", Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
		addTopic(t, s, "T", meta.Async)
		used, left := s.PullFilter("T", sql(t, "colour = 'c3'")), s.PullFilter("T", sql(t, "n < 5"))
		synctest.Wait()
		for range 5 {
			ahead.Add(int64(store.FilterMemory / 4))
			used.Use()
		}
		time.Sleep(2 * time.Minute) // it is looked at every minute
		sendNumbers(t, s, "T", 0, 100)
		synctest.Wait()
		if _, read := selectAll(t, s, "T", used); read != 10 {
			t.Errorf("by the filter that was used %d records were read, want 10", read)
		}
		if used.Stale() || !left.Stale() {
			t.Errorf("stale: %v and %v, want only the other one", used.Stale(), left.Stale())
		}
		if got, read := selectAll(t, s, "T", left); read != 100 || len(got) != 5 {
			t.Errorf("by the other one %d records were read and %d selected, want 100 and 5", read, len(got))
		}
	})
}

// A delayed message is answered when it becomes visible, at the address of its view.
func TestFilterBitsOfViews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, store.Options{FS: vfs.NewMem(), Dir: "store"})
		addTopic(t, s, "T", meta.Async)
		f := s.PullFilter("T", sql(t, "n = 7"))
		synctest.Wait()
		for i := range 10 {
			sendWaiting(t, s, store.Message{Topic: "T", Body: []byte("body"), DelayLevel: 1, Properties: fmt.Appendf(nil, "n\x01%d\x02", i)})
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got, read := selectAll(t, s, "T", f); len(got) != 1 || read != 1 {
			t.Errorf("%d selected, %d read, want 1 of 10", len(got), read)
		}
		checkSelect(t, s, "T", "n = 7")
	})
}

// A filter does not hide a message that cannot be read.
func TestSelectGivesWhatCannotBeRead(t *testing.T) {
	s := open(t, store.Options{SegmentBytes: 1 << 20})
	addTopic(t, s, "T", meta.Async)
	sendNumbers(t, s, "T", 0, 1)
	f := s.PullFilter("T", sql(t, "n = 5"))
	var es [1]store.TopicEntry
	if s.ReadTopic("T", 0, es[:]) != 1 || s.Selects(f, es[0]) {
		t.Error("n = 0 is selected by n = 5")
	}
	es[0].Position = 1 << 40
	es[0].Address = es[0].Position
	if !s.Selects(f, es[0]) {
		t.Error("a record that cannot be read is not given")
	}
	if es[0].Size = 0; s.Selects(f, es[0]) {
		t.Error("an entry without a record is given")
	}
}

func TestSelectDoesNotAllocate(t *testing.T) {
	s := open(t, store.Options{SegmentBytes: 1 << 20})
	addTopic(t, s, "T", meta.Async)
	sendNumbers(t, s, "T", 0, 100)
	f := s.PullFilter("T", sql(t, "colour = 'c4'"))
	q, dst := s.Queue("T", 0, false), make([]store.TopicEntry, 32)
	if n := testing.AllocsPerRun(100, func() {
		if r, err := s.Select(q, 0, f, dst, 100); err != nil || r.Entries != 10 {
			t.Fatal(r, err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// Power cuts at any time: what is left of the bits never keeps a message from who selects it, whatever the log says afterwards.
func TestFilterBitsStayRightAfterPowerCuts(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	texts := []string{"colour = 'c3'", "colour = 'c7'", "n >= 50"}
	for range 6 {
		fs := vfs.NewMem()
		answered := 0
		for range 4 {
			synctest.Test(t, func(t *testing.T) {
				s, err := tryOpen(t, store.Options{FS: fs, Dir: "store"})
				if err != nil {
					t.Fatal(err)
				}
				if s.Topics().Get("T") == nil {
					addTopic(t, s, "T", meta.Async)
				}
				for _, text := range texts {
					answered -= checkSelect(t, s, "T", text)
				}
				synctest.Wait()
				for i := range rng.IntN(100) {
					rs := make([]store.Result, 1)
					s.Append([]store.Message{{
						Topic: "T", Queue: int32(i % 2), Body: []byte("body"),
						Properties: fmt.Appendf(nil, "n\x01%02d\x02colour\x01c%d\x02", rng.IntN(100), rng.IntN(10)),
					}}, rs)
				}
				synctest.Wait()
				if rng.IntN(2) == 0 {
					time.Sleep(2 * time.Minute) // full chunks are written, and the log is synced
				}
				for _, text := range texts {
					checkSelect(t, s, "T", text)
				}
				if rng.IntN(3) == 0 {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
				}
				fs = fs.CrashClone(rng, rng.Float64())
				_ = s.Close() // of what is gone
			})
		}
	}
}

// BenchmarkSelect reads a queue of 1,000 messages through a filter that selects 1 in 100, by the bits of a store that knew the
// filter and by evaluating it.
func BenchmarkSelect(b *testing.B) {
	s := benchStore(b, meta.Async)
	addTopic(b, s, "T", meta.Async)
	const n = 1000
	known := s.PullFilter("T", sql(b, "n <= 9"))
	for i := range n {
		rs := make([]store.Result, 1)
		s.Append([]store.Message{{Topic: "T", Body: make([]byte, benchBody), Properties: fmt.Appendf(nil, "UNIQ_KEY\x01%032x\x02TAGS\x01TagA\x02n\x01%d\x02colour\x01c%d\x02", i, i, i%10)}}, rs)
		if rs[0].Err != nil {
			b.Fatal(rs[0].Err)
		}
	}
	for {
		if _, read := selectAll(b, s, "T", known); read < n/2 {
			break // they have been answered
		}
	}
	for _, bench := range []struct {
		name string
		f    *store.PullFilter
	}{{"bits", known}, {"evaluated", s.PullFilter("T", sql(b, "n < 10"))}} {
		b.Run(bench.name, func(b *testing.B) {
			q := s.Queue("T", 0, false)
			dst := make([]store.TopicEntry, 32)
			b.ReportAllocs()
			stop := cpuPerOp(b)
			for b.Loop() {
				r, err := s.Select(q, 0, bench.f, dst, n)
				if err != nil || r.Entries != 10 || r.Looked != n {
					b.Fatal(r, err)
				}
			}
			stop()
		})
	}
}
