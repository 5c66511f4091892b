package state

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"slices"
)

const (
	snapshotMagic   = "FMQSTATE"
	snapshotVersion = 3
	rowsVersion     = 2 // is read, too
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SnapshotError says why bytes are not a snapshot that can be used. The log can always be read again instead.
type SnapshotError struct {
	Version int // set when another program version wrote it
	What    string
}

func (e *SnapshotError) Error() string { return "state: snapshot: " + e.What }

// Forms of what waits in a snapshot.
const (
	formFiles  = 1 // what the table needs to find it in files
	formThings = 2 // all of it
)

// Frozen is a state as of one moment. It may be written while the machine goes on.
type Frozen struct {
	at     int64
	head   []byte
	spaces []space // that may have something
	rows   Rows
}

// Freeze takes the state as of now. It is as long as the windows, the groups and the topics are; what waits is not copied.
func (m *Machine) Freeze() *Frozen {
	f := &Frozen{at: m.at, head: m.head(nil), spaces: []space{spaceHalf, spaceAside, spaceDelay, spaceReturn, spaceOutcome}, rows: m.table.Freeze()}
	for _, l := range m.lines {
		f.spaces = append(f.spaces, l.space)
	}
	return f
}

// At is [Machine.At] as of then.
func (f *Frozen) At() int64 { return f.at }

// Release ends it. It must be called once.
func (f *Frozen) Release() { f.rows.Release() }

// Save writes the state to w, all of it, with little in memory. LoadFrom makes an equal Machine of it. Equal states that the same
// records have made have equal bytes. An error is that of w, or says that the rows of what waits could not be read.
func (f *Frozen) Save(w io.Writer) error {
	e := saver{b: make([]byte, 0, len(f.head)+saveBytes), w: w}
	e.b = append(append(e.b, f.head...), formThings)
	for _, s := range f.spaces {
		if err := e.things(f.rows, s); err != nil {
			return err
		}
	}
	e.flush()
	e.b = binary.LittleEndian.AppendUint32(e.b, e.sum)
	e.flush()
	return e.err
}

// SaveWith appends the state to dst, but for what waits, which is what table appends: LoadWith gives that to its restore.
func (m *Machine) SaveWith(dst []byte, table func(dst []byte) []byte) []byte {
	b := append(m.head(dst), formFiles)
	at := len(b)
	b = table(append(b, 0, 0, 0, 0))
	binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[len(dst):], castagnoli))
}

// head appends what comes before the form: the magic, the length of the parts, and the parts.
func (m *Machine) head(dst []byte) []byte {
	e := saver{b: append(dst, snapshotMagic...)}
	e.b = append(e.b, snapshotVersion, 0, 0, 0, 0)
	from := len(e.b)
	e.int(m.at)
	e.int(m.now)
	e.uint(len(m.byID))
	for _, g := range m.byID {
		e.text(g.name)
	}
	e.uint(len(m.byTopic))
	for _, t := range m.byTopic {
		e.text(t.name)
		e.topic(t, &m.sets)
	}
	e.uint(len(m.lines))
	for _, l := range m.lines {
		e.uint(int(l.topic.id))
		e.uint(int(l.group.id))
		e.uint(l.count)
	}
	for _, n := range m.counts() {
		e.uint(*n)
	}
	binary.LittleEndian.PutUint32(e.b[from-4:], uint32(len(e.b)-from))
	return e.b
}

// counts are those of what waits outside the lines, as the snapshot has them.
func (m *Machine) counts() [5]*int {
	s := &m.stats
	return [...]*int{&s.Halves, &s.Aside, &s.Delays, &s.Returns, &s.Outcomes}
}

