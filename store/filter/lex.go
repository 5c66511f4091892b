package filter

import (
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokEnd tokenKind = iota
	tokName
	tokQuoted  // a name in backquotes; text is what stands in them
	tokKeyword // text is the word in capitals
	tokNumber
	tokString
	tokSign // an operator or a bracket; text is it
)

type token struct {
	kind tokenKind
	text string // of a string what it stands for
	v    Value  // of a number
	at   int    // first byte in the text
}

func (t token) is(kind tokenKind, text string) bool { return t.kind == kind && t.text == text }

// lexer cuts a text into tokens. It is a plain value: a copy looks ahead.
type lexer struct {
	text  string
	pos   int
	rules Rules
}

var sqlKeywords = set("AND BETWEEN CONTAINS ENDSWITH FALSE IN IS NOT NULL OR STARTSWITH TRUE")
var notifyKeywords = set("AND BETWEEN CONTAINS ENDSWITH ESCAPE FALSE IN IS LIKE NIL NOT NULL OR STARTSWITH TRUE")

func set(words string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		m[w] = true
	}
	return m
}

const longestKeyword = len("STARTSWITH")

func keyword(rules Rules, name string) (string, bool) {
	if len(name) > longestKeyword {
		return "", false
	}
	up := strings.ToUpper(name)
	if rules == SQL92 {
		return up, sqlKeywords[up]
	}
	return up, notifyKeywords[up]
}

func (l *lexer) fail(at int, format string, args ...any) (token, *SyntaxError) {
	return token{}, errorAt(l.text, at, format, args...)
}

// skip passes over blanks and comments.
func (l *lexer) skip() *SyntaxError {
	for l.pos < len(l.text) {
		rest := l.text[l.pos:]
		switch {
		case strings.IndexByte(" \t\n\r\f", rest[0]) >= 0:
			l.pos++
		case strings.HasPrefix(rest, "--"):
			if n := strings.IndexAny(rest, "\n\r"); n >= 0 {
				l.pos += n
			} else {
				l.pos = len(l.text)
			}
		case strings.HasPrefix(rest, "/*"):
			n := strings.Index(rest[2:], "*/")
			if n < 0 {
				return errorAt(l.text, l.pos, "comment without an end")
			}
			l.pos += n + 4
		default:
			return nil
		}
	}
	return nil
}

// signs, longer ones first. RocketMQ has only the first list.
var (
	sqlSigns    = []string{"<>", ">=", "<=", "=", ">", "<", "(", ")", ",", "+", "-"}
	notifySigns = []string{"&&", "||", "==", "=~", "!=", "<>", ">=", "<=", "=", ">", "<", "(", ")", ",", "!", "+", "-"}
)

