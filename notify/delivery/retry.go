package delivery

// retrying is one message of the retry line that is in memory.
type retrying struct {
	slot  *slot // posted; nil: waiting in a lane, or over
	over  bool  // it has an outcome: it waits for its next attempt, or is done
	taken bool  // done
	front bool  // a detach has made it: it stands in front of what has failed
	ops   int   // operations on it that the store has not applied yet
}

// Taken tells of messages of the retry line that are done, with the operation that says so on its way.
func (g *Group) Taken(addresses []int64) {
	for _, a := range addresses {
		r := g.over(a)
		r.taken = true
		r.ops++
	}
}

// known is what is known of a message of the retry line; made when it is missing.
func (g *Group) known(address int64) *retrying {
	r := g.retrying[address]
	if r == nil {
		if g.retrying == nil {
			g.retrying = make(map[int64]*retrying)
		}
		r = &retrying{}
		g.retrying[address] = r
	}
	return r
}

func (g *Group) over(address int64) *retrying {
	r := g.known(address)
	r.over, r.slot = true, nil
	return r
}

// Applied tells that the store has applied an operation on a message, or has refused it: the line says the same then. When it
// was the last one that is known of, and the line still shows the message, it is to be tried again. It reports whether the line
// is to be looked at for the message: not while it is waiting or posted here, or another operation is on its way, and not when
// somebody reads the line, for then EndLoad says so.
func (g *Group) Applied(address int64) (look bool) {
	r := g.retrying[address]
	if r == nil {
		return true
	}
	r.ops = max(r.ops-1, 0)
	if !r.over || r.ops > 0 {
		return false
	}
	if g.loading {
		g.applied = append(g.applied, address)
		return false
	}
	delete(g.retrying, address)
	return !r.taken
}

// BeginLoad and EndLoad bracket reading the retry line and handing what was found to Retry; in between, messages whose
// outcome the store applies stay known, so that an older sight of the line does not bring them back. They report whether
// the line is to be read again from its start, because such a message may have been passed over. BeginLoad may be called
// again for each part of the line.
func (g *Group) BeginLoad() (again bool) {
	again = g.EndLoad()
	g.loading = true
	return again
}

func (g *Group) EndLoad() (again bool) {
	g.loading = false
	for _, address := range g.applied {
		if r := g.retrying[address]; r != nil && r.over && r.ops == 0 {
			again = again || !r.taken
			delete(g.retrying, address)
		}
	}
	g.applied = nil
	return again
}

// RetriesWaiting is how many retries are loaded and wait for a machine: those that a detach has made of first deliveries, and
// the others.
func (g *Group) RetriesWaiting() (front, others int) { return g.waiting[1], g.waiting[0] }

// count notes that a retry waits for a machine, or with -1 that it does no more.
func (g *Group) count(r *retrying, d int) {
	if r.front {
		g.waiting[1] += d
	} else {
		g.waiting[0] += d
	}
}

// Retrying tells whether a message of the retry line is in memory already.
func (g *Group) Retrying(address int64) bool { return g.retrying[address] != nil }

// Retry takes retries that are due, in their order. Those that are known already are left out, and those of a topic whose
// detach is being written: the line may show what the detach has made retries of before EndDetach has said which of it
// is posted. The line is to be read again from its start after EndDetach.
func (g *Group) Retry(rs []Retry) {
	for _, r := range rs {
		if g.retrying[r.Address] != nil || g.Stream(r.Topic).mode == Detaching {
			continue
		}
		k := g.known(r.Address)
		k.front = r.Due == 0
		g.count(k, 1)
		l := g.Stream(r.Topic).lane(r.Message.TagsCode)
		q := &l.retry
		if r.Attempt == 0 { // a first delivery that a detach has interrupted: in line with the others, oldest first
			q = &l.first
		}
		q.push(item{msg: r.Message, source: fromRetry, attempt: r.Attempt})
		g.wakeLane(l)
	}
}

// ForgetRetries drops the retries that wait for a machine. They stay in the store's line.
func (g *Group) ForgetRetries() {
	for _, s := range g.streams {
		for _, l := range s.lanes {
			for _, q := range []*fifo[item]{&l.again, &l.retry, &l.first} {
				for n := q.len(); n > 0; n-- {
					if it := q.pop(); it.source != fromRetry {
						q.push(it)
					} else {
						g.forget(it)
					}
				}
			}
		}
	}
}

func (g *Group) forget(it item) {
	r := g.retrying[it.msg.Address]
	if r == nil || r.over || r.slot != nil {
		return
	}
	g.count(r, -1)
	if r.ops > 0 {
		r.over = true // Applied forgets it
	} else {
		delete(g.retrying, it.msg.Address)
	}
}
