package state

import (
	"encoding/binary"
	"sort"
)

// share is one message in a window: what the groups of a set are owed. It holds no pointer, so the collector does not
// look at a window.
type share struct {
	address  int64
	position int64
	size     int32
	set      setID // noSet when it is done
}

// window is the data queue of one topic: shares in address order.
type window struct {
	shares []share // shares[:head] are done; the last one is not
	head   int
	live   int // shares that are not done
}

func (w *window) add(s share) {
	if w.head > 256 && w.head >= len(w.shares)/2 {
		n := copy(w.shares, w.shares[w.head:])
		w.shares, w.head = w.shares[:n], 0
	} else if len(w.shares) == cap(w.shares) && w.live < (len(w.shares)-w.head)/2 {
		w.squeeze()
	}
	w.shares = append(w.shares, s)
	w.live++
}

// squeeze takes the done ones out of the middle, where one slow group may leave many.
func (w *window) squeeze() {
	left := w.shares[:0]
	for _, s := range w.shares[w.head:] {
		if s.set != noSet {
			left = append(left, s)
		}
	}
	w.shares, w.head = left, 0
}

// from is the index of the first share at or above an address.
func (w *window) from(address int64) int {
	open := w.shares[w.head:]
	if len(open) > 0 && open[0].address >= address { // mostly the oldest go first
		return w.head
	}
	return w.head + sort.Search(len(open), func(i int) bool { return open[i].address >= address })
}

// find returns the share at an address that is not done, or nil.
func (w *window) find(address int64) *share {
	if i := w.from(address); i < len(w.shares) && w.shares[i].address == address && w.shares[i].set != noSet {
		return &w.shares[i]
	}
	return nil
}

// trim moves over done shares at both ends. It is called when some have been done.
func (w *window) trim() {
	if w.live == 0 {
		w.shares, w.head = w.shares[:0], 0
		if cap(w.shares) > 1<<14 {
			w.shares = nil
		}
		return
	}
	for w.shares[w.head].set == noSet {
		w.head++
	}
	for w.shares[len(w.shares)-1].set == noSet {
		w.shares = w.shares[:len(w.shares)-1]
	}
}

type setID uint32

const noSet setID = 0

// sets keeps one copy of each set of groups that shares name, and counts who names it.
type sets struct {
	all   []set // by id; all[noSet] is not used
	free  []setID
	byKey map[string]setID
	key   []byte // for look-ups
}

type set struct {
	groups []*group // in the order of the exchange
	names  []string // of them; handed out, so never changed
	refs   int
}

// hold returns the set of these groups with one more reference; noSet for none.
func (s *sets) hold(groups []*group) setID {
	if len(groups) == 0 {
		return noSet
	}
	s.key = s.key[:0]
	for _, g := range groups {
		s.key = binary.LittleEndian.AppendUint32(s.key, g.id)
	}
	id, ok := s.byKey[string(s.key)]
	if !ok {
		names := make([]string, len(groups))
		for i, g := range groups {
			names[i] = g.name
		}
		n := set{groups: append([]*group(nil), groups...), names: names}
		if k := len(s.free); k > 0 {
			id, s.free = s.free[k-1], s.free[:k-1]
			s.all[id] = n
		} else {
			if s.byKey == nil {
				s.byKey, s.all = map[string]setID{}, make([]set, 1)
			}
			id = setID(len(s.all))
			s.all = append(s.all, n)
		}
		s.byKey[string(s.key)] = id
	}
	s.all[id].refs++
	return id
}

func (s *sets) drop(id setID) {
	if id == noSet {
		return
	}
	e := &s.all[id]
	if e.refs--; e.refs > 0 {
		return
	}
	s.key = s.key[:0]
	for _, g := range e.groups {
		s.key = binary.LittleEndian.AppendUint32(s.key, g.id)
	}
	delete(s.byKey, string(s.key))
	*e = set{}
	s.free = append(s.free, id)
}

func (s *sets) has(id setID, g *group) bool {
	if id == noSet {
		return false
	}
	for _, h := range s.all[id].groups {
		if h == g {
			return true
		}
	}
	return false
}

// without moves one reference from a set to the set without g, which may be noSet.
func (s *sets) without(id setID, g *group) setID {
	var buf [16]*group
	left := buf[:0]
	for _, h := range s.all[id].groups {
		if h != g {
			left = append(left, h)
		}
	}
	n := s.hold(left)
	s.drop(id)
	return n
}
