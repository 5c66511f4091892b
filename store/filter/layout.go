package filter

import (
	"bytes"
	"hash/maphash"
	"maps"
)

// Layout numbers the places that programs read, so that one pass over a message serves all of them. It is immutable; the
// zero value has no places.
type Layout struct {
	names   []string // of properties, by number
	table   []slot   // finds them; a power of two of slots, at most half of them taken
	sources []located
	bySrc   map[Source]int32
	byName  [][]int32 // by name: the sources that have it
	always  []int32   // sources that can have a value whatever the properties are
}

type slot struct {
	hash   uint32
	number int32 // of the name, from 1; 0 is free
}

// located is a source with the numbers of its properties, -1 for none.
type located struct {
	Source
	name, empty int32
}

var seed = maphash.MakeSeed()

func hashOf(b []byte) uint32 { return uint32(maphash.Bytes(seed, b)) }

// Sources is the number of places. They are numbered from 0; a layout that extends this one keeps the numbers.
func (l *Layout) Sources() int { return len(l.sources) }

// Number is the number of a place that the layout has.
func (l *Layout) Number(s Source) int { return int(l.bySrc[s]) }

// with returns a layout that has these sources, too, and their numbers.
func (l *Layout) with(sources []Source) (*Layout, []int32) {
	numbers := make([]int32, len(sources))
	ext := l
	for i, s := range sources {
		n, ok := ext.bySrc[s]
		if !ok {
			if ext == l {
				ext = l.clone()
			}
			n = ext.add(s)
		}
		numbers[i] = n
	}
	return ext, numbers
}

func (l *Layout) clone() *Layout {
	c := &Layout{
		names: append([]string(nil), l.names...), table: append([]slot(nil), l.table...),
		sources: append([]located(nil), l.sources...), bySrc: make(map[Source]int32, len(l.bySrc)+1),
	}
	maps.Copy(c.bySrc, l.bySrc)
	c.always = append([]int32(nil), l.always...)
	c.byName = make([][]int32, len(l.byName))
	for i := range c.byName {
		c.byName[i] = append([]int32(nil), l.byName[i]...)
	}
	return c
}

func (l *Layout) add(s Source) int32 {
	p := located{s, -1, -1}
	if s.Name != "" {
		p.name = l.addName(s.Name)
	}
	if s.Empty != "" {
		p.empty = l.addName(s.Empty)
	}
	n := int32(len(l.sources))
	l.sources = append(l.sources, p)
	l.bySrc[s] = n
	if s.Field != FieldNone || s.HasDefault {
		l.always = append(l.always, n)
		return n
	}
	if p.name >= 0 {
		l.byName[p.name] = append(l.byName[p.name], n)
	}
	if p.empty >= 0 {
		l.byName[p.empty] = append(l.byName[p.empty], n)
	}
	return n
}

func (l *Layout) addName(name string) int32 {
	if n := l.find(bytesOf(name)); n >= 0 {
		return n
	}
	l.names, l.byName = append(l.names, name), append(l.byName, nil)
	if 2*len(l.names) > len(l.table) {
		l.table = make([]slot, max(8, 2*len(l.table)))
		for i, n := range l.names {
			l.insert(n, int32(i))
		}
	} else {
		l.insert(name, int32(len(l.names)-1))
	}
	return int32(len(l.names) - 1)
}

func (l *Layout) insert(name string, number int32) {
	h := hashOf(bytesOf(name))
	mask := uint32(len(l.table) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		if l.table[i].number == 0 {
			l.table[i] = slot{h, number + 1}
			return
		}
	}
}

// find returns the number of a name, -1 when the layout does not have it.
func (l *Layout) find(name []byte) int32 {
	if len(l.table) == 0 {
		return -1
	}
	h := hashOf(name)
	mask := uint32(len(l.table) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		s := l.table[i]
		if s.number == 0 {
			return -1
		}
		if s.hash == h && l.names[s.number-1] == string(name) {
			return s.number - 1
		}
	}
}

// span is where a value lies in the property text; values are never empty, so the zero span is none.
type span struct{ from, to uint32 }

