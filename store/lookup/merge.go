package lookup

import (
	"errors"
	"slices"
)

// fan is how many runs of one size become one.
const fan = 8

// merges is the goroutine that keeps the number of runs small.
func (x *Index) merges() {
	defer x.done.Done()
	for {
		select {
		case <-x.stop:
			return
		case <-x.merge:
			for {
				more, err := x.mergeSome()
				if err != nil && !errors.Is(err, errStopped) {
					x.failed(err)
				}
				if err != nil || !more {
					break
				}
			}
		}
	}
}

// level is the size class of a run: 0 up to Entries, and one more for every fan times that.
func (x *Index) level(n int64) int {
	l := 0
	for size := int64(x.cfg.Entries) * fan; n >= size; size *= fan {
		l++
	}
	return l
}

// choose returns neighbours to merge: the smallest size class that has fan of them without a gap or a larger run between.
func (x *Index) choose(runs []*run) []*run {
	total, top := int64(0), 0
	for _, r := range runs {
		total += r.entries
		top = max(top, x.level(r.entries))
	}
	most := max(x.cfg.MaxMerged, total/fan)
	for level := 0; level <= top; level++ {
		first, n, sum := -1, 0, int64(0)
		for i, r := range runs {
			l := x.level(r.entries)
			if l > level || i > 0 && runs[i-1].end != r.start {
				first = -1
			}
			if l > level {
				continue
			}
			if first < 0 {
				first, n, sum = i, 0, 0
			}
			if l == level && n == 0 {
				first, sum = i, 0 // smaller ones in front of it stay
			}
			if l == level {
				n++
			}
			if sum += r.entries; sum > most {
				first = -1
				continue
			}
			if n == fan {
				return runs[first : i+1]
			}
		}
	}
	return nil
}

// mergeSome makes one run of several, and says whether there may be more to do.
func (x *Index) mergeSome() (bool, error) {
	x.mu.RLock()
	from := slices.Clone(x.choose(x.mu.runs))
	for _, r := range from {
		r.acquire() // the index still has it
	}
	x.mu.RUnlock()
	if len(from) == 0 {
		return false, nil
	}
	defer func() {
		for _, r := range from {
			r.release()
		}
	}()
	merged, bad, err := x.mergeRuns(from)
	if err != nil {
		if bad != nil {
			x.damaged(bad, err)
		}
		return false, err
	}
	x.failing.Store(false)
	x.mu.Lock()
	i := slices.Index(x.mu.runs, from[0])
	if i < 0 || len(x.mu.runs)-i < len(from) || !slices.Equal(x.mu.runs[i:i+len(from)], from) {
		x.mu.Unlock() // one of them turned out damaged, or its part of the log has gone
		return true, x.remove(merged)
	}
	x.mu.runs = slices.Replace(slices.Clone(x.mu.runs), i, i+len(from), merged)
	x.mu.Unlock()
	return true, x.remove(from...)
}

// mergeRuns writes the merged run, without what is below the beginning of the log. bad is the run that could not be read.
func (x *Index) mergeRuns(from []*run) (merged, bad *run, err error) {
	low := x.min.Load()
	heads, most := make([]*scan, 0, len(from)), int64(0)
	for _, r := range from {
		s := &scan{r: r}
		ok, err := s.next()
		if err != nil {
			return nil, r, err
		}
		if ok {
			heads = append(heads, s)
		}
		most += r.entries
	}
	merged, err = x.writeRun(from[0].start, from[len(from)-1].end, most, func(w *writer) error {
		for n := 0; len(heads) > 0; n++ {
			if n%4096 == 0 && x.stopped() {
				return errStopped
			}
			least := 0
			for i := 1; i < len(heads); i++ {
				if heads[i].e.before(heads[least].e) {
					least = i
				}
			}
			s := heads[least]
			if s.e.Address >= low {
				if err := w.add(s.e); err != nil {
					return err
				}
			}
			ok, err := s.next()
			if err != nil {
				bad = s.r
				return err
			}
			if !ok {
				heads = slices.Delete(heads, least, least+1)
			}
		}
		return nil
	})
	return merged, bad, err
}
