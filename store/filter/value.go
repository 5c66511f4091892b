package filter

import (
	"bytes"
	"math"
	"strconv"
)

// Truth is a value of the logic.
type Truth uint8

// The values. Failed is the end of an evaluation of SQL92 that RocketMQ leaves with an exception.
const (
	Unknown Truth = iota
	False
	True
	Failed
)

func (t Truth) String() string {
	return [...]string{"unknown", "false", "true", "failed"}[t]
}

func truth(b bool) Truth {
	if b {
		return True
	}
	return False
}

// not is the negation: unknown and failed stay what they are.
func (t Truth) not() Truth {
	switch t {
	case True:
		return False
	case False:
		return True
	}
	return t
}

// Kind is the type of a Value.
type Kind uint8

// The kinds.
const (
	KindNull Kind = iota
	KindBool
	KindInt
	KindFloat
	KindText
	kindFailed // of an operand whose evaluation failed
)

// Value is a literal or what a field holds. The zero Value is null.
type Value struct {
	kind Kind
	bits uint64 // of a bool (0, 1), int64 or float64
	text []byte
}

// Null is the absent value.
func Null() Value { return Value{} }

// Bool is a truth value.
func Bool(b bool) Value {
	if b {
		return Value{kind: KindBool, bits: 1}
	}
	return Value{kind: KindBool}
}

// Int is a whole number.
func Int(i int64) Value { return Value{kind: KindInt, bits: uint64(i)} }

// Float is a number with a fraction, or one beyond int64. It must be finite.
func Float(f float64) Value { return Value{kind: KindFloat, bits: math.Float64bits(f)} }

// Text is a text, which the Value aliases. The empty text is not null.
func Text(b []byte) Value { return Value{kind: KindText, text: b} }

// Kind is the type of the value.
func (v Value) Kind() Kind { return v.kind }

func (v Value) int() int64     { return int64(v.bits) }
func (v Value) float() float64 { return math.Float64frombits(v.bits) }
func (v Value) bool() bool     { return v.bits != 0 }

// number is the value of a number as float64.
func (v Value) number() float64 {
	if v.kind == KindInt {
		return float64(v.int())
	}
	return v.float()
}

func (v Value) numeric() bool { return v.kind == KindInt || v.kind == KindFloat }

func (v Value) equal(w Value) bool {
	return v.kind == w.kind && v.bits == w.bits && bytes.Equal(v.text, w.text)
}

// appendText appends the value as a text of the language compares it: a number in decimal, true or false.
func (v Value) appendText(dst []byte) []byte {
	switch v.kind {
	case KindBool:
		return strconv.AppendBool(dst, v.bool())
	case KindInt:
		return strconv.AppendInt(dst, v.int(), 10)
	case KindFloat:
		return appendFloat(dst, v.float())
	}
	return append(dst, v.text...)
}

// appendFloat prints a finite number so that it is read again as one with a fraction.
func appendFloat(dst []byte, f float64) []byte {
	n := len(dst)
	dst = strconv.AppendFloat(dst, f, 'g', -1, 64)
	if bytes.ContainsAny(dst[n:], ".e") {
		return dst
	}
	return append(dst, ".0"...)
}
