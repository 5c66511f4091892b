package store

import "fmt"

// DiskFullError is in a Result, and returned by Err, while the disk is too full for messages. It is an ErrNoSpace.
type DiskFullError struct {
	Dir         string
	Used, Limit int // percent of the disk: as measured last, and above which messages are refused
	Below       int // at this or less they are taken again
}

func (e *DiskFullError) Error() string {
	return fmt.Sprintf("store: the disk of %s is %d%% full, more than %d%%: messages are refused until it is at most %d%%", e.Dir, e.Used, e.Limit, e.Below)
}

func (e *DiskFullError) Is(target error) bool { return target == ErrNoSpace }

// measure looks how full the disk is, in percent, and lets messages in or not. Between the two levels that stays as it was.
func (c *cleaner) measure() (used int) {
	s, r := c.s, &c.s.o.Retention
	dir := s.path(logDir)
	free, total, err := s.o.FS.Space(dir)
	if err != nil || total <= 0 {
		return int(c.used.Load()) // no reason to stop what works
	}
	used = int((100*(total-free) + total - 1) / total)
	c.used.Store(int64(used))
	was := c.full.Load()
	switch {
	case used > r.RefuseAt:
		c.full.Store(&DiskFullError{Dir: dir, Used: used, Limit: r.RefuseAt, Below: r.ForcedAt})
		if was == nil {
			s.event(levelError, "disk is too full, messages are refused", "dir", dir, "used_percent", used, "limit_percent", r.RefuseAt, "free_bytes", free)
		}
	case used <= r.ForcedAt && was != nil:
		c.full.Store(nil)
		s.event(levelInfo, "disk has room again, messages are taken", "dir", dir, "used_percent", used)
	}
	return used
}

// surplus is how many bytes have to go to bring the disk to the level of forced cleaning, 0 when it is not above it.
func (c *cleaner) surplus() int64 {
	free, total, err := c.s.o.FS.Space(c.s.path(logDir))
	if err != nil || total <= 0 {
		return 0
	}
	return max(0, total-free-total*int64(c.s.o.Retention.ForcedAt)/100)
}
