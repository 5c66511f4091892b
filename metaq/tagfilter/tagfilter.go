// Package tagfilter decides from the tags code of a queue entry whether a TAG subscription may want the message.
//
// The decision is made on 32-bit hashes, so it lets collisions through; clients compare the tag itself once more
// (spec/remoting.md 6.1). It is never made on the codes a client sends: the Go client hashes UTF-8 bytes where RocketMQ
// hashes UTF-16 units, so its codes are wrong for every tag outside ASCII.
package tagfilter

import (
	"errors"
	"slices"
	"strings"

	"github.com/fusionmq/fusionmq/store/record"
)

// Everything is the expression that wants every message, as the empty text does.
const Everything = "*"

// ErrNoTag is returned by Parse for a text that is not empty and yet names no tag, such as "||". RocketMQ would deliver
// nothing for it without a word.
var ErrNoTag = errors.New("the expression names no tag")

// Filter is a compiled tag expression. It is immutable; the zero value wants nothing.
type Filter struct {
	all   bool
	codes []int64 // ascending, without repeats
}

var all = &Filter{all: true}

// All is the filter of "*": it wants messages without a tag too.
func All() *Filter { return all }

// Parse compiles an expression: empty or "*" for everything, otherwise tags separated by two bars. Blanks around a tag
// are cut off, empty parts are skipped, and there are no wildcards: a star inside a list is a tag of that name.
func Parse(expr string) (*Filter, error) {
	if expr == "" || expr == Everything {
		return all, nil
	}
	f := &Filter{}
	for part := range strings.SplitSeq(expr, "||") {
		if tag := strings.TrimSpace(part); tag != "" {
			f.codes = append(f.codes, Code(tag))
		}
	}
	if len(f.codes) == 0 {
		return nil, ErrNoTag
	}
	f.seal()
	return f, nil
}

// Subscription compiles what a heartbeat says: the expression as its user wrote it and the list of tags that the client
// made of it. Some clients leave one of the two out; a tag in either is wanted.
func Subscription(expr string, tags []string) (*Filter, error) {
	if expr == Everything || expr == "" && len(tags) == 0 {
		return all, nil
	}
	f := &Filter{}
	if expr != "" {
		p, err := Parse(expr)
		if err != nil && len(tags) == 0 {
			return nil, err
		}
		if err == nil {
			f.codes = append(f.codes, p.codes...)
		}
	}
	for _, tag := range tags {
		f.codes = append(f.codes, Code(tag))
	}
	f.seal()
	return f, nil
}

func (f *Filter) seal() {
	slices.Sort(f.codes)
	f.codes = slices.Compact(f.codes)
}

// Match reports whether a message with this tags code may be wanted. 0 is the code of a message without a tag.
func (f *Filter) Match(code int64) bool {
	if f.all {
		return true
	}
	if len(f.codes) <= 8 {
		for _, c := range f.codes {
			if c == code {
				return true
			}
		}
		return false
	}
	_, ok := slices.BinarySearch(f.codes, code)
	return ok
}

// WantsAll reports whether the filter passes every message.
func (f *Filter) WantsAll() bool { return f.all }

// Codes are the wanted tags codes in ascending order; empty for a filter that wants everything. The caller must not
// change them.
func (f *Filter) Codes() []int64 { return f.codes }

// Code is the tags code of a tag: Java's String.hashCode over UTF-16 units, extended to 64 bits with its sign, and 0 for
// no tag.
func Code(tag string) int64 { return int64(record.HashCode(tag)) }
