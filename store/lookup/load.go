package lookup

import (
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// load opens the files and finds out what they leave open. Removal is durable before it returns: a file that came back after
// a crash could speak for a part of the log that has been written anew since.
func (x *Index) load() error {
	c := &x.cfg
	if err := c.FS.MkdirAll(c.Dir); err != nil {
		return err
	}
	names, err := c.FS.List(c.Dir)
	if err != nil {
		return err
	}
	type file struct {
		name string
		part
	}
	var files []file
	removed := false
	drop := func(name string) error {
		removed = true
		return c.FS.Remove(filepath.Join(c.Dir, name))
	}
	for _, name := range names {
		if p, ok := parseName(name); ok {
			files = append(files, file{name, p})
		} else if strings.HasSuffix(name, suffix+tempSuffix) {
			if err := drop(name); err != nil {
				return err
			}
		}
	}
	// A merged run and what it was made of can both be there; the merged one comes first.
	slices.SortFunc(files, func(a, b file) int {
		if a.from != b.from {
			return compareInt(a.from, b.from)
		}
		return compareInt(b.end, a.end)
	})
	end := int64(-1)
	for _, f := range files {
		if f.from >= end && f.end <= c.LogEnd && f.end > c.LogMin {
			r, err := openRun(c.FS, filepath.Join(c.Dir, f.name), f.from, f.end)
			var corrupt *CorruptError
			if err == nil {
				x.mu.runs = append(x.mu.runs, r)
				end = r.end
				continue
			}
			if !errors.As(err, &corrupt) {
				return err
			}
			c.Failed(err)
		}
		if err := drop(f.name); err != nil {
			return err
		}
	}
	if removed {
		if err := c.FS.SyncDir(c.Dir); err != nil {
			return err
		}
	}
	at := c.LogMin
	for _, r := range x.mu.runs {
		if r.start > at {
			x.mu.gaps = append(x.mu.gaps, part{at, r.start})
		}
		at = max(at, r.end)
	}
	if c.LogEnd-at > 2*c.SpanBytes { // much is missing: its newest segment first
		if from := c.Boundary(c.LogEnd - 1); from > at {
			x.mu.gaps = append(x.mu.gaps, part{at, from})
			at = from
		}
	}
	x.mu.mem = newTable(at, 0)
	x.pos.Store(at)
	if at < c.LogEnd {
		x.pending.parts = []part{{at, c.LogEnd}}
	}
	return nil
}

func compareInt(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// parseName takes the name of a run apart.
func parseName(name string) (p part, ok bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 2*nameDigits+1 || digits[nameDigits] != '-' {
		return p, false
	}
	from, err1 := strconv.ParseUint(digits[:nameDigits], 10, 63)
	end, err2 := strconv.ParseUint(digits[nameDigits+1:], 10, 63)
	p = part{int64(from), int64(end)}
	return p, err1 == nil && err2 == nil && p.from >= 0 && p.end > p.from && p.end-p.from <= max48
}
