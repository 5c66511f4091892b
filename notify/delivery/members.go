package delivery

// Member is one connection of a group. Its fields are guarded by the group's lock.
type Member struct {
	Conn  Conn
	Index uint8 // of this group on its connection; the highest byte of its handles

	group  *Group
	credit uint32 // most unanswered deliveries; only with limited
	bytes  int64  // most bytes of unanswered deliveries; 0 is no limit
	// limited is set for a connection that grants credit. Its deliveries hold their place until it answers, also past
	// the acknowledgement timeout; those of other connections are forgotten a while after the timeout.
	limited bool

	load    int   // unanswered deliveries, timed out ones included
	loadB   int64 // their bytes
	bucket  *bucket
	pos     int // in bucket.members
	touched bool
	slots   slotTable
}

// fits tells whether the member may get another message.
func (m *Member) fits() bool {
	if m.limited {
		if m.load >= int(m.credit) || m.bytes > 0 && m.loadB >= m.bytes {
			return false
		}
	}
	return m.load < maxSlots && m.Conn.Room()
}

// members orders the members of a group by how much each has unanswered, so that the choice of a machine, and every
// change of a load, takes constant time however many machines a group has. A bucket holds the members with one load;
// the list ascends. A member that took no more when it was looked at is in no bucket until something happens on its
// connection.
type members struct {
	first *bucket
	free  *bucket // emptied buckets, to be used again
	n     int     // members, those in no bucket included
	rand  func(n int) int
}

type bucket struct {
	load       int
	members    []*Member
	prev, next *bucket
}

// pick returns a member with the least load that fits, at random among equals, and never except.
func (ms *members) pick(except *Member) *Member {
	for b := ms.first; b != nil; {
		next := b.next
		skipped := 0 // except is in this bucket and was passed over
		for len(b.members) > skipped {
			i := 0
			if n := len(b.members); n > 1 {
				i = ms.rand(n)
			}
			m := b.members[i]
			if m == except {
				if len(b.members) == 1 {
					break
				}
				m = b.members[(i+1+ms.rand(len(b.members)-1))%len(b.members)]
			}
			if m.fits() {
				return m
			}
			ms.unlink(m)
			if except != nil && except.bucket == b {
				skipped = 1
			}
		}
		b = next
	}
	return nil
}

// link puts a member into the bucket of its load. It does nothing for one that is in a bucket.
func (ms *members) link(m *Member) {
	if m.bucket != nil {
		return
	}
	var before *bucket
	at := ms.first
	for at != nil && at.load < m.load {
		before, at = at, at.next
	}
	ms.put(m, before, at)
}

// put adds m to at when that has m's load, else to a new bucket between before and at.
func (ms *members) put(m *Member, before, at *bucket) {
	if at == nil || at.load != m.load {
		nb := ms.free
		if nb == nil {
			nb = &bucket{}
		} else {
			ms.free = nb.next
		}
		nb.load, nb.prev, nb.next = m.load, before, at
		if before != nil {
			before.next = nb
		} else {
			ms.first = nb
		}
		if at != nil {
			at.prev = nb
		}
		at = nb
	}
	m.bucket, m.pos = at, len(at.members)
	at.members = append(at.members, m)
}

// unlink takes a member out of its bucket, and a bucket that becomes empty out of the list.
func (ms *members) unlink(m *Member) {
	b := m.bucket
	if b == nil {
		return
	}
	last := len(b.members) - 1
	b.members[m.pos] = b.members[last]
	b.members[m.pos].pos = m.pos
	b.members[last] = nil
	b.members = b.members[:last]
	m.bucket = nil
	if last > 0 {
		return
	}
	if b.prev != nil {
		b.prev.next = b.next
	} else {
		ms.first = b.next
	}
	if b.next != nil {
		b.next.prev = b.prev
	}
	b.prev, b.next = nil, ms.free
	ms.free = b
}

// add changes a member's load by d and keeps it in order.
func (ms *members) add(m *Member, d int) {
	m.load += d
	b := m.bucket
	if b == nil {
		return
	}
	before, at := b.prev, b.next
	if len(b.members) == 1 && (before == nil || before.load < m.load) && (at == nil || at.load > m.load) {
		b.load = m.load // the usual case of few machines: the bucket moves with its only member
		return
	}
	ms.unlink(m)
	if len(b.members) > 0 {
		if d > 0 {
			before = b
		} else {
			at = b
		}
	}
	for at != nil && at.load < m.load {
		before, at = at, at.next
	}
	for before != nil && before.load >= m.load {
		before, at = before.prev, before
	}
	ms.put(m, before, at)
}
