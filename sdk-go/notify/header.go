package notify

import (
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"

	"github.com/fusionmq/fusionmq/notify/wire"
)

// Header is the properties of a message, in the order in which they were set; a name is there once. On the wire every
// value is text, and the type of one that was not set as a string travels beside it, so that the receiver can ask for
// it as what it was. Names that start with "__" are the system's: they arrive, but cannot be set. The zero value is
// empty. A Header is not for concurrent changes.
type Header struct{ props []property }

type property struct {
	name, value string
	typ         byte // a letter of wire.TypeLetters, or 0: a string
}

// Len is the number of properties.
func (h *Header) Len() int { return len(h.props) }

// Set sets a string. The limits are checked when the message is sent.
func (h *Header) Set(name, value string) { h.set(name, value, 0) }

// SetBool, SetInt8 to SetInt64, SetFloat32 and SetFloat64 set a value of their type.
func (h *Header) SetBool(name string, v bool) { h.set(name, strconv.FormatBool(v), 'Z') }
func (h *Header) SetInt8(name string, v int8) { h.set(name, strconv.FormatInt(int64(v), 10), 'B') }
func (h *Header) SetInt16(name string, v int16) {
	h.set(name, strconv.FormatInt(int64(v), 10), 'H')
}
func (h *Header) SetInt32(name string, v int32) {
	h.set(name, strconv.FormatInt(int64(v), 10), 'I')
}
func (h *Header) SetInt64(name string, v int64) { h.set(name, strconv.FormatInt(v, 10), 'J') }
func (h *Header) SetFloat32(name string, v float32) {
	h.set(name, strconv.FormatFloat(float64(v), 'g', -1, 32), 'F')
}
func (h *Header) SetFloat64(name string, v float64) {
	h.set(name, strconv.FormatFloat(v, 'g', -1, 64), 'D')
}

// Delete removes a property.
func (h *Header) Delete(name string) {
	if i := h.find(name); i >= 0 {
		h.props = append(h.props[:i], h.props[i+1:]...)
	}
}

// Value is a property as text.
func (h *Header) Value(name string) (v string, ok bool) {
	if i := h.find(name); i >= 0 {
		return h.props[i].value, true
	}
	return "", false
}

// Bool is a property as a boolean: true or false in any case, as the filters of a subscription read it.
func (h *Header) Bool(name string) (v, ok bool) {
	text, ok := h.Value(name)
	switch {
	case ok && strings.EqualFold(text, "true"):
		return true, true
	case ok && strings.EqualFold(text, "false"):
		return false, true
	}
	return false, false
}

// Int is a property as a whole number.
func (h *Header) Int(name string) (v int64, ok bool) {
	text, _ := h.Value(name)
	v, err := strconv.ParseInt(text, 10, 64)
	return v, err == nil
}

// Float is a property as a number. Text that names no finite number is none.
func (h *Header) Float(name string) (v float64, ok bool) {
	text, _ := h.Value(name)
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, false
	}
	return v, true
}

// TypeOf is the letter of the type that the sender gave a property: Z boolean, B int8, H int16, I int32, J int64, F
// float32, D float64, S string.
func (h *Header) TypeOf(name string) (letter byte, ok bool) {
	i := h.find(name)
	switch {
	case i < 0:
		return 0, false
	case h.props[i].typ == 0:
		return 'S', true
	}
	return h.props[i].typ, true
}

// All ranges over names and values.
func (h *Header) All() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for i := range h.props {
			if !yield(h.props[i].name, h.props[i].value) {
				return
			}
		}
	}
}

func (h *Header) find(name string) int {
	for i := range h.props {
		if h.props[i].name == name {
			return i
		}
	}
	return -1
}

func (h *Header) set(name, value string, typ byte) {
	if i := h.find(name); i >= 0 {
		h.props[i] = property{name, value, typ}
		return
	}
	h.props = append(h.props, property{name, value, typ})
}

// append adds the properties and their types to the wire's form. It refuses a user's name in the system's namespace.
func (h *Header) append(dst []wire.Property) ([]wire.Property, error) {
	for i := range h.props {
		p := &h.props[i]
		if strings.HasPrefix(p.name, wire.SystemPrefix) {
			return dst, fmt.Errorf("property key %s: names that start with __ belong to the system", wire.Quote(p.name))
		}
		dst = append(dst, wire.Property{Key: bytesOf(p.name), Value: bytesOf(p.value), HasValue: true})
		if p.typ != 0 {
			dst = append(dst, wire.Property{Key: []byte(wire.KeyTypePrefix + p.name), Value: typeValue(p.typ), HasValue: true})
		}
	}
	return dst, nil
}

// typeValue is the one-letter value of a type, without allocating.
func typeValue(letter byte) []byte {
	i := strings.IndexByte(wire.TypeLetters, letter)
	return typeLetters[i : i+1 : i+1]
}

var typeLetters = []byte(wire.TypeLetters)

// headerOf reads properties off the wire: the last of equal names wins and one without a value does not exist. Small
// headers are searched, large ones go through a table, so that no sender can make this quadratic.
func headerOf(ps []wire.Property) Header {
	if len(ps) == 0 {
		return Header{}
	}
	h := Header{props: make([]property, 0, len(ps))}
	var index map[string]int
	if len(ps) > 32 {
		index = make(map[string]int, len(ps))
	}
	typed := false
	for i := range ps {
		name := stringOf(ps[i].Key)
		typed = typed || strings.HasPrefix(name, wire.KeyTypePrefix)
		at := h.lookup(index, name)
		if at < 0 {
			at = len(h.props)
			h.props = append(h.props, property{name: name})
			if index != nil {
				index[name] = at
			}
		}
		h.props[at].value, h.props[at].typ = stringOf(ps[i].Value), boolByte(!ps[i].HasValue)
	}
	if typed {
		for i := range h.props {
			p := &h.props[i]
			if name, ok := strings.CutPrefix(p.name, wire.KeyTypePrefix); ok && p.typ == 0 && len(p.value) == 1 && strings.Contains(wire.TypeLetters, p.value) {
				if at := h.lookup(index, name); at >= 0 && h.props[at].typ != unset {
					h.props[at].typ = p.value[0]
					p.typ = unset
				}
			}
		}
	}
	kept := h.props[:0]
	for _, p := range h.props {
		if p.typ != unset {
			kept = append(kept, p)
		}
	}
	h.props = kept
	return h
}

// lookup is find, through index when there is one.
func (h *Header) lookup(index map[string]int, name string) int {
	if index == nil {
		return h.find(name)
	}
	if i, ok := index[name]; ok {
		return i
	}
	return -1
}

// unset marks an entry that is dropped in the end.
const unset = 1

func boolByte(b bool) byte {
	if b {
		return unset
	}
	return 0
}
