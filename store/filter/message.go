package filter

import (
	"bytes"
	"unsafe"
)

// Message is what an expression is asked about. It is only looked at during a call.
type Message struct {
	Properties []byte // RocketMQ's text: name 0x01 value 0x02, repeated
	Fields     Fields // of Notify's system fields; nil when there are none
}

// Fields gives the system fields of a message.
type Fields interface {
	// Field is the value of a field, null when the message has none. Its text must stay as it is while the message is looked at.
	Field(Field) Value
}

// Source says where a value is found in a message. The first of its places that has something counts.
type Source struct {
	Name       string // of a property
	Empty      string // of a property that, when it is there, says that the value is the empty text; "" for none
	Field      Field  // to ask Fields for; FieldNone for none
	Default    string // what it is otherwise,
	HasDefault bool   // or else null
}

// Schema maps what expressions name to where it is. Both methods are pure functions.
type Schema interface {
	Property(name string) Source
	System(Field) Source
}

// Plain is the schema of SQL92: a name is the property of that name, and Fields gives the system fields.
var Plain Schema = plain{}

type plain struct{}

func (plain) Property(name string) Source { return Source{Name: name} }
func (plain) System(f Field) Source       { return Source{Field: f} }

const (
	nameEnd  = 0x01
	valueEnd = 0x02
)

// lookup returns the value of a property in encoded text, the last one of the name. Entries without a name or a value do
// not exist.
func lookup(props []byte, name string) (value []byte) {
	for len(props) > 0 {
		entry := props
		if i := bytes.IndexByte(props, valueEnd); i >= 0 {
			entry, props = props[:i], props[i+1:]
		} else {
			props = nil
		}
		if n := len(name); len(entry) > n+1 && entry[n] == nameEnd && string(entry[:n]) == name && n > 0 {
			value = entry[n+1:]
		}
	}
	return value
}

// value reads a source, one property at a time.
func (s *Source) value(m *Message) Value {
	if b := lookup(m.Properties, s.Name); b != nil {
		return Text(b)
	}
	if s.Empty != "" && lookup(m.Properties, s.Empty) != nil {
		return Text([]byte{})
	}
	return s.otherwise(m.Fields)
}

// otherwise is the value without the properties.
func (s *Source) otherwise(f Fields) Value {
	if s.Field != FieldNone && f != nil {
		if v := f.Field(s.Field); v.kind != KindNull {
			return v
		}
	}
	if s.HasDefault {
		return Text(bytesOf(s.Default))
	}
	return Null()
}

// bytesOf is the string's bytes, which must not be changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
