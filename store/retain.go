package store

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Retention says when segments of the log are deleted. The zero value of a field means its default. Levels are RocketMQ's: shares of the
// disk that holds the log, in percent, rounded up.
type Retention struct {
	Age        time.Duration // messages are kept for this long. Default 72 h
	ViewWindow time.Duration // a segment goes this much later, so that younger views of its messages keep them. Default a quarter of Age
	Hours      []int         // local hours of the day, 0 to 23, in which age deletes; empty: always. Above MaxUsed it deletes at any hour
	Interval   time.Duration // between two looks. Default 10 s
	MostAtOnce int           // segments that one look deletes. Default 10

	MaxUsed  int // above it age deletes at any hour. Default 75, 10 to 95
	ForcedAt int // above it the oldest segments go whatever their age. Default 85, 30 to 85
	RefuseAt int // above it messages are refused, until the disk is at ForcedAt or below. Default 90, 35 to 90
}

func (r Retention) withDefaults() Retention {
	set := func(p *int, d int) {
		if *p == 0 {
			*p = d
		}
	}
	if r.Age == 0 {
		r.Age = 72 * time.Hour
	}
	if r.ViewWindow == 0 {
		r.ViewWindow = r.Age / 4
	}
	if r.Interval == 0 {
		r.Interval = 10 * time.Second
	}
	set(&r.MostAtOnce, 10)
	set(&r.MaxUsed, 75)
	set(&r.ForcedAt, 85)
	set(&r.RefuseAt, 90)
	return r
}

func (r *Retention) validate() error {
	in := func(field string, v, low, high int) error {
		if v < low || v > high {
			return &FieldError{"Retention." + field, int64(v), fmt.Sprintf("%d to %d", low, high)}
		}
		return nil
	}
	for _, h := range r.Hours {
		if err := in("Hours", h, 0, 23); err != nil {
			return err
		}
	}
	switch {
	case r.Age < time.Millisecond:
		return &FieldError{"Retention.Age in ns", int64(r.Age), "at least 1 ms"}
	case r.ViewWindow < 0:
		return &FieldError{"Retention.ViewWindow in ns", int64(r.ViewWindow), "0 or more"}
	case r.Interval < time.Millisecond:
		return &FieldError{"Retention.Interval in ns", int64(r.Interval), "at least 1 ms"}
	case r.RefuseAt <= r.ForcedAt:
		return &FieldError{"Retention.RefuseAt", int64(r.RefuseAt), fmt.Sprintf("above ForcedAt, which is %d", r.ForcedAt)}
	}
	return errors.Join(in("MostAtOnce", r.MostAtOnce, 1, 1000), in("MaxUsed", r.MaxUsed, 10, 95), in("ForcedAt", r.ForcedAt, 30, 85), in("RefuseAt", r.RefuseAt, 35, 90))
}

// Cleaned is what the deletion of segments has done since Open.
type Cleaned struct {
	Segments int64 // deleted
	Moved    int64 // records appended again because they were owed by name
	Lost     int64 // messages that were owed by name and could not be read any more
	Expiries int64 // expiry records
	Expired  int64 // messages in them
	Failures int64 // looks that ended in an error
	Again    int64 // bodies appended again because they were older than the view window when they were published
	DiskUsed int64 // percent of the disk, at the last look; 0 before the first
}

// cleaner deletes segments.
type cleaner struct {
	s       *Store
	looking sync.Mutex                    // one look at a time
	full    atomic.Pointer[DiskFullError] // why messages are refused; nil: they are not
	failing bool                          // of the last look
	told    told                          // what was said of a deletion that has not come to its end
	said    func(part int, last bool)     // nil, but in tests: called when a piece of the state was restated

	segments, moved, lost, expiries, expired, failures, used atomic.Int64
	restated                                                 atomic.Int64 // bytes of the state that was appended last; 0 before the first
}

// worth is how many bytes a deletion has to free so that it is worth the state that it appends first, all of which becomes old in its turn: four
// times as much. 0 when a segment is enough. A thing that waits has about 11 bytes in the state.
func (c *cleaner) worth() int64 {
	n := c.s.StateStats()
	state := max(c.restated.Load(), 11*int64(n.Halves+n.Aside+n.Delays+n.Returns+n.Retries+n.Outcomes))
	if least := worthState * state; least > c.s.o.SegmentBytes {
		return least
	}
	return 0
}

// worthState is how many times the bytes of the state a deletion frees at least.
const worthState = 4

// Cleaned returns the counters of retention.
func (s *Store) Cleaned() Cleaned {
	c := &s.clean
	return Cleaned{c.segments.Load(), c.moved.Load(), c.lost.Load(), c.expiries.Load(), c.expired.Load(), c.failures.Load(), c.s.bodies.again.Load(), c.used.Load()}
}

// Kept is what of the log is there.
type Kept struct {
	Retention Retention // in force
	Segments  int
	Oldest    int64 // when the newest message of the oldest segment was stored, milliseconds since 1970; 0 with one segment, which never goes
}

