package delivery

import "container/heap"

// item is a message that waits for a machine of the group.
type item struct {
	msg     *Message
	except  *Member // not this one: it had it and was full or knew no listener
	share   int32   // of a window message
	attempt int32   // attempts made so far
	source  source
	second  bool // a second machine tries; its failure counts
}

// slot is one delivery on one connection, from the post until the answer.
type slot struct {
	item
	lane     *lane
	member   *Member
	deadline int64 // milliseconds; of an answer, or when a late slot is forgotten
	posted   int64
	prev     *slot
	next     *slot
	list     *slotList
	heapAt   int    // 1 + index in the heap; 0: not in it
	uses     uint32 // its low bits are the generation in the handle
	index    uint16
	state    slotState
}

type slotState uint8

const (
	slotFree   slotState = iota
	slotPosted           // waits for an answer
	slotLate             // the timeout has passed, or another machine ended the message; an answer still frees the place
)

// A handle is member index (8 bits), generation (9), slot index (15). The generation tells a late answer to an earlier
// use of the slot; slots are reused oldest first, so it wraps only after 512 rounds of all slots.
const (
	slotBits  = 15
	genBits   = 9
	maxSlots  = 1 << slotBits
	slotBlock = 16
	slotKeep  = 4 // blocks that an idle table keeps
)

// slotTable is a member's deliveries. Blocks never move, so a *slot stays good while it is in use.
type slotTable struct {
	blocks []*[slotBlock]slot
	free   fifo[uint16]
	grown  bool   // is in group.grown
	base   uint32 // uses that slots of a new block start with
	most   uint32 // highest uses of any slot, so that a table that starts again small repeats no handle
	used   int
}

func (t *slotTable) take(m *Member) *slot {
	if t.free.len() == 0 {
		first := len(t.blocks) * slotBlock
		b := new([slotBlock]slot)
		for i := range b {
			b[i].index, b[i].uses = uint16(first+i), t.base
			t.free.push(uint16(first + i))
		}
		t.blocks = append(t.blocks, b)
	}
	i := t.free.pop()
	s := &t.blocks[i/slotBlock][i%slotBlock]
	s.member = m
	t.used++
	return s
}

// put frees a slot.
func (t *slotTable) put(s *slot) {
	*s = slot{index: s.index, uses: s.uses + 1}
	t.most = max(t.most, s.uses)
	t.free.push(s.index)
	t.used--
}

// trim makes a table that was large start again small when nothing is in it.
func (t *slotTable) trim() {
	if t.used == 0 && len(t.blocks) > slotKeep {
		*t = slotTable{base: t.most, most: t.most}
	}
}

func (s *slot) handle() uint32 {
	return uint32(s.member.Index)<<(slotBits+genBits) | s.uses&(1<<genBits-1)<<slotBits | uint32(s.index)
}

// lookup finds the slot that a handle names, nil when it was answered before or never given.
func (t *slotTable) lookup(handle uint32) *slot {
	i := int(handle & (maxSlots - 1))
	if i/slotBlock >= len(t.blocks) {
		return nil
	}
	s := &t.blocks[i/slotBlock][i%slotBlock]
	if s.state == slotFree || s.uses&(1<<genBits-1) != handle>>slotBits&(1<<genBits-1) {
		return nil
	}
	return s
}

// MemberIndex is the part of a handle that names the group on its connection.
func MemberIndex(handle uint32) uint8 { return uint8(handle >> (slotBits + genBits)) }

// slotList is a list in order of deadlines: every slot in it got the same time.
type slotList struct{ head, tail *slot }

func (l *slotList) push(s *slot) {
	s.list, s.prev, s.next = l, l.tail, nil
	if l.tail != nil {
		l.tail.next = s
	} else {
		l.head = s
	}
	l.tail = s
}

func (s *slot) unlist() {
	l := s.list
	if l == nil {
		return
	}
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		l.head = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		l.tail = s.prev
	}
	s.list, s.prev, s.next = nil, nil, nil
}

// slotHeap orders the few slots whose message brought a timeout of its own.
type slotHeap []*slot

func (h slotHeap) Len() int           { return len(h) }
func (h slotHeap) Less(i, j int) bool { return h[i].deadline < h[j].deadline }
func (h slotHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapAt, h[j].heapAt = i+1, j+1
}
func (h *slotHeap) Push(x any) {
	s := x.(*slot)
	*h = append(*h, s)
	s.heapAt = len(*h)
}
func (h *slotHeap) Pop() any {
	old := *h
	s := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	s.heapAt = 0
	return s
}

// timeouts knows the deadlines of a group's posted and late slots: two lists, because almost all have the same
// timeout, and a heap for the others. No timer belongs to a message.
type timeouts struct {
	posted slotList // default timeout, ascending
	late   slotList // ascending
	custom slotHeap
}

func (t *timeouts) remove(s *slot) {
	if s.heapAt > 0 {
		heap.Remove(&t.custom, s.heapAt-1)
		return
	}
	s.unlist()
}

// next is the earliest deadline, or never.
func (t *timeouts) next(never int64) int64 {
	if s := t.posted.head; s != nil {
		never = min(never, s.deadline)
	}
	if s := t.late.head; s != nil {
		never = min(never, s.deadline)
	}
	if len(t.custom) > 0 {
		never = min(never, t.custom[0].deadline)
	}
	return never
}
