package bits

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fusionmq/fusionmq/store/vfs"
)

const (
	chunkEntries = 8192 // 180 KB a file
	maxFilters   = 1024 // of a topic at a time
	maxLoaded    = 64   // chunks whose entries were read from their files
	maxFresh     = 1 << 19
	minChunk     = 64
)

// MaxFilters is up to how many filters of one topic have bits.
const MaxFilters = maxFilters

// Config of a Table.
type Config struct {
	FS     vfs.FS
	Dir    string // of the files; made when there is something to write
	LogMin int64  // first position of the log
	LogEnd int64  // first position behind its last record: files that speak for more are removed
	Failed func(error)
}

// Table is the bits of all topics. One goroutine at a time may call Cover, Put, Pause and Flush; everything else may run beside
// it. Memory is bounded: 24 bytes for each of the newest messages, at most half a million, and 64 files' worth of older ones.
type Table struct {
	cfg   Config
	clock atomic.Int64
	fresh int // entries that are in no file; of the writer
	mu    struct {
		sync.Mutex
		topics map[string]*Topic
		files  map[uint32][]*chunk // of topics that nobody has asked for, by checksum of the name
		loaded []*chunk
	}
}

// Topic is the bits of one topic.
type Topic struct {
	table  *Table
	name   string
	chunks atomic.Pointer[[]*chunk] // by start; the last one takes the next entry until it is full
	now    []ID                     // filters of the next entries; of the writer
}

// Open reads which files there are. Files behind the end of the log are removed durably before it returns, since the log will
// have other records there.
func Open(c Config) (*Table, error) {
	if c.Failed == nil {
		c.Failed = func(error) {}
	}
	t := &Table{cfg: c}
	t.mu.topics, t.mu.files = map[string]*Topic{}, map[uint32][]*chunk{}
	names, err := c.FS.List(c.Dir)
	if err != nil {
		return t, ignoreMissing(err)
	}
	removed := false
	for _, name := range names {
		start, end, sum, ok := parseName(name)
		if ok && start >= c.LogMin && end <= c.LogEnd {
			k := &chunk{start: start, file: filepath.Join(c.Dir, name)}
			k.end.Store(end)
			k.full.Store(true)
			k.written.Store(true)
			t.mu.files[sum] = append(t.mu.files[sum], k)
			continue
		}
		if !ok && !strings.HasSuffix(name, ".tmp") {
			continue // not ours
		}
		if err := c.FS.Remove(filepath.Join(c.Dir, name)); err != nil {
			return nil, err
		}
		removed = true
	}
	if removed {
		return t, c.FS.SyncDir(c.Dir)
	}
	return t, nil
}

const suffix = ".bits"

func fileName(start, end int64, topic string) string {
	return fmt.Sprintf("%020d-%020d-%08x%s", start, end, crc32.Checksum([]byte(topic), castagnoli), suffix)
}

func parseName(name string) (start, end int64, sum uint32, ok bool) {
	base, ok := strings.CutSuffix(name, suffix)
	parts := strings.Split(base, "-")
	if !ok || len(parts) != 3 || len(parts[0]) != 20 || len(parts[1]) != 20 || len(parts[2]) != 8 {
		return 0, 0, 0, false
	}
	start, err1 := strconv.ParseInt(parts[0], 10, 64)
	end, err2 := strconv.ParseInt(parts[1], 10, 64)
	u, err3 := strconv.ParseUint(parts[2], 16, 32)
	return start, end, uint32(u), errors.Join(err1, err2, err3) == nil && 0 <= start && start < end
}

// Topic returns the bits of a topic, with what its files have.
func (t *Table) Topic(name string) *Topic {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.mu.topics[name]
	if p == nil {
		sum := crc32.Checksum([]byte(name), castagnoli)
		p = &Topic{table: t, name: strings.Clone(name)}
		// Files of another topic with the same checksum are shared and turn out to be another's when they are read.
		chunks := slices.Clone(t.mu.files[sum])
		slices.SortFunc(chunks, func(a, b *chunk) int { return int(min(1, max(-1, a.start-b.start))) })
		p.chunks.Store(&chunks)
		t.mu.topics[p.name] = p
	}
	return p
}