func (l *lexer) next() (token, *SyntaxError) {
	if err := l.skip(); err != nil {
		return token{}, err
	}
	at := l.pos
	if at == len(l.text) {
		return token{kind: tokEnd, at: at}, nil
	}
	c := l.text[at]
	switch {
	case c == '\'':
		return l.quoted()
	case c == '"' && l.rules == Notify:
		return l.escaped()
	case c == '`':
		return l.backquoted()
	case isDigit(c), c == '.' && at+1 < len(l.text) && isDigit(l.text[at+1]):
		return l.number()
	}
	if n := l.nameLength(); n > 0 {
		l.pos += n
		name := l.text[at:l.pos]
		if up, ok := keyword(l.rules, name); ok {
			return token{kind: tokKeyword, text: up, at: at}, nil
		}
		return token{kind: tokName, text: name, at: at}, nil
	}
	signs := sqlSigns
	if l.rules == Notify {
		signs = notifySigns
	}
	for _, s := range signs {
		if strings.HasPrefix(l.text[at:], s) {
			l.pos += len(s)
			return token{kind: tokSign, text: s, at: at}, nil
		}
	}
	return l.fail(at, "unexpected character")
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// nameLength is the length of the name that begins here, 0 when none does.
func (l *lexer) nameLength() int {
	rest := l.text[l.pos:]
	for i, r := range rest {
		switch {
		case 'a' <= r|0x20 && r|0x20 <= 'z', r == '_', r == '$':
		case l.rules == Notify && r >= utf8.RuneSelf && unicode.IsLetter(r):
		case i > 0 && '0' <= r && r <= '9':
		case i > 0 && l.rules == Notify && (r == '-' || r == '.'):
		default:
			return i
		}
	}
	return len(rest)
}

// quoted reads a text between single quotes, where a doubled quote is one quote and nothing else has a meaning.
func (l *lexer) quoted() (token, *SyntaxError) {
	at := l.pos
	i := at + 1
	for {
		n := strings.IndexByte(l.text[i:], '\'')
		if n < 0 {
			return l.fail(at, "text without a closing quote")
		}
		i += n + 1
		if i == len(l.text) || l.text[i] != '\'' {
			break
		}
		i++
	}
	l.pos = i
	return token{kind: tokString, text: strings.ReplaceAll(l.text[at+1:i-1], "''", "'"), at: at}, nil
}

// escaped reads a text between double quotes, as Java has it.
func (l *lexer) escaped() (token, *SyntaxError) {
	at := l.pos
	var b strings.Builder
	for i := at + 1; i < len(l.text); i++ {
		c := l.text[i]
		if c == '"' {
			l.pos = i + 1
			return token{kind: tokString, text: b.String(), at: at}, nil
		}
		if c != '\\' {
			b.WriteByte(c)
			continue
		}
		if i++; i == len(l.text) {
			break
		}
		switch e := l.text[i]; e {
		case '"', '\\':
			b.WriteByte(e)
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case 'u':
			r, n, ok := unicodeEscape(l.text[i-1:])
			if !ok {
				return l.fail(i-1, `a \u wants four hex digits that make a character`)
			}
			b.WriteRune(r)
			i += n - 2
		default:
			return l.fail(i-1, `unknown escape; there are \" \\ \n \r \t \uXXXX`)
		}
	}
	return l.fail(at, "text without a closing quote")
}

// unicodeEscape reads \uXXXX, or two of them that make a pair, at the beginning of s.
func unicodeEscape(s string) (r rune, length int, ok bool) {
	unit := func(s string) (rune, bool) {
		if len(s) < 6 || s[:2] != `\u` {
			return 0, false
		}
		u, err := strconv.ParseUint(s[2:6], 16, 32)
		return rune(u), err == nil
	}
	if r, ok = unit(s); !ok {
		return 0, 0, false
	}
	if r < 0xD800 || r > 0xDFFF {
		return r, 6, true
	}
	low, ok := unit(s[6:])
	if !ok || r > 0xDBFF || low < 0xDC00 || low > 0xDFFF {
		return 0, 0, false
	}
	return 0x10000 + (r-0xD800)<<10 + (low - 0xDC00), 12, true
}

func (l *lexer) backquoted() (token, *SyntaxError) {
	at := l.pos
	n := strings.IndexByte(l.text[at+1:], '`')
	if n < 0 {
		return l.fail(at, "name without a closing backquote")
	}
	if n == 0 {
		return l.fail(at, "empty name")
	}
	l.pos = at + n + 2
	return token{kind: tokQuoted, text: l.text[at+1 : at+1+n], at: at}, nil
}

// number reads a number without a sign. Whole ones may carry Java's L.
func (l *lexer) number() (token, *SyntaxError) {
	at, i := l.pos, l.pos
	digits := func() {
		for i < len(l.text) && isDigit(l.text[i]) {
			i++
		}
	}
	digits()
	whole := i
	if i < len(l.text) && l.text[i] == '.' {
		i++
		digits()
	}
	if i < len(l.text) && l.text[i]|0x20 == 'e' {
		k := i + 1
		if k < len(l.text) && (l.text[k] == '+' || l.text[k] == '-') {
			k++
		}
		if k < len(l.text) && isDigit(l.text[k]) {
			i = k
			digits()
		}
	}
	image := l.text[at:i]
	t := token{kind: tokNumber, at: at}
	if i == whole {
		if l.rules == SQL92 && len(image) > 1 && image[0] == '0' {
			return l.fail(at, "a whole number does not begin with 0")
		}
		if i < len(l.text) && l.text[i]|0x20 == 'l' {
			i++
		}
		v, ok := wholeLiteral(image)
		if !ok && l.rules == SQL92 {
			return l.fail(at, "whole number outside -9223372036854775808 to 9223372036854775807")
		}
		if t.v = v; ok {
			l.pos = i
			return t, l.numberEnd(i)
		}
	}
	f, err := strconv.ParseFloat(image, 64)
	if err != nil {
		return l.fail(at, "number beyond %g", math.MaxFloat64)
	}
	if l.rules == SQL92 && f == 0 {
		// RocketMQ takes the smallest positive value for the smallest one.
		return l.fail(at, "a number with a fraction must be at least %g; zero is 0", math.SmallestNonzeroFloat64)
	}
	t.v = Float(f)
	l.pos = i
	return t, l.numberEnd(i)
}

// numberEnd refuses what would otherwise be read as a name behind the number.
func (l *lexer) numberEnd(i int) *SyntaxError {
	if l.nameLength() > 0 || l.pos < len(l.text) && (l.text[l.pos] == '.' || isDigit(l.text[l.pos])) {
		return errorAt(l.text, i, "unexpected character behind a number")
	}
	return nil
}

// wholeLiteral reads digits as a whole number. One more than the greatest int64 is given as minimum, for the sign before it.
func wholeLiteral(digits string) (Value, bool) {
	u, err := strconv.ParseUint(digits, 10, 64)
	switch {
	case err != nil || u > 1<<63:
		return Value{}, false
	case u == 1<<63:
		return Value{kind: kindMinimum}, true
	}
	return Int(int64(u)), true
}

// kindMinimum is the number 9223372036854775808 while its minus has not been seen.
const kindMinimum = kindFailed + 1

// pattern reads a regular expression between slashes, where \/ is a slash.
func (l *lexer) pattern() (token, *SyntaxError) {
	for l.pos < len(l.text) && strings.IndexByte(" \t\n\r\f", l.text[l.pos]) >= 0 {
		l.pos++
	}
	at := l.pos
	if at == len(l.text) || l.text[at] != '/' {
		return l.fail(at, "expected a pattern between slashes behind =~")
	}
	var b strings.Builder
	for i := at + 1; i < len(l.text); i++ {
		switch c := l.text[i]; {
		case c == '/':
			l.pos = i + 1
			return token{kind: tokString, text: b.String(), at: at}, nil
		case c == '\\' && i+1 < len(l.text):
			i++
			if l.text[i] != '/' {
				b.WriteByte('\\')
			}
			b.WriteByte(l.text[i])
		default:
			b.WriteByte(c)
		}
	}
	return l.fail(at, "pattern without a closing slash")
}