// scan finds the values of all names in one pass. spans has one place a name, all zero. With seen, the numbers of the names
// that are there are appended to it.
func (l *Layout) scan(props []byte, spans []span, seen []int32) []int32 {
	for at := 0; at < len(props); {
		entry := props[at:]
		next := len(props)
		if i := bytes.IndexByte(entry, valueEnd); i >= 0 {
			entry, next = entry[:i], at+i+1
		}
		if k := bytes.IndexByte(entry, nameEnd); k > 0 && k+1 < len(entry) {
			if n := l.find(entry[:k]); n >= 0 {
				if spans[n].to == 0 {
					seen = append(seen, n)
				}
				spans[n] = span{uint32(at + k + 1), uint32(at + len(entry))}
			}
		}
		at = next
	}
	return seen
}

// few is up to how many names are better looked for one by one.
const few = 2

// search finds the values of a few names, one after the other: a search for a few bytes skips what else there is faster
// than the entries can be cut.
func (l *Layout) search(props []byte, spans []span) {
	for n, name := range l.names {
		for from := 0; ; {
			i := bytes.Index(props[from:], bytesOf(name))
			if i < 0 {
				break
			}
			at := from + i
			from = at + len(name)
			if from+1 >= len(props) || props[from] != nameEnd || at > 0 && props[at-1] != valueEnd {
				continue // part of something else, or the end
			}
			to := bytes.IndexByte(props[from+1:], valueEnd)
			if to < 0 {
				to = len(props) - from - 1
			}
			if to > 0 {
				spans[n] = span{uint32(from + 1), uint32(from + 1 + to)}
				from += 1 + to
			}
		}
	}
}

// Frame is the values of one message at the places of a layout. It keeps its memory from one message to the next. The zero
// value is ready; one goroutine may use it at a time.
type Frame struct {
	layout *Layout
	props  []byte
	fields Fields
	few    [stackNames]span // by name, when many is nil: in here, so that they are on the stack when the frame is
	many   []span
	seen   []int32
}

// Load takes a message, which must stay unchanged as long as the frame is asked about it.
func (f *Frame) Load(l *Layout, m *Message) {
	for _, n := range f.seen {
		f.many[n] = span{}
	}
	if len(f.many) < len(l.names) || f.many == nil {
		f.many = make([]span, 2*len(l.names)+1)
	}
	f.layout, f.props, f.fields = l, m.Properties, m.Fields
	f.seen = l.scan(m.Properties, f.many, f.seen[:0])
}

// Unload forgets the message, so that the frame does not keep its memory.
func (f *Frame) Unload() { f.props, f.fields = nil, nil }

// Sources appends the places that can have a value for the message, each once: those whose property is there, and those
// that do not depend on one.
func (f *Frame) Sources(dst []int32) []int32 {
	l := f.layout
	for _, name := range f.seen {
		for _, src := range l.byName[name] {
			// Of a value and the property that says it is empty, the value counts.
			if p := &l.sources[src]; p.name == name || p.name < 0 || f.many[p.name].to == 0 {
				dst = append(dst, src)
			}
		}
	}
	return append(dst, l.always...)
}

// Text is the value at a place as keys of KeyText compare it, ok false when there is none. It aliases the message or buf.
func (f *Frame) Text(source int32, buf []byte) (b []byte, ok bool) {
	if p := &f.layout.sources[source]; p.name >= 0 {
		if s := f.span(p.name); s.to > 0 {
			return f.props[s.from:s.to], true
		}
	}
	v := f.value(source)
	if v.kind == KindText {
		return v.text, true
	}
	return v.appendText(buf[:0]), v.kind != KindNull
}

func (f *Frame) span(name int32) span {
	if f.many != nil {
		return f.many[name]
	}
	return f.few[name]
}

func (f *Frame) value(source int32) Value {
	p := &f.layout.sources[source]
	if p.name >= 0 {
		if s := f.span(p.name); s.to > 0 {
			return Value{kind: KindText, text: f.props[s.from:s.to]}
		}
	}
	if p.empty >= 0 && f.span(p.empty).to > 0 {
		return Value{kind: KindText}
	}
	if p.Field == FieldNone && !p.HasDefault {
		return Value{}
	}
	return p.otherwise(f.fields)
}