// Cover says that the entries from now on have an answer for these filters and no others; there are at most MaxFilters.
func (p *Topic) Cover(ids []ID) {
	p.now = slices.Clone(ids)
	c := p.open()
	if c == nil {
		return
	}
	at := c.end.Load()
	before := map[ID]covered{}
	for _, h := range *c.filters.Load() {
		before[h.id] = h
	}
	var all []covered
	for _, id := range ids {
		h, ok := before[id]
		if !ok {
			h = covered{id, at, forever}
		}
		if h.to != forever { // it comes back: its first time would be forgotten
			p.Pause()
			return
		}
		all = append(all, h)
		delete(before, id)
	}
	for _, h := range before {
		h.to = min(h.to, at)
		all = append(all, h)
	}
	c.filters.Store(&all)
	if len(all) > 2*maxFilters {
		c.full.Store(true)
	}
}

// open is the chunk that takes the next entry, nil when a new one has to.
func (p *Topic) open() *chunk {
	cs := *p.chunks.Load()
	if len(cs) == 0 || cs[len(cs)-1].full.Load() {
		return nil
	}
	return cs[len(cs)-1]
}

// Put adds the bits of a message, whose address is above that of the one before.
func (p *Topic) Put(address int64, m Mask) {
	t := p.table
	c := p.open()
	if c == nil {
		c = &chunk{start: address}
		filters := make([]covered, len(p.now))
		for i, id := range p.now {
			filters[i] = covered{id, address, forever}
		}
		c.filters.Store(&filters)
		c.put(address, m)
		p.update(func(cs []*chunk) []*chunk { return append(cs, c) })
	} else {
		c.put(address, m)
	}
	t.fresh++
	n := int(c.count.Load())
	if n == chunkEntries || t.fresh > maxFresh && n >= minChunk {
		c.full.Store(true)
	}
	if t.fresh > maxFresh && n < minChunk || t.fresh > 2*maxFresh {
		// No room, and writing it would make a file for next to nothing, or nothing can be written: who asks evaluates.
		p.forget(c)
		t.fresh -= n
	}
}

// Pause ends the run of entries: those that are put later are not the next ones.
func (p *Topic) Pause() {
	if c := p.open(); c != nil {
		c.full.Store(true)
	}
}

// update replaces the list of chunks.
func (p *Topic) update(change func([]*chunk) []*chunk) {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	cs := change(slices.Clone(*p.chunks.Load()))
	p.chunks.Store(&cs)
}

func (p *Topic) forget(c *chunk) {
	p.update(func(cs []*chunk) []*chunk { return slices.DeleteFunc(cs, func(k *chunk) bool { return k == c }) })
}

