package log

import "fmt"

// Segment describes one file of the log.
type Segment struct {
	Base, End int64 // positions: of its first byte, and behind its last one
}

// Segments lists the files of the log in order. The last one takes the appends.
func (l *Log) Segments() []Segment {
	segs := *l.segs.Load()
	ss := make([]Segment, len(segs))
	for i, s := range segs {
		ss[i] = Segment{s.base, s.base + s.size}
	}
	return ss
}

// NewestBelow returns a store time that no record below position, where a segment begins, is newer than: that of the first record that can
// be read from there on, since store times never go back along the log, or of the newest record of all.
func (l *Log) NewestBelow(position int64) int64 {
	for _, s := range *l.segs.Load() {
		if s.base < position || s.base >= l.written.Load() {
			continue
		}
		v, err := s.acquire()
		if err != nil {
			continue
		}
		var t int64
		err = guarded(func() error {
			r, err := (&scanner{s: s, v: v}).next()
			if err == nil {
				t = r.StoreTime()
			}
			return err
		})
		v.unref()
		if err == nil {
			return t
		}
	}
	return l.LastTime()
}

// DeleteBelow takes away the segments that lie wholly below position, oldest first, but never the one that takes the appends nor one that
// is not synced. Readers are refused from now on; those who hold bytes keep them. The names go one by one, each durably before the next,
// so that a crash leaves no gap. A file that cannot be removed is tried again by the next call, before any newer one. One call at a time.
func (l *Log) DeleteBelow(position int64) (segments int, err error) {
	l.mu.Lock()
	old := *l.segs.Load()
	n := 0
	for n < len(old)-1 && old[n].base+old[n].size <= min(position, l.synced.Load()) {
		n++
	}
	if n > 0 {
		kept := append([]*segment(nil), old[n:]...)
		l.min.Store(kept[0].base)
		l.segs.Store(&kept)
	}
	l.mu.Unlock()
	for _, s := range old[:n] {
		l.doomed = append(l.doomed, s.base)
		s.drop()
	}
	for len(l.doomed) > 0 {
		if err := l.o.FS.Remove(segmentName(l.o.Dir, l.doomed[0])); err != nil {
			return n, fmt.Errorf("remove segment %020d: %w", l.doomed[0], err)
		}
		if err := l.o.FS.SyncDir(l.o.Dir); err != nil {
			return n, fmt.Errorf("remove segment %020d: %w", l.doomed[0], err)
		}
		l.doomed = l.doomed[1:]
	}
	return n, nil
}
