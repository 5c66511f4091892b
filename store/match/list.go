package match

import "slices"

// list is the filters under one key. It is immutable. Some of a long one may have gone: they are left in it until they are half of it, since
// taking one out copies all.
type list[T comparable] struct {
	all  []posting[T]
	gone int
}

const shortList = 256

// with returns a list with one more filter.
func (l list[T]) with(p posting[T]) list[T] {
	return list[T]{append(l.all, p), l.gone} // behind what others see of it
}

// without returns a list without a filter that has gone, with no memory when it was the last one, and whether it is out of it.
func (l list[T]) without(e *entry[T]) (list[T], bool) {
	if l.gone++; len(l.all) > shortList && 2*l.gone < len(l.all) {
		return l, false
	}
	all := slices.DeleteFunc(slices.Clone(l.all), func(p posting[T]) bool { return p.entry == e || p.gone() })
	if len(all) == 0 {
		all = nil
	}
	return list[T]{all: all}, true
}

// ownerChunk is how many owners are copied for one more or less.
const ownerChunk = 256

// gone says that the filter has been removed.
func (e *entry[T]) gone() bool { return len(*e.owners.Load()) == 0 }

// place is where an owner is among the others.
func (e *entry[T]) place(chunks [][]T, owner T) (int, bool) {
	if e.where != nil {
		i, ok := e.where[owner]
		return i, ok
	}
	if len(chunks) == 0 {
		return 0, false
	}
	i := slices.Index(chunks[0], owner)
	return i, i >= 0
}

// own adds an owner, unless it is one.
func (e *entry[T]) own(owner T) {
	var chunks [][]T
	if old := e.owners.Load(); old != nil {
		chunks = *old
	}
	if _, is := e.place(chunks, owner); is {
		return
	}
	last := len(chunks) - 1
	if last < 0 || len(chunks[last]) == ownerChunk {
		chunks = append(slices.Clip(chunks), []T{owner})
		last++
	} else {
		chunks = slices.Clone(chunks)
		chunks[last] = append(chunks[last], owner) // behind what others see of it
	}
	e.owners.Store(&chunks)
	if e.where == nil && last > 0 {
		e.where = map[T]int{}
		for i, o := range chunks[0] {
			e.where[o] = i
		}
	}
	if e.where != nil {
		e.where[owner] = last*ownerChunk + len(chunks[last]) - 1
	}
}

// disown takes an owner away. The last one takes its place.
func (e *entry[T]) disown(owner T) {
	chunks := slices.Clone(*e.owners.Load())
	at, is := e.place(chunks, owner)
	if !is {
		return
	}
	last := len(chunks) - 1
	rest := chunks[last]
	other := rest[len(rest)-1]
	c := &chunks[at/ownerChunk]
	*c = slices.Clone(*c)
	(*c)[at%ownerChunk] = other
	if rest = chunks[last]; len(rest) > 1 {
		chunks[last] = slices.Clip(rest[:len(rest)-1]) // others see what is behind it
	} else {
		chunks = chunks[:last]
	}
	e.owners.Store(&chunks)
	switch {
	case e.where == nil:
	case len(chunks) == 1 && len(chunks[0]) <= ownerChunk/2:
		e.where = nil
	default:
		e.where[other] = at
		delete(e.where, owner)
	}
}
