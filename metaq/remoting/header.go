package remoting

import (
	"strconv"
	"strings"
	"unicode/utf8"
	"unsafe"
)

// Serialize is the encoding of a frame's header.
type Serialize uint8

const (
	JSON   Serialize = 0
	Binary Serialize = 1 // called ROCKETMQ in the protocol
)

func (s Serialize) String() string {
	switch s {
	case JSON:
		return "JSON"
	case Binary:
		return "ROCKETMQ"
	}
	return "serialize type " + strconv.Itoa(int(s))
}

// Language is the implementation language that the sender of a frame states.
type Language int8

const (
	Java Language = iota
	CPP
	DotNet
	Python
	Delphi
	Erlang
	Ruby
	Other
	HTTP
	Go
	PHP
	OMS
	Rust
	NodeJS

	// UnknownLanguage stands for a name or number that the protocol does not define; readers treat it as absent.
	UnknownLanguage Language = -1
)

var languageNames = [...]string{"JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS"}

func (l Language) String() string {
	if l >= 0 && int(l) < len(languageNames) {
		return languageNames[l]
	}
	return "OTHER"
}

func languageOf(name string) Language {
	// The four clients that exist in numbers come first.
	switch name {
	case "JAVA":
		return Java
	case "GO":
		return Go
	case "CPP":
		return CPP
	}
	for i, n := range languageNames {
		if n == name {
			return Language(i)
		}
	}
	return UnknownLanguage
}

// Version is what this implementation states as its release: RocketMQ's V5_3_3. Java clients refuse SQL92 pulls from
// brokers whose heartbeat answer says less than 232.
const Version int32 = 479

// Bits of Header.Flag.
const (
	FlagResponse int32 = 1 << 0
	FlagOneway   int32 = 1 << 1
)

// MaxFields bounds the ext fields of one header, so that a frame of 16 MiB cannot make us keep millions of pairs. The
// largest real header has about 30.
const MaxFields = 1024

// Field is one ext field. Fields whose value is null are not kept.
type Field struct{ Key, Value string }

// Header is a decoded frame header. The zero value is ready for Decode; reuse one to decode without allocation.
//
// Strings alias the frame, see the package comment. A Header must not be used by two goroutines at once.
type Header struct {
	Code      int32 // request code or, with FlagResponse, response code. JSON frames may carry any int32
	Language  Language
	Version   int32 // ordinal of the sender's release in RocketMQ's list of versions
	Opaque    int32 // request id chosen by the requester; the response repeats it
	Flag      int32
	Remark    string
	Serialize Serialize
	Ext       []Field // in wire order. A key may occur twice; the last one counts, as in Java

	scratch []byte // resolved JSON escapes; Ext and Remark may point into it
}

// Response reports whether the frame answers a request.
func (h *Header) Response() bool { return h.Flag&FlagResponse != 0 }

// Oneway reports whether the sender wants no answer. Go clients leave the bit out of their one-way calls.
func (h *Header) Oneway() bool { return h.Flag&FlagOneway != 0 }

// ReplyTo returns what has to be kept of a request to answer it later. It does not alias the frame.
func (h *Header) ReplyTo() ReplyTo {
	return ReplyTo{Opaque: h.Opaque, Serialize: h.Serialize, Oneway: h.Oneway()}
}

// ReplyTo names the request that a response answers.
type ReplyTo struct {
	Opaque    int32
	Serialize Serialize
	Oneway    bool
}

// Lookup returns the value of an ext field and whether it is there.
func (h *Header) Lookup(key string) (string, bool) {
	for i := len(h.Ext) - 1; i >= 0; i-- {
		if h.Ext[i].Key == key {
			return h.Ext[i].Value, true
		}
	}
	return "", false
}

// Get returns the value of an ext field, "" when it is absent.
func (h *Header) Get(key string) string {
	v, _ := h.Lookup(key)
	return v
}

// Require returns the value of an ext field; absent or empty is a *FieldError.
func (h *Header) Require(key string) (string, error) {
	v := h.Get(key)
	if v == "" {
		return "", &FieldError{Field: key, Missing: true}
	}
	return v, nil
}

// Int32 returns a required ext field as a 32-bit integer.
func (h *Header) Int32(key string) (int32, error) {
	v, ok := h.Lookup(key)
	if !ok {
		return 0, &FieldError{Field: key, Missing: true}
	}
	var n int32
	err := (&Field{key, v}).int32(&n)
	return n, err
}

