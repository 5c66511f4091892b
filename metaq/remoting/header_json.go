package remoting

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// decodeJSON reads a JSON header in one pass, without reflection, maps or copies: decoding with a JSON library costs
// four to twelve times as much, and header decoding is the largest part of a RocketMQ broker's CPU.
//
// It takes what fastjson takes from the clients that exist: any key order, unknown keys of any shape, ext values that are
// numbers, booleans or null, integers in quotes.
func (h *Header) decodeJSON(b []byte) error {
	p := parser{b: b, h: h}
	if !p.object(p.topField, nil) || p.failed != "" {
		return p.err()
	}
	if p.space(); p.i < len(p.b) {
		p.fail("bytes after the end of the header")
		return p.err()
	}
	return nil
}

// maxDepth bounds the nesting of values that are skipped.
const maxDepth = 64

type parser struct {
	b      []byte
	i      int
	h      *Header
	failed string // first complaint, "" while all is well
	at     int    // where it is
}

func (p *parser) fail(why string) bool {
	if p.failed == "" {
		p.failed, p.at = why, p.i
	}
	return false
}

func (p *parser) err() error { return malformed("JSON header: %s at byte %d", p.failed, p.at) }

func (p *parser) space() {
	for p.i < len(p.b) {
		switch p.b[p.i] {
		case ' ', '\t', '\r', '\n':
			p.i++
		default:
			return
		}
	}
}

// peek returns the next byte that is not a blank, 0 at the end.
func (p *parser) peek() byte {
	if p.i < len(p.b) && p.b[p.i] > ' ' {
		return p.b[p.i]
	}
	p.space()
	if p.i < len(p.b) {
		return p.b[p.i]
	}
	return 0
}

func (p *parser) take(c byte) bool {
	if p.peek() != c {
		return false
	}
	p.i++
	return true
}

// object reads {"key": value, ...}; field reads the value. plain, if there is one, is called before a key and may take fields on its own.
func (p *parser) object(field func(key string) bool, plain func()) bool {
	if !p.take('{') {
		return p.fail("want {")
	}
	if p.take('}') {
		return true
	}
	for {
		if plain != nil {
			plain()
		}
		if p.peek() != '"' {
			return p.fail("want a key in quotes")
		}
		key, ok := p.str()
		if !ok {
			return false
		}
		if !p.take(':') {
			return p.fail("want : after a key")
		}
		if !field(key) {
			return false
		}
		switch p.peek() {
		case ',':
			p.i++
		case '}':
			p.i++
			return true
		default:
			return p.fail("want , or }")
		}
	}
}

func (p *parser) topField(key string) bool {
	h := p.h
	switch key {
	case "code":
		return p.int32(&h.Code)
	case "flag":
		return p.int32(&h.Flag)
	case "opaque":
		return p.int32(&h.Opaque)
	case "version":
		return p.int32(&h.Version)
	case "language":
		v, _, ok := p.scalar()
		if ok {
			if n, isInt := parseInt(v); isInt && n >= 0 && n < int64(len(languageNames)) {
				h.Language = Language(n)
			} else {
				h.Language = languageOf(v)
			}
		}
		return ok
	case "remark":
		v, _, ok := p.scalar()
		h.Remark = v
		return ok
	case "extFields":
		switch p.peek() {
		case '{':
			return p.object(p.extField, p.plainFields)
		case 'n':
			return p.literal("null")
		}
		return p.fail("extFields is not an object")
	}
	return p.skip(0)
}

// plainFields takes ext fields as long as they are written as "key":"value", without blanks and escapes, as nearly all are; what it
// leaves, the last field at least, is for object. It is at the quote of a key.
func (p *parser) plainFields() {
	b, i, ext := p.b, p.i, p.h.Ext
	for i < len(b) && b[i] == '"' && len(ext) < MaxFields {
		key := until(b, i+1)
		if key+2 >= len(b) || b[key] != '"' || b[key+1] != ':' || b[key+2] != '"' {
			break
		}
		v := until(b, key+3)
		if v+1 >= len(b) || b[v] != '"' || b[v+1] != ',' {
			break
		}
		ext = append(ext, Field{bytesString(b[i+1 : key]), bytesString(b[key+3 : v])})
		i = v + 2
	}
	p.i, p.h.Ext = i, ext
}

