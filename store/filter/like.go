package filter

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// likePiece is a run of a LIKE pattern between two %: characters, of which any says that it matches every one.
type likePiece struct {
	runes []rune
	any   []bool
	text  []byte // the piece when it has no _ in it, else nil
}

// likePattern is a compiled pattern: pieces with a % between each two of them.
type likePattern []likePiece

// maxWild is how long a piece with a _ may be that is looked for at every place of a text.
const maxWild = 64

// compileLike reads a pattern: % is any text, _ one character, and what follows the escape character is itself.
func compileLike(pattern string, escape rune) likePattern {
	p := likePattern{{}}
	literally := false
	for _, r := range pattern {
		last := &p[len(p)-1]
		switch {
		case literally:
			literally = false
			last.runes, last.any = append(last.runes, r), append(last.any, false)
		case escape != 0 && r == escape:
			literally = true
		case r == '%':
			p = append(p, likePiece{})
		default:
			last.runes, last.any = append(last.runes, r), append(last.any, r == '_')
		}
	}
	for i := range p {
		if !slices.Contains(p[i].any, true) {
			p[i].text = []byte(string(p[i].runes))
		}
	}
	return p
}

// likeComplete tells whether a pattern does not end in the middle of an escape.
func likeComplete(pattern string, escape rune) bool {
	literally := false
	for _, r := range pattern {
		literally = !literally && r == escape
	}
	return !literally
}

// matchAt is the length of the text that the piece matches at the beginning of b, -1 when it does not. A byte that is no
// UTF-8 is one character.
func (p *likePiece) matchAt(b []byte) int {
	at := 0
	for i, want := range p.runes {
		r, n := utf8.DecodeRune(b[at:])
		if n == 0 || !p.any[i] && (r != want || r == utf8.RuneError && n == 1) {
			return -1
		}
		at += n
	}
	return at
}

// match takes the first place for each piece in turn, which is right because a later one leaves less text.
func (p likePattern) match(b []byte) bool {
	n := p[0].matchAt(b)
	if n < 0 {
		return false
	}
	b = b[n:]
	if len(p) == 1 {
		return len(b) == 0
	}
	for i := range p[1 : len(p)-1] {
		var ok bool
		if b, ok = p[1+i].behind(b); !ok {
			return false
		}
	}
	return p[len(p)-1].endOf(b)
}

// behind is the text behind the first place where the piece matches.
func (p *likePiece) behind(b []byte) ([]byte, bool) {
	if p.text != nil {
		i := bytes.Index(b, p.text)
		if i < 0 {
			return nil, false
		}
		return b[i+len(p.text):], true
	}
	for {
		if n := p.matchAt(b); n >= 0 {
			return b[n:], true
		}
		_, n := utf8.DecodeRune(b)
		if n == 0 {
			return nil, false
		}
		b = b[n:]
	}
}

// endOf tells whether b ends with the piece.
func (p *likePiece) endOf(b []byte) bool {
	at := len(b)
	for range p.runes {
		_, n := utf8.DecodeLastRune(b[:at])
		if n == 0 {
			return false
		}
		at -= n
	}
	return p.matchAt(b[at:]) == len(b)-at
}

// matchPart is one of CONTAINS, STARTSWITH, ENDSWITH.
func matchPart(where place, b []byte, text string) bool {
	switch where {
	case starts:
		return len(b) >= len(text) && string(b[:len(text)]) == text
	case ends:
		return len(b) >= len(text) && string(b[len(b)-len(text):]) == text
	}
	return indexOf(b, text) >= 0
}

func indexOf(b []byte, text string) int { return bytes.Index(b, bytesOf(text)) }