// Int64 returns a required ext field as a 64-bit integer.
func (h *Header) Int64(key string) (int64, error) {
	v, ok := h.Lookup(key)
	if !ok {
		return 0, &FieldError{Field: key, Missing: true}
	}
	var n int64
	err := (&Field{key, v}).int64(&n)
	return n, err
}

// OptInt32 is Int32 for an optional field: absent or empty gives def.
func (h *Header) OptInt32(key string, def int32) (int32, error) {
	if h.Get(key) == "" {
		return def, nil
	}
	return h.Int32(key)
}

// OptInt64 is Int64 for an optional field: absent or empty gives def.
func (h *Header) OptInt64(key string, def int64) (int64, error) {
	if h.Get(key) == "" {
		return def, nil
	}
	return h.Int64(key)
}

// Bool returns an ext field as Java's Boolean.parseBoolean reads it: "true" in any case is true, all else false. Absent gives def.
func (h *Header) Bool(key string, def bool) bool {
	v, ok := h.Lookup(key)
	if !ok {
		return def
	}
	return parseBool(v)
}

// Reset forgets the frame. It keeps the header's own memory for the next one, unless one odd frame made it large.
func (h *Header) Reset() {
	ext, scratch := h.Ext, h.scratch[:0]
	if cap(ext) > 128 {
		ext = nil
	}
	clear(ext)
	ext = ext[:0]
	if cap(scratch) > 64<<10 {
		scratch = nil
	}
	*h = Header{Ext: ext, scratch: scratch, Language: UnknownLanguage}
}

// Clone returns a copy of h that does not alias the frame.
func (h *Header) Clone() *Header {
	c := *h
	n := len(h.Remark)
	for _, f := range h.Ext {
		n += len(f.Key) + len(f.Value)
	}
	buf := make([]byte, 0, n)
	keep := func(s string) string {
		at := len(buf)
		buf = append(buf, s...)
		return bytesString(buf[at:])
	}
	c.Remark = keep(h.Remark)
	c.Ext = make([]Field, len(h.Ext))
	for i, f := range h.Ext {
		c.Ext[i] = Field{keep(f.Key), keep(f.Value)}
	}
	c.scratch = nil
	return &c
}

// FieldError says which field of a request is missing or cannot be read; its text is meant for the sender.
type FieldError struct {
	Field   string
	Value   string // as it arrived, at most 64 bytes of it
	Want    string // what would be right, as a noun with its article
	Missing bool
}

const (
	wantInt32 = "a whole number from -2147483648 to 2147483647"
	wantInt64 = "a whole number of 64 bits"
)

func (e *FieldError) Error() string {
	if e.Missing {
		return "field " + e.Field + " is missing"
	}
	return "field " + e.Field + ": " + strconv.Quote(e.Value) + " is not " + e.Want
}

// clip is what of a field's value goes into an error.
func clip(s string) string { return Clip(s, 64) }

// Clip copies at most n bytes of a text of the sender's for a remark or an error, which outlive the frame. What is cut off
// shows as three dots, and no character is cut in two. n is at least 8.
func Clip(s string, n int) string {
	if len(s) <= n {
		return strings.Clone(s)
	}
	at := n - len("...")
	for end := at - utf8.UTFMax + 1; at > end && !utf8.RuneStart(s[at]); {
		at--
	}
	return s[:at] + "..."
}

// parseInt is strconv.ParseInt(s, 10, 64) without its error allocation.
func parseInt(s string) (int64, bool) {
	neg := false
	if s != "" && (s[0] == '-' || s[0] == '+') {
		neg = s[0] == '-'
		s = s[1:]
	}
	if s == "" || len(s) > 19 {
		return 0, false
	}
	var n uint64
	for i := 0; i < len(s); i++ {
		d := s[i] - '0'
		if d > 9 {
			return 0, false
		}
		n = n*10 + uint64(d)
	}
	if neg {
		if n > 1<<63 {
			return 0, false
		}
		return -int64(n), true
	}
	if n > 1<<63-1 {
		return 0, false
	}
	return int64(n), true
}

func parseBool(s string) bool {
	return len(s) == 4 && s[0]|0x20 == 't' && s[1]|0x20 == 'r' && s[2]|0x20 == 'u' && s[3]|0x20 == 'e'
}

// bytesString returns a string over b itself.
func bytesString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
