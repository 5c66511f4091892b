package remoting

import (
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

// Head is the fixed part of a frame to be written. Language and Version are filled in by the encoder unless Version is set.
type Head struct {
	Code      int32
	Language  Language
	Version   int32 // 0: this implementation's language and version
	Opaque    int32
	Flag      int32
	Remark    string
	Serialize Serialize

	asIs bool // Version 0 means 0
}

// Encoder appends frames to a buffer: Begin, any number of fields, then End. It allocates only to grow the buffer. The zero
// value is ready. Frames follow each other without a gap, so a buffer of many frames is one write.
//
// Every ext value is written as a JSON string and the JSON is strict: C++ clients test for strings and Go clients decode
// into map[string]string. A code that does not fit the binary header's 16 bits is written in JSON, which every peer
// that decodes frame by frame understands.
type Encoder struct {
	buf    []byte
	start  int // of the frame under construction
	ext    int // binary: position of the ext block's length word
	json   bool
	first  bool // JSON: no ext field yet
	inside bool // between Begin and End
}

// Bytes returns what has been encoded, complete frames only. It is valid until the next call of any other method.
func (e *Encoder) Bytes() []byte {
	if e.inside {
		return e.buf[:e.start]
	}
	return e.buf
}

// Len is len(Bytes()).
func (e *Encoder) Len() int { return len(e.Bytes()) }

// Cap is the size of the buffer.
func (e *Encoder) Cap() int { return cap(e.buf) }

// Reset continues with an empty buffer in b's memory.
func (e *Encoder) Reset(b []byte) { *e = Encoder{buf: b[:0]} }

// Open reports whether a frame is under construction.
func (e *Encoder) Open() bool { return e.inside }

// Cancel drops the frame under construction.
func (e *Encoder) Cancel() {
	if e.inside {
		e.buf, e.inside = e.buf[:e.start], false
	}
}

// Begin starts a frame; one under construction is dropped.
func (e *Encoder) Begin(h Head) {
	e.Cancel()
	if h.Version == 0 && !h.asIs {
		h.Language, h.Version = Go, Version
	}
	e.start, e.inside, e.first = len(e.buf), true, true
	e.json = h.Serialize != Binary || h.Code != int32(int16(h.Code))
	b := append(e.buf, 0, 0, 0, 0, 0, 0, 0, 0)
	if !e.json {
		b = binary.BigEndian.AppendUint16(b, uint16(h.Code))
		b = append(b, byte(h.Language))
		b = binary.BigEndian.AppendUint16(b, uint16(h.Version))
		b = binary.BigEndian.AppendUint32(b, uint32(h.Opaque))
		b = binary.BigEndian.AppendUint32(b, uint32(h.Flag))
		b = binary.BigEndian.AppendUint32(b, uint32(len(h.Remark)))
		b = append(b, h.Remark...)
		e.ext = len(b)
		e.buf = append(b, 0, 0, 0, 0)
		return
	}
	b = append(b, `{"code":`...)
	b = strconv.AppendInt(b, int64(h.Code), 10)
	b = append(b, `,"flag":`...)
	b = strconv.AppendInt(b, int64(h.Flag), 10)
	b = append(b, `,"language":"`...)
	b = append(b, h.Language.String()...)
	b = append(b, `","opaque":`...)
	b = strconv.AppendInt(b, int64(h.Opaque), 10)
	b = append(b, `,"serializeTypeCurrentRPC":"JSON","version":`...)
	b = strconv.AppendInt(b, int64(h.Version), 10)
	if h.Remark != "" {
		b = append(b, `,"remark":"`...)
		b = appendEscaped(b, h.Remark)
		b = append(b, '"')
	}
	e.buf = append(b, `,"extFields":{`...)
}

// Response begins the response to a request.
func (e *Encoder) Response(to ReplyTo, code int32, remark string) {
	e.Begin(Head{Code: code, Opaque: to.Opaque, Flag: FlagResponse, Remark: remark, Serialize: to.Serialize})
}

// key opens a field: everything up to its value.
func (e *Encoder) key(k string) {
	b := e.buf
	if !e.json {
		if len(k) > math.MaxInt16 {
			k = k[:math.MaxInt16]
		}
		b = binary.BigEndian.AppendUint16(b, uint16(len(k)))
		e.buf = append(b, k...)
		return
	}
	if !e.first {
		b = append(b, ',')
	}
	e.first = false
	b = append(b, '"')
	b = appendEscaped(b, k)
	e.buf = append(b, '"', ':', '"')
}

// String adds an ext field. Java reads an empty value in a binary header back as absent.
func (e *Encoder) String(k, v string) {
	e.key(k)
	if !e.json {
		e.buf = binary.BigEndian.AppendUint32(e.buf, uint32(len(v)))
		e.buf = append(e.buf, v...)
		return
	}
	e.buf = append(appendEscaped(e.buf, v), '"')
}

// Text adds an ext field whose value is UTF-8 text in v.
func (e *Encoder) Text(k string, v []byte) { e.String(k, bytesString(v)) }

// Int adds an ext field with the decimal text of v.
func (e *Encoder) Int(k string, v int64) {
	e.key(k)
	if !e.json {
		at := len(e.buf)
		e.buf = append(e.buf, 0, 0, 0, 0)
		e.buf = strconv.AppendInt(e.buf, v, 10)
		binary.BigEndian.PutUint32(e.buf[at:], uint32(len(e.buf)-at-4))
		return
	}
	e.buf = append(strconv.AppendInt(e.buf, v, 10), '"')
}

// Bool adds an ext field with the text true or false.
func (e *Encoder) Bool(k string, v bool) {
	if v {
		e.String(k, "true")
	} else {
		e.String(k, "false")
	}
}

// End closes the header and appends body. A frame that would exceed MaxFrame is dropped and ErrTooLarge returned.
func (e *Encoder) End(body []byte) error {
	if err := e.EndHeader(len(body)); err != nil {
		return err
	}
	e.buf = append(e.buf, body...)
	return nil
}

// EndHeader closes the header of a frame whose body of n bytes the caller writes right behind Bytes().
func (e *Encoder) EndHeader(n int) error {
	if !e.inside {
		return nil
	}
	if e.json {
		e.buf = append(e.buf, '}', '}')
	} else {
		binary.BigEndian.PutUint32(e.buf[e.ext:], uint32(len(e.buf)-e.ext-4))
	}
	size := len(e.buf) - e.start + n
	if size > MaxFrame || n < 0 {
		e.Cancel()
		return ErrTooLarge
	}
	e.inside = false
	s := JSON
	if !e.json {
		s = Binary
	}
	binary.BigEndian.PutUint32(e.buf[e.start:], uint32(size-4))
	binary.BigEndian.PutUint32(e.buf[e.start+4:], uint32(len(e.buf)-e.start-prefixLen)|uint32(s)<<24)
	return nil
}

// Append adds p behind the last frame: (a piece of) the body that EndHeader announced.
func (e *Encoder) Append(p []byte) {
	if !e.inside {
		e.buf = append(e.buf, p...)
	}
}

// Frame appends a whole frame with the header and body given; h may have been decoded from another frame.
func (e *Encoder) Frame(h *Header, body []byte) error {
	lang, version := h.Language, h.Version
	if lang == UnknownLanguage {
		lang = Other
	}
	e.Begin(Head{Code: h.Code, Language: lang, Version: version, Opaque: h.Opaque, Flag: h.Flag, Remark: h.Remark, Serialize: h.Serialize, asIs: true})
	for _, f := range h.Ext {
		e.String(f.Key, f.Value)
	}
	return e.End(body)
}

// special reports whether any of 8 bytes needs a closer look: a control character, a quote, a backslash, or no ASCII.
func special(w uint64) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	return ((w-ones*' ')|holds(w, '"')|holds(w, '\\')|w)&highs != 0
}

const hexDigits = "0123456789abcdef"

// appendEscaped appends s as the inside of a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendEscaped(b []byte, s string) []byte {
	start, i := 0, 0
	for ; i+8 <= len(s) && !special(binary.LittleEndian.Uint64(unsafe.Slice(unsafe.StringData(s[i:]), 8))); i += 8 {
	}
	for i < len(s) {
		c := s[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				b = append(b, s[start:i]...)
				b = append(b, "\ufffd"...)
				i++
				start = i
				continue
			}
			i += n
			continue
		}
		b = append(b, s[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	return append(b, s[start:]...)
}
