package meta

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// table is a map of named values in one JSON file.
//
// Readers load an immutable snapshot. A change goes into the batch that waits for its turn to be written; the first of a
// batch writes it when the batch before it is done, and the others wait for that. So a burst of changes costs one write
// for all that came in during the write before, and a change is visible only once it is durable.
type table[T any] struct {
	file *file
	key  string // of the map in the document

	snap atomic.Pointer[snapshot[T]] // stored only with writing held

	writing sync.Mutex // held while the file is written; taken before mu
	mu      struct {
		sync.Mutex
		next     *batch[T] // changes that wait; nil when there are none
		watchers []func(*T)
		changed  []*T // durable changes that watchers have not seen, in order
		telling  bool // somebody is telling them
	}
}

type snapshot[T any] struct {
	version DataVersion
	other   document // top-level fields that we do not know
	byName  map[string]row[T]
	names   []string // of byName, sorted
}

// row is a value and its JSON. A file of ten thousand topics is rewritten for each change; their text is not made again.
type row[T any] struct {
	v    *T
	json []byte
}

type batch[T any] struct {
	rows map[string]row[T]
	done chan struct{} // closed when err is set
	err  error
}

func (t *table[T]) get(name string) *T { return t.snap.Load().byName[name].v }

// getBytes is get for a name in a buffer; the compiler looks it up without a copy.
func (t *table[T]) getBytes(name []byte) *T { return t.snap.Load().byName[string(name)].v }

func (t *table[T]) all() ([]*T, DataVersion) {
	s := t.snap.Load()
	vs := make([]*T, 0, len(s.byName))
	for _, name := range s.names {
		vs = append(vs, s.byName[name].v)
	}
	return vs, s.version
}

// put makes the rows durable and visible. Rows equal to what is there are no change.
func (t *table[T]) put(rows map[string]row[T]) error {
	t.mu.Lock()
	if t.mu.next == nil && t.snap.Load().contains(rows) {
		t.mu.Unlock()
		return nil
	}
	b := t.mu.next
	first := b == nil
	if first {
		b = &batch[T]{rows: make(map[string]row[T], len(rows)), done: make(chan struct{})}
		t.mu.next = b
	}
	maps.Copy(b.rows, rows)
	t.mu.Unlock()
	if !first {
		<-b.done
		return b.err
	}

	t.writing.Lock()
	t.mu.Lock()
	t.mu.next = nil
	t.mu.Unlock()
	b.err = t.write(b)
	t.writing.Unlock()
	close(b.done)
	t.tell()
	return b.err
}

// change makes of a row what fn makes of it, with no other change of the table in between: fn gets nil when there is none. Equal content is
// no change; an error of fn changes nothing and is passed on.
func (t *table[T]) change(name string, fn func(old *T) (row[T], error)) (before, after *T, err error) {
	t.writing.Lock()
	before = t.get(name)
	r, err := fn(before)
	if err == nil {
		err = t.write(&batch[T]{rows: map[string]row[T]{name: r}})
	}
	t.writing.Unlock()
	if err != nil {
		return before, nil, err
	}
	t.tell()
	return before, r.v, nil
}

func (s *snapshot[T]) contains(rows map[string]row[T]) bool {
	for name, r := range rows {
		if have, ok := s.byName[name]; !ok || !bytes.Equal(have.json, r.json) {
			return false
		}
	}
	return true
}

// write needs writing held.
func (t *table[T]) write(b *batch[T]) error {
	old := t.snap.Load()
	if old.contains(b.rows) {
		return nil
	}
	s := &snapshot[T]{version: old.version, other: old.other, byName: maps.Clone(old.byName), names: old.names}
	var changed []*T
	var fresh []string
	for _, name := range slices.Sorted(maps.Keys(b.rows)) {
		have, ok := old.byName[name]
		if r := b.rows[name]; !bytes.Equal(r.json, have.json) {
			s.byName[name] = r
			changed = append(changed, r.v)
		}
		if !ok {
			fresh = append(fresh, name)
		}
	}
	if len(fresh) > 0 {
		s.names = append(slices.Clip(old.names), fresh...)
		slices.Sort(s.names) // quick, since all but the last are in order
	}
	s.version.Counter++
	s.version.Timestamp = t.file.now().UnixMilli()
	text, err := s.encode(t.key)
	if err != nil {
		return err
	}
	if err := t.file.replace(text); err != nil {
		return err
	}
	t.snap.Store(s)
	t.mu.Lock()
	t.mu.changed = append(t.mu.changed, changed...)
	t.mu.Unlock()
	return nil
}