// Kept tells it.
func (s *Store) Kept() Kept {
	segs := s.log.Segments()
	k := Kept{Retention: s.o.Retention, Segments: len(segs)}
	if len(segs) > 1 {
		k.Oldest = s.log.NewestBelow(segs[0].End)
	}
	return k
}

func (c *cleaner) run() {
	defer c.s.done.Done()
	tick := time.NewTicker(c.s.o.Retention.Interval)
	defer tick.Stop()
	for {
		select {
		case <-c.s.stop:
			return
		case <-tick.C:
			_, _ = c.look(false) // it has told
		}
	}
}

// Clean looks at once whether segments are to go, at whatever hour, and returns how many went.
func (s *Store) Clean() (segments int, err error) { return s.clean.look(true) }

func (c *cleaner) look(anyHour bool) (segments int, err error) {
	c.looking.Lock()
	defer c.looking.Unlock()
	if c.s.closed.Load() {
		return 0, ErrClosed
	}
	used := c.measure()
	position, reason := c.due(used, anyHour)
	if position > c.s.log.Min() {
		before := c.segments.Load()
		for step := c.step(position); err == nil && c.s.log.Min() < position; {
			err = c.delete(min(position, c.s.log.Min()+step), reason)
		}
		segments = int(c.segments.Load() - before)
		if segments > 0 {
			c.measure()
			c.s.event(levelInfo, "log segments deleted", "segments", segments, "reason", reason, "log_begin", c.s.log.Min(), "disk_used_percent", used)
		}
	}
	if err != nil && !errors.Is(err, ErrClosed) {
		c.failures.Add(1)
		if !c.failing {
			c.s.event(levelError, "log segments could not be deleted, trying again", "below", position, "reason", reason, "interval_ms", c.s.o.Retention.Interval.Milliseconds(), "err", err)
		}
	}
	c.failing = err != nil
	return segments, err
}

// due finds the position that the log may begin at, and why; what is at it or below its beginning is no reason to do anything.
func (c *cleaner) due(used int, anyHour bool) (position int64, reason string) {
	s, r := c.s, &c.s.o.Retention
	now := s.o.Now()
	byAge := anyHour || len(r.Hours) == 0 || used > r.MaxUsed || slices.Contains(r.Hours, now.Hour())
	need := c.surplus()
	segs := s.log.Segments()
	known := min(s.log.Synced(), s.dispatch.covered())
	least := c.worth()
	for i, seg := range segs[:max(len(segs)-1, 0)] {
		if i >= r.MostAtOnce && seg.Base-segs[0].Base >= least || seg.End > known {
			break
		}
		newest := s.log.NewestBelow(seg.End)
		switch {
		case byAge && s.now()-newest >= (r.Age+r.ViewWindow).Milliseconds() && !s.keptForGroups(seg, newest):
			if reason == "" {
				reason = reasonAge
			}
		case need > 0:
			reason = reasonDisk
		case position > 0 && reason == reasonDisk && position-segs[0].Base < least/2: // less would free next to nothing
		default:
			return c.worthy(position, least, reason), reason
		}
		position = seg.End
		need -= seg.End - seg.Base
	}
	return c.worthy(position, least, reason), reason
}

// worthy is position, or 0 when what lies below it is not worth a deletion yet. For room on the disk half is worth it.
func (c *cleaner) worthy(position, least int64, reason string) int64 {
	if reason == reasonDisk {
		least /= 2
	}
	if position-c.s.log.Min() < least {
		return 0
	}
	return position
}

// step is how much of the log below position may go at a time: all of it, unless the disk might have no room for what that leaves.
func (c *cleaner) step(position int64) int64 {
	all, one := position-c.s.log.Min(), c.s.o.SegmentBytes
	if free, _, err := c.s.o.FS.Space(c.s.path(logDir)); err == nil && free < all+3*one {
		return max(one, (c.worth()+one-1)/one*one)
	}
	return all
}

// delete takes the segments below position away. The order is what law 1 is made of: what their records have made is on the
// disk again before the first name goes, and nobody is told of an offset that cannot be read.
func (c *cleaner) delete(position int64, reason string) error {
	s := c.s
	s.cutBodies(position)
	if err := s.waitApplied(position - 1); err != nil { // its position stays behind records that need no dispatch
		return err
	}
	if err := s.expireBelow(position, reason); err != nil {
		return err
	}
	s.watchOwed(position)
	defer s.watchOwed(0)
	err := s.relocateBelow(position)
	if err == nil {
		err = s.restate(position)
	}
	for any := true; err == nil && any; { // what became owed meanwhile; replay lets it act on what was restated
		if any, err = s.relocateLate(position); err == nil {
			err = s.log.Sync()
		}
	}
	if err == nil {
		err = s.checkpointNow()
	}
	if err == nil {
		err = s.index.RaiseMin(position)
	}
	if err != nil {
		return err
	}
	s.raiseOffsets()
	n, err := s.log.DeleteBelow(position)
	s.lows.drop(s.log.Min())
	c.segments.Add(int64(n))
	return errors.Join(err, s.index.DropBelow(s.log.Min()), s.keys.DropBelow(s.log.Min()), s.answers.table.DropBelow(s.log.Min()))
}
