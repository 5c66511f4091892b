package record

import (
	"bytes"
	"iter"
	"unicode/utf8"
)

// The separators of property text: name 0x01 value 0x02, repeated. The last 0x02 may be missing, because brokers up to
// 4.9 never write it.
const (
	nameEnd  = 0x01
	valueEnd = 0x02
)

// Names of properties that the store itself reads.
const (
	PropTags    = "TAGS"
	PropKeys    = "KEYS"
	PropUniqKey = "UNIQ_KEY"
)

// Property returns the value of a property of encoded text, the last one when the name is there more than once, as a
// reader that fills a map would. Entries without a name or a value do not exist. The value aliases props.
func Property(props []byte, name string) (value []byte, ok bool) {
	for len(props) > 0 {
		entry := props
		if i := bytes.IndexByte(props, valueEnd); i >= 0 {
			entry, props = props[:i], props[i+1:]
		} else {
			props = nil
		}
		if n := len(name); len(entry) > n+1 && entry[n] == nameEnd && string(entry[:n]) == name && n > 0 {
			value, ok = entry[n+1:], true
		}
	}
	return value, ok
}

// Properties ranges over the entries of encoded text that have a name and a value, in their order. Both alias props.
func Properties(props []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for len(props) > 0 {
			entry := props
			if i := bytes.IndexByte(props, valueEnd); i >= 0 {
				entry, props = props[:i], props[i+1:]
			} else {
				props = nil
			}
			if i := bytes.IndexByte(entry, nameEnd); i > 0 && i < len(entry)-1 {
				if !yield(entry[:i:i], entry[i+1:]) {
					return
				}
			}
		}
	}
}

// AppendProperty appends a property to encoded text, closing an entry before it that was left open. An empty value is
// left out, as a reader would not see it. Name and value must not contain 0x01 or 0x02 (see ValidProperty).
func AppendProperty[N, V ~string | ~[]byte](props []byte, name N, value V) []byte {
	if len(name) == 0 || len(value) == 0 {
		return props
	}
	if n := len(props); n > 0 && props[n-1] != valueEnd {
		props = append(props, valueEnd)
	}
	props = append(props, name...)
	props = append(props, nameEnd)
	props = append(props, value...)
	return append(props, valueEnd)
}

// AppendWithout appends props to dst without the entries of the given names.
func AppendWithout(dst, props []byte, names ...string) []byte {
entries:
	for name, value := range Properties(props) {
		for _, n := range names {
			if string(name) == n {
				continue entries
			}
		}
		dst = AppendProperty(dst, name, value)
	}
	return dst
}

// ValidProperty says whether s can be a name or a value: it has no separator in it.
func ValidProperty(s string) bool {
	for i := range len(s) {
		if s[i] == nameEnd || s[i] == valueEnd {
			return false
		}
	}
	return true
}

// HashCode is Java's String.hashCode of UTF-8 text: over its UTF-16 code units, wrapping. Bytes that are no UTF-8 count
// as U+FFFD each, roughly as Java's decoder replaces them.
func HashCode[T ~string | ~[]byte](s T) int32 {
	var h int32
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			h = 31*h + int32(c)
			i++
			continue
		}
		// A rune at most: the conversion of four bytes stays on the stack.
		r, n := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
		i += n
		if r >= 0x10000 {
			r -= 0x10000
			h = 31*h + (0xD800 + r>>10)
			h = 31*h + (0xDC00 + r&0x3FF)
			continue
		}
		h = 31*h + r
	}
	return h
}

var tagsStart = []byte(PropTags + "\x01")

// TagsCode is the code of the TAGS property: HashCode, sign-extended; 0 without a tag. It gives what Property(props, PropTags)
// would, faster.
func TagsCode(props []byte) int64 {
	code := int64(0)
	for from := 0; ; {
		i := bytes.Index(props[from:], tagsStart)
		if i < 0 {
			return code
		}
		at := from + i
		from = at + len(tagsStart)
		if at > 0 && props[at-1] != valueEnd {
			continue // the end of another name, or in a value
		}
		value := props[from:]
		if k := bytes.IndexByte(value, valueEnd); k >= 0 {
			value = value[:k]
		}
		if len(value) > 0 {
			code = int64(HashCode(value)) // the last one counts
		}
	}
}
