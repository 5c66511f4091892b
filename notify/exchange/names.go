package exchange

import (
	"slices"
	"strings"
)

// names is a sorted set of names. It is kept in chunks of at most chunkNames, none of them empty, so that one name more or less moves
// the names of a chunk and not those of the whole set, while reading it is copying a few runs of memory. The zero value is empty.
type names [][]string

const chunkNames = 1024 // 16 KiB

// place is the chunk that has the name, or would have it. There must be one.
func (l names) place(name string) int {
	i, found := slices.BinarySearchFunc(l, name, func(c []string, name string) int { return strings.Compare(c[0], name) })
	if !found && i > 0 {
		i--
	}
	return i
}

// with returns the set with the name in it. The receiver must not be used any more; so with without.
func (l names) with(name string) names {
	if len(l) == 0 {
		return names{{name}}
	}
	at := l.place(name)
	c := l[at]
	i, found := slices.BinarySearch(c, name)
	if found {
		return l
	}
	if len(c) < chunkNames {
		l[at] = slices.Insert(c, i, name)
		return l
	}
	half := len(c) / 2
	if i == len(c) && at == len(l)-1 {
		half = i // names that come in order fill their chunks
	}
	rest := slices.Clone(c[half:])
	clear(c[half:])
	if c = c[:half]; i < half {
		c = slices.Insert(c, i, name)
	} else {
		rest = slices.Insert(rest, i-half, name)
	}
	l[at] = c
	return slices.Insert(l, at+1, rest)
}

// without returns the set without the name, nil when that was the last one.
func (l names) without(name string) names {
	if len(l) == 0 {
		return nil
	}
	at := l.place(name)
	i, found := slices.BinarySearch(l[at], name)
	if !found {
		return l
	}
	if len(l[at]) == 1 {
		if l = slices.Delete(l, at, at+1); len(l) == 0 {
			return nil
		}
		return l
	}
	l[at] = slices.Delete(l[at], i, i+1)
	// A chunk joins the one behind it when that leaves half of one free, so that few names hold little memory.
	for k := at; k >= max(at-1, 0); k-- {
		if k+1 < len(l) && len(l[k])+len(l[k+1]) <= chunkNames/2 {
			l[k] = append(l[k], l[k+1]...)
			l = slices.Delete(l, k+1, k+2)
		}
	}
	return l
}

// appendTo appends the names in order.
func (l names) appendTo(dst []string) []string {
	for _, c := range l {
		dst = append(dst, c...)
	}
	return dst
}
