package lookup

import (
	"bytes"
	"math/bits"

	"github.com/fusionmq/fusionmq/store/record"
)

// Constants of the hash; files depend on them.
const (
	hashA = 0xA0761D6478BD642F
	hashB = 0xE7037ED1A0B428DB
	hashC = 0x8EBC6AF09C88C6E3
)

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// sum hashes b, eight bytes at a time.
func sum[T ~string | ~[]byte](seed uint64, b T) uint64 {
	h := mix(seed^hashA, uint64(len(b))^hashB)
	for len(b) >= 8 {
		h = mix(h^word(b), hashC)
		b = b[8:]
	}
	var last uint64
	for i := range len(b) {
		last |= uint64(b[i]) << (8 * i)
	}
	return mix(h^last^hashA, hashB)
}

// word is the first eight bytes of b, little-endian.
func word[T ~string | ~[]byte](b T) uint64 {
	_ = b[7]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 | uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

// Topic is the part of a key's hash that all keys of a topic share.
type Topic uint64

// Anywhere is the topic of the unique ids that are known without one.
const Anywhere Topic = 0

// TopicOf returns it for a topic's name.
func TopicOf[T ~string | ~[]byte](name T) Topic { return Topic(sum(hashC, name) | 1) }

// Hash is the hash of a key of the topic.
func (t Topic) Hash(key []byte) uint64 { return sum(uint64(t), key) }

// HashString is Hash for a string.
func (t Topic) HashString(key string) uint64 { return sum(uint64(t), key) }

// Keys appends the hashes of a record's keys: of its unique id, then of each part of KEYS; parts are split by single spaces.
// Of equal ones there is one. With a unique id that [Once] knows there is its hash without the topic, too.
func (t Topic) Keys(dst []uint64, props []byte) []uint64 {
	keys, id := properties(props)
	if len(keys) == 0 && len(id) == 0 {
		return dst
	}
	start := len(dst)
	if len(id) > 0 {
		dst = append(dst, t.Hash(id))
	}
	words(keys, func(word []byte) bool {
		h := t.Hash(word)
		// A record can have thousands of keys, so only the few before are compared; to have one twice costs some bytes.
		for _, have := range dst[max(start, len(dst)-8):] {
			if have == h {
				return true
			}
		}
		dst = append(dst, h)
		return true
	})
	if once, ok := Once(props); ok {
		dst = append(dst, Anywhere.Hash(once))
	}
	return dst
}

// Has tells whether a record with these properties has the key: as its unique id or, unless unique is set, in KEYS.
func Has(props []byte, key string, unique bool) bool {
	keys, id := properties(props)
	found := key != "" && string(id) == key
	if !unique && !found && key != "" {
		words(keys, func(word []byte) bool {
			found = string(word) == key
			return !found
		})
	}
	return found
}

// UniqueID is the unique id of a message, nil when it has none.
func UniqueID(props []byte) []byte {
	_, id := properties(props)
	return id
}

func properties(props []byte) (keys, id []byte) {
	for name, value := range record.Properties(props) {
		switch string(name) {
		case record.PropKeys:
			keys = value
		case record.PropUniqKey:
			id = value
		}
	}
	return keys, id
}

// words calls fn for each part of KEYS until it returns false.
func words(keys []byte, fn func([]byte) bool) {
	for from, i := 0, 0; i <= len(keys); i++ {
		if i < len(keys) && keys[i] != ' ' {
			continue
		}
		if i > from && !fn(keys[from:i:i]) {
			return
		}
		from = i + 1
	}
}

// The beginning of the properties of a message that a Notify client sent: its id, 32 lower-case hex digits, as unique id and
// again as keys.
const (
	onceID   = record.PropUniqKey + "\x01"
	onceKeys = "\x02" + record.PropKeys + "\x01"
	onceLen  = 32
)

// Once returns the unique id of a message that is to be stored once on a broker, whatever its topic: of one that has the form
// of a Notify client's. ok is false for any other.
func Once(props []byte) (id []byte, ok bool) {
	const second = len(onceID) + onceLen + len(onceKeys)
	if len(props) <= second+onceLen || string(props[:len(onceID)]) != onceID {
		return nil, false
	}
	id = props[len(onceID) : len(onceID)+onceLen : len(onceID)+onceLen]
	if string(props[len(onceID)+onceLen:second]) != onceKeys || props[second+onceLen] != 2 || string(props[second:second+onceLen]) != string(id) {
		return nil, false
	}
	for _, c := range id {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return nil, false
		}
	}
	return id, true
}

var keyMark = []byte("KEY")

// MayHaveKeys is quick: false means that Keys would find none.
func MayHaveKeys(props []byte) bool { return bytes.Contains(props, keyMark) }
