package filter

import (
	"fmt"
	"unicode/utf8"
)

// SyntaxError says why a text is no expression and where. It is fit to be shown to who wrote the text.
type SyntaxError struct {
	Position int    // of the character, from 1
	Near     string // a few characters of the text from there on, "" at its end
	Reason   string // what is wrong; a limit is named with its value
}

func (e *SyntaxError) Error() string {
	if e.Near == "" {
		return fmt.Sprintf("filter: %s at character %d, the end of the expression", e.Reason, e.Position)
	}
	return fmt.Sprintf("filter: %s at character %d, near %q", e.Reason, e.Position, e.Near)
}

// Limits bound what an expression may ask for, so that nobody can make a filter that costs a broker more than a filter
// should. Zero fields have the defaults of the parser.
type Limits struct {
	Bytes    int // of the text
	Terms    int // conditions, and, or and not together; members of a list and operands do not count
	Depth    int // nested parentheses, nots, signs and chained comparisons together
	Literals int // members of an IN list
}

// The defaults of the two parsers. RocketMQ has no limits; these leave room for what its users have.
var (
	SQL92Limits  = Limits{Bytes: 32 << 10, Terms: 1024, Depth: 64, Literals: 2048}
	NotifyLimits = Limits{Bytes: 4096, Terms: 256, Depth: 32, Literals: 512}
)

func (l Limits) withDefaults(d Limits) Limits {
	for _, f := range [...]struct {
		have *int
		or   int
	}{{&l.Bytes, d.Bytes}, {&l.Terms, d.Terms}, {&l.Depth, d.Depth}, {&l.Literals, d.Literals}} {
		if *f.have == 0 {
			*f.have = f.or
		}
	}
	return l
}

const nearRunes = 16

// errorAt makes the error for byte at of text.
func errorAt(text string, at int, format string, args ...any) *SyntaxError {
	near := text[at:]
	n := 0
	for i := range near {
		if n == nearRunes {
			near = near[:i]
			break
		}
		n++
	}
	return &SyntaxError{Position: utf8.RuneCountInString(text[:at]) + 1, Near: near, Reason: fmt.Sprintf(format, args...)}
}