// tell calls the watchers for every durable change, in order, with no lock held. Of several goroutines one tells for all.
func (t *table[T]) tell() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.telling {
		return
	}
	t.mu.telling = true
	for len(t.mu.changed) > 0 {
		changed, watchers := t.mu.changed, t.mu.watchers
		t.mu.changed = nil
		t.mu.Unlock()
		for _, v := range changed {
			for _, fn := range watchers {
				fn(v)
			}
		}
		t.mu.Lock()
	}
	t.mu.telling = false
}

func (t *table[T]) onChange(fn func(*T)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.watchers = append(slices.Clip(t.mu.watchers), fn)
}

// load reads the file. decode makes the value of one entry.
func (t *table[T]) load(decode func(name string, b []byte) (*T, error)) error {
	s := &snapshot[T]{byName: map[string]row[T]{}}
	err := t.file.load(func(doc document) error {
		fresh := &snapshot[T]{byName: map[string]row[T]{}}
		if err := doc.take("dataVersion", &fresh.version); err != nil {
			return err
		}
		var rows map[string]json.RawMessage
		if _, ok := doc[t.key]; !ok {
			return fmt.Errorf("no field %q", t.key)
		}
		if err := doc.take(t.key, &rows); err != nil {
			return err
		}
		for name, b := range rows {
			v, err := decode(name, b)
			if err != nil {
				return fmt.Errorf("%s %q: %w", t.key, name, err)
			}
			text, err := marshal(v)
			if err != nil {
				return fmt.Errorf("%s %q: %w", t.key, name, err)
			}
			fresh.byName[name] = row[T]{v, text}
		}
		fresh.other = doc
		fresh.names = slices.Sorted(maps.Keys(fresh.byName))
		s = fresh
		return nil
	})
	t.snap.Store(s)
	return err
}

// take moves a field from the document to v; a missing field leaves v as it is.
func (d document) take(key string, v any) error {
	b, ok := d[key]
	if !ok {
		return nil
	}
	delete(d, key)
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("field %q: %w", key, err)
	}
	return nil
}

func (s *snapshot[T]) encode(key string) ([]byte, error) {
	size := 0
	for name, r := range s.byName {
		size += len(name) + len(r.json) + len("\n\"\":,")
	}
	rows := append(make([]byte, 0, size+len("{\n}")), '{')
	for i, name := range s.names {
		if i > 0 {
			rows = append(rows, ',')
		}
		var err error
		if rows, err = appendEntry(rows, name, s.byName[name].json); err != nil {
			return nil, err
		}
	}
	return encodeDocument(s.version, s.other, key, append(rows, "\n}"...))
}

// encodeDocument writes the fields of a file in alphabetical order, one a line.
func encodeDocument(version DataVersion, other document, key string, table []byte) ([]byte, error) {
	v, err := marshal(version)
	if err != nil {
		return nil, err
	}
	doc := document{"dataVersion": v, key: table}
	size := len(table) + 200
	for k, b := range other {
		doc[k] = b
		size += len(k) + len(b) + len("\n\"\":,")
	}
	out := append(make([]byte, 0, size), '{')
	for i, k := range slices.Sorted(maps.Keys(doc)) {
		if i > 0 {
			out = append(out, ',')
		}
		if out, err = appendEntry(out, k, doc[k]); err != nil {
			return nil, err
		}
	}
	return append(out, "\n}\n"...), nil
}

// appendEntry appends a line with a key and its value, which may follow later.
func appendEntry(b []byte, key string, value []byte) ([]byte, error) {
	b, err := appendString(append(b, '\n'), key)
	return append(append(b, ':'), value...), err
}
