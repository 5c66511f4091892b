package filter

import (
	"bytes"
	"hash/maphash"
	"slices"
)

// Layout numbers the places that programs read, so that one pass over a message serves all of them. It is immutable; the
// zero value has no places. One that extends another has most of its memory in common with it, so that taking in a place costs about as
// much among many as among few.
type Layout struct {
	only    []slot   // the chunk of names, while there is one: most layouts are small, and every property of a message is looked up
	chunks  [][]slot // else all of them, by the upper bits of the hash; a power of two
	shift   uint     // of the hash
	names   int
	first   [few]*named // by number
	sources [][]located // by number, sourceChunk of them in each but the last
	places  int
	always  []int32 // sources that can have a value whatever the properties are
}

const (
	nameChunk   = 96 // names, at most, on average
	sourceChunk = 32
)

// slot is a place in a chunk of names: a power of two, at most half of them taken.
type slot struct {
	hash   uint32
	*named // nil is free
}

// named is a name. It is immutable.
type named struct {
	text    string
	number  int32
	sources []int32 // whose value it is
	empties []int32 // to which it says that their value is empty
	always  []int32 // those of both that are in Layout.always
}

// located is a source with the numbers of its properties, -1 for none.
type located struct {
	Source
	name, empty int32
}

var seed = maphash.MakeSeed()

func hashOf(b []byte) uint32 { return uint32(maphash.Bytes(seed, b)) }

// Sources is the number of places. They are numbered from 0; a layout that extends this one keeps the numbers.
func (l *Layout) Sources() int { return l.places }

// Number is the number of a place that the layout has.
func (l *Layout) Number(s Source) int {
	n, _ := l.number(s)
	return int(n)
}

func (l *Layout) number(s Source) (int32, bool) {
	key, among := s.Name, l.always
	if key == "" {
		key = s.Empty
	}
	if key != "" {
		n := l.find(bytesOf(key))
		if n == nil {
			return 0, false
		}
		if s.HasDefault || s.Field != FieldNone {
			among = n.always
		} else if among = n.sources; s.Name == "" {
			among = n.empties
		}
	}
	for _, i := range among {
		if l.source(i).Source == s {
			return i, true
		}
	}
	return 0, false
}

func (l *Layout) source(n int32) *located {
	return &l.sources[uint32(n)/sourceChunk][uint32(n)%sourceChunk]
}

// with returns a layout that has these sources, too, and their numbers.
func (l *Layout) with(sources []Source) (*Layout, []int32) {
	numbers := make([]int32, len(sources))
	ext := l
	for i, s := range sources {
		n, ok := ext.number(s)
		if !ok {
			if ext == l {
				c := *l
				ext = &c
			}
			n = ext.add(s)
		}
		numbers[i] = n
	}
	return ext, numbers
}

// add changes a layout that nobody has seen yet; what it shares with others is replaced.
func (l *Layout) add(s Source) int32 {
	n := int32(l.places)
	l.places++
	p := located{s, -1, -1}
	always := s.Field != FieldNone || s.HasDefault
	if s.Name != "" {
		p.name = l.addName(s.Name, n, always, false)
	}
	if s.Empty != "" {
		p.empty = l.addName(s.Empty, n, always, true)
	}
	if always {
		l.always = append(slices.Clip(l.always), n)
	}
	last := len(l.sources) - 1
	if last < 0 || len(l.sources[last]) == sourceChunk {
		l.sources = append(slices.Clip(l.sources), []located{p})
		return n
	}
	l.sources = slices.Clone(l.sources)
	l.sources[last] = append(slices.Clip(l.sources[last]), p)
	return n
}

// addName gives a name a source more and returns its number.
func (l *Layout) addName(name string, source int32, always, empty bool) int32 {
	n := named{text: name, number: int32(l.names)}
	if old := l.find(bytesOf(name)); old != nil {
		n = *old
	} else {
		l.names++
	}
	list := &n.sources
	switch {
	case always:
		list = &n.always
	case empty:
		list = &n.empties
	}
	*list = append(slices.Clip(*list), source)
	if n.number < few {
		l.first[n.number] = &n
	}
	s := slot{hashOf(bytesOf(name)), &n}
	switch {
	case l.names > nameChunk*max(1, len(l.chunks)):
		l.split()
	case l.chunks == nil:
		l.only = withSlot(l.only, s)
		return n.number
	default:
		l.chunks = slices.Clone(l.chunks)
	}
	c := &l.chunks[s.hash>>(l.shift&31)]
	*c = withSlot(*c, s)
	return n.number
}

