package dedup

import (
	"testing"

	"pgregory.net/rapid"
)

func mix(n uint64) uint64 {
	n = (n + 1) * 0xBF58476D1CE4E5B9
	n ^= n >> 31
	return n * 0x94D049BB133111EB
}

// Nothing within the window is ever said to be new, and what is remembered is the newest.
func TestNoIDOfTheWindowIsForgotten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const window = 1000
		now := rapid.Int64Range(0, 5000).Draw(t, "start")
		w := New(window, MinBytes, now)
		known := now
		type sent struct{ address, time int64 }
		all := map[uint64][]sent{}
		address := int64(0)
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				for range rapid.IntRange(1, 300).Draw(t, "ids") {
					h := mix(rapid.Uint64Range(0, 5000).Draw(t, "id"))
					address += 100
					w.Insert(h, address, now)
					all[h] = append(all[h], sent{address, now})
				}
			},
			"time":   func(t *rapid.T) { now += rapid.Int64Range(0, 400).Draw(t, "ms") },
			"forget": func(*rapid.T) { known = now; w.Forget(now) },
			"ask": func(t *rapid.T) {
				for range 20 {
					h := mix(rapid.Uint64Range(0, 5000).Draw(t, "id"))
					at, ok := w.Recent(h)
					var newest sent
					if n := len(all[h]); n > 0 {
						newest = all[h][n-1]
					}
					if ok && at != newest.address {
						t.Fatalf("recent address %d, the newest is %+v", at, newest)
					}
					since := now - window
					if !ok && newest.address > 0 && newest.time >= since && !w.May(h, since) {
						t.Fatalf("stored at %+v, said to be new at %d", newest, now)
					}
					if !ok && newest.address > 0 && newest.time >= since && newest.address >= w.Evicted() {
						t.Fatalf("stored at %+v, given up below %d", newest, w.Evicted())
					}
					if since < known && !w.May(h, since) {
						t.Fatalf("sure of what was sent from %d on, nothing is known before %d", since, known)
					}
				}
			},
		})
	})
}

// New ids are known to be new, at the rate that the memory is for.
func TestNewIDsAreMostlyKnownToBeNew(t *testing.T) {
	w := New(600_000, 8<<20, 0)
	for i := range uint64(3_000_000) {
		w.Insert(mix(i), int64(i), int64(i)/5) // 5,000 a second
	}
	wrong := 0
	for i := range uint64(100_000) {
		if w.May(mix(1<<40+i), 0) {
			wrong++
		}
	}
	if wrong > 3000 {
		t.Errorf("%d of 100000 new ids could not be told from 3000000 others, want at most 3000", wrong)
	}
}

func TestWindowDoesNotGrow(t *testing.T) {
	w := New(1000, MinBytes, 0)
	size := func() int {
		n := len(w.recent) * ways * 16
		for i := range w.gens {
			n += len(w.gens[i].bits)
		}
		return n
	}
	for i := range uint64(200_000) {
		w.Insert(mix(i), int64(i), int64(i)/50)
	}
	if n := size(); n > MinBytes*9/8 {
		t.Errorf("%d bytes, want about %d", n, MinBytes)
	}
	if n := testing.AllocsPerRun(1000, func() { w.Insert(mix(7), 1<<40, 5000); w.Recent(mix(8)); w.May(mix(9), 4000) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkWindow(b *testing.B) {
	w := New(600_000, 8<<20, 0)
	b.ReportAllocs()
	for i := range uint64(b.N) {
		h := mix(i)
		if _, ok := w.Recent(h); !ok {
			w.May(h, 0)
		}
		w.Insert(h, int64(i), int64(i)/20)
	}
}

func TestFilterForgetsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3000).Draw(t, "ids")
		f := NewFilter(rapid.IntRange(0, 2*n).Draw(t, "bytes"))
		for i := range uint64(n) {
			f.Add(mix(i))
		}
		for i := range uint64(n) {
			if !f.May(mix(i)) {
				t.Fatalf("%d of %d is not in %d bytes", i, n, f.Bytes())
			}
		}
	})
}

func TestFilterKnowsNewIDs(t *testing.T) {
	const n = 100_000
	f := NewFilter(n * 10 / 8)
	for range 2 {
		for i := range uint64(n) {
			f.Add(mix(i))
		}
	}
	wrong := 0
	for i := range uint64(n) {
		if f.May(mix(1<<40 + i)) {
			wrong++
		}
	}
	if wrong > 2*n/100 || f.Len() > n || f.Len() < n*98/100 || f.Bytes() > n*10/8 {
		t.Errorf("%d of %d new ids are taken for old ones, Len %d, %d bytes", wrong, n, f.Len(), f.Bytes())
	}
}
