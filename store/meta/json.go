package meta

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// fieldNames are the JSON names of a struct's fields.
func fieldNames(v any) map[string]bool {
	names := map[string]bool{}
	for t, i := reflect.TypeOf(v), 0; i < t.NumField(); i++ {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "-" {
			names[name] = true
		}
	}
	return names
}

// marshalWith writes the fields of v and those of extra that v does not have. Names come out in order, as RocketMQ
// writes them and so that equal content is equal text; v has its fields in that order, so that the usual case without
// extra ones takes one pass.
func marshalWith(v any, extra map[string]json.RawMessage) ([]byte, error) {
	b, err := marshal(v)
	if err != nil || len(extra) == 0 {
		return b, err
	}
	all := make(map[string]json.RawMessage, 16+len(extra))
	for k, x := range extra {
		all[k] = x
	}
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, err
	}
	return marshal(all)
}

// marshal is json.Marshal without HTML escapes, which no reader of these files needs.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// noExtra is the Extra of what was read and had none: not nil, so that Put takes it for the truth. It is never written to.
var noExtra = map[string]json.RawMessage{}

// unmarshalWith sets the fields of v and returns the others. A null leaves a field as it is.
func unmarshalWith(b []byte, v any, known map[string]bool) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err == nil {
		return noExtra, nil // the usual case, in one pass
	}
	if err := json.Unmarshal(b, v); err != nil {
		return nil, err
	}
	var extra map[string]json.RawMessage
	if err := json.Unmarshal(b, &extra); err != nil {
		return nil, err
	}
	for k := range extra {
		if known[k] {
			delete(extra, k)
		}
	}
	return extra, nil
}

// appendString appends s as JSON. Names are plain text but for what somebody wrote by hand.
func appendString(dst []byte, s string) ([]byte, error) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			b, err := marshal(s)
			return append(dst, b...), err
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"'), nil
}

// quoteKeys returns src with quotes around the integer keys of its objects, as RocketMQ's serializer leaves them out:
// {0:12,1:7}. Text without such keys is returned as it is. It does not check src otherwise; the JSON parser behind it does.
func quoteKeys(src []byte) []byte {
	var out []byte // nil until the first key to quote
	done := 0      // src[:done] is in out
	var last byte  // last significant byte outside strings
	for i := 0; i < len(src); i++ {
		switch c := src[i]; {
		case c == '"':
			for i++; i < len(src) && src[i] != '"'; i++ {
				if src[i] == '\\' {
					i++
				}
			}
			last = '"'
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
		case (last == '{' || last == ',') && (c == '-' || '0' <= c && c <= '9'):
			end := i + 1
			for end < len(src) && '0' <= src[end] && src[end] <= '9' {
				end++
			}
			colon := end
			for colon < len(src) && (src[colon] == ' ' || src[colon] == '\t' || src[colon] == '\n' || src[colon] == '\r') {
				colon++
			}
			if colon < len(src) && src[colon] == ':' {
				out = append(out, src[done:i]...)
				out = append(out, '"')
				out = append(out, src[i:end]...)
				out = append(out, '"')
				done = end
			}
			i, last = end-1, c
		default:
			last = c
		}
	}
	if out == nil {
		return src
	}
	return append(out, src[done:]...)
}
