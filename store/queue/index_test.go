package queue

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sort"
	"testing"

	"pgregory.net/rapid"

	"github.com/fusionmq/fusionmq/store/vfs"
)

// world is a log and an index over it, with a model beside them: the plainest thing that gives the same answers.
type world struct {
	t   *rapid.T
	cfg Config
	x   *Index

	log     []put // every entry in log order
	end     int64 // log end
	synced  int64
	offsets map[key]int64
	min     int64 // DropBelow position
	damaged bool  // a byte of a file was changed
}

type key struct {
	topic string
	id    int32
}

type put struct {
	key
	offset int64
	e      Entry
	sync   bool
}

func (w *world) open() {
	w.x = nil
	w.cfg.LogMin, w.cfg.LogEnd = w.min, w.end
	x, err := Open(w.cfg)
	if err != nil {
		w.t.Fatalf("open: %v", err)
	}
	w.x = x
	for _, p := range w.log {
		if p.e.Address >= x.Resume() && p.e.Address >= w.min {
			w.give(p, true)
		}
	}
	w.synced = w.end
	x.Synced(w.end)
}

func (w *world) give(p put, visible bool) {
	if err := w.x.Queue(p.topic, p.id, true).Put(p.offset, p.e, visible); err != nil {
		w.t.Fatalf("put %+v: %v", p, err)
	}
}

func (w *world) visible(p put) bool {
	if p.e.Address < w.min {
		return false
	}
	// Held entries and all that stand behind them in their queue.
	for _, o := range w.log {
		if o.key == p.key && o.offset <= p.offset && o.sync && o.e.Address >= w.synced {
			return false
		}
	}
	return true
}

func (w *world) check() {
	t := w.t
	per := map[key][]put{}
	topics := map[string][]put{}
	blocked := map[string]bool{}
	for _, p := range w.log {
		if w.visible(p) {
			per[p.key] = append(per[p.key], p)
			if !blocked[p.topic] {
				topics[p.topic] = append(topics[p.topic], p)
			}
		} else if p.e.Address >= w.min {
			blocked[p.topic] = true
		}
	}
	for i := range 5 {
		for id := range int32(4) {
			k := key{fmt.Sprintf("T%d", i), id}
			if _, ok := w.offsets[k]; !ok && w.x.Queue(k.topic, id, false) != nil {
				t.Fatalf("there is a queue %v, the log has none", k)
			}
		}
	}
	for k, ps := range per {
		q := w.x.Queue(k.topic, k.id, false)
		if q == nil {
			t.Fatalf("no queue %v", k)
		}
		low, high := q.Range()
		if low != ps[0].offset || high != ps[len(ps)-1].offset+1 {
			t.Fatalf("%v: range %d..%d, want %d..%d", k, low, high, ps[0].offset, ps[len(ps)-1].offset+1)
		}
		at := rapid.Int64Range(low-2, high+2).Draw(t, "offset")
		dst := make([]Entry, rapid.IntRange(1, 40).Draw(t, "n"))
		n, err := q.Read(at, dst)
		if err != nil {
			t.Fatalf("%v: read %d: %v", k, at, err)
		}
		want := 0
		if at >= low && at < high {
			want = int(min(int64(len(dst)), high-at))
		}
		if n != want {
			t.Fatalf("%v: read %d of %d: %d entries, want %d", k, at, len(dst), n, want)
		}
		for i := range n {
			if p := ps[at-low+int64(i)]; dst[i] != p.e {
				t.Fatalf("%v: offset %d: %+v, want %+v", k, at+int64(i), dst[i], p.e)
			}
		}
		address := rapid.Int64Range(0, w.end+3).Draw(t, "address")
		i := sort.Search(len(ps), func(i int) bool { return ps[i].e.Address >= address })
		if got := q.SearchAddress(address); got != low+int64(i) {
			t.Fatalf("%v: address %d is offset %d, want %d", k, address, got, low+int64(i))
		}
		ms := rapid.Int64Range(0, w.end/16+2).Draw(t, "ms")
		lower, upper := high, low
		for _, p := range ps {
			if p.e.Time >= ms && lower == high {
				lower = p.offset
			}
			if p.e.Time <= ms {
				upper = p.offset
			}
		}
		if got := q.Search(ms, false); got != lower {
			t.Fatalf("%v: first at %d ms is %d, want %d", k, ms, got, lower)
		}
		if got := q.Search(ms, true); got != upper {
			t.Fatalf("%v: last at %d ms is %d, want %d", k, ms, got, upper)
		}
	}
	for name, ps := range topics {
		from := rapid.Int64Range(0, w.end+3).Draw(t, "from")
		ps = ps[sort.Search(len(ps), func(i int) bool { return ps[i].e.Address >= from }):]
		dst := make([]TopicEntry, rapid.IntRange(1, 60).Draw(t, "n"))
		n, err := w.x.Topic(name, false).Read(from, dst)
		if err != nil {
			t.Fatalf("%s: read from %d: %v", name, from, err)
		}
		if n != min(len(ps), len(dst)) {
			t.Fatalf("%s: read from %d: %d entries, want %d", name, from, n, min(len(ps), len(dst)))
		}
		for i := range n {
			if got, want := dst[i], (TopicEntry{ps[i].e, ps[i].id, ps[i].offset}); got != want {
				t.Fatalf("%s: entry %d from %d: %+v, want %+v", name, i, from, got, want)
			}
		}
	}
}

