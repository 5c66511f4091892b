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
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
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
	s := &snapshot[T]{version: old.version, other: old.other, byName: maps.Clone(old.byName)}
	var changed []*T
	for _, name := range slices.Sorted(maps.Keys(b.rows)) {
		if r := b.rows[name]; !bytes.Equal(r.json, old.byName[name].json) {
			s.byName[name] = r
			changed = append(changed, r.v)
		}
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
	var rows bytes.Buffer
	rows.WriteByte('{')
	for i, name := range slices.Sorted(maps.Keys(s.byName)) {
		if i > 0 {
			rows.WriteByte(',')
		}
		if err := writeEntry(&rows, name, s.byName[name].json); err != nil {
			return nil, err
		}
	}
	rows.WriteString("\n}")
	return encodeDocument(s.version, s.other, key, rows.Bytes())
}

// encodeDocument writes the fields of a file in alphabetical order, one a line.
func encodeDocument(version DataVersion, other document, key string, table []byte) ([]byte, error) {
	v, err := marshal(version)
	if err != nil {
		return nil, err
	}
	doc := document{"dataVersion": v, key: table}
	for k, b := range other {
		doc[k] = b
	}
	var out bytes.Buffer
	out.WriteByte('{')
	for i, k := range slices.Sorted(maps.Keys(doc)) {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := writeEntry(&out, k, doc[k]); err != nil {
			return nil, err
		}
	}
	out.WriteString("\n}\n")
	return out.Bytes(), nil
}

func writeEntry(w *bytes.Buffer, key string, value []byte) error {
	k, err := marshal(key)
	if err != nil {
		return err
	}
	w.WriteByte('\n')
	w.Write(k)
	w.WriteByte(':')
	w.Write(value)
	return nil
}