type saver struct {
	b   []byte
	w   io.Writer // nil: b is kept
	sum uint32    // of what was written
	err error
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
		e.uint(int(p.group.id))
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
	bindings := t.bindings()
	e.uint(len(bindings))
	for _, b := range bindings {
		e.uint(int(b.group.id))
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
			e.uint(int(g.id))
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

// LoadWith is LoadFrom bytes.
func LoadWith(b []byte, x Exchange, t Table, restore func([]byte) error) (*Machine, error) {
	return LoadFrom(bytes.NewReader(b), x, t, restore)
}

// LoadFrom makes a machine of what Save or SaveWith has written, up to its end, and tells the exchange of every binding in it, those that
// have ended too, with their own addresses and in their order. What waits is put into t, which is empty, one by one, or given to restore.
// With an error, which is a *SnapshotError or one of r, the exchange was told nothing, and t is of no use.
func LoadFrom(r io.Reader, x Exchange, t Table, restore func([]byte) error) (*Machine, error) {
	l := loader{m: NewMachineOn(x, t), restore: restore, in: input{r: r}}
	if err := l.load(); err != nil {
		if l.in.err != nil {
			return nil, l.in.err
		}
		return nil, err
	}
	if x != nil {
		l.m.tellAll()
	}
	return l.m, nil
}

type loader struct {
	decoder // of the head
	in      input
	m       *Machine
	restore func([]byte) error
}

func (l *loader) load() error {
	bad := func(what string) error { return &SnapshotError{What: what} }
	const start = len(snapshotMagic) + 5
	b := l.in.next(start)
	if len(b) < start || string(b[:len(snapshotMagic)]) != snapshotMagic {
		return bad("is none")
	}
	if v := int(b[len(snapshotMagic)]); v == rowsVersion {
		if err := l.old(bytes.Clone(b)); err != nil {
			return bad(err.Error())
		}
		return nil
	} else if v != snapshotVersion {
		return &SnapshotError{Version: v, What: fmt.Sprintf("version %d is not known", v)}
	}
	head, err := l.in.bytes(int64(binary.LittleEndian.Uint32(b[start-4:])))
	if err != nil {
		return bad(err.Error())
	}
	l.decoder = decoder{b: head, all: len(head)}
	l.machine()
	if l.err == nil && len(l.b) > 0 {
		l.fail(fmt.Sprintf("%d bytes behind the counts", len(l.b)))
	}
	if l.err != nil {
		return bad(l.err.Error())
	}
	switch form := l.in.next(1); {
	case len(form) == 0:
		err = errCut
	case form[0] == formFiles && l.restore != nil:
		err = l.files()
	case form[0] == formThings:
		err = l.things()
	default:
		err = fmt.Errorf("what waits has form %d", form[0])
	}
	if err != nil {
		return bad(err.Error())
	}
	sum := l.in.sum()
	if b := l.in.next(4); len(b) < 4 || binary.LittleEndian.Uint32(b) != sum {
		return bad("wrong checksum")
	}
	if len(l.in.next(1)) > 0 {
		return bad("bytes behind the end")
	}
	l.m.RememberOutcomes(l.m.remember)
	return nil
}

// old reads the rest of a snapshot of rowsVersion, which begins with b: the parts without their length, 0, the length of what follows, the number
// of rows, and each with its key and value.
func (l *loader) old(b []byte) error {
	for more := l.in.next(inputBytes); len(more) > 0; more = l.in.next(inputBytes) {
		b = append(b, more...)
	}
	end := len(b) - 4
	if crc32.Checksum(b[:end], castagnoli) != binary.LittleEndian.Uint32(b[end:]) {
		return errors.New("wrong checksum")
	}
	b = b[len(snapshotMagic)+1 : end]
	l.decoder = decoder{b: b, all: len(b)}
	l.machine()
	if l.err != nil {
		return l.err
	}
	if b = l.b; len(b) < 5 || b[0] != 0 || uint64(binary.LittleEndian.Uint32(b[1:])) != uint64(len(b)-5) {
		return errCut
	}
	const row = KeyBytes + ValueBytes
	n, k := binary.Uvarint(b[5:])
	if b = b[5+max(k, 0):]; k <= 0 || len(b)%row != 0 || n != uint64(len(b)/row) {
		return errCut
	}
	counts := map[space]*int{}
	for i, c := range l.m.counts() {
		counts[space(i)] = c
	}
	for _, line := range l.m.lines {
		counts[line.space] = &line.count
	}
	for _, c := range counts {
		*c = 0
	}
	l.m.stats.Retries = 0
	for last := []byte(nil); len(b) > 0; last, b = b[:KeyBytes], b[row:] {
		var w waiting
		w.decode((*[KeyBytes]byte)(b), (*[ValueBytes]byte)(b[KeyBytes:]))
		s := space(binary.BigEndian.Uint32(b) >> 1)
		c, ok := counts[s]
		if !ok || bytes.Compare(last, b[:KeyBytes]) >= 0 || w.address < 0 || int64(w.topic) >= int64(len(l.m.byTopic)) || s == spaceReturn && int64(w.group) >= int64(len(l.m.byID)) {
			return fmt.Errorf("a row of what waits at %d is wrong", w.address)
		}
		if b[3]&1 == 0 { // put makes the row by due time again
			l.m.put(s, &w, true)
			if *c++; s >= spaceLines {
				l.m.stats.Retries++
			}
		}
	}
	l.m.RememberOutcomes(l.m.remember)
	return nil
}

// files gives restore its part.
func (l *loader) files() error {
	b := l.in.next(4)
	if len(b) < 4 {
		return errCut
	}
	b, err := l.in.bytes(int64(binary.LittleEndian.Uint32(b)))
	if err != nil {
		return err
	}
	return l.restore(b)
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
	m.now = l.varint()
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
		l.topic(m.topic(name))
	}
	for n := l.count(len(l.b), 3, "lines"); n > 0 && l.err == nil; n-- {
		l.line()
	}
	for _, n := range m.counts() {
		*n = int(l.uvarint(math.MaxInt32))
	}
}

func (l *loader) topic(t *topic) {
	m := l.m
	for n := l.count(len(l.b), 6, "positions"); n > 0; n-- {
		g := l.group()
		p := GroupPosition{Attached: l.uvarint(1) == 1}
		p.Attach, p.Cursor, p.SkipFrom, p.SkipTo = l.varint(), l.varint(), l.varint(), l.varint()
		if l.err != nil {
			return
		}
		if t.positions[g.name] != nil {
			l.fail("two positions of group " + g.name)
			return
		}
		t.place(g, p)
		if p.Attached {
			t.attached++
		}
	}
	for n := l.count(len(l.b), 7, "bindings"); n > 0; n-- {
		b := &binding{group: l.group()}
		b.Kind = BindingKind(l.uvarint(uint64(BindFanout)))
		b.Expr = l.text(MaxExprBytes)
		b.WaterMark = int32(l.uvarint(maxWaterMark+1)) - 1
		b.Volatile = l.uvarint(maxKnownFlags)&flagVolatile != 0
		b.since, b.until = l.varint(), l.varint()
		if l.err != nil {
			return
		}
		p := t.positions[b.group.name]
		switch {
		case p == nil:
			l.fail("a binding of group " + b.group.name + ", which has no position")
			return
		case b.until != 0:
			p.ended = append(p.ended, b)
		case t.live[b.key()] != nil:
			l.fail("a binding of group " + b.group.name + " twice")
			return
		default:
			t.live[b.key()] = b
			p.live++
		}
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

func (l *loader) line() {
	t, m := l.uvarint(math.MaxInt32), l.m
	if l.err == nil && t >= uint64(len(m.byTopic)) {
		l.fail(fmt.Sprintf("line of topic %d of %d", t, len(m.byTopic)))
	}
	g := l.group()
	n := int(l.uvarint(math.MaxInt32))
	if l.err != nil {
		return
	}
	if m.line(g, m.byTopic[t], false) != nil {
		l.fail("two lines of group " + g.name + " on " + m.byTopic[t].name)
		return
	}
	m.line(g, m.byTopic[t], true).count = n
	m.stats.Retries += n
}

// bindings lists all that are known, those that have ended too, in the order in which they were made.
func (t *topic) bindings() []*binding {
	all := slices.AppendSeq(make([]*binding, 0, len(t.live)), maps.Values(t.live))
	for _, p := range t.positions {
		all = append(all, p.ended...)
	}
	slices.SortFunc(all, func(a, b *binding) int {
		return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.group.id, b.group.id), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Expr, b.Expr))
	})
	return all
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
		for _, b := range t.bindings() {
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