// cut ends the log at a position.
func (w *world) cut(end int64) {
	w.end, w.synced = end, min(w.synced, end)
	w.log = slices.DeleteFunc(w.log, func(p put) bool { return p.e.Address >= end })
	clear(w.offsets)
	for _, p := range w.log {
		w.offsets[p.key] = p.offset + 1
	}
}

// damage changes one byte of a file.
func damage(t *rapid.T, fsys vfs.FS, name string) {
	f, err := fsys.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	at := rapid.Int64Range(0, n-1).Draw(t, "byte")
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= rapid.ByteRange(1, 255).Draw(t, "bits")
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}

// heal reads everything and starts again as long as that finds damage. A damaged file is gone then.
func (w *world) heal() {
	for range 100 {
		var corrupt *CorruptError
		w.x.Topics(func(t *Topic) {
			t.Queues(func(q *Queue) {
				low, high := q.Range()
				if _, err := q.Read(low, make([]Entry, high-low)); err != nil && !errors.As(err, &corrupt) {
					w.t.Fatal(err)
				}
			})
		})
		if corrupt == nil {
			w.damaged = false
			return
		}
		w.x.Close() // its error is of sealing, which may have found the damage too
		w.open()
	}
	w.t.Fatal("the damage does not go away")
}

// TestLaw1IndexIsAFunctionOfTheLog drives an index and a plain model with random puts, syncs, seals, retention, clean and
// unclean restarts, power cuts, deletion of some or all files, a damaged byte, and truncation of the log, and compares
// every kind of read.
func TestLaw1IndexIsAFunctionOfTheLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mem := vfs.NewMem()
		const dir = "/index"
		w := &world{t: t, offsets: map[key]int64{}, cfg: Config{
			FS: mem, Dir: dir,
			SpanBytes:   rapid.Int64Range(200, 20000).Draw(t, "span bytes"),
			SpanEntries: rapid.IntRange(1, 300).Draw(t, "span entries"),
		}}
		w.cfg.Failed = func(err error) {
			if !w.damaged {
				t.Errorf("failed: %v", err)
			}
		}
		w.open()
		defer func() {
			if w.x != nil {
				w.x.Close()
			}
		}()
		topics := rapid.IntRange(1, 5).Draw(t, "topics")
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				for range rapid.IntRange(1, 80).Draw(t, "n") {
					k := key{fmt.Sprintf("T%d", rapid.IntRange(0, topics-1).Draw(t, "topic")), rapid.Int32Range(0, 3).Draw(t, "queue")}
					size := rapid.Int32Range(1, 40).Draw(t, "size")
					p := put{key: k, offset: w.offsets[k], sync: k.topic == "T1",
						e: Entry{Address: w.end, Position: w.end - w.end%3, Size: size, TagsCode: int64(int32(-w.end)), Time: w.end / 16}}
					w.offsets[k]++
					w.end += int64(size)
					w.log = append(w.log, p)
					w.give(p, !p.sync)
				}
			},
			"sync": func(t *rapid.T) {
				w.synced = rapid.Int64Range(w.synced, w.end).Draw(t, "synced")
				w.x.Synced(w.synced)
			},
			"seal": func(t *rapid.T) {
				w.synced = w.end
				w.x.Synced(w.end)
				if err := w.x.Drain(); err != nil {
					t.Fatal(err)
				}
			},
			"retention": func(t *rapid.T) {
				w.min = rapid.Int64Range(w.min, w.synced).Draw(t, "log min")
				if err := w.x.DropBelow(w.min); err != nil {
					t.Fatal(err)
				}
			},
			"restart": func(t *rapid.T) {
				if rapid.Bool().Draw(t, "clean") {
					w.synced = w.end
					w.x.Synced(w.end)
					if err := w.x.Seal(w.end); err != nil {
						t.Fatal(err)
					}
				}
				if err := w.x.Close(); err != nil {
					t.Fatal(err)
				}
				names, err := mem.List(dir)
				if err != nil {
					t.Fatal(err)
				}
				switch rapid.IntRange(0, 5).Draw(t, "loss") {
				case 0: // all views, or some
					all := rapid.Bool().Draw(t, "all")
					for _, name := range names {
						if all || rapid.Bool().Draw(t, "remove") {
							if err := mem.Remove(filepath.Join(dir, name)); err != nil {
								t.Fatal(err)
							}
						}
					}
					if err := mem.SyncDir(dir); err != nil { // or a power cut brings them back after the log was cut
						t.Fatal(err)
					}
				case 1: // the power: what was not synced goes in part, of the log too
					rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
					mem = mem.CrashClone(rng, rapid.Float64Range(0, 1).Draw(t, "kept"))
					w.cfg.FS = mem
					w.cut(rapid.Int64Range(w.synced, w.end).Draw(t, "log end"))
				case 2: // the end of the log, without telling
					w.cut(rapid.Int64Range(w.min, w.end).Draw(t, "log end"))
				case 3: // a byte
					if len(names) > 0 {
						w.damaged = true
						damage(t, mem, filepath.Join(dir, rapid.SampledFrom(names).Draw(t, "damage")))
					}
				}
				w.open()
				if w.damaged {
					w.heal()
				}
			},
			"": func(t *rapid.T) { w.t = t; w.check() },
		})
	})
}
