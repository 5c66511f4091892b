package state

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"slices"
)

const (
	snapshotMagic   = "FMQSTATE"
	snapshotVersion = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SnapshotError says why bytes are not a snapshot that can be used. The log can always be read again instead.
type SnapshotError struct {
	Version int // set when another program version wrote it
	What    string
}

func (e *SnapshotError) Error() string { return "state: snapshot: " + e.What }

// Save appends the state to dst. Load makes an equal Machine of it.
func (m *Machine) Save(dst []byte) []byte {
	e := saver{b: append(dst, snapshotMagic...), groups: map[*group]int{}, topics: map[*topic]int{}}
	e.b = append(e.b, snapshotVersion)
	e.int(m.at)

	var topics []*topic
	var groups, lines []*group
	for _, name := range slices.Sorted(maps.Keys(m.groups)) {
		g := m.groups[name]
		e.groups[g] = len(groups)
		groups = append(groups, g)
		if g.line.len() > 0 {
			lines = append(lines, g)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.topics)) {
		t := m.topics[name]
		e.topics[t] = len(topics)
		topics = append(topics, t)
	}
	e.uint(len(groups))
	for _, g := range groups {
		e.text(g.name)
	}
	e.uint(len(topics))
	for _, t := range topics {
		e.text(t.name)
		e.topic(t, &m.sets)
	}
	e.uint(len(lines))
	for _, g := range lines {
		e.uint(e.groups[g])
		e.uint(g.line.len())
		due := int64(0)
		g.line.after(-1, 0, func(w *waiting) bool {
			e.uint(e.topics[w.topic])
			e.int(w.due - due)
			due = w.due
			e.int(w.address)
			e.int(w.position - w.address)
			e.uint(int(w.size))
			e.uint(int(w.attempt))
			return true
		})
	}
	return binary.LittleEndian.AppendUint32(e.b, crc32.Checksum(e.b[len(dst):], castagnoli))
}

type saver struct {
	b      []byte
	groups map[*group]int
	topics map[*topic]int
}

func (e *saver) uint(n int)  { e.b = binary.AppendUvarint(e.b, uint64(n)) }
func (e *saver) int(n int64) { e.b = binary.AppendVarint(e.b, n) }
func (e *saver) text(s string) {
	e.uint(len(s))
	e.b = append(e.b, s...)
}

func (e *saver) topic(t *topic, s *sets) {
	e.uint(len(t.positions))
	for _, name := range slices.Sorted(maps.Keys(t.positions)) {
		p := t.positions[name]
		e.uint(e.groups[p.group])
		attached := 0
		if p.Attached {
			attached = 1
		}
		e.uint(attached)
		e.int(p.Attach)
		e.int(p.Cursor)
		e.int(p.SkipFrom)
		e.int(p.SkipTo)
	}
	e.uint(len(t.bindings))
	for i := range t.bindings {
		b := &t.bindings[i]
		e.uint(e.groups[b.group])
		e.uint(int(b.Kind))
		e.text(b.Expr)
		e.uint(int(b.WaterMark) + 1)
		flags := 0
		if b.Volatile {
			flags = flagVolatile
		}
		e.uint(flags)
		e.int(b.since)
		e.int(b.until)
	}
	numbers := map[setID]int{}
	var used []setID
	for _, sh := range t.window.shares[t.window.head:] {
		if _, ok := numbers[sh.set]; !ok && sh.set != noSet {
			numbers[sh.set] = len(used)
			used = append(used, sh.set)
		}
	}
	e.uint(len(used))
	for _, id := range used {
		e.uint(len(s.all[id].groups))
		for _, g := range s.all[id].groups {
			e.uint(e.groups[g])
		}
	}
	e.uint(t.window.live)
	last := int64(0)
	for _, sh := range t.window.shares[t.window.head:] {
		if sh.set == noSet {
			continue
		}
		e.int(sh.address - last)
		last = sh.address
		e.int(sh.position - sh.address)
		e.uint(int(sh.size))
		e.uint(numbers[sh.set])
	}
}

// Load makes a machine of what Save has written and tells the exchange of every binding in it, those that have ended too,
// with their own addresses and in their order. With an error the exchange was told nothing.
func Load(b []byte, x Exchange) (*Machine, error) {
	const head = len(snapshotMagic) + 1
	if len(b) < head+4 || string(b[:len(snapshotMagic)]) != snapshotMagic {
		return nil, &SnapshotError{What: "is none"}
	}
	body := b[:len(b)-4]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(b[len(body):]) {
		return nil, &SnapshotError{What: "wrong checksum"}
	}
	if v := int(b[head-1]); v != snapshotVersion {
		return nil, &SnapshotError{Version: v, What: fmt.Sprintf("version %d is not known", v)}
	}
	l := loader{decoder: decoder{b: body[head:], all: len(body)}, m: NewMachine(x)}
	l.machine()
	if l.err == nil && len(l.b) > 0 {
		l.fail(fmt.Sprintf("%d bytes behind the end", len(l.b)))
	}
	if l.err != nil {
		return nil, &SnapshotError{What: l.err.Error()}
	}
	if x != nil {
		l.m.tellAll()
	}
	return l.m, nil
}

type loader struct {
	decoder
	m      *Machine
	topics []*topic
}

func (l *loader) int32() int32 { return int32(l.uvarint(math.MaxInt32)) }

func (l *loader) group() *group {
	i := l.uvarint(math.MaxInt32)
	if l.err == nil && i >= uint64(len(l.m.byID)) {
		l.fail(fmt.Sprintf("group %d of %d", i, len(l.m.byID)))
	}
	if l.err != nil {
		return nil
	}
	return l.m.byID[i]
}

// machine stops at the first error; a loop body may run once more with zeros before its loop ends.
func (l *loader) machine() {
	m := l.m
	m.at = l.varint()
	for _, name := range l.strings(MaxNameBytes) {
		if m.groups[name] != nil {
			l.fail("group " + name + " twice")
		}
		m.group(name)
	}
	for n := l.count(len(l.b), 6, "topics"); n > 0 && l.err == nil; n-- {
		name := l.text(MaxNameBytes)
		if m.topics[name] != nil {
			l.fail("topic " + name + " twice")
			return
		}
		t := m.topic(name)
		l.topics = append(l.topics, t)
		l.topic(t)
	}
	for n := l.count(len(l.b), 2, "lines"); n > 0 && l.err == nil; n-- {
		l.line(l.group())
	}
}

func (l *loader) topic(t *topic) {
	m := l.m
	for n := l.count(len(l.b), 6, "positions"); n > 0; n-- {
		g := l.group()
		p := &position{group: g}
		p.Attached = l.uvarint(1) == 1
		if p.Attached {
			t.attached++
		}
		p.Attach, p.Cursor, p.SkipFrom, p.SkipTo = l.varint(), l.varint(), l.varint(), l.varint()
		if l.err != nil {
			return
		}
		if t.positions[g.name] != nil {
			l.fail("two positions of group " + g.name)
			return
		}
		t.positions[g.name] = p
	}
	for n := l.count(len(l.b), 7, "bindings"); n > 0; n-- {
		b := binding{group: l.group()}
		b.Kind = BindingKind(l.uvarint(uint64(BindFanout)))
		b.Expr = l.text(MaxExprBytes)
		b.WaterMark = int32(l.uvarint(maxWaterMark+1)) - 1
		b.Volatile = l.uvarint(maxKnownFlags)&flagVolatile != 0
		b.since, b.until = l.varint(), l.varint()
		if l.err != nil {
			return
		}
		t.bindings = append(t.bindings, b)
	}
	used := make([][]*group, l.count(len(l.b), 2, "sets"))
	for i := range used {
		used[i] = make([]*group, l.count(len(l.b), 1, "groups of a set"))
		for j := range used[i] {
			used[i][j] = l.group()
		}
		if l.err == nil && len(used[i]) == 0 {
			l.fail("an empty set")
		}
		if l.err != nil {
			return
		}
	}
	address := int64(-1)
	last := int64(0)
	for n := l.count(len(l.b), 4, "window entries"); n > 0; n-- {
		s := share{address: last + l.varint()}
		last = s.address
		s.position = s.address + l.varint()
		s.size = l.int32()
		set := l.uvarint(math.MaxInt32)
		if l.err == nil && (set >= uint64(len(used)) || s.address <= address) {
			l.fail(fmt.Sprintf("window entry at %d is out of order or of no set", s.address))
		}
		if l.err != nil {
			return
		}
		address = s.address
		s.set = m.sets.hold(used[set])
		t.window.add(s)
		m.stats.Window++
	}
}

func (l *loader) line(g *group) {
	due := int64(0)
	for n := l.count(len(l.b), 6, "retries"); n > 0; n-- {
		var w waiting
		i := l.uvarint(math.MaxInt32)
		w.due = due + l.varint()
		due = w.due
		w.address = l.varint()
		w.position = w.address + l.varint()
		w.size, w.attempt = l.int32(), l.int32()
		if l.err == nil && (i >= uint64(len(l.topics)) || w.due < 0 || w.address < 0 || g.line.get(w.address) != nil) {
			l.fail(fmt.Sprintf("retry of %d is out of range, of no topic, or there twice", w.address))
		}
		if l.err != nil {
			return
		}
		w.topic = l.topics[i]
		l.m.wait(g, w)
	}
}

// tellAll gives the exchange the life of every binding in the order of the log.
func (m *Machine) tellAll() {
	type change struct {
		at   int64
		bind bool
		t    *topic
		b    *binding
	}
	var all []change
	for _, name := range slices.Sorted(maps.Keys(m.topics)) {
		t := m.topics[name]
		for i := range t.bindings {
			b := &t.bindings[i]
			all = append(all, change{b.since, true, t, b})
			if b.until != 0 {
				all = append(all, change{b.until, false, t, b})
			}
		}
	}
	// In one record, the end of a binding comes before the new life of the same one; see prune for one that ends where it began.
	slices.SortStableFunc(all, func(a, b change) int {
		if c := cmp.Compare(a.at, b.at); c != 0 || a.bind == b.bind {
			return c
		}
		if a.bind {
			return 1
		}
		return -1
	})
	for _, c := range all {
		if c.bind {
			m.exchange.Bind(c.at, c.t.name, c.b.group.name, c.b.Binding)
		} else {
			m.exchange.Unbind(c.at, c.t.name, c.b.group.name, c.b.Binding)
		}
	}
}
