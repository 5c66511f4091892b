package lookup

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fusionmq/fusionmq/store/record"
	"github.com/fusionmq/fusionmq/store/vfs"
)

// runOf writes a run and gives its bytes.
func runOf(t testing.TB, es []Entry, start, end, most int64) []byte {
	t.Helper()
	fsys := vfs.NewMem()
	f, err := fsys.Create("/run")
	if err != nil {
		t.Fatal(err)
	}
	es = slices.Clone(es)
	slices.SortFunc(es, compare)
	w := newWriter(f, start, end, most)
	for _, e := range es {
		if err := w.add(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.finish(); err != nil {
		t.Fatal(err)
	}
	b, err := vfs.ReadFile(fsys, "/run", 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func openBytes(t testing.TB, b []byte, start, end int64) (*run, error) {
	t.Helper()
	fsys := vfs.NewMem()
	f, err := fsys.Create("/run")
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > 0 {
		if _, err := f.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
	}
	return openRun(fsys, "/run", start, end)
}

func randomEntries(n, keys int, seed uint64) []Entry {
	rng := rand.New(rand.NewPCG(seed, 1))
	es := make([]Entry, n)
	for i := range es {
		es[i] = Entry{spread(uint64(rng.IntN(keys))), 1000 + int64(i), 5000 + int64(i)}
	}
	return es
}

// Runs of all sizes around the limits of their pages give back what was put in, also with one hash over many pages.
func TestRunFindsWhatWasWritten(t *testing.T) {
	for _, n := range []int{0, 1, pageEntries - 1, pageEntries, pageEntries + 1, 3 * pageEntries, pageFences*pageEntries + 5} {
		for _, keys := range []int{1, 7, n + 1} {
			t.Run(fmt.Sprintf("entries=%d/keys=%d", n, keys), func(t *testing.T) {
				es := randomEntries(n, keys, 3)
				r, err := openBytes(t, runOf(t, es, 1000, 1000+int64(n)+1, int64(n)+100), 1000, 1000+int64(n)+1)
				if err != nil {
					t.Fatal(err)
				}
				defer r.release()
				for k := range min(keys, 300) + 3 {
					h := spread(uint64(k))
					var want, got []int64
					for _, e := range slices.Backward(es) {
						if e.Hash == h {
							want = append(want, e.Address)
						}
					}
					if err := r.find(h, func(a, tm int64) bool {
						if tm != a+4000 {
							t.Errorf("entry at %d has time %d", a, tm)
						}
						got = append(got, a)
						return true
					}); err != nil {
						t.Fatal(err)
					}
					if !slices.Equal(got, want) {
						t.Fatalf("key %d: %d addresses, want %d", k, len(got), len(want))
					}
				}
				s, all := scan{r: r}, 0
				for ok, err := s.next(); ok; ok, err = s.next() {
					if err != nil {
						t.Fatal(err)
					}
					all++
				}
				if all != n {
					t.Errorf("a scan has %d entries, want %d", all, n)
				}
			})
		}
	}
}

// Each bit of a run is under a checksum: a changed one is an error or changes nothing that anybody reads.
func TestFlippedBitsAreFound(t *testing.T) {
	es := randomEntries(450, 100, 5)
	good := runOf(t, es, 1000, 2000, 450)
	answers := func(b []byte) ([][]int64, error) {
		r, err := openBytes(t, b, 1000, 2000)
		if err != nil {
			return nil, err
		}
		defer r.release()
		all := make([][]int64, 101)
		for k := range all {
			if err := r.find(spread(uint64(k)), func(a, _ int64) bool { all[k] = append(all[k], a); return true }); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	want, err := answers(good)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for at := 0; at < len(good); at += 37 {
		b := bytes.Clone(good)
		b[at] ^= 1 << (at % 8)
		got, err := answers(b)
		var corrupt *CorruptError
		switch {
		case errors.As(err, &corrupt):
			found++
		case err != nil:
			t.Fatalf("byte %d: %v", at, err)
		default:
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("byte %d changed the answers unseen:\n%s", at, diff)
			}
		}
	}
	if found == 0 {
		t.Error("no flipped bit was found")
	}
	for n := 0; n < len(good); n += 511 {
		if _, err := openBytes(t, good[:n], 1000, 2000); err == nil {
			t.Fatalf("a file cut to %d of %d bytes is taken", n, len(good))
		}
	}
}

func FuzzRun(f *testing.F) {
	good := runOf(f, randomEntries(450, 20, 9), 1000, 2000, 450)
	empty := runOf(f, nil, 1000, 2000, 0)
	huge := bytes.Clone(good)
	huge[30] = 0xFF // entries
	f.Add([]byte{}, uint64(0))
	f.Add(good[:100], uint64(1))
	f.Add(good, uint64(2))
	f.Add(empty, uint64(3))
	f.Add(huge, uint64(4))
	f.Add(append(bytes.Clone(good), good...), uint64(5))
	f.Add(append(bytes.Clone(good), 1, 2, 3), uint64(6))
	f.Fuzz(func(t *testing.T, b []byte, k uint64) {
		// Sums are made right, so that what is behind them is reached.
		for at := 0; at+pageBytes <= len(b); at += pageBytes {
			if k%2 == 0 {
				sealPage((*page)(b[at:]))
			}
		}
		var h header
		if len(b) >= pageBytes {
			var what string
			if h, what = decodeHeader((*page)(b)); what == "" {
				var p page
				h.encode(&p)
				if again, what := decodeHeader(&p); what != "" || again != h {
					t.Fatalf("header %+v becomes %+v, %s", h, again, what)
				}
			}
		}
		r, err := openBytes(t, b, h.start, h.end)
		if err != nil {
			return
		}
		defer r.release()
		var first, second []int64
		for _, got := range []*[]int64{&first, &second} {
			if err := r.find(spread(k%20), func(a, _ int64) bool { *got = append(*got, a); return len(*got) < 1000 }); err != nil {
				return
			}
		}
		if !slices.Equal(first, second) {
			t.Fatalf("%v, then %v", first, second)
		}
		s := scan{r: r}
		for ok, err := s.next(); ok && err == nil; ok, err = s.next() {
		}
	})
}

func FuzzFileNames(f *testing.F) {
	f.Add("")
	f.Add("00000000000000000000-00000000000000004096.keys")
	f.Add("00000000000000000000-99999999999999999999.keys")
	f.Add("-0000000000000000000-00000000000000004096.keys")
	f.Fuzz(func(t *testing.T, name string) {
		p, ok := parseName(name)
		if ok && fileName("", p.from, p.end) != name {
			t.Fatalf("%q is [%d, %d), whose name is %q", name, p.from, p.end, fileName("", p.from, p.end))
		}
	})
}

func TestKeysOfARecord(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef"
	topic := TopicOf("T")
	h := func(keys ...string) []uint64 {
		var hs []uint64
		for _, k := range keys {
			hs = append(hs, topic.Hash([]byte(k)))
		}
		return hs
	}
	for _, tc := range []struct {
		name, give string
		want       []uint64
	}{
		{"nothing", "", nil},
		{"no keys", "TAGS\x01a\x02", nil},
		{"the unique id comes first", "KEYS\x01a b\x02UNIQ_KEY\x01u\x02", h("u", "a", "b")},
		{"parts that are empty do not count", "KEYS\x01 a  b \x02", h("a", "b")},
		{"equal ones count once", "UNIQ_KEY\x01a\x02KEYS\x01a b a\x02", h("a", "b")},
		{"the last separator may be missing", "KEYS\x01a", h("a")},
		{"a name that only ends like it", "XKEYS\x01a\x02", nil},
		{"of a Notify client", "UNIQ_KEY\x01" + id + "\x02KEYS\x01" + id + "\x02TAGS\x01t\x02", append(h(id), Anywhere.Hash([]byte(id)))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := topic.Keys(nil, []byte(tc.give))
			if !slices.Equal(got, tc.want) {
				t.Errorf("keys of %q are %x, want %x", tc.give, got, tc.want)
			}
			if len(tc.want) > 0 && !MayHaveKeys([]byte(tc.give)) {
				t.Errorf("MayHaveKeys(%q) is false", tc.give)
			}
		})
	}
}

func TestHasComparesWholeKeys(t *testing.T) {
	props := []byte("UNIQ_KEY\x01u\x02KEYS\x01a bc\x02")
	for _, tc := range []struct {
		key          string
		unique, want bool
	}{{"u", true, true}, {"u", false, true}, {"a", false, true}, {"a", true, false}, {"bc", false, true}, {"b", false, false}, {"a bc", false, false}, {"", false, false}, {"", true, false}} {
		if got := Has(props, tc.key, tc.unique); got != tc.want {
			t.Errorf("Has(%q, unique %v) = %v", tc.key, tc.unique, got)
		}
	}
}

// What Keys finds, Has confirms, whatever the bytes are.
func FuzzKeys(f *testing.F) {
	f.Add([]byte("UNIQ_KEY\x01u\x02KEYS\x01a b\x02"))
	f.Add([]byte("KEYS\x01\x02KEYS\x01 \x02"))
	f.Add([]byte("\x01\x02\x01KEY"))
	f.Add(record.AppendProperty(nil, "UNIQ_KEY", "0123456789abcdef0123456789abcdef"))
	f.Fuzz(func(t *testing.T, props []byte) {
		hashes := TopicOf("T").Keys(nil, props)
		if len(hashes) > 0 && !MayHaveKeys(props) {
			t.Fatalf("keys %x in %q, but MayHaveKeys says no", hashes, props)
		}
		keys, _ := properties(props)
		words(keys, func(word []byte) bool {
			if !Has(props, string(word), false) {
				t.Fatalf("word %q of %q is not its key", word, props)
			}
			if !slices.Contains(hashes, TopicOf("T").Hash(word)) {
				t.Fatalf("word %q of %q has no hash", word, props)
			}
			return true
		})
		if id, ok := Once(props); ok && !Has(props, string(id), true) {
			// A later property of the same name counts for readers.
			if _, uniq := properties(props); string(uniq) == string(id) {
				t.Fatalf("Once gives %q of %q", id, props)
			}
		}
	})
}

func TestHashesAreSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "key")
		b := bytes.Clone(a)
		b[rapid.IntRange(0, len(b)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if TopicOf("T").Hash(a) == TopicOf("T").Hash(b) {
			t.Errorf("%q and %q have one hash", a, b)
		}
	})
	var buckets [64]int
	topic := TopicOf("Orders")
	for i := range 64000 {
		buckets[topic.Hash(fmt.Appendf(nil, "order-%d", i))>>58]++
	}
	for i, n := range buckets {
		if n < 850 || n > 1150 {
			t.Errorf("bucket %d of 64 has %d of 64000 keys", i, n)
		}
	}
}
