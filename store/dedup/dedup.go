// Package dedup remembers which ids were stored lately, in bounded memory, and is sure about those that were not.
//
// A [Window] is told of every message with an id that is to be stored once. Of the newest ones it knows the address. Of all
// others in its time it has a few bits, so it can say that an id is new, which nearly all are, or that it may have been there; then
// the key index has to be asked. It forgets nothing within its time, whatever the rate: with more ids the bits say "may be" more often.
//
// A [Filter] is for what has to be known for longer than that: the ids of messages that wait.
//
// Neither has a lock, clock or goroutine. Hashes are those of store/lookup; two ids can have one, so an address is a candidate as well.
package dedup

import "math/bits"

const (
	ways       = 8 // recent ids that share a place
	blockBytes = 64
	probes     = 6
	slots      = 4 // parts of the window, each with bits of its own; one more is being filled
)

// Limits of New.
const (
	MinBytes = 1 << 16
	MaxBytes = 1 << 30
)

// Window is what is remembered.
type Window struct {
	span  int64 // ms of a slot
	known int64 // of sends before this time nothing is known

	sets    int
	recent  [][ways]item // of sets, a power of two; nil before the first Insert
	evicted int64        // one more than the newest address that recent has given up

	gens  [slots + 1]generation
	bytes int // of one
}

type item struct {
	hash    uint64
	address int64 // + 1; 0: free
}

type generation struct {
	slot int64 // time / span
	bits []byte
}

// New makes a window over ms milliseconds that takes about bytes of memory once it is used, from MinBytes to MaxBytes; from is what
// Forget is told at first.
func New(ms int64, bytes int, from int64) *Window {
	w := &Window{span: max(1, (ms+slots-1)/slots), known: from}
	w.sets = 1 << (bits.Len(uint(max(1, bytes/8/(ways*16)))) - 1)
	w.bytes = max(1, bytes/8*7/(slots+1)/blockBytes) * blockBytes
	for i := range w.gens {
		w.gens[i].slot = -1
	}
	return w
}

// Forget says that ids stored before a time were not all told.
func (w *Window) Forget(before int64) { w.known = max(w.known, before) }

// Insert remembers the message at an address, stored at time in ms since 1970. Times do not go back by more than a slot.
func (w *Window) Insert(hash uint64, address, time int64) {
	if w.recent == nil {
		w.recent = make([][ways]item, w.sets)
	}
	place := &w.recent[hash&uint64(len(w.recent)-1)]
	at := 0
	for i := range place {
		if place[i].address == 0 || place[i].hash == hash && place[i].address-1 <= address {
			at = i
			break
		}
		if place[i].address < place[at].address {
			at = i
		}
	}
	if old := &place[at]; old.address != 0 && old.hash != hash {
		w.evicted = max(w.evicted, old.address)
	}
	place[at] = item{hash, address + 1}

	slot := time / w.span
	g := &w.gens[uint64(slot)%uint64(len(w.gens))]
	if g.slot != slot {
		if g.slot > slot {
			return // older than all that is asked for
		}
		if g.bits == nil {
			g.bits = make([]byte, w.bytes)
		} else {
			clear(g.bits)
		}
		g.slot = slot
	}
	set(block(g.bits, hash), hash)
}

func block(bytes []byte, hash uint64) []byte {
	i, _ := bits.Mul64(hash, uint64(len(bytes)/blockBytes))
	return bytes[i*blockBytes:][:blockBytes]
}

// Recent is the address of the newest message with the hash, if that is remembered.
func (w *Window) Recent(hash uint64) (address int64, ok bool) {
	if w.recent == nil {
		return 0, false
	}
	for _, it := range w.recent[hash&uint64(len(w.recent)-1)] {
		if it.hash == hash && it.address > address {
			address = it.address
		}
	}
	return address - 1, address > 0
}

// May tells whether a message with the hash that was stored at since or later can be missing from Recent. Then the key index has to be
// asked, once it has reached Evicted.
func (w *Window) May(hash uint64, since int64) bool {
	if since < w.known {
		return true
	}
	for i := range w.gens {
		if g := &w.gens[i]; g.bits != nil && g.slot >= since/w.span && has(block(g.bits, hash), hash) {
			return true
		}
	}
	return false
}

// set and has are about the bits of a hash in its block.
func set(b []byte, hash uint64) {
	x := hash * 0x9E3779B97F4A7C15
	for range probes {
		b[x>>3&63] |= 1 << (x & 7)
		x >>= 9
	}
}

func has(b []byte, hash uint64) bool {
	x := hash * 0x9E3779B97F4A7C15
	for range probes {
		if b[x>>3&63]&(1<<(x&7)) == 0 {
			return false
		}
		x >>= 9
	}
	return true
}

// Evicted is the log position below which every message was that Recent does not remember any more.
func (w *Window) Evicted() int64 { return w.evicted }