// split makes twice as many chunks.
func (l *Layout) split() {
	old := l.chunks
	if old == nil {
		old, l.only, l.shift = [][]slot{l.only}, nil, 32
	}
	l.chunks, l.shift = make([][]slot, 2*len(old)), l.shift-1
	for _, c := range old {
		for _, s := range c {
			if s.named == nil {
				continue
			}
			to := &l.chunks[s.hash>>(l.shift&31)]
			if *to == nil {
				*to = make([]slot, len(c))
			}
			put(*to, s)
		}
	}
}

// withSlot returns a chunk with a name in it, in the place of one with the same text.
func withSlot(c []slot, s slot) []slot {
	used := 0
	for i := range c {
		if c[i].named != nil {
			used++
		}
	}
	if 2*(used+1) <= len(c) {
		c = slices.Clone(c)
	} else {
		old := c
		c = make([]slot, max(8, 2*len(old)))
		for _, s := range old {
			if s.named != nil {
				put(c, s)
			}
		}
	}
	put(c, s)
	return c
}

func put(c []slot, s slot) {
	mask := uint32(len(c) - 1)
	i := s.hash & mask
	for c[i].named != nil && (c[i].hash != s.hash || c[i].text != s.text) {
		i = (i + 1) & mask
	}
	c[i] = s
}

// find returns a name, nil when the layout does not have it.
func (l *Layout) find(name []byte) *named {
	h := hashOf(name)
	c := l.only
	if l.chunks != nil {
		c = l.chunks[h>>(l.shift&31)]
	}
	if len(c) == 0 {
		return nil
	}
	mask := uint32(len(c) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		s := &c[i]
		if s.named == nil || s.hash == h && s.text == string(name) {
			return s.named
		}
	}
}

// span is where a value lies in the property text; values are never empty, so the zero span is none.
type span struct{ from, to uint32 }

// scan finds the values of all names in one pass. spans has one place a name, all zero. The names that are there are appended
// to seen.
func (l *Layout) scan(props []byte, spans []span, seen []*named) []*named {
	for at := 0; at < len(props); {
		entry := props[at:]
		next := len(props)
		if i := bytes.IndexByte(entry, valueEnd); i >= 0 {
			entry, next = entry[:i], at+i+1
		}
		if k := bytes.IndexByte(entry, nameEnd); k > 0 && k+1 < len(entry) {
			if n := l.find(entry[:k]); n != nil {
				to := &spans[n.number]
				if to.to == 0 {
					seen = append(seen, n)
				}
				*to = span{uint32(at + k + 1), uint32(at + len(entry))}
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
	for n, name := range l.first[:l.names] {
		text := name.text
		for from := 0; ; {
			i := bytes.Index(props[from:], bytesOf(text))
			if i < 0 {
				break
			}
			at := from + i
			from = at + len(text)
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
	seen   []*named
}

// Load takes a message, which must stay unchanged as long as the frame is asked about it.
func (f *Frame) Load(l *Layout, m *Message) {
	for _, n := range f.seen {
		f.many[n.number] = span{}
	}
	if len(f.many) < l.names || f.many == nil {
		f.many = make([]span, 2*l.names+1)
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
		dst = append(dst, name.sources...)
		for _, src := range name.empties {
			// Of a value and the property that says it is empty, the value counts.
			if p := l.source(src); p.name < 0 || f.many[p.name].to == 0 {
				dst = append(dst, src)
			}
		}
	}
	return append(dst, l.always...)
}

// Text is the value at a place as keys of KeyText compare it, ok false when there is none. It aliases the message or buf.
func (f *Frame) Text(source int32, buf []byte) (b []byte, ok bool) {
	if p := f.layout.source(source); p.name >= 0 {
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
	p := f.layout.source(source)
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
