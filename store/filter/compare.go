package filter

import (
	"bytes"
	"cmp"
	"math"
	"strconv"
	"unsafe"
)

// This file is what values mean when they meet: everything both evaluations have in common.

// compareNumbers compares two numbers: whole ones exactly, others as float64.
func compareNumbers(a, b Value) int {
	if a.kind == KindInt && b.kind == KindInt {
		return cmp.Compare(a.int(), b.int())
	}
	return cmp.Compare(a.number(), b.number())
}

// compareJava compares as Java's Double.compareTo: not-a-number is above everything and equal to itself, 0.0 is above -0.0.
func compareJava(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	ia, ib := int64(math.Float64bits(a)), int64(math.Float64bits(b))
	if a != a {
		ia = math.MaxInt64
	}
	if b != b {
		ib = math.MaxInt64
	}
	return cmp.Compare(ia, ib)
}

// view is the text as a string that must not outlive it.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// javaLong reads what Java's Long.valueOf reads, of ASCII digits.
func javaLong(b []byte) (int64, bool) {
	digits := b
	if len(digits) > 0 && (digits[0] == '-' || digits[0] == '+') {
		digits = digits[1:]
	}
	return signedDigits(digits, len(b) > 0 && b[0] == '-')
}

// signedDigits reads decimal digits within int64.
func signedDigits(digits []byte, negative bool) (int64, bool) {
	if len(digits) == 0 {
		return 0, false
	}
	var u uint64
	for _, c := range digits {
		d := uint64(c - '0')
		if d > 9 || u > (1<<63)/10 {
			return 0, false
		}
		u = 10*u + d
	}
	if negative {
		return -int64(u), u <= 1<<63
	}
	return int64(u), u < 1<<63
}

// javaDouble reads what Java's Double.valueOf reads: blanks around it do not count, it may end with d or f, be hexadecimal,
// Infinity or NaN; what is too large is infinite.
func javaDouble(b []byte) (float64, bool) {
	for len(b) > 0 && b[0] <= ' ' {
		b = b[1:]
	}
	for len(b) > 0 && b[len(b)-1] <= ' ' {
		b = b[:len(b)-1]
	}
	body := b
	if len(body) > 0 && (body[0] == '-' || body[0] == '+') {
		body = body[1:]
	}
	if len(body) == 0 {
		return 0, false
	}
	switch body[0] {
	case 'N':
		return math.NaN(), view(body) == "NaN"
	case 'I':
		if b[0] == '-' {
			return math.Inf(-1), view(body) == "Infinity"
		}
		return math.Inf(1), view(body) == "Infinity"
	}
	if c := body[len(body)-1] | 0x20; (c == 'd' || c == 'f') && len(body) > 1 {
		if hex := isHex(body); !hex || bytes.ContainsAny(body, "pP") {
			b, body = b[:len(b)-1], body[:len(body)-1]
		}
	}
	if isHex(body) {
		if !hexFloat(body[2:]) {
			return 0, false
		}
		return parseFloat(b), true
	}
	n, digits := decimal(body)
	if n != len(body) || digits == 0 {
		return 0, false
	}
	return parseFloat(b), true
}

func isHex(b []byte) bool { return len(b) > 1 && b[0] == '0' && b[1]|0x20 == 'x' }

// hexFloat tells whether b, behind 0x, has the form of Java's hexadecimal floats.
func hexFloat(b []byte) bool {
	digits := 0
	i := 0
	for dot := false; i < len(b); i++ {
		switch c := b[i]; {
		case isDigit(c), 'a' <= c|0x20 && c|0x20 <= 'f':
			digits++
			continue
		case c == '.' && !dot:
			dot = true
			continue
		}
		break
	}
	if digits == 0 || i == len(b) || b[i]|0x20 != 'p' {
		return false
	}
	i++
	if i < len(b) && (b[i] == '-' || b[i] == '+') {
		i++
	}
	start := i
	for i < len(b) && isDigit(b[i]) {
		i++
	}
	return i == len(b) && i > start
}

// decimal is the length of the decimal number without a sign at the beginning of b, and how many digits it has before its
// exponent.
func decimal(b []byte) (n, digits int) {
	for n < len(b) && isDigit(b[n]) {
		n++
	}
	digits = n
	if n < len(b) && b[n] == '.' {
		n++
		for n < len(b) && isDigit(b[n]) {
			n++
			digits++
		}
	}
	if n < len(b) && b[n]|0x20 == 'e' {
		k := n + 1
		if k < len(b) && (b[k] == '-' || b[k] == '+') {
			k++
		}
		if k < len(b) && isDigit(b[k]) {
			for k < len(b) && isDigit(b[k]) {
				k++
			}
			n = k
		}
	}
	return n, digits
}

// parseFloat reads a number whose form was checked; too large is infinite.
func parseFloat(b []byte) float64 {
	f, err := strconv.ParseFloat(view(b), 64)
	_ = err // only the range can be wrong, and then f is infinite
	return f
}

