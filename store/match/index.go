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
// used; a match sees the filters of one moment, without those and those owners that have been removed since, and readers never wait.
//
// A filter more or less costs, on average, about as much among many as among few: everything that readers see is in chunks of which
// one is copied, and what would take long to find or copy stays in its place, without owners, until half of what is there has gone.
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
		reads   int     // places that the entries read, counted for each of them
	}
}

// identity is what makes two filters the same.
type identity struct {
	rules filter.Rules
	text  string
}

// entry is one filter.
type entry[T comparable] struct {
	owners  atomic.Pointer[[][]T] // replaced, never changed; chunks of ownerChunk, all full but the last. None: the filter has gone
	where   map[T]int             // of the owners, when they are more than a chunk; guarded by Index.mu
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
	attrs   []*[attrChunk]*attribute[T] // by source, in chunks; nil for what no key is about
	always  list[T]
	numbers int
}

const attrChunk = 64

// attr is what is asked of a source, nil for nothing.
func (s *snapshot[T]) attr(src int32) *attribute[T] {
	if c := s.attrs[uint32(src)/attrChunk]; c != nil {
		return c[uint32(src)%attrChunk]
	}
	return nil
}

// set changes a snapshot that nobody has seen yet and whose attrs are its own; the chunks are shared.
func (s *snapshot[T]) set(src int32, a *attribute[T]) {
	at := &s.attrs[uint32(src)/attrChunk]
	c := new([attrChunk]*attribute[T])
	if *at != nil {
		*c = **at
	}
	c[uint32(src)%attrChunk] = a
	*at = c
}

// attribute is what is asked of one source.
type attribute[T comparable] struct {
	texts   *table[T]
	ranges  forest[T]
	present list[T]
	gone    int // ranges of filters that have gone
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
		have.own(owner)
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
	n.own(owner)
	x.mu.entries[id] = n
	x.mu.reads += n.program.Sources()
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
	if have.disown(owner); len(*have.owners.Load()) > 0 {
		return false
	}
	delete(x.mu.entries, id)
	x.mu.reads -= have.program.Sources()
	s := *x.now.Load()
	if s.layout.Sources() > 64 && s.layout.Sources() > 4*x.mu.reads || s.numbers > 64 && s.numbers > 4*len(x.mu.entries) {
		x.rebuild()
		return true
	}
	if s.remove(have) {
		x.mu.free = append(x.mu.free, have.number)
	}
	x.now.Store(&s)
	return true
}

// rebuild makes the snapshot again without what only filters of the past have: places that they read, and their numbers.
func (x *Index[T]) rebuild() {
	s := snapshot[T]{layout: new(filter.Layout)}
	x.mu.free = nil
	for id, old := range x.mu.entries {
		// A new entry: readers of the snapshot of before have the old one.
		n := newEntry[T](old.program, int32(s.numbers))
		n.owners.Store(old.owners.Load())
		n.where = old.where
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
	attrs := make([]*[attrChunk]*attribute[T], (s.layout.Sources()+attrChunk-1)/attrChunk)
	copy(attrs, s.attrs)
	s.attrs = attrs
	for i, k := range n.keys {
		p := n.posting(i)
		if k.Kind == filter.KeyAlways {
			s.always = s.always.with(p)
			n.sources = append(n.sources, -1)
			continue
		}
		src := int32(s.layout.Number(k.Source))
		n.sources = append(n.sources, src)
		a := &attribute[T]{}
		if old := s.attr(src); old != nil {
			*a = *old
		}
		switch k.Kind {
		case filter.KeyText:
			a.texts = a.texts.with(k.Text, p)
		case filter.KeyRange:
			a.ranges = a.ranges.with(k.Low, k.High, p)
		default:
			a.present = a.present.with(p)
		}
		s.set(src, a)
	}
}

// remove reports whether nothing is left of the filter. Where taking it out would copy much, it stays, without owners, until half of what
// is there has gone; so removing filters costs about what adding them did.
func (s *snapshot[T]) remove(n *entry[T]) (clean bool) {
	clean = true
	s.attrs = slices.Clone(s.attrs)
	for i, k := range n.keys {
		var out bool
		if k.Kind == filter.KeyAlways {
			s.always, out = s.always.without(n)
			clean = clean && out
			continue
		}
		old := s.attr(n.sources[i])
		if old == nil {
			continue // an earlier key took all that was there
		}
		a := *old
		switch k.Kind {
		case filter.KeyText:
			a.texts, out = a.texts.without(k.Text, n)
		case filter.KeyRange:
			a.gone++
			if out = 2*a.gone >= a.ranges.size(); out {
				a.ranges, a.gone = a.ranges.swept(), 0
			}
		default:
			a.present, out = a.present.without(n)
		}
		clean = clean && out
		if a.texts == nil && a.ranges == nil && a.present.all == nil {
			s.set(n.sources[i], nil)
		} else {
			s.set(n.sources[i], &a)
		}
	}
	return clean
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
		a := s.attr(src)
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
		for i := range a.present.all {
			dst = a.present.all[i].take(dst, w, true)
		}
	}
	for i := range s.always.all {
		dst = s.always.all[i].take(dst, w, true)
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
		for _, some := range *p.owners.Load() {
			dst = append(dst, some...)
		}
	}
	return dst
}
