package remoting

import (
	"bytes"
	"fmt"
	"reflect"
	"strconv"

	"github.com/bytedance/sonic"
)

// JSON bodies. Java writes them with fastjson, whose dialect is wider than JSON: integer and object keys without quotes, enums
// by name or ordinal, numbers in quotes. DecodeBody reads all of it; EncodeBody writes strict compact JSON in alphabetical
// order without nulls, which every client reads (Go's route parser wants no blanks and quoted ids).

var (
	bodyEncoder = sonic.Config{SortMapKeys: true, NoNullSliceOrMap: true, ValidateString: true}.Froze()
	// CopyString: bodies alias frames, whose memory is used again.
	bodyDecoder = sonic.Config{CopyString: true}.Froze()
)

// Pretouch compiles the codecs of the bodies that clients send and ask for most. Without it the first client of each kind
// pays some milliseconds; servers call it when they start.
func Pretouch() {
	for _, v := range []any{TopicRouteData{}, HeartbeatData{}, RegisterBrokerBody{}, ClusterInfo{}, ConsumerIDs{}} {
		_ = sonic.Pretouch(reflect.TypeOf(v)) // what cannot be compiled now is compiled, or fails, at its first use
	}
}

// BodyError says what is wrong with the body of a request; its text is meant for the sender.
type BodyError struct {
	Body string // what the body should be
	Err  error
}

func (e *BodyError) Error() string { return "body: want " + e.Body + ": " + e.Err.Error() }
func (e *BodyError) Unwrap() error { return e.Err }

// maxElements bounds the values of a body: an empty one costs three bytes on the wire and a hundred in memory. A registration
// that fills a frame has 800,000.
const maxElements = 1 << 20

// DecodeBody reads a JSON object into v; what names it for the error. Strings in v do not alias b.
func DecodeBody(what string, b []byte, v any) error { return decodeBody(what, b, v, maxElements) }

func decodeBody(what string, b []byte, v any, limit int) error {
	fail := func(format string, args ...any) error {
		return &BodyError{what, fmt.Errorf(format, args...)}
	}
	t := bytes.TrimLeft(b, " \t\r\n")
	if len(t) == 0 {
		return fail("the body is empty")
	}
	if t[0] != '{' {
		return fail("it starts with %q, not with {", t[0])
	}
	t, err := standardJSON(t, limit)
	if err != nil {
		return &BodyError{what, err}
	}
	if err := bodyDecoder.Unmarshal(t, v); err != nil {
		// sonic's errors quote the input around the fault over several lines.
		line, _, _ := bytes.Cut([]byte(err.Error()), []byte("\n"))
		return fail("%s", clip(string(line)))
	}
	return nil
}

// EncodeBody writes v as a JSON body.
func EncodeBody(v any) ([]byte, error) { return bodyEncoder.Marshal(v) }

// standardJSON turns fastjson's dialect into JSON: a bare integer key gets quotes, an object as a key becomes a string with
// its text. b itself is returned when there is nothing to change. Nesting is limited to maxDepth, since the decoder is
// recursive, and the number of values to limit.
func standardJSON(b []byte, limit int) ([]byte, error) {
	var (
		stack [maxDepth]byte
		depth int
		key   bool // a key comes next

		elements int
		out      []byte
		from     int // b[:from] is in out, once anything is
	)
	for i := 0; i < len(b); i++ {
		switch c := b[i]; c {
		case '"':
			n := skipString(b[i:])
			if n == 0 {
				return nil, malformed("string without end at byte %d", i)
			}
			i += n - 1
			key = false
		case '{', '[':
			if key && c == '{' {
				n := skipObject(b[i:])
				if n == 0 {
					return nil, malformed("object without end at byte %d", i)
				}
				out = append(append(out, b[from:i]...), '"')
				out = append(appendEscaped(out, bytesString(b[i:i+n])), '"')
				i += n - 1
				from, key = i+1, false
				continue
			}
			if depth == maxDepth {
				return nil, malformed("nested deeper than %d", maxDepth)
			}
			stack[depth] = c
			depth++
			key = c == '{'
		case '}', ']':
			if depth > 0 {
				depth--
			}
			key = false
		case ',':
			key = depth > 0 && stack[depth-1] == '{'
			if elements++; elements > limit {
				return nil, malformed("more than %d values", limit)
			}
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			if !key {
				continue
			}
			n := 1
			for i+n < len(b) && b[i+n] >= '0' && b[i+n] <= '9' {
				n++
			}
			out = append(append(out, b[from:i]...), '"')
			out = append(append(out, b[i:i+n]...), '"')
			i += n - 1
			from, key = i+1, false
		}
	}
	if from == 0 {
		return b, nil
	}
	return append(out, b[from:]...), nil
}

