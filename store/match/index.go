// Package match finds, of many filters, those that select a message, in far less than asking each.
//
// An [Index] takes apart what filters ask (after "Efficiently Evaluating Complex Boolean Expressions", SIGMOD 2010, and
// A-Tree): of each filter it keeps the keys that [filter.Program.Keys] gives, at least one of which holds for every message
// that the filter selects, under the property that they are about. A message is read once, each of its properties is looked
// up by value and by number, and only filters one of whose keys was found are evaluated, on the values that were already
// found; most that are found select the message. Filters without such a key (`a IS NULL`) are evaluated each time.
//
// What was weighed: counting how many conditions of each filter hold, as the paper does, touches an entry for each condition
// that holds and still needs an evaluation where conditions are no plain conjunction. Keys of one condition, or of two where
// one alone holds often, and an evaluation touch less. Keys are ranked by a fixed guess and not by what messages have been
// like, so that costs do not depend on history.
//
// Answers are exact: the set is that of the filters that [filter.Expr.Eval] finds true. An index may be changed while it is
// used; a match sees the filters of one moment, and readers never wait.
package match

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fusionmq/fusionmq/store/filter"
)

// Index is a set of filters, each with the owners that it was added for. Equal filters are one. The zero value is not
// ready: use [New].
type Index[T comparable] struct {
	schema filter.Schema
	now    atomic.Pointer[snapshot[T]]
	mu     struct {
		sync.Mutex
		entries map[identity]*entry[T]
		free    []int32 // numbers of entries that are gone
	}
}

// identity is what makes two filters the same.
type identity struct {
	rules filter.Rules
	text  string
}

// entry is one filter.
type entry[T comparable] struct {
	owners  atomic.Pointer[[]T] // replaced, never changed
	bound   *filter.Bound
	program *filter.Program
	keys    []filter.Key // both kinds
	first   int          // how many of them are the first kind
	sources []int32      // of the keys
	number  int32        // lower than snapshot.numbers; unique in a snapshot
}

// posting is a filter under one of its keys. What is looked at for each one that is found is in it.
type posting[T comparable] struct {
	*entry[T]
	number int32
	exact  bool  // that the key holds is enough
	kind   uint8 // of the key: 1 or 2
	want   uint8 // which kinds must be found, 1 or 3; 0 when this is the only key
}

func newEntry[T comparable](p *filter.Program, number int32) *entry[T] {
	keys, more := p.Keys()
	return &entry[T]{program: p, keys: slices.Concat(keys, more), first: len(keys), number: number}
}

// posting makes the posting of key i.
func (e *entry[T]) posting(i int) posting[T] {
	p := posting[T]{entry: e, number: e.number, exact: e.keys[i].Exact, kind: 1}
	if i >= e.first {
		p.kind = 2
	}
	if len(e.keys) > 1 {
		p.want = 1
	}
	if len(e.keys) > e.first {
		p.want, p.exact = 3, false
	}
	return p
}

// snapshot is the index of one moment. It and all below it is immutable.
type snapshot[T comparable] struct {
	layout  *filter.Layout
	attrs   []*attribute[T] // by source; nil for one that no key is about
	always  []posting[T]
	numbers int
}

// attribute is what is asked of one source.
type attribute[T comparable] struct {
	texts   *table[T]
	ranges  forest[T]
	present []posting[T]
}

// New returns an empty index for filters whose names are found by a schema; nil is filter.Plain.
func New[T comparable](schema filter.Schema) *Index[T] {
	x := &Index[T]{schema: schema}
	x.mu.entries = map[identity]*entry[T]{}
	x.now.Store(&snapshot[T]{layout: new(filter.Layout)})
	return x
}

// Len is the number of different filters.
func (x *Index[T]) Len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.mu.entries)
}

// Add adds a filter for an owner. Adding the same again changes nothing. It reports whether the filter is new to the index.
func (x *Index[T]) Add(e *filter.Expr, owner T) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	id := identity{e.Rules(), e.String()}
	if have := x.mu.entries[id]; have != nil {
		if owners := *have.owners.Load(); !slices.Contains(owners, owner) {
			owners = append(owners, owner) // behind what others see of it
			have.owners.Store(&owners)
		}
		return false
	}
	s := *x.now.Load()
	number := int32(s.numbers)
	if k := len(x.mu.free); k > 0 {
		number, x.mu.free = x.mu.free[k-1], x.mu.free[:k-1]
	} else {
		s.numbers++
	}
	n := newEntry[T](e.Compile(x.schema), number)
	n.owners.Store(&[]T{owner})
	x.mu.entries[id] = n
	s.add(n)
	x.now.Store(&s)
	return true
}

// Remove takes an owner off a filter, and the filter out of the index when that was the last one. It reports whether the
// filter has gone. What was not added is not missed.
func (x *Index[T]) Remove(e *filter.Expr, owner T) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	id := identity{e.Rules(), e.String()}
	have := x.mu.entries[id]
	if have == nil {
		return false
	}
	owners := slices.DeleteFunc(slices.Clone(*have.owners.Load()), func(o T) bool { return o == owner })
	if len(owners) > 0 {
		have.owners.Store(&owners)
		return false
	}
	delete(x.mu.entries, id)
	s := *x.now.Load()
	if s.layout.Sources() > 64 && s.layout.Sources() > 4*len(x.mu.entries) {
		x.rebuild()
		return true
	}
	s.remove(have)
	x.mu.free = append(x.mu.free, have.number)
	x.now.Store(&s)
	return true
}