// number reads a text as the grammar of Notify's numbers has it: [-] digits [. digits] [exponent], nothing else. One that
// overflows float64 is none.
func number(b []byte) (Value, bool) {
	body := b
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		body = b[1:]
	}
	if len(body) == 0 || !isDigit(body[0]) {
		return Value{}, false
	}
	i := 0
	for i < len(body) && isDigit(body[i]) {
		i++
	}
	if i == len(body) {
		if v, ok := signedDigits(body, negative); ok {
			return Int(v), true
		}
	} else if n, _ := decimal(body); n != len(body) || body[len(body)-1] == '.' || body[i] == '.' && !isDigit(body[i+1]) {
		return Value{}, false
	}
	f := parseFloat(b)
	return Float(f), !math.IsInf(f, 0)
}

// boolean reads true and false in any case.
func boolean(b []byte) (value, ok bool) {
	switch {
	case equalFold(b, "true"):
		return true, true
	case equalFold(b, "false"):
		return false, true
	}
	return false, false
}

// equalFold compares with a lower-case ASCII word.
func equalFold(b []byte, word string) bool {
	if len(b) != len(word) {
		return false
	}
	for i, c := range b {
		if c|0x20 != word[i] || c < 'A' {
			return false
		}
	}
	return true
}

// compareSQL92 is a comparison of RocketMQ: unknown with a null, Failed where RocketMQ throws.
func compareSQL92(op comparison, l, r Value) Truth {
	if l.kind == kindFailed || r.kind == kindFailed {
		return Failed
	}
	if l.kind == KindNull || r.kind == KindNull {
		return Unknown
	}
	if rank(l.kind) > rank(r.kind) {
		op, l, r = op.flip(), r, l
	}
	// l is a text, or both are no text.
	switch {
	case l.kind == KindText && r.kind == KindText:
		if op == eq || op == ne {
			return truth(op.holds(bytes.Compare(l.text, r.text)))
		}
		a, okA := javaDouble(l.text)
		b, okB := javaDouble(r.text)
		if !okA || !okB {
			return Failed
		}
		return truth(op.holds(compareJava(a, b)))
	case l.kind == KindText && r.kind == KindBool:
		return truth((equalFold(l.text, "true") == r.bool()) == (op == eq))
	case l.kind == KindText && r.kind == KindInt:
		i, ok := javaLong(l.text)
		if !ok {
			return Failed
		}
		return truth(op.holds(cmp.Compare(i, r.int())))
	case l.kind == KindText:
		f, ok := javaDouble(l.text)
		if !ok {
			return Failed
		}
		return truth(op.holds(compareJava(f, r.float())))
	case l.kind == KindBool && r.kind == KindBool:
		return truth((l.bool() == r.bool()) == (op == eq))
	case l.kind == KindBool || r.kind == KindBool:
		return truth(op == ne) // of different types, not equal
	case l.kind == KindInt && r.kind == KindInt:
		return truth(op.holds(cmp.Compare(l.int(), r.int())))
	}
	return truth(op.holds(compareJava(l.number(), r.number())))
}

// rank orders kinds so that a text comes first.
func rank(k Kind) int {
	if k == KindText {
		return 0
	}
	return int(k)
}

// compareNotify is a comparison of Notify: a property is of the type that the other side has. texts says that a text that is
// a literal takes part, with which everything is compared as a text.
func compareNotify(op comparison, l, r Value, texts bool) Truth {
	if l.kind == KindNull || r.kind == KindNull {
		return Unknown
	}
	if rank(l.kind) > rank(r.kind) {
		op, l, r = op.flip(), r, l
	}
	if texts && r.kind != KindText {
		var buf [32]byte
		return truth(op.holds(bytes.Compare(l.text, r.appendText(buf[:0]))))
	}
	switch {
	case l.kind == KindText && r.kind == KindText:
		if !texts {
			a, okA := number(l.text)
			b, okB := number(r.text)
			if okA && okB {
				return truth(op.holds(compareNumbers(a, b)))
			}
		}
		return truth(op.holds(bytes.Compare(l.text, r.text)))
	case l.kind == KindText && r.kind == KindBool:
		b, ok := boolean(l.text)
		if !ok || op != eq && op != ne {
			return Unknown
		}
		return truth((b == r.bool()) == (op == eq))
	case l.kind == KindText:
		v, ok := number(l.text)
		if !ok {
			return Unknown
		}
		return truth(op.holds(compareNumbers(v, r)))
	case l.kind == KindBool && r.kind == KindBool && (op == eq || op == ne):
		return truth((l.bool() == r.bool()) == (op == eq))
	case l.kind == KindBool || r.kind == KindBool:
		return Unknown
	}
	return truth(op.holds(compareNumbers(l, r)))
}