// skipString returns the length of the string at the start of b, 0 when it has no end.
func skipString(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return 0
}

func skipObject(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			n := skipString(b[i:])
			if n == 0 {
				return 0
			}
			i += n - 1
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// Long is an int64 that is also read from quotes. C++ sends subVersion so, Go the elements of codeSet.
type Long int64

func (n *Long) UnmarshalJSON(b []byte) error {
	s := string(bytes.Trim(b, `"`))
	if s == "null" || s == "" {
		return nil
	}
	v, ok := parseInt(s)
	if !ok {
		return fmt.Errorf("%q is not %s", clip(s), wantInt64)
	}
	*n = Long(v)
	return nil
}

// enum reads a Java enum: a name, or an ordinal as C++ sends. An unknown name is kept, an unknown ordinal becomes "".
func enum(b []byte, names []string) (string, error) {
	s := string(bytes.Trim(b, `"`))
	if s == "null" {
		return "", nil
	}
	if n, err := strconv.Atoi(s); err == nil {
		if n >= 0 && n < len(names) {
			return names[n], nil
		}
		return "", nil
	}
	if len(b) == 0 || b[0] != '"' || len(s) > 64 {
		return "", fmt.Errorf("%q is not one of %q", clip(s), names)
	}
	return s, nil
}

// ConsumeType is CONSUME_ACTIVELY, CONSUME_PASSIVELY or CONSUME_POP.
type ConsumeType string

const (
	ConsumeActively  ConsumeType = "CONSUME_ACTIVELY"
	ConsumePassively ConsumeType = "CONSUME_PASSIVELY"
	ConsumePop       ConsumeType = "CONSUME_POP"
)

func (t *ConsumeType) UnmarshalJSON(b []byte) (err error) {
	s, err := enum(b, []string{string(ConsumeActively), string(ConsumePassively), string(ConsumePop)})
	*t = ConsumeType(s)
	return err
}

// MessageModel is BROADCASTING or CLUSTERING.
type MessageModel string

const (
	Broadcasting MessageModel = "BROADCASTING"
	Clustering   MessageModel = "CLUSTERING"
)

func (m *MessageModel) UnmarshalJSON(b []byte) (err error) {
	s, err := enum(b, []string{string(Broadcasting), string(Clustering)})
	*m = MessageModel(s)
	return err
}

// ConsumeFromWhere is where a new group starts.
type ConsumeFromWhere string

const (
	FromLastOffset  ConsumeFromWhere = "CONSUME_FROM_LAST_OFFSET"
	FromFirstOffset ConsumeFromWhere = "CONSUME_FROM_FIRST_OFFSET"
	FromTimestamp   ConsumeFromWhere = "CONSUME_FROM_TIMESTAMP"
)

var fromWhere = []string{
	string(FromLastOffset), "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST", "CONSUME_FROM_MIN_OFFSET", "CONSUME_FROM_MAX_OFFSET",
	string(FromFirstOffset), string(FromTimestamp),
}

func (w *ConsumeFromWhere) UnmarshalJSON(b []byte) (err error) {
	s, err := enum(b, fromWhere)
	*w = ConsumeFromWhere(s)
	return err
}
