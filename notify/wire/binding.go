package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"unicode/utf8"
)

// BindingKind is the form of a subscription.
type BindingKind uint8

// The kinds. Their zero value is no kind.
const (
	Direct  BindingKind = 1 + iota // Expr is the exact message type
	Pattern                        // Expr is an RE2 expression on the message type; a leading "*." is read as ".*"
	Header                         // Expr is a filter on the header
	Fanout                         // every message of the topic; no Expr
)

var kindNames = [...]string{"", "direct", "pattern", "header", "fanout"}

// String is the kind's name on the wire.
func (k BindingKind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "kind " + strconv.Itoa(int(k))
}

// MaxExpr is the most bytes of Binding.Expr.
const MaxExpr = 4096

// DefaultWaterMark asks for the server's own limit.
const DefaultWaterMark = -1

// Binding is one subscription of a group to a topic. Topic, Group, Kind and Expr identify it.
type Binding struct {
	Kind       BindingKind
	Topic      string
	Group      string
	Expr       string
	WaterMark  int32 // most pushed and unacknowledged messages, > 0, or DefaultWaterMark
	Persistent bool  // messages are kept while no machine of the group is connected
	Shadow     bool  // stress-test messages (property __shadow) are wanted too
}

// ParseBinding reads the JSON object of a Subscription (rulings A02): keys kind, topic, expr, group, waterMark
// (default -1), persistent (default true) and shadow (default false). Unknown, repeated and differently typed keys are
// errors, as is anything behind the object. The result has passed Validate.
func ParseBinding(text []byte) (Binding, error) {
	b := Binding{WaterMark: DefaultWaterMark, Persistent: true}
	if !utf8.Valid(text) {
		return b, bindingError("", "not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return b, bindingError("", "want one JSON object")
	}
	var seen [len(bindingKeys)]bool
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return b, bindingError("", err.Error())
		}
		key, _ := t.(string)
		i := keyIndex(key)
		if i < 0 {
			return b, bindingError("", "unknown key "+Quote(key))
		}
		if seen[i] {
			return b, bindingError(key, "given twice")
		}
		seen[i] = true
		v, err := dec.Token()
		if err != nil {
			return b, bindingError(key, err.Error())
		}
		if err := b.set(key, v); err != nil {
			return b, err
		}
	}
	if _, err := dec.Token(); err != nil {
		return b, bindingError("", err.Error())
	}
	if _, err := dec.Token(); err != io.EOF {
		return b, bindingError("", "text behind the object")
	}
	for i, need := range []string{"kind", "topic", "group"} {
		if !seen[i] {
			return b, bindingError(need, "missing")
		}
	}
	return b, b.Validate()
}

// bindingKeys starts with the required ones.
var bindingKeys = [...]string{"kind", "topic", "group", "expr", "waterMark", "persistent", "shadow"}

func keyIndex(key string) int {
	for i, k := range bindingKeys {
		if k == key {
			return i
		}
	}
	return -1
}

func (b *Binding) set(key string, v json.Token) error {
	switch v := v.(type) {
	case string:
		switch key {
		case "kind":
			for k := Direct; k <= Fanout; k++ {
				if kindNames[k] == v {
					b.Kind = k
					return nil
				}
			}
			return bindingError(key, Quote(v)+" is none of direct, pattern, header, fanout")
		case "topic":
			b.Topic = v
			return nil
		case "group":
			b.Group = v
			return nil
		case "expr":
			b.Expr = v
			return nil
		}
	case bool:
		switch key {
		case "persistent":
			b.Persistent = v
			return nil
		case "shadow":
			b.Shadow = v
			return nil
		}
	case json.Number:
		if key == "waterMark" {
			n, err := strconv.ParseInt(v.String(), 10, 32)
			if err != nil {
				return bindingError(key, fmt.Sprintf("%s is not -1 or a whole number from 1 to %d", Quote(v.String()), math.MaxInt32))
			}
			b.WaterMark = int32(n)
			return nil
		}
	}
	return bindingError(key, fmt.Sprintf("wrong type %T", v))
}

// Validate checks the names and the combination of fields.
func (b *Binding) Validate() error {
	if b.Kind < Direct || b.Kind > Fanout {
		return bindingError("kind", "missing")
	}
	if err := CheckTopic(b.Topic); err != nil {
		return err
	}
	if err := CheckGroup("group", b.Group); err != nil {
		return err
	}
	switch {
	case b.Kind == Fanout && b.Expr != "":
		return bindingError("expr", "a fanout binding has none")
	case b.Kind == Direct:
		if err := CheckType(b.Expr); err != nil {
			return err
		}
	case b.Kind != Fanout && b.Expr == "":
		return bindingError("expr", "missing")
	}
	if len(b.Expr) > MaxExpr {
		return bindingError("expr", fmt.Sprintf("%d bytes; at most %d", len(b.Expr), MaxExpr))
	}
	if !utf8.ValidString(b.Expr) {
		return bindingError("expr", "not UTF-8")
	}
	if b.WaterMark == 0 || b.WaterMark < DefaultWaterMark {
		return bindingError("waterMark", fmt.Sprintf("%d; want -1 or more than 0", b.WaterMark))
	}
	return nil
}

// Append appends the JSON text of b, keys in the order of the struct of rulings A02.
func (b *Binding) Append(dst []byte) []byte {
	dst = append(dst, `{"kind":`...)
	dst = appendJSON(dst, b.Kind.String())
	dst = append(dst, `,"topic":`...)
	dst = appendJSON(dst, b.Topic)
	if b.Kind != Fanout {
		dst = append(dst, `,"expr":`...)
		dst = appendJSON(dst, b.Expr)
	}
	dst = append(dst, `,"group":`...)
	dst = appendJSON(dst, b.Group)
	dst = append(dst, `,"waterMark":`...)
	dst = strconv.AppendInt(dst, int64(b.WaterMark), 10)
	dst = append(dst, `,"persistent":`...)
	dst = strconv.AppendBool(dst, b.Persistent)
	if b.Shadow {
		dst = append(dst, `,"shadow":true`...)
	}
	return append(dst, '}')
}

// String is the JSON text.
func (b *Binding) String() string { return string(b.Append(nil)) }

func appendJSON(dst []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		return append(dst, `""`...) // strings always marshal
	}
	return append(dst, text...)
}

func bindingError(key, reason string) error {
	return &HeaderError{Message: "binding", Field: key, Reason: reason}
}
