package meta

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Offsets are the committed offsets of pull groups: for each group, topic and queue the next offset to consume.
//
// All methods may be called from any goroutine. Get and a Commit to a queue that has an offset do not allocate.
type Offsets struct {
	file *file

	persisting sync.Mutex // held while the file is written; taken before mu
	mu         struct {
		sync.RWMutex
		byGroup map[groupTopic][]int64 // by queue; noOffset where none was committed
		dirty   bool                   // differs from the file
		version DataVersion
		other   document // top-level fields that we do not know, groupTopicMap among them
	}
}

type groupTopic struct{ group, topic string }

const noOffset = -1

// Get returns a committed offset.
func (o *Offsets) Get(group, topic string, queue int32) (int64, bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	qs := o.mu.byGroup[groupTopic{group, topic}]
	if queue < 0 || int(queue) >= len(qs) || qs[queue] == noOffset {
		return 0, false
	}
	return qs[queue], true
}

// Commit sets an offset, also backwards; it is in memory until the next Persist. The caller has checked that group and
// topic are legal names. A queue outside [0, MaxQueues) or a negative offset is ignored: no queue has them.
func (o *Offsets) Commit(group, topic string, queue int32, offset int64) {
	if queue < 0 || queue >= MaxQueues || offset < 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.setLocked(group, topic, queue, offset)
}

func (o *Offsets) setLocked(group, topic string, queue int32, offset int64) {
	key := groupTopic{group, topic}
	qs := o.mu.byGroup[key]
	if int(queue) < len(qs) && qs[queue] == offset {
		return
	}
	if int(queue) >= len(qs) {
		if qs == nil {
			key = groupTopic{strings.Clone(group), strings.Clone(topic)} // the caller's may be part of a frame
		}
		for int(queue) >= len(qs) {
			qs = append(qs, noOffset)
		}
		o.mu.byGroup[key] = qs
	}
	qs[queue] = offset
	o.mu.dirty = true
}

// Offset is one committed offset.
type Offset struct {
	Group, Topic string
	Queue        int32
	Offset       int64
}

// All returns every committed offset ordered by topic, group and queue.
func (o *Offsets) All() []Offset {
	all, _ := o.snapshot()
	return all
}

func (o *Offsets) snapshot() ([]Offset, DataVersion) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	var all []Offset
	for key, qs := range o.mu.byGroup {
		for q, off := range qs {
			if off != noOffset {
				all = append(all, Offset{key.group, key.topic, int32(q), off})
			}
		}
	}
	slices.SortFunc(all, func(a, b Offset) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Queue, b.Queue))
	})
	return all, o.mu.version
}

// Lower sets every offset above its queue's end to that end and returns what they were. Recovery calls it: after a crash
// the log may end before an offset that was written down.
func (o *Offsets) Lower(end func(topic string, queue int32) int64) []Offset {
	var lowered []Offset
	for _, c := range o.All() {
		if e := end(c.Topic, c.Queue); c.Offset > e {
			o.Commit(c.Group, c.Topic, c.Queue, e)
			lowered = append(lowered, c)
		}
	}
	return lowered
}

// Raise sets every offset below its queue's first one to that and returns what they were.
func (o *Offsets) Raise(first func(topic string, queue int32) int64) []Offset {
	var raised []Offset
	for _, c := range o.All() {
		if f := first(c.Topic, c.Queue); c.Offset < f && o.raise(c, f) {
			raised = append(raised, c)
		}
	}
	return raised
}

// raise commits an offset unless another one was committed meanwhile.
func (o *Offsets) raise(was Offset, to int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	qs := o.mu.byGroup[groupTopic{was.Group, was.Topic}]
	if int(was.Queue) >= len(qs) || qs[was.Queue] != was.Offset {
		return false
	}
	qs[was.Queue] = to
	o.mu.dirty = true
	return true
}

// Forget drops the offsets of a group, of one topic or, with an empty topic, of all.
func (o *Offsets) Forget(group, topic string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key := range o.mu.byGroup {
		if key.group == group && (topic == "" || key.topic == topic) {
			delete(o.mu.byGroup, key)
			o.mu.dirty = true
		}
	}
}

// Persist writes the offsets to the disk if any has changed since the last time. What is committed while it runs is in
// the next one.
func (o *Offsets) Persist() error {
	o.persisting.Lock()
	defer o.persisting.Unlock()
	o.mu.Lock()
	if !o.mu.dirty {
		o.mu.Unlock()
		return nil
	}
	o.mu.dirty = false
	o.mu.version.Counter++
	o.mu.version.Timestamp = o.file.now().UnixMilli()
	o.mu.Unlock()

	// A commit between the two locks is in the file and marks the table dirty again: written twice, never lost.
	all, version := o.snapshot()
	text, err := encodeOffsets(all, version, o.mu.other)
	if err == nil {
		err = o.file.replace(text)
	}
	if err != nil {
		o.mu.Lock()
		o.mu.dirty = true
		o.mu.Unlock()
	}
	return err
}

func encodeOffsets(all []Offset, version DataVersion, other document) ([]byte, error) {
	rows := []byte{'{'}
	for i := 0; i < len(all); {
		first := all[i]
		if i > 0 {
			rows = append(rows, ',')
		}
		var err error
		if rows, err = appendEntry(rows, first.Topic+"@"+first.Group, nil); err != nil {
			return nil, err
		}
		sep := byte('{')
		for ; i < len(all) && all[i].Topic == first.Topic && all[i].Group == first.Group; i++ {
			rows = append(rows, sep, '"')
			rows = strconv.AppendInt(rows, int64(all[i].Queue), 10)
			rows = append(rows, '"', ':')
			rows = strconv.AppendInt(rows, all[i].Offset, 10)
			sep = ','
		}
		rows = append(rows, '}')
	}
	return encodeDocument(version, other, "offsetTable", append(rows, "\n}"...))
}

func (o *Offsets) load() error {
	o.mu.byGroup = map[groupTopic][]int64{}
	return o.file.load(func(doc document) error {
		var version DataVersion
		if err := doc.take("dataVersion", &version); err != nil {
			return err
		}
		if _, ok := doc["offsetTable"]; !ok {
			return fmt.Errorf("no field %q", "offsetTable")
		}
		rows := map[string]json.RawMessage{}
		if err := doc.take("offsetTable", &rows); err != nil {
			return err
		}
		fresh := &Offsets{}
		fresh.mu.byGroup = map[groupTopic][]int64{}
		for _, key := range slices.Sorted(maps.Keys(rows)) {
			topic, group, ok := strings.Cut(key, "@") // neither name can hold an @
			if !ok {
				return fmt.Errorf("offsetTable key %q is not topic@group", key)
			}
			var qs map[int32]int64
			if err := json.Unmarshal(rows[key], &qs); err != nil {
				return fmt.Errorf("offsetTable %q: %w", key, err)
			}
			for q, off := range qs {
				if q >= MaxQueues {
					return fmt.Errorf("offsetTable %q: queue %d is above %d", key, q, MaxQueues-1)
				}
				if q >= 0 && off >= 0 {
					fresh.setLocked(group, topic, q, off)
				}
			}
		}
		o.mu.byGroup, o.mu.version, o.mu.other = fresh.mu.byGroup, version, doc
		return nil
	})
}