// Flush writes the full chunks whose messages are below synced, a log position below which everything is on the disk; with
// all, those that are not full, too.
func (t *Table) Flush(synced int64, all bool) error {
	t.mu.Lock()
	topics := make([]*Topic, 0, len(t.mu.topics))
	for _, p := range t.mu.topics {
		topics = append(topics, p)
	}
	t.mu.Unlock()
	made := false
	var errs []error
	for _, p := range topics {
		for _, c := range *p.chunks.Load() {
			if c.written.Load() || !all && !c.full.Load() || c.end.Load() > synced {
				continue
			}
			if !made {
				if err := t.cfg.FS.MkdirAll(t.cfg.Dir); err != nil {
					return err
				}
				made = true
			}
			c.full.Store(true)
			name := filepath.Join(t.cfg.Dir, fileName(c.start, c.end.Load(), p.name))
			if err := vfs.WriteFile(t.cfg.FS, name, c.encode(p.name), ""); err != nil {
				errs = append(errs, err)
				continue
			}
			t.fresh -= int(c.count.Load())
			t.mu.Lock()
			c.file = name
			c.written.Store(true)
			t.keepLocked(c)
			t.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// keepLocked counts a chunk among those that have their entries in memory and in a file, and drops the entries of the one that
// was not asked for longest when they are too many.
func (t *Table) keepLocked(c *chunk) {
	c.used.Store(t.clock.Add(1))
	t.mu.loaded = append(t.mu.loaded, c)
	if len(t.mu.loaded) <= maxLoaded {
		return
	}
	oldest := 0
	for i, k := range t.mu.loaded {
		if k.used.Load() < t.mu.loaded[oldest].used.Load() {
			oldest = i
		}
	}
	t.mu.loaded[oldest].data.Store(nil)
	t.mu.loaded = slices.Delete(t.mu.loaded, oldest, oldest+1)
}

// load reads the entries of a chunk from its file, nil when they cannot be had.
func (p *Topic) load(c *chunk) *data {
	t := p.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := c.data.Load(); d != nil || c.damaged {
		return d
	}
	b, err := vfs.ReadFile(t.cfg.FS, c.file, fileLimit)
	var k content
	if err == nil {
		what := ""
		if k, what = decode(b); what == "" && (k.start != c.start || k.end != c.end.Load()) {
			what = "speaks for other messages than its name says"
		}
		if what != "" {
			err = &CorruptError{c.file, what}
		}
	}
	if err != nil {
		c.damaged = true
		var damage *CorruptError
		if errors.As(err, &damage) {
			err = errors.Join(err, t.cfg.FS.Remove(c.file))
		}
		t.cfg.Failed(err)
		return nil
	}
	if k.topic != p.name {
		c.damaged = true // of a topic whose name has the same checksum
		return nil
	}
	c.filters.Store(&k.filters)
	c.count.Store(int32(len(k.data.addresses)))
	c.data.Store(&k.data)
	t.keepLocked(c)
	return &k.data
}

// CorruptError is a file whose content is not what was written.
type CorruptError struct{ File, What string }

func (e *CorruptError) Error() string {
	return fmt.Sprintf("filter bits %s: %s; its messages are evaluated", e.File, e.What)
}

// Verify reads a file and says what is wrong with it.
func Verify(fsys vfs.FS, name string) error {
	b, err := vfs.ReadFile(fsys, name, fileLimit)
	if err != nil {
		return err
	}
	c, what := decode(b)
	if start, end, sum, ok := parseName(filepath.Base(name)); what == "" && (!ok || start != c.start || end != c.end || sum != crc32.Checksum([]byte(c.topic), castagnoli)) {
		what = "speaks for other messages than its name says"
	}
	if what != "" {
		return &CorruptError{name, what}
	}
	return nil
}

// DropBelow removes files that speak only for what is below a log position.
func (t *Table) DropBelow(position int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	gone := func(c *chunk) bool {
		if !c.written.Load() || c.end.Load() > position {
			return false
		}
		if !c.damaged {
			if err := t.cfg.FS.Remove(c.file); err != nil {
				errs = append(errs, ignoreMissing(err))
			}
			c.damaged = true // and of no use to a topic that shares it
		}
		return true
	}
	for sum, cs := range t.mu.files {
		if cs = slices.DeleteFunc(cs, gone); len(cs) == 0 {
			delete(t.mu.files, sum)
		} else {
			t.mu.files[sum] = cs
		}
	}
	for _, p := range t.mu.topics {
		cs := slices.DeleteFunc(slices.Clone(*p.chunks.Load()), gone)
		p.chunks.Store(&cs)
	}
	t.mu.loaded = slices.DeleteFunc(t.mu.loaded, func(c *chunk) bool { return c.damaged })
	return errors.Join(errs...)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Cursor asks for one filter and messages with growing addresses. It is for one goroutine.
type Cursor struct {
	topic    *Topic
	id       ID
	mask     Mask
	c        *chunk
	d        *data
	n, at    int
	from, to int64 // which addresses of the chunk are answered
	next     int64 // start of the chunk behind it
}

// Cursor returns a cursor of a filter, whose bits are mask.
func (p *Topic) Cursor(id ID, mask Mask) Cursor { return Cursor{topic: p, id: id, mask: mask} }

// Known is what is known about the filter and the message at an address.
func (k *Cursor) Known(address int64) Answer {
	if k.c == nil || address < k.c.start || address >= k.next || k.at >= k.n && !k.c.written.Load() {
		if !k.seek(address) {
			return Unknown
		}
	}
	if k.d == nil || address < k.from || address >= k.to {
		return Unknown
	}
	k.at = k.d.find(address, k.at, k.n)
	if k.at == k.n || k.d.addresses[k.at] != address {
		return Unknown
	}
	if k.d.masks[k.at].has(k.mask) {
		return Maybe
	}
	return No
}

// seek takes the chunk that an address is in.
func (k *Cursor) seek(address int64) bool {
	cs := *k.topic.chunks.Load()
	i, ok := slices.BinarySearchFunc(cs, address, func(c *chunk, at int64) int { return int(min(1, max(-1, c.start-at))) })
	if !ok {
		i--
	}
	if k.c, k.d, k.at = nil, nil, 0; i < 0 {
		return false
	}
	c := cs[i]
	if address >= c.end.Load() {
		return false
	}
	k.c, k.next, k.from, k.to = c, forever, forever, 0
	if i+1 < len(cs) {
		k.next = cs[i+1].start
	}
	// The count before the rest, see chunk.
	k.n = int(c.count.Load())
	if k.d = c.data.Load(); k.d == nil {
		if k.d = k.topic.load(c); k.d == nil {
			return true
		}
		k.n = len(k.d.addresses)
	}
	c.used.Store(k.topic.table.clock.Add(1))
	for _, f := range *c.filters.Load() {
		if f.id == k.id {
			k.from, k.to = f.from, f.to
		}
	}
	return true
}