// rebuild makes the snapshot again without the places that only filters of the past have read.
func (x *Index[T]) rebuild() {
	s := snapshot[T]{layout: new(filter.Layout)}
	x.mu.free = nil
	for id, old := range x.mu.entries {
		// A new entry: readers of the snapshot of before have the old one.
		n := newEntry[T](old.program, int32(s.numbers))
		n.owners.Store(old.owners.Load())
		s.numbers++
		x.mu.entries[id] = n
		s.add(n)
	}
	x.now.Store(&s)
}

// add and remove change a snapshot that nobody has seen yet; what it shares with others is replaced.
func (s *snapshot[T]) add(n *entry[T]) {
	n.bound, s.layout = n.program.Bind(s.layout)
	n.sources = n.sources[:0]
	attrs := make([]*attribute[T], s.layout.Sources())
	copy(attrs, s.attrs)
	s.attrs = attrs
	for i, k := range n.keys {
		p := n.posting(i)
		if k.Kind == filter.KeyAlways {
			s.always = append(s.always, p) // behind what others see of it; so below
			n.sources = append(n.sources, -1)
			continue
		}
		src := s.layout.Number(k.Source)
		n.sources = append(n.sources, int32(src))
		a := &attribute[T]{}
		if old := attrs[src]; old != nil {
			*a = *old
		}
		switch k.Kind {
		case filter.KeyText:
			a.texts = a.texts.with(k.Text, p)
		case filter.KeyRange:
			a.ranges = a.ranges.with(k.Low, k.High, p)
		default:
			a.present = append(a.present, p)
		}
		attrs[src] = a
	}
}

func (s *snapshot[T]) remove(n *entry[T]) {
	s.attrs = slices.Clone(s.attrs)
	for i, k := range n.keys {
		if k.Kind == filter.KeyAlways {
			s.always = without(s.always, n)
			continue
		}
		old := s.attrs[n.sources[i]]
		if old == nil {
			continue // an earlier key took all that was there
		}
		a := *old
		switch k.Kind {
		case filter.KeyText:
			a.texts = a.texts.without(k.Text, n)
		case filter.KeyRange:
			a.ranges = a.ranges.without(n)
		default:
			a.present = without(a.present, n)
		}
		if a.texts == nil && a.ranges == nil && a.present == nil {
			s.attrs[n.sources[i]] = nil
		} else {
			s.attrs[n.sources[i]] = &a
		}
	}
}

func without[T comparable](ps []posting[T], n *entry[T]) []posting[T] {
	ps = slices.DeleteFunc(slices.Clone(ps), func(p posting[T]) bool { return p.entry == n })
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// Matcher is the memory that a match needs. The zero value is ready; one goroutine may use it at a time, for any number of
// indexes.
type Matcher struct {
	frame   filter.Frame
	sources []int32
	buf     [32]byte
	found   []uint8 // by number of a filter with several keys: the kinds of which one was found
	touched []int32 // numbers that are not 0 there
}

// Match appends the owners of all filters that select a message, those of a filter together, otherwise in no order. An owner
// of several of them is there as often. It does not allocate, but for growing dst and what the Matcher keeps.
func (x *Index[T]) Match(dst []T, m *filter.Message, w *Matcher) []T {
	s := x.now.Load()
	f := &w.frame
	f.Load(s.layout, m)
	if len(w.found) < s.numbers {
		w.found = make([]uint8, 2*s.numbers)
	}
	w.sources = f.Sources(w.sources[:0])
	for _, src := range w.sources {
		a := s.attrs[src]
		if a == nil {
			continue
		}
		text, ok := f.Text(src, w.buf[:])
		if !ok {
			continue
		}
		if a.texts != nil {
			ps := a.texts.find(text)
			for i := range ps {
				dst = ps[i].take(dst, w, true)
			}
		}
		if len(a.ranges) > 0 {
			if n, whole, ok := filter.Number(text); ok {
				for _, r := range a.ranges {
					dst = r.take(dst, n, w, whole)
				}
			}
		}
		for i := range a.present {
			dst = a.present[i].take(dst, w, true)
		}
	}
	for i := range s.always {
		dst = s.always[i].take(dst, w, true)
	}
	for _, number := range w.touched {
		w.found[number] = 0
	}
	w.touched = w.touched[:0]
	f.Unload()
	return dst
}

// take appends the owners of a filter one of whose keys holds, if it selects the message and all that it wants has been found
// now. exact says whether an exact key is one for this value.
func (p *posting[T]) take(dst []T, w *Matcher, exact bool) []T {
	if p.want > 0 {
		old := w.found[p.number]
		now := old | p.kind
		if now == old {
			return dst
		}
		if w.found[p.number] = now; old == 0 {
			w.touched = append(w.touched, p.number)
		}
		if now != p.want {
			return dst
		}
	}
	if p.exact && exact || p.bound.Eval(&w.frame) == filter.True {
		return append(dst, *p.owners.Load()...)
	}
	return dst
}