// until returns where the first quote or backslash at or behind i is, len(b) when there is none.
func until(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		if m := holds(w, '"') | holds(w, '\\'); m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for i < len(b) && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// holds sets the high bit of the first byte of w, from the low end, that is c; what it sets above that one means nothing.
func holds(w uint64, c byte) uint64 {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	w ^= ones * uint64(c)
	return (w - ones) &^ w & highs
}

func (p *parser) extField(key string) bool {
	v, null, ok := p.scalar()
	if !ok || null {
		return ok
	}
	if len(p.h.Ext) == MaxFields {
		return p.fail("more than 1024 ext fields")
	}
	p.h.Ext = append(p.h.Ext, Field{key, v})
	return true
}

// int32 reads a number, also in quotes; null leaves the field alone. What does not fit 32 bits is refused: a code that
// wrapped could be handled as another one.
func (p *parser) int32(to *int32) bool {
	at := p.i
	if n, i := digits(p.b, at); i > at && i < len(p.b) && (p.b[i] == ',' || p.b[i] == '}') {
		*to, p.i = n, i
		return true
	}
	v, null, ok := p.scalar()
	if !ok || null {
		return ok
	}
	n, ok := parseInt(v)
	if !ok || int64(int32(n)) != n {
		p.i = at
		return p.fail("want a 32-bit integer")
	}
	*to = int32(n)
	return true
}

// digits reads up to nine of them, which fit 32 bits, and returns where they end; nothing else may follow.
func digits(b []byte, i int) (n int32, end int) {
	for most := i + 9; i < len(b) && i < most; i++ {
		c := b[i] - '0'
		if c > 9 {
			break
		}
		n = n*10 + int32(c)
	}
	return n, i
}

// scalar reads any value as text: a string without its quotes and escapes, anything else as it is written.
func (p *parser) scalar() (v string, null, ok bool) {
	switch c := p.peek(); c {
	case '"':
		v, ok = p.str()
		return v, false, ok
	case 'n':
		return "", true, p.literal("null")
	case 0:
		return "", false, p.fail("want a value")
	default:
		at := p.i
		if !p.skip(0) {
			return "", false, false
		}
		return bytesString(p.b[at:p.i]), false, true
	}
}

func (p *parser) literal(s string) bool {
	if len(p.b)-p.i < len(s) || bytesString(p.b[p.i:p.i+len(s)]) != s {
		return p.fail("unknown word")
	}
	p.i += len(s)
	return true
}

// skip passes over one value of any kind.
func (p *parser) skip(depth int) bool {
	switch c := p.peek(); {
	case c == '"':
		_, ok := p.str()
		return ok
	case c == '{':
		if depth == maxDepth {
			return p.fail("nested deeper than 64")
		}
		return p.object(func(string) bool { return p.skip(depth + 1) }, nil)
	case c == '[':
		if depth == maxDepth {
			return p.fail("nested deeper than 64")
		}
		p.i++
		if p.take(']') {
			return true
		}
		for {
			if !p.skip(depth + 1) {
				return false
			}
			if p.take(']') {
				return true
			}
			if !p.take(',') {
				return p.fail("want , or ]")
			}
		}
	case c == 't':
		return p.literal("true")
	case c == 'f':
		return p.literal("false")
	case c == 'n':
		return p.literal("null")
	case c == '-' || c >= '0' && c <= '9':
		p.i++
		for p.i < len(p.b) {
			switch c := p.b[p.i]; {
			case c >= '0' && c <= '9', c == '.', c == 'e', c == 'E', c == '+', c == '-':
				p.i++
			default:
				return true
			}
		}
		return true
	}
	return p.fail("want a value")
}

// str reads a string at the opening quote. Without escapes the result is a view of the frame.
func (p *parser) str() (string, bool) {
	start := p.i + 1
	i := until(p.b, start)
	if i == len(p.b) {
		p.i = i
		return "", p.fail("string without end")
	}
	if p.b[i] == '\\' {
		return p.escaped(start, i)
	}
	p.i = i + 1
	return bytesString(p.b[start:i]), true
}

// escaped finishes a string whose first escape is at i, resolving into the header's scratch space. When that grows, the
// strings made before keep the old array alive, so nothing moves under them.
func (p *parser) escaped(start, i int) (string, bool) {
	b, out := p.b, p.h.scratch
	from := len(out)
	for i < len(b) {
		out = append(out, b[start:i]...)
		if b[i] == '"' {
			p.h.scratch = out
			p.i = i + 1
			return bytesString(out[from:]), true
		}
		if i+1 >= len(b) {
			break
		}
		n := 2
		switch c := b[i+1]; c {
		case '"', '\\', '/':
			out = append(out, c)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			if i+5 < len(b) && b[i+2] == '0' && b[i+3] == '0' && b[i+4] == '0' && b[i+5]-'0' < 10 { // what separates properties
				out = append(out, b[i+5]-'0')
				n = 6
				break
			}
			r, ok := hex4(b, i+2)
			if !ok {
				p.i = i
				return "", p.fail("bad \\u escape")
			}
			n = 6
			if utf16.IsSurrogate(r) {
				low, ok := rune(0), false
				if i+7 < len(b) && b[i+6] == '\\' && b[i+7] == 'u' {
					low, ok = hex4(b, i+8)
				}
				if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
					r, n = pair, 12
				} else {
					r = utf8.RuneError
				}
			}
			out = utf8.AppendRune(out, r)
		default:
			p.i = i
			return "", p.fail("unknown escape")
		}
		start = i + n
		i = until(b, start)
	}
	p.i = len(b)
	return "", p.fail("string without end")
}

func hex4(b []byte, i int) (rune, bool) {
	if i+4 > len(b) {
		return 0, false
	}
	var r rune
	for _, c := range b[i : i+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
